"""Plays many episodes at once: admission, environment answers, retries and clean-up, for any source of replies.

Environment steps run while other episodes get their replies. With a fixed ``env_lag`` an answer is used that many rounds of replies
after its action was sent, no sooner and no later: the order of events, and so every float, is then the same in each run, however
fast the environments are.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from agentgym_envs.core import Observation, StepResult, UnknownItem, environment_class
from agentgym_lite.agents.scaffold import Scaffold
from agentgym_lite.client import EnvironmentFailure, SessionPool
from agentgym_lite.rollout.episode import Episode
from agentgym_lite.rollout.types import EpisodeSpec, StopReason, Trajectory

#: Plays of an episode whose environment fails, the first included.
_ATTEMPTS = 2
#: Seconds to wait, at the end, for environment sessions to close.
_CLOSE_S = 10.0

OnProgress = Callable[[int, int], None]
OnEpisode = Callable[[Trajectory], None]


@dataclass(eq=False)
class Live:
    """An episode that is being played. ``session`` belongs to the speaker."""

    index: int
    episode: Episode
    pool: SessionPool
    attempt: int = 1
    handle: Any = None
    answer: Future[Any] | None = None
    due: int = 0
    session: Any = None


@dataclass(frozen=True)
class About:
    """What an episode needs to know of its environment."""

    instructions: str
    version: str


#: Asked for once per pool: the answer lists every item of the environment.
_ABOUT: WeakKeyDictionary[SessionPool, About] = WeakKeyDictionary()


def describe(pool: SessionPool) -> About:
    """Instructions and version of a pool's environment. Raises ``EnvironmentFailure`` if it cannot be reached."""
    if pool not in _ABOUT:
        metadata = pool.metadata().result()
        _ABOUT[pool] = About(metadata["instructions"], metadata["version"])
    return _ABOUT[pool]


class Speaker(Protocol):
    """Where replies come from: an engine, or policies that speak text."""

    def ask(self, live: Live) -> None:
        """Ask for the next reply of an episode, or stop the episode if there is no room for one."""

    def advance(self) -> list[Live]:
        """Do one unit of work; the episodes that got their reply (recorded by ``add_reply``, not yet answered) or were stopped."""

    def drop(self, live: Live) -> None:
        """Free what is held for an episode. Safe to call twice."""


@dataclass
class DriveStats:
    """One run of the driver: failures of environments, episodes given up because of them, and seconds."""

    env_failures: int = 0
    env_errors: int = 0
    env_wait_s: float = 0.0
    total_s: float = 0.0


