"""The code host: its content, its pages and its tasks."""

from __future__ import annotations

import pytest
from webarena_pages_factory import NASTY, Session, hash_in_another_process

from agentgym_envs.webarena.database import pristine
from agentgym_envs.webarena.sites.gitlab import SITE
from agentgym_envs.webarena.testing import check_site

SCRIPT = "<script>alert(1)</script>"
MINE = "/rowan.hale/seed-vault"


@pytest.fixture
def session() -> Session:
    return Session(SITE)


@pytest.fixture
def foreign(session: Session) -> str:
    """Path of a project that the user is no member of."""
    sql = (
        "SELECT '/' || u.username || '/' || p.slug FROM lab_projects p JOIN lab_users u ON u.id = p.owner_id WHERE p.id NOT IN "
        "(SELECT m.project_id FROM lab_members m JOIN lab_users w ON w.id = m.user_id WHERE w.username = 'rowan.hale') ORDER BY p.id"
    )
    return str(session.rows(sql)[0][0])


def _issue(session: Session, project: str, state: str = "open") -> int:
    sql = (
        "SELECT i.iid FROM lab_issues i JOIN lab_projects p ON p.id = i.project_id JOIN lab_users u ON u.id = p.owner_id "
        "WHERE '/' || u.username || '/' || p.slug = ? AND i.state = ? "
        "AND i.author_id != (SELECT id FROM lab_users WHERE username = 'rowan.hale')"
    )
    return int(session.rows(sql, project, state)[0][0])


def test_holds_enough_content(session: Session) -> None:
    least = {"users": 15, "projects": 20, "commits": 400, "issues": 250, "merge_requests": 80, "comments": 300, "todos": 12}
    counts = {table: session.rows(f"SELECT COUNT(*) FROM lab_{table}")[0][0] for table in least}
    assert all(counts[table] >= count for table, count in least.items()), counts
    stars = [row[0] for row in session.rows("SELECT COUNT(*) FROM lab_stars GROUP BY project_id")]
    assert len(set(stars)) == counts["projects"]  # "which has more stars" has one answer
    assert len(pristine(SITE).image) < 1_000_000


def test_content_is_the_same_in_every_process() -> None:
    assert hash_in_another_process("gitlab") == pristine(SITE).dump_hash


def test_the_site_keeps_to_the_contract() -> None:
    check_site(SITE, pages=60, instances=1)


@pytest.mark.slow
def test_every_task_is_solved_by_its_expert() -> None:
    check_site(SITE, pages=400, instances=None)


def test_tasks_are_many_and_distinct() -> None:
    listed = {template.id: list(template.instances(pristine(SITE).connection)) for template in SITE.templates}
    assert len(listed) == len(SITE.templates) >= 28
    assert all(len(instances) >= 12 for name, instances in listed.items() if name != "gitlab.todos")
    assert sum(template.changes_state for template in SITE.templates) >= 12
    intents = [t.intent.format(**i.params) for t in SITE.templates for i in listed[t.id]]
    assert len(set(intents)) == len(intents) >= 350


def test_projects_are_searched_and_sorted(session: Session) -> None:
    assert "1 project " in session.text("/explore", q="seed-vault")
    by_stars = session.text("/explore", sort="stars")
    most = session.rows("SELECT project_id FROM lab_stars GROUP BY project_id ORDER BY COUNT(*) DESC LIMIT 2")
    slugs = [session.rows("SELECT slug FROM lab_projects WHERE id = ?", row[0])[0][0] for row in most]
    assert by_stars.index(f"/{slugs[0]}") < by_stars.index(f"/{slugs[1]}")


def test_commits_are_filtered_by_author_and_days(session: Session) -> None:
    sql = "SELECT COUNT(*) FROM lab_commits WHERE project_id = 3 AND created BETWEEN '2023-02-01' AND '2023-03-01'"
    count = session.rows(sql)[0][0]
    assert f"{count} commit" in session.text(f"{MINE}/commits", since="2023-02-01", until="2023-02-28")
    author = session.rows(
        "SELECT u.username, COUNT(*) FROM lab_commits c JOIN lab_users u ON u.id = c.author_id WHERE c.project_id = 3 GROUP BY 1"
    )
    assert f"{author[0][1]} commit" in session.text(f"{MINE}/commits", author=f"@{author[0][0]}")
    assert "Days are written as YYYY-MM-DD, found '2023-02-30'." in session.text(f"{MINE}/commits", since="2023-02-30")
    assert "there is no user 'nobody'" in session.text(f"{MINE}/commits", author="nobody")


