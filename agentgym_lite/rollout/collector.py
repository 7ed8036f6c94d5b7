"""Collects episodes with an engine: environments in, trajectories with tokens, masks and log-probs out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from agentgym_lite.agents.chat import ChatRenderer
from agentgym_lite.agents.formats import ActionFormat
from agentgym_lite.agents.scaffold import Scaffold, as_scaffold
from agentgym_lite.client import SessionPool
from agentgym_lite.config import RolloutConfig
from agentgym_lite.rollout.driver import Driver, DriveStats, Live, OnEpisode, OnProgress
from agentgym_lite.rollout.types import Engine, EpisodeSpec, Generation, SamplingParams, StopReason, Trajectory, derive_seed


@dataclass
class CollectStats(DriveStats):
    """Work of one :meth:`Collector.collect`: tokens sampled, tokens read, engine steps; failures and seconds as in ``DriveStats``."""

    sampled_tokens: int = 0
    prefilled_tokens: int = 0
    engine_steps: int = 0


class Collector:
    """Plays episodes of any mix of environments with one policy, as many at a time as the engine has sessions.

    A turn is begun only if its context and ``max_new_tokens`` more fit into ``max_length`` (of the settings and of the engine);
    else the episode ends as ``CONTEXT_FULL``. Nothing is ever cut in the middle. ``scaffold`` may also be an action format alone.
    ``stats`` describes the last ``collect``.
    """

    def __init__(
        self,
        engine: Engine,
        renderer: ChatRenderer,
        pools: Mapping[str, SessionPool],
        scaffold: Scaffold | ActionFormat,
        settings: RolloutConfig,
    ) -> None:
        self._engine, self._renderer, self._pools, self._settings = engine, renderer, pools, settings
        self._scaffold = as_scaffold(scaffold)
        self.stats = CollectStats()

    def collect(
        self,
        specs: Sequence[EpisodeSpec],
        max_rounds: int | Mapping[str, int],
        run_seed: int,
        on_progress: OnProgress | None = None,
        greedy: bool = False,
        on_episode: OnEpisode | None = None,
    ) -> list[Trajectory]:
        """Play ``specs``; trajectories in the same order.

        Replies are drawn with seeds made of ``run_seed``, spec and turn: pass another ``run_seed`` to get other episodes of the same
        specs. ``on_progress`` gets (finished, total), ``on_episode`` each trajectory as it ends. An environment that fails twice in an
        episode leaves it marked ``ENV_ERROR`` with the message in ``info["env_error"]``. Raises ``ValueError`` if an opening does not
        fit, ``UnknownItem`` for an item that does not exist, ``EnvironmentFailure`` if an environment cannot be reached at all.
        """
        sampling = SamplingParams(
            0.0 if greedy else self._settings.temperature, 1.0 if greedy else self._settings.top_p, self._settings.max_new_tokens
        )
        limit = min(self._settings.max_length, self._engine.max_length)
        speaker = _EngineSpeaker(self._engine, self._renderer, sampling, limit, run_seed)
        lag, sessions = self._settings.env_lag, self._engine.max_sessions
        driver = Driver(speaker, specs, self._pools, max_rounds, sessions, lag, on_progress, on_episode, self._scaffold)
        try:
            return driver.run()
        finally:
            self.stats = CollectStats(**asdict(driver.stats), **speaker.counts)


class _EngineSpeaker:
    """Replies sampled by an engine; the ids that it read and sampled are the rows of the trajectory."""

    def __init__(self, engine: Engine, renderer: ChatRenderer, sampling: SamplingParams, limit: int, run_seed: int) -> None:
        self._engine, self._renderer = engine, renderer
        self._sampling, self._limit, self._run_seed = sampling, limit, run_seed
        self._asked: dict[int, Live] = {}
        self._last: dict[int, Generation] = {}
        self.counts = {"sampled_tokens": 0, "prefilled_tokens": 0, "engine_steps": 0}

    def ask(self, live: Live) -> None:
        episode = live.episode
        if episode.rewritten:
            ids, new_row = self._renderer.opening(episode.messages), True
        else:
            reply = self._last[live.session]
            delta = self._renderer.next_turn(episode.messages, reply.token_ids, reply.finished_by_stop)
            ids, new_row = delta.ids, delta.rewrote_history
        length = len(ids) if new_row else len(ids) + len(episode.row)
        if length + self._sampling.max_new_tokens > self._limit:
            if episode.turn == 0:
                raise ValueError(_too_long(live, length, self._sampling.max_new_tokens, self._limit))
            episode.stop(StopReason.CONTEXT_FULL)
            return
        if new_row:
            self.drop(live)
            live.session = self._engine.open()
        episode.add_context(ids, new_row)
        self._engine.submit(live.session, ids, self._sampling, derive_seed(self._run_seed, episode.spec, episode.turn))
        self._asked[live.session] = live
        self.counts["prefilled_tokens"] += len(ids)

    def advance(self) -> list[Live]:
        self.counts["engine_steps"] += 1
        spoke = []
        for reply in self._engine.step():
            live = self._asked.pop(reply.session)
            text = self._renderer.decode(reply.token_ids)
            truncated = not reply.finished_by_stop
            live.episode.add_reply(text, reply.token_ids, reply.logprobs, truncated)
            self._last[reply.session] = reply
            self.counts["sampled_tokens"] += len(reply.token_ids)
            spoke.append(live)
        return spoke

    def drop(self, live: Live) -> None:
        if live.session is not None:
            self._asked.pop(live.session, None)
            self._last.pop(live.session, None)
            self._engine.release(live.session)
            live.session = None


def _too_long(live: Live, length: int, new_tokens: int, limit: int) -> str:
    spec = live.episode.spec
    return (
        f"the opening of {spec.env} item '{spec.item_id}' has {length} tokens and a reply up to {new_tokens}, but max_length is {limit}; "
        "raise rollout.max_length (and the engine's) or lower rollout.max_new_tokens"
    )
