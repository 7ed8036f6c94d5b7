"""What the task families of the code host share: sampling, evaluations, and an expert's usual ways."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

from agentgym_envs.webarena.sites.base import Instance, Script, TaskTemplate
from agentgym_envs.webarena.sites.gitlab.seed import USER

if TYPE_CHECKING:
    from agentgym_envs.webarena.page import Page

ORIGIN = "http://gitlab.test"
PER_FAMILY = 14
PROJECT = "o.username || '/' || p.slug"
FROM_PROJECTS = "FROM lab_projects p JOIN lab_users o ON o.id = p.owner_id"
Walk = Generator[str, "Page", "Page"]


def exact(answer: object) -> dict[str, Any]:
    """Evaluation by one exact answer."""
    return {"eval_types": ["string_match"], "reference_answers": {"exact_match": str(answer)}}


def state(*checks: tuple[str, Sequence[Sequence[object]]]) -> dict[str, Any]:
    """Evaluation by the rows that queries give in the end."""
    return {"eval_types": ["state_check"], "state": [{"query": query, "equals": [list(row) for row in rows]} for query, rows in checks]}


def last_id(connection: sqlite3.Connection, table: str) -> int:
    """The highest id of a table: rows with a higher one are new."""
    return int(connection.execute(f"SELECT MAX(id) FROM {table}").fetchone()[0])


def my_id(connection: sqlite3.Connection) -> int:
    """Id of the user who is logged in."""
    return int(connection.execute("SELECT id FROM lab_users WHERE username = ?", (USER,)).fetchone()[0])


def sample(family: str, rows: list[Any], count: int = PER_FAMILY) -> list[Any]:
    """Up to ``count`` rows in an order that depends on the family's name alone."""
    return random.Random(family).sample(rows, min(count, len(rows)))


def sample_projects(connection: sqlite3.Connection, family: str, condition: str = "1") -> list[tuple[int, str]]:
    """(id, full name) of projects in the family's order; ``condition`` is SQL on ``p`` and its owner ``o``."""
    rows = connection.execute(f"SELECT p.id, {PROJECT} {FROM_PROJECTS} WHERE {condition} ORDER BY p.id").fetchall()
    return [(row[0], row[1]) for row in sample(family, rows)]


def changing(name: str, intent: str, instances: Callable[..., list[Instance]], solve: Callable[..., Script]) -> TaskTemplate:
    """A family that changes the site."""
    return TaskTemplate(f"gitlab.{name}", "gitlab", intent, True, instances, solve)


def open_project(page: Page, project: str) -> Walk:
    """From the start page to a project, by the search."""
    page = yield page.type_into(page.find("textbox", "Search projects"), project.split("/")[1], enter=True)
    return (yield page.click(page.find("link", project)))


def open_tab(page: Page, project: str, tab: str) -> Walk:
    """From the start page to one of a project's tabs."""
    page = yield from open_project(page, project)
    return (yield page.click(page.find("link", tab)))


def open_ticket(page: Page, project: str, tab: str, title: str) -> Walk:
    """From the start page to an issue or a merge request, whatever its state."""
    page = yield from open_tab(page, project, tab)
    page = yield page.click(page.find("link", "Show all"))
    page = yield page.type_into(page.find("textbox", "Search titles"), title, enter=True)
    return (yield page.click(page.find("link", title)))
