"""Reading the action out of a whole reply."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_envs.facades.replies import action_in, marked_action


@pytest.mark.parametrize(
    ("env", "reply", "action"),
    [
        ("textcraft", "inventory", "inventory"),
        ("textcraft", "Thought: look\nAction: get 1 oak log", "get 1 oak log"),
        ("textcraft", "Thought:\nlook\n\nAction:\nget 1 oak log\n\nand more", "get 1 oak log"),
        ("textcraft", "**Action:** inventory<|im_end|>", "inventory"),
        ("textcraft", "Action: a\nAction: b", "b"),
        ("textcraft", "Action:", ""),
        ("searchqa", "<think>who?</think><search>Ada</search><answer>x</answer>", "<search>Ada</search>"),
        ("searchqa", "Thought: x\nAction: <answer>Ada</answer>", "<answer>Ada</answer>"),
        ("searchqa", "search[Ada]", "search[Ada]"),
        ("webarena", "In summary, the next action I will perform is ```click [4]```", "click [4]"),
        ("webarena", "Thought: x\nAction: click [4]", "click [4]"),
        ("textcraft", "```inventory```", "```inventory```"),
    ],
)
def test_by_hand(env: str, reply: str, action: str) -> None:
    assert action_in(env, reply) == action


def test_environments_without_marks_have_no_marked_action() -> None:
    assert marked_action("textcraft", "```inventory```") is None
    assert marked_action("webarena", "no block") is None


@given(st.sampled_from(["textcraft", "searchqa", "webarena"]), st.text(alphabet="Action:<search>/`\n |ab", max_size=60))
def test_any_reply_is_read_without_an_error(env: str, reply: str) -> None:
    assert isinstance(action_in(env, reply), str)


@given(st.text(alphabet="abc 123", min_size=1).map(str.strip).filter(bool))
def test_a_bare_action_stays_as_it_is(action: str) -> None:
    assert action_in("textcraft", action) == action_in("textcraft", f"Thought: t\nAction: {action}") == action