def test_files_are_listed_by_folder_and_shown(session: Session) -> None:
    root = session.text(f"{MINE}/tree/")
    assert "docs/" in root
    assert "configuration.md" not in root
    assert "configuration.md" in session.text(f"{MINE}/tree/docs")
    assert "listens on port" in session.text(f"{MINE}/blob/docs/configuration.md")
    assert [session.get(f"{MINE}/{path}").status for path in ("tree/doc", "blob/docs", "blob/../schema.sql")] == [404, 404, 404]


def test_issues_are_created_with_all_fields(session: Session) -> None:
    label = session.rows("SELECT name FROM lab_labels WHERE project_id = 3")[0][0]
    form = {"title": SCRIPT, "description": SCRIPT, "assignee": "@rowan.hale", "labels": f"{label}, {label}", "milestone": "v1.0"}
    location = session.change(f"{MINE}/issues/new", **form)
    assert session.rows("SELECT title, milestone, state, created FROM lab_issues ORDER BY id DESC LIMIT 1") == [
        (SCRIPT, "v1.0", "open", "2023-06-15 12:00")
    ]
    assert location == f"{MINE}/issues/{session.rows('SELECT MAX(iid) FROM lab_issues WHERE project_id = 3')[0][0]}"
    assert b"<script>" not in session.get(location).body
    assert SCRIPT in session.text(location)
    assert "Assignee rowan.hale" in session.text(location)


def test_issue_forms_say_what_is_wrong(session: Session) -> None:
    new = f"{MINE}/issues/new"
    assert "Title cannot be blank." in session.refusal(new, title=" ")
    assert "There is no label 'colour'" in session.refusal(new, title="x", labels="colour")
    assert "There is no milestone 'v9'" in session.refusal(new, title="x", milestone="v9")
    assert "Assignee: there is no user 'nobody'." in session.refusal(new, title="x", assignee="nobody")
    assert "too long" in session.refusal(new, title="x" * 201)


def test_issues_are_closed_edited_and_commented(session: Session) -> None:
    iid = _issue(session, MINE)
    here = f"{MINE}/issues/{iid}"
    assert session.change(f"{here}/close") == here
    assert "State closed" in session.text(here)
    session.change(f"{here}/reopen")
    assert "State open" in session.text(here)
    session.change(f"{here}/edit", title="New title", labels="")
    assert "Labels none" in session.text(here)
    session.change(f"{here}/comment", body=SCRIPT)
    assert b"<script>" not in session.get(here).body
    assert f"rowan.hale on 2023-06-15 12:00: {SCRIPT}" in session.text(here)


def test_only_members_write_to_a_project(session: Session, foreign: str) -> None:
    iid = _issue(session, foreign)
    assert "You need the role Developer" in session.refusal(f"{foreign}/issues/{iid}/close", 403)
    assert "You need the role Maintainer" in session.refusal(f"{foreign}/settings", 403, name="Mine now")
    assert "You need the role Maintainer" in session.refusal(f"{foreign}/members", 403, username="rowan.hale", role="Owner")
    assert session.get(f"{foreign}/settings").status == 403
    session.change(f"{foreign}/issues/{iid}/comment", body="Hello")  # commenting is free


def test_merge_requests_are_opened_and_merged(session: Session) -> None:
    new = f"{MINE}/merge_requests/new"
    branch = session.rows("SELECT name FROM lab_branches WHERE project_id = 3 AND name != 'main'")[0][0]
    assert "there is no branch 'nothing'" in session.refusal(new, title="x", source_branch="nothing", target_branch="main")
    assert "must differ" in session.refusal(new, title="x", source_branch="main", target_branch="main")
    here = session.change(new, title="Bring it in", source_branch=branch, target_branch="main", reviewer="rowan.hale")
    assert "Bring it in" in session.text("/dashboard/merge_requests")
    assert session.change(f"{here}/merge") == here
    assert "State merged" in session.text(here)
    assert "This merge request is merged." in session.refusal(f"{here}/close")
    assert session.get(f"{here}/merge").status == 405


def test_members_are_invited_changed_and_removed(session: Session) -> None:
    members = "SELECT u.username, m.role FROM lab_members m JOIN lab_users u ON u.id = m.user_id WHERE m.project_id = 3"
    before = dict(session.rows(members))
    new = next(name for (name,) in session.rows("SELECT username FROM lab_users ORDER BY id") if name not in before)
    assert session.change(f"{MINE}/members", username=new, role="Reporter") == f"{MINE}/members"
    assert "a member already" in session.refusal(f"{MINE}/members", username=new, role="Guest")
    assert "The role must be one of" in session.refusal(f"{MINE}/members/{new}", role="King")
    session.change(f"{MINE}/members/{new}", role="Developer")
    assert dict(session.rows(members)) == {**before, new: "Developer"}
    session.change(f"{MINE}/members/{new}/remove")
    assert dict(session.rows(members)) == before
    assert "owner's role stays" in session.refusal(f"{MINE}/members/rowan.hale/remove")


