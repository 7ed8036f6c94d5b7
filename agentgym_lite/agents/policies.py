"""Policies without a model: experts and random agents that speak in full replies, and the messages that open an episode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from agentgym_envs.agents import TextAgent, expert, random_agent
from agentgym_envs.core import Environment, Observation, make
from agentgym_lite.agents.formats import ActionFormat, ReAct


class TextPolicy(Protocol):
    """Answers observations with the text of a reply."""

    def reset(self, observation: Observation, render: Callable[[], dict[str, Any]]) -> None:
        """Begin an episode with its first observation; ``render`` gives the full state to those that may see it."""

    def act(self, observation: Observation) -> str:
        """The reply to the latest observation."""


@runtime_checkable
class NotingPolicy(TextPolicy, Protocol):
    """A text policy that can also answer the questions of a strategy or a memory."""

    def note(self, kind: str) -> str:
        """The answer to a question of this kind: ``"plan"``, ``"summary"``, ``"reflection"``, ..."""


class AgentPolicy:
    """A ``TextAgent`` whose decisions are written in an action format.

    Its notes are made of its actions: what it has done in this attempt, and for a plan what ``plan`` says that it will do.
    """

    def __init__(
        self, agent: TextAgent, action_format: ActionFormat | None = None, plan: Callable[[], Sequence[str]] | None = None
    ) -> None:
        self._agent, self._plan = agent, plan
        self._format = action_format or ReAct()
        self._did: list[str] = []

    def reset(self, observation: Observation, render: Callable[[], dict[str, Any]]) -> None:
        self._did = []
        self._agent.reset(observation, render)

    def act(self, observation: Observation) -> str:
        decision = self._agent.act(observation)
        self._did.append(decision.action)
        return self._format.render(decision.thought, decision.action)

    def note(self, kind: str) -> str:
        if kind == "plan" and self._plan is not None:
            return "\n".join(f"{i}. {action}" for i, action in enumerate(self._plan(), 1))
        done = f"Done so far: {'; '.join(self._did) or 'nothing'}."
        return f"{done} That did not reach the goal; I will try something else." if kind == "reflection" else done


class ExpertPolicy(AgentPolicy):
    """The expert of environment ``env``."""

    def __init__(self, env: str, action_format: ActionFormat | None = None, plan: Callable[[], Sequence[str]] | None = None) -> None:
        super().__init__(expert(env), action_format, plan)


class RandomPolicy(AgentPolicy):
    """The random agent of environment ``env``; equal seeds give equal replies."""

    def __init__(self, env: str, seed: int = 0, action_format: ActionFormat | None = None) -> None:
        super().__init__(random_agent(env, seed), action_format)


def rehearse(env: str, item_id: str, seed: int, limit: int = 200) -> list[str]:
    """The actions by which the expert solves an item, found out on a private copy of the environment: what its plan lists."""
    copy, agent, actions = make(env), expert(env), list[str]()
    try:
        observation = copy.reset(item_id, seed)
        agent.reset(observation, copy.render)
        while len(actions) < limit:
            actions.append(agent.act(observation).action)
            result = copy.step(actions[-1])
            if result.done:
                break
            observation = result.observation
        return actions
    finally:
        copy.close()


def opening_messages(env: str | type[Environment] | Environment, first_observation: str | Observation) -> list[dict[str, str]]:
    """System message (instructions: given as text, or those of an environment) and user message (first observation)."""
    instructions = env if isinstance(env, str) else env.instructions
    observation = first_observation if isinstance(first_observation, str) else first_observation.text
    return [{"role": "system", "content": instructions}, {"role": "user", "content": observation}]
