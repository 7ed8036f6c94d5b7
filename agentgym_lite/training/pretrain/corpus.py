"""Text to pre-train the tiny model on: recipe look-ups, and episodes played with varying care.

Every document is a chat in the layout of a real episode. Two kinds of player write them: careful ones, who now and then slip, and
careless ones, who never think. A model of such text is a middling player, as a language model of the web is: it has seen good and bad
play, continues either, and does not know which of them is wanted.

Held out: evaluation goals of TextCraft are never goals here, and BabyAI layouts come from seeds that no split uses, less those that
happen to equal a split's layout.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from agentgym_envs.agents import Decision, TextAgent, expert, random_agent
from agentgym_envs.babyai import BabyAI
from agentgym_envs.core import Environment, Observation
from agentgym_envs.textcraft import TextCraft
from agentgym_envs.textcraft.recipes import Goal, Recipes
from agentgym_lite.agents import ReAct, opening_messages

Message = dict[str, str]
#: Layout seeds of BabyAI from here on belong to pre-training.
FIRST_LAYOUT = 1000
BABYAI_LEVELS = (*range(1, 12), 19, 20, 21, 30, 31, 33, 36)
_GOTO_LEVELS = range(1, 12)


@dataclass(frozen=True)
class Mixture:
    """Shares of the kinds of document (they need not add up to 1) and of the kinds of player.

    A careful player's moves are the expert's with a probability drawn from ``skill`` for each episode, a careless player's never.
    """

    lookup: float
    invented: float
    real: float
    babyai: float
    careless: float = 0.0
    skill: tuple[float, float] = (0.8, 1.0)
    max_rounds: int = 14
    careless_rounds: int = 8


def document(rng: random.Random, mixture: Mixture) -> list[Message]:
    """One chat, drawn from the mixture."""
    kinds: list[tuple[Callable[[random.Random, Mixture], list[Message]], float]] = [
        (lookup_document, mixture.lookup),
        (invented_episode, mixture.invented),
        (real_episode, mixture.real),
        (babyai_episode, mixture.babyai),
    ]
    make = rng.choices([k for k, _ in kinds], [share for _, share in kinds])[0]
    return make(rng, mixture)


def lookup_document(rng: random.Random, mixture: Mixture) -> list[Message]:
    """Questions about a list of invented recipes and about amounts: the dense practice from which copying is learned."""
    names = _name_source(rng)
    outputs = [next(names) for _ in range(rng.randint(2, 9))]
    inputs = [*outputs, *(next(names) for _ in range(5))]
    recipes = {}
    for output in outputs:
        parts = rng.sample([x for x in inputs if x != output], rng.choice((1, 1, 2, 2, 3)))
        recipes[output] = ", ".join(f"{_small(rng)} {part}" for part in parts)
    listing = "\n".join(f"craft {_small(rng)} {output} using {needs}" for output, needs in recipes.items())
    questions = [_amount_question(rng) if rng.random() < 0.3 else _recipe_question(rng, recipes) for _ in range(rng.randint(4, 9))]
    first, answer = questions[0]
    messages = [{"role": "system", "content": "Look up."}, {"role": "user", "content": f"{listing}\n\n{first}"}, _assistant(answer)]
    for question, answer in questions[1:]:
        messages += [{"role": "user", "content": question}, _assistant(answer)]
    return messages


def _recipe_question(rng: random.Random, recipes: dict[str, str]) -> tuple[str, str]:
    output = rng.choice(list(recipes))
    return output, f"{output} needs {recipes[output]}."


def _amount_question(rng: random.Random) -> tuple[str, str]:
    need, count, part = rng.randint(1, 16), rng.choice((1, 1, 2, 3, 4, 6, 8)), rng.randint(1, 9)
    times = -(-need // count)
    return f"{part} for one, need {need}, {count} each", f"need {need}, {count} each: {times} time{'s' * (times > 1)}. get {times * part}"


def invented_episode(rng: random.Random, mixture: Mixture) -> list[Message]:
    """TextCraft in a world where every name is made up and amounts are new: only reading the prompt helps."""
    book = Recipes.default()
    goal = rng.choice([g for g in book.goals if g.split == "train" and (g.depth > 1 or rng.random() < 0.5)])
    tree = book.tree(goal.name)
    rows = [*tree.recipes.values(), *rng.sample(book.recipes, 8)]
    rows = list({r.output: r for r in reversed(rows)}.values())
    source = _name_source(rng)
    renamed: dict[str, str] = {}

    def rename(name: str) -> str:
        if name not in renamed:
            renamed[name] = next(source)
        return renamed[name]

    table = []
    for r in rows:
        needs = {rename(n): (c if rng.random() < 0.5 else _small(rng)) for n, c in r.ingredients}
        table.append((rename(r.output), r.count if rng.random() < 0.5 else rng.choice((1, 1, 2, 3, 4, 6, 8)), needs))
    used = {n for r in rows for n in r.names if n in book.tags}
    tags = {rename(t): [rename(m) for m in dict.fromkeys([tree.members.get(t, book.tags[t][0]), *book.tags[t][:2]])] for t in sorted(used)}
    try:
        small = Recipes(table, tags)
    except ValueError:  # the sampled rows go round in circles or share members: draw again
        return invented_episode(rng, mixture)
    depth = small.depth(renamed[goal.name])
    small = Recipes(table, tags, [Goal(renamed[goal.name], depth)])
    return _play(TextCraft(distractors=rng.randint(0, 5), book=small), 0, rng, mixture)


def real_episode(rng: random.Random, mixture: Mixture) -> list[Message]:
    """TextCraft on a train goal."""
    depths = TextCraft.items("train")
    item = rng.choice(depths)
    return _play(TextCraft(distractors=rng.randint(2, 5)), item, rng, mixture, seed=rng.randrange(1, 1_000_000))


def babyai_episode(rng: random.Random, mixture: Mixture) -> list[Message]:
    """BabyAI on a layout that no split uses; half of the episodes are of the GoTo levels."""
    level = rng.choice(_GOTO_LEVELS if rng.random() < 0.5 else BABYAI_LEVELS)
    item = (FIRST_LAYOUT + rng.randrange(100_000)) * 40 + level - 1
    if _babyai().start(item) in _split_starts(level):
        return babyai_episode(rng, mixture)
    return _play(_babyai(), item, rng, mixture)


@cache
def _babyai() -> BabyAI:
    return BabyAI()  # building a level is slow, and one object keeps those that it has built


@cache
def _split_starts(level: int) -> frozenset[Hashable]:
    items = [*BabyAI.items("train"), *BabyAI.items("eval")]
    return frozenset(_babyai().start(item) for item in items if BabyAI.level_of(item)[0] == level)


def _play(env: Environment, item: str | int, rng: random.Random, mixture: Mixture, seed: int = 0) -> list[Message]:
    is_careless = rng.random() < mixture.careless
    skill = 0.0 if is_careless else rng.uniform(*mixture.skill)
    form = ReAct()
    observation = env.reset(item, seed)
    player = expert(env.name)
    player.reset(observation, env.render)
    messages = opening_messages(env, observation)
    for _ in range(mixture.careless_rounds if is_careless else mixture.max_rounds):
        decision = player.act(observation) if rng.random() < skill else None
        if decision is None:
            decision = _careless(env.name, player, observation, rng)
        result = env.step(decision.action)
        observation = result.observation
        _tell(player, result.info)
        messages += [_assistant(form.render(decision.thought, decision.action)), {"role": "user", "content": observation.text}]
        if result.done:
            break
    return messages[:-1]  # nothing is answered to the last observation


def _tell(player: TextAgent, info: Any) -> None:
    """Correct the TextCraft expert's idea of what is carried after a move that was not its own."""
    if "inventory" in info:
        player._pending.clear()  # type: ignore[attr-defined]
        player._inventory = Counter(info["inventory"])  # type: ignore[attr-defined]


