"""WebArena's evaluators without a judge model: an episode succeeds if every one of its evaluation types holds.

``string_match`` (``exact_match``, ``must_include``, ``fuzzy_match``), ``url_match`` and ``program_html`` read WebArena's own ``eval`` keys;
``state_check`` asks the database of the miniature. ``fuzzy_match`` is judged by normalised inclusion instead of by a language model.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

from agentgym_envs.webarena.browser.base import Browser

_OR = " |OR| "
_UNACHIEVABLE = "n/a"


@dataclass(frozen=True)
class Outcome:
    """What is judged: the ``answer`` of ``stop``, the browser as it was left, and the site's database if there is one."""

    answer: str
    browser: Browser
    database: sqlite3.Connection | None = None
    #: Values of ``func:...`` URLs and locators of the official tasks.
    call: Callable[[str, str], str] | None = None


def evaluate(evaluation: Mapping[str, Any], outcome: Outcome) -> dict[str, bool]:
    """Verdict of each evaluation type; success is that all hold. Raises ``ValueError`` for a type that is unknown."""
    verdicts = {}
    for kind in evaluation["eval_types"]:
        if kind not in _EVALUATORS:
            raise ValueError(f"expected one of the evaluation types {', '.join(_EVALUATORS)}, found {kind!r}")
        verdicts[kind] = _EVALUATORS[kind](evaluation, outcome)
    return verdicts


def clean(answer: str) -> str:
    """Lower case, without blanks and one pair of quotation marks around."""
    text = answer.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1]
    return text.lower()


def normalised(answer: str) -> str:
    """Words only: lower case, punctuation other than within numbers turned into blanks, articles left out."""
    words = re.sub(r"(?<!\d)[^\w\s]|[^\w\s](?!\d)", " ", clean(answer)).split()
    return " ".join(word for word in words if word not in ("a", "an", "the"))


def includes(phrase: str, answer: str) -> bool:
    """WebArena's ``must_include``: the phrase is in the answer; a single character has to be a word of its own."""
    wanted, given = clean(phrase), clean(answer)
    if len(wanted) == 1:
        return wanted in re.findall(r"\w+|[^\w\s]", given)
    return wanted in given


def fuzzily_equal(reference: str, answer: str) -> bool:
    """Stand-in for the judge: the reference's words stand in the answer in a row, whole."""
    if clean(reference) == _UNACHIEVABLE:
        return clean(answer) == _UNACHIEVABLE
    return f" {normalised(reference)} " in f" {normalised(answer)} "


def _string_match(evaluation: Mapping[str, Any], outcome: Outcome) -> bool:
    verdict = True
    for how, reference in evaluation["reference_answers"].items():
        if how == "exact_match":
            verdict &= clean(reference) == clean(outcome.answer)
        elif how == "must_include":
            verdict &= all(includes(phrase, outcome.answer) for phrase in reference)
        elif how == "fuzzy_match":
            phrases = [reference] if isinstance(reference, str) else reference
            verdict &= all(fuzzily_equal(phrase, outcome.answer) for phrase in phrases)
        else:
            raise ValueError(f"expected exact_match, must_include or fuzzy_match, found {how!r}")
    return verdict


def _url_match(evaluation: Mapping[str, Any], outcome: Outcome) -> bool:
    """Rule "GOLD in PRED": the place of one alternative is part of the current one, and each gold query key has an allowed value."""
    rule = evaluation.get("url_note") or "GOLD in PRED"
    if rule != "GOLD in PRED":
        raise ValueError(f"expected the URL rule 'GOLD in PRED', found {rule!r}")
    place, query = _url_parts(outcome.browser.view().url)
    golds = [_url_parts(url) for url in evaluation["reference_url"].split(_OR)]
    allowed: dict[str, set[str]] = {}
    for _, gold_query in golds:
        for key, values in gold_query.items():
            allowed.setdefault(key, set()).update(values)
    return any(gold in place for gold, _ in golds) and all(values & set(query.get(key, ())) for key, values in allowed.items())


def _url_parts(url: str) -> tuple[str, dict[str, list[str]]]:
    parts = urlsplit(url.strip().rstrip("/"))
    return parts.netloc + parts.path.rstrip("/"), parse_qs(parts.query, keep_blank_values=True)


def _program_html(evaluation: Mapping[str, Any], outcome: Outcome) -> bool:
    return all(_contents_match(target, outcome) for target in evaluation["program_html"])


def _contents_match(target: Mapping[str, Any], outcome: Outcome) -> bool:
    found = located(target, outcome)
    required = target["required_contents"]
    if "exact_match" in required:
        return clean(required["exact_match"]) == clean(found)
    if "must_include" in required:
        return all(any(includes(option, found) for option in phrase.split(_OR)) for phrase in required["must_include"])
    raise ValueError(f"expected exact_match or must_include in required_contents, found {sorted(required)}")


def located(target: Mapping[str, Any], outcome: Outcome) -> str:
    """Text that a ``program_html`` entry points at: a whole page, or the value of its locator there."""
    url, locator = str(target["url"]), str(target.get("locator", "")).strip()
    if url.startswith("func:"):
        url = _call(outcome, url, outcome.browser.view().url)
    url = "" if url == "last" else url
    if not locator:
        return unescape(outcome.browser.html(url))
    if locator.startswith("func:"):
        return _call(outcome, locator, url or outcome.browser.view().url)
    return unescape(outcome.browser.evaluate(locator, url))


def _call(outcome: Outcome, expression: str, url: str) -> str:
    if outcome.call is None:
        raise ValueError(f"expected a page or a JavaScript locator, found {expression!r}: only the official sites know functions")
    return outcome.call(expression, url)


def _state_check(evaluation: Mapping[str, Any], outcome: Outcome) -> bool:
    if outcome.database is None:
        raise ValueError("state_check needs the database of a miniature site")
    return all(_rows(outcome.database, check["query"]) == [list(row) for row in check["equals"]] for check in evaluation["state"])


def _rows(database: sqlite3.Connection, query: str) -> list[list[Any]]:
    return [list(row) for row in database.execute(query)]


_EVALUATORS: dict[str, Callable[[Mapping[str, Any], Outcome], bool]] = {
    "string_match": _string_match,
    "url_match": _url_match,
    "program_html": _program_html,
    "state_check": _state_check,
}
