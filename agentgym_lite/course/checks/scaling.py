"""Checks of lesson 08: the schedule, resumption, equal budgets of environment steps, and differences over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean, pstdev, stdev

from agentgym_lite.algorithms import upstream
from agentgym_lite.course.checks.check import Case, Check, Mistake
from agentgym_lite.rollout.schedulers import StepRoundsScheduler

# -- rounds_at(step, period, rounds) -> int --------------------------------------------------------------------------------------------

Schedule = Callable[[int, int, Sequence[int]], int]


def _right(step: int, period: int, rounds: Sequence[int]) -> int:
    return StepRoundsScheduler(period, rounds).rounds_at(step)


def _stage(index: Callable[[int, int], int]) -> Schedule:
    return lambda step, period, rounds: rounds[min(index(step, period), len(rounds) - 1)]


_PAPER = [10, 20, 30]
rounds_at = Check(
    "rounds_at",
    _right,
    (
        Case("the first step", (1, 100, _PAPER)),
        Case("the last step of the first stage", (100, 100, _PAPER)),
        Case("the first step of the second stage", (101, 100, _PAPER)),
        Case("a step in the middle of the last stage", (250, 100, _PAPER)),
        Case("a step long after the last stage has begun", (901, 100, _PAPER)),
        Case("stages of three steps", (6, 3, [4, 8])),
    ),
    (
        Mistake(
            "each stage begins one step early: steps are counted from 1, so take 1 off before the division",
            _stage(lambda step, period: step // period),
        ),
        Mistake(
            "there is no stage after the last one: stay there (a list index that is too large raises)",
            lambda step, period, rounds: rounds[(step - 1) // period],
        ),
        Mistake("after the last stage it begins again with the first: the last one stays", lambda s, p, r: r[(s - 1) // p % len(r)]),
        Mistake("the first stage is skipped: the division already gives 0 for it", _stage(lambda step, period: -(-step // period))),
        Mistake(
            "the stages are spread over the run: each is `period` steps long, whatever their number",
            _stage(lambda s, p: (s - 1) // (2 * p)),
        ),
        Mistake(
            "the limit grows a little with every step: it stays the same within a stage",
            lambda s, p, r: min(r[0] + (s - 1) * (r[1] - r[0]) // p, r[-1]),
        ),
        Mistake("this is the number of the stage: the rounds of that stage are asked for", lambda s, p, r: min((s - 1) // p, len(r) - 1)),
    ),
)

# -- after_resume(done, steps, period, rounds) -> limits of the next steps -------------------------------------------------------------

Resumed = Callable[[int, int, int, Sequence[int]], list[int]]


def _resumed(rounds_of: Callable[[int, int, int, Sequence[int]], int]) -> Resumed:
    """Limits of the steps ``done + 1 ... done + steps``, each by ``rounds_of(done, k, period, rounds)`` with k from 1."""
    return lambda done, steps, period, rounds: [rounds_of(done, k, period, rounds) for k in range(1, steps + 1)]


after_resume = Check(
    "after_resume",
    _resumed(lambda done, k, p, r: _right(done + k, p, r)),
    (
        Case("a run that was saved at the end of a stage", (4, 6, 4, _PAPER)),
        Case("a run that was saved in the middle of a stage", (6, 5, 4, _PAPER)),
        Case("a run that was saved in the last stage", (11, 3, 4, _PAPER)),
        Case("a run that begins", (0, 6, 4, _PAPER)),
    ),
    (
        Mistake(
            "the end of a stage is counted twice: set from the saved step and raised again by the first new one, so a stage is skipped; "
            "saved in the middle, each later stage begins a step late (published fault 3)",
            _resumed(lambda done, k, p, r: upstream.StepRoundsScheduler(p, r, done).rounds_at(done + k)),
        ),
        Mistake(
            "a resumed run begins with the first stage again: count on from the saved step", _resumed(lambda done, k, p, r: _right(k, p, r))
        ),
        Mistake(
            "the first step after a resume is the one that was saved: that is done, the next one is `done + 1`",
            _resumed(lambda done, k, p, r: _right(max(1, done + k - 1), p, r)),
        ),
        Mistake(
            "the first step after a resume is left out: it is `done + 1`",
            _resumed(lambda done, k, p, r: _right(done + k + 1, p, r)),
        ),
        Mistake(
            "the stage of the resume is kept for all steps that follow: the limit depends on the step, not on when the run was resumed",
            _resumed(lambda done, k, p, r: _right(done + 1, p, r)),
        ),
        Mistake(
            "a stage lasts `period` steps from the resume on: how often a run is interrupted must not change it",
            _resumed(lambda done, k, p, r: r[min(done // p + (k - 1) // p, len(r) - 1)]),
        ),
    ),
)

# -- updates_within(budget, episodes, period, rounds) -> int ---------------------------------------------------------------------------


def _updates(cost: Callable[[int, int, int, Sequence[int]], int], *, over: bool = False) -> Callable[[int, int, int, Sequence[int]], int]:
    """Number of updates whose costs ``cost(update, episodes, period, rounds)`` fit into the budget; with ``over`` one more."""

    def count(budget: int, episodes: int, period: int, rounds: Sequence[int]) -> int:
        done = spent = 0
        while spent + cost(done + 1, episodes, period, rounds) <= budget:
            done += 1
            spent += cost(done, episodes, period, rounds)
        return done + over

    return count


updates_within = Check(
    "updates_within",
    _updates(lambda k, n, p, r: n * _right(k, p, r)),
    (
        Case("a budget that ends in the second stage", (1000, 8, 10, [5, 10, 20])),
        Case("a budget that ends in the last stage", (4000, 8, 10, [5, 10, 20])),
        Case("a budget that ends within the first stage", (210, 8, 10, [5, 10, 20])),
        Case("a fixed schedule", (1000, 8, 10, [20])),
    ),
    (
        Mistake(
            "the last update breaks the budget: count only those that fit whole",
            _updates(lambda k, n, p, r: n * _right(k, p, r), over=True),
        ),
        Mistake(
            "every update is taken to cost what one of the last stage does: the early ones are cheaper",
            _updates(lambda k, n, p, r: n * r[-1]),
        ),
        Mistake(
            "every update is taken to cost what one of the first stage does: later ones are dearer", _updates(lambda k, n, p, r: n * r[0])
        ),
        Mistake(
            "every update is taken to cost the mean of the stages: few of them may be in the last",
            _updates(lambda k, n, p, r: n * sum(r) // len(r)),
        ),
        Mistake("an update plays `episodes` episodes, not one: multiply", _updates(lambda k, n, p, r: _right(k, p, r))),
        Mistake(
            "each stage begins one update early: updates are counted from 1",
            _updates(lambda k, n, p, r: n * r[min(k // p, len(r) - 1)]),
        ),
    ),
)

# -- paired_gain(a, b) -> (mean difference, its standard error) ------------------------------------------------------------------------

Gain = Callable[[Sequence[float], Sequence[float]], tuple[float, float]]


def _gain(error: Callable[[list[float], Sequence[float], Sequence[float]], float], *, sign: int = 1) -> Gain:
    """Mean of the differences and ``error(differences, a, b)``."""

    def gain(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
        d = [x - y for x, y in zip(a, b, strict=True)]
        return sign * fmean(d), error(d, a, b)

    return gain


paired_gain = Check(
    "paired_gain",
    _gain(lambda d, a, b: stdev(d) / math.sqrt(len(d))),
    (
        Case("three seeds that differ much, and always the same way", ([0.5, 0.75, 1.0], [0.25, 0.5, 0.5])),
        Case("four seeds that disagree", ([0.5, 0.25, 0.75, 1.0], [0.75, 0.5, 0.5, 0.25])),
    ),
    (
        Mistake("the difference is turned around: a - b is asked for", _gain(lambda d, a, b: stdev(d) / math.sqrt(len(d)), sign=-1)),
        Mistake(
            "this is the spread of the differences, not the error of their mean: divide by the root of the number of seeds",
            _gain(lambda d, a, b: stdev(d)),
        ),
        Mistake("the spread is divided by the number of seeds: it is the root of it", _gain(lambda d, a, b: stdev(d) / len(d))),
        Mistake(
            "the spread divides by n: with three seeds the unbiased one, with n - 1, is 22 % larger",
            _gain(lambda d, a, b: pstdev(d) / math.sqrt(len(d))),
        ),
        Mistake(
            "the seeds are not paired: a seed that is hard for both runs is no uncertainty of their difference. Take the differences first",
            _gain(lambda d, a, b: math.sqrt((stdev(a) ** 2 + stdev(b) ** 2) / len(d))),
        ),
        Mistake("the variance is divided, not the standard deviation: the root is missing", _gain(lambda d, a, b: stdev(d) ** 2 / len(d))),
    ),
)
