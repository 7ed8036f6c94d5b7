"""The TextCraft environment (ADaPT, Prasad et al. 2023): ``get`` raw items and ``craft`` from listed recipes until the goal is made."""

from __future__ import annotations

import hashlib
import random
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, ClassVar

from agentgym_envs.core import Environment, Observation, Split, StepResult, UnknownItem
from agentgym_envs.textcraft.recipes import Recipe, Recipes, Tree

_MAX_ACTION = 500  # characters; the longest recipe of the shipped book has 93
_MAX_GET = 9999
_GET = re.compile(r"get ([0-9]+) (.+)")
_CRAFT = re.compile(r"craft (?:([0-9]+) )?(.+?) using (.+)")
_PART = re.compile(r"([0-9]+) (.+)")
_USAGE = "write 'get N item', 'craft N item using N item, N item' or 'inventory'"


class _RefusedError(Exception):
    """The action cannot be carried out; the message goes to the agent."""


class TextCraft(Environment):
    """Craft the goal item from raw items; reward 1 when it is crafted, else 0.

    ``distractors`` is the number of listed commands that the goal does not need; ``book`` replaces the shipped recipes, and item ``i``
    is then ``book.goals[i]``.
    """

    name: ClassVar[str] = "textcraft"
    version: ClassVar[str] = "1+84114fe484e5"  # rules, then Recipes.default().version
    instructions: ClassVar[str] = (
        "Craft the goal item. Commands: get N item; craft N item using N item, N item; inventory. Only the listed crafting commands "
        "can be crafted, with exactly those counts. Raw items are got with get. Write items, not groups such as planks.\n"
        "Reply with one action, in this format:\nThought: your reasoning\nAction: your command"
    )

    def __init__(self, distractors: int = 4, book: Recipes | None = None) -> None:
        if distractors < 0:
            raise ValueError(f"expected distractors >= 0, found {distractors}")
        self._distractors = distractors
        self._book = book or Recipes.default()
        self._tree: Tree | None = None
        self._commands: dict[str, Recipe] = {}
        self._tags: dict[str, list[str]] = {}
        self._raw: list[str] = []
        self._inventory: Counter[str] = Counter()
        self._first = self._last = ""
        self._done = False

    @classmethod
    def items(cls, split: Split) -> list[str]:
        """Item ids of a split of the shipped book, by depth and then by name."""
        return [f"{cls.name}_{i}" for i, goal in enumerate(Recipes.default().goals) if goal.split == split]

    @classmethod
    def task_of(cls, item_id: str | int) -> str:
        """``"depth_1"`` to ``"depth_4"``. Raises ``UnknownItem``."""
        goals = Recipes.default().goals
        return f"depth_{goals[cls._index(item_id, len(goals))].depth}"

    def reset(self, item_id: str | int, seed: int = 0) -> Observation:
        """Start the episode of a goal; ``seed`` chooses the distractors and the order of the commands. Raises ``UnknownItem``."""
        index = self._index(item_id, len(self._book.goals))
        rng = random.Random(hashlib.sha256(f"textcraft {index} {seed}".encode()).digest())
        self._tree = self._book.tree(self._book.goals[index].name)
        listed = [*self._tree.recipes.values(), *self._draw_distractors(self._tree, rng)]
        rng.shuffle(listed)
        self._commands = {recipe.output: recipe for recipe in listed}
        self._tags = {tag: self._usable_members(tag) for recipe in listed for tag in recipe.names if tag in self._book.tags}
        named = [name for recipe in listed for name in recipe.names] + [m for members in self._tags.values() for m in members]
        self._raw = [name for name in dict.fromkeys(named) if self._book.is_raw(name)]
        self._inventory = Counter()
        self._done = False
        lines = [*map(str, listed), *(f"{tag}: {', '.join(members)}" for tag, members in self._tags.items())]
        self._first = self._last = "\n".join(["Crafting commands:", *lines, "", f"Goal: craft {self._tree.goal}."])
        return self._observe()

    def step(self, action: str) -> StepResult:
        """Carry out one command. Raises ``RuntimeError`` before the first ``reset``."""
        goal = self._episode().goal
        if self._done:
            return self._result(0.0, invalid=True)
        try:
            self._last = self._execute(action)
            invalid = False
        except _RefusedError as refused:
            self._last, invalid = str(refused), True
        self._done = self._inventory[goal] > 0
        return self._result(float(self._done), invalid)

    def available_actions(self) -> list[str]:
        """Crafts possible with what is carried, one way each; ``get 1 X`` for each raw item named in the commands; ``inventory``."""
        if self._done or self._tree is None:
            return []
        crafts = [command for recipe in self._commands.values() if (command := self._possible_craft(recipe))]
        return [*crafts, *(f"get 1 {item}" for item in self._raw), "inventory"]

    def render(self) -> dict[str, Any]:
        """Goal, inventory, commands, tags (with usable members) and recipe tree. Raises ``RuntimeError`` before ``reset``."""
        tree = self._episode()
        commands = [{"output": r.output, "count": r.count, "ingredients": dict(r.ingredients)} for r in self._commands.values()]
        return {
            "kind": self.name,
            "text": f"{self._first}\n\n{self._inventory_text()}",
            "goal": tree.goal,
            "inventory": self._carried(),
            "commands": commands,
            "tags": {tag: list(members) for tag, members in self._tags.items()},
            "tree": tree.nested(),
            "done": self._done,
        }

    @classmethod
    def _index(cls, item_id: str | int, size: int) -> int:
        index = cls.item_index(item_id)
        if not 0 <= index < size:
            raise UnknownItem(f"expected a TextCraft item from 0 to {size - 1}, found {index}")
        return index

    def _episode(self) -> Tree:
        if self._tree is None:
            raise RuntimeError("TextCraft: call reset(item_id) before step or render")
        return self._tree

    def _draw_distractors(self, tree: Tree, rng: random.Random) -> list[Recipe]:
        """Recipes that use what the goal uses, then any; never a second recipe for an item, so that every look-up has one answer."""
        used = dict.fromkeys(name for recipe in tree.recipes.values() for name in recipe.names)
        related = list(dict.fromkeys(recipe for name in used for recipe in self._book.recipes_using(name)))
        rng.shuffle(related)
        chosen: dict[str, Recipe] = {}
        for recipe in related:
            if len(chosen) < self._distractors and recipe.output not in tree.recipes:
                chosen.setdefault(recipe.output, recipe)
        if len(chosen) < self._distractors:
            spare = {r.output: r for r in self._book.recipes if r.output not in tree.recipes and r.output not in chosen}
            fill = rng.sample(list(spare), min(self._distractors - len(chosen), len(spare)))
            chosen.update((output, spare[output]) for output in fill)
        return list(chosen.values())

    def _usable_members(self, tag: str) -> list[str]:
        """At most two members that this episode can supply, the recipe tree's own first; the tag's first member if there is none."""
        members = self._book.tags[tag]
        own = self._episode().members.get(tag)
        usable = [member for member in members if member in self._commands or self._book.is_raw(member)]
        return sorted(usable, key=lambda member: member != own)[:2] or [members[0]]

    def _execute(self, action: str) -> str:
        if len(action) > _MAX_ACTION:
            raise _RefusedError(f"The action has {len(action)} characters, at most {_MAX_ACTION} are read: {_USAGE}.")
        text = " ".join(action.replace("_", " ").split()).strip(" .,;:!?'\"`").lower()
        if text == "inventory":
            return self._inventory_text()
        if match := _GET.fullmatch(text):
            return self._get(int(match[1]), match[2])
        if match := _CRAFT.fullmatch(text):
            return self._craft(match[1], match[2], match[3])
        raise _RefusedError(f"Could not execute {_short(text)}: {_USAGE}." if text else f"The action is empty: {_USAGE}.")

    def _get(self, count: int, name: str) -> str:
        self._require_item(name)
        if not self._book.is_raw(name):
            raise _RefusedError(f"Could not get {name}: it is not a raw item, it has to be crafted.")
        if not 1 <= count <= _MAX_GET:
            raise _RefusedError(f"Could not get {name}: the count has to be from 1 to {_MAX_GET}.")
        self._inventory[name] += count
        return f"Got {count} {name}"

    def _craft(self, count: str | None, output: str, parts: str) -> str:
        self._require_item(output)
        recipe = self._commands.get(output)
        if recipe is None:
            raise _RefusedError(f"Could not craft {output}: it is not among the crafting commands.")
        given: Counter[str] = Counter()
        for part in parts.split(","):
            match = _PART.fullmatch(part.strip())
            if match is None:
                raise _RefusedError(f"Could not read the ingredient {_short(part.strip())}: write its count and its name.")
            self._require_item(match[2])
            given[match[2]] += int(match[1])
        if self._allocate(recipe, given) != given or (count is not None and int(count) != recipe.count):
            raise _RefusedError(f"Wrong amounts: the command is {recipe}.")
        missing = [f"{need - self._inventory[name]} {name}" for name, need in given.items() if self._inventory[name] < need]
        if missing:
            raise _RefusedError(f"Could not find enough items to craft {output}: missing {', '.join(missing)}.")
        self._inventory -= given
        self._inventory[output] += recipe.count
        return f"Crafted {recipe.count} {output}"

    def _require_item(self, name: str) -> None:
        if name in self._book.tags:
            members = list(dict.fromkeys([*self._tags.get(name, ()), *self._book.tags[name]]))
            etc = ", ..." if len(members) > 8 else ""
            raise _RefusedError(f"{name} is not an item: name one of {', '.join(members[:8])}{etc}.")
        if name not in self._book:
            raise _RefusedError(f"Could not find {_short(name)}.")

    def _allocate(self, recipe: Recipe, stock: Counter[str]) -> Counter[str] | None:
        """Items from ``stock`` for one ``recipe``, a tag filled by any mix of its members; ``None`` if they do not suffice."""
        left, used = Counter(stock), Counter[str]()
        for name, need in sorted(recipe.ingredients, key=lambda pair: pair[0] in self._book.tags):  # items named outright come first
            for member in self._book.tags.get(name, (name,)):
                if taken := min(need, left[member]):
                    left[member] -= taken
                    used[member] += taken
                    need -= taken
            if need:
                return None
        return used

    def _possible_craft(self, recipe: Recipe) -> str | None:
        used = self._allocate(recipe, self._inventory)
        return str(Recipe(recipe.output, recipe.count, tuple(used.items()))) if used else None

    def _carried(self) -> dict[str, int]:
        return {name: count for name, count in self._inventory.items() if count}

    def _inventory_text(self) -> str:
        return f"Inventory: {_amounts(self._carried().items()) or 'empty'}"

    def _observe(self) -> Observation:
        return Observation(self._last, tuple(self.available_actions()))

    def _result(self, reward: float, invalid: bool) -> StepResult:
        info = {"success": self._done, "invalid": invalid, "score": float(self._done), "inventory": self._carried()}
        return StepResult(self._observe(), reward, self._done, info)


def _amounts(pairs: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{count} {name}" for name, count in pairs)


def _short(text: str) -> str:
    """At most 40 characters of the agent's own words, safe to print on one line."""
    clean = "".join(c if c.isprintable() else "?" for c in text)
    return clean if len(clean) <= 40 else f"{clean[:40]}..."
