"""Questions as structures, written in one of several wordings and read back.

``Ask(relation, subject)``, ``Which(relation, value)`` and ``Compare(relation, a, b)`` are questions; a subject is a name or a description:
``Has(relation, value)`` is the country with that value, ``Of(relation, subject)`` the value, itself a country, that the subject has.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from agentgym_envs.searchqa.relations import RELATIONS, Relation

_THE = re.compile(
    r"(?:United |Republic|Democratic Rep|Dominican|Central African|Philippines|Netherlands|Maldives"
    r"|Bahamas|Gambia|Comoros|Seychelles|Holy See"
    r"|.*Islands$|.*Territory$|.*Republic$|Isle of|West Bank|Gaza Strip|European Union)"
)


@dataclass(frozen=True)
class Has:
    """The country that has a value."""

    relation: str
    value: str


@dataclass(frozen=True)
class Of:
    """The country that a relation leads to."""

    relation: str
    subject: Subject


Subject = str | Has | Of


@dataclass(frozen=True)
class Ask:
    """The value that a subject has."""

    relation: str
    subject: Subject


@dataclass(frozen=True)
class Which:
    """The name of the country that has a value."""

    relation: str
    value: str


@dataclass(frozen=True)
class Compare:
    """Which of two named countries has the larger value."""

    relation: str
    a: str
    b: str


Question = Ask | Which | Compare
Pick = Callable[[Sequence[str]], str]


def write(question: Question, pick: Pick) -> str:
    """The question in words; ``pick`` chooses among the wordings."""
    relation = RELATIONS[question.relation]
    if isinstance(question, Compare):
        text = pick(relation.compare).format(a=_named(question.a), b=_named(question.b))
    elif isinstance(question, Which):
        text = pick(relation.inverse).format(v=question.value)
    else:
        text = pick(relation.asks).format(s=_phrase(question.subject, pick))
    return text[0].upper() + text[1:]


def read(text: str) -> Question | None:
    """Inverse of :func:`write`; None for a question in other words."""
    return next(_questions(text.strip()), None)


def _questions(text: str) -> Iterator[Question]:
    for relation in RELATIONS.values():
        for found in _matches(relation.compare, text):
            yield Compare(relation.name, _name(found["a"]), _name(found["b"]))
        for found in _matches(relation.inverse, text):
            yield Which(relation.name, found["v"])
        for found in _matches(relation.asks, text):
            if (subject := _subject(found["s"])) is not None:
                yield Ask(relation.name, subject)


def _subject(text: str) -> Subject | None:
    for relation in RELATIONS.values():
        for found in _matches(relation.clues, text):
            return Has(relation.name, found["v"])
        for found in _matches(relation.follows, text):
            if (inner := _subject(found["s"])) is not None:
                return Of(relation.name, inner)
    name = _name(text)
    return None if name[:1].islower() else name


def _phrase(subject: Subject, pick: Pick) -> str:
    if isinstance(subject, str):
        return _named(subject)
    relation: Relation = RELATIONS[subject.relation]
    if isinstance(subject, Has):
        return pick(relation.clues).format(v=subject.value)
    return pick(relation.follows).format(s=_phrase(subject.subject, pick))


def _named(name: str) -> str:
    return f"the {name}" if _THE.match(name) else name


def _name(text: str) -> str:
    return text.removeprefix("the ")


@functools.cache
def _compiled(template: str) -> re.Pattern[str]:
    pattern = re.sub(r"\\\{(\w)\\\}", r"(?P<\1>.+?)", re.escape(template))
    first = pattern[0]
    return re.compile(f"[{first.upper()}{first.lower()}]{pattern[1:]}" if first.isalpha() else pattern)


def _matches(templates: Sequence[str], text: str) -> Iterator[re.Match[str]]:
    return (m for t in templates if (m := _compiled(t).fullmatch(text)))
