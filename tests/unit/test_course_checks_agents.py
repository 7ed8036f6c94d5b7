"""Checks of lesson 09 against numbers worked out by hand, and against the agents of the library."""

from __future__ import annotations

import pytest

from agentgym_lite.agents import FunctionCall, make_scaffold
from agentgym_lite.course import checks
from agentgym_lite.course.checks.check import Case


@pytest.mark.parametrize("case", checks.read_call.cases, ids=lambda c: c.why)
def test_a_call_is_read_as_the_library_does(case: Case) -> None:
    assert checks.read_call.right(*case.args) == FunctionCall.for_env("textcraft").parse(*case.args).action


def test_eval_is_not_a_reader() -> None:
    def handed_in(reply: str) -> str:
        call = eval(reply)  # what must never be done with a model's text
        return f"get {call['arguments']['count']} {call['arguments']['item']}"

    result = checks.read_call(handed_in)
    assert result.status == "error"
    assert "raised SyntaxError" in result.message


@pytest.mark.parametrize("k", [1, 2, 3])
def test_rows_of_a_window_are_those_that_a_dialogue_rewrites(k: int) -> None:
    dialogue = make_scaffold(memory=f"window:{k}").dialogue("babyai", "rules")
    dialogue.begin("first")
    rows, row = [], -1
    for turn in range(6):
        row += dialogue.rewritten
        dialogue.rewritten = False
        rows.append(row)
        dialogue.add_reply("Action: turn left")
        dialogue.observe(f"observation {turn}")
    assert checks.window_rows.right(6, k) == rows


def test_what_is_credited_by_hand() -> None:
    assert checks.credited.right([0, 0, 1, 1], [0.25, 0.0, 0.5, 0.5]) == [0.0, 0.0, 0.5, 0.5]


def test_luck_by_hand() -> None:
    assert checks.luck.right(0.2, 3) == pytest.approx(1 - 0.8**3)
    assert checks.luck.right(0.5, 2) == pytest.approx(0.75)
