"""Building blocks of the expert's plans: walk, act, answer a numbered list. A plan yields decisions and is sent observation texts."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Generator
from typing import TypeVar

from agentgym_envs.agents import Decision
from agentgym_envs.sciworld.picture import NEIGHBOURS, doors_in, place_in

T = TypeVar("T")
#: Yields decisions, is sent the observation text after each, returns a ``T``.
Plan = Generator[Decision, str, T]


def route(start: str, goal: str) -> list[str]:
    """Places to enter on a shortest way, ``start`` left out. Raises ``KeyError`` for a place that the house does not have."""
    before: dict[str, str] = {start: start}
    queue = deque([start])
    while queue:
        place = queue.popleft()
        for beyond in NEIGHBOURS[place]:
            if beyond not in before:
                before[beyond] = place
                queue.append(beyond)
    path = [goal]
    while path[-1] != start:
        path.append(before[path[-1]])
    return path[-2::-1]


class Walker:
    """Where the agent is and which doors it has seen open."""

    def __init__(self, look: str) -> None:
        self.place = place_in(look)
        self._open = {frozenset((self.place, beyond)) for beyond, is_open in doors_in(look).items() if is_open}

    def go(self, goal: str, why: str) -> Plan[None]:
        """Walk to a place and open the doors on the way."""
        for beyond in route(self.place, goal):
            door = frozenset((self.place, beyond))
            thought = f"{why} I go to the {goal}."
            if door not in self._open:
                yield Decision(f"open door to {beyond}", thought)
                self._open.add(door)
            yield Decision(f"go to {beyond}", thought)
            self.place = beyond

    def do(self, action: str, thought: str, prefer: str = "") -> Plan[str]:
        """Carry out an action; of a numbered list of choices take the first that has ``prefer`` in it, else the first."""
        text = yield Decision(action, thought)
        while text.startswith("Ambiguous request"):
            choices = re.findall(r"^(\d+):\t(.*)$", text, re.MULTILINE)
            number, meant = next((c for c in choices if prefer and prefer in c[1]), choices[0])
            text = yield Decision(number, f"I mean: {meant}.")
        return text

    def look(self, why: str) -> Plan[str]:
        """Look around."""
        return (yield from self.do("look around", why))
