"""What the methods that learn from trajectories share: their data on disk, the order of examples, the learning rate, the update."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from agentgym_lite.agents import ChatRenderer
from agentgym_lite.client import SessionPool
from agentgym_lite.config import AgentConfig, AgentTrajSource, EpochConfig, ExpertSource, ScheduledOptimConfig, TrajectoriesSource
from agentgym_lite.rollout.types import Trajectory
from agentgym_lite.training import checkpoint as ckpt
from agentgym_lite.training.data import hold_out, read_agent_traj, read_trajectories
from agentgym_lite.training.errors import TrainingError
from agentgym_lite.training.items import stable_seed
from agentgym_lite.training.loop import Counters, OnStep, StepReport, TrainLoop
from agentgym_lite.training.playing import play_experts
from agentgym_lite.training.update import lr_at

#: What a run learns from, in its folder; a resumed run reads it instead of playing or reading the sources again.
DATA_FILE = "data.jsonl"

EpochConfigT = TypeVar("EpochConfigT", bound=EpochConfig)
ExampleT = TypeVar("ExampleT")


class Updates:
    """AdamW on the trained parameters of a model, one update for each list of losses. The model stays in evaluation mode."""

    def __init__(self, model: Any, optim: ScheduledOptimConfig) -> None:
        self._optim = optim
        model.eval()
        self.parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self.optimizer = torch.optim.AdamW(list(self.parameters.values()), lr=optim.lr, betas=optim.betas, weight_decay=optim.weight_decay)

    def lr(self, step: int, total: int) -> float:
        r"""Learning rate of update ``step`` of ``total``, counted from 1; never 0.

        Linear warm-up over W steps to ``lr``, then with :math:`x = (step - W - 1) / (total - W)`: ``lr``, :math:`lr (1 - x)` or
        :math:`lr (1 + \cos \pi x) / 2`.
        """
        warmup = self._optim.warmup_steps
        x = max(0, step - warmup - 1) / max(1, total - warmup)
        fall = {"constant": 1.0, "linear": 1 - x, "cosine": (1 + math.cos(math.pi * x)) / 2}[self._optim.schedule]
        return lr_at(step, self._optim) * fall

    def update(self, losses: Iterable[Tensor], lr: float, step: int) -> dict[str, float]:
        """Make one update on the sum of ``losses``, which are taken one at a time so that only one graph is alive.

        Raises ``TrainingError`` if a loss or the gradient is not finite; nothing is changed then.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.zero_grad()
        total = 0.0
        for loss in losses:
            loss.backward()
            total += float(loss.detach())
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters.values(), self._optim.grad_clip))
        if not (math.isfinite(total) and math.isfinite(norm)):
            raise TrainingError(
                f"loss or gradient of step {step} is not finite (loss {total}, gradient norm {norm}); no update was made with it. "
                "Lower optim.lr and resume from the last checkpoint"
            )
        self.optimizer.step()
        return {"loss/total": total, "optim/grad_norm": norm, "optim/lr": lr}

    def restart(self, weights: Mapping[str, Tensor] | None = None) -> None:
        """Forget the moments; with ``weights`` (by parameter name) go on from there."""
        self.optimizer.state.clear()
        if weights is not None:
            with torch.no_grad():
                for name, p in self.parameters.items():
                    p.copy_(weights[name])

    def snapshot(self) -> dict[str, Tensor]:
        """Copies of the trained parameters by name."""
        return {name: p.detach().clone() for name, p in self.parameters.items()}


