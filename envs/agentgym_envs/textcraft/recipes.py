"""The recipe book: recipes, tags ("planks" stands for any wood's planks), depths, and the recipe tree of a goal.

Depth (ADaPT, Prasad et al. 2023): a raw item has depth 0, a tag the least depth of its members, and an item

    depth(item) = 1 + min over its recipes of max over the recipe's ingredients of depth(ingredient).

It is computed as a fixpoint, so the order of the recipes does not matter.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from agentgym_envs.core import Split

_Row = tuple[str, int, tuple[tuple[str, int], ...]]
#: What would make a name ambiguous in a command or in the first observation.
_UNREADABLE = re.compile(r"[,:_]| using |^[.;!?'\"`]|[.;!?'\"`]$")


@dataclass(frozen=True)
class Recipe:
    """``count`` pieces of ``output`` from the ``ingredients`` (name and count; a name may be a tag), all of which are used up."""

    output: str
    count: int
    ingredients: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return f"craft {self.count} {self.output} using {self.needs()}"

    def needs(self) -> str:
        """The ingredients as text, e.g. ``"2 stick, 4 planks"``."""
        return ", ".join(f"{count} {name}" for name, count in self.ingredients)

    @property
    def names(self) -> tuple[str, ...]:
        """The ingredients' names."""
        return tuple(name for name, _ in self.ingredients)


@dataclass(frozen=True)
class Goal:
    """An item to craft: its depth, its split, and the actions that the expert needs (0 where nobody counted them)."""

    name: str
    depth: int
    split: Split = "train"
    rounds: int = 0


@dataclass(frozen=True)
class Tree:
    """Everything needed for one goal: one recipe per crafted item, the goal's first, and the member that stands in for each tag."""

    goal: str
    recipes: dict[str, Recipe]
    members: dict[str, str]

    def nested(self) -> dict[str, Any]:
        """The tree as JSON: ``{"item", "count" made at a time, "ingredients": [{"item", "needed", ...}]}``; raw items are leaves."""
        return self._node(self.goal)

    def _node(self, item: str) -> dict[str, Any]:
        recipe = self.recipes.get(item)
        if recipe is None:
            return {"item": item}
        children = [{"needed": count, **self._node(self.members.get(name, name))} for name, count in recipe.ingredients]
        return {"item": item, "count": recipe.count, "ingredients": children}


