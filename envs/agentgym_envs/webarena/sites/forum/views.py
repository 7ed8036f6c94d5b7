"""Pages of the forum: lists of posts, threads, voting, writing, profiles."""

from __future__ import annotations

import re
import sqlite3

from flask import Flask, redirect, render_template, request
from werkzeug.exceptions import NotFound
from werkzeug.wrappers import Response

from agentgym_envs.webarena.sites.base import NOW, db, user
from agentgym_envs.webarena.sites.forum.seed import TITLE
from agentgym_envs.webarena.sites.listing import Refused, choice, form_text, like, paginate, with_arguments

_COMMENTS_PER_PAGE = 8
_NAME = re.compile(r"[A-Za-z0-9_]{3,25}")
_LINK = re.compile(r"https?://[^\s/?#]+\S*")
_COUNT = "(SELECT COUNT(*) FROM forum_comments c WHERE c.post_id = p.id)"
_POSTS = (
    f"SELECT p.*, f.name AS forum, u.name AS author, p.up - p.down AS score, {_COUNT} AS comments FROM forum_posts p "
    "JOIN forum_forums f ON f.id = p.forum_id JOIN forum_users u ON u.id = p.author_id"
)
#: ``hot`` weighs a day like two votes.
_SORTS = {
    "hot": f"p.up - p.down + 2 * julianday(p.created) - 2 * julianday('{NOW:%Y-%m-%d %H:%M}') DESC, p.id DESC",
    "new": "p.created DESC, p.id DESC",
    "top": "score DESC, p.id DESC",
    "most commented": "comments DESC, p.id DESC",
}
#: Comments of a post from the top of each thread downwards: every path begins with its parent's.
_THREAD = """
    SELECT t.*, u.name AS author, parent.name AS answers FROM (
        WITH RECURSIVE thread (id, parent_id, author_id, body, created, up, down, path) AS (
            SELECT id, parent_id, author_id, body, created, up, down, printf('%09d', id) FROM forum_comments
            WHERE post_id = ? AND parent_id IS NULL
            UNION ALL
            SELECT c.id, c.parent_id, c.author_id, c.body, c.created, c.up, c.down, thread.path || printf('/%09d', c.id)
            FROM forum_comments c JOIN thread ON c.parent_id = thread.id
        )
        SELECT * FROM thread
    ) t JOIN forum_users u ON u.id = t.author_id
    LEFT JOIN forum_comments above ON above.id = t.parent_id LEFT JOIN forum_users parent ON parent.id = above.author_id
    ORDER BY t.path
"""


def create_app() -> Flask:
    """The application of the site."""
    app = Flask(__name__)
    app.jinja_env.globals.update(user=user, site=TITLE, with_arguments=with_arguments)
    post_rule = "/f/<forum>/<int:post_id>"
    comment_rule = f"{post_rule}/comment/<int:comment_id>"
    for rule, view in (
        ("/", home),
        ("/forums", forums),
        ("/search", search),
        ("/submit", submit_form),
        ("/create_forum", forum_form),
        ("/biography", biography_form),
        ("/f/<forum>", forum_page),
        (post_rule, post_page),
        (f"{post_rule}/edit", edit_form),
        (comment_rule, comment_page),
        ("/user/<name>", profile),
        ("/user/<name>/comments", profile_comments),
    ):
        app.add_url_rule(rule, view_func=view)
    for rule, change in (
        ("/submit", submit),
        ("/create_forum", create_forum),
        ("/biography", set_biography),
        ("/f/<forum>/<any(subscribe, unsubscribe):action>", subscribe),
        (f"{post_rule}/<any(upvote, downvote):direction>", vote_on_post),
        (f"{comment_rule}/<any(upvote, downvote):direction>", vote_on_comment),
        (f"{post_rule}/comment", comment_on_post),
        (f"{comment_rule}/reply", reply),
        (f"{post_rule}/edit", edit),
        (f"{post_rule}/delete", delete),
    ):
        app.add_url_rule(rule, view_func=change, methods=["POST"])
    app.register_error_handler(Refused, lambda error: (render_template("error.html", message=str(error)), error.status))
    app.register_error_handler(404, lambda _: (render_template("error.html", message="There is no such page."), 404))
    app.register_error_handler(405, lambda _: (render_template("error.html", message="This page takes no such request."), 405))
    return app


