"""Facts about the house and what is where in it, for viewers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

#: Pairs of places with a door between them; the house is the same in every episode.
DOORS = (
    ("hallway", "kitchen"),
    ("hallway", "living room"),
    ("hallway", "bedroom"),
    ("hallway", "workshop"),
    ("hallway", "greenhouse"),
    ("hallway", "art studio"),
    ("bathroom", "kitchen"),
    ("kitchen", "outside"),
    ("greenhouse", "outside"),
    ("foundry", "outside"),
)
#: Place -> the places behind its doors.
NEIGHBOURS: dict[str, tuple[str, ...]] = {
    place: tuple(b if a == place else a for a, b in DOORS if place in (a, b)) for place in dict.fromkeys(p for d in DOORS for p in d)
}
_HERE = re.compile(r"is called the (.+?)\.")
_DOOR = re.compile(r"A door to the (.+?) \(that is (open|closed)\)")
_HIDDEN = re.compile(r"(?:terminal [12]|anode|cathode|air|agent|inventory|universe|sewer|drain)")


def place_in(look: str) -> str:
    """The place that a description is of, ``""`` if it is none."""
    match = _HERE.search(look)
    return match[1] if match else ""


def doors_in(look: str) -> dict[str, bool]:
    """Place behind each door of a described place -> whether the door is open."""
    return {place: state == "open" for place, state in _DOOR.findall(look)}


def picture(tree: dict[str, Any], look: str) -> dict[str, Any]:
    """``place``; ``places`` with their things as nested ``{"name", "contents"}``; ``doors`` with ``open`` (``None`` if not in view);
    ``inventory``."""
    here, seen = place_in(look), doors_in(look)
    places = [p for p in tree["contents"].values() if p["name"] in NEIGHBOURS]
    bag = next(o for o in _walk(tree) if o["name"] == "inventory")
    return {
        "place": here,
        "places": [{"name": p["name"], "things": _things(p)} for p in places],
        "doors": [{"between": list(pair), "open": _state(pair, here, seen)} for pair in DOORS],
        "inventory": _things(bag),
    }


def _state(pair: tuple[str, str], here: str, seen: dict[str, bool]) -> bool | None:
    other = pair[1] if pair[0] == here else pair[0]
    return seen.get(other) if here in pair else None


def _walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for child in node["contents"].values():
        yield child
        yield from _walk(child)


def _things(node: dict[str, Any]) -> list[dict[str, Any]]:
    kept = [c for c in node["contents"].values() if not _HIDDEN.fullmatch(c["name"])]
    return [{"name": c["name"], "contents": _things(c)} for c in kept]
