"""Action formats: layouts that are read, mistakes that are named, round trips of experts' actions, and 10,000 strings of rubbish."""

from __future__ import annotations

import builtins
import json
import os
import random
import re
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_envs.agents import expert
from agentgym_envs.core import environment_class, make, names
from agentgym_lite.agents import Backticks, CodeAction, FunctionCall, ParsedAction, SearchTags, make_scaffold
from agentgym_lite.agents.formats import ActionFormat, without_react_form
from agentgym_lite.agents.scaffold import FORMATS

JSON, CODE, TAGS, TICKS = FunctionCall.for_env("textcraft"), CodeAction.for_env("textcraft"), SearchTags(), Backticks()
CRAFT = "craft 4 oak planks using 1 oak log"


@pytest.mark.parametrize(
    ("form", "reply", "thought", "action"),
    [
        (JSON, '{"thought": "wood", "name": "get", "arguments": {"count": 2, "item": "oak log"}}', "wood", "get 2 oak log"),
        (JSON, '{"name": "inventory"}', "", "inventory"),
        (JSON, 'I call:\n```json\n{"name": "act", "arguments": {"action": "get 1 oak log"}}\n```', "", "get 1 oak log"),
        (JSON, '{"name": "act", "arguments": {"action": " get  1\\noak log "}}<|im_end|>', "", "get 1 oak log"),
        (
            JSON,
            '{"name": "craft", "arguments": {"ingredients": "1 oak log", "item": "oak planks", "count": 4}, "thought": "\u4e16"}',
            "\u4e16",
            CRAFT,
        ),
        (CODE, '# wood\nget(count=2, item="oak log")', "wood", "get 2 oak log"),
        (CODE, "get(2, 'oak log')", "", "get 2 oak log"),
        (CODE, "get(2, item='oak log')  # now", "", "get 2 oak log"),
        (CODE, "I need wood.\n```python\n# a\n# b\ninventory()\n```\n", "I need wood.\na\nb", "inventory"),
        (CODE, "craft(4, 'oak planks', '1 oak log')</s>", "", CRAFT),
        (TAGS, "<think>who?</think>\n<search>first man on the moon</search>", "who?", "<search>first man on the moon</search>"),
        (
            TAGS,
            "<think>I may <search>x</search></think><answer> Neil\nArmstrong </answer>",
            "I may <search>x</search>",
            "<answer>Neil Armstrong</answer>",
        ),
        (TAGS, "it is he <answer>Neil</answer><|im_end|>", "it is he", "<answer>Neil</answer>"),
        (SearchTags.for_env("babyai"), "<think>a</think><action>turn left</action>", "a", "turn left"),
        (TICKS, "There is a link.\nNext action: ```click [12]```", "There is a link.", "click [12]"),
        (TICKS, "```\ntype [3] [a] [1]\n```\ndone", "", "type [3] [a] [1]"),
    ],
)
def test_layouts_that_are_read(form: ActionFormat, reply: str, thought: str, action: str) -> None:
    assert form.parse(reply) == ParsedAction(action, thought)


