"""Lists and forms of the sites: one page of a query's rows with links to its neighbours, and checked form values."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from flask import request

from agentgym_envs.webarena.sites.base import PAGE_SIZE, db

_LONGEST_QUERY = 200


class Refused(Exception):
    """The request cannot be carried out: the message is shown in a page with this HTTP status."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Listing:
    """One page of a list: its rows, the number of all rows, and the page's number (from 1) among ``pages``."""

    rows: Sequence[Any]
    total: int
    page: int
    pages: int

    @property
    def links(self) -> list[tuple[str, str]]:
        """Text and address of the links to the neighbouring pages; the other query arguments are kept."""
        neighbours = (("Previous page", self.page - 1), ("Next page", self.page + 1))
        return [(text, with_arguments(page=str(page))) for text, page in neighbours if 1 <= page <= self.pages]


def with_arguments(**changes: str) -> str:
    """The current address with some query arguments changed; an empty value removes one."""
    arguments = {key: value for key, value in {**request.args.to_dict(), **changes}.items() if value}
    return request.path + ("?" + urlencode(arguments) if arguments else "")


def paginate(sql: str, parameters: Sequence[object] = (), size: int = PAGE_SIZE) -> Listing:
    """The page of a query's rows that the argument ``page`` names; a page beyond the last is the last, nonsense is the first."""
    total: int = db().execute(f"SELECT COUNT(*) FROM ({sql})", parameters).fetchone()[0]
    page, pages = _page(total, size)
    rows: list[sqlite3.Row] = db().execute(f"{sql} LIMIT ? OFFSET ?", (*parameters, size, (page - 1) * size)).fetchall()
    return Listing(rows, total, page, pages)


def slice_page(rows: Sequence[Any], size: int = PAGE_SIZE) -> Listing:
    """The same for rows that are at hand already."""
    page, pages = _page(len(rows), size)
    return Listing(rows[(page - 1) * size : page * size], len(rows), page, pages)


def _page(total: int, size: int) -> tuple[int, int]:
    pages = max(1, -(-total // size))
    asked = request.args.get("page", "1")
    page = int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 9 else 1
    return min(max(page, 1), pages), pages


def form_text(name: str, label: str, limit: int = 2000, required: bool = True) -> str:
    """A text field of the submitted form, stripped; refused if it is missing where required, or too long."""
    text = request.form.get(name, "").replace("\r\n", "\n").strip()
    if required and not text:
        raise Refused(f"{label} cannot be blank.")
    if len(text) > limit:
        raise Refused(f"{label} is too long: at most {limit} characters, found {len(text)}.")
    return text


def like(text: str) -> str:
    """A ``LIKE`` pattern (``ESCAPE '\\'``) that finds the text anywhere, its own wildcards taken literally; a long text is cut."""
    text = text[:_LONGEST_QUERY]  # SQLite refuses patterns of more than 50,000 bytes
    for wildcard in "\\%_":
        text = text.replace(wildcard, "\\" + wildcard)
    return f"%{text}%"


def choice(name: str, allowed: Sequence[str]) -> str:
    """A query argument that must be one of the allowed values; anything else is the first of them."""
    value = request.args.get(name, "")
    return value if value in allowed else allowed[0]
