"""The processes of one run, as ``torchrun`` starts them: who does what, what they tell each other, and how they stop together.

A step's episodes are split over the processes; then every process hears of all of them, computes the same advantages and denominators over
the whole batch, and takes its share of the rows. Gradients are therefore those of one process, however uneven the shares are; a process
without rows still takes part in every exchange.
"""

from __future__ import annotations

import datetime
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from agentgym_lite.sharding import shard
from agentgym_lite.training.errors import TrainingError

T = TypeVar("T")

#: Seconds between signs of life, and without one before a process is given up.
BEAT_S, SILENCE_S = 2.0, 30.0
#: Longest wait in an exchange: processes wait here for the one whose episodes take longest. The dead are noticed by :class:`_Watch`.
_EXCHANGE = datetime.timedelta(hours=2)


class PeerFailure(TrainingError):
    """A process of the run failed, and all of them know."""


@dataclass(frozen=True)
class World:
    """The processes of a run, ``size`` of them, this one being number ``rank``. The default is a run of one process."""

    rank: int = 0
    size: int = 1
    mesh: Any = None

    @classmethod
    def from_environment(cls) -> World:
        """What ``torchrun`` has set up; one process without it. Raises ``TrainingError`` if the others cannot be reached."""
        size = started_processes()
        if size == 1:
            return cls()
        from torch.distributed.device_mesh import init_device_mesh  # slow to import

        device = "cuda" if torch.cuda.is_available() else "cpu"
        if device == "cuda":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        if not dist.is_initialized():
            try:
                dist.init_process_group("cpu:gloo,cuda:nccl" if device == "cuda" else "gloo", timeout=_EXCHANGE)
            except (RuntimeError, ValueError) as e:
                raise TrainingError(f"cannot join the {size} processes of the run: {e}; start it with torchrun (docs/scale.md)") from e
        mesh = init_device_mesh(device, (size,), mesh_dim_names=("shard",))
        return cls(dist.get_rank(), size, mesh)

    @property
    def is_main(self) -> bool:
        """Whether this process writes logs and says how the run goes."""
        return self.rank == 0

    # -- exchanges: every process must call them in the same order ------------------------------------------------------------------------

    def gather(self, value: T) -> list[T]:
        """The values of all processes by rank; they must be picklable."""
        if self.size == 1:
            return [value]
        out: list[Any] = [None] * self.size
        dist.all_gather_object(out, value)
        return out

    def each(self, work: Callable[[], T]) -> list[T]:
        """What ``work`` gives in every process. If it raises in any, all raise ``PeerFailure``."""
        if self.size == 1:
            return [work()]
        mine: T | None = None
        failure: Exception | None = None
        try:
            mine = work()
        except Exception as e:
            failure = e
        told = self.gather((mine, None if failure is None else f"{type(failure).__name__}: {failure}"))
        for rank, (_, problem) in enumerate(told):
            if problem is not None:
                raise PeerFailure(f"process {rank} of {self.size} failed: {problem}") from failure
        return [value for value, _ in told]  # type: ignore[misc]

    def main(self, work: Callable[[], T]) -> T:
        """What ``work`` gives in the main process, which alone does it. If it raises there, all raise."""
        if self.size == 1:
            return work()
        problem: Exception | None = None
        told: list[Any] = [None, None]
        if self.is_main:
            try:
                told[0] = work()
            except Exception as e:
                problem, told[1] = e, f"{type(e).__name__}: {e}"
        dist.broadcast_object_list(told)
        if problem is not None:
            raise problem
        if told[1] is not None:
            raise PeerFailure(f"process 0 of {self.size} failed: {told[1]}")
        value: T = told[0]
        return value

    def add(self, tensor: Tensor) -> Tensor:
        """Sum over the processes, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def add_numbers(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Sums by name over the processes, in the same order and hence with the same rounding everywhere."""
        out: dict[str, float] = {}
        for part in self.gather(dict(numbers)):
            for name, value in part.items():
                out[name] = out.get(name, 0.0) + value
        return out

    # -- shares ----------------------------------------------------------------------------------------------------------------------------

    def slice_of(self, n: int) -> slice:
        """This process's run of ``n`` things, as even as it goes; empty if there are more processes than things."""
        return slice(self.rank * n // self.size, (self.rank + 1) * n // self.size)

    def shares(self, costs: Sequence[float]) -> list[list[int]]:
        """Numbers of the things of each process, so that the sums of their ``costs`` are about equal: largest first, to whom has least."""
        if self.size == 1:
            return [list(range(len(costs)))]
        out: list[list[int]] = [[] for _ in range(self.size)]
        load = [0.0] * self.size
        for i in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
            least = min(range(self.size), key=lambda r: (load[r], r))
            out[least].append(i)
            load[least] += costs[i]
        return [sorted(rows) for rows in out]

    def shard(self, *modules: Any) -> None:
        """Spread the weights of models over the processes; those that are no modules of their own (or None) are left alone."""
        for module in modules if self.size > 1 else ():
            if isinstance(module, nn.Module):
                shard(module, self.mesh)

    # -- the end ---------------------------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Part from the other processes when all is done."""
        if self.size > 1:
            dist.destroy_process_group()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Within it, the death of any process ends this one with a message: at once if it is exchanging, else after ``SILENCE_S``."""
        if self.size == 1:
            yield
            return
        watch = _Watch(self.rank, self.size)
        try:
            yield
        except Exception as e:
            lost = _is_lost_connection(e)
            watch.finish(None if lost else f"{type(e).__name__}: {e}")
            if lost:
                raise PeerFailure(_stopped("another process of the run has ended", str(e).splitlines()[0][:200])) from None
            raise
        except BaseException:
            watch.finish("it was interrupted")
            raise
        watch.finish(None)


def started_processes() -> int:
    """How many processes ``torchrun`` has started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


class _Watch:
    """Signs of life in the store that the processes met at. Each process looks after the one before it and says so if that falls silent."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def finish(self, problem: str | None) -> None:
        """This process ends, because of ``problem`` or because all is done."""
        self._problem = problem
        self._ended.set()
        self._thread.join(timeout=BEAT_S)

    def _run(self) -> None:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        before = (self._rank - 1) % self._size
        seen, since = "", time.monotonic()
        beat = 0
        try:
            timeout = datetime.timedelta(seconds=10)
            store = TCPStore(*address, is_master=False, wait_for_workers=False, timeout=timeout)
            while not self._ended.wait(BEAT_S):
                beat += 1
                store.set(f"alive/{self._rank}", str(beat))
                if store.check(["failed"]):
                    _leave(store.get("failed").decode())
                key = f"alive/{before}"
                now = store.get(key).decode() if store.check([key]) else seen
                if now != seen:
                    seen, since = now, time.monotonic()
                if seen != "done" and time.monotonic() - since > SILENCE_S:
                    told = f"process {before} of {self._size} has given no sign of life for {SILENCE_S:.0f} s"
                    store.set("failed", told)
                    _leave(told)
            if self._problem is None:
                store.set(f"alive/{self._rank}", "done")
            else:
                store.set("failed", f"process {self._rank} of {self._size} failed: {self._problem}")
        except (RuntimeError, dist.DistError) as e:
            if not self._ended.is_set():
                _leave(f"the store of the run at {address[0]}:{address[1]} cannot be reached any more ({str(e).splitlines()[0][:120]})")


def _leave(reason: str) -> None:
    print(f"error: {_stopped(reason)}", file=sys.stderr, flush=True)
    os._exit(1)  # the main thread may be waiting for a message that will never come


def _stopped(reason: str, detail: str = "") -> str:
    what = f"{reason} ({detail})" if detail else reason
    return f"{what}; this process stops too. Start the run again with --resume: it goes on from its last checkpoint"


def _is_lost_connection(error: BaseException) -> bool:
    text = str(error)
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and ("gloo" in text or "Connection closed" in text))
