"""Intervals: published values, hand computation, coverage by simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_lite.evaluation.intervals import bootstrap_mean, wilson


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),  # Newcombe 1998, table I, method 3
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_equals_published_values(successes, n, low, high):
    found = wilson(successes, n)
    assert (round(found.low, 4), round(found.high, 4)) == (low, high)
    assert found.value == successes / n


def test_wilson_by_hand_for_one_success_in_one():
    # p = 1, n = 1: bounds are 1 / (1 + z^2) and 1.
    z = 1.959963984540054
    found = wilson(1, 1)
    assert found.low == pytest.approx(1 / (1 + z * z))
    assert found.high == 1.0


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_is_symmetric_and_contains_the_rate(case):
    successes, n = case
    a, b = wilson(successes, n), wilson(n - successes, n)
    assert 0 <= a.low <= a.value <= a.high <= 1
    assert a.low == pytest.approx(1 - b.high, abs=1e-12)


def test_wilson_covers_the_truth_about_95_times_in_100():
    # Exact coverage, averaged over rates: the sum of binomial weights of the outcomes whose interval holds the truth.
    n = 40
    intervals = [wilson(c, n) for c in range(n + 1)]
    coverage = []
    for p in np.linspace(0.05, 0.95, 91):
        weights = [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
        coverage.append(sum(w for w, i in zip(weights, intervals, strict=True) if i.low <= p <= i.high))
    assert 0.94 < np.mean(coverage) < 0.96


@pytest.mark.parametrize(("successes", "n"), [(0, 0), (3, 2), (-1, 5)])
def test_wilson_refuses_impossible_counts(successes, n):
    with pytest.raises(ValueError, match="expected 0 <= successes <= n"):
        wilson(successes, n)


def test_bootstrap_repeats_and_depends_on_its_seed():
    values = list(np.random.default_rng(3).random(30))
    assert bootstrap_mean(values) == bootstrap_mean(values)
    assert bootstrap_mean(values, seed=1) != bootstrap_mean(values, seed=2)


def test_bootstrap_of_equal_values_is_a_point():
    found = bootstrap_mean([0.25] * 8)
    assert (found.value, found.low, found.high) == (0.25, 0.25, 0.25)


def test_bootstrap_of_two_values_by_hand():
    # Means of two draws from {0, 1} are 0, 1/2, 1 with chances 1/4, 1/2, 1/4: the 2.5 % and 97.5 % quantiles are the ends.
    found = bootstrap_mean([0.0, 1.0])
    assert (found.value, found.low, found.high) == (0.5, 0.0, 1.0)


def test_bootstrap_covers_the_truth():
    rng = np.random.default_rng(0)
    found = [bootstrap_mean(rng.normal(1.0, 1.0, 40), resamples=500, seed=i) for i in range(300)]
    assert 0.90 < np.mean([i.low <= 1.0 <= i.high for i in found]) < 0.98


def test_bootstrap_refuses_no_values():
    with pytest.raises(ValueError, match="at least one value"):
        bootstrap_mean([])
