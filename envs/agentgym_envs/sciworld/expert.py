"""Agents for SciWorld that need no model: an expert that knows the house and some science, and a random one."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

from agentgym_envs.agents import Decision
from agentgym_envs.core import Observation
from agentgym_envs.sciworld.moves import Plan
from agentgym_envs.sciworld.picture import NEIGHBOURS
from agentgym_envs.sciworld.plans import plan_for


class Expert:
    """Follows the plan for the kind of task that the first observation names; sees observation texts only."""

    def reset(self, observation: Observation, render: Callable[[], dict[str, Any]]) -> None:
        """Choose a plan. Raises ``ValueError`` for a kind of task that it does not know."""
        self._plan: Plan[None] = plan_for(observation.text)
        self._started = False

    def act(self, observation: Observation) -> Decision:
        """The next step of the plan."""
        try:
            decision = self._plan.send(observation.text) if self._started else next(self._plan)
        except StopIteration:
            return Decision("wait1", "I have done what the task asks for.")
        self._started = True
        return decision


_ONE = ("look at", "look in", "open", "close", "pick up", "put down", "mix", "activate", "deactivate", "disconnect", "read", "eat", "flush")
_TWO = ("move {} to {}", "pour {} into {}", "dunk {} into {}", "use {} on {}", "connect {} to {}")
_NONE = ("look around", "inventory", "wait1", "wait")
_THING = re.compile(r"(?:\ban? |\bthe |called )((?:[a-z]+ ){0,2}[a-z]+)")


class RandomAgent:
    """Draws actions from the grammar, with names from the texts it has seen; equal seeds give equal actions."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = random.Random(seed)
        self._names: dict[str, None] = {}

    def reset(self, observation: Observation, render: Callable[[], dict[str, Any]]) -> None:
        """Forget the names of the last episode."""
        self._names = dict.fromkeys(NEIGHBOURS)

    def act(self, observation: Observation) -> Decision:
        """A random action; of a numbered list a random number."""
        if observation.actions:
            return Decision(self._rng.choice(observation.actions))
        self._names |= dict.fromkeys(_THING.findall(observation.text))
        things = [self._rng.choice(list(self._names)) for _ in range(2)]
        templates = (_NONE, [f"{verb} {{}}" for verb in (*_ONE, "focus on")], ["go to {}", "open door to {}"], _TWO)
        group = self._rng.choice(templates)
        if group is templates[2]:
            things = [self._rng.choice(list(NEIGHBOURS))]
        return Decision(self._rng.choice(group).format(*things))
