"""A plain picture of the grid that the text, the macro actions and the expert share: cells, what is known of them, and the agent.

Coordinates are minigrid's: ``x`` to the right, ``y`` down, direction 0..3 = right, down, left, up. A pose is ``(x, y, direction)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from minigrid.core.constants import DIR_TO_VEC
from minigrid.core.world_object import Door, WorldObj
from minigrid.minigrid_env import MiniGridEnv

#: (type, color, state); state is "open", "closed" or "locked" for doors, else "".
Cell = tuple[str, str, str]
Pose = tuple[int, int, int]
Position = tuple[int, int]

WALL: Cell = ("wall", "grey", "")
STEPS: tuple[Position, ...] = tuple((int(dx), int(dy)) for dx, dy in DIR_TO_VEC)
VIEW = 7  # the agent sees a square of this side: itself in the middle of the near edge


class Seen(NamedTuple):
    """A visible cell and where it lies from the agent: ``ahead`` >= 0 steps in front, ``right`` steps to the side (negative: left)."""

    ahead: int
    right: int
    x: int
    y: int


@dataclass
class World:
    """The grid (row by row), the cells known so far, the agent's pose and what it carries."""

    width: int
    height: int
    cells: list[Cell | None]
    known: list[bool]
    pose: Pose
    carrying: Cell | None

    def at(self, x: int, y: int) -> Cell | None:
        """The cell's content, ``None`` if empty; everything outside the grid is wall."""
        inside = 0 <= x < self.width and 0 <= y < self.height
        return self.cells[y * self.width + x] if inside else WALL

    def is_known(self, x: int, y: int) -> bool:
        """Whether the agent has ever seen the cell."""
        return 0 <= x < self.width and 0 <= y < self.height and self.known[y * self.width + x]

    def free(self, known_only: bool = False) -> set[Position]:
        """Cells that the agent can stand on."""
        return {
            (n % self.width, n // self.width)
            for n, cell in enumerate(self.cells)
            if (self.known[n] or not known_only) and is_passable(cell)
        }

    def front(self, pose: Pose | None = None) -> Position:
        """The cell that the agent faces."""
        x, y, direction = pose or self.pose
        dx, dy = STEPS[direction]
        return x + dx, y + dy

    def view(self, pose: Pose | None = None) -> list[Seen]:
        """Cells visible from a pose, by minigrid's rule: sight spreads row by row from the agent, stopped by walls and shut doors."""
        x, y, direction = pose or self.pose
        (fx, fy), (rx, ry) = STEPS[direction], STEPS[(direction + 1) % 4]
        half = VIEW // 2
        seen: list[Seen] = []
        lit = [column == half for column in range(VIEW)]
        for ahead in range(VIEW):
            row = [(x + ahead * fx + side * rx, y + ahead * fy + side * ry) for side in range(-half, half + 1)]
            clear = [is_transparent(self.at(*position)) for position in row]
            beyond = [False] * VIEW
            for columns, step in ((range(VIEW - 1), 1), (range(VIEW - 1, 0, -1), -1)):
                for column in columns:
                    if lit[column] and clear[column]:
                        lit[column + step] = beyond[column] = beyond[column + step] = True
            seen += [Seen(ahead, column - half, *row[column]) for column in range(VIEW) if lit[column]]
            lit = beyond
        return seen

    def look(self) -> None:
        """Remember all that is visible from where the agent stands."""
        for _, _, x, y in self.view():
            if 0 <= x < self.width and 0 <= y < self.height:
                self.known[y * self.width + x] = True


def is_passable(cell: Cell | None) -> bool:
    """Whether the agent can stand there: an empty cell or an open door."""
    return cell is None or cell[2] == "open"


def is_transparent(cell: Cell | None) -> bool:
    """Whether sight goes on behind the cell: all but walls and doors that are shut."""
    return cell is None or (cell[0] != "wall" and cell[2] in ("", "open"))


def cell_of(thing: WorldObj | None) -> Cell | None:
    """The plain form of a minigrid object."""
    if thing is None:
        return None
    state = ("open" if thing.is_open else "locked" if thing.is_locked else "closed") if isinstance(thing, Door) else ""
    return thing.type, thing.color, state


def pose_of(level: MiniGridEnv) -> Pose:
    """The agent's pose in a minigrid level, as plain integers."""
    x, y = level.agent_pos
    return int(x), int(y), int(level.agent_dir)


def from_level(level: MiniGridEnv) -> World:
    """The world of a freshly reset minigrid level; only what the agent sees is known."""
    cells = [cell_of(thing) for thing in level.grid.grid]
    world = World(level.width, level.height, cells, [False] * len(cells), pose_of(level), cell_of(level.carrying))
    world.look()
    return world


def from_render(picture: dict[str, Any]) -> World:
    """The world that ``BabyAI.render`` described."""
    agent, carrying = picture["agent"], picture["carrying"]
    return World(
        width=picture["width"],
        height=picture["height"],
        cells=[None if cell is None else (cell[0], cell[1], cell[2]) for row in picture["cells"] for cell in row],
        known=[bool(flag) for row in picture["known"] for flag in row],
        pose=(agent["x"], agent["y"], agent["dir"]),
        carrying=(carrying["type"], carrying["color"], "") if carrying else None,
    )
