"""What all trainers share: steps, logs, checkpoints and resumption. A method only says what a step does."""

from __future__ import annotations

import logging
import re
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
import yaml
from torch import Tensor
from torch.optim import Optimizer

from agentgym_envs.core import environment_class
from agentgym_lite.client import SessionPool
from agentgym_lite.config import ConfigError, MethodConfig
from agentgym_lite.lora import with_lora
from agentgym_lite.models import checkpoint_layers, load_model, load_tokenizer
from agentgym_lite.rollout.types import Trajectory
from agentgym_lite.training import checkpoint as ckpt
from agentgym_lite.training.distributed import PeerFailure, World, started_processes
from agentgym_lite.training.items import stable_seed
from agentgym_lite.training.logging import METRICS_FILE, RunLogger

log = logging.getLogger(__name__)

#: Settings that may differ between a run and its resumption: they decide how long it goes on and where it is kept, not what it computes.
_FREE_ON_RESUME = frozenset(
    {"run.steps", "run.out", "run.save_every", "run.keep", "run.time_limit_s", "run.log_trajectories"}
    | {"model.device", "model.gradient_checkpointing"}
    | {f"rollout.vllm.{name}" for name in ("url", "gpu_memory", "sleep", "sync_dir")}
)
_URL = re.compile(r"(?:.*\.)?envs\.\d+\.url(?:\.\d+)?")

ConfigT = TypeVar("ConfigT", bound=MethodConfig)
CollectedT = TypeVar("CollectedT")
OnStep = Callable[[dict[str, float]], None]


@dataclass(frozen=True)
class TrainResult:
    """How a call of :meth:`TrainLoop.train` ended: ``step`` is the last one finished, ``history`` the metrics of this call's steps."""

    step: int
    checkpoint: Path
    stopped_by: str  #: ``"steps"`` or ``"time_limit"``
    history: list[dict[str, float]]


@dataclass
class Counters:
    """Running totals that a resumed run continues."""

    elapsed_s: float = 0.0


@dataclass(frozen=True)
class StepReport:
    """What a step says: its ``metrics`` and the episodes to write down."""

    metrics: dict[str, float]
    trajectories: Sequence[Trajectory] = field(default_factory=tuple)


