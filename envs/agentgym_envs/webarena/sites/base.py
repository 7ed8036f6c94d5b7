"""What one site of the WebArena miniature is made of, and what its pages may ask of the session they serve.

A site is a small Flask application that renders on the server and keeps all state in SQLite. It holds nothing itself: the database of
the session arrives with each request, so that one application serves every session of a process.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from flask import Flask, request

if TYPE_CHECKING:
    from agentgym_envs.webarena.page import Page

#: Key of the WSGI environ under which the session's database connection travels.
DATABASE = "agentgym.webarena.db"
#: Cookie that names the user who is logged in; the session's browser holds it from the start.
USER_COOKIE = "user"
#: The clock of all five sites. Content is dated before it, new rows carry it: no page depends on the real time.
NOW = datetime(2023, 6, 15, 12, 0)
#: Rows of one page of a list: short pages keep observations within a small model's context.
PAGE_SIZE = 10


def db() -> sqlite3.Connection:
    """The database of the session that the current request belongs to (rows are ``sqlite3.Row``)."""
    connection: sqlite3.Connection = request.environ[DATABASE]
    return connection


def user() -> str:
    """Name of the logged-in user of this site, or ``""``."""
    return request.cookies.get(USER_COOKIE, "")


#: An expert's way through one task: it yields actions of WebArena's grammar and receives the page that each one led to.
Script = Generator[str, "Page", None]


@dataclass(frozen=True)
class Instance:
    """One filled-in task: values of the intent's placeholders and how success is judged (keys of WebArena's ``eval``).

    ``evaluation`` holds ``eval_types`` and what they need: ``string_match`` with ``reference_answers`` (``exact_match``,
    ``must_include`` or ``fuzzy_match``), ``url_match`` with ``reference_url``, ``program_html`` with ``program_html``, or
    ``state_check`` with ``state``: a list of ``{"query": SQL, "equals": rows}`` asked of the session's database.
    """

    params: Mapping[str, str]
    evaluation: Mapping[str, Any]
    start: str = "/"


@dataclass(frozen=True)
class TaskTemplate:
    """A family of tasks on one site.

    ``intent`` has ``{placeholders}``; ``instances`` reads the pristine database and lists every instance in one fixed order;
    ``solve(page, **params)`` is the expert: it sees pages only, never the database.
    """

    id: str
    site: str
    intent: str
    changes_state: bool
    instances: Callable[[sqlite3.Connection], Sequence[Instance]]
    solve: Callable[..., Script]


@dataclass(frozen=True)
class Site:
    """One site: where it lives, who is logged in, its pages, its tables and content, its tasks."""

    name: str
    title: str
    origin: str
    user: str
    create_app: Callable[[], Flask]
    schema: str
    seed: Callable[[sqlite3.Connection, random.Random], None]
    templates: Sequence[TaskTemplate] = field(default=())
    #: Name of the database that holds the tables; sites that name the same one share it (with equal schema and seed). "" is the site's own.
    database: str = ""
