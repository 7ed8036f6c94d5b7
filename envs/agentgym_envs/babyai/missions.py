"""BabyAI's instruction language, read back into clauses.

mission := side | side ", then " side | side " after you " side;  side := clause [" and " clause];
clause  := "go to" D | "pick up" D | "open" D | "put" D "next to" D;  D := ("a" | "the") [color] (type | "object") [place].
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_PLACES = {"in front of you": "front", "behind you": "behind", "on your left": "left", "on your right": "right"}
_DESCRIPTION = re.compile(rf"(?:a|the) (?:(\w+) )?(ball|box|key|door|object)(?: ({'|'.join(_PLACES)}))?")


@dataclass(frozen=True)
class Description:
    """What an object must be; an empty string leaves that part open. ``place`` is relative to the agent's start."""

    kind: str
    color: str
    place: str

    def __str__(self) -> str:
        return f"{self.color} {self.kind or 'object'}".strip()


@dataclass(frozen=True)
class Clause:
    """One thing to do: ``verb`` is "go to", "pick up", "open" or "put"; only "put" has a ``beside``."""

    verb: str
    target: Description
    beside: Description | None = None


def parse_mission(mission: str) -> list[list[Clause]]:
    """Stages in the order they must be done; the clauses of one stage may be done in any order. Raises ``ValueError``."""
    stages = mission.split(" after you ")[::-1] if " after you " in mission else mission.split(", then ")
    return [list(_clauses(stage)) for stage in stages]


def _clauses(stage: str) -> Iterator[Clause]:
    for clause in stage.split(" and "):
        verb = next((verb for verb in ("go to", "pick up", "open", "put") if clause.startswith(f"{verb} ")), None)
        if verb is None:
            raise ValueError(f"expected a clause that starts with 'go to', 'pick up', 'open' or 'put', found {clause!r}")
        descriptions = [_description(text) for text in clause.removeprefix(f"{verb} ").split(" next to ")]
        yield Clause(verb, *descriptions)


def _description(text: str) -> Description:
    match = _DESCRIPTION.fullmatch(text)
    if match is None:
        raise ValueError(f"expected a description such as 'the red ball on your left', found {text!r}")
    kind = "" if match[2] == "object" else match[2]
    return Description(kind, match[1] or "", _PLACES.get(match[3], ""))
