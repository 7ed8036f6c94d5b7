"""An environment that keeps a ledger of its steps on disk, and its server: ``python benchmarks/tally.py LEDGER``."""

from __future__ import annotations

import os
import sys
import time
import uuid
from typing import Any, ClassVar

from agentgym_envs.core import Environment, Observation, Split, StepResult, UnknownItem, register
from agentgym_envs.server import serve

LENGTH = 20  # steps of an episode
HANG_S = 2.5
ITEMS = 10_000


class Tally(Environment):
    """``LENGTH`` numbered actions, each written to the ledger; the goal is reached if the last number is divisible by three.

    A number may be followed by ``raises`` or ``hangs``, which is what the environment does after it has written.
    """

    name: ClassVar[str] = "tally"
    version: ClassVar[str] = "1"
    instructions: ClassVar[str] = "Say a number that was not said before."

    def __init__(self, ledger: str = os.devnull) -> None:
        self._ledger, self._episode, self._taken = ledger, "", 0

    @classmethod
    def items(cls, split: Split) -> list[str]:
        return [f"{cls.name}_{i}" for i in (range(ITEMS) if split == "train" else range(ITEMS, ITEMS + 10))]

    @classmethod
    def task_of(cls, item_id: str | int) -> str:
        if not 0 <= cls.item_index(item_id) < ITEMS + 10:
            raise UnknownItem(f"expected an item from tally_0 to tally_{ITEMS + 9}, found {item_id!r:.80}")
        return cls.name

    def reset(self, item_id: str | int, seed: int = 0) -> Observation:
        self.task_of(item_id)
        self._episode, self._taken = uuid.uuid4().hex, 0
        return Observation("Begin.")

    def step(self, action: str) -> StepResult:
        number, _, word = action.partition(" ")
        self._taken += 1
        with open(self._ledger, "a") as file:  # one short write to the end of the file: no line is ever torn
            file.write(f"{number} {self._episode} {self._taken}\n")
        if word == "raises":
            raise OSError("no space left on device")
        if word == "hangs":
            time.sleep(HANG_S)
        done = self._taken >= LENGTH
        success = done and int(number) % 3 == 0
        info = {"success": success, "invalid": False, "score": self._taken}
        return StepResult(Observation(f"Took {number}."), float(success), done, info)

    def available_actions(self) -> list[str]:
        return []

    def render(self) -> dict[str, Any]:
        return {"kind": self.name, "text": str(self._taken)}


register(Tally.name, f"{__name__}:{Tally.__name__}")

if __name__ == "__main__":
    serve({Tally.name: {"ledger": sys.argv[1]}}, port=0, on_ready=lambda url: print(url, flush=True))