# ---- pages ----


def home() -> str:
    """Posts of all forums."""
    return _list_of_posts("home.html", "1", ())


def _list_of_posts(template: str, condition: str, values: tuple[object, ...], **context: object) -> str:
    sort = choice("sort", tuple(_SORTS))
    listing = paginate(f"{_POSTS} WHERE {condition} ORDER BY {_SORTS[sort]}", values)
    return render_template(template, listing=listing, sort=sort, sorts=_SORTS, **context)


def forums() -> str:
    """All forums, found by name, title or description."""
    pattern = like(request.args.get("q", "").strip())
    sql = (
        "SELECT f.*, (SELECT COUNT(*) FROM forum_subscriptions s WHERE s.forum_id = f.id) AS subscribers FROM forum_forums f "
        "WHERE f.name LIKE ? ESCAPE '\\' OR f.title LIKE ? ESCAPE '\\' OR f.description LIKE ? ESCAPE '\\' ORDER BY f.name"
    )
    return render_template("forums.html", listing=paginate(sql, (pattern, pattern, pattern)))


def search() -> str:
    """Posts whose title or text holds the query."""
    pattern = like(request.args.get("q", "").strip())
    return _list_of_posts("search.html", "p.title LIKE ? ESCAPE '\\' OR p.body LIKE ? ESCAPE '\\'", (pattern, pattern))


def forum_page(forum: str) -> str:
    """A forum's posts and facts."""
    row = _forum(forum)
    subscribers = db().execute("SELECT COUNT(*) FROM forum_subscriptions WHERE forum_id = ?", (row["id"],)).fetchone()[0]
    mine = db().execute("SELECT 1 FROM forum_subscriptions WHERE forum_id = ? AND user_id = ?", (row["id"], _me())).fetchone()
    return _list_of_posts("forum.html", "p.forum_id = ?", (row["id"],), forum=row, subscribers=subscribers, subscribed=mine is not None)


def post_page(forum: str, post_id: int) -> str:
    """A post with its comments, thread by thread."""
    post = _post(forum, post_id)
    return render_template(
        "post.html", post=post, listing=paginate(_THREAD, (post_id,), size=_COMMENTS_PER_PAGE), mine=_vote("post", post_id)
    )


def comment_page(forum: str, post_id: int, comment_id: int) -> str:
    """One comment, to vote on and to answer."""
    post, comment = _post(forum, post_id), _comment(post_id, comment_id)
    return render_template("comment.html", post=post, comment=comment, mine=_vote("comment", comment_id))


def profile(name: str) -> str:
    """A user's facts and posts, newest first."""
    person = _person(name)
    listing = paginate(f"{_POSTS} WHERE p.author_id = ? ORDER BY {_SORTS['new']}", (person["id"],))
    return render_template("profile.html", person=person, listing=listing)


def profile_comments(name: str) -> str:
    """A user's comments, newest first."""
    person = _person(name)
    sql = (
        "SELECT c.*, f.name AS forum, p.title FROM forum_comments c JOIN forum_posts p ON p.id = c.post_id "
        "JOIN forum_forums f ON f.id = p.forum_id WHERE c.author_id = ? ORDER BY c.created DESC, c.id DESC"
    )
    return render_template("profile_comments.html", person=person, listing=paginate(sql, (person["id"],)))


def submit_form() -> str:
    """The form for a new post."""
    return render_template("submit.html", forum=request.args.get("forum", ""))


def forum_form() -> str:
    """The form for a new forum."""
    return render_template("create_forum.html")


def biography_form() -> str:
    """The form for the user's biography."""
    row = db().execute("SELECT * FROM forum_users WHERE id = ?", (_login(),)).fetchone()
    return render_template("biography.html", person=row)


