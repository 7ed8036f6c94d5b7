"""Pages of the code host for issues, merge requests and to-dos."""

from __future__ import annotations

import sqlite3
from typing import Any

from flask import Flask, redirect, render_template, request
from werkzeug.exceptions import NotFound
from werkzeug.wrappers import Response

from agentgym_envs.webarena.sites.base import db
from agentgym_envs.webarena.sites.gitlab.access import demand, login, me, now, optional_user_id, project_at
from agentgym_envs.webarena.sites.listing import Refused, choice, form_text, like, paginate

_ISSUES = (
    "SELECT i.*, a.username AS author, b.username AS assignee, o.username || '/' || p.slug AS project, "
    "(SELECT group_concat(label, ', ') FROM (SELECT label FROM lab_issue_labels WHERE issue_id = i.id ORDER BY label)) AS labels "
    "FROM lab_issues i JOIN lab_users a ON a.id = i.author_id LEFT JOIN lab_users b ON b.id = i.assignee_id "
    "JOIN lab_projects p ON p.id = i.project_id JOIN lab_users o ON o.id = p.owner_id"
)
_MERGE_REQUESTS = (
    "SELECT r.*, a.username AS author, b.username AS reviewer, o.username || '/' || p.slug AS project "
    "FROM lab_merge_requests r JOIN lab_users a ON a.id = r.author_id LEFT JOIN lab_users b ON b.id = r.reviewer_id "
    "JOIN lab_projects p ON p.id = r.project_id JOIN lab_users o ON o.id = p.owner_id"
)
_ISSUE_STATES = ("open", "closed", "all")
_MERGE_STATES = ("open", "merged", "closed", "all")
_ORDERS = {"newest": "i.created DESC, i.id DESC", "oldest": "i.created, i.id"}
_TODO_ACTIONS = {"assigned": "assigned you", "mentioned": "mentioned you", "review": "requested your review"}
_COMMENTS_PER_PAGE = 6


def add_rules(app: Flask, project: str) -> None:
    """Add the pages; ``project`` is the rule of a project's address."""
    issue, merge_request = f"{project}/issues/<int:iid>", f"{project}/merge_requests/<int:iid>"
    for rule, view in (
        ("/dashboard/todos", todos),
        ("/dashboard/issues", my_issues),
        ("/dashboard/merge_requests", my_merge_requests),
        (f"{project}/issues", issues),
        (f"{project}/issues/new", new_issue_form),
        (issue, issue_page),
        (f"{issue}/edit", edit_issue_form),
        (f"{project}/merge_requests", merge_requests),
        (f"{project}/merge_requests/new", new_merge_request_form),
        (merge_request, merge_request_page),
    ):
        app.add_url_rule(rule, view_func=view)
    for rule, post in (
        ("/dashboard/todos/<int:todo>/done", finish_todo),
        (f"{project}/issues/new", create_issue),
        (f"{issue}/edit", update_issue),
        (f"{issue}/<any(close, reopen):change>", change_issue),
        (f"{issue}/comment", comment_on_issue),
        (f"{project}/merge_requests/new", create_merge_request),
        (f"{merge_request}/<any(merge, close, reopen):change>", change_merge_request),
        (f"{merge_request}/comment", comment_on_merge_request),
    ):
        app.add_url_rule(rule, view_func=post, methods=["POST"])


# ---- to-dos and the user's own lists ----


def todos() -> str:
    """The user's pending to-dos, newest first, filtered by what happened."""
    action = request.args.get("action", "")
    sql = (
        "SELECT t.id, t.action, t.created, u.name AS author, COALESCE(i.title, r.title) AS title, COALESCE(i.iid, r.iid) AS iid, "
        "CASE WHEN i.id IS NULL THEN 'merge_requests' ELSE 'issues' END AS kind, o.username || '/' || p.slug AS project "
        "FROM lab_todos t JOIN lab_users u ON u.id = t.author_id "
        "LEFT JOIN lab_issues i ON i.id = t.issue_id LEFT JOIN lab_merge_requests r ON r.id = t.merge_request_id "
        "JOIN lab_projects p ON p.id = COALESCE(i.project_id, r.project_id) JOIN lab_users o ON o.id = p.owner_id "
        "WHERE t.user_id = ? AND NOT t.done"
    )
    values: list[object] = [me()]
    if action in _TODO_ACTIONS:
        sql, values = f"{sql} AND t.action = ?", [*values, _TODO_ACTIONS[action]]
    listing = paginate(f"{sql} ORDER BY t.created DESC, t.id DESC", values)
    return render_template("todos.html", listing=listing, actions=_TODO_ACTIONS)


