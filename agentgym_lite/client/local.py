"""Sessions in the caller's own process: the core object, no server and no thread. Every future is done when it is returned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from agentgym_envs.core import Environment, Observation, StepResult, UnknownItem, environment_class, make
from agentgym_envs.wire import describe
from agentgym_lite.client.errors import EnvironmentFailure

T = TypeVar("T")


@dataclass(eq=False)
class LocalSession:
    """Handle of one episode in process."""

    env: Environment
    item_id: str | int
    observation: Observation
    closed: bool = False


class LocalBackend:
    """What a :class:`~agentgym_lite.client.SessionPool` does when its url is ``"local"``."""

    def __init__(self, env: str, options: Mapping[str, Any] | None = None) -> None:
        self._cls = environment_class(env)
        self._env, self._options = env, dict(options or {})
        self._open: set[LocalSession] = set()

    def start(self, item_id: str | int, seed: int) -> Future[tuple[LocalSession, Observation]]:
        def call() -> tuple[LocalSession, Observation]:
            environment = make(self._env, **self._options)
            try:
                observation = environment.reset(item_id, seed)
            except Exception:
                environment.close()
                raise
            session = LocalSession(environment, item_id, observation)
            self._open.add(session)
            return session, observation

        return self._future(call, item_id)

    def reset(self, session: LocalSession, item_id: str | int, seed: int) -> Future[Observation]:
        def call() -> Observation:
            observation = session.env.reset(item_id, seed)
            session.item_id, session.observation = item_id, observation
            return observation

        return self._on(session, call)

    def step(self, session: LocalSession, action: str) -> Future[StepResult]:
        def call() -> StepResult:
            result = session.env.step(action)
            session.observation = result.observation
            return result

        return self._on(session, call)

    def observe(self, session: LocalSession) -> Future[Observation]:
        return self._on(session, lambda: session.observation)

    def available_actions(self, session: LocalSession) -> Future[list[str]]:
        return self._on(session, lambda: list(session.env.available_actions()))

    def render(self, session: LocalSession) -> Future[dict[str, Any]]:
        return self._on(session, session.env.render)

    def metadata(self) -> Future[dict[str, Any]]:
        return self._future(lambda: describe(self._cls, self._options), None)

    def close(self, session: LocalSession) -> Future[None]:
        future: Future[None] = Future()
        self._discard(session)
        future.set_result(None)
        return future

    def shutdown(self) -> None:
        for session in list(self._open):
            self._discard(session)

    def _discard(self, session: LocalSession) -> None:
        session.closed = True
        if session in self._open:
            self._open.remove(session)
            with suppress(Exception):  # an environment that cannot even close must not take the caller's loop down
                session.env.close()

    def _on(self, session: LocalSession, call: Callable[[], T]) -> Future[T]:
        if session.closed:
            future: Future[T] = Future()
            future.set_exception(EnvironmentFailure("the session is closed", env=self._env, url="local", item_id=session.item_id))
            return future
        return self._future(call, session.item_id, session)

    def _future(self, call: Callable[[], T], item_id: str | int | None, session: LocalSession | None = None) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(call())
        except UnknownItem as e:
            future.set_exception(e)
        except Exception as e:  # whatever an environment raises is its failure, and ends the session as on a server
            if session is not None:
                self._discard(session)
            failure = EnvironmentFailure(f"it raised {type(e).__name__}: {e!s:.500}", env=self._env, url="local", item_id=item_id)
            failure.__cause__ = e
            future.set_exception(failure)
        return future
