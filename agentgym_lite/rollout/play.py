"""Plays episodes with policies that speak text: experts and random agents, for evaluation and for demonstrations to learn from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from agentgym_lite.agents.chat import ChatRenderer
from agentgym_lite.agents.dialogue import ACT
from agentgym_lite.agents.formats import ActionFormat
from agentgym_lite.agents.policies import ExpertPolicy, NotingPolicy, TextPolicy, rehearse
from agentgym_lite.agents.scaffold import Scaffold, as_scaffold
from agentgym_lite.client import SessionPool
from agentgym_lite.rollout.driver import Driver, Live, OnEpisode, OnProgress
from agentgym_lite.rollout.episode import Episode
from agentgym_lite.rollout.types import EpisodeSpec, Trajectory


def play(
    policy_factory: Callable[[EpisodeSpec], TextPolicy],
    specs: Sequence[EpisodeSpec],
    pools: Mapping[str, SessionPool],
    max_rounds: int | Mapping[str, int],
    *,
    scaffold: Scaffold | ActionFormat | None = None,
    renderer: ChatRenderer | None = None,
    max_sessions: int = 64,
    on_progress: OnProgress | None = None,
    on_episode: OnEpisode | None = None,
) -> list[Trajectory]:
    """Play ``specs`` with a new policy for each; trajectories in the same order.

    ``scaffold`` (default ReAct, plain) reads the replies; if it has questions besides, the policies must be able to answer them, see
    :class:`~agentgym_lite.agents.policies.NotingPolicy`, or ``TypeError`` is raised. With a ``renderer`` the trajectories have token rows
    as if the policy had sampled each reply and an end-of-turn token, with log-probs 0. Stop reasons, retries and other errors are those of
    :meth:`Collector.collect <agentgym_lite.rollout.collector.Collector.collect>`; there is no limit on length.
    """
    speaker = _PolicySpeaker(policy_factory, renderer)
    return Driver(speaker, specs, pools, max_rounds, max_sessions, None, on_progress, on_episode, as_scaffold(scaffold)).run()


def expert_policy(scaffold: Scaffold) -> Callable[[EpisodeSpec], TextPolicy]:
    """Makes the experts that speak as ``scaffold`` asks: in its format, with plans that they will keep."""
    return lambda spec: ExpertPolicy(spec.env, scaffold.formats(spec.env), partial(rehearse, spec.env, spec.item_id, spec.seed))


@dataclass
class _Speaking:
    policy: TextPolicy
    attempt: int = -1


class _PolicySpeaker:
    """Replies of text policies, given at once. ``Live.session`` is the episode's policy and the attempt that it was told of."""

    def __init__(self, factory: Callable[[EpisodeSpec], TextPolicy], renderer: ChatRenderer | None) -> None:
        self._factory, self._renderer = factory, renderer
        self._asked: list[Live] = []

    def ask(self, live: Live) -> None:
        pool, handle, attempt = live.pool, live.handle, live.episode.attempt
        if live.session is None:
            live.session = _Speaking(self._factory(live.episode.spec))
        if live.session.attempt != attempt:
            live.session.attempt = attempt
            live.session.policy.reset(live.episode.observation, lambda: pool.render(handle).result())
        self._asked.append(live)

    def advance(self) -> list[Live]:
        asked, self._asked = self._asked, []
        for live in asked:
            self._reply(live)
        return asked

    def _reply(self, live: Live) -> None:
        episode, renderer = live.episode, self._renderer
        text = _answer(live.session.policy, episode)
        ids: list[int] = []
        if renderer is not None:
            self._add_context(live, renderer)
            ids = renderer.reply(text)
        episode.add_reply(text, ids, [0.0] * len(ids))

    def _add_context(self, live: Live, renderer: ChatRenderer) -> None:
        episode = live.episode
        if episode.rewritten:
            episode.add_context(renderer.opening(episode.messages), new_row=True)
            return
        last = episode.trajectory.turns[-1]
        delta = renderer.next_turn(episode.messages, episode.row.token_ids[last.start : last.end], finished_by_stop=True)
        episode.add_context(delta.ids, delta.rewrote_history)

    def drop(self, live: Live) -> None:
        live.session = None
        self._asked = [other for other in self._asked if other is not live]


def _answer(policy: TextPolicy, episode: Episode) -> str:
    if episode.kind == ACT:
        return policy.act(episode.observation)
    if not isinstance(policy, NotingPolicy):
        raise TypeError(
            f"expected a policy with a method 'note' to answer questions of kind '{episode.kind}', found {type(policy).__name__}; add it, "
            "or choose the strategy 'plain' and the memory 'full' or 'window'"
        )
    return policy.note(episode.kind)