class TrainLoop(ABC, Generic[ConfigT, CollectedT]):
    """Runs a method's steps; a step is :meth:`_collect`, which leaves the weights alone, and :meth:`_learn`, which changes them.

    ``model`` and ``tokenizer`` default to those of ``config.model``; with ``config.model.lora`` the model is wrapped in adapters.
    ``on_step`` is called with the metrics of every step. ``world`` are the processes of the run, by default those that ``torchrun`` has
    started; the main one writes logs, all write checkpoints. A step must be a pure function of the weights, the optimizer and
    ``(seed, step)``, so that a resumed run equals an unbroken one.
    """

    #: Set by the method before :meth:`train`: the optimizer and its parameters by name, in its order.
    optimizer: Optimizer
    parameters: Mapping[str, Tensor]

    #: Whether the method can run in several processes.
    distributed = False

    def __init__(
        self, config: ConfigT, *, model: Any = None, tokenizer: Any = None, on_step: OnStep | None = None, world: World | None = None
    ) -> None:
        self.config = config
        if started_processes() > 1 and not self.distributed:
            raise ConfigError(f"method '{config.method}' runs in one process, found {started_processes()}; start it without torchrun")
        self.world = World.from_environment() if world is None else world
        if model is None:
            model = load_model(config.model.path, config.model.dtype)
            model = model if self.world.size > 1 else model.to(config.model.chosen_device())  # sharding moves layer by layer
        self.model = with_lora(model, config.model.lora, stable_seed(config.run.seed, "lora"))
        self.tokenizer = load_tokenizer(config.model.path) if tokenizer is None else tokenizer
        self._on_step = on_step or (lambda metrics: None)
        if config.model.gradient_checkpointing:
            checkpoint_layers(self.model)
        self._store = ckpt.CheckpointStore(config.run.out, config.run.keep, self.world)
        self._counters = Counters()
        self._rng: dict[str, Any] = {}
        self._versions: dict[str, str] = {}

    def train(self, resume: bool = False) -> TrainResult:
        """Run to the last step or ``run.time_limit_s`` (seconds of this call), then save.

        With ``resume`` the run folder's newest good checkpoint is continued; a run that was killed before its first one starts again.
        Raises ``ConfigError`` if the folder holds a run and ``resume`` is false, or if a setting differs that changes the run;
        ``CheckpointError`` if there is nothing good to resume; ``EnvironmentFailure`` if a server does not answer; ``TrainingError`` if
        training cannot go on, ``PeerFailure`` if that is so in another process of the run.
        """
        with self.world.watched():
            return self._run(resume)

    def _run(self, resume: bool) -> TrainResult:
        began = time.monotonic()
        step = self._begin(resume)
        saved = step
        history: list[dict[str, float]] = []
        limit = self.config.run.time_limit_s
        late = False
        with ExitStack() as stack:
            pools = {name: stack.enter_context(SessionPool(name, e.url, options=e.options)) for name, e in self.config.environments.items()}
            self._check_versions(step, _env_versions(pools))
            logger = stack.enter_context(RunLogger(self.config.run.out, step)) if self.world.is_main else None
            self._start(step, pools, stack)
            while step < self.total_steps and not late:
                try:
                    collected = self._collect(step + 1)
                except BaseException as e:  # the weights are those of the last whole step: keep them, whatever went wrong
                    if step > saved and (self.world.size == 1 or isinstance(e, PeerFailure)):  # several save together or not at all
                        self._save(step, logger)
                    raise
                step += 1
                report = self._learn(step, collected)
                history.append(report.metrics)
                if logger is not None:
                    logger.log(step, report.metrics, report.trajectories)
                    self._on_step(report.metrics)
                self._rng = ckpt.rng_state()  # a reward function may draw from the global generators
                late = limit is not None and self.world.main(lambda: time.monotonic() - began >= limit)
                if step % self.config.run.save_every == 0 or step >= self.total_steps or late:
                    self._save(step, logger)
                    saved = step
        stopped_by = "steps" if step >= self.total_steps else "time_limit"
        return TrainResult(step, self._store.path(step), stopped_by, history)

    def _arithmetic(self) -> torch.autocast:
        """Where an update's layers are computed: in bfloat16 for ``mixed``. Casts are not cached, since an update changes the weights."""
        device = next(self.model.parameters()).device.type
        return torch.autocast(device, torch.bfloat16, enabled=self.config.model.dtype == "mixed", cache_enabled=False)

    # -- what a method says ------------------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def total_steps(self) -> int:
        """The last step; known once :meth:`_start` has run."""

    @abstractmethod
    def _start(self, step: int, pools: Mapping[str, SessionPool], stack: ExitStack) -> None:
        """Get ready for step ``step + 1``: the weights are those after ``step``. What must be closed goes into ``stack``."""

    @abstractmethod
    def _collect(self, step: int) -> CollectedT:
        """Everything that ``step`` learns from. Changes neither weights nor optimizer."""

    @abstractmethod
    def _learn(self, step: int, collected: CollectedT) -> StepReport:
        """Update on it."""

    def _extra_state(self) -> dict[str, Any]:
        """More to keep in a checkpoint's state, JSON-ready."""
        return {}

    def _restore_extra(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`_extra_state` gave."""

    def _extra_tensors(self) -> dict[str, Tensor]:
        """Weights to keep besides the model's."""
        return {}

    def _restore_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what :meth:`_extra_tensors` gave."""

    def _before_save(self) -> None:
        """Bring files that a checkpoint relies on to the disk."""

    # -- beginning, saving, resuming -------------------------------------------------------------------------------------------------

    def _begin(self, resume: bool) -> int:
        """Prepare the run folder and the trainer's state; the last step that is done."""
        out = self.config.run.out
        steps = self.world.main(lambda: self._prepare_folder(resume))
        if steps and any(seen != steps for seen in self.world.gather(self._store.steps())):
            raise ConfigError(
                f"the processes of the run find different checkpoints in '{out}'; run.out must be a folder that all nodes share"
            )
        step = self._restore(self.world.main(self._store.latest)) if resume and steps else 0
        if self.world.is_main:
            (out / "config.yaml").write_text(yaml.safe_dump(self.config.model_dump(mode="json"), sort_keys=False))
        return step

    def _prepare_folder(self, resume: bool) -> list[int]:
        """Steps of the checkpoints that a run may continue; none for a new run."""
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
        return steps

    def _restore(self, folder: Path) -> int:
        state = ckpt.read_state(folder)
        _check_same(state["config"], self.config.model_dump(mode="json"))
        ckpt.restore(folder, self.model, self.optimizer, list(self.parameters))
        ckpt.set_rng_state(state["rng"][self.world.rank % len(state["rng"])])
        self._counters = type(self._counters)(**state["counters"])
        self._versions = state["env_versions"]
        self._restore_extra(state)
        self._restore_tensors(ckpt.read_extra(folder))
        self.world.main(lambda: self._store.discard_after(int(state["step"])))
        return int(state["step"])

    def _check_versions(self, step: int, versions: dict[str, str]) -> None:
        for name, version in versions.items() if step else ():
            if self._versions[name] != version:
                raise ckpt.CheckpointError(
                    f"environment '{name}' has version {version}, the run to resume was made with {self._versions[name]}; "
                    "install that version or start a new run"
                )
        self._versions = versions

    def _save(self, step: int, logger: RunLogger | None) -> None:
        if logger is not None:
            logger.sync()
        self._before_save()
        state = {
            "step": step,
            "config": self.config.model_dump(mode="json"),
            "env_versions": self._versions,
            "counters": vars(self._counters),
            "rng": self.world.gather(self._rng),
            **self._extra_state(),
        }
        tensors = ckpt.optimizer_tensors(self.optimizer, list(self.parameters))
        path = self._store.save(step, self.model, self.tokenizer, tensors, state, self._extra_tensors())
        log.info("saved %s", path)


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


def _check_same(stored: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> None:
    """Raises ``ConfigError`` naming the first setting that differs and is not free to."""
    for key in sorted(now.keys() | stored.keys(), key=lambda k: (k != "method", str(k))):
        name = f"{prefix}{key}"
        old, new = stored.get(key), now.get(key)
        if name in _FREE_ON_RESUME or _URL.fullmatch(name) or old == new:
            continue
        if isinstance(old, list) and isinstance(new, list):
            old, new = dict(enumerate(old)), dict(enumerate(new))
        if isinstance(old, dict) and isinstance(new, dict):
            _check_same(old, new, f"{name}.")
            continue
        raise ConfigError(
            f"setting '{name}' is {new!r}, but the run to resume was made with {old!r}; restore it, or start a new run in another folder"
        )
