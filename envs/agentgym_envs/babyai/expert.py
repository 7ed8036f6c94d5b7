"""Agents without a model: an expert that knows the whole grid but plays by the public interface, and a random agent.

The expert acts as somebody who sees only what is in view would wish to: it takes the goal object as soon as it is visible and
reachable; else it follows the true route, door by door, and looks around by turning and stepping until the next thing that it needs
is in view.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from agentgym_envs.agents import Decision
from agentgym_envs.babyai.macros import CHECK
from agentgym_envs.babyai.missions import Description, parse_mission
from agentgym_envs.babyai.planner import Scene
from agentgym_envs.babyai.world import STEPS
from agentgym_envs.core import Observation

_PLAIN = ("turn left", "turn right", "move forward", "drop", "toggle")
_ON_OBJECTS = ("go to", "pick up")
_ON_DOORS = ("go through", "toggle and go through")
_COLORS = ("red", "green", "blue", "purple", "yellow", "grey")
_KINDS = ("ball", "box", "key", "door")


class RandomAgent:
    """Draws from the action grammar: a verb, and where it takes one an object of any kind, colour and number; equal seeds, equal actions.

    It does not read what is in view, so most of its moves that name an object are refused.
    """

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def reset(self, observation: Observation, render: Callable[[], dict[str, Any]]) -> None:
        """Nothing to remember between episodes; the stream of draws goes on."""

    def act(self, observation: Observation) -> Decision:
        """A random action."""
        verb = self._random.choice((*_PLAIN, *_ON_OBJECTS, *_ON_DOORS))
        if verb in _PLAIN:
            return Decision(verb)
        kind = "door" if verb in _ON_DOORS else self._random.choice(_KINDS)
        return Decision(f"{verb} {self._random.choice(_COLORS)} {kind} {self._random.randint(1, 2)}")


class Expert:
    """Plans anew at every turn from ``render``'s full state and the mission."""

    def reset(self, observation: Observation, render: Callable[[], dict[str, Any]]) -> None:
        """Read the mission and fix which objects it means, since places such as "on your left" hold for the start only."""
        self._render = render
        self._has_acted = False
        picture = render()
        self._stages = [
            [(clause, _matching(picture, clause.target), _matching(picture, clause.beside)) for clause in stage]
            for stage in parse_mission(picture["mission"])
        ]

    def act(self, observation: Observation) -> Decision:
        """The next action towards the first stage of the mission that is not done yet."""
        keep = {n for stage in self._stages for _, targets, beside in stage for n in targets | beside}
        scene = Scene(self._render(), keep)
        while self._has_acted and self._stages:  # minigrid judges a goal only after an action
            self._stages[0] = [task for task in self._stages[0] if not scene.is_done(*task)]
            if self._stages[0]:
                break
            self._stages.pop(0)
        self._has_acted = True
        if not self._stages:
            return Decision(CHECK, "the goal is reached.")
        options = [scene.pursue(*task) for task in self._stages[0]]
        return next((option for option in options if option.thought.endswith("is visible.")), options[0])


def _matching(picture: dict[str, Any], wanted: Description | None) -> frozenset[int]:
    """Ids of the objects that a description means, judged from the agent's pose in the picture."""
    if wanted is None:
        return frozenset()
    carried = [picture["carrying"]] if picture["carrying"] and not wanted.place else []  # what is in hand is in no place
    return frozenset(
        thing["id"]
        for thing in picture["objects"] + carried
        if wanted.kind in ("", thing["type"]) and wanted.color in ("", thing["color"]) and _is_placed(picture, thing, wanted.place)
    )


def _is_placed(picture: dict[str, Any], thing: dict[str, Any], place: str) -> bool:
    """Whether an object lies in the agent's room (its walls included) and on the named side of the agent."""
    if not place:
        return True
    agent, span = picture["agent"], picture["room_size"] - 1
    for axis in ("x", "y"):
        near = agent[axis] // span * span
        if not near <= thing[axis] <= near + span:
            return False
    fx, fy = STEPS[agent["dir"]]
    dx, dy = thing["x"] - agent["x"], thing["y"] - agent["y"]
    ahead, right = dx * fx + dy * fy, dy * fx - dx * fy
    return {"front": ahead > 0, "behind": ahead < 0, "right": right > 0, "left": right < 0}[place]
