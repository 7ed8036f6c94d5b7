"""One episode at a time, with the names that AgentGym clients use: ``reset observe available_actions step render close``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from agentgym_envs.core import Observation, StepResult
from agentgym_lite.client.errors import EnvironmentFailure
from agentgym_lite.client.pool import Handle, SessionPool

T = TypeVar("T")


class EnvClient:
    """An environment in process (``url="local"``) or behind one or several servers.

    Arguments and errors are those of :class:`SessionPool`. With several addresses the session lives on the least loaded one. After an
    ``EnvironmentFailure`` the next ``reset`` starts on a fresh session.
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
        self._lost = False

    def reset(self, item_id: str | int, seed: int = 0) -> Observation:
        """Start an episode. Raises ``UnknownItem``, ``EnvironmentFailure``."""
        if self._handle is not None and not self._lost:
            return self._result(self._pool.reset(self._handle, item_id, seed))
        if self._handle is not None:
            self._pool.close(self._handle)
        self._handle, observation = self._pool.start(item_id, seed).result()
        self._lost = False
        return observation

    def observe(self) -> Observation:
        """The latest observation."""
        return self._result(self._pool.observe(self._session()))

    def available_actions(self) -> list[str]:
        """Actions that would be accepted now, as far as they can be listed."""
        return self._result(self._pool.available_actions(self._session()))

    def step(self, action: str) -> StepResult:
        """Carry out one action. Raises ``RuntimeError`` before ``reset``, ``EnvironmentFailure``."""
        return self._result(self._pool.step(self._session(), action))

    def render(self) -> dict[str, Any]:
        """Picture of the full state: at least ``{"kind": name, "text": str}``."""
        return self._result(self._pool.render(self._session()))

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

    def _result(self, future: Future[T]) -> T:
        try:
            return future.result()
        except EnvironmentFailure:
            self._lost = True
            raise

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
        self._lost = False

    async def reset(self, item_id: str | int, seed: int = 0) -> Observation:
        """Start an episode. Raises ``UnknownItem``, ``EnvironmentFailure``."""
        if self._handle is not None and not self._lost:
            return await self._result(self._pool.reset(self._handle, item_id, seed))
        if self._handle is not None:
            self._pool.close(self._handle)
        self._handle, observation = await asyncio.wrap_future(self._pool.start(item_id, seed))
        self._lost = False
        return observation

    async def observe(self) -> Observation:
        """The latest observation."""
        return await self._result(self._pool.observe(self._session()))

    async def available_actions(self) -> list[str]:
        """Actions that would be accepted now, as far as they can be listed."""
        return await self._result(self._pool.available_actions(self._session()))

    async def step(self, action: str) -> StepResult:
        """Carry out one action. Raises ``RuntimeError`` before ``reset``, ``EnvironmentFailure``."""
        return await self._result(self._pool.step(self._session(), action))

    async def render(self) -> dict[str, Any]:
        """Picture of the full state: at least ``{"kind": name, "text": str}``."""
        return await self._result(self._pool.render(self._session()))

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

    async def _result(self, future: Future[T]) -> T:
        try:
            return await asyncio.wrap_future(future)
        except EnvironmentFailure:
            self._lost = True
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()
