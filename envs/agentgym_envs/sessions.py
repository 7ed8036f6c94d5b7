"""Sessions of one environment: identity, turn numbers, locks, time-to-live and capacity, independent of any transport.

Every method may be called from any thread. Answers are JSON-ready dictionaries; errors are :class:`ServiceError`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agentgym_envs.core import Environment, Observation, UnknownItem, environment_class, make
from agentgym_envs.wire import describe, observation_to_wire, step_to_wire

T = TypeVar("T")
_log = logging.getLogger(__name__)


class ServiceError(Exception):
    """A request that cannot be answered: HTTP ``status``, stable ``code``, and a message of what was expected, found and can be done."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message

    def body(self) -> dict[str, Any]:
        """``{"error": code, "message": message, "status": status}``."""
        return {"error": self.code, "message": self.message, "status": self.status}


@dataclass(eq=False)
class Session:
    """One environment object and what is needed to repeat its last answers. ``turn`` is the number of the next step."""

    id: str
    last_used: float
    env: Environment | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    closed: bool = False
    unwanted: bool = False  # to be closed by whoever holds the lock
    episode: tuple[str | int, int] | None = None
    observation: Observation | None = None
    turn: int = 0
    opening: dict[str, Any] = field(default_factory=dict)
    answer: dict[str, Any] = field(default_factory=dict)


