"""Rollouts over failing servers: the short version of ``benchmarks/chaos.py``, and that its checks would find what they look for."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest
from benchmark import chaos
from fake_envs import Counter, Sleepy
from test_client import LossyProxy

from agentgym_envs.server import background_server
from agentgym_envs.sessions import ServiceError, SessionManager
from agentgym_lite.client import EnvironmentFailure, SessionPool
from agentgym_lite.rollout import EpisodeSpec, StopReason, Trajectory
from agentgym_lite.rollout.types import TokenRow, Turn

KINDS = {"cut_before", "cut_after", "error_before", "error_after", "dies"}


@pytest.fixture(scope="module")
def done() -> chaos.Run:
    return chaos.run(steps=1000, deaths=1, seed=1)


@pytest.mark.slow
def test_promises_are_kept(done: chaos.Run) -> None:
    assert not any(chaos.broken_promises(done).values()), chaos.broken_promises(done)
    assert done.seconds < 120, "about 20 on a quiet machine; a step may wait for its time-out a few times, never without end"


@pytest.mark.slow
def test_faults_were_real(done: chaos.Run) -> None:
    assert set(done.struck) >= KINDS
    assert done.struck["dies"] == 1
    assert sum(done.struck.values()) > 0.03 * done.actions
    stops = [t.stop_reason for t in done.trajectories]
    assert 0 < stops.count(StopReason.ENV_ERROR) < len(stops) / 2
    lost = [t.info["env_error"] for t in done.trajectories if t.stop_reason is StopReason.ENV_ERROR]
    assert all(f"environment 'tally' at {'http'}" in message for message in lost)


def test_five_percent_of_the_actions_carry_a_fault() -> None:
    faults = [chaos.draw_faults(10_000, deaths=4, seed=3)(n) for n in range(10_000)]
    assert faults == [chaos.draw_faults(10_000, deaths=4, seed=3)(n) for n in range(10_000)]
    assert 0.045 < sum(map(bool, faults)) / len(faults) < 0.055
    assert [n for n, fault in enumerate(faults) if fault == "dies"] == [2000, 4000, 6000, 8000]
    assert set(faults) == {"", "dies", *chaos.FAULTS}


# -- the checks find what they look for ---------------------------------------------------------------------------------------------------


def episode(sample: int, reward: float, numbers: Sequence[int]) -> Trajectory:
    row = TokenRow()
    row.append_context([1, 2], -1)
    turns = []
    for k, n in enumerate(numbers):
        start = len(row)
        row.append_action([3, 4], [-0.1, -0.1], k)
        turns.append(Turn(f"Took {n - 1}." if k else "Begin.", "", f"{n}", row=0, start=start, end=len(row)))
        row.append_context([5], k + 1)
    turns[-1].reward = reward
    stop = StopReason.SUCCESS if reward else StopReason.FAILURE
    return Trajectory(EpisodeSpec("tally", "tally_0", 0, sample), [row], turns, stop, final_observation=f"Took {numbers[-1]}.")


def small_run() -> chaos.Run:
    """Three samples of one item, the last one lost to the environment: 0 and 1 are judged by the mean of their two rewards."""
    numbers = [range(100 * s, 100 * s + chaos.LENGTH) for s in range(3)]
    played = [episode(s, float(s == 0), n) for s, n in enumerate(numbers)]
    played[2].stop_reason, played[2].info["env_error"] = StopReason.ENV_ERROR, "it broke"
    ledger = [(n, f"episode {s}", k + 1) for s, ns in enumerate(numbers) for k, n in enumerate(ns)]
    return chaos.Run([t.spec for t in played], played, ledger, sessions_left=0, actions=60, seconds=1.0)


def test_checks_pass_a_good_run() -> None:
    assert not any(chaos.broken_promises(small_run()).values())


def broken(run: chaos.Run) -> set[str]:
    return {name for name, times in chaos.broken_promises(run).items() if times}


def test_checks_find_each_fault() -> None:
    run = small_run()
    twice = replace(run, ledger=[*run.ledger, (5, "episode 9", 1)])
    assert "stepped_twice" in broken(twice)
    swapped = [(n, e, {1: 2, 2: 1}.get(k, k)) for n, e, k in run.ledger]
    assert broken(replace(run, ledger=swapped)) == {"steps_out_of_order"}
    assert broken(replace(run, sessions_left=2)) == {"sessions_left"}
    assert "episodes_missing" in broken(replace(run, trajectories=run.trajectories[1:]))
    run.trajectories[1].turns[3].observation = "Took 7."
    assert broken(run) == {"wrong_answers"}
    run = small_run()
    del run.trajectories[2].info["env_error"]
    assert broken(run) == {"failures_unmarked"}


def test_a_lost_episode_in_the_baseline_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trajectory, "trainable", property(lambda _: True))
    assert "wrong_baselines" in broken(small_run())


# -- sessions that nobody wants any more --------------------------------------------------------------------------------------------------


def test_a_session_that_is_at_work_is_closed_as_soon_as_it_is_done() -> None:
    manager, live = SessionManager("sleepy", lock_wait_s=0.01), Sleepy.live
    session = manager.create(item_id=3)["id"]
    work = threading.Thread(target=manager.step, args=(session, "sleep 0.3"))
    work.start()
    with pytest.raises(ServiceError, match="still at work"):
        manager.close(session)
    work.join()
    assert len(manager) == 0
    assert Sleepy.live == live
    assert manager.health()["closed"] == 1


def test_a_session_whose_creation_was_not_heard_of_is_closed() -> None:
    with background_server(["counter"]) as server, LossyProxy(server, lose=lambda n: n <= 2) as proxy:
        live = Counter.live
        with SessionPool("counter", proxy.url, retries=1) as pool, pytest.raises(EnvironmentFailure):
            pool.start("counter_1").result()
        assert Counter.live == live
