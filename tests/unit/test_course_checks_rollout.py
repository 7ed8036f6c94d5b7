"""Checks of lesson 02: numbers by hand, and agreement with the library's collector and rows."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentgym_lite.course import checks
from agentgym_lite.rollout.types import TokenRow

lengths = st.integers(1, 30)


def test_tokens_by_hand() -> None:
    assert checks.tokens_read.right(100, [(40, 20)] * 3) == (480, 140)


@given(lengths, st.lists(st.tuples(lengths, lengths), min_size=1, max_size=6))
def test_tokens_read_are_those_of_a_row(opening: int, turns: list[tuple[int, int]]) -> None:
    """With a cache: what was not sampled. Without: the prompt in front of each reply."""
    row, starts = TokenRow(), []
    row.append_context([1] * opening, -1)
    for k, (reply, observation) in enumerate(turns):
        starts.append(len(row))
        row.append_action([2] * reply, [-1.0] * reply, k)
        if k < len(turns) - 1:
            row.append_context([1] * observation, k + 1)
    assert checks.tokens_read.right(opening, turns) == (sum(starts), row.action_mask.count(0))


@given(lengths, st.lists(st.tuples(lengths, lengths), max_size=5))
def test_spans_are_those_of_a_row(opening: int, turns: list[tuple[int, int]]) -> None:
    row, spans = TokenRow(), []
    row.append_context([1] * opening, -1)
    for k, (observation, reply) in enumerate(turns):
        row.append_context([1] * (observation - 1), k)
        spans.append((len(row), len(row) + reply))
        row.append_action([2] * reply, [-1.0] * reply, k)
    assert checks.turn_spans.right(row.action_mask, row.turn_ids) == spans


def test_waiting_by_hand() -> None:
    assert checks.waiting.right([[1.0, 3.0], [3.0, 1.0]]) == (6.0, 4.0)
    assert checks.waiting.right([[2.0], [1.0, 1.0, 4.0]]) == (7.0, 6.0)


@given(st.lists(st.lists(st.integers(0, 9).map(float), min_size=1, max_size=4), min_size=1, max_size=4))
def test_a_barrier_never_saves_time(seconds: list[list[float]]) -> None:
    barrier, free = checks.waiting.right(seconds)
    assert barrier >= free == max(map(sum, seconds))


def test_reasons_by_hand() -> None:
    right = checks.stop_reason.right
    assert right(True, True, 10, 10, 2000, 64, 1024) == "success"
    assert right(False, True, 10, 10, 2000, 64, 1024) == "failure"
    assert right(False, False, 10, 10, 2000, 64, 1024) == "max_rounds"
    assert right(False, False, 9, 10, 961, 64, 1024) == "context_full"
    assert right(False, False, 9, 10, 960, 64, 1024) is None


def test_what_learners_write_is_named() -> None:
    def by_mask_alone(mask: Any, turns: Any) -> Any:
        starts = [i for i, m in enumerate(mask) if m and (i == 0 or not mask[i - 1])]
        ends = [i + 1 for i, m in enumerate(mask) if m and (i + 1 == len(mask) or not mask[i + 1])]
        return list(zip(starts, ends, strict=True))

    assert "side by side are one" in checks.turn_spans(by_mask_alone).message
    assert "one episode after the other" in checks.waiting(lambda s: (sum(map(sum, s)),) * 2).message
    assert checks.stop_reason(lambda *args: None).status == "wrong"