@pytest.mark.parametrize(
    ("form", "reply", "wrong"),
    [
        (JSON, "get 1 oak log", "no JSON object"),
        (JSON, '{"name": "get", "arguments": {"count": 1', "not valid JSON"),
        (JSON, '{"name": "get", "name": "craft"}', "not valid JSON"),
        (JSON, '{"name": "get", "arguments": {"count": NaN, "item": "a"}}', "not valid JSON"),
        (JSON, "{" + '"a":[' * 100_000, "not valid JSON"),
        (JSON, '{"name": "inventory"} {"name": "inventory"}', "more than one"),
        (JSON, '{"name": "inventory", "thought": 3}', "'thought' must be text"),
        (JSON, '{"name": "inventory", "arguments": []}', "'arguments' an object"),
        (JSON, '{"name": "fly"}', "no such function. Functions: get, craft, inventory, act"),
        (JSON, '{"name": ["get"]}', "no such function"),
        (JSON, '{"name": "get", "arguments": {"count": "2", "item": "a"}}', "'count' must be a whole number. Call it as get(count: int"),
        (JSON, '{"name": "get", "arguments": {"count": true, "item": "a"}}', "'count' must be a whole number"),
        (JSON, '{"name": "get", "arguments": {"count": 2, "item": " "}}', "'item' must be text"),
        (JSON, '{"name": "get", "arguments": {"item": "a"}}', "Wrong arguments"),
        (JSON, '{"name": "inventory", "arguments": {"item": "a"}}', "Wrong arguments"),
        (CODE, "", "found 0 statements"),
        (CODE, "get(", "not valid Python"),
        (CODE, "a\x00b", "not valid Python"),
        (CODE, "get(1, 'a')\nget(1, 'b')", "found 2 statements"),
        (CODE, "x = get(1, 'a')", "Expected a call"),
        (CODE, "get", "Expected a call"),
        (CODE, "os.system('true')", "no such function"),
        (CODE, "__import__('os')", "no such function"),
        (CODE, "get(1, open('x').read())", "must be literal"),
        (CODE, "get(1, 'a' * 10**9)", "must be literal"),
        (CODE, "get(*[1, 'a'])", "must be literal"),
        (CODE, "get(1, **{'item': 'a'})", "Wrong arguments"),
        (CODE, "get(1, 'a', 'b')", "Wrong arguments"),
        (CODE, "get(1, count=1)", "Wrong arguments"),
        (CODE, "get(1, ['a'])", "'item' must be text"),
        (CODE, "get(" + "9" * 5000 + ", 'a')", "too long"),
        (CODE, "-" * 3990 + "1", "not valid Python"),
        (CODE, "```a()```b()```", "more than one block"),
        (TAGS, "who?", "0 action tags"),
        (TAGS, "<search>a</search><answer>b</answer>", "2 action tags"),
        (TAGS, "<search>a", "not closed"),
        (TAGS, "<search>a</answer>", "not closed"),
        (TAGS, "</search>a<search>", "not closed"),
        (TAGS, "<search> \n </search>", "empty"),
        (TAGS, "<action>turn left</action>", "0 action tags"),
        (TICKS, "click [12]", "no action between"),
        (TICKS, "```click [12]", "no action between"),
        (TICKS, "```a``` or ```b```", "more than one block"),
        (TICKS, "``` \n ```", "Nothing stands"),
    ],
)
def test_mistakes_are_named_and_the_form_is_shown(form: ActionFormat, reply: str, wrong: str) -> None:
    parsed = form.parse(reply)
    assert parsed.action is None
    assert wrong in str(parsed.error)
    assert getattr(form, "example", "exactly one action as") in str(parsed.error)


@pytest.mark.parametrize(
    ("env", "action", "name"),
    [
        ("searchqa", "<search>who wrote it</search>", "search"),
        ("searchqa", "<answer>42</answer>", "answer"),
        ("webarena", "click [12]", "click"),
        ("webarena", "type [3] [red [old] shoes] [1]", "type"),
        ("webarena", "stop []", "act"),
        ("webarena", "go_back", "go_back"),
        ("sciworld", "pour cup into sink", "act"),
        ("babyai", "toggle and go through red door 1", "toggle_and_go_through"),
        ("babyai", "go through red door 1", "go_through"),
    ],
)
def test_actions_are_translated_to_functions_and_back(env: str, action: str, name: str) -> None:
    for form in (FunctionCall.for_env(env), CodeAction.for_env(env)):
        reply = form.render("why", action)
        assert re.search(rf"\b{name}\b", reply)
        assert form.parse(reply) == ParsedAction(action, "why")


def test_render_by_hand() -> None:
    assert json.loads(JSON.render("wood", "get 2 oak log")) == {
        "thought": "wood",
        "name": "get",
        "arguments": {"count": 2, "item": "oak log"},
    }
    assert json.loads(JSON.render("", "craft oak planks using 1 oak log"))["name"] == "act"  # no count: not what the function writes
    assert CODE.render("a\nb", CRAFT) == "# a\n# b\ncraft(count=4, item='oak planks', ingredients='1 oak log')"
    assert TAGS.render("who?", "<search>moon</search>") == "<think>who?</think>\n<search>moon</search>"
    assert TICKS.render("", "click [1]") == "Next action: ```click [1]```"
    with pytest.raises(ValueError, match="expected an action such as <search>"):
        TAGS.render("", "turn left")


@pytest.mark.parametrize("name", FORMATS)
@settings(deadline=None, max_examples=30)
@given(
    thought=st.from_regex(r"([A-Za-z][a-z ,.'\"]{0,20}[a-z.])?", fullmatch=True),
    action=st.from_regex(r"[a-z]+( [a-z0-9\[\],()'\"]+){0,4}", fullmatch=True).filter(lambda a: a.count('"') + a.count("'") == 0),
)
def test_parse_gives_back_what_render_wrote(name: str, thought: str, action: str) -> None:
    form = FORMATS[name]("babyai")
    assert form.parse(form.render(thought, action)) == ParsedAction(action, thought)


