"""Checks of lesson 09: reading a call, what a window shows, what a retry earns, and what retrying alone would reach."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from agentgym_lite.course.checks.check import Case, Check, Mistake

# -- read_call(reply) -> action or None --------------------------------------------------------------------------------------------------


def _read(
    *, types: bool = True, whole: bool = True, known: bool = True, raises: bool = False, bools: bool = False
) -> Callable[[str], str | None]:
    """A reader of ``{"name": "get", "arguments": {"count": 2, "item": "oak log"}}`` that does or leaves out each of its tests."""

    def action(call: Any) -> str | None:
        if known and call["name"] != "get":
            return None
        arguments = call["arguments"]
        if whole and set(arguments) != {"count", "item"}:
            return None
        count, item = arguments["count"], arguments["item"]
        number = isinstance(count, int) and (bools or not isinstance(count, bool))
        if types and not (number and isinstance(item, str)):
            return None
        return f"get {count} {item}"

    def read(reply: str) -> str | None:
        try:
            return action(json.loads(reply))
        except (ValueError, KeyError, TypeError):
            if raises:
                raise
            return None

    return read


read_call = Check(
    "read_call",
    _read(),
    (
        Case("a good call", ('{"name": "get", "arguments": {"count": 2, "item": "oak log"}}',)),
        Case("text that is no JSON", ("I will get 2 oak log",)),
        Case("JSON that is no object", ("[1, 2]",)),
        Case("a function that does not exist", ('{"name": "steal", "arguments": {"count": 2, "item": "oak log"}}',)),
        Case("a call without its item", ('{"name": "get", "arguments": {"count": 2}}',)),
        Case("an argument too many", ('{"name": "get", "arguments": {"count": 2, "item": "oak log", "fast": 1}}',)),
        Case("a number given as text", ('{"name": "get", "arguments": {"count": "2", "item": "oak log"}}',)),
        Case("true in place of a number", ('{"name": "get", "arguments": {"count": true, "item": "oak log"}}',)),
    ),
    (
        Mistake("what cannot be read raises: a policy writes anything, so this must give None, not end the run", _read(raises=True)),
        Mistake("any function's name is taken: only `get` exists here", _read(known=False)),
        Mistake("arguments that nobody asked for are passed over: the call is not what it seems, so it is none", _read(whole=False)),
        Mistake('types are not looked at: "2" is text, not a number', _read(types=False)),
        Mistake("`true` passes for a number: in Python bool is an int, so it needs a test of its own", _read(bools=True)),
    ),
)

# -- window_rows(turns, k) -> row of each turn -----------------------------------------------------------------------------------------


def _window_rows(turns: int, k: int) -> list[int]:
    return [max(0, t - k) for t in range(turns)]


window_rows = Check(
    "window_rows",
    _window_rows,
    (
        Case("six turns with a window of 2", (6, 2)),
        Case("six turns with a window of 1", (6, 1)),
        Case("an episode that fits into the window", (3, 4)),
        Case("the turn that comes right after the window is full", (4, 3)),
    ),
    (
        Mistake("every turn opens a row: while nothing has left the view, a row only grows", lambda turns, k: list(range(turns))),
        Mistake(
            "the first rewrite comes a turn too soon: turn K still sees all K turns before it",
            lambda turns, k: [max(0, t - k + 1) for t in range(turns)],
        ),
        Mistake(
            "the first rewrite comes a turn too late: before turn K + 1 there are K + 1 turns, one too many",
            lambda turns, k: [max(0, t - k - 1) for t in range(turns)],
        ),
        Mistake(
            "this is a summary's rule, a row for every K turns: a window slides by one turn, and each slide rewrites the prompt",
            lambda turns, k: [t // k for t in range(turns)],
        ),
        Mistake("everything is in one row: what was read before a turn must be the beginning of its row", lambda turns, k: [0] * turns),
        Mistake(
            "after the first rewrite no other row begins: every turn that leaves the view changes the prompt",
            lambda turns, k: [int(t > k) for t in range(turns)],
        ),
    ),
)

# -- credited(attempts, rewards) -> rewards that count ---------------------------------------------------------------------------------


def _last_attempt(attempts: Sequence[int], rewards: Sequence[float]) -> list[float]:
    return [r if a == attempts[-1] else 0.0 for a, r in zip(attempts, rewards, strict=True)]


def _best_attempt(attempts: Sequence[int], rewards: Sequence[float]) -> list[float]:
    total = {a: sum(r for b, r in zip(attempts, rewards, strict=True) if a == b) for a in attempts}
    best = max(total, key=lambda a: total[a])
    return [r if a == best else 0.0 for a, r in zip(attempts, rewards, strict=True)]


credited = Check(
    "credited",
    _last_attempt,
    (
        Case("two attempts, the second succeeds", ([0, 0, 1, 1], [0.25, 0.0, 0.5, 0.5])),
        Case("three attempts that all fail, the first the furthest", ([0, 0, 1, 2, 2], [0.5, 0.25, 0.0, 0.25, 0.0])),
        Case("a success at once", ([0, 0], [0.5, 0.5])),
    ),
    (
        Mistake(
            "all attempts are paid: failing first would earn more than succeeding at once, and the return leaves [0, 1]",
            lambda a, r: list(r),
        ),
        Mistake(
            "the best attempt is paid: the agent would be paid for a state that it gave up; the episode ends with the last one",
            _best_attempt,
        ),
        Mistake("the first attempt is paid", lambda a, r: [x if i == a[0] else 0.0 for i, x in zip(a, r, strict=True)]),
        Mistake(
            "the rewards are shared out over the attempts: nothing of the earlier ones counts",
            lambda a, r: [x / (a[-1] + 1) for x in r],
        ),
        Mistake(
            "only the last turn is paid: all turns of the last attempt keep their rewards", lambda a, r: [0.0] * (len(r) - 1) + [r[-1]]
        ),
    ),
)

# -- luck(p, attempts) -> success without any reflection ------------------------------------------------------------------------------

luck = Check(
    "luck",
    lambda p, attempts: 1 - (1 - p) ** attempts,
    (
        Case("one chance in five, three attempts", (0.2, 3)),
        Case("one attempt", (0.3, 1)),
        Case("nine in ten, two attempts", (0.9, 2)),
        Case("an item that is never solved", (0.0, 4)),
    ),
    (
        Mistake("chances are added up: they pass 1 with enough attempts", lambda p, k: k * p),
        Mistake("this is the chance that all attempts succeed", lambda p, k: p**k),
        Mistake("this is the chance that no attempt succeeds", lambda p, k: (1 - p) ** k),
        Mistake("this is the chance that not all of them succeed", lambda p, k: 1 - p**k),
        Mistake(
            "this counts one success exactly: an episode ends with the first, wherever it comes", lambda p, k: k * p * (1 - p) ** (k - 1)
        ),
        Mistake("this is a single attempt", lambda p, k: p),
    ),
)
