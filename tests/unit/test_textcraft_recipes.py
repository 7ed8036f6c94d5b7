"""The recipe book: depths and trees by hand on a tiny book, the shipped data, and the script that makes it."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agentgym_envs.textcraft import Goal, Recipes, TextCraft

ROOT = Path(__file__).parents[2]
ROWS: list[tuple[str, int, dict[str, int]]] = [
    ("oak planks", 4, {"oak log": 1}),
    ("birch planks", 4, {"birch log": 1}),
    ("stick", 4, {"planks": 2}),
    ("torch", 4, {"coals": 1, "stick": 1}),
    ("birch fence", 3, {"birch planks": 4, "stick": 2}),
    ("chest", 1, {"planks": 8}),
]
TAGS = {"planks": ["oak planks", "birch planks"], "coals": ["coal", "charcoal"]}


def tiny(rows: list[tuple[str, int, dict[str, int]]] = ROWS, **options: Any) -> Recipes:
    return Recipes(rows, options.pop("tags", TAGS), **options)


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_textcraft", ROOT / "scripts" / "build_textcraft.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_depths_by_hand() -> None:
    expected = {"oak log": 0, "coals": 0, "oak planks": 1, "planks": 1, "stick": 2, "chest": 2, "torch": 3, "birch fence": 3}
    assert {name: tiny().depth(name) for name in expected} == expected


def test_depth_is_the_least_over_recipes() -> None:
    book = tiny([*ROWS, ("stick", 1, {"bamboo": 2})])
    assert (book.depth("stick"), book.depth("torch"), book.depth("birch fence")) == (1, 2, 2)
    assert [str(recipe) for recipe in book.recipes_for("stick")] == ["craft 1 stick using 2 bamboo", "craft 4 stick using 2 planks"]


def test_a_cycle_beside_a_way_out_is_harmless() -> None:
    rows = [("block", 1, {"ingot": 9}), ("ingot", 9, {"block": 1}), ("ingot", 1, {"ore": 1})]
    book = Recipes(rows)
    assert (book.depth("ingot"), book.depth("block")) == (1, 2)
    assert list(book.tree("block").recipes) == ["block", "ingot"]


def test_goals_are_ordered_by_depth_then_name_whatever_the_order_of_rows() -> None:
    names = ["birch planks", "oak planks", "chest", "stick", "birch fence", "torch"]
    for seed in range(5):
        rows = list(ROWS)
        random.Random(seed).shuffle(rows)
        book = tiny(rows)
        assert [goal.name for goal in book.goals] == names
        assert book.version == tiny().version


def test_version_changes_with_the_content() -> None:
    changed = [("oak planks", 5, {"oak log": 1}), *ROWS[1:]]
    assert tiny(changed).version != tiny().version


def test_ingredients_are_kept_deepest_first() -> None:
    assert str(tiny().recipes_for("torch")[0]) == "craft 4 torch using 1 stick, 1 coals"


def test_tree_fills_a_tag_with_what_is_needed_anyway() -> None:
    fence, chest = tiny().tree("birch fence"), tiny().tree("chest")
    assert fence.members == {"planks": "birch planks"}
    assert next(iter(fence.recipes)) == "birch fence"
    assert fence.recipes.keys() == {"birch fence", "stick", "birch planks"}  # no oak planks
    assert chest.members == {"planks": "oak planks"}
    log = {"needed": 1, "item": "oak log"}
    planks = {"needed": 8, "item": "oak planks", "count": 4, "ingredients": [log]}
    assert chest.nested() == {"item": "chest", "count": 1, "ingredients": [planks]}


def test_raw_and_membership() -> None:
    book = tiny()
    assert book.is_raw("oak log")
    assert book.is_raw("charcoal")  # named only as a member
    assert not book.is_raw("stick")
    assert not book.is_raw("planks")
    assert "planks" not in book
    assert "stick" in book
    with pytest.raises(KeyError, match="no item or tag called 'mud'"):
        book.depth("mud")
    with pytest.raises(KeyError, match="no recipe makes 'oak log'"):
        book.tree("oak log")


@pytest.mark.parametrize(
    ("rows", "tags", "message"),
    [
        ([("a", 1, {"b": 1}), ("b", 1, {"a": 1})], {}, "never be made: a, b"),
        ([("planks", 1, {"log": 1})], {"planks": ["oak planks"]}, "a tag cannot be crafted"),
        ([("a", 0, {"b": 1})], {}, "counts of 1 or more"),
        ([("a", 1, {})], {}, "at least one ingredient"),
        ([("a", 1, {"x": 1, "y": 1})], {"x": ["b", "c"], "y": ["c", "d"]}, "share a member"),
        ([("a", 1, {"x": 1})], {"x": []}, "one or more items"),
        ([("Oak", 1, {"log": 1})], {}, "'Oak'"),
        ([("a, b", 1, {"log": 1})], {}, "'a, b'"),
    ],
)
def test_a_book_that_contradicts_itself_is_refused(rows: list[Any], tags: dict[str, list[str]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipes(rows, tags)


def test_goals_that_do_not_fit_the_recipes_are_refused() -> None:
    with pytest.raises(ValueError, match="goal 'chest' is given depth 1, but the recipes give 2"):
        tiny(goals=[Goal("chest", 1)])


def test_shipped_book_counts() -> None:
    book = Recipes.default()
    assert Counter(goal.depth for goal in book.goals) == {1: 121, 2: 298, 3: 121, 4: 11}
    assert [(goal.depth, goal.name) for goal in book.goals] == sorted((book.depth(goal.name), goal.name) for goal in book.goals)
    assert str(book.recipes_for("chest")[0]) == "craft 1 chest using 8 planks"
    assert book.is_raw("diamond")  # the recipe that unpacks a diamond block is dropped
    assert not any(tag in book for tag in book.tags)


def test_shipped_split_has_the_papers_counts() -> None:
    goals = Recipes.default().goals
    assert Counter(goal.depth for goal in goals if goal.split == "eval") == {1: 31, 2: 41, 3: 25, 4: 3}
    train, evaluation = TextCraft.items("train"), TextCraft.items("eval")
    assert len(evaluation) == 100
    assert len(train) == len(goals) - 100 >= 374
    assert not set(train) & set(evaluation)
    assert len({goal.name for goal in goals}) == len(goals)
    assert all(goal.rounds <= 20 for goal in goals if goal.split == "eval")


def test_files_and_environment_name_the_version_of_the_book() -> None:
    folder = ROOT / "envs" / "agentgym_envs" / "textcraft"
    book = Recipes.default()
    for name in ("recipes.json", "goals.json"):
        assert json.loads((folder / name).read_text())["version"] == book.version
    assert TextCraft.version.endswith(f"+{book.version}")


def test_tags_by_hand() -> None:
    group = script().group_by_tag
    rows = {("chest", 1, (("oak planks", 8),)), ("chest", 1, (("fir planks", 8),)), ("raft", 1, (("fir planks", 5),))}
    expected = {("chest", 1, (("planks", 8),)), ("raft", 1, (("fir planks", 5),))}  # one wood alone is no group
    assert group(rows, "planks", {"oak planks", "fir planks"}) == expected


def test_unpacking_by_hand() -> None:
    pack, unpack = ("block", 1, (("ingot", 9),)), ("ingot", 9, (("block", 1),))
    slab, chiseled = ("slab", 6, (("pillar", 3),)), ("pillar", 1, (("slab", 2),))  # no inverse: it loses material
    honey, bottles = ("honey block", 1, (("honey bottle", 4),)), ("honey bottle", 4, (("glass bottle", 4), ("honey block", 1)))
    assert script().drop_unpacking({pack, unpack, slab, chiseled, honey, bottles}) == {pack, slab, chiseled, honey}


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_script_gives_the_committed_files(tmp_path: Path, hash_seed: str) -> None:
    pytest.importorskip("minecraft_data", reason="pip install minecraft_data==3.20.0 to rebuild TextCraft's data")
    command = [sys.executable, str(ROOT / "scripts" / "build_textcraft.py"), "--out", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": hash_seed})
    for name in ("recipes.json", "goals.json"):
        assert (tmp_path / name).read_text() == (ROOT / "envs" / "agentgym_envs" / "textcraft" / name).read_text()
