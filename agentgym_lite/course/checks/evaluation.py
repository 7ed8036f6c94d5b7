"""Checks of lesson 10: Wilson's interval, pass@k, which episodes count, the unit of a bootstrap, two agents on the same items."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from agentgym_lite.course.checks.check import Case, Check, Mistake
from agentgym_lite.evaluation.metrics import pass_at_k as unbiased_pass_at_k

Z = 1.96

# -- wilson_interval(successes, n) -> (low, high) ---------------------------------------------------------------------------------------


def _wilson(
    *, centre: float = 0.5, under_root: float = 0.25, scale: bool = True, root_n: bool = False
) -> Callable[[int, int], tuple[float, float]]:
    """Wilson's interval with z = 1.96 and the constants of its parts."""

    def interval(successes: int, n: int) -> tuple[float, float]:
        p = successes / n
        middle = p + centre * Z * Z / n
        half = Z * math.sqrt(p * (1 - p) / (1 if root_n else n) + under_root * Z * Z / (n * n))
        by = 1 + Z * Z / n if scale else 1.0
        return (middle - half) / by, (middle + half) / by

    return interval


def _wald(successes: int, n: int) -> tuple[float, float]:
    p = successes / n
    half = Z * math.sqrt(p * (1 - p) / n)
    return p - half, p + half


def _clipped_wald(successes: int, n: int) -> tuple[float, float]:
    low, high = _wald(successes, n)
    return max(0.0, low), min(1.0, high)


def _half_width(successes: int, n: int) -> tuple[float, float]:
    low, high = _wilson()(successes, n)
    return (low + high) / 2, (high - low) / 2


wilson_interval = Check(
    "wilson_interval",
    _wilson(),
    (
        Case("8 of 10", (8, 10)),
        Case("10 of 10", (10, 10)),
        Case("0 of 3", (0, 3)),
        Case("50 of 100", (50, 100)),
    ),
    (
        Mistake("this is p ± z sqrt(p (1 - p) / n): for 10 of 10 it has no width at all, and for 8 of 10 it passes 1", _wald),
        Mistake("this is the simple interval, cut off at 0 and 1: for 10 of 10 it still has no width", _clipped_wald),
        Mistake("the division by 1 + z²/n is missing", _wilson(scale=False)),
        Mistake("the middle is shifted by z²/n: it is half of that", _wilson(centre=1.0)),
        Mistake("the middle is not shifted: for 10 of 10 the interval passes 1", _wilson(centre=0.0)),
        Mistake("the root lacks its second part, z²/4n², so that 10 of 10 has no width", _wilson(under_root=0.0)),
        Mistake("the root's first part is not divided by n", _wilson(root_n=True)),
        Mistake("these are the middle and half the width: return the two ends", _half_width),
    ),
)

# -- pass_at_k(n, c, k) -> float ------------------------------------------------------------------------------------------------------

pass_at_k = Check(
    "pass_at_k",
    unbiased_pass_at_k,
    (
        Case("one success in four samples, two of them drawn", (4, 1, 2)),
        Case("three successes in eight, four drawn", (8, 3, 4)),
        Case("no success", (5, 0, 3)),
        Case("fewer failures than draws", (4, 3, 2)),
        Case("one draw", (4, 1, 1)),
    ),
    (
        Mistake(
            "samples are drawn with replacement: 1 - (1 - c/n)^k is too small in the mean, as lucky draws are counted twice",
            lambda n, c, k: 1 - (1 - c / n) ** k,
        ),
        Mistake("this is pass@1, c / n, whatever k is", lambda n, c, k: c / n),
        Mistake("this asks whether any of all n samples succeeded, so it is pass@n", lambda n, c, k: float(c > 0)),
        Mistake("this is the chance that all k succeed (pass^k)", lambda n, c, k: math.comb(c, k) / math.comb(n, k)),
        Mistake("this is the chance that none of the k succeeds", lambda n, c, k: math.comb(n - c, k) / math.comb(n, k)),
        Mistake("this is the chance that not all k succeed", lambda n, c, k: 1 - math.comb(c, k) / math.comb(n, k)),
        Mistake("k chances of c / n are added up", lambda n, c, k: min(1.0, k * c / n)),
    ),
)

# -- success_rate(stop_reasons) -> float ------------------------------------------------------------------------------------------------


def _rate(leave_out: set[str], good: set[str] = frozenset({"success"})) -> Callable[[Sequence[str]], float]:  # type: ignore[assignment]
    def rate(reasons: Sequence[str]) -> float:
        counted = [r for r in reasons if r not in leave_out]
        return sum(r in good for r in counted) / len(counted)

    return rate


def _excused(reasons: Sequence[str]) -> float:
    return sum(r in ("success", "env_error") for r in reasons) / len(reasons)


