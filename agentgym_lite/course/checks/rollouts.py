"""Checks of lesson 02: tokens that are read, why an episode stops, where a turn's tokens are, and time that overlaps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, groupby, zip_longest

from agentgym_lite.course.checks.check import Case, Check, Mistake

# -- tokens_read(opening, turns) -> (without a cache, with one) ------------------------------------------------------------------------

Turns = Sequence[tuple[int, int]]
Reads = Callable[[int, Turns], tuple[int, int]]


def _prompts(opening: int, turns: Turns) -> list[int]:
    """Length of the prompt of each turn, and of one more."""
    return list(accumulate((reply + observation for reply, observation in turns), initial=opening))


def _again(opening: int, turns: Turns) -> int:
    return sum(_prompts(opening, turns)[:-1])


def _cached(opening: int, turns: Turns) -> int:
    return opening + sum(observation for _, observation in turns[:-1])


def _reads(again: Callable[[int, Turns], int] = _again, cached: Callable[[int, Turns], int] = _cached) -> Reads:
    return lambda opening, turns: (again(opening, turns), cached(opening, turns))


tokens_read = Check(
    "tokens_read",
    _reads(),
    (
        Case("three equal turns behind a long opening", (100, [(40, 20), (40, 20), (40, 20)])),
        Case("a single turn", (50, [(10, 5)])),
        Case("three different turns", (30, [(4, 2), (6, 8), (1, 3)])),
    ),
    (
        Mistake(
            "the last observation is counted: nobody answers it, so nobody reads it",
            _reads(lambda o, t: sum(_prompts(o, t)[1:]), lambda o, t: o + sum(seen for _, seen in t)),
        ),
        Mistake(
            "with a cache the last observation is counted: nobody answers it, so nobody reads it",
            _reads(cached=lambda o, t: o + sum(seen for _, seen in t)),
        ),
        Mistake(
            "without a cache there is a turn too many: a prompt is read once for each reply",
            _reads(lambda o, t: sum(_prompts(o, t))),
        ),
        Mistake(
            "without a cache the earlier replies are read again too: they are part of the next prompt",
            _reads(lambda o, t: sum(_prompts(o, [(0, seen) for _, seen in t])[:-1])),
        ),
        Mistake(
            "with a cache the replies are counted: they are in it already, since they were sampled there",
            _reads(cached=lambda o, t: o + sum(sum(x) for x in t[:-1])),
        ),
        Mistake("with a cache the opening is read once, too", _reads(cached=lambda o, t: _cached(o, t) - o)),
        Mistake(
            "without a cache the opening is read in every turn, not only in the first",
            _reads(lambda o, t: _again(o, t) - o * (len(t) - 1)),
        ),
        Mistake("the two numbers are swapped: first without a cache, then with one", lambda o, t: _reads()(o, t)[::-1]),
    ),
)

# -- stop_reason(success, done, rounds, max_rounds, length, max_new_tokens, max_length) -> str | None ----------------------------------

Stop = Callable[[bool, bool, int, int, int, int, int], str | None]


def _stop(
    order: Sequence[str] = ("success", "failure", "max_rounds", "context_full"), *, late: int = 0, reply: int = 1, spare: int = 0
) -> Stop:
    """Looks for reasons in ``order``; rounds count one more by ``late``, a reply is counted ``reply`` times, ``spare`` tokens stay free."""

    def reason(success: bool, done: bool, rounds: int, max_rounds: int, length: int, new: int, room: int) -> str | None:
        holds = {
            "success": success,
            "failure": done,
            "max_rounds": rounds >= max_rounds + late,
            "context_full": length + reply * new > room - spare,
        }
        return next((name for name in order if holds[name]), None)

    return reason


stop_reason = Check(
    "stop_reason",
    _stop(),
    (
        Case("an episode in the middle", (False, False, 3, 10, 500, 64, 1024)),
        Case("a goal that is reached in the last round", (True, True, 10, 10, 500, 64, 1024)),
        Case("an episode that the environment ends without success, in the last round", (False, True, 10, 10, 500, 64, 1024)),
        Case("the limit on rounds", (False, False, 10, 10, 500, 64, 1024)),
        Case("the limit on rounds with a full context", (False, False, 10, 10, 1000, 64, 1024)),
        Case("a reply that just fits", (False, False, 3, 10, 960, 64, 1024)),
        Case("a reply that might not fit", (False, False, 3, 10, 961, 64, 1024)),
        Case("a goal that is reached with a full context", (True, True, 3, 10, 1000, 64, 1024)),
        Case("an observation that is too long in itself", (False, False, 3, 10, 1100, 64, 1024)),
    ),
    (
        Mistake(
            "the limits are looked at before the environment's verdict: a goal that is reached in the last round is a success",
            _stop(("max_rounds", "context_full", "success", "failure")),
        ),
        Mistake(
            "the context is looked at first: an episode that has ended needs no room for another reply",
            _stop(("context_full", "success", "failure", "max_rounds")),
        ),
        Mistake(
            "a full context is named before the limit on rounds: no reply would have followed anyway",
            _stop(("success", "failure", "context_full", "max_rounds")),
        ),
        Mistake(
            "`done` is asked before `success`: a success is `done` as well and would count as a failure",
            _stop(("failure", "success", "max_rounds", "context_full")),
        ),
        Mistake("one round too many: after `max_rounds` rounds no other may begin", _stop(late=1)),
        Mistake(
            "only the context is compared with the limit: the next reply must fit too, or it is cut in the middle",
            _stop(reply=0),
        ),
        Mistake("a reply that just fits is not begun: a row may be exactly `max_length` long", _stop(spare=1)),
        Mistake("the context is never looked at: the row would outgrow the model's limit", _stop(("success", "failure", "max_rounds"))),
    ),
)

# -- turn_spans(action_mask, turn_ids) -> [(start, end), ...] --------------------------------------------------------------------------

Spans = list[tuple[int, int]]


def _spans(keep: Callable[[int, int], bool], *, end: int = 1) -> Callable[[Sequence[int], Sequence[int]], Spans]:
    """First and last place of each turn's tokens for which ``keep(mask, turn)`` holds, plus ``end``."""

    def spans(mask: Sequence[int], turns: Sequence[int]) -> Spans:
        places: dict[int, list[int]] = {}
        for i, (m, turn) in enumerate(zip(mask, turns, strict=True)):
            if keep(m, turn):
                places.setdefault(turn, []).append(i)
        return [(p[0], p[-1] + end) for p in places.values()]

    return spans


