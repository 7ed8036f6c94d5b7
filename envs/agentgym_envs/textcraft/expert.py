"""Agents for TextCraft that need no model: an expert that plans from the text it is shown, and a random one."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agentgym_envs.agents import Decision
from agentgym_envs.core import Observation

_COMMAND = re.compile(r"craft ([0-9]+) (.+) using (.+)")
_MAX_LINKS = 4


@dataclass(frozen=True)
class _Task:
    """What the first observation says: commands by output as ``(count, ingredients)``, the first member of each tag, the goal."""

    goal: str
    commands: dict[str, tuple[int, dict[str, int]]]
    tags: dict[str, list[str]]

    @classmethod
    def read(cls, text: str) -> _Task:
        """Parse a first observation. Raises ``ValueError`` if it does not look like one."""
        commands: dict[str, tuple[int, dict[str, int]]] = {}
        tags: dict[str, list[str]] = {}
        goal = ""
        for line in text.splitlines():
            name, colon, rest = line.partition(": ")
            if match := _COMMAND.fullmatch(line):
                parts = (part.split(" ", 1) for part in match[3].split(", "))
                commands[match[2]] = (int(match[1]), {item: int(count) for count, item in parts})
            elif line.startswith("Goal: craft "):
                goal = rest.removeprefix("craft ").removesuffix(".")
            elif colon:
                tags[name] = rest.split(", ")
        if goal not in commands:
            raise ValueError(f"expected a first TextCraft observation with a command for its goal, found {text!r:.200}")
        return cls(goal, commands, tags)

    def item(self, name: str) -> str:
        """The item to use for an ingredient: the first member of a tag, else the item itself."""
        return self.tags[name][0] if name in self.tags else name

    def names(self) -> list[str]:
        """Every item and tag named in the commands."""
        inputs = [name for _, needs in self.commands.values() for name in needs]
        return list(dict.fromkeys([*self.commands, *inputs, *(m for members in self.tags.values() for m in members)]))


class Expert:
    """Works backwards from the goal through the listed commands and carries out the plan bottom-up with exact amounts.

    It sees observation texts only. Its thoughts spell out the look-ups that lead to the action, each in words that stand in the
    prompt or in the thought just before, so that a small model can learn to write them.
    """

    def reset(self, observation: Observation, render: Callable[[], dict[str, Any]]) -> None:
        """Read the task from the first observation. Raises ``ValueError`` if it is not one."""
        self._task = _Task.read(observation.text)
        self._inventory: Counter[str] = Counter()
        self._pending: Counter[str] = Counter()  # what the last craft uses up if it succeeds
        self._repeats: dict[str, int] = {}  # crafts in a row that were announced and are not yet done

    def act(self, observation: Observation) -> Decision:
        """The next ``get`` or ``craft`` of the plan."""
        self._note_result(observation.text)
        decision = self._advance(self._task.goal, 1, [])
        return decision or Decision("inventory", f"{self._task.goal} is done.")

    def _note_result(self, text: str) -> None:
        if match := re.fullmatch(r"(Got|Crafted) ([0-9]+) (.+)", text):
            if match[1] == "Crafted":
                self._inventory -= self._pending
            self._inventory[match[3]] += int(match[2])
        self._pending = Counter()

    def _advance(self, item: str, need: int, chain: list[str]) -> Decision | None:
        """The next action towards carrying ``need`` of ``item``, or ``None`` if that many are there; ``chain`` has the look-ups so far."""
        have = self._inventory[item]
        if have >= need:
            return None
        if item not in self._task.commands:
            self._repeats.clear()
            return Decision(f"get {need - have} {item}", " ".join(chain[-_MAX_LINKS:]))
        count, needs = self._task.commands[item]
        times = -(-(need - have) // count)
        listed = ", ".join(f"{number} {name}" for name, number in needs.items())
        link = f"{item} needs {listed}."
        if item != self._task.goal:
            link += f" need {need}, {f'have {have}, ' if have else ''}{count} each: {times} time{'s' * (times > 1)}."
        total: Counter[str] = Counter()
        for name, number in needs.items():
            total[self._task.item(name)] += number * times
        ready: list[str] = []
        for name in needs:
            part = self._task.item(name)
            said = f"{link} have {', '.join(ready)}." if ready else link
            if name in self._task.tags:
                said += f" {name}: {part}."
            if decision := self._advance(part, total[part], [*chain, said]):
                return decision
            if part not in ready:
                ready.append(part)
        return self._craft(item, times)

    def _craft(self, item: str, times: int) -> Decision:
        count, needs = self._task.commands[item]
        used: Counter[str] = Counter()
        for name, number in needs.items():
            used[self._task.item(name)] += number
        self._pending = used
        action = f"craft {count} {item} using {', '.join(f'{number} {name}' for name, number in used.items())}"
        if item == self._task.goal:
            return Decision(action, f"craft {item} now.")
        more = " more" if item in self._repeats else ""
        self._repeats = {item: times}
        return Decision(action, f"craft {item}, {times}{more} time{'s' * (times > 1)}.")


class RandomAgent:
    """Draws actions from the grammar, with names from the first observation and counts from 1 to 9; equal seeds give equal actions."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = random.Random(seed)
        self._names: list[str] = []

    def reset(self, observation: Observation, render: Callable[[], dict[str, Any]]) -> None:
        """Collect the names in the first observation. Raises ``ValueError`` if it is not one."""
        self._names = _Task.read(observation.text).names()

    def act(self, observation: Observation) -> Decision:
        """A random command."""
        verb = self._rng.choice(("get", "craft", "inventory"))
        if verb == "inventory":
            return Decision(verb)
        if verb == "get":
            return Decision(f"get {self._amount()}")
        parts = ", ".join(self._amount() for _ in range(self._rng.randint(1, 3)))
        return Decision(f"craft {self._amount()} using {parts}")

    def _amount(self) -> str:
        return f"{self._rng.randint(1, 9)} {self._rng.choice(self._names)}"