def _careless(env: str, player: Any, observation: Observation, rng: random.Random) -> Decision:
    """A plausible move that was not thought through."""
    if env == "babyai":
        action = random_agent("babyai", rng.randrange(1 << 30)).act(observation).action
        return Decision(action, f"try to {action}.")
    task = player._task
    player._repeats.clear()
    names = task.names()
    kind = rng.random()
    if kind < 0.35:
        count, needs = task.commands[task.goal]
        return Decision(_craft(task, task.goal, count, needs), f"try {task.goal}.")
    if kind < 0.6:
        name = rng.choice(list(task.commands))
        count, needs = task.commands[name]
        return Decision(_craft(task, name, count, needs), f"try {name}.")
    if kind < 0.92:
        name = rng.choice(names)
        return Decision(f"get {rng.randint(1, 4)} {name}", f"maybe {name}.")
    return Decision("inventory", "look.")


def _craft(task: Any, output: str, count: int, needs: dict[str, int]) -> str:
    return f"craft {count} {output} using {', '.join(f'{n} {task.item(name)}' for name, n in needs.items())}"


def _assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def _small(rng: random.Random) -> int:
    return rng.choice((1, 1, 1, 2, 2, 3, 3, 4, 5, 6, 8, 9))


@cache
def _words() -> tuple[str, ...]:
    book = Recipes.default()
    names = {name for r in book.recipes for name in (r.output, *r.names)} | {m for t in book.tags.values() for m in t} | set(book.tags)
    return tuple(sorted({word for name in names for word in name.split()}))


def _name_source(rng: random.Random) -> Iterator[str]:
    """Unique invented names of one to three words, built from a few words only, so that they are easily confused."""
    words = rng.sample(_words(), rng.randint(8, 30))
    seen = set()
    while True:
        name = " ".join(rng.choice(words) for _ in range(rng.choice((1, 2, 2, 2, 3))))
        if name not in seen:
            seen.add(name)
            yield name
        elif len(seen) > len(words) ** 2 // 2:
            words = [*words, *rng.sample(_words(), 5)]
