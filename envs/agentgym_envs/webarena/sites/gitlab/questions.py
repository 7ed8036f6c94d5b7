"""Task families of the code host that ask: instances from the pristine database, experts on the pages."""

from __future__ import annotations

import sqlite3
from calendar import month_name, monthrange
from collections.abc import Callable
from itertools import groupby
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from agentgym_envs.webarena.sites.base import Instance, Script, TaskTemplate
from agentgym_envs.webarena.sites.gitlab.parts import (
    FROM_PROJECTS,
    ORIGIN,
    PER_FAMILY,
    PROJECT,
    Walk,
    exact,
    open_project,
    open_tab,
    open_ticket,
    sample,
)
from agentgym_envs.webarena.sites.gitlab.seed import USER

if TYPE_CHECKING:
    from agentgym_envs.webarena.page import Page

_UNKNOWN_PROJECTS = ("rowan.hale/moon-garden", "rowan.hale/tea-timer", "rowan.hale/salt-mine")


# ---- instances ----


def _commits_by(connection: sqlite3.Connection) -> list[Instance]:
    sql = (
        f"SELECT {PROJECT}, u.username, COUNT(*) {FROM_PROJECTS} JOIN lab_commits c ON c.project_id = p.id "
        "JOIN lab_users u ON u.id = c.author_id GROUP BY p.id, u.id HAVING COUNT(*) > 1 ORDER BY p.id, u.id"
    )
    rows = sample("commits_by", connection.execute(sql).fetchall())
    return [Instance({"project": project, "user": user}, exact(count)) for project, user, count in rows]


def _commits_in_month(connection: sqlite3.Connection) -> list[Instance]:
    sql = (
        f"SELECT {PROJECT}, u.username, substr(c.created, 1, 7), COUNT(*) {FROM_PROJECTS} JOIN lab_commits c ON c.project_id = p.id "
        "JOIN lab_users u ON u.id = c.author_id WHERE c.created >= '2022-07-01' "
        "GROUP BY p.id, u.id, substr(c.created, 1, 7) HAVING COUNT(*) > 1 ORDER BY 1, 2, 3"
    )
    found = []
    for project, user, month, count in sample("commits_in_month", connection.execute(sql).fetchall()):
        spoken = f"{month_name[int(month[5:])]} {month[:4]}"
        found.append(Instance({"project": project, "user": user, "month": spoken}, exact(count)))
    return found


def _top_contributor(connection: sqlite3.Connection) -> list[Instance]:
    sql = (
        f"SELECT {PROJECT}, u.username, COUNT(*) AS commits {FROM_PROJECTS} JOIN lab_commits c ON c.project_id = p.id "
        "JOIN lab_users u ON u.id = c.author_id GROUP BY p.id, u.id ORDER BY p.id, commits DESC"
    )
    found = []
    for project, group in groupby(connection.execute(sql), key=lambda row: row[0]):
        first, second = list(group)[:2]
        if first[2] > second[2]:
            found.append(Instance({"project": project}, exact(first[1])))
    return sample("top_contributor", found)


_LABELLED = (
    f"SELECT {PROJECT} AS project, l.label, i.title, i.created {FROM_PROJECTS} JOIN lab_issues i ON i.project_id = p.id "
    "JOIN lab_issue_labels l ON l.issue_id = i.id WHERE i.state = 'open' ORDER BY p.id, l.label, i.created DESC"
)


def _by_label(connection: sqlite3.Connection) -> list[tuple[str, str, list[sqlite3.Row]]]:
    """(project, label, open issues with it from the newest to the oldest)."""
    grouped = groupby(connection.execute(_LABELLED), key=lambda row: (row[0], row[1]))
    return [(project, label, list(group)) for (project, label), group in grouped]


def _open_with_label(connection: sqlite3.Connection) -> list[Instance]:
    groups = sample("open_with_label", [group for group in _by_label(connection) if len(group[2]) > 1])
    return [Instance({"project": project, "label": label}, exact(len(rows))) for project, label, rows in groups]


def _newest_with_label(connection: sqlite3.Connection) -> list[Instance]:
    groups = [g for g in _by_label(connection) if len(g[2]) > 1 and g[2][0]["created"] > g[2][1]["created"]]
    return [Instance({"project": p, "label": label}, exact(rows[0]["title"])) for p, label, rows in sample("newest_with_label", groups)]


def _listed_with_label(connection: sqlite3.Connection) -> list[Instance]:
    found = []
    for project, label, _ in sample("listed_with_label", _by_label(connection)):
        url = f"{ORIGIN}/{project}/issues?{urlencode({'state': 'open', 'label': label})}"
        found.append(Instance({"project": project, "label": label}, {"eval_types": ["url_match"], "reference_url": url}))
    return found


