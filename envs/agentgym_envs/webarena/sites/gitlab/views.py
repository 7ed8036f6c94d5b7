"""Pages of the code host: projects, files, commits, members, profiles."""

from __future__ import annotations

import re
import sqlite3
from datetime import datetime

from flask import Flask, redirect, render_template, request
from werkzeug.exceptions import NotFound
from werkzeug.wrappers import Response

from agentgym_envs.webarena.sites.base import db, user
from agentgym_envs.webarena.sites.gitlab import tickets
from agentgym_envs.webarena.sites.gitlab.access import PROJECTS, demand, login, may, me, now, project_at, user_id
from agentgym_envs.webarena.sites.gitlab.seed import MAIN, ROLES, TITLE
from agentgym_envs.webarena.sites.listing import Refused, choice, form_text, like, paginate, with_arguments

_SORTS = {"name": "p.slug, p.id", "stars": "stars DESC, p.slug, p.id", "created": "p.created DESC, p.id DESC"}
_VISIBLE = "(p.visibility = 'public' OR p.id IN (SELECT project_id FROM lab_members WHERE user_id = ?))"
_VISIBILITIES = ("private", "public")
_COPIED = {"lab_files": "path, content", "lab_branches": "name", "lab_labels": "name", "lab_milestones": "title"}


def create_app() -> Flask:
    """The application of the site."""
    app = Flask(__name__)
    app.jinja_env.globals.update(user=user, site=TITLE, with_arguments=with_arguments, may=may)
    project = "/<owner>/<slug>"
    for rule, view in (
        ("/", home),
        ("/explore", explore),
        ("/profile", profile_form),
        ("/users/<username>", profile),
        ("/projects/new", new_project_form),
        (project, project_page),
        (f"{project}/tree/", tree),
        (f"{project}/tree/<path:folder>", tree),
        (f"{project}/blob/<path:path>", blob),
        (f"{project}/commits", commits),
        (f"{project}/contributors", contributors),
        (f"{project}/members", members),
        (f"{project}/members/<username>", member_form),
        (f"{project}/settings", settings_form),
    ):
        app.add_url_rule(rule, view_func=view)
    for rule, post in (
        ("/profile", update_profile),
        ("/projects/new", create_project),
        (f"{project}/star", star),
        (f"{project}/unstar", unstar),
        (f"{project}/fork", fork),
        (f"{project}/members", invite),
        (f"{project}/members/<username>", change_role),
        (f"{project}/members/<username>/remove", remove_member),
        (f"{project}/settings", update_settings),
    ):
        app.add_url_rule(rule, view_func=post, methods=["POST"])
    tickets.add_rules(app, project)
    app.register_error_handler(Refused, lambda error: (render_template("error.html", message=str(error)), error.status))
    app.register_error_handler(404, lambda _: (render_template("error.html", message="There is no such page."), 404))
    app.register_error_handler(405, lambda _: (render_template("error.html", message="This page takes no such request."), 405))
    return app


def home() -> str:
    """The projects that the user is a member of."""
    sql = f"{PROJECTS} JOIN lab_members m ON m.project_id = p.id WHERE m.user_id = ? ORDER BY p.slug, p.id"
    return render_template("home.html", listing=paginate(sql, (me(),)))


def explore() -> str:
    """All projects, searched and sorted."""
    sort, pattern = choice("sort", tuple(_SORTS)), like(request.args.get("q", "").strip())
    sql = f"{PROJECTS} WHERE {_VISIBLE} AND (p.slug LIKE ? ESCAPE '\\' OR p.name LIKE ? ESCAPE '\\' OR p.description LIKE ? ESCAPE '\\')"
    listing = paginate(f"{sql} ORDER BY {_SORTS[sort]}", (me(), pattern, pattern, pattern))
    return render_template("explore.html", listing=listing, sort=sort, sorts=_SORTS)


def profile(username: str) -> str:
    """A user's public page."""
    person = db().execute("SELECT * FROM lab_users WHERE username = ?", (username,)).fetchone()
    if person is None:
        raise NotFound
    listing = paginate(f"{PROJECTS} WHERE p.owner_id = ? AND {_VISIBLE} ORDER BY p.slug, p.id", (person["id"], me()))
    return render_template("profile.html", person=person, listing=listing)


def profile_form() -> str:
    """The form for the user's own profile."""
    return render_template("profile_form.html", person=db().execute("SELECT * FROM lab_users WHERE id = ?", (login(),)).fetchone())


def update_profile() -> Response:
    """Set status, biography and name."""
    values = (
        form_text("status", "Status", 100, required=False),
        form_text("bio", "Bio", 250, required=False),
        form_text("name", "Name", 60),
    )
    with db():
        db().execute("UPDATE lab_users SET status = ?, bio = ?, name = ? WHERE id = ?", (*values, login()))
    return redirect(f"/users/{user()}", 303)


def new_project_form() -> str:
    """The form for a new project."""
    return render_template("project_form.html", visibilities=_VISIBILITIES)


