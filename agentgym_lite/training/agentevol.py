"""AgentEvol: train on all successes so far, explore with the new policy, keep what succeeds, repeat."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from agentgym_lite.agents import ChatRenderer
from agentgym_lite.client import SessionPool
from agentgym_lite.config import AgentEvolConfig
from agentgym_lite.rollout.types import EpisodeSpec, Trajectory
from agentgym_lite.training.data import fit, select
from agentgym_lite.training.items import ItemSampler, stable_seed, task_items
from agentgym_lite.training.logging import JsonLines
from agentgym_lite.training.loop import OnStep, StepReport, TrainLoop
from agentgym_lite.training.playing import PolicyPlayer, rounds_at, samples_of
from agentgym_lite.training.sft import nll_losses, usable
from agentgym_lite.training.supervised import (
    TokenCounters,
    TokenSums,
    Updates,
    batch_at,
    gather,
    read_data,
    updates_per_epoch,
    write_data,
)

#: What exploration has added to the training set, in the run's folder.
EXPLORED_FILE = "explored.jsonl"


@dataclass
class Exploration:
    """Episodes that the policy played before an iteration, and those of them that were kept."""

    played: list[Trajectory] = field(default_factory=list)
    kept: list[Trajectory] = field(default_factory=list)
    seconds: float = 0.0


class AgentEvolTrainer(TrainLoop[AgentEvolConfig, Exploration | None]):
    """AgentEvol (Xi et al., arXiv 2406.04151) on ``config.model``.

    Iteration 1 trains on the episodes of ``config.data``. Each later one first lets the policy play ``config.explore``, adds what passes
    its filters to the set, and trains on all of it, from the base model (as published) or from the current one, with a new optimizer.
    Step numbers count updates over all iterations. What was explored stands in ``explored.jsonl``, so that a run can be resumed anywhere.

    ``model`` and ``tokenizer`` replace ``config.model``; ``on_step`` is called with the metrics of every step. A resumed run equals an
    unbroken one. Raises ``ConfigError`` for settings that do not fit the environments.
    """

    def __init__(self, config: AgentEvolConfig, *, model: Any = None, tokenizer: Any = None, on_step: OnStep | None = None) -> None:
        super().__init__(config, model=model, tokenizer=tokenizer, on_step=on_step)
        self._updates = Updates(self.model, config.optim)
        self.optimizer, self.parameters = self._updates.optimizer, self._updates.parameters
        self._base = self._updates.snapshot() if config.evol.train_from == "base" else None
        self._sampler = ItemSampler(config.explore.envs, config.explore.items, stable_seed(config.run.seed, "explore"))
        self._counters: TokenCounters = TokenCounters()
        #: The training set of iteration i is the first ``_sizes[i - 1]`` episodes of ``_set``; it ends at step ``_ends[i - 1]``.
        self._set: list[Trajectory] = []
        self._sizes: list[int] = []
        self._ends: list[int] = []
        self._about: dict[str, float] = {}
        self._digest = ""

    @property
    def total_steps(self) -> int:
        """The last step if the iterations to come keep nothing; grows with every exploration."""
        to_come = self.config.evol.iterations - len(self._ends)
        return self._ends[-1] + to_come * self._steps_for(self._sizes[-1])

    # -- beginning and resuming ------------------------------------------------------------------------------------------------------

    def _start(self, step: int, pools: Mapping[str, SessionPool], stack: ExitStack) -> None:
        config, out = self.config, self.config.run.out
        renderer = ChatRenderer(self.tokenizer)
        if step:
            expert = read_data(out, self._digest).get("expert", [])
        else:
            expert = gather(config.data.sources, renderer, pools, config.run.seed, config.agent)
            self._digest = write_data(out, {"expert": expert})
        self._set, self._about = usable(expert, config.data)
        self._sizes, self._ends = [len(self._set)], [self._steps_for(len(self._set))]
        self._explored = JsonLines(out / EXPLORED_FILE, step)
        stack.callback(self._explored.close)
        explored = _read_explored(out / EXPLORED_FILE)
        while self._ends[-1] < step:
            self._extend(explored.get(len(self._ends) + 1, []))
        self._player = PolicyPlayer(self.model, renderer, pools, config.rollout, config.run.seed, config.agent)
        stack.callback(self._player.close)

    def _steps_for(self, size: int) -> int:
        run = self.config.run
        return run.epochs * updates_per_epoch(size, run.batch_size)

    def _extend(self, kept: Sequence[Trajectory]) -> None:
        """Begin the next iteration, on the set with ``kept`` added."""
        self._set += kept
        self._sizes.append(len(self._set))
        self._ends.append(self._ends[-1] + self._steps_for(len(self._set)))

    def _extra_state(self) -> dict[str, Any]:
        return {"data": self._digest}

    def _restore_extra(self, state: Mapping[str, Any]) -> None:
        self._digest = state["data"]

    def _before_save(self) -> None:
        self._explored.sync()

    # -- one step --------------------------------------------------------------------------------------------------------------------

    def _collect(self, step: int) -> Exploration | None:
        """Explore if ``step`` begins an iteration but the first."""
        if step <= self._ends[-1]:
            return None
        began = time.monotonic()
        explore, iteration = self.config.explore, len(self._ends) + 1
        specs = samples_of(self._sampler.groups_at(iteration - 1), explore.samples)
        played = self._player.play(specs, rounds_at(explore.envs, iteration - 1), f"exploration before iteration {iteration}")
        kept = fit(select(played, explore, known=self._set), self.config.data.max_length)
        return Exploration(played, kept, time.monotonic() - began)

    def _learn(self, step: int, collected: Exploration | None) -> StepReport:
        began = time.monotonic()
        config, metrics = self.config, dict(self._about)
        if collected is not None:
            metrics |= self._begin_iteration(step, collected)
        iteration, size = len(self._ends), self._sizes[-1]
        steps = self._steps_for(size)
        k = step - (self._ends[-1] - steps)
        numbers = batch_at(k, size, config.run.batch_size, config.run.seed, "iteration", iteration)
        sums = TokenSums()
        losses = nll_losses(self.model, [self._set[i] for i in numbers], config.optim.micro_batch_tokens, sums)
        with self._arithmetic():
            metrics |= self._updates.update(losses, self._updates.lr(k, steps), step)
        self._counters.trained_tokens += int(sums.tokens)
        if step == self._ends[-1] and config.evol.eval_items:
            metrics |= self._evaluate()
        explore_s = 0.0 if collected is None else collected.seconds
        total_s = time.monotonic() - began + explore_s
        self._counters.elapsed_s += total_s
        metrics |= {
            "step": step,
            "evol/iteration": float(iteration),
            "evol/set_size": float(size),
            "data/epoch": k / updates_per_epoch(size, config.run.batch_size),
            **sums.metrics(),
            "tokens/trained_total": float(self._counters.trained_tokens),
            "time/explore": explore_s,
            "time/total": total_s,
            "time/elapsed": self._counters.elapsed_s,
        }
        return StepReport(metrics)

    def _begin_iteration(self, step: int, exploration: Exploration) -> dict[str, float]:
        self._extend(exploration.kept)
        for t in exploration.kept:
            self._explored.write({"step": step, "iteration": len(self._ends), **t.to_dict()})
        self._updates.restart(self._base)
        played = exploration.played
        return {
            "explore/episodes": float(len(played)),
            "explore/success": fmean(t.success for t in played),
            "explore/reward": fmean(t.reward for t in played),
            "explore/kept": float(len(exploration.kept)),
        }

    def _evaluate(self) -> dict[str, float]:
        """Greedy success on held-out items, the same ones after every iteration."""
        envs = self.config.explore.envs
        specs = [EpisodeSpec(e.name, item) for e in envs for item in _spread(task_items(e, "eval"), self.config.evol.eval_items)]
        rounds = rounds_at(envs, self.config.evol.iterations)
        played = self._player.play(specs, rounds, "evaluation", greedy=True)
        out = {"eval/success": fmean(t.success for t in played), "eval/reward": fmean(t.reward for t in played)}
        for e in envs:
            mine = [t.success for t in played if t.spec.env == e.name]
            if mine:
                out[f"eval/{e.name}/success"] = fmean(mine)
        return out


def _read_explored(path: Path) -> dict[int, list[Trajectory]]:
    out: dict[int, list[Trajectory]] = {}
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            out.setdefault(record["iteration"], []).append(Trajectory.from_dict(record))
    return out


def _spread(items: Sequence[str], n: int) -> list[str]:
    n = min(n, len(items))
    return [items[k * len(items) // n] for k in range(n)]