success_rate = Check(
    "success_rate",
    _rate({"env_error"}),
    (
        Case("one of each", (["success", "failure", "max_rounds", "context_full", "env_error"],)),
        Case("two broken episodes", (["success", "env_error", "failure", "env_error", "success"],)),
        Case(
            "episodes that ran out of rounds or context", (["max_rounds", "max_rounds", "success", "context_full", "failure", "failure"],)
        ),
    ),
    (
        Mistake("broken episodes count as failures: what the server did is not the agent's fault", _rate(set())),
        Mistake("broken episodes count as successes", _excused),
        Mistake("episodes that ran out of rounds are left out: taking too long is a failure", _rate({"env_error", "max_rounds"})),
        Mistake("episodes whose context was full are left out: that is a failure of the agent", _rate({"env_error", "context_full"})),
        Mistake("only successes and plain failures count: all but broken episodes do", _rate({"env_error", "max_rounds", "context_full"})),
        Mistake("running out of rounds counts as success: only `success` is one", _rate({"env_error"}, {"success", "max_rounds"})),
    ),
)

# -- independent_values(items, outcomes) -> one per item --------------------------------------------------------------------------------


def _by_item(items: Sequence[str], outcomes: Sequence[float]) -> Mapping[str, list[float]]:
    out: dict[str, list[float]] = {}
    for item, outcome in zip(items, outcomes, strict=True):
        out.setdefault(item, []).append(outcome)
    return out


def _of_items(merge: Callable[[list[float]], float]) -> Callable[[Sequence[str], Sequence[float]], list[float]]:
    return lambda items, outcomes: [merge(v) for v in _by_item(items, outcomes).values()]


independent_values = Check(
    "independent_values",
    _of_items(fmean),
    (
        Case("two items with two samples each", (["b", "b", "a", "a"], [1.0, 0.0, 1.0, 1.0])),
        Case("items whose samples are mixed", (["a", "b", "a", "c", "b", "a"], [1.0, 0.0, 0.0, 1.0, 1.0, 0.0])),
        Case("partial rewards", (["x", "y", "x", "y"], [0.25, 0.5, 0.75, 0.0])),
    ),
    (
        Mistake(
            "each sample is a value of its own: samples of one item are alike, and the interval would be too narrow",
            lambda items, outcomes: list(outcomes),
        ),
        Mistake("the samples of an item are added up: take their mean", _of_items(sum)),
        Mistake("an item counts as solved if any sample solved it: that is pass@n, not the mean", _of_items(max)),
        Mistake("only the first sample of each item is used", _of_items(lambda v: v[0])),
        Mistake("an item counts only if all samples solved it", _of_items(min)),
        Mistake(
            "the items are sorted: keep them in the order in which they first come",
            lambda items, outcomes: [fmean(_by_item(items, outcomes)[i]) for i in sorted(set(items))],
        ),
    ),
)

# -- changed_items(before, after) -> (won, lost) ------------------------------------------------------------------------------------------


def _items(before: Mapping[str, bool], after: Mapping[str, bool]) -> list[str]:
    return [i for i in before if i in after]


def _counts(won: Callable[[bool, bool], bool], lost: Callable[[bool, bool], bool]) -> Callable[..., tuple[int, int]]:
    def count(before: Mapping[str, bool], after: Mapping[str, bool]) -> tuple[int, int]:
        both = [(before[i], after[i]) for i in _items(before, after)]
        return sum(won(*x) for x in both), sum(lost(*x) for x in both)

    return count


def _won(b: bool, a: bool) -> bool:
    return a and not b


def _lost(b: bool, a: bool) -> bool:
    return b and not a


def _by_position(before: Mapping[str, bool], after: Mapping[str, bool]) -> tuple[int, int]:
    pairs = list(zip(before.values(), after.values(), strict=False))
    return sum(_won(*x) for x in pairs), sum(_lost(*x) for x in pairs)


def _net(before: Mapping[str, bool], after: Mapping[str, bool]) -> tuple[int, int]:
    won, lost = _counts(_won, _lost)(before, after)
    return max(0, won - lost), max(0, lost - won)


def _totals(before: Mapping[str, bool], after: Mapping[str, bool]) -> tuple[int, int]:
    return sum(after.values()), sum(before.values())


changed_items = Check(
    "changed_items",
    _counts(_won, _lost),
    (
        Case(
            "six items in another order",
            (
                {"a": True, "b": False, "c": False, "d": True, "e": False, "f": True},
                {"a": True, "d": False, "b": True, "c": True, "e": False, "f": True},
            ),
        ),
        Case(
            "an item that only one of them played",
            ({"a": True, "b": False, "c": False, "x": True}, {"c": False, "b": True, "a": False, "y": True}),
        ),
    ),
    (
        Mistake("won and lost are exchanged: first come the items that only the second agent solves", _counts(_lost, _won)),
        Mistake("items are matched by their position: match them by name", _by_position),
        Mistake("only the difference is left: wins and losses that cancel each other are what a paired test looks at", _net),
        Mistake("these are all successes of each agent: items that both solve say nothing about the difference", _totals),
        Mistake("an item that both solve counts as won", _counts(lambda b, a: a, _lost)),
        Mistake(
            "an item that was not played by both counts: nothing can be compared there",
            lambda before, after: (
                sum(_won(before.get(i, False), after.get(i, False)) for i in {*before, *after}),
                sum(_lost(before.get(i, False), after.get(i, False)) for i in {*before, *after}),
            ),
        ),
    ),
)
