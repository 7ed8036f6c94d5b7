"""Agents for the probes: one that always takes a best action, one that tosses a coin."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from agentgym_envs.agents import Decision
from agentgym_envs.core import Observation
from agentgym_lite.probes.env import ACTIONS


class Expert:
    """Asks the probe's rendering for a best action."""

    def reset(self, observation: Observation, render: Callable[[], dict[str, Any]]) -> None:
        self._render = render

    def act(self, observation: Observation) -> Decision:
        return Decision(str(self._render()["best"]))


class RandomAgent:
    """``left`` or ``right``; equal seeds give equal actions."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = random.Random(seed)

    def reset(self, observation: Observation, render: Callable[[], dict[str, Any]]) -> None:
        """Nothing to remember: an episode is a series of coin tosses."""

    def act(self, observation: Observation) -> Decision:
        return Decision(self._rng.choice(ACTIONS))
