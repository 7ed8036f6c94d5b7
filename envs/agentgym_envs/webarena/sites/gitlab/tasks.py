"""Task families of the code host that change projects, members and profiles, and the tuple of all its families."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentgym_envs.webarena.sites.base import Instance, Script
from agentgym_envs.webarena.sites.gitlab.parts import (
    FROM_PROJECTS,
    changing,
    last_id,
    my_id,
    open_project,
    open_tab,
    sample,
    sample_projects,
    state,
)
from agentgym_envs.webarena.sites.gitlab.questions import QUESTIONS
from agentgym_envs.webarena.sites.gitlab.seed import ROLES, USER
from agentgym_envs.webarena.sites.gitlab.ticket_tasks import TICKETS

if TYPE_CHECKING:
    from agentgym_envs.webarena.page import Page

_STATUSES = (
    *("On holiday", "Out for lunch", "Reviewing", "In a meeting", "Working from home", "Busy", "Back on Monday", "Writing docs", "On call"),
    *("Hiking until Friday", "Learning Rust", "Available", "At a conference", "Do not disturb"),
)
_NEW_PROJECTS = (
    *("Moon Garden", "Tea Timer", "Rain Gauge", "Star Chart", "Bread Log", "Chess Clock", "Word Ladder", "Bus Stops", "Plant Diary"),
    *("Sound Board", "Trail Guide", "Book Swap", "Quiz Night", "Light Switch"),
)
_DESCRIPTIONS = (
    *("Unmaintained, see the wiki", "Now with fewer bugs", "Moved to a new team", "A small tool for large gardens", "Looking for helpers"),
    *("Stable and boring", "Used in three clubs", "Rewritten from scratch", "Weekly releases", "Made on rainy days"),
    *("Fast enough for everyone", "Simple on purpose", "Ready for the winter", "The second attempt"),
)
_MINE = f"{FROM_PROJECTS} WHERE o.username = '{USER}'"


# ---- instances ----


def _create_project(connection: sqlite3.Connection) -> list[Instance]:
    last, me = last_id(connection, "lab_projects"), my_id(connection)
    query = (
        "SELECT p.owner_id, p.name, p.visibility, COUNT(f.path) FROM lab_projects p LEFT JOIN lab_files f ON f.project_id = p.id "
        f"WHERE p.id > {last} GROUP BY p.id"
    )
    found = []
    for i, name in enumerate(_NEW_PROJECTS):
        visibility, readme = ("private", "public")[i % 2], i % 3 == 0
        params = {"name": name, "visibility": visibility, "readme": "with" if readme else "without"}
        found.append(Instance(params, state((query, [(me, name, visibility, int(readme))]))))
    return found


def _member_rows(project: int) -> str:
    return (
        "SELECT u.username, m.role FROM lab_members m JOIN lab_users u ON u.id = m.user_id "
        f"WHERE m.project_id = {project} ORDER BY u.username"
    )


def _invite(connection: sqlite3.Connection) -> list[Instance]:
    mine = connection.execute(f"SELECT p.id, p.slug {_MINE} ORDER BY p.id").fetchall()
    found = []
    for i in range(15):
        project, slug = mine[i % len(mine)]
        rows = [tuple(row) for row in connection.execute(_member_rows(project))]
        outside = [name for (name,) in connection.execute("SELECT username FROM lab_users ORDER BY id") if name not in dict(rows)]
        user, role = sample(f"invite {i}", outside, 1)[0], ROLES[i % 4]
        params = {"project": f"{USER}/{slug}", "user": user, "role": role}
        found.append(Instance(params, state((_member_rows(project), sorted([*rows, (user, role)])))))
    return found


def _change_role(connection: sqlite3.Connection) -> list[Instance]:
    found = []
    for project, slug in connection.execute(f"SELECT p.id, p.slug {_MINE} ORDER BY p.id").fetchall():
        rows = [tuple(row) for row in connection.execute(_member_rows(project))]
        for i, (user, role) in enumerate(sample(slug, [row for row in rows if row[1] != "Owner"], 3)):
            new = [other for other in ROLES[:4] if other != role][i]
            after = [(name, new if name == user else old) for name, old in rows]
            found.append(Instance({"project": f"{USER}/{slug}", "user": user, "role": new}, state((_member_rows(project), after))))
    return found


def _set_status(connection: sqlite3.Connection) -> list[Instance]:
    query = "SELECT username, status FROM lab_users WHERE status != ''"
    return [Instance({"status": status}, state((query, [(USER, status)]))) for status in _STATUSES]


def _star(connection: sqlite3.Connection) -> list[Instance]:
    query = f"SELECT project_id FROM lab_stars WHERE user_id = {my_id(connection)}"
    return [Instance({"project": name}, state((query, [(project,)]))) for project, name in sample_projects(connection, "star")]


def _fork(connection: sqlite3.Connection) -> list[Instance]:
    query = f"SELECT owner_id, forked_from FROM lab_projects WHERE id > {last_id(connection, 'lab_projects')}"
    me = my_id(connection)
    return [
        Instance({"project": name}, state((query, [(me, project)])))
        for project, name in sample_projects(connection, "fork", f"o.username != '{USER}'")
    ]


def _describe(connection: sqlite3.Connection) -> list[Instance]:
    mine = connection.execute(f"SELECT p.id, p.slug, p.name, p.visibility {_MINE} ORDER BY p.id").fetchall()
    found = []
    for i, text in enumerate(_DESCRIPTIONS):
        project, slug, name, visibility = mine[i % len(mine)]
        query = f"SELECT name, description, visibility FROM lab_projects WHERE id = {project}"
        found.append(Instance({"project": f"{USER}/{slug}", "text": text}, state((query, [(name, text, visibility)]))))
    return found


# ---- experts ----


def _solve_create_project(page: Page, name: str, visibility: str, readme: str) -> Script:
    page = yield page.click(page.find("link", "New project"))
    page = yield page.type_into(page.find("textbox", "Project name"), name)
    if visibility == "public":
        page = yield page.click(page.find("option", "public"))
    if readme == "with":
        page = yield page.click(page.find("checkbox", "Start with a README"))
    page = yield page.click(page.find("button", "Create project"))
    yield page.stop()


def _solve_invite(page: Page, project: str, user: str, role: str) -> Script:
    page = yield from open_tab(page, project, "Members")
    page = yield page.type_into(page.find("textbox", "Username"), user)
    if role != ROLES[0]:
        page = yield page.click(page.find("option", role))
    page = yield page.click(page.find("button", "Invite"))
    yield page.stop()


def _solve_change_role(page: Page, project: str, user: str, role: str) -> Script:
    page = yield from open_tab(page, project, "Members")
    page = yield page.click(page.find("link", user))
    page = yield page.click(page.find("option", role))
    page = yield page.click(page.find("button", "Change role"))
    yield page.stop()


def _solve_set_status(page: Page, status: str) -> Script:
    page = yield page.click(page.find("link", "Edit profile"))
    page = yield page.type_into(page.find("textbox", "Your status"), status, enter=True)
    yield page.stop()


def _solve_project_button(button: str) -> Callable[..., Script]:
    def solve(page: Page, project: str) -> Script:
        page = yield from open_project(page, project)
        page = yield page.click(page.find("button", button))
        yield page.stop()

    return solve


def _solve_describe(page: Page, project: str, text: str) -> Script:
    page = yield from open_tab(page, project, "Settings")
    page = yield page.type_into(page.find("textbox", "Project description"), text, enter=True)
    yield page.stop()


TEMPLATES = (
    *QUESTIONS,
    *TICKETS,
    changing(
        "create_project", 'Create a {visibility} project with the name "{name}" {readme} a README.', _create_project, _solve_create_project
    ),
    changing("invite", "Invite {user} to {project} as {role}.", _invite, _solve_invite),
    changing("change_role", "Change the role of {user} in {project} to {role}.", _change_role, _solve_change_role),
    changing("set_status", 'Set my status to "{status}".', _set_status, _solve_set_status),
    changing("star", "Star the project {project}.", _star, _solve_project_button("Star")),
    changing("fork", "Fork the project {project}.", _fork, _solve_project_button("Fork")),
    changing("describe", 'Change the description of my project {project} to "{text}".', _describe, _solve_describe),
)