def edit_form(forum: str, post_id: int) -> str:
    """The form to edit or delete one's own post."""
    return render_template("edit.html", post=_own_post(forum, post_id))


# ---- changes ----


def submit() -> Response:
    """Write a post."""
    author, title, url = _login(), form_text("title", "Title", 200), form_text("url", "URL", 300, required=False)
    body, name = form_text("body", "Body", required=False), form_text("forum", "Forum", 30)
    forum = db().execute("SELECT id, name FROM forum_forums WHERE name = ?", (name,)).fetchone()
    if forum is None:
        raise Refused(f"There is no forum {name!r}.")
    if url and not _LINK.fullmatch(url):
        raise Refused(f"The URL must begin with http:// or https://, found {url!r}.")
    with db():
        sql = "INSERT INTO forum_posts (forum_id, author_id, title, url, body, created) VALUES (?, ?, ?, ?, ?, ?)"
        post = db().execute(sql, (forum["id"], author, title, url, body, _now())).lastrowid
    return redirect(f"/f/{forum['name']}/{post}", 303)


def create_forum() -> Response:
    """Found a forum; its founder is its first subscriber."""
    creator, name = _login(), form_text("name", "Name", 25)
    if not _NAME.fullmatch(name):
        raise Refused("The name must have 3 to 25 letters, digits or underscores.")
    if db().execute("SELECT 1 FROM forum_forums WHERE name = ?", (name,)).fetchone():
        raise Refused(f"There is a forum {name!r} already.")
    row = (
        name,
        form_text("title", "Title", 60),
        form_text("description", "Description", 200),
        form_text("sidebar", "Sidebar", 500, required=False),
    )
    with db():
        sql = "INSERT INTO forum_forums (name, title, description, sidebar, creator_id, created) VALUES (?, ?, ?, ?, ?, ?)"
        forum = db().execute(sql, (*row, creator, _now())).lastrowid
        db().execute("INSERT INTO forum_subscriptions VALUES (?, ?)", (forum, creator))
    return redirect(f"/f/{name}", 303)


def set_biography() -> Response:
    """Change the user's biography."""
    with db():
        db().execute("UPDATE forum_users SET bio = ? WHERE id = ?", (form_text("bio", "Biography", 500, required=False), _login()))
    return redirect(f"/user/{user()}", 303)


def subscribe(forum: str, action: str) -> Response:
    """Subscribe to a forum or stop it."""
    values = (_forum(forum)["id"], _login())
    sql = {
        "subscribe": "INSERT OR IGNORE INTO forum_subscriptions VALUES (?, ?)",
        "unsubscribe": "DELETE FROM forum_subscriptions WHERE forum_id = ? AND user_id = ?",
    }
    with db():
        db().execute(sql[action], values)
    return redirect(f"/f/{forum}", 303)


def vote_on_post(forum: str, post_id: int, direction: str) -> Response:
    """Vote on a post; the same vote again takes it back."""
    _post(forum, post_id)
    _cast("post", post_id, direction)
    return redirect(f"/f/{forum}/{post_id}", 303)


def vote_on_comment(forum: str, post_id: int, comment_id: int, direction: str) -> Response:
    """Vote on a comment; the same vote again takes it back."""
    _post(forum, post_id)
    _comment(post_id, comment_id)
    _cast("comment", comment_id, direction)
    return redirect(f"/f/{forum}/{post_id}/comment/{comment_id}", 303)


def _cast(kind: str, target: int, direction: str) -> None:
    voter, value, before = _login(), 1 if direction == "upvote" else -1, _vote(kind, target)
    table = {"post": "forum_posts", "comment": "forum_comments"}[kind]
    after = 0 if value == before else value
    ups, downs = (after == 1) - (before == 1), (after == -1) - (before == -1)
    with db():
        db().execute("DELETE FROM forum_votes WHERE user_id = ? AND kind = ? AND target_id = ?", (voter, kind, target))
        if after:
            db().execute("INSERT INTO forum_votes VALUES (?, ?, ?, ?)", (voter, kind, target, after))
        db().execute(f"UPDATE {table} SET up = up + ?, down = down + ? WHERE id = ?", (ups, downs, target))


