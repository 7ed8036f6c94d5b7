"""Checks of lesson 11: from percentages to items, totals from parts, the noise of a difference, and which settings differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from agentgym_lite.course.checks.check import Case, Check, Mistake
from agentgym_lite.evaluation.paper import counted

# -- solved_items(percent, items) -> whole number or None --------------------------------------------------------------------------------


def _within(tolerance: float, rounded: Callable[[float], int] = round) -> Callable[[float, int], int | None]:
    def solved(percent: float, items: int) -> int | None:
        n = rounded(percent * items / 100)
        return n if abs(100 * n / items - percent) < tolerance else None

    return solved


solved_items = Check(
    "solved_items",
    counted,
    (
        Case("33.33 of 3 items", (33.33, 3)),
        Case("87.77 of 90 items, where a digit was cut, not rounded", (87.77, 90)),
        Case("26.00 of 100 items", (26.0, 100)),
        Case("9.76 of 50 items, which no whole number gives", (9.76, 50)),
        Case("66.67 of 15 items", (66.67, 15)),
        Case("12.90 of 50 items, which lies between 6 and 7", (12.9, 50)),
        Case("a figure that is close, but not the one: 33.30 of 3 items", (33.3, 3)),
    ),
    (
        Mistake("every percentage becomes a number: one that no number of items gives must be None", lambda p, n: round(p * n / 100)),
        Mistake("the nearest number below is taken: 33.33 % of 3 is 0.9999, so round, do not cut", _within(0.01, math.floor)),
        Mistake("the tolerance is too wide: figures have two digits, so less than 0.01", _within(0.5)),
        Mistake("the tolerance is too narrow: the figure is printed with two digits only", _within(0.001)),
        Mistake("half a digit is too narrow: 79 of 90 is 87.777..., printed as 87.77", _within(0.005)),
        Mistake("this is the share of one item, not the number of solved ones", lambda p, n: p / 100),
    ),
)

# -- possible_counts(percents, most) -> list of n ----------------------------------------------------------------------------------------


def _possible(every: bool = True, first: int = 1, last: int = 0) -> Callable[[Sequence[float], int], list[int]]:
    test = all if every else any
    return lambda percents, most: [n for n in range(first, most + 1 - last) if test(counted(p, n) is not None for p in percents)]


possible_counts = Check(
    "possible_counts",
    _possible(),
    (
        Case("0, 33.33 and 66.67, up to 9", ([0.0, 33.33, 66.67], 9)),
        Case("20.00 and 13.33, up to 30", ([20.0, 13.33], 30)),
        Case("0 and 100, which every number gives, up to 4", ([0.0, 100.0], 4)),
    ),
    (
        Mistake("one figure of the column is enough here: all of them must be whole numbers of the same n", _possible(every=False)),
        Mistake("the largest number is left out: `range` stops before its end", _possible(last=1)),
        Mistake("only the smallest number is returned: its multiples fit as well, and are wanted", lambda p, m: _possible()(p, m)[:1]),
        Mistake("only the largest number is returned", lambda p, m: _possible()(p, m)[-1:]),
        Mistake("one item is left out of the search", _possible(first=2)),
    ),
)

# -- overall(percents, items) -> percent -------------------------------------------------------------------------------------------------


def _weighted(percents: Sequence[float], items: Sequence[int]) -> float:
    return sum(p * n for p, n in zip(percents, items, strict=True)) / sum(items)


overall = Check(
    "overall",
    _weighted,
    (
        Case("two columns of 10 and 30 items", ([50.0, 10.0], [10, 30])),
        Case("TextCraft's four columns", ([100.0, 90.24, 80.0, 33.33], [31, 41, 25, 3])),
        Case("columns of equal size", ([20.0, 40.0], [5, 5])),
    ),
    (
        Mistake("columns count alike, however few items they have: weigh each by its items", lambda p, n: fmean(p)),
        Mistake("this is the sum over columns, not divided by all items", lambda p, n: sum(a * b for a, b in zip(p, n, strict=True))),
        Mistake("this is the number of solved items: as a percentage of all items is asked", lambda p, n: _weighted(p, n) * sum(n) / 100),
        Mistake("this is a fraction: the tables are in percent", lambda p, n: _weighted(p, n) / 100),
        Mistake(
            "the weights are turned around: small columns count most",
            lambda p, n: sum(a / b for a, b in zip(p, n, strict=True)) / sum(1 / b for b in n),
        ),
    ),
    atol=1e-6,
)

# -- difference(k1, n1, k2, n2) -> (low, high) -------------------------------------------------------------------------------------------


def _difference(
    spread: Callable[[float, float, float, float], float], sign: float = 1.0, z: float = 1.96
) -> Callable[[int, int, int, int], tuple[float, float]]:
    """Interval of p2 - p1; ``spread`` gets both rates and both numbers of items."""

    def interval(k1: int, n1: int, k2: int, n2: int) -> tuple[float, float]:
        p1, p2 = k1 / n1, k2 / n2
        d, half = sign * (p2 - p1), z * spread(p1, n1, p2, n2)
        return d - half, d + half

    return interval


def _var(p: float, n: float) -> float:
    return p * (1 - p) / n


def _added(p1: float, n1: float, p2: float, n2: float) -> float:
    return math.sqrt(_var(p1, n1) + _var(p2, n2))


difference = Check(
    "difference",
    _difference(_added),
    (
        Case("89 and 91 of 100 each", (89, 100, 91, 100)),
        Case("11 of 50 and 13 of 50", (11, 50, 13, 50)),
        Case("20 of 40 and 90 of 100", (20, 40, 90, 100)),
    ),
    (
        Mistake("the first is compared with the second: asked is how much better the second is", _difference(_added, sign=-1.0)),
        Mistake(
            "standard errors are added: variances add up, their root is the error of the difference",
            _difference(lambda p1, n1, p2, n2: math.sqrt(_var(p1, n1)) + math.sqrt(_var(p2, n2))),
        ),
        Mistake(
            "variances are subtracted: a difference of two noisy numbers is noisier than either",
            _difference(lambda p1, n1, p2, n2: math.sqrt(abs(_var(p2, n2) - _var(p1, n1)))),
        ),
        Mistake("the root is missing: this is the variance", _difference(lambda p1, n1, p2, n2: _var(p1, n1) + _var(p2, n2))),
        Mistake(
            "only the first figure's noise counts: the second is as uncertain", _difference(lambda p1, n1, p2, n2: math.sqrt(_var(p1, n1)))
        ),
        Mistake(
            "only the second figure's noise counts: the first is as uncertain", _difference(lambda p1, n1, p2, n2: math.sqrt(_var(p2, n2)))
        ),
        Mistake("the factor 1.96 is missing: this is one standard error, which covers 68 %", _difference(_added, z=1.0)),
    ),
    atol=1e-6,
)

# -- different_settings(a, b) -> list of dotted names ------------------------------------------------------------------------------------


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in tree.items():
        out |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return out


_MISSING = object()


def _differing(names: Callable[[dict[str, Any], dict[str, Any]], set[str]]) -> Callable[[Mapping[str, Any], Mapping[str, Any]], list[str]]:
    def find(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
        x, y = _flat(a), _flat(b)
        return sorted(k for k in names(x, y) if x.get(k, _MISSING) != y.get(k, _MISSING))

    return find


def _either(x: dict[str, Any], y: dict[str, Any]) -> set[str]:
    return {*x, *y}


different_settings = Check(
    "different_settings",
    _differing(_either),
    (
        Case(
            "two runs with another schedule and another group size",
            (
                {"run": {"steps": 300, "out": "x"}, "algorithm": {"name": "grpo", "group_size": 8}, "rounds": 20},
                {"run": {"steps": 300, "out": "y"}, "algorithm": {"name": "grpo", "group_size": 4}, "rounds": [6, 13, 20]},
            ),
        ),
        Case("a setting that only one of them has", ({"optim": {"lr": 1e-6}, "seed": 0}, {"optim": {"lr": 1e-6, "warmup": 5}, "lora": 16})),
        Case("names in another order", ({"b": {"z": 1, "a": 2}, "a": 3}, {"a": 4, "b": {"a": 1, "z": 2}})),
    ),
    (
        Mistake(
            "only the outermost names are compared: say which setting inside a section differs",
            lambda a, b: sorted(k for k in {*a, *b} if a.get(k, _MISSING) != b.get(k, _MISSING)),
        ),
        Mistake("settings that only the second has are passed over", _differing(lambda x, y: set(x))),
        Mistake("settings that only the first has are passed over", _differing(lambda x, y: set(y))),
        Mistake(
            "settings that only one of them has are passed over: a run without a setting is another run",
            _differing(lambda x, y: {*x} & {*y}),
        ),
        Mistake(
            "these are the settings that are equal",
            lambda a, b: sorted(k for k in {*_flat(a)} & {*_flat(b)} if _flat(a)[k] == _flat(b)[k]),
        ),
        Mistake("all settings are listed, the equal ones too", lambda a, b: sorted({*_flat(a), *_flat(b)})),
        Mistake(
            "the names lack their sections: write `run.steps`, not `steps`",
            lambda a, b: sorted(k.rpartition(".")[2] for k in _differing(_either)(a, b)),
        ),
    ),
)