def _projects(connection: sqlite3.Connection, family: str, count: int = PER_FAMILY) -> list[str]:
    rows = connection.execute(f"SELECT {PROJECT} {FROM_PROJECTS} ORDER BY p.id").fetchall()
    return [row[0] for row in sample(family, rows, count)]


def _stars(connection: sqlite3.Connection) -> list[Instance]:
    sql = f"SELECT COUNT(*) FROM lab_stars WHERE project_id = (SELECT p.id {FROM_PROJECTS} WHERE {PROJECT} = ?)"
    return [
        Instance({"project": project}, exact(connection.execute(sql, (project,)).fetchone()[0]))
        for project in _projects(connection, "stars")
    ]


def _more_stars(connection: sqlite3.Connection) -> list[Instance]:
    sql = f"SELECT COUNT(*) FROM lab_stars WHERE project_id = (SELECT p.id {FROM_PROJECTS} WHERE {PROJECT} = ?)"
    names = _projects(connection, "more_stars", 24)
    pairs = [*zip(names[::2], names[1::2], strict=True), *zip(names[:4:2], names[3:7:2], strict=True)]
    found = []
    for a, b in pairs:
        stars = [connection.execute(sql, (name,)).fetchone()[0] for name in (a, b)]
        found.append(Instance({"a": a, "b": b}, exact(a if stars[0] > stars[1] else b)))  # no two projects have equally many
    return found


def _clone_url(connection: sqlite3.Connection) -> list[Instance]:
    found = [Instance({"project": name}, exact(f"git@codeyard.test:{name}.git")) for name in _projects(connection, "clone_url")]
    unknown = {"eval_types": ["string_match"], "reference_answers": {"fuzzy_match": "N/A"}}
    return [*found, *(Instance({"project": name}, unknown) for name in _UNKNOWN_PROJECTS)]


def _issue_assignee(connection: sqlite3.Connection) -> list[Instance]:
    sql = (
        f"SELECT {PROJECT}, i.title, u.username {FROM_PROJECTS} JOIN lab_issues i ON i.project_id = p.id "
        "JOIN lab_users u ON u.id = i.assignee_id ORDER BY i.id"
    )
    rows = sample("issue_assignee", connection.execute(sql).fetchall())
    return [Instance({"project": project, "title": title}, exact(user)) for project, title, user in rows]


def _setting(connection: sqlite3.Connection) -> list[Instance]:
    sql = (
        f"SELECT {PROJECT}, f.path, f.content {FROM_PROJECTS} JOIN lab_files f ON f.project_id = p.id "
        "WHERE f.path LIKE 'src/limits%' ORDER BY p.id"
    )
    found = []
    for i, (project, path, content) in enumerate(sample("setting", connection.execute(sql).fetchall())):
        name, value = content.splitlines()[1 + i % 2].split(" = ")
        found.append(Instance({"project": project, "path": path, "name": name}, exact(value)))
    return found


def _open_reviews(connection: sqlite3.Connection) -> list[Instance]:
    sql = (
        f"SELECT {PROJECT}, SUM(r.state = 'open') {FROM_PROJECTS} JOIN lab_merge_requests r ON r.project_id = p.id "
        "GROUP BY p.id ORDER BY p.id"
    )
    return [Instance({"project": project}, exact(count)) for project, count in sample("open_reviews", connection.execute(sql).fetchall())]


def _todos(connection: sqlite3.Connection) -> list[Instance]:
    sql = (
        "SELECT t.action, COUNT(*) FROM lab_todos t JOIN lab_users u ON u.id = t.user_id WHERE u.username = ? AND NOT t.done "
        "GROUP BY t.action ORDER BY t.action"
    )
    return [Instance({"event": action}, exact(count)) for action, count in connection.execute(sql, (USER,))]


# ---- experts ----


def _first_number(page: Page, role: str, word: str) -> str:
    return next(node.name for node in page.find_all(role) if word in node.name and node.name[0].isdigit()).split()[0]


def _solve_commits_by(page: Page, project: str, user: str) -> Script:
    page = yield from open_tab(page, project, "Contributors")
    yield page.stop(next(row.texts[2] for row in page.rows("Contributors") if row.texts[0] == user))


def _solve_commits_in_month(page: Page, project: str, user: str, month: str) -> Script:
    name, year = month.split()
    number = list(month_name).index(name)
    page = yield from open_tab(page, project, "Commits")
    page = yield page.type_into(page.find("textbox", "Author"), user)
    page = yield page.type_into(page.find("textbox", "First day"), f"{year}-{number:02}-01")
    page = yield page.type_into(page.find("textbox", "Last day"), f"{year}-{number:02}-{monthrange(int(year), number)[1]}", enter=True)
    yield page.stop(_first_number(page, "StaticText", "commit"))


def _solve_top_contributor(page: Page, project: str) -> Script:
    page = yield from open_tab(page, project, "Contributors")
    yield page.stop(page.rows("Contributors")[0].texts[0])