def finish_todo(todo: int) -> Response:
    """Mark a to-do as done."""
    if todo >= 2**63 or not db().execute("SELECT 1 FROM lab_todos WHERE id = ? AND user_id = ?", (todo, login())).fetchone():
        raise NotFound
    with db():
        db().execute("UPDATE lab_todos SET done = 1 WHERE id = ?", (todo,))
    return redirect("/dashboard/todos", 303)


def my_issues() -> str:
    """Open issues assigned to the user."""
    listing = paginate(f"{_ISSUES} WHERE i.assignee_id = ? AND i.state = 'open' ORDER BY i.created DESC, i.id DESC", (me(),))
    return render_template("my_issues.html", listing=listing)


def my_merge_requests() -> str:
    """Open merge requests that wait for the user's review."""
    listing = paginate(f"{_MERGE_REQUESTS} WHERE r.reviewer_id = ? AND r.state = 'open' ORDER BY r.created DESC, r.id DESC", (me(),))
    return render_template("my_merge_requests.html", listing=listing)


# ---- issues ----


def issues(owner: str, slug: str) -> str:
    """A project's issues, filtered by state, title, label, assignee and author."""
    project, state, order = project_at(owner, slug), choice("state", _ISSUE_STATES), choice("sort", tuple(_ORDERS))
    sql, values = (
        f"{_ISSUES} WHERE i.project_id = ? AND i.title LIKE ? ESCAPE '\\'",
        [project["id"], like(request.args.get("q", "").strip())],
    )
    if state != "all":
        sql, values = f"{sql} AND i.state = ?", [*values, state]
    if label := request.args.get("label", "").strip():
        sql, values = f"{sql} AND i.id IN (SELECT issue_id FROM lab_issue_labels WHERE label = ? COLLATE NOCASE)", [*values, label]
    for argument, column in (("assignee", "b.username"), ("author", "a.username")):
        if name := request.args.get(argument, "").strip().removeprefix("@"):
            sql, values = f"{sql} AND {column} = ?", [*values, name]
    listing = paginate(f"{sql} ORDER BY {_ORDERS[order]}", values)
    return render_template("issues.html", project=project, listing=listing, state=state, states=_ISSUE_STATES, order=order, orders=_ORDERS)


def _issue(project: sqlite3.Row, iid: int) -> sqlite3.Row:
    return _ticket(f"{_ISSUES} WHERE i.project_id = ? AND i.iid = ?", project, iid)


def _ticket(sql: str, project: sqlite3.Row, iid: int) -> sqlite3.Row:
    row: sqlite3.Row | None = db().execute(sql, (project["id"], iid)).fetchone() if iid < 2**63 else None
    if row is None:
        raise NotFound
    return row


def issue_page(owner: str, slug: str, iid: int) -> str:
    """One issue with its comments."""
    project = project_at(owner, slug)
    issue = _issue(project, iid)
    return render_template("issue.html", project=project, issue=issue, comments=_comments("issue_id", issue["id"]))


def _comments(column: str, target: int) -> Any:
    sql = (
        "SELECT c.body, c.created, u.username FROM lab_comments c JOIN lab_users u ON u.id = c.author_id "
        f"WHERE c.{column} = ? ORDER BY c.id DESC"
    )
    return paginate(sql, (target,), size=_COMMENTS_PER_PAGE)


def new_issue_form(owner: str, slug: str) -> str:
    """The form for a new issue."""
    return render_template("issue_form.html", project=project_at(owner, slug), issue=None, **_issue_choices(project_at(owner, slug)["id"]))