class Recipes:
    """A recipe book.

    ``rows`` are ``(output, count, {ingredient: count})``; ``tags`` maps a tag to its members, the usual one first; ``goals`` default
    to every craftable item, by depth and then by name, all in the train split. Within a recipe the ingredients are kept deepest first,
    so that making them from left to right never uses up what was made before. Raises ``ValueError`` if the book contradicts itself.
    """

    def __init__(
        self,
        rows: Iterable[tuple[str, int, Mapping[str, int]]],
        tags: Mapping[str, Sequence[str]] | None = None,
        goals: Sequence[Goal] | None = None,
    ) -> None:
        self.tags = {tag: tuple(members) for tag, members in (tags or {}).items()}
        table = sorted({(output, count, tuple(sorted(needs.items()))) for output, count, needs in rows})
        crafted = {output for output, _, _ in table}
        names = crafted.union(self.tags, *self.tags.values(), (name for _, _, needs in table for name, _ in needs))
        self._check_names(names)
        self._check(table)
        self._depths = self._fixpoint(table, raw=names - crafted - self.tags.keys())
        if lost := sorted(names - self._depths.keys()):
            raise ValueError(f"these items need each other and can never be made: {', '.join(lost[:10])}; drop one of their recipes")
        by_depth = (Recipe(output, count, tuple(sorted(needs, key=lambda x: (-self._depths[x[0]], x)))) for output, count, needs in table)
        self.recipes = tuple(by_depth)
        self._by_output: dict[str, list[Recipe]] = defaultdict(list)
        self._by_ingredient: dict[str, list[Recipe]] = defaultdict(list)
        for recipe in self.recipes:
            self._by_output[recipe.output].append(recipe)
            for name in recipe.names:
                self._by_ingredient[name].append(recipe)
        ranked = sorted((self._depths[item], item) for item in self._by_output)
        self.goals = tuple(Goal(item, depth) for depth, item in ranked) if goals is None else tuple(goals)
        self._check_goals()

    @staticmethod
    @cache
    def default() -> Recipes:
        """The shipped book of Minecraft 1.16.2 crafting-table recipes, made by ``scripts/build_textcraft.py``."""
        here = resources.files(__package__)
        book = json.loads(here.joinpath("recipes.json").read_text("utf-8"))
        listed = json.loads(here.joinpath("goals.json").read_text("utf-8"))["goals"]
        rows = [(row["output"], row["count"], row["ingredients"]) for row in book["recipes"]]
        return Recipes(rows, book["tags"], [Goal(**goal) for goal in listed])

    def __contains__(self, item: object) -> bool:
        """Whether ``item`` is a concrete item of the book (not a tag)."""
        return item in self._depths and item not in self.tags

    def depth(self, name: str) -> int:
        """Depth of an item or a tag. Raises ``KeyError`` for a name that the book does not hold."""
        if name not in self._depths:
            raise KeyError(f"the recipe book has no item or tag called {name!r:.80}")
        return self._depths[name]

    def is_raw(self, item: str) -> bool:
        """Whether ``item`` is an item of the book that no recipe makes, so that it can only be got."""
        return item in self and item not in self._by_output

    def recipes_for(self, item: str) -> list[Recipe]:
        """All recipes that make ``item``, shallowest first (then fewest ingredients, then by name); empty for a raw or unknown item."""
        return sorted(self._by_output.get(item, ()), key=self._simplicity)

    def recipes_using(self, name: str) -> list[Recipe]:
        """All recipes with the item or tag ``name`` among their ingredients."""
        return list(self._by_ingredient.get(name, ()))

    def tree(self, goal: str) -> Tree:
        """The recipes needed to make ``goal``, one per item: its shallowest. Raises ``KeyError`` if nothing makes ``goal``.

        A tag is filled by a member of least depth: one that the tree needs anyway if there is one, else the tag's first.
        """
        if goal not in self._by_output:
            raise KeyError(f"no recipe makes {goal!r:.80}")
        recipes: dict[str, Recipe] = {}
        members: dict[str, str] = {}
        items, seen = [goal], {goal}
        open_tags: dict[str, None] = {}
        while items or open_tags:
            if not items:  # only tags are left: fill the first, now that every item named outright is known
                tag = next(iter(open_tags))
                del open_tags[tag]
                members[tag] = self._fill(tag, seen)
                new: tuple[str, ...] = (members[tag],)
            else:
                item = items.pop()
                new = ()
                if item in self._by_output:
                    recipes[item] = self.recipes_for(item)[0]
                    new = recipes[item].names
            for name in new:
                if name in self.tags:
                    if name not in members:
                        open_tags[name] = None
                elif name not in seen:
                    seen.add(name)
                    items.append(name)
        return Tree(goal, recipes, members)

    @property
    def version(self) -> str:
        """First 12 hex digits of the SHA-256 of the book and its goals: equal books have equal versions."""
        content = {
            "recipes": [[r.output, r.count, dict(r.ingredients)] for r in self.recipes],
            "tags": {tag: list(members) for tag, members in self.tags.items()},
            "goals": [[g.name, g.depth, g.split] for g in self.goals],
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]

    def _fill(self, tag: str, needed: set[str]) -> str:
        shallow = [member for member in self.tags[tag] if self._depths[member] == self._depths[tag]]
        return next((member for member in shallow if member in needed), shallow[0])

    def _simplicity(self, recipe: Recipe) -> tuple[int, int, int, tuple[tuple[str, int], ...]]:
        deepest = max(self._depths[name] for name in recipe.names)
        return deepest, len(recipe.ingredients), sum(count for _, count in recipe.ingredients), recipe.ingredients

    @staticmethod
    def _check_names(names: set[str]) -> None:
        for name in sorted(names):
            if name != " ".join(name.lower().split()) or not name or _UNREADABLE.search(name):
                raise ValueError(f"item name {name!r:.80}: expected lower-case words, single blanks, no comma, colon, '_' or ' using '")

    def _check(self, table: list[_Row]) -> None:
        for output, count, needs in table:
            where = f"recipe for {output!r:.80}"
            if output in self.tags:
                raise ValueError(f"{where}: a tag cannot be crafted; name one of its members")
            if not needs or count < 1 or any(number < 1 for _, number in needs):
                raise ValueError(f"{where}: expected at least one ingredient and counts of 1 or more")
            used = [member for name, _ in needs if name in self.tags for member in self.tags[name]]
            if len(used) != len(set(used)):
                raise ValueError(f"{where}: two of its tags share a member, so that it is not clear which of them an item fills")
        for tag, members in self.tags.items():
            if not members or any(member in self.tags for member in members):
                raise ValueError(f"tag {tag!r:.80}: expected one or more items as members, and no other tags")

    def _check_goals(self) -> None:
        for goal in self.goals:
            if goal.name not in self._by_output or self._depths[goal.name] != goal.depth:
                found = self._depths.get(goal.name)
                raise ValueError(f"goal {goal.name!r:.80} is given depth {goal.depth}, but the recipes give {found}; rebuild the goals")

    def _fixpoint(self, table: list[_Row], raw: set[str]) -> dict[str, int]:
        depths = dict.fromkeys(raw, 0)
        changed = True
        while changed:
            changed = False
            found: dict[str, list[int]] = defaultdict(list)
            for output, _, needs in table:
                if all(name in depths for name, _ in needs):
                    found[output].append(1 + max(depths[name] for name, _ in needs))
            for tag, members in self.tags.items():
                found[tag] += [depths[member] for member in members if member in depths]
            for name, options in found.items():
                if options and depths.get(name) != min(options):
                    depths[name] = min(options)
                    changed = True
        return depths