@pytest.mark.parametrize("env", ["textcraft", "babyai"])
@pytest.mark.parametrize("name", FORMATS)
def test_an_expert_reaches_the_goal_in_every_format(name: str, env: str) -> None:
    form, world, agent = FORMATS[name](env), make(env), expert(env)
    calls = set()
    for item in environment_class(env).items("train")[:40:20]:
        observation = world.reset(item)
        agent.reset(observation, world.render)
        for _ in range(40):
            decision = agent.act(observation)
            reply = form.render(decision.thought, decision.action)
            parsed = form.parse(reply)
            assert (parsed.action, parsed.thought) == (decision.action, decision.thought.strip())
            calls.add(reply)
            result = world.step(str(parsed.action))
            observation = result.observation
            if result.done:
                break
        assert result.info["success"]
    if name == "function_call":
        assert not any('"name": "act"' in c for c in calls)  # each of the expert's actions has a function of its own


@pytest.mark.parametrize("env", names())
@pytest.mark.parametrize("name", FORMATS)
def test_the_system_prompt_asks_for_one_format_only(name: str, env: str) -> None:
    instructions = environment_class(env).instructions
    prompt = make_scaffold(name).dialogue(env, instructions)._system
    if name == "react":
        assert prompt == instructions
    else:
        assert "Thought:" not in prompt
        assert "Action:" not in prompt
        assert prompt.endswith(FORMATS[name](env).reply_rules)
        kept = without_react_form(instructions)
        assert len(kept) > 0.5 * len(instructions)
        assert all(line in instructions for line in kept.splitlines())


def test_what_stands_around_the_react_form_stays() -> None:
    assert without_react_form("Do it. Reply so:\nThought: a\nAction: b\nActions: c, d.") == "Do it.\nActions: c, d."
    assert without_react_form("Do it.\nReply so:\nThought: a\nAction: b") == "Do it."
    assert without_react_form("Do it.") == "Do it."


def rubbish(rng: random.Random) -> str:
    """Pieces of all formats in any order, cut anywhere, and any characters."""
    tags = [f"<{slash}{tag}>" for slash in ("", "/") for tag in ("think", "search", "answer", "action")]
    marks = [*tags, "Thought:", "Action:", "```", "```python", "<|im_end|>"]
    code = ["get(", "act('x')", "inventory()", "__import__('os').system('true')", "exec('1')", "lambda: 0", "# ", "=", "**", "*", "\\"]
    json_ = ['{"name": "act", "arguments": {"action": "x"}}', '"name"', '"get"', '"arguments"', "1e999", "NaN", "\\u00", *"{}[]():,"]
    pieces = [*marks, *code, *json_, *"-'\" \n\x00\ud800\u202e\U0001f600"]
    text = "".join(rng.choice(pieces) if rng.random() < 0.9 else chr(rng.randrange(0x110000)) for _ in range(rng.randrange(25)))
    return text[: rng.randrange(len(text) + 1)] if rng.random() < 0.3 else text


def test_ten_thousand_strings_are_read_without_an_exception_and_never_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("something that the agent wrote was run")

    forms = [FORMATS[name]("textcraft") for name in FORMATS]
    rng = random.Random(0)
    texts = [rubbish(rng) for _ in range(10_000)]
    monkeypatch.setattr(builtins, "eval", never)
    monkeypatch.setattr(builtins, "exec", never)
    monkeypatch.setattr(os, "system", never)
    read = 0
    for text in texts:
        for form in forms:
            parsed = form.parse(text)
            assert (parsed.action is None) != (parsed.error is None)
            if parsed.action is not None:
                read += 1
                assert parsed.action.strip() == parsed.action != ""
                assert "\n" not in parsed.action
            else:
                assert len(str(parsed.error)) < 400  # says what is wrong without repeating the reply
    assert read > 100


@pytest.mark.parametrize("unit", ["{", '{"a":', "<search>", "</think>", "```", "get(", "# \n", "<search></search>", "[", "-", "'"])
@pytest.mark.parametrize("name", [n for n in FORMATS if n != "react"])
def test_long_replies_take_linear_time(name: str, unit: str) -> None:
    text, form = unit * (200_000 // len(unit)), FORMATS[name]("textcraft")
    start = time.process_time()
    assert form.parse(text).error
    assert time.process_time() - start < 2.0


def test_formats_choose_by_environment() -> None:
    check: Callable[[str, str], ActionFormat] = lambda name, env: make_scaffold(name).formats(env)  # noqa: E731
    assert "<search>" in check("search_tags", "searchqa").reply_rules
    assert "<action>" in check("search_tags", "babyai").reply_rules
    assert "toggle_and_go_through(door: str)" in check("function_call", "babyai").reply_rules
    assert "act(action: str)" in check("code", "sciworld").reply_rules
