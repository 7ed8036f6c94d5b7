"""Plays episodes with policies that speak text: experts and random agents, for evaluation and for demonstrations to learn from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from agentgym_lite.agents.chat import ChatRenderer
from agentgym_lite.agents.formats import ActionFormat, ReAct
from agentgym_lite.agents.policies import TextPolicy
from agentgym_lite.client import SessionPool
from agentgym_lite.rollout.driver import Driver, Live, OnEpisode, OnProgress
from agentgym_lite.rollout.types import EpisodeSpec, Trajectory


def play(
    policy_factory: Callable[[EpisodeSpec], TextPolicy],
    specs: Sequence[EpisodeSpec],
    pools: Mapping[str, SessionPool],
    max_rounds: int | Mapping[str, int],
    *,
    action_format: ActionFormat | None = None,
    renderer: ChatRenderer | None = None,
    max_sessions: int = 64,
    on_progress: OnProgress | None = None,
    on_episode: OnEpisode | None = None,
) -> list[Trajectory]:
    """Play ``specs`` with a new policy for each; trajectories in the same order.

    ``action_format`` (default ReAct) reads the replies. With a ``renderer`` the trajectories have token rows as if the policy had
    sampled each reply and an end-of-turn token, with log-probs 0. Stop reasons, retries and errors are those of
    :meth:`Collector.collect <agentgym_lite.rollout.collector.Collector.collect>`; there is no limit on length.
    """
    speaker = _PolicySpeaker(policy_factory, action_format or ReAct(), renderer)
    return Driver(speaker, specs, pools, max_rounds, max_sessions, None, on_progress, on_episode).run()


class _PolicySpeaker:
    """Replies of text policies, given at once. ``Live.session`` is the episode's policy."""

    def __init__(self, factory: Callable[[EpisodeSpec], TextPolicy], action_format: ActionFormat, renderer: ChatRenderer | None) -> None:
        self._factory, self._format, self._renderer = factory, action_format, renderer
        self._asked: list[Live] = []

    def ask(self, live: Live) -> None:
        if live.session is None:
            pool, handle = live.pool, live.handle
            live.session = self._factory(live.episode.spec)
            live.session.reset(live.episode.observation, lambda: pool.render(handle).result())
        self._asked.append(live)

    def advance(self) -> list[Live]:
        asked, self._asked = self._asked, []
        for live in asked:
            self._reply(live)
        return asked

    def _reply(self, live: Live) -> None:
        episode, renderer = live.episode, self._renderer
        text = live.session.act(episode.observation)
        ids: list[int] = []
        if renderer is not None:
            self._add_context(live, renderer)
            ids = renderer.reply(text)
        episode.add_reply(text, self._format.parse(text), ids, [0.0] * len(ids))

    def _add_context(self, live: Live, renderer: ChatRenderer) -> None:
        episode = live.episode
        if episode.turn == 0:
            episode.add_context(renderer.opening(episode.messages), new_row=True)
            return
        last = episode.trajectory.turns[-1]
        delta = renderer.next_turn(episode.messages, episode.row.token_ids[last.start : last.end], finished_by_stop=True)
        episode.add_context(delta.ids, delta.rewrote_history)

    def drop(self, live: Live) -> None:
        live.session = None
        self._asked = [other for other in self._asked if other is not live]
