"""Macro actions: their grammar, and the primitive minigrid actions that each one expands to.

Paths are breadth-first over poses, so that turns count, and cross only cells that the agent has seen at some time in the episode.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from minigrid.core.actions import Actions

from agentgym_envs.babyai.text import Thing, things_in_view
from agentgym_envs.babyai.world import STEPS, Pose, Position, World, is_passable

CHECK = "check available actions"
MAX_LENGTH = 200  # characters of an action that are worth parsing

_ARTICLE = re.compile(r"\b(?:the|an?) ")
_WITH_OBJECT = re.compile(r"(go to|pick ?up|go through|toggle and go through) (.+)")
_STATE = "(?:open |closed |locked )?"
_OBJECT = re.compile(rf"{_STATE}(red|green|blue|purple|yellow|grey) {_STATE}(ball|box|key|door)(?: ([0-9]{{1,3}}))?")
#: Actions without an object.
_PLAIN: dict[str, list[Actions]] = {
    "turn left": [Actions.left],
    "turn right": [Actions.right],
    "move forward": [Actions.forward],
    "drop": [Actions.drop],
    "toggle": [Actions.toggle],
    CHECK: [],
}
#: Actions on an object, and what follows once the agent faces it. The last step through a door is left out if the cell behind is taken.
_ENDING: dict[str, list[Actions]] = {
    "go to": [],
    "pick up": [Actions.pickup],
    "go through": [Actions.forward, Actions.forward],
    "toggle and go through": [Actions.toggle, Actions.forward, Actions.forward],
}


class ActionError(Exception):
    """The action cannot be read or carried out; the message tells the agent why, and never quotes what the agent wrote."""


@dataclass(frozen=True)
class Command:
    """A parsed action: its verb and, for verbs that take one, the object's name (``"red ball 1"``)."""

    verb: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.name}".rstrip()


def parse(action: str) -> Command:
    """Read an action; case, articles, door states and end marks do not matter, a missing number means the nearest.

    Raises ``ActionError``.
    """
    if len(action) > MAX_LENGTH:
        raise ActionError(f"Expected one short action, found {len(action)} characters.")
    text = _ARTICLE.sub("", " ".join(action.lower().split()).strip(" .!\"'`"))
    if text in _PLAIN:
        return Command(text)
    if not (match := _WITH_OBJECT.fullmatch(text)):
        raise ActionError(f"Unknown action. Try '{CHECK}'.")
    verb = "pick up" if match[1] == "pickup" else match[1]
    if not (words := _OBJECT.fullmatch(match[2])):
        raise ActionError("Unknown object. Name one in view, such as 'red ball 1'.")
    return Command(verb, f"{words[1]} {words[2]} {int(words[3] or 1)}")


class Routes:
    """Shortest primitive paths from the agent to every pose it can reach over known cells."""

    def __init__(self, world: World, start: Pose | None = None, seen: frozenset[Position] = frozenset()) -> None:
        """``start`` and the extra known cells ``seen`` let a planner ask from a pose that it has not reached yet."""
        start = start or world.pose
        free = world.free(known_only=True) | {spot for spot in seen if is_passable(world.at(*spot))}
        self._came: dict[Pose, tuple[Pose, Actions] | None] = {start: None}
        queue = deque([start])
        while queue:
            pose = queue.popleft()
            for action, after in successors(pose, free):
                if after not in self._came:
                    self._came[after] = (pose, action)
                    queue.append(after)
        self._facing: dict[Position, Pose] = {}
        for pose in self._came:  # in order of distance, so that the first pose that faces a cell is the nearest
            self._facing.setdefault(world.front(pose), pose)

    def facing(self, target: Position) -> list[Actions] | None:
        """Primitive actions that end next to ``target`` and facing it, or ``None`` if there is no path."""
        if target not in self._facing:
            return None
        actions: list[Actions] = []
        step = self._came[self._facing[target]]
        while step:
            actions.append(step[1])
            step = self._came[step[0]]
        return actions[::-1]

    def end(self, target: Position) -> Pose | None:
        """The pose that ``facing`` ends in."""
        return self._facing.get(target)


