"""Many episodes of one environment at a time, behind futures: in process, on one server or spread over several."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Protocol, Self

from agentgym_envs.core import Observation, StepResult
from agentgym_lite.client.http import HttpBackend
from agentgym_lite.client.local import LocalBackend

#: Opaque to callers: what :meth:`SessionPool.start` returned for an episode.
Handle = Any


class _Backend(Protocol):
    def start(self, item_id: str | int, seed: int) -> Future[tuple[Any, Observation]]: ...
    def reset(self, session: Any, item_id: str | int, seed: int) -> Future[Observation]: ...
    def step(self, session: Any, action: str) -> Future[StepResult]: ...
    def observe(self, session: Any) -> Future[Observation]: ...
    def available_actions(self, session: Any) -> Future[list[str]]: ...
    def render(self, session: Any) -> Future[dict[str, Any]]: ...
    def metadata(self) -> Future[dict[str, Any]]: ...
    def close(self, session: Any) -> Future[None]: ...
    def shutdown(self) -> None: ...


class SessionPool:
    """Parallel episodes of ``env``; every call returns a ``concurrent.futures.Future`` at once.

    ``url`` is ``"local"`` (the core object in this process; futures are done when returned), one server address, or several, over
    which the sessions are spread. Over HTTP, calls that are waiting together travel in one request. A handle takes one call at a
    time: wait for its future before the next. Safe to use from one thread.

    Futures fail with :class:`EnvironmentFailure` when the environment or its server failed (after ``retries`` attempts more, with
    growing pauses, where a retry can help), and with ``UnknownItem`` when the item does not exist. ``timeout`` is in seconds.
    ``options`` go to the environment's constructor and are for ``"local"`` only: a server has its own.
    """

    def __init__(
        self,
        env: str,
        url: str | Sequence[str] = "local",
        *,
        token: str | None = None,
        timeout: float = 60.0,
        retries: int = 4,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.env = env
        self.urls = [url] if isinstance(url, str) else list(url)
        if not self.urls:
            raise ValueError("expected 'local', one address or a list of addresses in url, found an empty list")
        if self.urls == ["local"]:
            self._backend: _Backend = LocalBackend(env, options)
        elif options:
            raise ValueError(f"options are for url='local'; the server at {self.urls[0]} has its own: set them where it is started")
        else:
            self._backend = HttpBackend(env, self.urls, token=token, timeout=timeout, retries=retries)

    def start(self, item_id: str | int, seed: int = 0) -> Future[tuple[Handle, Observation]]:
        """Open a session and start an episode in it."""
        return self._backend.start(_item(item_id), operator.index(seed))

    def reset(self, handle: Handle, item_id: str | int, seed: int = 0) -> Future[Observation]:
        """Start another episode in an open session."""
        return self._backend.reset(handle, _item(item_id), operator.index(seed))

    def step(self, handle: Handle, action: str) -> Future[StepResult]:
        """Carry out one action. It is carried out once, however often its request had to be repeated."""
        return self._backend.step(handle, action)

    def observe(self, handle: Handle) -> Future[Observation]:
        """The latest observation."""
        return self._backend.observe(handle)

    def available_actions(self, handle: Handle) -> Future[list[str]]:
        """Actions that would be accepted now, as far as they can be listed."""
        return self._backend.available_actions(handle)

    def render(self, handle: Handle) -> Future[dict[str, Any]]:
        """Picture of the full state for viewers and experts."""
        return self._backend.render(handle)

    def metadata(self) -> Future[dict[str, Any]]:
        """``name, version, instructions, item_counts, tasks, items`` of the environment."""
        return self._backend.metadata()

    def close(self, handle: Handle) -> Future[None]:
        """End a session. Never fails: what a dead server held is gone, and a live one drops idle sessions by itself."""
        return self._backend.close(handle)

    def shutdown(self) -> None:
        """Close every session that is still open and free the pool. Safe to call twice."""
        self._backend.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.shutdown()


def _item(item_id: str | int) -> str | int:
    return item_id if isinstance(item_id, str) else operator.index(item_id)  # numpy's whole numbers are not JSON's