def test_projects_are_created_described_starred_and_forked(session: Session, foreign: str) -> None:
    assert session.change("/projects/new", name="Moon Garden!", readme="1") == "/rowan.hale/moon-garden"
    assert "Visibility private" in session.text("/rowan.hale/moon-garden")
    assert "already" in session.refusal("/projects/new", name="moon garden")
    assert "needs a letter" in session.refusal("/projects/new", name="!!!")
    assert "Visibility must be one of" in session.refusal("/projects/new", name="x", visibility="secret")
    session.change("/rowan.hale/moon-garden/settings", name="Moon", description=SCRIPT, visibility="public")
    assert b"<script>" not in session.get("/rowan.hale/moon-garden").body
    session.change("/rowan.hale/moon-garden/star")
    session.change("/rowan.hale/moon-garden/star")
    assert "Stars 1 " in session.text("/rowan.hale/moon-garden")
    session.change("/rowan.hale/moon-garden/unstar")
    assert "Stars 0 " in session.text("/rowan.hale/moon-garden")
    fork = session.change(f"{foreign}/fork")
    assert "README" in session.text(fork)
    assert "Forks 1 " in session.text(foreign)
    assert "already" in session.refusal(f"{foreign}/fork")


def test_private_projects_are_hidden_from_others(session: Session) -> None:
    session.change("/projects/new", name="Secret plans")
    assert session.get("/rowan.hale/secret-plans").status == 200
    session.cookies = {"user": "nobody"}
    assert session.get("/rowan.hale/secret-plans").status == 404
    assert "secret-plans" not in session.text("/explore", q="secret")


def test_todos_are_finished_one_by_one(session: Session) -> None:
    todo = session.rows("SELECT id FROM lab_todos ORDER BY created DESC, id DESC LIMIT 1")[0][0]
    total = session.rows("SELECT COUNT(*) FROM lab_todos")[0][0]
    assert f"{total} to-dos" in session.text("/dashboard/todos")
    session.change(f"/dashboard/todos/{todo}/done")
    assert f"{total - 1} to-dos" in session.text("/dashboard/todos")
    assert "no such page" in session.refusal("/dashboard/todos/99999999999999999999/done", 404)


def test_profile_is_changed(session: Session) -> None:
    assert session.change("/profile", name="Rowan Hale", status="Busy", bio="") == "/users/rowan.hale"
    assert "Status Busy" in session.text("/users/rowan.hale")
    assert "Name cannot be blank." in session.refusal("/profile", status="Busy")


def test_nobody_is_asked_to_log_in() -> None:
    nobody = Session(SITE, logged_in=False)
    for path, form in (
        ("/profile", {"name": "x"}),
        ("/projects/new", {"name": "x"}),
        (f"{MINE}/star", {}),
        (f"{MINE}/issues/new", {"title": "x"}),
    ):
        assert "not logged in" in nobody.refusal(path, 403, **form)
    assert nobody.get("/").status == 200


@pytest.mark.parametrize(
    "path", ["/nothing", "/a/b", f"{MINE}/issues/0", f"{MINE}/issues/99999999999999999999", f"{MINE}/x", "/users/nobody"]
)
def test_unknown_addresses_are_404(session: Session, path: str) -> None:
    assert session.get(path).status == 404


@pytest.mark.parametrize("value", NASTY)
def test_no_value_makes_a_page_fail(session: Session, value: str) -> None:
    query = dict.fromkeys(("q", "sort", "page", "state", "label", "assignee", "author", "since", "until", "action"), value)
    for path in ("/", "/explore", "/dashboard/todos", *(f"{MINE}/{tab}" for tab in ("issues", "merge_requests", "commits", "members"))):
        assert session.get(path, **query).status == 200
    fields = (
        "title",
        "description",
        "labels",
        "assignee",
        "milestone",
        "source_branch",
        "target_branch",
        "body",
        "username",
        "role",
        "name",
    )
    form = dict.fromkeys((*fields, "status", "bio", "visibility"), value)
    for path in ("/profile", "/projects/new", *(f"{MINE}/{tab}" for tab in ("issues/new", "merge_requests/new", "members", "settings"))):
        assert session.post(path, **form).status in (303, 400)
