"""One trainer for all policy-gradient algorithms: collect episodes, compute advantages, update, log, save."""

from __future__ import annotations

import copy
import logging
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml

from agentgym_envs.core import environment_class
from agentgym_lite.agents import ChatRenderer, ReAct
from agentgym_lite.algorithms import ALGORITHMS
from agentgym_lite.client import SessionPool
from agentgym_lite.config import Config, ConfigError
from agentgym_lite.models import load_model, load_tokenizer
from agentgym_lite.rollout import Collector, NativeEngine
from agentgym_lite.rollout.schedulers import RoundScheduler, as_scheduler, make_scheduler
from agentgym_lite.rollout.types import Engine, EpisodeSpec, StopReason, Trajectory
from agentgym_lite.training import checkpoint as ckpt
from agentgym_lite.training.batch import Batch
from agentgym_lite.training.items import ItemSampler
from agentgym_lite.training.logging import METRICS_FILE, RunLogger
from agentgym_lite.training.metrics import rollout_metrics
from agentgym_lite.training.update import PolicyUpdater, TrainingError, lr_at

log = logging.getLogger(__name__)

#: How often a group without variance is replaced in one step when ``zero_variance`` is ``resample``.
MAX_RESAMPLES = 3
#: Settings that may differ between a run and its resumption: they decide how long it goes on and where it is kept, not what it computes.
_FREE_ON_RESUME = frozenset({"run.steps", "run.out", "run.save_every", "run.keep", "run.time_limit_s", "run.log_trajectories"})

RewardFn = Callable[[Trajectory], float]
Scheduler = RoundScheduler | Callable[[int], int]


@dataclass(frozen=True)
class TrainResult:
    """How a call of :meth:`Trainer.train` ended: ``step`` is the last one finished, ``history`` the metrics of the steps of this call."""

    step: int
    checkpoint: Path
    stopped_by: str  #: ``"steps"`` or ``"time_limit"``
    history: list[dict[str, float]]


@dataclass
class _Counters:
    """Running totals that a resumed run continues."""

    skipped_steps: int = 0
    sampled_tokens: int = 0
    elapsed_s: float = 0.0


@dataclass
class _Episodes:
    """The episodes of one step with their rewards and, after scoring, their advantages."""

    trajectories: list[Trajectory] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    advantages: list[float] = field(default_factory=list)
    #: First spec of each group played -> whether its rewards are all equal.
    degenerate: dict[EpisodeSpec, bool] = field(default_factory=dict)