class Driver:
    """Plays episodes with a speaker; see :meth:`run`.

    ``pools`` holds a session pool per environment, ``max_rounds`` the limit for all or one per environment, ``capacity`` the number
    of episodes at a time, ``scaffold`` how the agent acts, plans and remembers. Raises ``ValueError`` if a limit is missing or below 1,
    or an environment has no pool.
    """

    def __init__(
        self,
        speaker: Speaker,
        specs: Sequence[EpisodeSpec],
        pools: Mapping[str, SessionPool],
        max_rounds: int | Mapping[str, int],
        capacity: int,
        env_lag: int | None,
        on_progress: OnProgress | None = None,
        on_episode: OnEpisode | None = None,
        scaffold: Scaffold | None = None,
    ) -> None:
        envs = dict.fromkeys(spec.env for spec in specs)
        self._rounds = {env: _limit(env, max_rounds) for env in envs}
        missing = [env for env in envs if env not in pools]
        if missing:
            raise ValueError(f"expected a session pool for each environment, found none for {', '.join(missing)}")
        self._speaker, self._specs, self._pools = speaker, specs, pools
        self._about = {env: describe(pools[env]) for env in envs}
        self._capacity, self._lag, self._scaffold = capacity, env_lag, scaffold
        self._on_progress, self._on_episode = on_progress, on_episode
        self._queue = deque(range(len(specs)))
        self._live: list[Live] = []
        self._waiting: deque[Live] = deque()  # for their environment, in the order in which they asked
        self._tick = 0
        self._done: dict[int, Trajectory] = {}
        self._closing: list[Future[None]] = []
        self.stats = DriveStats()

    def run(self) -> list[Trajectory]:
        """Play all episodes; their trajectories in the order of ``specs``.

        An episode whose environment fails is played once more from the start with the same seeds, then given up as ``ENV_ERROR``.
        Raises ``UnknownItem`` for an item that does not exist. However it ends, nothing stays open.
        """
        began = time.perf_counter()
        try:
            while self._queue or self._live:
                while self._queue and len(self._live) < self._capacity:
                    self._admit(self._queue.popleft())
                self._take_answers()
                if len(self._waiting) < len(self._live):
                    self._tick += 1
                    for live in self._speaker.advance():
                        self._send(live)
                elif self._waiting:
                    self._wait_for_one()
        finally:
            for live in list(self._live):
                self._leave(live)
            wait(self._closing, timeout=_CLOSE_S)
            self.stats.total_s = time.perf_counter() - began
        return [self._done[i] for i in range(len(self._specs))]

    def _admit(self, index: int) -> None:
        spec = self._specs[index]
        live = Live(index, self._new_episode(spec), self._pools[spec.env])
        self._live.append(live)
        self._start(live)

    def _new_episode(self, spec: EpisodeSpec) -> Episode:
        about = self._about[spec.env]
        task = _task_of(spec, local=self._pools[spec.env].urls == ["local"])
        return Episode(
            spec,
            self._rounds[spec.env],
            instructions=about.instructions,
            task=task,
            env_version=about.version,
            scaffold=self._scaffold,
        )

    def _start(self, live: Live) -> None:
        self._expect(live, live.pool.start(live.episode.spec.item_id, live.episode.spec.seed))

    def _expect(self, live: Live, answer: Future[Any]) -> None:
        live.answer = answer
        live.due = self._tick + (self._lag or 0)
        self._waiting.append(live)

    def _send(self, live: Live) -> None:
        """Pass the action of the latest reply to the environment, or begin the next attempt in it."""
        spec = live.episode.spec
        action = None if live.episode.finished else live.episode.trajectory.turns[-1].action
        if action is not None:
            self._expect(live, live.pool.step(live.handle, action))
        elif live.episode.needs_reset:
            self._expect(live, live.pool.reset(live.handle, spec.item_id, spec.seed))
        else:
            self._continue(live)

    def _take_answers(self) -> None:
        for live in list(self._waiting):
            assert live.answer is not None
            if live.due <= self._tick if self._lag is not None else live.answer.done():
                self._waiting.remove(live)
                self._take(live)

    def _take(self, live: Live) -> None:
        assert live.answer is not None
        began = time.perf_counter()
        try:
            answer = live.answer.result()
        except EnvironmentFailure as failure:
            self._retry(live, failure)
            return
        finally:
            self.stats.env_wait_s += time.perf_counter() - began
        live.answer = None
        if isinstance(answer, StepResult):
            live.episode.add_result(answer)
        elif isinstance(answer, Observation):
            live.episode.begin(answer)
        else:
            live.handle, observation = answer
            assert isinstance(observation, Observation)
            live.episode.begin(observation)
        self._continue(live)

    def _continue(self, live: Live) -> None:
        if not live.episode.finished:
            self._speaker.ask(live)
        if live.episode.finished:
            self._finish(live)

    def _retry(self, live: Live, failure: EnvironmentFailure) -> None:
        self.stats.env_failures += 1
        self._speaker.drop(live)
        self._close_env(live)
        if live.attempt < _ATTEMPTS:
            live.attempt += 1
            live.episode = self._new_episode(live.episode.spec)
            self._start(live)
        else:
            self.stats.env_errors += 1
            live.episode.trajectory.info["env_error"] = str(failure)
            live.episode.stop(StopReason.ENV_ERROR)
            self._finish(live)

    def _finish(self, live: Live) -> None:
        self._leave(live)
        self._done[live.index] = live.episode.trajectory
        if self._on_episode:
            self._on_episode(live.episode.trajectory)
        if self._on_progress:
            self._on_progress(len(self._done), len(self._specs))

    def _leave(self, live: Live) -> None:
        self._live.remove(live)
        self._speaker.drop(live)
        self._close_env(live)

    def _close_env(self, live: Live) -> None:
        if live.handle is not None:
            self._closing.append(live.pool.close(live.handle))
        elif live.answer is not None:  # still starting: close it when it is there
            live.answer.add_done_callback(partial(_close_started, live.pool))
        live.handle = live.answer = None

    def _wait_for_one(self) -> None:
        """Nobody is speaking: go on to the next answer."""
        if self._lag is not None:
            self._tick = self._waiting[0].due
            return
        began = time.perf_counter()
        wait([live.answer for live in self._waiting if live.answer], return_when=FIRST_COMPLETED)
        self.stats.env_wait_s += time.perf_counter() - began


def _task_of(spec: EpisodeSpec, local: bool) -> str:
    """The sub-task of an item; empty for one that only a server knows, which plays another item set than the shipped one."""
    try:
        return environment_class(spec.env).task_of(spec.item_id)
    except UnknownItem:
        if local:
            raise
        return ""


def _close_started(pool: SessionPool, start: Future[Any]) -> None:
    if not start.exception():
        pool.close(start.result()[0])


def _limit(env: str, max_rounds: int | Mapping[str, int]) -> int:
    limit = max_rounds if isinstance(max_rounds, int) else max_rounds.get(env)
    if limit is None or limit < 1:
        raise ValueError(f"expected max_rounds of at least 1 for environment '{env}', found {limit}")
    return limit
