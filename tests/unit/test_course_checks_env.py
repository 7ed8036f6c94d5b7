"""Checks of lesson 01: numbers by hand, and agreement with the library's episodes and server."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_envs.core import Observation, StepResult
from agentgym_envs.sessions import ServiceError, SessionManager
from agentgym_lite.course import checks
from agentgym_lite.probes import register_probes
from agentgym_lite.rollout.episode import Episode
from agentgym_lite.rollout.types import EpisodeSpec

result = st.tuples(st.sampled_from([0.0, 0.25]), st.booleans(), st.booleans())


def test_an_episode_by_hand() -> None:
    results = [(0.0, False, False), (0.5, False, False), (0.5, True, True), (1.0, True, True)]
    assert checks.episode_outcome.right(results, 10) == (1.0, 3, "success")
    assert checks.episode_outcome.right(results, 2) == (0.5, 2, "max_rounds")
    assert checks.episode_outcome.right([(0.25, True, False)], 9) == (0.25, 1, "failure")


@given(st.lists(result, min_size=4, max_size=4), st.integers(1, 4))
def test_an_episode_ends_as_the_librarys_does(results: list[tuple[float, bool, bool]], max_rounds: int) -> None:
    episode = Episode(EpisodeSpec("any", "any_0"), max_rounds, instructions="", task="", env_version="1")
    episode.begin(Observation("start"))
    for reward, done, success in results:
        episode.add_reply("Action: go")
        episode.add_result(StepResult(Observation("next"), reward, done or success, {"success": success}))
        if episode.finished:
            break
    found = episode.trajectory
    assert checks.episode_outcome.right(results, max_rounds) == (found.reward, found.rounds, found.stop_reason.value)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["left", "right"])), max_size=6))
def test_requests_are_answered_as_by_the_server(requests: list[tuple[int, str]]) -> None:
    register_probes()
    manager = SessionManager("probe_credit")
    session = manager.create(item_id=0)["id"]
    found: list[str] = []
    answers: list[dict[str, Any]] = []
    actions: list[str] = []
    for turn, action in requests:
        try:
            answer = manager.step(session, action, turn)
        except ServiceError as e:
            found.append({"wrong_turn": "refused"}[e.code])
            continue
        if answer not in answers:
            answers.append(answer)
            actions.append(action)
        found.append(f"step {len(answers)}: {actions[-1]}")
    manager.close_all()
    assert checks.answer_requests.right(requests) == found


@given(st.lists(st.integers(-100, 100).map(float), max_size=8))
def test_rises_sum_to_the_best_score(scores: list[float]) -> None:
    rewards = checks.rises.right(scores)
    assert len(rewards) == len(scores)
    assert all(0 <= r <= 1 for r in rewards)
    assert sum(rewards) == pytest.approx(max([0.0, *scores]) / 100)


def test_what_learners_write_is_named() -> None:
    def sums_everything(results: Any, max_rounds: int) -> Any:
        total, success = 0.0, False
        for k in range(max_rounds):
            if k < len(results):
                total += results[k][0]
                success = success or results[k][2]
        return total, max_rounds, "success" if success else "max_rounds"

    assert not checks.episode_outcome(sums_everything).passed
    assert "twice" in checks.answer_requests(lambda rs: [f"step {k}: {a}" for k, (_, a) in enumerate(rs, 1)]).message
    assert "again and again" in checks.rises(lambda scores: [s / 100 for s in scores]).message