def comment_on_post(forum: str, post_id: int) -> Response:
    """Comment on a post."""
    _post(forum, post_id)
    _add_comment(post_id, None)
    return redirect(f"/f/{forum}/{post_id}", 303)


def reply(forum: str, post_id: int, comment_id: int) -> Response:
    """Answer a comment."""
    _post(forum, post_id)
    _comment(post_id, comment_id)
    _add_comment(post_id, comment_id)
    return redirect(f"/f/{forum}/{post_id}", 303)


def _add_comment(post_id: int, parent: int | None) -> None:
    values = (post_id, parent, _login(), form_text("body", "The comment"), _now())
    with db():
        db().execute("INSERT INTO forum_comments (post_id, parent_id, author_id, body, created) VALUES (?, ?, ?, ?, ?)", values)


def edit(forum: str, post_id: int) -> Response:
    """Change the text of one's own post."""
    _own_post(forum, post_id)
    with db():
        db().execute("UPDATE forum_posts SET body = ? WHERE id = ?", (form_text("body", "Body", required=False), post_id))
    return redirect(f"/f/{forum}/{post_id}", 303)


def delete(forum: str, post_id: int) -> Response:
    """Delete one's own post with its comments and all votes on them."""
    _own_post(forum, post_id)
    with db():
        comments = "SELECT id FROM forum_comments WHERE post_id = ?"
        db().execute(f"DELETE FROM forum_votes WHERE kind = 'comment' AND target_id IN ({comments})", (post_id,))
        db().execute("DELETE FROM forum_votes WHERE kind = 'post' AND target_id = ?", (post_id,))
        db().execute("DELETE FROM forum_comments WHERE post_id = ?", (post_id,))
        db().execute("DELETE FROM forum_posts WHERE id = ?", (post_id,))
    return redirect(f"/f/{forum}", 303)


# ---- look-ups ----


def _now() -> str:
    return NOW.strftime("%Y-%m-%d %H:%M")


def _me() -> int:
    """Id of the logged-in user, 0 if there is none."""
    row = db().execute("SELECT id FROM forum_users WHERE name = ?", (user(),)).fetchone()
    return int(row["id"]) if row else 0


def _login() -> int:
    found = _me()
    if not found:
        raise Refused("You are not logged in.", 403)
    return found


def _one(sql: str, *values: str | int) -> sqlite3.Row:
    """The row of a look-up, or the answer 404; numbers that SQLite cannot hold find nothing."""
    if any(isinstance(value, int) and value >= 2**63 for value in values):
        raise NotFound
    row: sqlite3.Row | None = db().execute(sql, values).fetchone()
    if row is None:
        raise NotFound
    return row


def _forum(name: str) -> sqlite3.Row:
    return _one("SELECT * FROM forum_forums WHERE name = ?", name)


def _person(name: str) -> sqlite3.Row:
    return _one("SELECT * FROM forum_users WHERE name = ?", name)


def _post(forum: str, post_id: int) -> sqlite3.Row:
    return _one(f"{_POSTS} WHERE p.id = ? AND f.name = ?", post_id, forum)


def _own_post(forum: str, post_id: int) -> sqlite3.Row:
    post = _post(forum, post_id)
    if post["author_id"] != _login():
        raise Refused("This is not your post.", 403)
    return post


def _comment(post_id: int, comment_id: int) -> sqlite3.Row:
    sql = "SELECT c.*, u.name AS author FROM forum_comments c JOIN forum_users u ON u.id = c.author_id WHERE c.id = ? AND c.post_id = ?"
    return _one(sql, comment_id, post_id)


def _vote(kind: str, target: int) -> int:
    """The user's vote: 1, -1 or 0."""
    row = db().execute("SELECT value FROM forum_votes WHERE user_id = ? AND kind = ? AND target_id = ?", (_me(), kind, target)).fetchone()
    return int(row["value"]) if row else 0
