"""Session manager without HTTP: turn numbers, time-to-live, capacity, failures, threads."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest
from fake_envs import Counter, Sleepy, Trouble
from hypothesis import given
from hypothesis import strategies as st

from agentgym_envs.sessions import ServiceError, SessionManager


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def error_of(call: Callable[[], object]) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        call()
    return caught.value


def test_repeated_turn_gives_the_first_answer_and_steps_once() -> None:
    manager = SessionManager("counter")
    manager.create("a", 5, 0)
    steps = Counter.steps
    first = manager.step("a", "up", 0)
    assert manager.step("a", "up", 0) == first
    assert manager.step("a", "down", 0) == first, "the turn number decides, not the action"
    assert Counter.steps == steps + 1
    assert first["info"]["score"] == 1
    assert manager.step("a", "up", 1)["info"]["score"] == 2


def test_wrong_turn_is_refused_with_the_expected_number() -> None:
    manager = SessionManager("counter")
    manager.create("a", 5, 0)
    manager.step("a", "up", 0)
    manager.step("a", "up", 1)
    for turn in (0, 3, 17):
        error = error_of(lambda turn=turn: manager.step("a", "up", turn))
        assert (error.status, error.code) == (409, "wrong_turn")
        assert "expected turn 2" in error.message
        assert f"found {turn}" in error.message
    assert manager.step("a", "up")["turn"] == 2, "without a number it is the next turn"


def test_reset_starts_turns_afresh_and_forgets_old_answers() -> None:
    manager = SessionManager("counter")
    manager.create("a", 5, 0)
    manager.step("a", "up", 0)
    assert manager.reset("a", 6, 1)["turn"] == 0
    assert error_of(lambda: manager.step("a", "up", -1)).code == "wrong_turn"
    assert manager.step("a", "down", 0)["info"]["score"] == -1


@given(st.lists(st.tuples(st.sampled_from(["up", "down"]), st.integers(1, 3)), max_size=12))
def test_repeats_never_change_an_episode(actions: list[tuple[str, int]]) -> None:
    manager, score = SessionManager("counter"), 0
    manager.create("a", 11, 0)
    for turn, (action, repeats) in enumerate(actions):
        score += 1 if action == "up" else -1
        assert {manager.step("a", action, turn)["info"]["score"] for _ in range(repeats)} == {min(score, 12)}
        if score >= 12:
            break
    manager.close_all()


def test_create_may_be_repeated_but_not_for_another_episode() -> None:
    manager = SessionManager("counter")
    first = manager.create("a", 5, 0)
    assert manager.create("a", 5, 0) == first
    assert len(manager) == 1
    assert error_of(lambda: manager.create("a", 6, 0)).code == "session_exists"
    manager.step("a", "up", 0)
    assert error_of(lambda: manager.create("a", 5, 0)).code == "session_exists"


def test_session_ids_are_distinct_and_cannot_be_guessed_by_counting() -> None:
    manager = SessionManager("counter")
    ids = {manager.create()["id"] for _ in range(50)}
    assert len(ids) == 50
    assert all(len(i) == 32 for i in ids)


def test_step_without_an_episode() -> None:
    manager = SessionManager("counter")
    session = manager.create()["id"]
    for call in (lambda: manager.step(session, "up", 0), lambda: manager.observation(session), lambda: manager.render(session)):
        error = error_of(call)
        assert (error.status, error.code) == (409, "not_reset")
        assert "call reset" in error.message
    assert manager.reset(session, 3)["observation"].startswith("Reach 4")


def test_unknown_item_leaves_the_episode_alone_and_no_session_behind() -> None:
    manager = SessionManager("counter")
    manager.create("a", 5, 0)
    manager.step("a", "up", 0)
    assert error_of(lambda: manager.reset("a", 99)).code == "unknown_item"
    assert manager.step("a", "up", 1)["info"]["score"] == 2
    live = Counter.live
    assert error_of(lambda: manager.create("b", 99, 0)).status == 404
    assert len(manager) == 1
    assert Counter.live == live


def test_sessions_expire_when_unused_and_only_then() -> None:
    clock = Clock()
    manager = SessionManager("counter", ttl_s=10.0, clock=clock)
    live = Counter.live
    manager.create("used", 5, 0)
    manager.create("unused", 5, 0)
    clock.now = 8.0
    manager.step("used", "up", 0)
    clock.now = 10.0
    assert manager.reap() == 0, "ten seconds are allowed"
    clock.now = 10.1
    assert manager.reap() == 1
    error = error_of(lambda: manager.step("unused", "up", 0))
    assert (error.status, error.code) == (404, "unknown_session")
    assert "10 s" in error.message
    assert manager.step("used", "up", 1)["turn"] == 1
    assert Counter.live == live + 1
    assert manager.health()["expired"] == 1


def test_a_session_at_work_is_not_reaped() -> None:
    clock = Clock()
    manager = SessionManager("sleepy", ttl_s=1.0, clock=clock)
    manager.create("a", 5, 0)
    thread = threading.Thread(target=manager.step, args=("a", "sleep 0.2", 0))
    thread.start()
    time.sleep(0.05)
    clock.now = 100.0
    assert manager.reap() == 0
    thread.join()
    assert manager.step("a", "up", 1)["turn"] == 1, "its time starts again when the work is done"


def test_capacity_is_refused_then_freed_by_close_and_by_expiry() -> None:
    clock = Clock()
    manager = SessionManager("counter", max_sessions=2, ttl_s=10.0, clock=clock)
    manager.create("a", 5, 0)
    manager.create("b", 5, 0)
    error = error_of(lambda: manager.create("c", 5, 0))
    assert (error.status, error.code) == (503, "capacity")
    assert "2 of at most 2" in error.message
    assert manager.create("a", 5, 0)["id"] == "a", "a repeat needs no room"
    manager.close("a")
    manager.create("c", 5, 0)
    clock.now = 11.0
    manager.create("d", 5, 0)
    assert len(manager) == 1


@pytest.mark.parametrize("action", ["raise", "reward"])
def test_failing_environment_ends_its_session_and_is_counted(action: str) -> None:
    manager, live = SessionManager("trouble"), Trouble.live
    manager.create("a", 5, 0)
    manager.create("b", 5, 0)
    error = error_of(lambda: manager.step("a", action, 0))
    assert (error.status, error.code) == (500, "environment_failed")
    assert "ZeroDivisionError: the world fell apart" in error.message or "reward in [0, 1], found 7.0" in error.message
    assert error_of(lambda: manager.step("a", "up", 1)).code == "unknown_session"
    assert manager.health()["failed"] == 1
    assert Trouble.live == live + 1
    assert manager.step("b", "up", 0)["info"]["score"] == 1


def test_failing_constructor_leaves_no_session() -> None:
    manager = SessionManager("counter", options={"nonsense": 1})
    assert error_of(lambda: manager.create("a", 5, 0)).code == "environment_failed"
    assert len(manager) == 0


def test_busy_session_is_refused_and_others_are_not_held_up() -> None:
    manager = SessionManager("sleepy", lock_wait_s=0.05)
    manager.create("slow", 5, 0)
    manager.create("fast", 5, 0)
    thread = threading.Thread(target=manager.step, args=("slow", "sleep 0.5", 0))
    thread.start()
    time.sleep(0.05)
    began = time.perf_counter()
    manager.step("fast", "up", 0)
    assert time.perf_counter() - began < 0.1
    error = error_of(lambda: manager.step("slow", "sleep 0.5", 0))
    assert (error.status, error.code) == (503, "session_busy")
    thread.join()
    steps = Sleepy.steps
    assert manager.step("slow", "sleep 0.5", 0)["info"]["score"] == 1, "the repeat gets the answer of the step that was under way"
    assert Sleepy.steps == steps


def test_many_threads_lose_and_leak_nothing() -> None:
    manager, live, problems = SessionManager("counter", max_sessions=8), Counter.live, []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for n in range(60):
            session = f"{seed if rng.random() < 0.5 else 0}-{n % 3}"  # some ids are fought over
            try:
                manager.create(session, rng.randrange(12), 0)
                manager.step(session, "up", 0)
                manager.step(session, "up", 0)
                manager.close(session)
            except ServiceError as e:
                if e.code not in ("capacity", "session_exists", "unknown_session", "wrong_turn"):
                    problems.append(e)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert len(manager) == Counter.live - live
    manager.close_all()
    health = manager.health()
    assert (len(manager), Counter.live) == (0, live)
    assert health["created"] == health["closed"] > 60
