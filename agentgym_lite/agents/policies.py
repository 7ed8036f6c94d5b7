"""Policies without a model: experts and random agents that speak in full replies, and the messages that open an episode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from agentgym_envs.agents import TextAgent, expert, random_agent
from agentgym_envs.core import Environment, Observation
from agentgym_lite.agents.formats import ActionFormat, ReAct


class TextPolicy(Protocol):
    """Answers observations with the text of a reply."""

    def reset(self, observation: Observation, render: Callable[[], dict[str, Any]]) -> None:
        """Begin an episode with its first observation; ``render`` gives the full state to those that may see it."""

    def act(self, observation: Observation) -> str:
        """The reply to the latest observation."""


class AgentPolicy:
    """A ``TextAgent`` whose decisions are written in an action format."""

    def __init__(self, agent: TextAgent, action_format: ActionFormat | None = None) -> None:
        self._agent = agent
        self._format = action_format or ReAct()

    def reset(self, observation: Observation, render: Callable[[], dict[str, Any]]) -> None:
        self._agent.reset(observation, render)

    def act(self, observation: Observation) -> str:
        decision = self._agent.act(observation)
        return self._format.render(decision.thought, decision.action)


class ExpertPolicy(AgentPolicy):
    """The expert of environment ``env``."""

    def __init__(self, env: str, action_format: ActionFormat | None = None) -> None:
        super().__init__(expert(env), action_format)


class RandomPolicy(AgentPolicy):
    """The random agent of environment ``env``; equal seeds give equal replies."""

    def __init__(self, env: str, seed: int = 0, action_format: ActionFormat | None = None) -> None:
        super().__init__(random_agent(env, seed), action_format)


def opening_messages(env: str | type[Environment] | Environment, first_observation: str | Observation) -> list[dict[str, str]]:
    """System message (instructions: given as text, or those of an environment) and user message (first observation)."""
    instructions = env if isinstance(env, str) else env.instructions
    observation = first_observation if isinstance(first_observation, str) else first_observation.text
    return [{"role": "system", "content": instructions}, {"role": "user", "content": observation}]