def updates_per_epoch(n: int, batch_size: int) -> int:
    """Updates in one pass over ``n`` examples; the last batch may be smaller."""
    return -(-n // batch_size)


def batch_at(step: int, n: int, batch_size: int, *seed: object) -> list[int]:
    """Numbers of the examples of update ``step`` (from 1): each pass visits all ``n`` once, in an order of its own."""
    epoch, k = divmod(step - 1, updates_per_epoch(n, batch_size))
    order = np.random.default_rng(stable_seed(*seed, "epoch", epoch)).permutation(n)
    return [int(i) for i in order[k * batch_size : (k + 1) * batch_size]]


def gather(
    sources: Sequence[ExpertSource | TrajectoriesSource | AgentTrajSource],
    renderer: ChatRenderer,
    pools: Mapping[str, SessionPool],
    seed: int,
    agent: AgentConfig,
) -> list[Trajectory]:
    """The episodes of all sources, in order; experts speak as ``agent``. Raises ``DataError``, ``EnvironmentFailure``."""
    out: list[Trajectory] = []
    for number, source in enumerate(sources):
        if isinstance(source, ExpertSource):
            out += play_experts(source, renderer, pools, stable_seed(seed, "source", number), agent)
        elif isinstance(source, TrajectoriesSource):
            out += read_trajectories(source.path, renderer)
        else:
            out += read_agent_traj(source.path, renderer)
    return out


def write_data(folder: Path, sets: Mapping[str, Sequence[Trajectory]]) -> str:
    """Write named sets of episodes to the run's ``data.jsonl``, wholly or not at all; the file's SHA-256."""
    writing = folder / f".{DATA_FILE}"
    with writing.open("w", encoding="utf-8") as f:
        for name, episodes in sets.items():
            for t in episodes:
                f.write(json.dumps({"set": name, **t.to_dict()}, ensure_ascii=False) + "\n")
        f.flush()
        os.fsync(f.fileno())
    writing.rename(folder / DATA_FILE)
    return _digest(folder)


def read_data(folder: Path, digest: str) -> dict[str, list[Trajectory]]:
    """Inverse of :func:`write_data`. Raises ``CheckpointError`` if the file is not the one that was written."""
    if not (folder / DATA_FILE).is_file() or _digest(folder) != digest:
        raise ckpt.CheckpointError(
            f"expected the data that the run was made with in '{folder / DATA_FILE}', found another file or none; put it back, or start a "
            "new run in another folder"
        )
    sets: dict[str, list[Trajectory]] = {}
    with (folder / DATA_FILE).open(encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            sets.setdefault(record["set"], []).append(Trajectory.from_dict(record))
    return sets


def _digest(folder: Path) -> str:
    with (folder / DATA_FILE).open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


# -- passes over a fixed set of examples -----------------------------------------------------------------------------------------------


class TokenSums:
    """Sums over the trained tokens of one update."""

    def __init__(self) -> None:
        self.tokens = 0.0
        self._entropy = 0.0

    def add(self, mask: Tensor, entropy: Tensor) -> None:
        """Add a micro-batch; both are ``[B, T]``."""
        self.tokens += float(mask.sum())
        self._entropy += float(entropy.detach().sum())

    def metrics(self) -> dict[str, float]:
        return {"tokens/trained": self.tokens, "policy/entropy": self._entropy / self.tokens}


@dataclass
class TokenCounters(Counters):
    trained_tokens: int = 0


class EpochTrainer(TrainLoop[EpochConfigT, list[int]], Generic[EpochConfigT, ExampleT]):
    """Passes over examples that are there before training begins; a method says what an example is and what its loss is."""

    def __init__(self, config: EpochConfigT, *, model: Any = None, tokenizer: Any = None, on_step: OnStep | None = None) -> None:
        super().__init__(config, model=model, tokenizer=tokenizer, on_step=on_step)
        self._updates = Updates(self.model, config.optim)
        self.optimizer, self.parameters = self._updates.optimizer, self._updates.parameters
        self._counters: TokenCounters = TokenCounters()
        self._train: list[ExampleT] = []
        self._held_out: list[ExampleT] = []
        self._about: dict[str, float] = {}
        self._digest = ""

    @property
    def total_steps(self) -> int:
        run = self.config.run
        return run.epochs * updates_per_epoch(len(self._train), run.batch_size)

    # -- what a method says ------------------------------------------------------------------------------------------------------------

    @abstractmethod
    def _gather(self, renderer: ChatRenderer, pools: Mapping[str, SessionPool]) -> dict[str, list[Trajectory]]:
        """Named sets of episodes."""

    @abstractmethod
    def _examples(self, sets: Mapping[str, Sequence[Trajectory]]) -> tuple[list[ExampleT], dict[str, float]]:
        """What to learn from, and metrics about it. Raises ``DataError`` if nothing is left."""

    @abstractmethod
    def _item(self, example: ExampleT) -> tuple[str, str]:
        """``(env, item_id)`` of an example."""

    @abstractmethod
    def _losses(self, examples: Sequence[ExampleT], sums: TokenSums, into: dict[str, float]) -> Iterator[Tensor]:
        """Losses of micro-batches that add up to the loss of all ``examples``; metrics are added up in ``into``."""

    # -- steps -------------------------------------------------------------------------------------------------------------------------

    def _start(self, step: int, pools: Mapping[str, SessionPool], stack: ExitStack) -> None:
        out, run = self.config.run.out, self.config.run
        if step:
            sets = read_data(out, self._digest)
        else:
            sets = self._gather(ChatRenderer(self.tokenizer), pools)
            self._digest = write_data(out, sets)
        examples, about = self._examples(sets)
        held = hold_out(map(self._item, examples), self.config.data.eval_share, run.seed)
        self._train = [e for e in examples if self._item(e) not in held]
        self._held_out = [e for e in examples if self._item(e) in held]
        self._about = about | {"data/train": float(len(self._train)), "data/held_out": float(len(self._held_out))}

    def _extra_state(self) -> dict[str, Any]:
        return {"data": self._digest}

    def _restore_extra(self, state: Mapping[str, Any]) -> None:
        self._digest = state["data"]

    def _collect(self, step: int) -> list[int]:
        run = self.config.run
        return batch_at(step, len(self._train), run.batch_size, run.seed)

    def _learn(self, step: int, collected: list[int]) -> StepReport:
        began = time.monotonic()
        run, sums = self.config.run, TokenSums()
        metrics: dict[str, float] = defaultdict(float)
        losses = self._losses([self._train[i] for i in collected], sums, metrics)
        with self._arithmetic():
            update = self._updates.update(losses, self._updates.lr(step, self.total_steps), step)
        self._counters.trained_tokens += int(sums.tokens)
        if self._held_out and (step % run.eval_every == 0 or step == self.total_steps):
            with self._arithmetic():
                metrics |= self._evaluate()
        seconds = time.monotonic() - began
        self._counters.elapsed_s += seconds
        return StepReport(
            {
                "step": step,
                "data/epoch": step / updates_per_epoch(len(self._train), run.batch_size),
                **self._about,
                **update,
                **metrics,
                **sums.metrics(),
                "tokens/trained_total": float(self._counters.trained_tokens),
                "time/total": seconds,
                "time/elapsed": self._counters.elapsed_s,
            }
        )

    @torch.no_grad()
    def _evaluate(self) -> dict[str, float]:
        """The method's loss and metrics on the held-out examples."""
        metrics: dict[str, float] = defaultdict(float)
        loss = sum(float(x) for x in self._losses(self._held_out, TokenSums(), metrics))
        return {"eval/loss": loss} | {f"eval/{name.partition('/')[2]}": value for name, value in metrics.items()}