class Trainer:
    """Trains ``config.model`` on ``config.envs`` with ``config.algorithm``.

    ``model`` and ``tokenizer`` replace ``config.model``; ``reward_fn`` replaces the environment's reward by a function of the whole
    trajectory; ``schedulers`` maps an environment's name to a scheduler (or a function step -> rounds) in place of its config's;
    ``on_step`` is called with the metrics of every step.

    A step is a pure function of the weights, the optimizer and ``(seed, step)``, so a resumed run equals an unbroken one. Raises
    ``ConfigError`` for settings that do not fit the environments.
    """

    def __init__(
        self,
        config: Config,
        *,
        model: Any = None,
        tokenizer: Any = None,
        reward_fn: RewardFn | None = None,
        schedulers: Mapping[str, Scheduler] | None = None,
        on_step: Callable[[dict[str, float]], None] | None = None,
    ) -> None:
        self.config = config
        self.model = load_model(config.model.path, config.model.dtype) if model is None else model
        self.tokenizer = load_tokenizer(config.model.path) if tokenizer is None else tokenizer
        self._reward_fn = reward_fn or (lambda trajectory: trajectory.reward)
        self._schedulers = _schedulers(config, schedulers or {})
        self._on_step = on_step or (lambda metrics: None)
        self._sampler = ItemSampler(config.envs, config.run.groups_per_step, config.run.seed)
        self._algorithm = ALGORITHMS[config.algorithm.name]
        reference = copy.deepcopy(self.model).eval().requires_grad_(False) if config.algorithm.kl_coef > 0 else None
        self._updater = PolicyUpdater(
            self.model, config.algorithm, config.optim, temperature=config.rollout.temperature, seed=config.run.seed, reference=reference
        )
        self._store = ckpt.CheckpointStore(config.run.out, config.run.keep)
        self._counters = _Counters()
        self._rng: dict[str, Any] = {}
        self._stored_versions: dict[str, str] = {}

    def train(self, resume: bool = False) -> TrainResult:
        """Run to ``run.steps`` or ``run.time_limit_s`` (seconds of this call), then save.

        With ``resume`` the run folder's newest good checkpoint is continued; a run that was killed before its first one starts again.
        Raises ``ConfigError`` if the folder holds a run and ``resume`` is false, or if a setting differs that changes the run;
        ``CheckpointError`` if there is nothing good to resume; ``EnvironmentFailure`` if a server does not answer; ``TrainingError`` if
        training cannot go on.
        """
        began = time.monotonic()
        step = self._begin(resume)
        saved = step
        history: list[dict[str, float]] = []
        limit = self.config.run.time_limit_s
        late = False
        with ExitStack() as stack:
            pools = {e.name: stack.enter_context(SessionPool(e.name, e.url)) for e in self.config.envs}
            versions = _env_versions(pools)
            self._check_versions(step, versions)
            logger = stack.enter_context(RunLogger(self.config.run.out, step))
            engine, collector = self._make_collector(pools)
            while step < self.config.run.steps and not late:
                try:
                    episodes, rollout_s = self._collect_step(step + 1, collector)
                except BaseException:  # the weights are those of the last whole step: keep them, whatever went wrong
                    if step > saved:
                        self._save(step, versions, logger)
                    raise
                step += 1
                metrics = self._learn(step, episodes, engine, rollout_s)
                history.append(metrics)
                logger.log(step, metrics, _spread(episodes.trajectories, self.config.run.log_trajectories))
                self._on_step(metrics)
                self._rng = ckpt.rng_state()  # a reward function may draw from the global generators
                late = limit is not None and time.monotonic() - began >= limit
                if step % self.config.run.save_every == 0 or step == self.config.run.steps or late:
                    self._save(step, versions, logger)
                    saved = step
        stopped_by = "steps" if step >= self.config.run.steps else "time_limit"
        return TrainResult(step, self._store.path(step), stopped_by, history)

    # -- one step ------------------------------------------------------------------------------------------------------------------

    def _collect_step(self, step: int, collector: Collector) -> tuple[_Episodes, float]:
        """Play and score the groups of ``step``, replacing groups without variance if the config says so."""
        began = time.monotonic()
        max_rounds = {name: s.rounds_at(step) for name, s in self._schedulers.items()}
        episodes = _Episodes()
        wanted = self._sampler.groups_at(step)
        for attempt in range(MAX_RESAMPLES + 1):
            self._play(wanted, max_rounds, collector, episodes)
            wanted = [spec for spec in wanted if episodes.degenerate[spec]]
            if self.config.algorithm.zero_variance != "resample" or not wanted or attempt == MAX_RESAMPLES:
                break
            wanted = self._sampler.replacements(wanted, step, attempt + 1)
        if all(t.stop_reason is StopReason.ENV_ERROR for t in episodes.trajectories):
            raise TrainingError(
                f"all {len(episodes.trajectories)} episodes of step {step} ended with an environment error; see that the servers run "
                f"({', '.join(str(e.url) for e in self.config.envs)}) and resume"
            )
        return episodes, time.monotonic() - began

    def _play(self, groups: Sequence[EpisodeSpec], max_rounds: Mapping[str, int], collector: Collector, into: _Episodes) -> None:
        size = self.config.algorithm.group_size
        specs = [EpisodeSpec(g.env, g.item_id, g.seed, sample) for g in groups for sample in range(size)]
        trajectories = collector.collect(specs, max_rounds, self.config.run.seed)
        rewards = [self._reward(t) for t in trajectories]
        number = {g.group: i for i, g in enumerate(groups)}
        usable = [i for i, t in enumerate(trajectories) if t.trainable]
        result = self._algorithm.advantages(
            torch.tensor([rewards[i] for i in usable]),
            torch.tensor([number[trajectories[i].spec.group] for i in usable], dtype=torch.long),
            normalize_std=self.config.algorithm.normalize_std,
        )
        advantages = [0.0] * len(trajectories)
        into.degenerate |= dict.fromkeys(groups, True)
        for i, advantage, flat in zip(usable, result.advantages.tolist(), result.zero_variance.tolist(), strict=True):
            advantages[i] = advantage
            if not flat:
                into.degenerate[groups[number[trajectories[i].spec.group]]] = False
        into.trajectories += trajectories
        into.rewards += rewards
        into.advantages += advantages

    def _reward(self, trajectory: Trajectory) -> float:
        if trajectory.stop_reason is StopReason.ENV_ERROR:
            return 0.0  # never used: the episode counts for nothing
        reward = float(self._reward_fn(trajectory))
        if not math.isfinite(reward):
            raise TrainingError(f"the reward of {trajectory.spec} is {reward}; a reward function must return a finite number")
        return reward

    def _learn(self, step: int, episodes: _Episodes, engine: Engine, rollout_s: float) -> dict[str, float]:
        """Update on the step's episodes; all metrics of the step."""
        began = time.monotonic()
        batch = self._batch(episodes)
        if batch is None:
            self._counters.skipped_steps += 1
            update = {"optim/updates": 0.0, "tokens/trained": 0.0, "optim/lr": lr_at(step, self.config.optim)}
        else:
            update = self._updater.update(batch, step)
            engine.sync()
        update_s = time.monotonic() - began
        max_rounds = {name: s.rounds_at(step) for name, s in self._schedulers.items()}
        rollout = rollout_metrics(episodes.trajectories, episodes.rewards, max_rounds)
        self._counters.sampled_tokens += int(rollout["tokens/sampled"])
        self._counters.elapsed_s += rollout_s + update_s
        flat = list(episodes.degenerate.values())
        return {
            "step": step,
            **rollout,
            "groups/total": float(len(flat)),
            "groups/zero_variance": sum(flat) / len(flat),
            **update,
            "optim/skipped_steps": float(self._counters.skipped_steps),
            "tokens/sampled_total": float(self._counters.sampled_tokens),
            "time/rollout": rollout_s,
            "time/update": update_s,
            "time/total": rollout_s + update_s,
            "time/elapsed": self._counters.elapsed_s,
        }

    def _batch(self, episodes: _Episodes) -> Batch | None:
        """What to train on; None if nothing carries a signal, so that weight decay and momentum do not move the weights either."""
        config = self.config.algorithm
        flat = {spec.group for spec, is_flat in episodes.degenerate.items() if is_flat}
        keep = [
            i for i, t in enumerate(episodes.trajectories) if t.trainable and (config.zero_variance == "keep" or t.spec.group not in flat)
        ]
        advantages = [episodes.advantages[i] for i in keep]
        if not any(advantages) and (not keep or (config.kl_coef == 0 and config.entropy_coef == 0)):
            return None
        device = next(self.model.parameters()).device
        return Batch.from_trajectories([episodes.trajectories[i] for i in keep], advantages, device)

    def _make_collector(self, pools: Mapping[str, SessionPool]) -> tuple[Engine, Collector]:
        rollout = self.config.rollout
        renderer = ChatRenderer(self.tokenizer)
        engine = NativeEngine(
            self.model,
            max_sessions=rollout.max_sessions,
            max_length=rollout.max_length,
            stop_ids=renderer.stop_ids,
            device=next(self.model.parameters()).device,
        )
        return engine, Collector(engine, renderer, pools, ReAct(), rollout)

    # -- beginning, saving, resuming -------------------------------------------------------------------------------------------------

    def _begin(self, resume: bool) -> int:
        """Prepare the run folder and the trainer's state; the last step that is done."""
        out = self.config.run.out
        self._store.remove_half_written()
        steps = self._store.steps()
        if not resume and steps:
            raise ConfigError(
                f"run.out '{out}' already holds a run (checkpoint at step {steps[-1]}); resume it, or choose another folder (run.out=...)"
            )
        if resume and not steps:
            if not (out / METRICS_FILE).exists():
                raise ckpt.CheckpointError(f"expected a run to resume in '{out}', found none; start it without resume")
            warnings.warn(f"the run in '{out}' has no checkpoint yet; it starts from the beginning", stacklevel=3)
        out.mkdir(parents=True, exist_ok=True)
        step = self._restore(self._store.latest()) if resume and steps else 0
        (out / "config.yaml").write_text(yaml.safe_dump(self.config.model_dump(mode="json"), sort_keys=False))
        return step

    def _restore(self, folder: Path) -> int:
        state = ckpt.read_state(folder)
        _check_same(state["config"], self.config.model_dump(mode="json"))
        ckpt.restore(folder, self.model, self._updater.optimizer, list(self._updater.parameters))
        ckpt.set_rng_state(state["rng"])
        self._counters = _Counters(**state["counters"])
        self._stored_versions = state["env_versions"]
        self._store.discard_after(int(state["step"]))
        return int(state["step"])

    def _check_versions(self, step: int, versions: Mapping[str, str]) -> None:
        for name, version in versions.items() if step else ():
            if self._stored_versions[name] != version:
                raise ckpt.CheckpointError(
                    f"environment '{name}' has version {version}, the run to resume was made with {self._stored_versions[name]}; "
                    "install that version or start a new run"
                )

    def _save(self, step: int, versions: Mapping[str, str], logger: RunLogger) -> None:
        logger.sync()
        state = {
            "step": step,
            "config": self.config.model_dump(mode="json"),
            "env_versions": dict(versions),
            "counters": vars(self._counters),
            "rng": self._rng,
        }
        tensors = ckpt.optimizer_tensors(self._updater.optimizer, list(self._updater.parameters))
        path = self._store.save(step, self.model, self.tokenizer, tensors, state)
        log.info("saved %s", path)


