"""What the task families of both shop sites are made of: ways to judge, samples of rows, and an expert's usual moves."""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Generator, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from agentgym_envs.webarena.page import Node, Page

T = TypeVar("T")
#: Part of a script that ends on a page.
Walk = Generator[str, "Page", "Page"]
#: Instances that a family has at most, so that no family outweighs the others.
MOST = 20
UNACHIEVABLE = {"eval_types": ["string_match"], "reference_answers": {"fuzzy_match": "N/A"}}
NUMBER_ONLY = " Answer with the number only."


# ---- how success is judged ----


def includes(*phrases: str) -> dict[str, Any]:
    """Every phrase is in the answer."""
    return {"eval_types": ["string_match"], "reference_answers": {"must_include": list(phrases)}}


def exactly(answer: object) -> dict[str, Any]:
    """The answer is this."""
    return {"eval_types": ["string_match"], "reference_answers": {"exact_match": str(answer)}}


def shows(url: str) -> dict[str, Any]:
    """The browser ends on this page; query arguments that the URL names have its values."""
    return {"eval_types": ["url_match"], "reference_url": url}


def holds(*checks: tuple[str, Sequence[Sequence[Any]]]) -> dict[str, Any]:
    """Each query gives these rows."""
    return {"eval_types": ["state_check"], "state": [{"query": query, "equals": [list(row) for row in rows]} for query, rows in checks]}


def plain(cents: int) -> str:
    """An amount without its currency sign, as an answer may give it."""
    return f"{cents / 100:.2f}"


def some(name: str, rows: Iterable[T], count: int = MOST) -> list[T]:
    """At most ``count`` of the rows, in an order that depends on the family's name alone."""
    pool = list(rows)
    return random.Random(name).sample(pool, min(count, len(pool)))


def extremes(rows: Sequence[sqlite3.Row], column: str) -> list[sqlite3.Row]:
    """``[first]`` of rows sorted by a column, or nothing if the second is equal in it or there is no second."""
    return [rows[0]] if len(rows) > 1 and rows[0][column] != rows[1][column] else []


def unchanged(connection: sqlite3.Connection, query: str) -> tuple[str, list[list[Any]]]:
    """A check that a query gives what it gives now."""
    return query, [list(row) for row in connection.execute(query)]


# ---- an expert's moves ----


def entries(page: Page, pattern: str) -> list[tuple[Node, re.Match[str]]]:
    """List items: the node in front (a link, mostly) and the match of the text that follows it."""
    found = ((node, re.fullmatch(pattern, text.name)) for node, text in pairwise(page.nodes) if text.role == "StaticText")
    return [(node, match) for node, match in found if match]


def all_pages(page: Page) -> Generator[str, Page, list[Page]]:
    """The page of a list and all that follow it."""
    pages = [page]
    while page.has("link", "Next page"):
        page = yield page.click(page.find("link", "Next page"))
        pages.append(page)
    return pages


def click(page: Page, role: str, name: str | re.Pattern[str]) -> Walk:
    """Click on a node found by role and name."""
    return (yield page.click(page.find(role, name)))


def fill(page: Page, fields: dict[str, str], button: str = "") -> Walk:
    """Type into the fields with these labels, skipping those that hold the text; then Enter, or a click on the button."""
    changed = [(label, text) for label, text in fields.items() if page.node(_field(page, label)).text != text]
    for place, (label, text) in enumerate(changed, start=1):
        page = yield page.type_into(_field(page, label), text, enter=not button and place == len(changed))
    if button:
        page = yield page.click(page.find("button", button))
    return page


def between(page: Page, first: str, last: str, button: str = "") -> Walk:
    """Fill the two date fields of a filter and send it."""
    return (yield from fill(page, {"From date, YYYY-MM-DD": first, "To date, YYYY-MM-DD": last}, button))


def _field(page: Page, label: str) -> int:
    return next(node.id for node in page.nodes if node.role in ("textbox", "searchbox") and node.name == label)


def choose(page: Page, label: str, option: str) -> Walk:
    """Select an option of the combobox with that label, unless it is selected."""
    box = page.node(page.find("combobox", label))
    node = page.node(box.find("option", option))
    if node.properties.get("selected") != "True":
        page = yield page.click(node.id)
    return page


def total(page: Page) -> int:
    """Number of all entries of a list, as its last line says."""
    return next(int(match[1]) for node in page.nodes if (match := re.match(r"(\d+) \w+, page \d+ of", node.name)))


def cents(text: str) -> int:
    """``$12.50`` as 1250."""
    return round(float(text.removeprefix("$")) * 100)
