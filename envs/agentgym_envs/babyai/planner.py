"""How the expert gets things done: one macro action at a time, chosen on the full state but carried out on what is in view."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any

from minigrid.core.actions import Actions

from agentgym_envs.agents import Decision
from agentgym_envs.babyai.macros import CHECK, Routes, successors
from agentgym_envs.babyai.missions import Clause
from agentgym_envs.babyai.text import things_in_view
from agentgym_envs.babyai.world import STEPS, Cell, Pose, Position, from_render

_MOVES = {Actions.left: "turn left", Actions.right: "turn right", Actions.forward: "move forward"}

# Cost of entering a cell on the expert's route, in steps. Doors cost a few rounds to find and open, objects several to move away, and a
# locked door a trip for its key.
_DOOR, _BOX, _OBJECT, _LOCKED = 8, 15, 30, 150


class Scene:
    """One moment of an episode, and the expert's choices in it. Objects go by the lasting ids of ``BabyAI.render``."""

    def __init__(self, picture: dict[str, Any], keep: Collection[int] = ()) -> None:
        """``keep`` are objects that the mission speaks of, which must not be destroyed."""
        self.world = from_render(picture)
        self.carried = picture["carrying"]["id"] if picture["carrying"] else None
        self._keep = keep
        self._objects = {thing["id"]: thing for thing in picture["objects"]}
        self._routes = Routes(self.world)
        self._names = {thing.position: thing.name for thing in things_in_view(self.world)}

    def is_done(self, clause: Clause, targets: Collection[int], beside: Collection[int]) -> bool:
        """Whether the state shows that a clause has been carried out."""
        if clause.verb == "pick up":
            return self.carried in targets
        if clause.verb == "put":
            spots = {spot for position in self._places(beside) for spot in _neighbours(position)}
            return any(position in spots for position in self._places(targets))
        cell = self.world.at(*self.world.front())
        is_faced = self.world.front() in self._places(targets)
        return is_faced and (clause.verb == "go to" or (cell is not None and cell[2] == "open"))

    def pursue(self, clause: Clause, targets: Collection[int], beside: Collection[int]) -> Decision:
        """The next action for a clause that is not done yet."""
        what = str(clause.target)
        if clause.verb == "go to":
            return self._reach("go to", targets, what)
        if clause.verb == "pick up":
            return self._take(targets, what)
        if clause.verb == "open":
            return self._open(targets, what)
        spots = [spot for place in self._places(beside) for spot in _neighbours(place) if self.world.at(*spot) is None]
        if self.carried in targets or (self.carried is None and self._is_blocked(self._route(spots))):
            return self._put(spots, str(clause.beside))
        return self._take(targets, what)

    def _places(self, ids: Collection[int]) -> list[Position]:
        return [(self._objects[n]["x"], self._objects[n]["y"]) for n in ids if n in self._objects]

    def _id(self, position: Position) -> int:
        return next(n for n, thing in self._objects.items() if (thing["x"], thing["y"]) == position)

    # Verbs

    def _reach(self, verb: str, ids: Collection[int], what: str) -> Decision:
        places = self._places(ids)
        for position, name in self._names.items():  # nearest first
            if position in places and self._routes.end(position):
                return Decision(f"{verb} {name}", f"{name} is visible.")
        return self._travel(places, what, lambda: self._until_reachable(places, what))

    def _take(self, ids: Collection[int], what: str) -> Decision:
        route = self._route(self._places(ids))
        if self.carried is not None and ("locked" not in (cell[2] for spot in route if (cell := self.world.at(*spot)))):
            return self._free_hands(route)  # unless it is the key of a door on the way
        return self._reach("pick up", ids, what)

    def _open(self, ids: Collection[int], what: str) -> Decision:
        places = self._places(ids)
        openable = [place for place in places if not self._is_locked_out(place)]
        shut = [place for place in places if place not in openable]
        if shut and not self._route(openable, locked=False):
            return self._fetch_key(shut[0], [])
        for position, name in self._names.items():
            if position in openable and self._routes.end(position):
                if self.world.at(*position) == ("door", self._color(position), "closed"):
                    return Decision(f"toggle and go through {name}", f"{name} is visible.")
                return Decision("toggle" if self.world.front() == position else f"go to {name}", f"{name} is visible.")
        return self._travel(openable, what, lambda: self._until_reachable(openable, what))

    def _put(self, spots: list[Position], what: str) -> Decision:
        if self.carried is not None and self.world.front() in spots:
            return Decision("drop", f"{what} is next to it.")
        return self._travel(spots, what, lambda: self._search(lambda pose: self.world.front(pose) in spots, f"drop next to {what}.", True))

    # Ways

    def _travel(self, goals: list[Position], what: str, arrive: Callable[[], Decision]) -> Decision:
        """Deal with the first door or object on the route to one of the goals; ``arrive`` acts if there is none."""
        route = self._route(goals)
        if not route:
            return Decision(CHECK, f"there is no way to {what}.")
        obstacles = [(position, cell) for position in route[1:] if (cell := self.world.at(*position))]
        if not obstacles:
            return arrive()
        shut = next(filter(self._is_locked_out, route), None)
        # What lies before a locked door is cleared first, while the hands are still free.
        if shut and (self.carried is not None or not self._is_blocked(route[: route.index(shut)])):
            return self._fetch_key(shut, route)
        return self._pass(*obstacles[0], route, what)

    def _is_blocked(self, route: list[Position]) -> bool:
        """Whether something on the route must be picked up to pass."""
        cells = [self.world.at(*position) for position in route[1:]]
        return any(cell and cell[0] not in ("door", "box") for cell in cells)

    def _pass(self, position: Position, cell: Cell, route: list[Position], what: str) -> Decision:
        kind, color, state = cell
        if kind == "box" and self._id(position) not in self._keep:  # a box that is opened is gone
            if self.world.front() == position:
                return Decision("toggle", f"open the {color} box.")
            return self._attempt("go to", position, f"the {color} box is in the way.", what)
        if kind != "door":
            if self.carried is not None:
                return self._free_hands(route)
            return self._attempt("pick up", position, f"move the {color} {kind} away.", what)
        verb = "go through" if state == "open" else "toggle and go through"
        return self._attempt(verb, position, f"go through the {color} door.", what)

    def _fetch_key(self, door: Position, route: list[Position]) -> Decision:
        color = self._color(door)
        keys = [n for n, thing in self._objects.items() if (thing["type"], thing["color"]) == ("key", color)]
        way = self._route(self._places(keys), locked=False)
        if not way:
            return Decision(CHECK, f"there is no way to the {color} key.")
        keys = [n for n in keys if self._places([n])[0] in _neighbours(way[-1])]
        if self.carried is not None:
            return self._free_hands(route + way)
        return self._reach("pick up", keys, f"{color} key")

    def _attempt(self, verb: str, position: Position, thought: str, what: str) -> Decision:
        if position in self._names and self._routes.end(position):
            return Decision(f"{verb} {self._names[position]}", thought)
        return self._until_reachable([position], what)

    def _free_hands(self, route: list[Position]) -> Decision:
        """Put down what is carried where it is in nobody's way."""
        doorways = {
            spot for n, cell in enumerate(self.world.cells) if cell and cell[0] == "door" for spot in _neighbours(self._position(n))
        }
        for avoid in (doorways | set(route), set(route)):
            if decision := self._drop_off(avoid):
                return decision
        return self._drop_off(()) or Decision(CHECK, "there is no place to drop it.")

    def _drop_off(self, avoid: Collection[Position]) -> Decision | None:
        """Drop ahead or find the nearest place for it, off the cells to avoid."""
        if self._is_free(self.world.front(), avoid):
            return Decision("drop", "hands must be free.")
        decision = self._search(lambda pose: self._is_free(self.world.front(pose), avoid), "find a place to drop it.")
        return decision if decision.action != CHECK else None

    def _is_free(self, position: Position, avoid: Collection[Position]) -> bool:
        return self.world.at(*position) is None and position not in avoid

    def _until_reachable(self, places: list[Position], what: str) -> Decision:
        """Turn and step until one of the places is in view with a known path to it."""

        def is_reachable(pose: Pose) -> bool:
            seen = frozenset((s.x, s.y) for s in self.world.view(pose))
            wanted = [place for place in places if place in seen]
            return bool(wanted) and any(map(Routes(self.world, pose, seen).end, wanted))

        return self._search(is_reachable, f"{what} is not visible, look around.")

    def _search(self, is_goal: Callable[[Pose], bool], thought: str, use_objects: bool = False) -> Decision:
        """First of the fewest turns and steps to a pose that ``is_goal``; ``use_objects`` allows one ``go to`` at the start."""
        start, free = self.world.pose, self.world.free()
        first: dict[Pose, str] = {start: ""}
        queue = deque([start])
        later = [(end, f"go to {name}") for position, name in self._names.items() if (end := self._routes.end(position))]
        while queue:
            pose = queue.popleft()
            if is_goal(pose) and pose != start:
                return Decision(first[pose], thought)
            following = [(after, first[pose] or _MOVES[move]) for move, after in reversed(successors(pose, free))]
            for after, action in following + (later if use_objects and pose == start else []):
                if after not in first:
                    first[after] = action
                    queue.append(after)
        return Decision(CHECK, "there is no way.")

    def _route(self, goals: Iterable[Position], locked: bool = True) -> list[Position]:
        """Cheapest cells from the agent to a neighbour of a goal, doors and objects included; empty if there is none."""
        ends = {spot for goal in goals for spot in _neighbours(goal)}
        start = self.world.pose[:2]
        came: dict[Position, Position | None] = {}
        queue: list[tuple[int, Position, Position | None]] = [(0, start, None)]
        while queue:
            cost, position, before = heapq.heappop(queue)
            if position in came:
                continue
            came[position] = before
            if position in ends:
                return _trace(came, position)
            for spot in _neighbours(position):
                price = self._price(spot, locked)
                if price and spot not in came:
                    heapq.heappush(queue, (cost + price, spot, position))
        return []

    def _price(self, position: Position, locked: bool) -> int:
        """Cost of a cell on a route; 0 if it cannot be crossed."""
        cell = self.world.at(*position)
        if cell is None:
            return 1
        if cell[0] == "wall" or (self._is_locked_out(position) and not locked):
            return 0
        if cell[0] != "door":
            return _BOX if cell[0] == "box" else _OBJECT
        return _LOCKED if self._is_locked_out(position) else _DOOR

    def _is_locked_out(self, position: Position) -> bool:
        cell = self.world.at(*position)
        return cell is not None and cell[2] == "locked" and self.world.carrying != ("key", cell[1], "")

    def _color(self, position: Position) -> str:
        cell = self.world.at(*position)
        return cell[1] if cell else ""

    def _position(self, n: int) -> Position:
        return n % self.world.width, n // self.world.width


def _neighbours(position: Position) -> list[Position]:
    return [(position[0] + dx, position[1] + dy) for dx, dy in STEPS]


def _trace(came: dict[Position, Position | None], end: Position) -> list[Position]:
    path: list[Position] = []
    step: Position | None = end
    while step is not None:
        path.append(step)
        step = came[step]
    return path[::-1]