def _runs(mask: Sequence[int], turns: Sequence[int]) -> Spans:
    """Unbroken stretches of sampled tokens, whatever their turn."""
    out, at = [], 0
    for value, run in groupby(mask):
        n = len(list(run))
        if value:
            out.append((at, at + n))
        at += n
    return out


def _lengths(mask: Sequence[int], turns: Sequence[int]) -> Spans:
    return [(start, end - start) for start, end in turn_spans.right(mask, turns)]


turn_spans = Check(
    "turn_spans",
    _spans(lambda m, turn: bool(m)),
    (
        Case("two turns with an observation between them", ([0, 0, 1, 1, 0, 0, 0, 1], [-1, -1, 0, 0, 1, 1, 1, 1])),
        Case("two replies that stand side by side", ([0, 1, 1, 1, 1, 1], [-1, 0, 0, 1, 1, 1])),
        Case("an observation that nobody answered", ([0, 1, 0, 0], [-1, 0, 1, 1])),
        Case("an opening alone", ([0, 0], [-1, -1])),
    ),
    (
        Mistake(
            "observations are inside the spans: they carry the number of the turn that answers them, so ask the mask as well",
            _spans(lambda m, turn: turn >= 0),
        ),
        Mistake("the opening counts as a turn: its number is -1, and nothing of it was sampled", _spans(lambda m, turn: True)),
        Mistake("the end is that of the last token itself: it is exclusive, as in a slice", _spans(lambda m, turn: bool(m), end=0)),
        Mistake(
            "two replies that stand side by side are one: a new turn begins where the number changes, even without an observation between",
            _runs,
        ),
        Mistake("these are the places that were not sampled: 1 in the mask means sampled", _spans(lambda m, turn: not m)),
        Mistake("this is start and length: start and end are asked for", _lengths),
    ),
)

# -- waiting(seconds) -> (with a barrier, without) -------------------------------------------------------------------------------------

Seconds = Sequence[Sequence[float]]


def _barrier(seconds: Seconds) -> float:
    return sum(max(step) for step in zip_longest(*seconds, fillvalue=0.0))


def _free(seconds: Seconds) -> float:
    return max(sum(episode) for episode in seconds)


def _mean_of(values: Sequence[float]) -> float:
    return sum(values) / len(values)


waiting = Check(
    "waiting",
    lambda seconds: (_barrier(seconds), _free(seconds)),
    (
        Case("two episodes that are slow in turn", ([[1.0, 3.0], [3.0, 1.0]],)),
        Case("three episodes of different length", ([[2.0], [1.0, 1.0, 4.0], [3.0, 0.5]],)),
        Case("a single episode", ([[1.0, 2.0, 4.0]],)),
    ),
    (
        Mistake(
            "this is the time of one episode after the other: they are played side by side",
            lambda s: (sum(map(sum, s)), sum(map(sum, s))),
        ),
        Mistake("the two numbers are swapped: first with a barrier, then without", lambda s: (_free(s), _barrier(s))),
        Mistake("both are the time with a barrier: without one nobody waits for the others", lambda s: (_barrier(s), _barrier(s))),
        Mistake(
            "both are the time without a barrier: with one, every round lasts as long as its slowest episode",
            lambda s: (_free(s), _free(s)),
        ),
        Mistake(
            "the barrier stops with the shortest episode: the others play on (`zip` ends with the shortest list)",
            lambda s: (sum(max(step) for step in zip(*s, strict=False)), _free(s)),
        ),
        Mistake(
            "a round with a barrier lasts as long as its slowest episode, not as the mean",
            lambda s: (sum(_mean_of(x) for x in zip_longest(*s, fillvalue=0.0)), _free(s)),
        ),
        Mistake(
            "without a barrier it lasts as long as the slowest episode, not as the mean",
            lambda s: (_barrier(s), _mean_of([sum(e) for e in s])),
        ),
    ),
)