def create_project() -> Response:
    """Create a project in the user's name space."""
    owner, name = login(), form_text("name", "Project name", 60)
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if not slug:
        raise Refused("The project name needs a letter or a digit.")
    if db().execute("SELECT 1 FROM lab_projects WHERE owner_id = ? AND slug = ?", (owner, slug)).fetchone():
        raise Refused(f"You have a project {slug!r} already.")
    row = (owner, slug, name, form_text("description", "Description", 250, required=False), _visibility(), now())
    with db():
        sql = "INSERT INTO lab_projects (owner_id, slug, name, description, visibility, created) VALUES (?, ?, ?, ?, ?, ?)"
        project = db().execute(sql, row).lastrowid
        db().execute("INSERT INTO lab_members VALUES (?, ?, ?)", (project, owner, ROLES[-1]))
        db().execute("INSERT INTO lab_branches VALUES (?, ?)", (project, MAIN))
        if request.form.get("readme"):
            db().execute("INSERT INTO lab_files VALUES (?, ?, ?)", (project, "README.md", name))
    return redirect(f"/{user()}/{slug}", 303)


def _visibility() -> str:
    value = request.form.get("visibility", _VISIBILITIES[0])
    if value not in _VISIBILITIES:
        raise Refused(f"Visibility must be one of {', '.join(_VISIBILITIES)}.")
    return value


def project_page(owner: str, slug: str) -> str:
    """A project's first page."""
    project = project_at(owner, slug)
    values = (project["id"],)
    counts = {
        "forks": db().execute("SELECT COUNT(*) FROM lab_projects WHERE forked_from = ?", values).fetchone()[0],
        "commits": db().execute("SELECT COUNT(*) FROM lab_commits WHERE project_id = ?", values).fetchone()[0],
    }
    starred = db().execute("SELECT 1 FROM lab_stars WHERE project_id = ? AND user_id = ?", (project["id"], me())).fetchone()
    readme = db().execute("SELECT content FROM lab_files WHERE project_id = ? AND path = 'README.md'", values).fetchone()
    return render_template("project.html", project=project, counts=counts, starred=starred, readme=readme)


def star(owner: str, slug: str) -> Response:
    """Star a project."""
    with db():
        db().execute("INSERT OR IGNORE INTO lab_stars VALUES (?, ?)", (project_at(owner, slug)["id"], login()))
    return redirect(f"/{owner}/{slug}", 303)


def unstar(owner: str, slug: str) -> Response:
    """Take the star back."""
    with db():
        db().execute("DELETE FROM lab_stars WHERE project_id = ? AND user_id = ?", (project_at(owner, slug)["id"], login()))
    return redirect(f"/{owner}/{slug}", 303)


def fork(owner: str, slug: str) -> Response:
    """Copy a project, without its issues and history, into the user's name space."""
    project, copier = project_at(owner, slug), login()
    if db().execute("SELECT 1 FROM lab_projects WHERE owner_id = ? AND slug = ?", (copier, project["slug"])).fetchone():
        raise Refused(f"You have a project {project['slug']!r} already.")
    row = (copier, project["slug"], project["name"], project["description"], project["visibility"], now(), project["id"])
    with db():
        sql = "INSERT INTO lab_projects (owner_id, slug, name, description, visibility, created, forked_from) VALUES (?, ?, ?, ?, ?, ?, ?)"
        copy = db().execute(sql, row).lastrowid
        db().execute("INSERT INTO lab_members VALUES (?, ?, ?)", (copy, copier, ROLES[-1]))
        for table, columns in _COPIED.items():
            db().execute(f"INSERT INTO {table} SELECT ?, {columns} FROM {table} WHERE project_id = ?", (copy, project["id"]))
    return redirect(f"/{user()}/{project['slug']}", 303)


def tree(owner: str, slug: str, folder: str = "") -> str:
    """Files and folders in one folder."""
    project = project_at(owner, slug)
    prefix = folder.rstrip("/") + "/" if folder else ""
    rows = db().execute("SELECT path FROM lab_files WHERE project_id = ?", (project["id"],))
    inside = [row["path"].removeprefix(prefix) for row in rows if row["path"].startswith(prefix)]
    if prefix and not inside:
        raise NotFound
    folders = sorted({path.split("/")[0] for path in inside if "/" in path})
    files = sorted(path for path in inside if "/" not in path)
    return render_template("tree.html", project=project, prefix=prefix, folders=folders, files=files)


def blob(owner: str, slug: str, path: str) -> str:
    """A file's lines."""
    project = project_at(owner, slug)
    row = db().execute("SELECT content FROM lab_files WHERE project_id = ? AND path = ?", (project["id"], path)).fetchone()
    if row is None:
        raise NotFound
    return render_template("blob.html", project=project, path=path, lines=row["content"].splitlines())