def edit_issue_form(owner: str, slug: str, iid: int) -> str:
    """The form for an issue's title, description, assignee, labels and milestone."""
    project = project_at(owner, slug)
    return render_template("issue_form.html", project=project, issue=_issue(project, iid), **_issue_choices(project["id"]))


def _issue_choices(project_id: int) -> dict[str, list[str]]:
    labels = db().execute("SELECT name FROM lab_labels WHERE project_id = ? ORDER BY name", (project_id,))
    milestones = db().execute("SELECT title FROM lab_milestones WHERE project_id = ? ORDER BY title", (project_id,))
    return {"labels": [row[0] for row in labels], "milestones": [row[0] for row in milestones]}


def _issue_fields(project_id: int) -> tuple[dict[str, Any], list[str]]:
    """Columns and labels from the submitted form."""
    known = _issue_choices(project_id)
    labels = sorted({label.strip() for label in form_text("labels", "Labels", 200, required=False).split(",") if label.strip()})
    milestone = form_text("milestone", "Milestone", 60, required=False)
    for values, names, kind in ((labels, known["labels"], "label"), ([milestone] if milestone else [], known["milestones"], "milestone")):
        if unknown := [value for value in values if value not in names]:
            raise Refused(f"There is no {kind} {unknown[0]!r} in this project; there are: {', '.join(names) or 'none'}.")
    columns = {
        "title": form_text("title", "Title", 200),
        "description": form_text("description", "Description", required=False),
        "assignee_id": optional_user_id(form_text("assignee", "Assignee", 60, required=False), "Assignee"),
        "milestone": milestone or None,
    }
    return columns, labels


def create_issue(owner: str, slug: str) -> Response:
    """Open an issue."""
    project, author = project_at(owner, slug), login()
    columns, labels = _issue_fields(project["id"])
    with db():
        iid = _insert("lab_issues", {**columns, "project_id": project["id"], "author_id": author, "created": now()}, labels)
    return redirect(f"/{owner}/{slug}/issues/{iid}", 303)


def _insert(table: str, columns: dict[str, Any], labels: list[str]) -> int:
    """Insert an issue or a merge request under the next number of its project."""
    iid: int = db().execute(f"SELECT COALESCE(MAX(iid), 0) + 1 FROM {table} WHERE project_id = ?", (columns["project_id"],)).fetchone()[0]
    columns = {**columns, "iid": iid}
    marks = ", ".join("?" * len(columns))
    row = db().execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", tuple(columns.values())).lastrowid
    db().executemany("INSERT INTO lab_issue_labels VALUES (?, ?)", [(row, label) for label in labels])
    return iid


def update_issue(owner: str, slug: str, iid: int) -> Response:
    """Change an issue; its author and the project's developers may."""
    project = project_at(owner, slug)
    issue = _issue(project, iid)
    _demand_author_or_developer(issue, project["id"])
    columns, labels = _issue_fields(project["id"])
    with db():
        assignments = ", ".join(f"{column} = ?" for column in columns)
        db().execute(f"UPDATE lab_issues SET {assignments} WHERE id = ?", (*columns.values(), issue["id"]))
        db().execute("DELETE FROM lab_issue_labels WHERE issue_id = ?", (issue["id"],))
        db().executemany("INSERT INTO lab_issue_labels VALUES (?, ?)", [(issue["id"], label) for label in labels])
    return redirect(f"/{owner}/{slug}/issues/{iid}", 303)


def _demand_author_or_developer(ticket: sqlite3.Row, project_id: int) -> None:
    if ticket["author_id"] != login():
        demand(project_id, "Developer")


def change_issue(owner: str, slug: str, iid: int, change: str) -> Response:
    """Close or reopen an issue."""
    project = project_at(owner, slug)
    issue = _issue(project, iid)
    _demand_author_or_developer(issue, project["id"])
    with db():
        db().execute("UPDATE lab_issues SET state = ? WHERE id = ?", ({"close": "closed", "reopen": "open"}[change], issue["id"]))
    return redirect(f"/{owner}/{slug}/issues/{iid}", 303)


def comment_on_issue(owner: str, slug: str, iid: int) -> Response:
    """Add a comment to an issue."""
    _comment("issue_id", _issue(project_at(owner, slug), iid)["id"])
    return redirect(f"/{owner}/{slug}/issues/{iid}", 303)


