"""The forum: its content, its pages and its tasks."""

from __future__ import annotations

import pytest
from webarena_pages_factory import NASTY, Session, hash_in_another_process

from agentgym_envs.webarena.database import pristine
from agentgym_envs.webarena.sites.forum import SITE
from agentgym_envs.webarena.testing import check_site

SCRIPT = "<script>alert(1)</script>"
ME = "marlow_pine"


@pytest.fixture
def session() -> Session:
    return Session(SITE)


def _post(session: Session, own: bool = False) -> str:
    """Path of a post of the user or of somebody else."""
    sql = (
        "SELECT '/f/' || f.name || '/' || p.id FROM forum_posts p JOIN forum_forums f ON f.id = p.forum_id "
        f"JOIN forum_users u ON u.id = p.author_id WHERE (u.name = ?) = {int(own)} AND EXISTS "
        "(SELECT 1 FROM forum_comments c WHERE c.post_id = p.id) ORDER BY p.id"
    )
    return str(session.rows(sql, ME)[0][0])


def _number(path: str) -> int:
    return int(path.rsplit("/", 1)[1])


def test_holds_enough_content(session: Session) -> None:
    least = {"forums": 15, "users": 60, "posts": 300, "comments": 1200}
    counts = {table: session.rows(f"SELECT COUNT(*) FROM forum_{table}")[0][0] for table in least}
    assert all(counts[table] >= count for table, count in least.items()), counts
    assert session.rows("SELECT COUNT(DISTINCT title) FROM forum_posts")[0][0] == counts["posts"]
    assert session.rows("SELECT COUNT(*) FROM forum_comments c JOIN forum_posts p ON p.id = c.post_id WHERE c.created < p.created") == [
        (0,)
    ]
    assert len(pristine(SITE).image) < 1_000_000


def test_content_is_the_same_in_every_process() -> None:
    assert hash_in_another_process("forum") == pristine(SITE).dump_hash


def test_the_site_keeps_to_the_contract() -> None:
    check_site(SITE, pages=60, instances=1)


@pytest.mark.slow
def test_every_task_is_solved_by_its_expert() -> None:
    check_site(SITE, pages=400, instances=None)


def test_tasks_are_many_and_distinct() -> None:
    listed = {template.id: list(template.instances(pristine(SITE).connection)) for template in SITE.templates}
    assert len(listed) == len(SITE.templates) >= 22
    few = {"forum.subscribe", "forum.unsubscribe"}  # half of the forums each
    assert all(len(instances) >= (9 if name in few else 12) for name, instances in listed.items())
    assert sum(template.changes_state for template in SITE.templates) >= 12
    intents = [t.intent.format(**i.params) for t in SITE.templates for i in listed[t.id]]
    assert len(set(intents)) == len(intents) >= 300


@pytest.mark.parametrize(
    ("sort", "column"),
    [("new", "created"), ("top", "up - down"), ("most commented", "(SELECT COUNT(*) FROM forum_comments c WHERE c.post_id = p.id)")],
)
def test_posts_are_sorted(session: Session, sort: str, column: str) -> None:
    sql = f"SELECT title FROM forum_posts p WHERE forum_id = 1 ORDER BY {column} DESC, id DESC LIMIT 3"
    first, second, third = (row[0] for row in session.rows(sql))
    text = session.text("/f/books", sort=sort)
    assert text.index(first) < text.index(second) < text.index(third)


