"""What the agent reads: the objects in view with their names, the walls near it and what it carries."""

from __future__ import annotations

from dataclasses import dataclass

from agentgym_envs.babyai.world import VIEW, WALL, Cell, Position, World


@dataclass(frozen=True)
class Thing:
    """An object in view. ``name`` (``"red ball 1"``) counts objects of one color and type from the nearest on."""

    name: str
    cell: Cell
    ahead: int
    right: int
    position: Position

    @property
    def label(self) -> str:
        """The name, with a door's state before it."""
        return f"{self.cell[2]} {self.name}" if self.cell[2] else self.name


def things_in_view(world: World) -> list[Thing]:
    """Objects in view, nearest first: by steps away, then the ones more straight ahead, then left before right."""
    seen = [(s, cell) for s in world.view() if s[:2] != (0, 0) and (cell := world.at(s.x, s.y)) and cell[0] != "wall"]
    seen.sort(key=lambda item: (item[0].ahead + abs(item[0].right), abs(item[0].right), item[0].right))
    counts: dict[str, int] = {}
    things = []
    for (ahead, right, x, y), cell in seen:
        kind = f"{cell[1]} {cell[0]}"
        counts[kind] = counts.get(kind, 0) + 1
        things.append(Thing(f"{kind} {counts[kind]}", cell, ahead, right, (x, y)))
    return things


def where(ahead: int, right: int) -> str:
    """``"3 ahead 1 left"``: steps from the agent, as it faces."""
    parts = [f"{ahead} ahead"] if ahead else []
    if right:
        parts.append(f"{abs(right)} {'right' if right > 0 else 'left'}")
    return " ".join(parts)


def walls(world: World) -> str:
    """Distance to the first visible wall ahead, to the left and to the right: ``"Wall 5 ahead, 1 left."``"""
    nearest: dict[str, int] = {}
    for ahead, right, x, y in world.view():
        if (ahead == 0) != (right == 0) and world.at(x, y) == WALL:
            side = "ahead" if ahead else "left" if right < 0 else "right"
            nearest[side] = min(nearest.get(side, VIEW), ahead + abs(right))
    found = [f"{nearest[side]} {side}" for side in ("ahead", "left", "right") if side in nearest]
    return f"Wall {', '.join(found)}." if found else "No wall near."


def describe(world: World) -> str:
    """The two lines that every observation ends with."""
    things = things_in_view(world)
    listed = "; ".join(f"{thing.label}, {where(thing.ahead, thing.right)}" for thing in things)
    hands = f"a {world.carrying[1]} {world.carrying[0]}" if world.carrying else "nothing"
    return f"{f'You see: {listed}.' if things else 'You see nothing.'}\n{walls(world)} You carry {hands}."