def commits(owner: str, slug: str) -> str:
    """Commits, newest first, filtered by author and by first and last day."""
    project, error = project_at(owner, slug), ""
    sql = "SELECT c.sha, c.message, c.created, u.username FROM lab_commits c JOIN lab_users u ON u.id = c.author_id WHERE c.project_id = ?"
    values: list[object] = [project["id"]]
    try:
        if author := request.args.get("author", "").strip():
            sql, values = f"{sql} AND c.author_id = ?", [*values, user_id(author, "Author")]
        for name, condition in (("since", ">="), ("until", "<=")):
            if day := request.args.get(name, "").strip():
                sql, values = f"{sql} AND substr(c.created, 1, 10) {condition} ?", [*values, _day(day)]
    except Refused as refused:
        error = str(refused)
    listing = paginate(f"{sql} ORDER BY c.created DESC, c.id DESC", values)
    return render_template("commits.html", project=project, listing=listing, error=error)


def _day(text: str) -> str:
    try:
        return datetime.strptime(text, "%Y-%m-%d").strftime("%Y-%m-%d")
    except ValueError:
        raise Refused(f"Days are written as YYYY-MM-DD, found {text!r}.") from None


def contributors(owner: str, slug: str) -> str:
    """Authors by their number of commits."""
    project = project_at(owner, slug)
    sql = (
        "SELECT u.username, u.name, COUNT(*) AS commits, MAX(c.created) AS latest "
        "FROM lab_commits c JOIN lab_users u ON u.id = c.author_id "
        "WHERE c.project_id = ? GROUP BY u.id ORDER BY commits DESC, u.username"
    )
    return render_template("contributors.html", project=project, listing=paginate(sql, (project["id"],)))


def members(owner: str, slug: str) -> str:
    """Members with their roles, and the form to invite one."""
    project = project_at(owner, slug)
    sql = (
        "SELECT u.username, u.name, m.role FROM lab_members m JOIN lab_users u ON u.id = m.user_id "
        "WHERE m.project_id = ? ORDER BY u.username"
    )
    return render_template("members.html", project=project, roles=ROLES[:-1], listing=paginate(sql, (project["id"],)))


def invite(owner: str, slug: str) -> Response:
    """Add a member."""
    project = project_at(owner, slug)
    demand(project["id"], "Maintainer")
    invited = user_id(form_text("username", "Username", 60), "Username")
    if db().execute("SELECT 1 FROM lab_members WHERE project_id = ? AND user_id = ?", (project["id"], invited)).fetchone():
        raise Refused("This user is a member already.")
    with db():
        db().execute("INSERT INTO lab_members VALUES (?, ?, ?)", (project["id"], invited, _role()))
    return redirect(f"/{owner}/{slug}/members", 303)


def _role() -> str:
    value = request.form.get("role", "")
    if value not in ROLES[:-1]:
        raise Refused(f"The role must be one of {', '.join(ROLES[:-1])}.")
    return value


def _member(project_id: int, username: str) -> sqlite3.Row:
    sql = (
        "SELECT u.id, u.username, u.name, m.role FROM lab_members m JOIN lab_users u ON u.id = m.user_id "
        "WHERE m.project_id = ? AND u.username = ?"
    )
    row: sqlite3.Row | None = db().execute(sql, (project_id, username)).fetchone()
    if row is None:
        raise NotFound
    return row


def member_form(owner: str, slug: str, username: str) -> str:
    """The form for one member's role."""
    project = project_at(owner, slug)
    demand(project["id"], "Maintainer")
    return render_template("member_form.html", project=project, member=_member(project["id"], username), roles=ROLES[:-1])


def _changeable(owner: str, slug: str, username: str) -> tuple[int, int]:
    """Ids of project and member, if the user may change the member."""
    project = project_at(owner, slug)
    demand(project["id"], "Maintainer")
    member = _member(project["id"], username)
    if member["role"] == ROLES[-1]:
        raise Refused("The owner's role stays.")
    return project["id"], member["id"]


def change_role(owner: str, slug: str, username: str) -> Response:
    """Give a member another role."""
    project, member = _changeable(owner, slug, username)
    with db():
        db().execute("UPDATE lab_members SET role = ? WHERE project_id = ? AND user_id = ?", (_role(), project, member))
    return redirect(f"/{owner}/{slug}/members", 303)


def remove_member(owner: str, slug: str, username: str) -> Response:
    """Take a member out of the project."""
    project, member = _changeable(owner, slug, username)
    with db():
        db().execute("DELETE FROM lab_members WHERE project_id = ? AND user_id = ?", (project, member))
    return redirect(f"/{owner}/{slug}/members", 303)


def settings_form(owner: str, slug: str) -> str:
    """The form for name, description and visibility."""
    project = project_at(owner, slug)
    demand(project["id"], "Maintainer")
    return render_template("settings.html", project=project, visibilities=_VISIBILITIES)


def update_settings(owner: str, slug: str) -> Response:
    """Change name, description and visibility; the address stays."""
    project = project_at(owner, slug)
    demand(project["id"], "Maintainer")
    values = (form_text("name", "Project name", 60), form_text("description", "Description", 250, required=False), _visibility())
    with db():
        db().execute("UPDATE lab_projects SET name = ?, description = ?, visibility = ? WHERE id = ?", (*values, project["id"]))
    return redirect(f"/{owner}/{slug}", 303)