def _labelled(page: Page, project: str, label: str) -> Walk:
    page = yield from open_tab(page, project, "Issues")
    return (yield page.type_into(page.find("textbox", "Label"), label, enter=True))


def _solve_open_with_label(page: Page, project: str, label: str) -> Script:
    page = yield from _labelled(page, project, label)
    yield page.stop(_first_number(page, "StaticText", "open issue"))


def _solve_newest_with_label(page: Page, project: str, label: str) -> Script:
    page = yield from _labelled(page, project, label)
    yield page.stop(page.rows("Issues")[0].texts[0])


def _solve_listed_with_label(page: Page, project: str, label: str) -> Script:
    page = yield from _labelled(page, project, label)
    yield page.stop()


def _solve_stars(page: Page, project: str) -> Script:
    page = yield from open_project(page, project)
    yield page.stop(page.value("Stars"))


def _solve_more_stars(page: Page, a: str, b: str) -> Script:
    stars = []
    for project in (a, b):
        page = yield page.type_into(page.find("textbox", "Search projects"), project.split("/")[1], enter=True)
        stars.append(int(page.row(project).texts[2]))
    yield page.stop(a if stars[0] > stars[1] else b)


def _solve_clone_url(page: Page, project: str) -> Script:
    page = yield page.type_into(page.find("textbox", "Search projects"), project.split("/")[1], enter=True)
    if page.has("link", project):
        page = yield page.click(page.find("link", project))
        yield page.stop(page.value("Clone with SSH"))
    else:
        yield page.stop("N/A")


def _solve_issue_assignee(page: Page, project: str, title: str) -> Script:
    page = yield from open_ticket(page, project, "Issues", title)
    yield page.stop(page.value("Assignee"))


def _solve_setting(page: Page, project: str, path: str, name: str) -> Script:
    page = yield from open_tab(page, project, "Files")
    folder, file = path.split("/")
    page = yield page.click(page.find("link", f"{folder}/"))
    page = yield page.click(page.find("link", file))
    line = next(node.name for node in page.nodes if node.name.startswith(f"{name} = "))
    yield page.stop(line.split(" = ")[1])


def _solve_open_reviews(page: Page, project: str) -> Script:
    page = yield from open_tab(page, project, "Merge requests")
    yield page.stop(_first_number(page, "StaticText", "open merge request"))


def _solve_todos(page: Page, event: str) -> Script:
    page = yield page.click(page.find("link", "To-dos"))
    page = yield page.click(page.find("link", f"Only {event}"))
    yield page.stop(_first_number(page, "heading", "to-do"))


def _template(name: str, intent: str, instances: Callable[..., list[Instance]], solve: Callable[..., Script]) -> TaskTemplate:
    return TaskTemplate(f"gitlab.{name}", "gitlab", intent, False, instances, solve)


_NUMBER, _USERNAME = " Answer with a number.", " Answer with the username."
QUESTIONS = (
    _template("commits_by", "How many commits did {user} make to {project}?" + _NUMBER, _commits_by, _solve_commits_by),
    _template(
        "commits_in_month",
        "How many commits did {user} make to {project} in {month}?" + _NUMBER,
        _commits_in_month,
        _solve_commits_in_month,
    ),
    _template("top_contributor", "Who has made the most commits to {project}?" + _USERNAME, _top_contributor, _solve_top_contributor),
    _template(
        "open_with_label", "How many open issues of {project} have the label {label}?" + _NUMBER, _open_with_label, _solve_open_with_label
    ),
    _template(
        "newest_with_label",
        "What is the title of the newest open issue of {project} with the label {label}?",
        _newest_with_label,
        _solve_newest_with_label,
    ),
    _template(
        "listed_with_label",
        "Show me the list of the open issues of {project} with the label {label}.",
        _listed_with_label,
        _solve_listed_with_label,
    ),
    _template("stars", "How many stars has the project {project}?" + _NUMBER, _stars, _solve_stars),
    _template("more_stars", "Which project has more stars, {a} or {b}? Answer with its full name.", _more_stars, _solve_more_stars),
    _template(
        "clone_url", "What is the SSH address to clone {project}? Answer N/A if there is no such project.", _clone_url, _solve_clone_url
    ),
    _template("issue_assignee", 'Who is the issue "{title}" of {project} assigned to?' + _USERNAME, _issue_assignee, _solve_issue_assignee),
    _template("setting", "What is the value of {name} in the file {path} of {project}?" + _NUMBER, _setting, _solve_setting),
    _template("open_reviews", "How many open merge requests has {project}?" + _NUMBER, _open_reviews, _solve_open_reviews),
    _template("todos", 'How many of my pending to-dos say that someone "{event}"?' + _NUMBER, _todos, _solve_todos),
)
