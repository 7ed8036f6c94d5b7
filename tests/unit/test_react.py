"""The ReAct format: layouts that are read, mistakes that are named, and time that grows with the length of the reply only."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_envs.agents import Decision
from agentgym_envs.core import Observation
from agentgym_lite.agents import AgentPolicy, ParsedAction, ReAct, opening_messages

REACT = ReAct()
PIECES = ["Action:", "action :", "Thought:", "\n", " ", "`", '"', "'", "**", "<|im_end|>", "go"]


@pytest.mark.parametrize(
    ("reply", "thought", "action"),
    [
        ("Thought: I need logs.\nAction: get 1 oak log", "I need logs.", "get 1 oak log"),
        ("Thought:\nI need logs.\n\nAction:\nget 1 oak log", "I need logs.", "get 1 oak log"),
        ("Thought:\nI need logs.\n\nAction:\n\n  get 1 oak log  \nand then craft", "I need logs.", "get 1 oak log"),
        ("thought: a\nACTION: go", "a", "go"),
        ("Thought: a. Action: go", "a.", "go"),
        ("**Thought:** a\n**Action:** go", "a", "go"),
        ("I will go.\nAction : go", "I will go.", "go"),
        ("Action: go", "", "go"),
        ("Thought: my last action: none\nAction: go", "my last action: none", "go"),
        ("Thought: a\nb\nc\nAction: go\nObservation: you went", "a\nb\nc", "go"),
        ("Action: `go`", "", "go"),
        ("Action:\n```\ngo\n```", "", "go"),
        ('Action: "go"', "", "go"),
        ('Action: "go', "", "go"),
        ("Action: go'", "", "go"),
        ('Action: say "hi" to "you"', "", 'say "hi" to "you"'),
        ('Action: say "hi"', "", 'say "hi"'),
        ("Action: open the cook's door", "", "open the cook's door"),
        ("Action: go</s>", "", "go"),
        ("Action: go<|im_end|>", "", "go"),
        ("Action: go <|endoftext|><|im_start|>user", "", "go"),
        ("Action: inventory.", "", "inventory."),
        ("Thought: \u00e9\u4e16\nAction: \u00e9\u4e16", "\u00e9\u4e16", "\u00e9\u4e16"),
    ],
)
def test_layouts_that_are_read(reply: str, thought: str, action: str) -> None:
    assert REACT.parse(reply) == ParsedAction(action, thought)


@pytest.mark.parametrize(
    ("reply", "wrong"),
    [
        ("", "no 'Action:'"),
        ("Thought: I think.", "no 'Action:'"),
        ("get 1 oak log", "no 'Action:'"),
        ("Reaction: get 1 oak log", "no 'Action:'"),
        ("Action: a\nAction: b", "2 actions"),
        ("Thought: a\nAction: a\nThought: b\naction: b\nAction: c", "3 actions"),
        ("Thought: a Action: b Action: c", "2 actions"),
        ("Action:", "nothing after"),
        ("Thought: a\nAction: \n\n ``` \n", "nothing after"),
        ("Action: <|im_end|>", "nothing after"),
    ],
)
def test_mistakes_are_named_and_the_form_is_shown(reply: str, wrong: str) -> None:
    parsed = REACT.parse(reply)
    assert parsed.action is None
    assert parsed.error is not None
    assert wrong in parsed.error
    assert parsed.error.endswith("Thought: <why>\nAction: <one action>")


def test_render_is_the_one_line_layout() -> None:
    assert REACT.render("I need logs.", "get 1 oak log") == "Thought: I need logs.\nAction: get 1 oak log"
    assert REACT.render("", "go") == "Action: go"


@settings(deadline=None)
@given(
    thought=st.text(st.characters(exclude_characters=":*_#>"), max_size=40).map(str.strip),
    action=st.from_regex(r"[a-z]+( [a-z0-9\[\],()]+){0,4}", fullmatch=True),
)
def test_parse_gives_back_what_render_wrote(thought: str, action: str) -> None:
    assert REACT.parse(REACT.render(thought, action)) == ParsedAction(action, thought)


@settings(deadline=None)
@given(st.text() | st.lists(st.sampled_from(PIECES)).map("".join))
def test_any_text_is_read_without_an_exception(reply: str) -> None:
    parsed = REACT.parse(reply)
    assert (parsed.action is None) != (parsed.error is None)
    if parsed.action is not None:
        assert parsed.action == parsed.action.strip()
        assert parsed.action
        assert "\n" not in parsed.action


@pytest.mark.parametrize("unit", [*PIECES, "*", "Action", "Action ", "action:\n", " \n", "<|", "</s", "\u4e16", "# > * ", "_ "])
def test_a_megabyte_takes_linear_time(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    start = time.process_time()
    for reply in (text, "Action: " + text, "Thought: " + text + "\nAction: go", text + "x"):
        parsed = REACT.parse(reply)
        assert len(parsed.error or "") < 200
    assert time.process_time() - start < 3.0  # quadratic time would be hours


class Scripted:
    """Says what it was told; keeps what it was shown."""

    def reset(self, observation: Observation, render: Callable[[], dict[str, Any]]) -> None:
        self.seen = [observation.text, render()["kind"]]

    def act(self, observation: Observation) -> Decision:
        self.seen.append(observation.text)
        return Decision("go", "a door")


def test_policies_speak_in_replies_of_the_format() -> None:
    agent = Scripted()
    policy = AgentPolicy(agent)
    policy.reset(Observation("start"), lambda: {"kind": "test"})
    assert policy.act(Observation("next")) == "Thought: a door\nAction: go"
    assert agent.seen == ["start", "test", "next"]


def test_opening_messages_are_instructions_and_first_observation() -> None:
    class Env:
        instructions = "rules"

    expected = [{"role": "system", "content": "rules"}, {"role": "user", "content": "a door"}]
    assert opening_messages("rules", "a door") == expected
    assert opening_messages(Env, Observation("a door")) == expected
