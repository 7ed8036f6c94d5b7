"""Agents for SearchQA that need no model: an expert that reads its answers out of the passages, and a random one."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from agentgym_envs.agents import Decision
from agentgym_envs.core import Observation
from agentgym_envs.searchqa.readers import canonical, same_name
from agentgym_envs.searchqa.relations import RELATIONS, Relation
from agentgym_envs.searchqa.wording import Ask, Compare, Has, Question, Subject, Which, read

_DOC = re.compile(r'^(?:<information>)?Doc \d+\(Title: "(.*?)"\) (.*?)(?:</information>)?$', re.MULTILINE)
_WORDS = re.compile(r"\w[\w'.,-]*")


@dataclass(frozen=True)
class _Doc:
    title: str
    text: str


#: A query is yielded, the passages found come back, the value read from them is returned.
_Reading = Generator[str, list[_Doc], str]


class Expert:
    """Takes the question apart, searches hop by hop and reads each value by the relation's pattern; it sees observation texts only.

    A question in other words than :mod:`wording` knows, or passages that do not say, end in the answer "unknown".
    """

    def reset(self, observation: Observation, render: Callable[[], dict[str, Any]]) -> None:
        """Read the question from the first observation."""
        question = read(observation.text.removeprefix("Question: "))
        self._thought = ""
        self._work = self._solve(question) if question else None
        self._started = False

    def act(self, observation: Observation) -> Decision:
        """The next search, or the answer."""
        answer = "unknown"
        if self._work is not None:
            docs = [_Doc(*pair) for pair in _DOC.findall(observation.text)] if self._started else None
            try:
                query = self._work.send(docs)  # type: ignore[arg-type]  # a generator is started by None
            except StopIteration as end:
                answer = end.value
            except LookupError as e:
                self._note(str(e.args[0]))
            else:
                self._started = True
                return Decision(f"<search>{query}</search>", self._say(f"I search for {query}."))
        return Decision(f"<answer>{answer}</answer>", self._say(f"The answer is {answer}."))

    def _solve(self, question: Question) -> _Reading:
        relation = RELATIONS[question.relation]
        if isinstance(question, Compare):
            number = relation.number or float
            a = number((yield from self._look_up(relation, question.a)))
            b = number((yield from self._look_up(relation, question.b)))
            return question.a if a > b else question.b
        if isinstance(question, Which):
            return (yield from self._holder(relation, question.value))
        assert isinstance(question, Ask)
        subject = yield from self._resolve(question.subject)
        return (yield from self._look_up(relation, subject))

    def _resolve(self, subject: Subject) -> _Reading:
        if isinstance(subject, str):
            return subject
        relation = RELATIONS[subject.relation]
        if isinstance(subject, Has):
            return (yield from self._holder(relation, subject.value))
        inner = yield from self._resolve(subject.subject)
        return canonical((yield from self._look_up(relation, inner)))

    def _look_up(self, relation: Relation, subject: str) -> _Reading:
        """The value of a subject, from the passage with its title."""
        for query in (relation.search.format(s=subject), relation.title(subject)):
            for doc in (yield query):
                found = relation.subject(doc.title)
                if found is not None and same_name(found, subject) and (reading := relation.read(doc.text)):
                    self._note(f"{doc.title} says {reading[0]}.")
                    return reading[0]
        raise LookupError(f"I found no passage that tells the {relation.name} of {subject}.")

    def _holder(self, relation: Relation, value: str) -> _Reading:
        """The subject of the passage that holds a value."""
        words = relation.search.format(s="").strip()
        for query in (f"{value} {words}", f"{value} {relation.field}", value):
            for doc in (yield query):
                subject = relation.subject(doc.title)
                if subject is not None and (reading := relation.read(doc.text)) and same_name(reading[0], value):
                    self._note(f"{doc.title} says {reading[0]}, so it is {subject}.")
                    return subject
        raise LookupError(f"I found no passage with {value} as the {relation.name}.")

    def _note(self, text: str) -> None:
        self._thought = f"{self._thought} {text}".strip()

    def _say(self, text: str) -> str:
        thought, self._thought = f"{self._thought} {text}".strip(), ""
        return thought


class RandomAgent:
    """Searches for random words of the question, and answers with a random span of what it has read."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = random.Random(seed)

    def reset(self, observation: Observation, render: Callable[[], dict[str, Any]]) -> None:
        """Note the words of the question."""
        self._question = self._seen = _WORDS.findall(observation.text)[1:] or ["?"]

    def act(self, observation: Observation) -> Decision:
        """A search or, one time in three, an answer."""
        if docs := _DOC.findall(observation.text):
            self._seen = _WORDS.findall(" ".join(text for _, text in docs)) or self._seen
        if self._rng.random() < 1 / 3:
            return Decision(f"<answer>{self._span(self._seen, 3)}</answer>")
        return Decision(f"<search>{self._span(self._question, 5)}</search>")

    def _span(self, words: list[str], longest: int) -> str:
        start = self._rng.randrange(len(words))
        return " ".join(words[start : start + self._rng.randint(1, longest)])
