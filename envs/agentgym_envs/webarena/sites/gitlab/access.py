"""What the pages of the code host look up: the user who is logged in, projects by address, users by name, and who may do what."""

from __future__ import annotations

import sqlite3

from werkzeug.exceptions import NotFound

from agentgym_envs.webarena.sites.base import NOW, db, user
from agentgym_envs.webarena.sites.gitlab.seed import ROLES
from agentgym_envs.webarena.sites.listing import Refused

PROJECTS = (
    "SELECT p.*, u.username AS owner, (SELECT COUNT(*) FROM lab_stars s WHERE s.project_id = p.id) AS stars "
    "FROM lab_projects p JOIN lab_users u ON u.id = p.owner_id"
)


def now() -> str:
    """The time that new rows carry."""
    return NOW.strftime("%Y-%m-%d %H:%M")


def me() -> int:
    """Id of the logged-in user, 0 if there is none."""
    row = db().execute("SELECT id FROM lab_users WHERE username = ?", (user(),)).fetchone()
    return int(row["id"]) if row else 0


def login() -> int:
    """Id of the logged-in user; refused if there is none."""
    found = me()
    if not found:
        raise Refused("You are not logged in.", 403)
    return found


def project_at(owner: str, slug: str) -> sqlite3.Row:
    """The project at an address that the user may see."""
    row: sqlite3.Row | None = db().execute(f"{PROJECTS} WHERE u.username = ? AND p.slug = ?", (owner, slug)).fetchone()
    if row is None or (row["visibility"] == "private" and not role(row["id"])):
        raise NotFound
    return row


def role(project_id: int) -> str:
    """The logged-in user's role in a project, or ``""``."""
    row = db().execute("SELECT role FROM lab_members WHERE project_id = ? AND user_id = ?", (project_id, me())).fetchone()
    return str(row["role"]) if row else ""


def may(project_id: int, least: str) -> bool:
    """Whether the logged-in user's role is at least the given one."""
    has = role(project_id)
    return bool(has) and ROLES.index(has) >= ROLES.index(least)


def demand(project_id: int, least: str) -> None:
    """Refuse the request of a user whose role is lower."""
    login()
    if not may(project_id, least):
        raise Refused(f"You need the role {least} in this project.", 403)


def user_id(username: str, label: str) -> int:
    """Id of a user by name, with or without the ``@``."""
    row = db().execute("SELECT id FROM lab_users WHERE username = ?", (username.removeprefix("@"),)).fetchone()
    if row is None:
        raise Refused(f"{label}: there is no user {username!r}.")
    return int(row["id"])


def optional_user_id(username: str, label: str) -> int | None:
    """The same, where an empty name means nobody."""
    return user_id(username, label) if username else None
