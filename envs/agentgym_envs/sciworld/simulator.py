"""One ScienceWorld simulator: plain calls and values, equal for equal (task, variation, seed, actions) whatever else runs beside it."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import dataclass
from typing import Any

from agentgym_envs.sciworld.jvm import Jvm, JvmPool, SimulatorError

#: Numbers kept free for the objects that one call makes; a step makes a handful.
_IDS_PER_CALL = 10_000
#: Requests that the package answers itself and that change nothing.
_QUESTIONS = {"help", "objects", "task"}
#: The package's answer to an action without one.
_NOTHING = "Unknown action. Type 'help' for a list of actions, and 'objects' for a list of possible object referents."


@dataclass(frozen=True)
class Outcome:
    """Answer to one action: its ``text``, the raw ``score`` (-100 to 100), and the ``moves`` made so far (waiting makes several)."""

    text: str
    score: int
    moves: int


class Simulator:
    """A simulator in one of the pool's Java processes. Every method raises ``SimulatorError`` if that process fails."""

    def __init__(self, pool: JvmPool) -> None:
        self._pool = pool
        self._jvm: Jvm | None = None
        self._interface: Any = None
        self._agent: Any = None
        self._episode = ""
        self._score = 0
        self._calls = self._first_id = 0

    def load(self, task: str, variation: int, seed: int) -> str:
        """Start an episode and return the task description."""
        if self._jvm is not None and not self._jvm.alive:
            self.close()
        if self._jvm is None:
            self._jvm = self._pool.acquire()
        jvm = self._jvm
        with jvm.calling():
            if self._interface is None:
                self._interface = jvm.new_interface()
            if error := self._interface.load(task, variation, "", False):
                raise SimulatorError(f"the simulator of SciWorld could not load {task} {variation}: {error:.200}")
            # The prototypes of all tasks are most of a simulator's memory; only the next load, which makes new ones, would use them.
            getattr(self._interface, "taskMaker_$eq")(None)
            self._agent, self._score = self._interface.agentInterface().get(), 0
            self._episode, self._calls, self._first_id = f"{task} {variation} {seed}", 0, jvm.next_id()
            return str(self._interface.getTaskDescription())

    def act(self, action: str) -> Outcome:
        """Carry out one action."""
        self._calls += 1
        jvm, interface = self._enter()
        with jvm.calling():
            self._prepare(jvm)
            if action.lower() in _QUESTIONS:
                text = str(interface.step(action))
            else:
                # What interface.step does too, without its history of looks and its list of names, which cost a fifth.
                answer = self._agent.step(action)
                text, self._score = str(answer._1()) or _NOTHING, round(100 * answer._2())
            if self._score < 0 and self._agent.isInErrorState():
                raise SimulatorError(f"the simulator of SciWorld failed with {text:.200}; reset starts the episode anew")
            return Outcome(text, self._score, int(self._agent.getCurIterations()))

    def valid_actions(self) -> list[str]:
        """Every action that names things here and could be carried out, thousands of them; sorted. Slow: tens of milliseconds."""
        jvm, interface = self._enter()
        with jvm.calling():
            self._prepare(jvm)
            return list(interface.getValidActionObjectCombinations())

    def look(self) -> tuple[str, str]:
        """Descriptions of the room and of the inventory; costs no move."""
        jvm, interface = self._enter()
        with jvm.calling():
            self._prepare(jvm)
            return str(interface.freeActionLook()), str(interface.freeActionInventory())

    def tree(self) -> dict[str, Any]:
        """All objects as nested ``{"name", "contents", ...}``."""
        jvm, interface = self._enter()
        with jvm.calling():
            tree: dict[str, Any] = json.loads(interface.getObjectTree(""))
            return tree

    def close(self) -> None:
        """Free the simulator. Safe to call twice."""
        jvm, interface = self._jvm, self._interface
        self._jvm = self._interface = self._agent = None
        if jvm is None:
            return
        self._pool.give_back(jvm)
        if interface is not None and jvm.alive:
            with contextlib.suppress(SimulatorError), jvm.calling():
                jvm.forget(interface)

    def _enter(self) -> tuple[Jvm, Any]:
        if self._jvm is None or self._interface is None:
            raise SimulatorError("the simulator of SciWorld holds no episode; call reset")
        return self._jvm, self._interface

    def _prepare(self, jvm: Jvm) -> None:
        digest = hashlib.sha256(f"{self._episode} {self._calls}".encode()).digest()
        jvm.prepare(int.from_bytes(digest[:8], "big", signed=True), self._first_id + self._calls * _IDS_PER_CALL)
