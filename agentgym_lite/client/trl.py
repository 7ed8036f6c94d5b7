"""An environment as TRL's ``GRPOTrainer(environment_factory=...)`` wants it: ``reset(**row)``, one tool, ``get_reward()``.

Needs nothing of TRL. The model acts by tool calls, so its chat template must know tools; models that answer in free text train through
:mod:`agentgym_lite.rollout.trl`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agentgym_lite.client.env_client import EnvClient
from agentgym_lite.client.errors import EnvironmentFailure


class TrlEnvironment:
    """One environment, reused for one episode after another. Its public methods are what TRL looks for.

    A column ``item_id`` of the data set, and ``seed`` if there is one, choose the episode.
    """

    def __init__(self, env: str, url: str | Sequence[str] = "local", token: str | None = None) -> None:
        self._client = EnvClient(env, url, token)
        self._reward, self._done, self._failed = 0.0, True, False

    def reset(self, item_id: str, seed: int = 0, **_: Any) -> str | None:
        """Start an episode; the first observation. Raises ``UnknownItem``."""
        self._reward, self._done, self._failed = 0.0, False, False
        try:
            return self._client.reset(item_id, seed).text
        except EnvironmentFailure:
            self._done = self._failed = True
            return None

    def act(self, action: str) -> str:
        """
        Carry out one action in the environment.

        Args:
            action: The action, written as the instructions say.

        Returns:
            What the environment shows after it.
        """
        if self._done:
            return "The episode has ended."
        try:
            result = self._client.step(action)
        except EnvironmentFailure:
            self._done = self._failed = True
            return "The episode has ended."
        self._reward += result.reward
        self._done = result.done
        return result.observation.text

    def get_reward(self) -> float | None:
        """Return of the episode, in [0, 1]; ``None``, which TRL leaves out of its baselines, if the environment failed."""
        return None if self._failed else self._reward


def environment_factory(env: str, url: str | Sequence[str] = "local", token: str | None = None) -> Callable[[], TrlEnvironment]:
    """What ``GRPOTrainer(environment_factory=...)`` takes; its data set can be :func:`tool_rows`."""
    return lambda: TrlEnvironment(env, url, token)