def test_threads_are_shown_from_the_top_down(session: Session) -> None:
    here = _post(session)
    session.change(f"{here}/comment", body="top one")
    top = session.rows("SELECT MAX(id) FROM forum_comments")[0][0]
    session.change(f"{here}/comment", body="top two")
    session.change(f"{here}/comment/{top}/reply", body="answer to one")
    total = session.rows("SELECT COUNT(*) FROM forum_comments WHERE post_id = ?", _number(here))[0][0]
    pages = " ".join(session.text(here, page=str(page)) for page in range(1, -(-total // 8) + 1))
    assert pages.index("top one") < pages.index("answer to one") < pages.index("top two")
    assert f"answers {ME}, 0 up, 0 down" in pages
    assert f"{total} comments" in pages


def test_votes_count_once_and_can_be_taken_back(session: Session) -> None:
    here = _post(session)
    post = _number(here)
    ((up, down),) = session.rows("SELECT up, down FROM forum_posts WHERE id = ?", post)
    steps = [("upvote", (1, 0)), ("downvote", (0, 1)), ("downvote", (0, 0)), ("upvote", (1, 0)), ("upvote", (0, 0))]
    for direction, (more_up, more_down) in steps:
        assert session.change(f"{here}/{direction}") == here
        assert session.rows("SELECT up, down FROM forum_posts WHERE id = ?", post) == [(up + more_up, down + more_down)]
        votes = session.rows("SELECT kind, target_id, value FROM forum_votes")
        assert votes == ([("post", post, more_up - more_down)] if more_up or more_down else [])


def test_comments_are_voted_on_at_their_own_page(session: Session) -> None:
    here = _post(session)
    comment = session.rows("SELECT id FROM forum_comments WHERE post_id = ?", _number(here))[0][0]
    assert session.change(f"{here}/comment/{comment}/downvote") == f"{here}/comment/{comment}"
    assert session.rows("SELECT kind, target_id, value FROM forum_votes") == [("comment", comment, -1)]
    assert "Take back downvote" in session.text(f"{here}/comment/{comment}")
    other = session.rows("SELECT id FROM forum_comments WHERE post_id != ?", _number(here))[0][0]
    assert session.get(f"{here}/comment/{other}").status == 404


def test_posts_are_submitted_edited_and_deleted(session: Session) -> None:
    here = session.change("/submit", title=SCRIPT, body=SCRIPT, forum="BOOKS")
    assert here.startswith("/f/books/")
    assert b"<script>" not in session.get(here).body
    assert SCRIPT in session.text(here)
    assert session.change(f"{here}/edit", body="Better") == here
    assert "Better" in session.text(here)
    session.change(f"{here}/comment", body="First")
    session.change(f"{here}/comment/{session.rows('SELECT MAX(id) FROM forum_comments')[0][0]}/upvote")
    session.change(f"{here}/upvote")
    assert session.change(f"{here}/delete") == "/f/books"
    assert session.get(here).status == 404
    assert session.rows("SELECT * FROM forum_votes") == []
    assert session.rows("SELECT * FROM forum_comments WHERE post_id = ?", _number(here)) == []


def test_writing_forms_say_what_is_wrong(session: Session) -> None:
    assert "Title cannot be blank." in session.refusal("/submit", forum="books")
    assert "There is no forum 'atlantis'." in session.refusal("/submit", title="x", forum="atlantis")
    for url in ("javascript:alert(1)", "ftp://x.test/", "http://", "x"):
        assert "The URL must begin with" in session.refusal("/submit", title="x", forum="books", url=url)
    assert "The comment cannot be blank." in session.refusal(f"{_post(session)}/comment", body=" ")


def test_posts_of_others_stay(session: Session) -> None:
    here = _post(session)
    assert "This is not your post." in session.refusal(f"{here}/delete", 403)
    assert "This is not your post." in session.refusal(f"{here}/edit", 403, body="Mine")
    assert session.get(f"{here}/edit").status == 403
    assert session.get(f"{_post(session, own=True)}/edit").status == 200


def test_forums_are_created_and_subscribed_to(session: Session) -> None:
    assert session.change("/create_forum", name="kites", title=SCRIPT, description="Wind") == "/f/kites"
    assert "1 subscriber " in session.text("/f/kites")
    assert b"<script>" not in session.get("/f/kites").body
    assert "already" in session.refusal("/create_forum", name="KITES", title="x", description="x")
    for name in ("ab", "a b c", "x" * 26, "kites!"):
        assert "25" in session.refusal("/create_forum", name=name, title="x", description="x")
    session.change("/f/kites/unsubscribe")
    assert "0 subscribers" in session.text("/f/kites")
    session.change("/f/kites/subscribe")
    session.change("/f/kites/subscribe")
    assert "1 subscriber " in session.text("/f/kites")
    assert "kites" in session.text("/forums", q="wind")


def test_biography_is_changed(session: Session) -> None:
    assert session.change("/biography", bio=SCRIPT) == f"/user/{ME}"
    assert SCRIPT in session.text(f"/user/{ME}")
    assert b"<script>" not in session.get(f"/user/{ME}").body
    assert "too long" in session.refusal("/biography", bio="x" * 501)


def test_profiles_list_posts_and_comments(session: Session) -> None:
    name, posts = session.rows("SELECT u.name, COUNT(*) FROM forum_users u JOIN forum_posts p ON p.author_id = u.id GROUP BY u.id")[0]
    comments = session.rows("SELECT COUNT(*) FROM forum_comments c JOIN forum_users u ON u.id = c.author_id WHERE u.name = ?", name)[0][0]
    assert f"{posts} post" in session.text(f"/user/{name}")
    assert f"{comments} comment" in session.text(f"/user/{name}/comments")


def test_nobody_is_asked_to_log_in() -> None:
    nobody = Session(SITE, logged_in=False)
    here = _post(nobody)
    for path, form in (
        (f"{here}/upvote", {}),
        (f"{here}/comment", {"body": "x"}),
        ("/submit", {"title": "x", "forum": "books"}),
        ("/f/books/subscribe", {}),
    ):
        assert "not logged in" in nobody.refusal(path, 403, **form)
    assert "Upvote" not in nobody.text(here)


@pytest.mark.parametrize(
    "path", ["/nothing", "/f/atlantis", "/f/books/1", "/f/books/99999999999999999999", "/user/nobody", "/f/chess/1001"]
)
def test_unknown_addresses_are_404(session: Session, path: str) -> None:
    assert session.get(path).status == 404


def test_a_change_needs_a_post(session: Session) -> None:
    assert session.get("/f/books/subscribe").status == 405
    assert session.get(f"{_post(session)}/upvote").status == 405


@pytest.mark.parametrize("value", NASTY)
def test_no_value_makes_a_page_fail(session: Session, value: str) -> None:
    query = dict.fromkeys(("q", "sort", "page", "forum"), value)
    here = _post(session)
    for path in ("/", "/forums", "/search", "/submit", "/f/books", here, f"/user/{ME}", f"/user/{ME}/comments"):
        assert session.get(path, **query).status == 200
    form = dict.fromkeys(("title", "url", "body", "forum", "name", "description", "sidebar", "bio"), value)
    for path in ("/submit", "/create_forum", "/biography", f"{here}/comment", f"{_post(session, own=True)}/edit"):
        assert session.post(path, **form).status in (303, 400)
