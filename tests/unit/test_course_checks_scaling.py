"""Checks of lesson 08: tables by hand, and the published fault."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_lite.course import checks


def test_the_published_table() -> None:
    assert [checks.rounds_at.right(s, 100, [10, 20, 30]) for s in (1, 100, 101, 200, 201, 999)] == [10, 10, 20, 20, 30, 30]


@given(st.integers(0, 30), st.integers(1, 12), st.integers(1, 6))
def test_a_resumed_run_equals_an_unbroken_one(done: int, steps: int, period: int) -> None:
    unbroken = checks.after_resume.right(0, done + steps, period, [1, 2, 3])
    assert checks.after_resume.right(done, steps, period, [1, 2, 3]) == unbroken[done:]


def test_the_published_counter_is_named() -> None:
    def counting(done: int, steps: int, period: int, rounds: Sequence[int]) -> list[int]:
        stage, count, out = (done // period, done, []) if done else (0, 1, [])
        for _ in range(steps):
            out.append(rounds[min(stage, len(rounds) - 1)])
            stage += count % period == 0
            count += 1
        return out

    assert counting(100, 2, 100, [10, 20, 30]) == [20, 30]
    assert "published fault 3" in checks.after_resume(counting).message


def test_a_budget_by_hand() -> None:
    """Ten updates of 8 x 5 = 40 rounds, then 80 each: 1,000 = 400 + 7 x 80 + 40."""
    assert checks.updates_within.right(1000, 8, 10, [5, 10, 20]) == 17
    assert checks.updates_within.right(1000, 8, 10, [20]) == 6


def test_a_gain_by_hand() -> None:
    """Differences 0.25, 0.25, 0.5: mean 1/3, standard deviation 0.1443, error 0.0833."""
    assert checks.paired_gain.right([0.5, 0.75, 1.0], [0.25, 0.5, 0.5]) == pytest.approx((1 / 3, 1 / 12))


def test_an_index_error_after_the_last_stage_is_named() -> None:
    assert "no stage after the last" in checks.rounds_at(lambda step, period, rounds: rounds[(step - 1) // period]).message
