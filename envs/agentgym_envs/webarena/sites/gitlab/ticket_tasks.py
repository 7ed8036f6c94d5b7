"""Task families of the code host that change issues, merge requests and to-dos."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentgym_envs.webarena.sites.base import Instance, Script
from agentgym_envs.webarena.sites.gitlab.parts import (
    FROM_PROJECTS,
    PROJECT,
    changing,
    last_id,
    my_id,
    open_tab,
    open_ticket,
    sample,
    sample_projects,
    state,
)
from agentgym_envs.webarena.sites.gitlab.seed import MAIN, USER

if TYPE_CHECKING:
    from agentgym_envs.webarena.page import Page

_ISSUE_TITLES = (
    *("Crash when the list is empty", "Support for right-to-left text", "Typo on the welcome page", "Add a dark mode"),
    *(
        "Slow start on old laptops",
        "Explain the exit codes",
        "Wrong plural in the summary",
        "Let users sort by date",
        "Retry failed downloads",
    ),
    *("Broken link in the manual", "Export to CSV", "Keep the window size", "Warn before deleting", "Show the version in the footer"),
)
_COMMENTS = (
    *("Fixed in the last release", "I cannot reproduce this", "Please attach a log", "Good idea, I will try it", "Same problem here"),
    *("This needs a design first", "Let us wait for the next milestone", "Duplicate of an older issue", "Works on my branch"),
    *("The tests pass now", "Who can review this", "Thanks for the report", "This blocks the release", "I will pick this up"),
)
#: projects in which the user may write: as owner or developer
_WRITABLE = (
    "lab_members m ON m.project_id = p.id AND m.role IN ('Developer', 'Maintainer', 'Owner') "
    f"JOIN lab_users w ON w.id = m.user_id AND w.username = '{USER}'"
)


# ---- instances ----


def _create_issue(connection: sqlite3.Connection) -> list[Instance]:
    last, me = last_id(connection, "lab_issues"), my_id(connection)
    query = f"SELECT project_id, title, author_id, assignee_id, state FROM lab_issues WHERE id > {last}"
    return [
        Instance({"project": name, "title": title}, state((query, [(project, title, me, None, "open")])))
        for (project, name), title in zip(sample_projects(connection, "create_issue"), _ISSUE_TITLES, strict=True)
    ]


def _create_assigned_issue(connection: sqlite3.Connection) -> list[Instance]:
    last, me = last_id(connection, "lab_issues"), my_id(connection)
    query = (
        "SELECT i.project_id, i.title, i.author_id, u.username, l.label FROM lab_issues i LEFT JOIN lab_users u ON u.id = i.assignee_id "
        f"LEFT JOIN lab_issue_labels l ON l.issue_id = i.id WHERE i.id > {last}"
    )
    found = []
    for (project, name), title in zip(sample_projects(connection, "create_assigned_issue"), _ISSUE_TITLES[::-1], strict=True):
        members = "SELECT u.username FROM lab_members m JOIN lab_users u ON u.id = m.user_id WHERE m.project_id = ? ORDER BY u.id"
        assignee = sample(name, connection.execute(members, (project,)).fetchall(), 1)[0][0]
        label = sample(name, connection.execute("SELECT name FROM lab_labels WHERE project_id = ?", (project,)).fetchall(), 1)[0][0]
        params = {"project": name, "title": title, "assignee": assignee, "label": label}
        found.append(Instance(params, state((query, [(project, title, me, assignee, label)]))))
    return found


def _create_merge_request(connection: sqlite3.Connection) -> list[Instance]:
    last, me = last_id(connection, "lab_merge_requests"), my_id(connection)
    query = f"SELECT project_id, title, source_branch, target_branch, author_id FROM lab_merge_requests WHERE id > {last}"
    found = []
    for project, name in sample_projects(connection, "create_merge_request"):
        sql = (
            "SELECT name FROM lab_branches WHERE project_id = ? AND name != ? AND name NOT IN "
            "(SELECT source_branch FROM lab_merge_requests WHERE project_id = ?) ORDER BY name"
        )
        branch = connection.execute(sql, (project, MAIN, project)).fetchone()[0]
        title = f"Merge {branch}"
        params = {"project": name, "title": title, "branch": branch}
        found.append(Instance(params, state((query, [(project, title, branch, MAIN, me)]))))
    return found


def _tickets(connection: sqlite3.Connection, family: str, table: str, condition: str) -> list[tuple[int, str, str]]:
    """(id, project, title) of issues or merge requests of projects in which the user may write."""
    sql = (
        f"SELECT t.id, {PROJECT}, t.title {FROM_PROJECTS} JOIN {_WRITABLE} JOIN {table} t ON t.project_id = p.id "
        f"WHERE {condition} ORDER BY t.id"
    )
    return [(row[0], row[1], row[2]) for row in sample(family, connection.execute(sql).fetchall())]


def _move(table: str, condition: str, goal: str) -> Callable[[sqlite3.Connection], list[Instance]]:
    """Instances that bring one issue or merge request into another state and leave the others alone."""

    def instances(connection: sqlite3.Connection) -> list[Instance]:
        count = f"SELECT COUNT(*) FROM {table} WHERE state = '{goal}'"
        after = connection.execute(count).fetchone()[0] + 1
        return [
            Instance(
                {"project": project, "title": title},
                state((f"SELECT state FROM {table} WHERE id = {ticket}", [(goal,)]), (count, [(after,)])),
            )
            for ticket, project, title in _tickets(connection, f"{goal} {table}", table, condition)
        ]

    return instances


def _add_label(connection: sqlite3.Connection) -> list[Instance]:
    found = []
    for issue, project, title in _tickets(connection, "add_label", "lab_issues", "t.state = 'open'"):
        query = f"SELECT label FROM lab_issue_labels WHERE issue_id = {issue} ORDER BY label"
        before = [row[0] for row in connection.execute(query)]
        all_labels = "SELECT l.name FROM lab_labels l JOIN lab_issues i ON i.project_id = l.project_id WHERE i.id = ? ORDER BY l.name"
        label = sample(title, [row[0] for row in connection.execute(all_labels, (issue,)) if row[0] not in before], 1)[0]
        params = {"project": project, "title": title, "label": label}
        found.append(Instance(params, state((query, [(each,) for each in sorted([*before, label])]))))
    return found


def _assign(connection: sqlite3.Connection) -> list[Instance]:
    found = []
    for issue, project, title in _tickets(connection, "assign", "lab_issues", "t.state = 'open' AND t.assignee_id IS NULL"):
        query = f"SELECT u.username, i.title FROM lab_issues i JOIN lab_users u ON u.id = i.assignee_id WHERE i.id = {issue}"
        sql = (
            "SELECT u.username FROM lab_members m JOIN lab_issues i ON i.project_id = m.project_id JOIN lab_users u ON u.id = m.user_id "
            "WHERE i.id = ?"
        )
        assignee = sample(title, sorted(row[0] for row in connection.execute(sql, (issue,))), 1)[0]
        found.append(Instance({"project": project, "title": title, "assignee": assignee}, state((query, [(assignee, title)]))))
    return found


def _finish_todo(connection: sqlite3.Connection) -> list[Instance]:
    sql = (
        f"SELECT t.id, {PROJECT}, COALESCE(i.title, r.title) {FROM_PROJECTS} "
        "JOIN lab_todos t LEFT JOIN lab_issues i ON i.id = t.issue_id LEFT JOIN lab_merge_requests r ON r.id = t.merge_request_id "
        "WHERE p.id = COALESCE(i.project_id, r.project_id) AND t.user_id = ? ORDER BY t.id"
    )
    rows = connection.execute(sql, (my_id(connection),)).fetchall()
    items = [(project, title) for _, project, title in rows]
    query = "SELECT id FROM lab_todos WHERE done"
    return [
        Instance({"project": project, "title": title}, state((query, [(todo,)])))
        for todo, project, title in sample("finish_todo", [row for row in rows if items.count((row[1], row[2])) == 1])
    ]


def _comment(table: str, column: str) -> Callable[[sqlite3.Connection], list[Instance]]:
    def instances(connection: sqlite3.Connection) -> list[Instance]:
        query = f"SELECT {column}, author_id, body FROM lab_comments WHERE id > {last_id(connection, 'lab_comments')}"
        sql = f"SELECT t.id, {PROJECT}, t.title {FROM_PROJECTS} JOIN {table} t ON t.project_id = p.id ORDER BY t.id"
        rows = sample(f"comment {table}", connection.execute(sql).fetchall())
        me = my_id(connection)
        return [
            Instance({"project": project, "title": title, "text": text}, state((query, [(ticket, me, text)])))
            for (ticket, project, title), text in zip(rows, _COMMENTS, strict=True)
        ]

    return instances


# ---- experts ----


def _solve_create_issue(page: Page, project: str, title: str, assignee: str = "", label: str = "") -> Script:
    page = yield from open_tab(page, project, "Issues")
    page = yield page.click(page.find("link", "New issue"))
    for field, value in (("Title", title), ("Assignee", assignee), ("Labels", label)):
        if value:
            page = yield page.type_into(page.find("textbox", field), value)
    page = yield page.click(page.find("button", "Create issue"))
    yield page.stop()


def _solve_create_merge_request(page: Page, project: str, title: str, branch: str) -> Script:
    page = yield from open_tab(page, project, "Merge requests")
    page = yield page.click(page.find("link", "New merge request"))
    page = yield page.type_into(page.find("textbox", "Title"), title)
    page = yield page.type_into(page.find("textbox", "Source branch"), branch, enter=True)
    yield page.stop()


def _solve_ticket_button(tab: str, button: str) -> Callable[..., Script]:
    def solve(page: Page, project: str, title: str) -> Script:
        page = yield from open_ticket(page, project, tab, title)
        page = yield page.click(page.find("button", button))
        yield page.stop()

    return solve


def _solve_add_label(page: Page, project: str, title: str, label: str) -> Script:
    page = yield from open_ticket(page, project, "Issues", title)
    before = page.value("Labels")
    page = yield page.click(page.find("link", "Edit issue"))
    labels = label if before == "none" else f"{before}, {label}"
    page = yield page.type_into(page.find("textbox", "Labels"), labels, enter=True)
    yield page.stop()


def _solve_assign(page: Page, project: str, title: str, assignee: str) -> Script:
    page = yield from open_ticket(page, project, "Issues", title)
    page = yield page.click(page.find("link", "Edit issue"))
    page = yield page.type_into(page.find("textbox", "Assignee"), assignee, enter=True)
    yield page.stop()


def _solve_finish_todo(page: Page, project: str, title: str) -> Script:
    item = f"{title} ({project})"
    page = yield page.click(page.find("link", "To-dos"))
    while not page.has("link", item):
        page = yield page.click(page.find("link", "Next page"))
    page = yield page.click(next(row for row in page.rows() if row.texts[1] == item).find("button", "Done"))
    yield page.stop()


def _solve_comment(tab: str) -> Callable[..., Script]:
    def solve(page: Page, project: str, title: str, text: str) -> Script:
        page = yield from open_ticket(page, project, tab, title)
        page = yield page.type_into(page.find("textbox", "Write a comment"), text)
        page = yield page.click(page.find("button", "Comment"))
        yield page.stop()

    return solve


_ISSUE, _REQUEST = "lab_issues", "lab_merge_requests"
TICKETS = (
    changing("create_issue", 'Open an issue with the title "{title}" in {project}.', _create_issue, _solve_create_issue),
    changing(
        "create_assigned_issue",
        'Open an issue with the title "{title}" and the label {label} in {project} and assign it to {assignee}.',
        _create_assigned_issue,
        _solve_create_issue,
    ),
    changing(
        "create_merge_request",
        'Open a merge request with the title "{title}" in {project} that brings the branch {branch} into main.',
        _create_merge_request,
        _solve_create_merge_request,
    ),
    changing(
        "close_issue",
        'Close the issue "{title}" of {project}.',
        _move(_ISSUE, "t.state = 'open'", "closed"),
        _solve_ticket_button("Issues", "Close issue"),
    ),
    changing(
        "reopen_issue",
        'Reopen the issue "{title}" of {project}.',
        _move(_ISSUE, "t.state = 'closed'", "open"),
        _solve_ticket_button("Issues", "Reopen issue"),
    ),
    changing(
        "merge",
        'Merge the merge request "{title}" of {project}.',
        _move(_REQUEST, "t.state = 'open'", "merged"),
        _solve_ticket_button("Merge requests", "Merge"),
    ),
    changing(
        "add_label", 'Add the label {label} to the issue "{title}" of {project} and keep its other labels.', _add_label, _solve_add_label
    ),
    changing("assign", 'Assign the issue "{title}" of {project} to {assignee}.', _assign, _solve_assign),
    changing("finish_todo", 'Mark my to-do about "{title}" in {project} as done.', _finish_todo, _solve_finish_todo),
    changing("comment", 'Comment "{text}" on the issue "{title}" of {project}.', _comment(_ISSUE, "issue_id"), _solve_comment("Issues")),
    changing(
        "comment_merge_request",
        'Comment "{text}" on the merge request "{title}" of {project}.',
        _comment(_REQUEST, "merge_request_id"),
        _solve_comment("Merge requests"),
    ),
)
