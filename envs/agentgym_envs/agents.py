"""Agents that need no model: the interface of experts and random agents, and how to find them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from agentgym_envs.core import Observation, environment_class


@dataclass(frozen=True)
class Decision:
    """What an agent does next: the ``action`` for the environment and the ``thought`` that goes before it in a ReAct reply."""

    action: str
    thought: str = ""


class TextAgent(Protocol):
    """Acts through the public interface only: observation text, listed actions and, for experts, ``render``."""

    def reset(self, observation: Observation, render: Callable[[], dict[str, Any]]) -> None:
        """Begin an episode with its first observation."""

    def act(self, observation: Observation) -> Decision:
        """Choose the next action, given the latest observation."""


def expert(env: str) -> TextAgent:
    """A new expert for the environment: it solves every evaluation item within the paper's round limit."""
    module = environment_class(env).__module__
    return importlib.import_module(f"{module.removesuffix('.env')}.expert").Expert()


def random_agent(env: str, seed: int = 0) -> TextAgent:
    """A new agent that draws actions from the environment's action grammar; equal seeds give equal actions."""
    module = environment_class(env).__module__
    return importlib.import_module(f"{module.removesuffix('.env')}.expert").RandomAgent(seed)
