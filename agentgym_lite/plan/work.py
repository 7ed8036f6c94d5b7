"""Tokens and hours of a run: bounds from the settings, estimates from a run that was measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import fmean

from agentgym_lite.config import Config
from agentgym_lite.plan.model import PlanError
from agentgym_lite.rollout.schedulers import make_scheduler
from agentgym_lite.training.logging import METRICS_FILE

#: A pass without gradients takes this share of one with them.
_FORWARD_SHARE = 1 / 3
#: Steps of a measured run that count: its last ones.
_RECENT = 20


@dataclass(frozen=True)
class Throughput:
    """Tokens per second of one device: sampled ones, and those that an update passes over forward and backward."""

    sampled: float
    trained: float


@dataclass(frozen=True)
class Usage:
    """What a round of interaction takes: tokens sampled, and tokens of context read; both per round and episode."""

    sampled: float
    context: float


@dataclass(frozen=True)
class Stage:
    """Steps with the same limit on rounds. Tokens are per step; ``seconds`` per step, None if no throughput is known."""

    rounds: dict[str, int]
    steps: int
    sampled: float
    tokens: float
    seconds: float | None


@dataclass(frozen=True)
class Work:
    """The stages of a run. ``measured`` says whether tokens are those of a run, or the most that the settings allow."""

    stages: list[Stage]
    measured: bool

    @property
    def hours(self) -> float | None:
        """Of the whole run; None if no throughput is known."""
        seconds = [s.seconds for s in self.stages]
        return None if None in seconds else sum(s.steps * (s.seconds or 0.0) for s in self.stages) / 3600


def measured(run: Path) -> tuple[Usage, Throughput]:
    """Usage per round and throughput in the last steps of a run folder, per process of it.

    Raises ``PlanError`` if the folder holds no steps of a reinforcement-learning run.
    """
    try:
        steps = [json.loads(line) for line in (run / METRICS_FILE).read_text().splitlines()][-_RECENT:]
        steps = [s for s in steps if s["optim/updates"] > 0]
        rounds = [_rounds_played(s) for s in steps]
        sampled, context = sum(s["tokens/sampled"] for s in steps), sum(s["tokens/context"] for s in steps)
        usage = Usage(sampled / sum(rounds), context / sum(rounds))
        return usage, Throughput(
            sampled / sum(s["time/rollout"] for s in steps), (sampled + context) / sum(s["time/update"] for s in steps)
        )
    except (OSError, ValueError, KeyError, ZeroDivisionError) as e:
        raise PlanError(f"expected a run's folder with {METRICS_FILE} and updates in it, found '{run}' ({e!r:.100})") from None


def plan_work(config: Config, devices: int, usage: Usage | None = None, throughput: Throughput | None = None) -> Work:
    """Tokens and seconds of each stage. Without ``usage``: the most that the settings allow, every episode filling its context."""
    schedulers = {e.name: make_scheduler(e.rounds) for e in config.envs}
    limits = [{name: s.rounds_at(step) for name, s in schedulers.items()} for step in range(1, config.run.steps + 1)]
    stages = []
    for rounds, steps in groupby(limits):
        sampled, tokens = _tokens(config, rounds, usage)
        seconds = None if throughput is None else _seconds(config, sampled, tokens, devices, throughput)
        stages.append(Stage(rounds, len(list(steps)), sampled, tokens, seconds))
    return Work(stages, usage is not None)


def _tokens(config: Config, rounds: dict[str, int], usage: Usage | None) -> tuple[float, float]:
    """Sampled tokens and all tokens of a step; an episode never holds more than ``max_length``."""
    episodes = config.run.groups_per_step * config.algorithm.group_size
    weights = [e.weight for e in config.envs]
    sampled = tokens = 0.0
    for env, weight in zip(config.envs, weights, strict=True):
        share = episodes * weight / sum(weights)
        longest = float(config.rollout.max_length)
        if usage is None:
            a, b = float(rounds[env.name] * config.rollout.max_new_tokens), longest
        else:
            a, b = rounds[env.name] * usage.sampled, rounds[env.name] * (usage.sampled + usage.context)
        sampled += share * min(a, longest)
        tokens += share * min(b, longest)
    return sampled, tokens


def _seconds(config: Config, sampled: float, tokens: float, devices: int, throughput: Throughput) -> float:
    algorithm = config.algorithm
    scored = (algorithm.kl_coef > 0) + (algorithm.epochs * algorithm.minibatches > 1)
    passes = algorithm.epochs + _FORWARD_SHARE * scored
    return (sampled / throughput.sampled + passes * tokens / throughput.trained) / devices


def _rounds_played(step: dict[str, float]) -> float:
    """Rounds of all episodes of a step, from the means of its environments."""
    means: Sequence[float] = [v for k, v in step.items() if k.startswith("env/") and k.endswith("/rounds_mean")]
    return fmean(means) * (step["episodes/total"] - step["episodes/env_error"])
