"""One episode at a time, with the names that AgentGym clients use: ``reset observe available_actions step render close``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from agentgym_envs.core import Observation, StepResult

from agentgym_lite.client.pool import Handle, SessionPool


class EnvClient:
    """An environment in process (``url="local"``) or behind one or several servers.

    Arguments and errors are those of :class:`SessionPool`. With several addresses the session lives on the least loaded one.
    """

    def __init__(
        self,
        env: str,
        url: str | Sequence[str] = "local",
        token: str | None = None,
        timeout: float = 60.0,
        options: Mapping[str, Any] | None = None,
        *,
        retries: int = 4,
    ) -> None:
        self.env = env
        self._pool = SessionPool(env, url, token=token, timeout=timeout, retries=retries, options=options)
        self._handle: Handle | None = None

    def reset(self, item_id: str | int, seed: int = 0) -> Observation:
        """Start an episode. Raises ``UnknownItem``, ``EnvironmentFailure``."""
        if self._handle is not None:
            return self._pool.reset(self._handle, item_id, seed).result()
        self._handle, observation = self._pool.start(item_id, seed).result()
        return observation

    def observe(self) -> Observation:
        """The latest observation."""
        return self._pool.observe(self._session()).result()

    def available_actions(self) -> list[str]:
        """Actions that would be accepted now, as far as they can be listed."""
        return self._pool.available_actions(self._session()).result()

    def step(self, action: str) -> StepResult:
        """Carry out one action. Raises ``RuntimeError`` before ``reset``, ``EnvironmentFailure``."""
        return self._pool.step(self._session(), action).result()

    def render(self) -> dict[str, Any]:
        """Picture of the full state: at least ``{"kind": name, "text": str}``."""
        return self._pool.render(self._session()).result()

    def metadata(self) -> dict[str, Any]:
        """``name, version, instructions, item_counts, tasks, items`` of the environment."""
        return self._pool.metadata().result()

    def close(self) -> None:
        """End the session and free the client. Safe to call twice."""
        self._handle = None
        self._pool.shutdown()

    def _session(self) -> Handle:
        if self._handle is None:
            raise RuntimeError(f"expected an episode of '{self.env}' to be running, found none: call reset(item_id) first")
        return self._handle

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class AsyncEnvClient:
    """:class:`EnvClient` for ``async`` code; with ``url="local"`` the environment runs on the event loop's own thread."""

    def __init__(
        self,
        env: str,
        url: str | Sequence[str] = "local",
        token: str | None = None,
        timeout: float = 60.0,
        options: Mapping[str, Any] | None = None,
        *,
        retries: int = 4,
    ) -> None:
        self.env = env
        self._pool = SessionPool(env, url, token=token, timeout=timeout, retries=retries, options=options)
        self._handle: Handle | None = None

    async def reset(self, item_id: str | int, seed: int = 0) -> Observation:
        """Start an episode. Raises ``UnknownItem``, ``EnvironmentFailure``."""
        if self._handle is not None:
            return await asyncio.wrap_future(self._pool.reset(self._handle, item_id, seed))
        self._handle, observation = await asyncio.wrap_future(self._pool.start(item_id, seed))
        return observation

    async def observe(self) -> Observation:
        """The latest observation."""
        return await asyncio.wrap_future(self._pool.observe(self._session()))

    async def available_actions(self) -> list[str]:
        """Actions that would be accepted now, as far as they can be listed."""
        return await asyncio.wrap_future(self._pool.available_actions(self._session()))

    async def step(self, action: str) -> StepResult:
        """Carry out one action. Raises ``RuntimeError`` before ``reset``, ``EnvironmentFailure``."""
        return await asyncio.wrap_future(self._pool.step(self._session(), action))

    async def render(self) -> dict[str, Any]:
        """Picture of the full state: at least ``{"kind": name, "text": str}``."""
        return await asyncio.wrap_future(self._pool.render(self._session()))

    async def metadata(self) -> dict[str, Any]:
        """``name, version, instructions, item_counts, tasks, items`` of the environment."""
        return await asyncio.wrap_future(self._pool.metadata())

    async def close(self) -> None:
        """End the session and free the client. Safe to call twice."""
        self._handle = None
        await asyncio.to_thread(self._pool.shutdown)

    def _session(self) -> Handle:
        if self._handle is None:
            raise RuntimeError(f"expected an episode of '{self.env}' to be running, found none: call reset(item_id) first")
        return self._handle

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()