class SessionManager:
    """All sessions of the environment ``name``; ``options`` go to its constructor.

    At most ``max_sessions`` are open; one that was not used for ``ttl_s`` seconds of ``clock`` is closed by :meth:`reap`, which also
    runs when there is no room. A request for a session that is busy waits ``lock_wait_s`` at most, so that a hung environment
    does not take all threads with it.
    """

    def __init__(
        self,
        name: str,
        *,
        options: Mapping[str, Any] | None = None,
        max_sessions: int = 1024,
        ttl_s: float = 1800.0,
        lock_wait_s: float = 0.05,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.environment = environment_class(name)
        self.max_sessions, self.ttl_s = max_sessions, ttl_s
        self._options, self._lock_wait_s, self._clock = dict(options or {}), lock_wait_s, clock
        self._sessions: dict[str, Session] = {}
        self._lock = threading.Lock()
        self._counts = {"created": 0, "closed": 0, "expired": 0, "failed": 0}
        self._metadata: dict[str, Any] | None = None

    def __len__(self) -> int:
        return len(self._sessions)

    # -- life of a session ---------------------------------------------------------------------------------------------------------

    def create(self, session_id: str | None = None, item_id: str | int | None = None, seed: int = 0) -> dict[str, Any]:
        """Open a session and, if ``item_id`` is given, start an episode in it.

        A caller that chooses ``session_id`` may repeat the request: the same id and episode give the first answer.
        """
        session, new = self._add(session_id or uuid.uuid4().hex)
        episode = None if item_id is None else (item_id, seed)
        try:
            with self._locked(session):
                if session.env is None:
                    session.env = self._guarded(session, lambda: make(self.name, **self._options))
                if session.episode == episode and session.turn == 0 and session.opening:
                    return session.opening
                if not new and session.opening:
                    raise ServiceError(409, "session_exists", f"expected a new session id, found '{session.id}' in use; choose another")
                session.opening = {"id": session.id, "turn": 0}
                if episode is not None:
                    self._begin(session, *episode)
                return session.opening
        except ServiceError as e:
            if new and e.code == "unknown_item":
                self._remove(session, "closed")
            raise

    def reset(self, session_id: str, item_id: str | int, seed: int = 0) -> dict[str, Any]:
        """Start an episode: ``id, turn`` (0) and the first observation. An unknown item leaves the session as it was."""
        session = self._get(session_id)
        with self._locked(session):
            return self._begin(session, item_id, seed)

    def close(self, session_id: str) -> dict[str, Any]:
        """End a session: ``{"id": ..., "closed": true}``. One that is at work (``session_busy``) ends as soon as that is done."""
        session = self._get(session_id)
        session.unwanted = True
        with self._locked(session):
            self._remove(session, "closed")
        return {"id": session.id, "closed": True}

    def close_all(self) -> None:
        """End every session, e.g. when the server stops."""
        for session in list(self._sessions.values()):
            self._remove(session, "closed")

    def reap(self) -> int:
        """Close the sessions whose time-to-live is over and return their number. A session that is at work is not idle."""
        now, reaped = self._clock(), 0
        for session in list(self._sessions.values()):
            if now - session.last_used > self.ttl_s and session.lock.acquire(blocking=False):
                try:
                    if not session.closed and now - session.last_used > self.ttl_s:
                        self._remove(session, "expired")
                        reaped += 1
                finally:
                    session.lock.release()
        return reaped

    def discard(self, session_id: str, error: Exception) -> ServiceError:
        """Close and count a session whose environment gave an answer that cannot be sent; returns the error to answer with."""
        session = self._sessions.get(session_id)
        if session is not None:
            self._remove(session, "failed")
        return self._environment_failed(error)

    # -- an episode ----------------------------------------------------------------------------------------------------------------

    def step(self, session_id: str, action: str, turn: int | None = None) -> dict[str, Any]:
        """Carry out the action of turn number ``turn`` (0 is the first after a reset).

        The number of the last turn gives that turn's first answer again and carries out nothing. Without a number the action is that
        of the next turn; such a request must not be repeated.
        """
        session = self._get(session_id)
        with self._locked(session):
            env = self._env(session)
            if session.answer and turn == session.turn - 1:
                return session.answer
            if turn is not None and turn != session.turn:
                message = f"expected turn {session.turn}, found {turn}; number steps from 0 after each reset, one by one"
                raise ServiceError(409, "wrong_turn", message)
            number = session.turn

            def call() -> tuple[Observation, dict[str, Any]]:
                result = env.step(action)
                return result.observation, {"id": session.id, "turn": number} | step_to_wire(result)

            session.observation, session.answer = self._guarded(session, call)
            session.turn += 1
            return session.answer

    def observation(self, session_id: str) -> dict[str, Any]:
        """The latest observation and ``turn``, the number of the next step."""
        session = self._get(session_id)
        with self._locked(session):
            self._env(session)
            assert session.observation is not None
            return {"id": session.id, "turn": session.turn} | observation_to_wire(session.observation)

    def episode(self, session_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """The answers to the reset and to the latest step (empty before the first) of the running episode."""
        session = self._get(session_id)
        with self._locked(session):
            self._env(session)
            return session.opening, session.answer

    def available_actions(self, session_id: str) -> dict[str, Any]:
        """``{"actions": [...]}``."""
        session = self._get(session_id)
        with self._locked(session):
            env = self._env(session)
            return {"id": session.id, "actions": self._guarded(session, lambda: list(env.available_actions()))}

    def render(self, session_id: str) -> dict[str, Any]:
        """``{"render": {...}}``, the picture for viewers and experts."""
        session = self._get(session_id)
        with self._locked(session):
            return {"id": session.id, "render": self._guarded(session, self._env(session).render)}

    # -- about the environment -----------------------------------------------------------------------------------------------------

    def health(self) -> dict[str, Any]:
        """Number of open sessions, limits, and counts since the start."""
        limits = {"max_sessions": self.max_sessions, "ttl_s": self.ttl_s}
        return {"status": "healthy", "env": self.name, "sessions": len(self)} | limits | self._counts

    def metadata(self) -> dict[str, Any]:
        """What :func:`agentgym_envs.wire.describe` says, worked out once."""
        if self._metadata is None:
            self._metadata = describe(self.environment, self._options)
        return self._metadata

    # -- inside --------------------------------------------------------------------------------------------------------------------

    def _add(self, session_id: str) -> tuple[Session, bool]:
        if len(self) >= self.max_sessions and session_id not in self._sessions:
            self.reap()
        with self._lock:
            if session_id in self._sessions:
                return self._sessions[session_id], False
            if len(self) >= self.max_sessions:
                message = f"expected room for another session, found {len(self)} of at most {self.max_sessions} open; close some, wait, "
                raise ServiceError(503, "capacity", message + "or start the server with a larger --max-sessions")
            session = Session(session_id, self._clock())
            self._sessions[session_id] = session
            self._counts["created"] += 1
            return session, True

    def _get(self, session_id: str) -> Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise self._unknown(session_id)
        return session

    def _unknown(self, session_id: str) -> ServiceError:
        message = f"expected the id of an open session of '{self.name}', found {session_id!r:.80}; it was closed, was not used for "
        return ServiceError(404, "unknown_session", f"{message}{self.ttl_s:g} s, or the server was restarted: create a new one")

    @contextlib.contextmanager
    def _locked(self, session: Session) -> Iterator[None]:
        if not session.lock.acquire(timeout=self._lock_wait_s):
            message = f"session '{session.id}' is still at work on an earlier request; send this one again later"
            raise ServiceError(503, "session_busy", message)
        try:
            if session.closed:
                raise self._unknown(session.id)
            session.last_used = self._clock()
            yield
        finally:
            session.last_used = self._clock()
            if session.unwanted:
                self._remove(session, "closed")
            session.lock.release()

    def _env(self, session: Session) -> Environment:
        if session.env is None or session.episode is None:
            raise ServiceError(409, "not_reset", f"expected an episode in session '{session.id}', found none; call reset first")
        return session.env

    def _begin(self, session: Session, item_id: str | int, seed: int) -> dict[str, Any]:
        env = session.env
        assert env is not None

        def call() -> tuple[Observation, dict[str, Any]]:
            observation = env.reset(item_id, seed)
            return observation, {"id": session.id, "turn": 0} | observation_to_wire(observation)

        session.observation, session.opening = self._guarded(session, call)
        session.episode, session.turn, session.answer = (item_id, seed), 0, {}
        return session.opening

    def _guarded(self, session: Session, call: Callable[[], T]) -> T:
        try:
            return call()
        except UnknownItem as e:
            raise ServiceError(404, "unknown_item", f"{e}; GET /{self.name}/metadata lists the items") from None
        except Exception as e:  # whatever an environment raises is its failure: it must end this session and nothing else
            self._remove(session, "failed")
            raise self._environment_failed(e) from e

    def _environment_failed(self, error: Exception) -> ServiceError:
        _log.error("environment '%s' failed", self.name, exc_info=error)
        message = f"the environment raised {type(error).__name__}: {error!s:.500}; the session is closed: create a new one"
        return ServiceError(500, "environment_failed", message)

    def _remove(self, session: Session, reason: str) -> None:
        with self._lock:
            if self._sessions.pop(session.id, None) is None:
                return
            session.closed = True
            self._counts[reason] += 1
        if session.env is not None:
            with contextlib.suppress(Exception):  # a failed environment may fail again when it is closed; it is gone all the same
                session.env.close()