def _schedulers(config: Config, given: Mapping[str, Scheduler]) -> dict[str, RoundScheduler]:
    names = [e.name for e in config.envs]
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise ConfigError(f"schedulers were given for {', '.join(unknown)}, but the environments are {', '.join(names)}")
    return {e.name: as_scheduler(given[e.name]) if e.name in given else make_scheduler(e.rounds) for e in config.envs}


def _env_versions(pools: Mapping[str, SessionPool]) -> dict[str, str]:
    """Versions of the running environments, which must be those of the installed package: item ids come from there."""
    out = {}
    for name, pool in pools.items():
        out[name] = str(pool.metadata().result()["version"])
        installed = environment_class(name).version
        if out[name] != installed:
            raise ConfigError(
                f"the server of '{name}' at {', '.join(pool.urls)} has version {out[name]}, the installed agentgym-envs {installed}; "
                "install the same version on both sides"
            )
    return out


def _spread(trajectories: Sequence[Trajectory], n: int) -> list[Trajectory]:
    """At most ``n`` of them at even distances, so that every environment has its share."""
    n = min(n, len(trajectories))
    return [trajectories[i * len(trajectories) // n] for i in range(n)]


def _check_same(stored: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> None:
    """Raises ``ConfigError`` naming the first setting that differs and is not free to."""
    for key in now.keys() | stored.keys():
        name = f"{prefix}{key}"
        old, new = stored.get(key), now.get(key)
        if name in _FREE_ON_RESUME or (prefix.startswith("envs.") and key == "url") or old == new:
            continue
        if isinstance(old, list) and isinstance(new, list):
            old, new = dict(enumerate(old)), dict(enumerate(new))
        if isinstance(old, dict) and isinstance(new, dict):
            _check_same(old, new, f"{name}.")
            continue
        raise ConfigError(
            f"setting '{name}' is {new!r}, but the run to resume was made with {old!r}; restore it, or start a new run in another folder"
        )