def successors(pose: Pose, free: Collection[Position]) -> list[tuple[Actions, Pose]]:
    """Poses one primitive move away, where the agent can stand on ``free`` cells."""
    x, y, direction = pose
    turns = [(Actions.left, (x, y, (direction + 3) % 4)), (Actions.right, (x, y, (direction + 1) % 4))]
    ahead = (x + STEPS[direction][0], y + STEPS[direction][1])
    return [(Actions.forward, (*ahead, direction)), *turns] if ahead in free else turns


def plan(world: World, command: Command) -> list[Actions]:
    """Primitive actions of a command. Raises ``ActionError`` if it cannot be carried out; then nothing has happened."""
    verb = command.verb
    if verb in _PLAIN:
        return _plan_plain(world, verb)
    thing = next((thing for thing in things_in_view(world) if thing.name == command.name), None)
    if thing is None:
        raise ActionError(f"You cannot {command}: not in view.")
    if reason := _objection(world, verb, thing):
        raise ActionError(f"You cannot {command}: {reason}.")
    path = Routes(world).facing(thing.position)
    if path is None:
        raise ActionError(f"You cannot {command}: no path.")
    return path + _ENDING[verb] or [Actions.done]  # one idle step, so that a goal faced from the start can be claimed


def _plan_plain(world: World, verb: str) -> list[Actions]:
    ahead = world.at(*world.front())
    blocked = f"{ahead[1]} {ahead[0]}" if ahead and ahead[0] != "wall" else "wall"
    if verb == "move forward" and not is_passable(ahead):
        raise ActionError(f"You cannot move forward: {blocked} ahead.")
    if verb == "drop" and world.carrying is None:
        raise ActionError("You cannot drop: you carry nothing.")
    if verb == "drop" and ahead is not None:
        raise ActionError(f"You cannot drop: {blocked} ahead.")
    if verb == "toggle" and (ahead is None or ahead[0] not in ("door", "box")):
        raise ActionError("You cannot toggle: no door or box ahead.")
    if verb == "toggle" and ahead and _lacks_key(world, ahead[1], ahead[2]):
        raise ActionError(f"You cannot toggle: the {blocked} is locked.")
    return _PLAIN[verb]


def _lacks_key(world: World, color: str, state: str) -> bool:
    return state == "locked" and world.carrying != ("key", color, "")


def _objection(world: World, verb: str, thing: Thing) -> str:
    """Why the verb does not fit the object, or an empty string."""
    kind, color, state = thing.cell
    if verb == "pick up" and kind == "door":
        return "it is a door"
    if verb == "pick up" and world.carrying:
        return f"you carry a {world.carrying[1]} {world.carrying[0]}"
    if "through" in verb and kind != "door":
        return "it is no door"
    if "through" in verb and _lacks_key(world, color, state):
        return f"it is locked and you have no {color} key"
    if verb == "go through" and state != "open":
        return f"it is {state}"
    if verb == "toggle and go through" and state == "open":
        return "it is open already"
    return ""


def available(world: World) -> list[str]:
    """Actions that ``plan`` accepts now, those without an object first, then by object from the nearest on."""
    actions: list[str] = []
    for verb in (verb for verb in _PLAIN if verb != CHECK):
        try:
            _plan_plain(world, verb)
            actions.append(verb)
        except ActionError:
            continue
    things = things_in_view(world)
    reached = _cells_in_reach(world) if things else set()
    for thing in things:
        if not reached.isdisjoint(_neighbours(thing.position)):
            actions += [f"{verb} {thing.name}" for verb in _ENDING if not _objection(world, verb, thing)]
    return [*actions, CHECK]


def _cells_in_reach(world: World) -> set[Position]:
    """Known cells that the agent can walk to: those of :class:`Routes`, without the paths, which take four times as long."""
    free = world.free(known_only=True)
    reached, frontier = {world.pose[:2]}, [world.pose[:2]]
    while frontier:
        new = free.intersection(_neighbours(frontier.pop())) - reached
        reached |= new
        frontier += new
    return reached


def _neighbours(position: Position) -> list[Position]:
    x, y = position
    return [(x + dx, y + dy) for dx, dy in STEPS]
