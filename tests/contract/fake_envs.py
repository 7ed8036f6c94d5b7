"""Small environments with known behaviour, registered as ``counter``, ``trouble`` and ``sleepy``."""

from __future__ import annotations

import threading
import time
from typing import Any, ClassVar

from agentgym_envs.core import Environment, Observation, Split, StepResult, UnknownItem, register


class Counter(Environment):
    """Count up to the item's number with ``up``; item n needs n + 1 steps. ``down`` counts back, anything else is invalid."""

    name: ClassVar[str] = "counter"
    version: ClassVar[str] = "1"
    instructions: ClassVar[str] = "Say 'up' until the counter reaches its goal."
    #: Steps that all objects carried out, and objects that are open: what tests count by.
    steps: ClassVar[int] = 0
    live: ClassVar[int] = 0
    lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self.goal, self.count, self.moves, self.seed, self.last, self.closed = 0, 0, 0, 0, "", False
        with self.lock:
            type(self).live += 1

    @classmethod
    def items(cls, split: Split) -> list[str]:
        return [f"{cls.name}_{i}" for i in (range(8) if split == "train" else range(8, 12))]

    @classmethod
    def task_of(cls, item_id: str | int) -> str:
        return "even" if cls._known(item_id) % 2 == 0 else "odd"

    @classmethod
    def _known(cls, item_id: str | int) -> int:
        index = cls.item_index(item_id)
        if not 0 <= index < 12:
            raise UnknownItem(f"expected an item from {cls.name}_0 to {cls.name}_11, found {item_id!r:.80}")
        return index

    def reset(self, item_id: str | int, seed: int = 0) -> Observation:
        self.goal, self.count, self.moves, self.seed = self._known(item_id) + 1, 0, 0, seed
        return self._observe(f"Reach {self.goal}.")

    def _observe(self, text: str) -> Observation:
        self.last = f"{text} Count {self.count}, seed {self.seed}."
        return Observation(self.last, ("up", "down"), {"count": self.count})

    def step(self, action: str) -> StepResult:
        if self.goal == 0:
            raise RuntimeError("expected reset before step")
        with self.lock:
            type(self).steps += 1
        if self.count == self.goal:
            return self._result(Observation(self.last), 0.0, invalid=True)
        if action not in ("up", "down"):
            return self._result(self._observe(f"Expected 'up' or 'down', found {action!r:.40}."), 0.0, invalid=True)
        self.moves += 1
        self.count += 1 if action == "up" else -1
        return self._result(self._observe(f"Move {self.moves}."), float(self.count == self.goal), invalid=False)

    def _result(self, observation: Observation, reward: float, *, invalid: bool) -> StepResult:
        success = self.count == self.goal
        return StepResult(observation, reward, success, {"success": success, "invalid": invalid, "score": self.count})

    def available_actions(self) -> list[str]:
        return [] if self.count == self.goal else ["up", "down"]

    def render(self) -> dict[str, Any]:
        return {"kind": self.name, "text": self.last, "goal": self.goal}

    def close(self) -> None:
        with self.lock:
            if not self.closed:
                self.closed = True
                type(self).live -= 1


class Trouble(Counter):
    """A counter that fails as it is told: ``raise``, ``reward`` (out of bounds), ``json`` (cannot be sent), ``nan``."""

    name: ClassVar[str] = "trouble"
    steps: ClassVar[int] = 0
    live: ClassVar[int] = 0

    def step(self, action: str) -> StepResult:
        result = super().step(action)
        if action == "raise":
            raise ZeroDivisionError("the world fell apart")
        if action == "reward":
            return StepResult(result.observation, 7.0, False, result.info)
        if action == "json":
            return StepResult(result.observation, 0.0, False, {"success": False, "thing": object()})
        if action == "nan":
            return StepResult(result.observation, 0.0, False, {"success": False, "score": float("nan")})
        return result


class Sleepy(Counter):
    """A counter whose actions ``sleep SECONDS`` take that long."""

    name: ClassVar[str] = "sleepy"
    steps: ClassVar[int] = 0
    live: ClassVar[int] = 0

    def step(self, action: str) -> StepResult:
        word, _, seconds = action.partition(" ")
        if word == "sleep":
            time.sleep(float(seconds))
            action = "up"
        return super().step(action)


for _cls in (Counter, Trouble, Sleepy):
    register(_cls.name, f"{__name__}:{_cls.__name__}")
