"""Checks of lesson 10 against numbers worked out by hand and against the library."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_lite.course import checks
from agentgym_lite.evaluation import wilson


@given(st.integers(1, 200), st.data())
def test_the_interval_is_the_librarys(n: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, n))
    low, high = checks.wilson_interval.right(successes, n)
    found = wilson(successes, n)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-4)


def test_the_interval_of_8_in_10_by_hand() -> None:
    assert checks.wilson_interval.right(8, 10) == pytest.approx((0.490, 0.943), abs=5e-4)


def test_pass_at_k_counts_subsets() -> None:
    samples = [1, 0, 0, 1, 0]
    drawn = list(combinations(samples, 2))
    share = Fraction(sum(any(d) for d in drawn), len(drawn))
    assert checks.pass_at_k.right(5, 2, 2) == pytest.approx(float(share))


def test_which_episodes_count_by_hand() -> None:
    assert checks.success_rate.right(["success", "failure", "env_error", "max_rounds", "success"]) == 0.5


def test_one_value_per_item_by_hand() -> None:
    assert checks.independent_values.right(["b", "a", "b", "a"], [1.0, 0.0, 0.0, 0.0]) == [0.5, 0.0]


def test_won_and_lost_by_hand() -> None:
    before, after = {"a": True, "b": False, "c": False}, {"b": True, "a": False, "c": True, "d": True}
    assert checks.changed_items.right(before, after) == (2, 1)


def test_a_rate_that_divides_by_all_is_named() -> None:
    result = checks.success_rate(lambda reasons: reasons.count("success") / len(reasons))
    assert result.message.startswith("broken episodes count as failures")