def _comment(column: str, target: int) -> None:
    values = (target, login(), form_text("body", "The comment"), now())
    with db():
        db().execute(f"INSERT INTO lab_comments ({column}, author_id, body, created) VALUES (?, ?, ?, ?)", values)


# ---- merge requests ----


def merge_requests(owner: str, slug: str) -> str:
    """A project's merge requests, filtered by state and title."""
    project, state = project_at(owner, slug), choice("state", _MERGE_STATES)
    sql, values = (
        f"{_MERGE_REQUESTS} WHERE r.project_id = ? AND r.title LIKE ? ESCAPE '\\'",
        [project["id"], like(request.args.get("q", "").strip())],
    )
    if state != "all":
        sql, values = f"{sql} AND r.state = ?", [*values, state]
    listing = paginate(f"{sql} ORDER BY r.created DESC, r.id DESC", values)
    return render_template("merge_requests.html", project=project, listing=listing, state=state, states=_MERGE_STATES)


def _merge_request(project: sqlite3.Row, iid: int) -> sqlite3.Row:
    return _ticket(f"{_MERGE_REQUESTS} WHERE r.project_id = ? AND r.iid = ?", project, iid)


def merge_request_page(owner: str, slug: str, iid: int) -> str:
    """One merge request with its comments."""
    project = project_at(owner, slug)
    merge_request = _merge_request(project, iid)
    comments = _comments("merge_request_id", merge_request["id"])
    return render_template("merge_request.html", project=project, merge_request=merge_request, comments=comments)


def new_merge_request_form(owner: str, slug: str) -> str:
    """The form for a new merge request."""
    project = project_at(owner, slug)
    return render_template("merge_request_form.html", project=project, branches=_branches(project["id"]))


def _branches(project_id: int) -> list[str]:
    return [row[0] for row in db().execute("SELECT name FROM lab_branches WHERE project_id = ? ORDER BY name", (project_id,))]


def create_merge_request(owner: str, slug: str) -> Response:
    """Open a merge request."""
    project, author = project_at(owner, slug), login()
    known, branches = _branches(project["id"]), {}
    for name, label in (("source_branch", "Source branch"), ("target_branch", "Target branch")):
        branches[name] = form_text(name, label, 100)
        if branches[name] not in known:
            raise Refused(f"{label}: there is no branch {branches[name]!r}; there are: {', '.join(known)}.")
    if branches["source_branch"] == branches["target_branch"]:
        raise Refused("Source and target branch must differ.")
    columns = {
        "title": form_text("title", "Title", 200),
        "description": form_text("description", "Description", required=False),
        "reviewer_id": optional_user_id(form_text("reviewer", "Reviewer", 60, required=False), "Reviewer"),
        **branches,
    }
    with db():
        iid = _insert("lab_merge_requests", {**columns, "project_id": project["id"], "author_id": author, "created": now()}, [])
    return redirect(f"/{owner}/{slug}/merge_requests/{iid}", 303)


def change_merge_request(owner: str, slug: str, iid: int, change: str) -> Response:
    """Merge, close or reopen; only developers of the project merge, and what is merged stays so."""
    project = project_at(owner, slug)
    merge_request = _merge_request(project, iid)
    if change == "merge":
        demand(project["id"], "Developer")
    else:
        _demand_author_or_developer(merge_request, project["id"])
    if merge_request["state"] == "merged" or (change == "merge" and merge_request["state"] != "open"):
        raise Refused(f"This merge request is {merge_request['state']}.")
    state = {"merge": "merged", "close": "closed", "reopen": "open"}[change]
    with db():
        db().execute("UPDATE lab_merge_requests SET state = ? WHERE id = ?", (state, merge_request["id"]))
    return redirect(f"/{owner}/{slug}/merge_requests/{iid}", 303)


def comment_on_merge_request(owner: str, slug: str, iid: int) -> Response:
    """Add a comment to a merge request."""
    _comment("merge_request_id", _merge_request(project_at(owner, slug), iid)["id"])
    return redirect(f"/{owner}/{slug}/merge_requests/{iid}", 303)
