#!/usr/bin/env python3
"""Rebuild TextCraft's ``recipes.json`` and ``goals.json`` from the PyPI package ``minecraft_data`` 3.20.0.

Source: ``pc/1.16.2/recipes.json`` and ``items.json`` (PrismarineJS minecraft-data, MIT), which serve Minecraft 1.16.2 to 1.16.5. They
hold concrete crafting-table recipes only: no tags, no smelting. Rules:

1. Recipes that differ in one ingredient only, where that ingredient runs through all members of a group in ``TAGS``, become one recipe
   with the tag. Other alternatives stay separate recipes. A tag lists its members in the order of Minecraft's item numbers.
2. A recipe that unpacks is dropped: one X (and perhaps more) gives n Y, where another recipe packs exactly n Y into one X.
3. Every item that is left with a recipe is a goal. Goals are ordered by depth, then by name; that order is the item index.
4. The evaluation split has 31/41/25/3 goals of depth 1/2/3/4 (the paper's counts): of the goals that the expert makes in at most 20
   actions, those with the least SHA-256 of their name. All others are for training.

Usage: ``python scripts/build_textcraft.py [--out DIR]`` (default: the package's own folder).
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter, defaultdict
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import agentgym_envs.textcraft.env as textcraft_env
from agentgym_envs.textcraft import Expert, Goal, Recipes, TextCraft

PACKAGE_VERSION = "3.20.0"
DATA = "data/data/pc/1.16.2"
EVAL_COUNTS = {1: 31, 2: 41, 3: 25, 4: 3}
MAX_EVAL_ROUNDS = 20
WOODS = ("oak", "spruce", "birch", "jungle", "acacia", "dark oak")
STEMS = ("crimson", "warped")
DYES = (
    *("white", "orange", "magenta", "light blue", "yellow", "lime", "pink", "gray"),
    *("light gray", "cyan", "purple", "blue", "brown", "green", "red", "black"),
)
TAGS = {
    "planks": {f"{wood} planks" for wood in WOODS + STEMS},
    "wooden slabs": {f"{wood} slab" for wood in WOODS + STEMS},
    "logs": {
        f"{bark}{wood} {part}"
        for bark in ("", "stripped ")
        for woods, parts in ((WOODS, ("log", "wood")), (STEMS, ("stem", "hyphae")))
        for wood in woods
        for part in parts
    },
    "coals": {"coal", "charcoal"},
    "soul fire base blocks": {"soul sand", "soul soil"},
    "stone crafting materials": {"cobblestone", "blackstone"},
    "wools": {f"{dye} wool" for dye in DYES},
}

Row = tuple[str, int, tuple[tuple[str, int], ...]]


def load_source() -> tuple[dict[str, int], set[Row]]:
    """Item numbers by name, and the concrete recipes as ``(output, count, sorted ingredients)``."""
    folder = files("minecraft_data").joinpath(DATA)
    items = {item["id"]: item["name"].replace("_", " ") for item in json.loads(folder.joinpath("items.json").read_text("utf-8"))}
    rows: set[Row] = set()
    for variants in json.loads(folder.joinpath("recipes.json").read_text("utf-8")).values():
        for recipe in variants:
            cells = [cell for line in recipe["inShape"] for cell in line] if "inShape" in recipe else recipe["ingredients"]
            needs = Counter(items[cell] for cell in cells if cell is not None)
            rows.add((items[recipe["result"]["id"]], recipe["result"]["count"], tuple(sorted(needs.items()))))
    return {name: number for number, name in items.items()}, rows


def group_by_tag(rows: set[Row], tag: str, members: set[str]) -> set[Row]:
    """Rule 1 for one tag."""
    families: dict[tuple[Any, ...], dict[str, Row]] = defaultdict(dict)
    for row in rows:
        for name, count in row[2]:
            if name in members:
                rest = tuple(pair for pair in row[2] if pair[0] != name)
                families[row[0], row[1], count, rest][name] = row
    for (output, made, count, rest), family in families.items():
        if family.keys() == members:
            rows = rows - set(family.values()) | {(output, made, tuple(sorted([*rest, (tag, count)])))}
    return rows


def drop_unpacking(rows: set[Row]) -> set[Row]:
    """Rule 2."""
    packed = {(output, needs[0]) for output, made, needs in rows if made == 1 and len(needs) == 1 and needs[0][1] > 1}
    return {row for row in rows if not any(count == 1 and (name, row[:2]) in packed for name, count in row[2])}


def expert_rounds(book: Recipes, index: int) -> int:
    """Actions that the expert needs for a goal. Raises ``RuntimeError`` if it fails."""
    env, expert = TextCraft(book=book), Expert()
    observation = env.reset(index)
    expert.reset(observation, env.render)
    for rounds in range(1, 1000):
        result = env.step(expert.act(observation).action)
        observation = result.observation
        if result.info["invalid"]:
            break
        if result.done:
            return rounds
    raise RuntimeError(f"the expert fails on {book.goals[index].name}: {observation.text}")


def split_goals(book: Recipes) -> list[Goal]:
    """Rules 3 and 4."""
    rounds = {goal.name: expert_rounds(book, index) for index, goal in enumerate(book.goals)}
    evaluation: set[str] = set()
    for depth, number in EVAL_COUNTS.items():
        short = [goal.name for goal in book.goals if goal.depth == depth and rounds[goal.name] <= MAX_EVAL_ROUNDS]
        evaluation.update(sorted(short, key=lambda name: hashlib.sha256(name.encode()).hexdigest())[:number])
    return [Goal(g.name, g.depth, "eval" if g.name in evaluation else "train", rounds[g.name]) for g in book.goals]


def build() -> tuple[dict[str, Any], dict[str, Any]]:
    """The contents of ``recipes.json`` and ``goals.json``. Raises ``RuntimeError`` if the package has another version."""
    if version("minecraft_data") != PACKAGE_VERSION:
        raise RuntimeError(f"expected minecraft_data {PACKAGE_VERSION}, found {version('minecraft_data')}: pip install the former")
    numbers, rows = load_source()
    clash = sorted(TAGS.keys() & numbers.keys())
    if clash:
        raise RuntimeError(f"these tags have the name of an item: {clash}")
    for tag, members in TAGS.items():
        rows = group_by_tag(rows, tag, members)
    rows = drop_unpacking(rows)
    tags = {tag: sorted(members, key=numbers.__getitem__) for tag, members in TAGS.items()}
    plain = Recipes([(output, count, dict(needs)) for output, count, needs in rows], tags)
    book = Recipes([(r.output, r.count, dict(r.ingredients)) for r in plain.recipes], tags, split_goals(plain))
    source = {
        "source": f"PyPI minecraft_data {PACKAGE_VERSION}, {DATA.removeprefix('data/data/')} (PrismarineJS minecraft-data)",
        "license": "MIT, Copyright (c) 2021 N. Vito Gamberini and contributors (see LICENSE.minecraft_data)",
        "made_by": "scripts/build_textcraft.py",
        "version": book.version,
    }
    recipes = [{"output": r.output, "count": r.count, "ingredients": dict(r.ingredients)} for r in book.recipes]
    goals = [{"name": g.name, "depth": g.depth, "split": g.split, "rounds": g.rounds} for g in book.goals]
    return {**source, "tags": tags, "recipes": recipes}, {**source, "max_eval_rounds": MAX_EVAL_ROUNDS, "goals": goals}


def to_json(content: dict[str, Any]) -> str:
    """JSON with one recipe, goal or tag per line."""
    parts = []
    for key, value in content.items():
        if isinstance(value, list):
            body = "[\n" + ",\n".join(f"  {json.dumps(row)}" for row in value) + "\n ]"
        elif isinstance(value, dict):
            body = "{\n" + ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in value.items()) + "\n }"
        else:
            body = json.dumps(value)
        parts.append(f" {json.dumps(key)}: {body}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main(arguments: list[str] | None = None) -> None:
    """Write both files and print what is in them."""
    parser = argparse.ArgumentParser(description="Rebuild TextCraft's recipes.json and goals.json from minecraft_data.")
    parser.add_argument("--out", type=Path, default=Path(textcraft_env.__file__).parent)
    out: Path = parser.parse_args(arguments).out
    recipes, goals = build()
    for name, content in (("recipes.json", recipes), ("goals.json", goals)):
        out.joinpath(name).write_text(to_json(content), "utf-8")
    depths = Counter((goal["split"], goal["depth"]) for goal in goals["goals"])
    print(f"{len(recipes['recipes'])} recipes, {len(goals['goals'])} goals, version {recipes['version']}")
    for split in ("train", "eval"):
        print(split, {depth: depths[split, depth] for depth in EVAL_COUNTS})


if __name__ == "__main__":
    main()
