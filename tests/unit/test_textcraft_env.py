"""The TextCraft environment: an episode by hand, every kind of refusal, determinism, and arbitrary text."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_envs import StepResult, UnknownItem, make
from agentgym_envs.textcraft import Recipes, TextCraft

BOOK = Recipes(
    [
        ("oak planks", 4, {"oak log": 1}),
        ("birch planks", 4, {"birch log": 1}),
        ("barrel", 1, {"oak planks": 1, "boards": 6}),
        ("birch gate", 1, {"birch planks": 2, "planks": 2}),
        ("chest", 1, {"planks": 8}),
        ("torch", 4, {"coals": 1, "oak planks": 1}),
    ],
    {"planks": ["oak planks", "birch planks"], "boards": ["oak planks", "birch planks"], "coals": ["coal", "charcoal"]},
)
GOALS = {goal.name: index for index, goal in enumerate(BOOK.goals)}


def start(goal: str, distractors: int = 4) -> TextCraft:
    env = TextCraft(distractors=distractors, book=BOOK)
    env.reset(GOALS[goal])
    return env


def play(env: TextCraft, *actions: str) -> StepResult:
    for action in actions:
        result = env.step(action)
    return result


def test_first_observation_by_hand() -> None:
    observation = TextCraft(distractors=0, book=BOOK).reset(GOALS["chest"])
    head, *commands, tag, blank, goal = observation.text.split("\n")
    assert (head, tag, blank, goal) == ("Crafting commands:", "planks: oak planks", "", "Goal: craft chest.")
    assert sorted(commands) == ["craft 1 chest using 8 planks", "craft 4 oak planks using 1 oak log"]
    assert observation.actions == ("get 1 oak log", "inventory")


def test_a_tag_line_names_what_the_goal_needs_anyway_first() -> None:
    lines = TextCraft(distractors=5, book=BOOK).reset(GOALS["birch gate"]).text.splitlines()
    assert "planks: birch planks, oak planks" in lines
    assert "coals: coal, charcoal" in lines


def test_an_episode_by_hand() -> None:
    env = start("chest", distractors=0)
    steps = [
        ("get 2 oak log", "Got 2 oak log", {"oak log": 2}),
        ("craft 4 oak planks using 1 oak log", "Crafted 4 oak planks", {"oak log": 1, "oak planks": 4}),
        ("craft oak planks using 1 oak log", "Crafted 4 oak planks", {"oak planks": 8}),
        ("inventory", "Inventory: 8 oak planks", {"oak planks": 8}),
    ]
    for action, text, inventory in steps:
        result = env.step(action)
        assert (result.observation.text, result.reward, result.done) == (text, 0.0, False)
        assert result.info == {"success": False, "invalid": False, "score": 0.0, "inventory": inventory}
    assert result.observation.actions == ("craft 1 chest using 8 oak planks", "get 1 oak log", "inventory")
    result = env.step("craft 1 chest using 8 oak planks")
    assert (result.observation.text, result.reward, result.done) == ("Crafted 1 chest", 1.0, True)
    assert result.info == {"success": True, "invalid": False, "score": 1.0, "inventory": {"chest": 1}}
    again = env.step("get 1 oak log")
    assert (again.observation.text, again.reward, again.done) == ("Crafted 1 chest", 0.0, True)
    assert again.info["invalid"]
    assert again.info["success"]
    assert again.info["inventory"] == {"chest": 1}


@pytest.mark.parametrize(
    "parts", ["8 oak planks", "4 oak planks, 4 birch planks", "1 birch planks,7 oak planks", "4 oak planks, 4 oak planks"]
)
def test_a_tag_takes_any_mix_of_its_members(parts: str) -> None:
    env = start("chest")
    wood = [f"craft {kind} planks using 1 {kind} log" for kind in ("oak", "oak", "birch")]
    result = play(env, "get 2 oak log", "get 1 birch log", *wood, f"craft 1 chest using {parts}")
    assert result.reward == 1.0


def test_an_item_named_outright_is_not_replaced_by_its_tag() -> None:
    env = start("barrel")  # 6 boards and 1 oak planks, which is one of the boards
    play(env, "get 2 birch log", "get 1 oak log", *["craft birch planks using 1 birch log"] * 2, "craft oak planks using 1 oak log")
    assert play(env, "craft barrel using 7 birch planks").info["invalid"]
    assert play(env, "craft barrel using 1 oak planks, 6 birch planks").reward == 1.0


@pytest.mark.parametrize(
    ("action", "text"),
    [
        ("get 3 stone", "Could not find stone."),
        ("get 1 chest", "Could not get chest: it is not a raw item, it has to be crafted."),
        ("get 0 oak log", "Could not get oak log: the count has to be from 1 to 9999."),
        ("get 10000 oak log", "Could not get oak log: the count has to be from 1 to 9999."),
        ("get 8 planks", "planks is not an item: name one of oak planks, birch planks."),
        ("craft 1 barrel using 7 oak planks", "Could not craft barrel: it is not among the crafting commands."),
        ("craft 1 chest using 8 planks", "planks is not an item: name one of oak planks, birch planks."),
        ("craft 1 chest using 7 oak planks", "Wrong amounts: the command is craft 1 chest using 8 planks."),
        ("craft 1 chest using 9 oak planks", "Wrong amounts: the command is craft 1 chest using 8 planks."),
        ("craft 1 chest using 8 oak log", "Wrong amounts: the command is craft 1 chest using 8 planks."),
        ("craft 1 chest using 8 oak planks, 1 oak log", "Wrong amounts: the command is craft 1 chest using 8 planks."),
        ("craft 2 chest using 8 oak planks", "Wrong amounts: the command is craft 1 chest using 8 planks."),
        ("craft 1 chest using 8 oak planks", "Could not find enough items to craft chest: missing 4 oak planks."),
        ("craft 1 chest using oak planks", "Could not read the ingredient oak planks: write its count and its name."),
        ("craft 1 rocket using 1 oak log", "Could not find rocket."),
        ("", "The action is empty"),
        (" \n\t. ", "The action is empty"),
        ("get oak log", "Could not execute get oak log: write 'get N item'"),
        ("get -1 oak log", "Could not execute get -1 oak log: write"),
        ("get ١ oak log", "Could not execute get ١ oak log: write"),
        ("get 1 oak log\nget 1 oak log", "Could not find oak log get 1 oak log."),
        ("open the door", "Could not execute open the door: write"),
    ],
)
def test_refusals_say_what_was_wrong_and_change_nothing(action: str, text: str) -> None:
    env = start("chest", distractors=0)
    before = play(env, "get 5 oak log", "craft oak planks using 1 oak log").info["inventory"]
    result = env.step(action)
    assert result.observation.text.startswith(text)
    assert (result.reward, result.done) == (0.0, False)
    assert result.info == {"success": False, "invalid": True, "score": 0.0, "inventory": before}


@pytest.mark.parametrize("action", ["GET 2  Oak   LOG", "get 2 oak_log.", "`get 2 oak log`", "  get 2 oak log\n"])
def test_case_blanks_and_trailing_marks_are_forgiven(action: str) -> None:
    assert play(start("chest"), action).observation.text == "Got 2 oak log"


def test_huge_and_strange_actions_get_one_short_line() -> None:
    env = start("chest")
    for action in ("x" * 1_000_000, "get 1 " + "\U0001f600" * 400, "craft 1 a\x00\ud800b using \u202e", "get " + "9" * 480 + " oak log"):
        text = env.step(action).observation.text
        assert len(text) < 200
        assert text.isprintable()


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.text(), st.from_regex(r"(get|craft) [0-9]{1,3} (oak|birch) (log|planks)( using [0-9] oak log)?"))))
def test_no_text_raises(actions: list[str]) -> None:
    env = start("chest")
    for action in actions:
        result = env.step(action)
        assert "\n" not in result.observation.text
        assert all(count > 0 for count in result.info["inventory"].values())


@settings(max_examples=50, deadline=None)
@given(st.integers(0, len(Recipes.default().goals) - 1), st.integers(0, 5), st.randoms(use_true_random=False))
def test_available_actions_are_accepted(index: int, seed: int, rng: random.Random) -> None:
    env = TextCraft()
    actions = env.reset(index, seed).actions
    for _ in range(25):
        result = env.step(rng.choice(actions))
        assert not result.info["invalid"]
        actions = result.observation.actions
        assert result.done == (not actions)
        if result.done:
            break


@settings(max_examples=50, deadline=None)
@given(st.integers(0, len(Recipes.default().goals) - 1), st.integers(0, 1000), st.integers(0, 10))
def test_listed_commands_are_the_tree_plus_distractors(index: int, seed: int, distractors: int) -> None:
    book, env = Recipes.default(), TextCraft(distractors=distractors)
    env.reset(index, seed)
    needed = {str(recipe) for recipe in book.tree(book.goals[index].name).recipes.values()}
    lines = [line for line in env.reset(index, seed).text.splitlines() if line.startswith("craft ")]
    outputs = [re.sub(r"craft [0-9]+ (.+) using .*", r"\1", line) for line in lines]
    assert needed <= set(lines)
    assert len(lines) == len(needed) + distractors
    assert len(set(outputs)) == len(outputs)  # one command per item


def test_the_seed_changes_the_list_and_nothing_else_does() -> None:
    env = make("textcraft")
    first = env.reset("textcraft_200", seed=1).text
    env.step("get 1 stick")
    assert env.reset(200, seed=1).text == first
    assert env.reset(200, seed=2).text != first


def test_observations_do_not_depend_on_the_hash_seed() -> None:
    program = (
        "import hashlib; from agentgym_envs.textcraft import TextCraft; env = TextCraft();"
        "texts = [repr(env.reset(i, seed)) + repr(env.render()) for i in range(551) for seed in (0, 7)];"
        "print(hashlib.sha256('|'.join(texts).encode()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program], check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": hash_seed}
        ).stdout
        for hash_seed in ("0", "1", "42")
    }
    assert len(digests) == 1


def test_prompts_are_short() -> None:
    env = TextCraft()
    lengths = [len(env.reset(index).text) for index in range(len(Recipes.default().goals))]
    assert sum(lengths) / len(lengths) < 450
    assert max(lengths) < 700
    assert len(TextCraft.instructions.split()) <= 60


def test_render_is_json_and_complete() -> None:
    env = start("chest", distractors=0)
    env.step("get 3 oak log")
    picture = json.loads(json.dumps(env.render()))
    assert picture["kind"] == "textcraft"
    assert picture["goal"] == "chest"
    assert picture["inventory"] == {"oak log": 3}
    assert {"output": "chest", "count": 1, "ingredients": {"planks": 8}} in picture["commands"]
    assert picture["tags"] == {"planks": ["oak planks"]}
    assert picture["tree"]["ingredients"][0]["item"] == "oak planks"
    assert picture["text"].endswith("Goal: craft chest.\n\nInventory: 3 oak log")


def test_items_and_tasks() -> None:
    assert TextCraft.task_of("textcraft_0") == "depth_1"
    assert TextCraft.task_of(550) == "depth_4"
    for wrong in (-1, 551, "babyai_0", "textcraft_x"):
        with pytest.raises(UnknownItem):
            TextCraft.task_of(wrong)
        with pytest.raises(UnknownItem):
            TextCraft().reset(wrong)


def test_misuse() -> None:
    with pytest.raises(ValueError, match="distractors >= 0, found -1"):
        TextCraft(distractors=-1)
    env = TextCraft()
    with pytest.raises(RuntimeError, match="call reset"):
        env.step("inventory")
    with pytest.raises(RuntimeError, match="call reset"):
        env.render()
    assert env.available_actions() == []
    env.close()
    env.close()
