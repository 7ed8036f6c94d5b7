"""Task families of the forum that change it; together with the questions they are the site's tasks."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from agentgym_envs.webarena.sites.base import Instance, Script, TaskTemplate
from agentgym_envs.webarena.sites.forum.questions import (
    PER_FAMILY,
    QUESTIONS,
    comments_on,
    forum_names,
    leaders,
    open_forum,
    open_post,
    open_sorted,
    posts,
    sample,
)
from agentgym_envs.webarena.sites.forum.seed import USER
from agentgym_envs.webarena.sites.forum.topics import TOPICS

if TYPE_CHECKING:
    from agentgym_envs.webarena.page import Page

_TEXTS = (
    *(
        "Great idea, thank you",
        "I would wait until spring",
        "Where did you buy it",
        "Count me in",
        "This worked for me",
        "Not in my experience",
    ),
    *("Tell us more", "I learned something today", "Please add a photo", "Try the other side first", "Half of this is enough"),
    *("My uncle swears by it", "What did it cost", "Same here"),
)
_BIOS = (
    *("Tea drinker and part-time poet", "I fix clocks", "Looking for quiet places", "Mostly harmless", "Two cats, no car", "Night owl"),
    *(
        "Learning one thing a week",
        "Former sailor",
        "I read every comment",
        "Gone fishing",
        "Baker on Sundays",
        "Ask me about moss",
        "Left-handed",
    ),
    "Collects old maps",
)
_NEW_FORUMS = (
    *(("pottery", "Clay, wheels and kilns"), ("kites", "Everything on a string"), ("mushrooms", "Finding and naming fungi")),
    *(("origami", "Folding without glue"), ("sailing", "Boats that need wind"), ("puzzles", "Crosswords and riddles")),
    *(("beekeeping", "Hives and honey"), ("calligraphy", "Pens, ink and paper"), ("climbing", "Ropes and rocks")),
    *(("radio", "Short wave and long nights"), ("cheese", "Making and tasting"), ("theatre", "Stages large and small")),
    *(("running", "Slow and steady miles"), ("minerals", "Stones worth keeping")),
)


# ---- instances ----


def _state(*checks: tuple[str, Sequence[Sequence[object]]]) -> dict[str, Any]:
    return {"eval_types": ["state_check"], "state": [{"query": query, "equals": [list(row) for row in rows]} for query, rows in checks]}


def _me(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT id FROM forum_users WHERE name = ?", (USER,)).fetchone()[0])


def _last(connection: sqlite3.Connection, table: str) -> int:
    return int(connection.execute(f"SELECT MAX(id) FROM {table}").fetchone()[0])


def _voted(kind: str, target: int, value: int) -> dict[str, Any]:
    """The user has cast this vote and no other."""
    table = {"post": "forum_posts", "comment": "forum_comments"}[kind]
    query = (
        "SELECT v.kind, v.target_id, v.value, u.name FROM forum_votes v JOIN forum_users u ON u.id = v.user_id "
        f"JOIN {table} t ON t.id = v.target_id"
    )
    return _state((query, [(kind, target, value, USER)]), ("SELECT COUNT(*) FROM forum_votes", [(1,)]))


def _vote_post(family: str, value: int) -> Callable[[sqlite3.Connection], list[Instance]]:
    def instances(connection: sqlite3.Connection) -> list[Instance]:
        rows = sample(family, posts(connection, f"p.author != '{USER}'"))
        return [Instance({"title": p["title"], "forum": p["forum"]}, _voted("post", p["id"], value)) for p in rows]

    return instances


def _vote_leader(column: str, value: int) -> Callable[[sqlite3.Connection], list[Instance]]:
    def instances(connection: sqlite3.Connection) -> list[Instance]:
        rows = leaders(connection, f"vote {column}", column)
        return [Instance({"forum": post["forum"]}, _voted("post", post["id"], value)) for post in rows]

    return instances


def _only_comments(connection: sqlite3.Connection, family: str) -> list[sqlite3.Row]:
    """Comments whose author wrote no other under the same post, on its first page: under posts of at most eight comments."""
    sql = (
        "SELECT c.id, p.id AS post_id, p.title, u.name AS author FROM forum_comments c JOIN forum_posts p ON p.id = c.post_id "
        f"JOIN forum_users u ON u.id = c.author_id WHERE u.name != '{USER}' "
        "AND (SELECT COUNT(*) FROM forum_comments o WHERE o.post_id = p.id) <= 8 "
        "AND NOT EXISTS (SELECT 1 FROM forum_comments o WHERE o.post_id = p.id AND o.author_id = c.author_id AND o.id != c.id) "
        "ORDER BY c.id"
    )
    return sample(family, connection.execute(sql).fetchall())


def _vote_comment(family: str, value: int) -> Callable[[sqlite3.Connection], list[Instance]]:
    def instances(connection: sqlite3.Connection) -> list[Instance]:
        rows = _only_comments(connection, family)
        return [Instance({"author": row["author"], "title": row["title"]}, _voted("comment", row["id"], value)) for row in rows]

    return instances


def _new_comment(connection: sqlite3.Connection, post: int, parent: int | None, text: str) -> dict[str, Any]:
    query = f"SELECT post_id, parent_id, author_id, body FROM forum_comments WHERE id > {_last(connection, 'forum_comments')}"
    return _state((query, [(post, parent, _me(connection), text)]))


def _comment(connection: sqlite3.Connection) -> list[Instance]:
    rows = zip(sample("comment", posts(connection)), _TEXTS, strict=True)
    return [
        Instance({"title": p["title"], "forum": p["forum"], "text": text}, _new_comment(connection, p["id"], None, text))
        for p, text in rows
    ]


def _reply(connection: sqlite3.Connection) -> list[Instance]:
    found = []
    for row, text in zip(_only_comments(connection, "reply"), _TEXTS[::-1], strict=True):
        params = {"author": row["author"], "title": row["title"], "text": text}
        found.append(Instance(params, _new_comment(connection, row["post_id"], row["id"], text)))
    return found


def _new_post(connection: sqlite3.Connection, forum: str, title: str, url: str, body: str) -> dict[str, Any]:
    query = (
        "SELECT f.name, u.name, p.title, p.url, p.body FROM forum_posts p JOIN forum_forums f ON f.id = p.forum_id "
        f"JOIN forum_users u ON u.id = p.author_id WHERE p.id > {_last(connection, 'forum_posts')}"
    )
    return _state((query, [(forum, USER, title, url, body)]))


def _ask_fitting(connection: sqlite3.Connection) -> list[Instance]:
    """``forum`` is not part of the intent: it tells the expert what a reader knows, namely which forum the question belongs in."""
    pairs = [(topic.name, question) for topic in TOPICS for question in topic.questions]
    return [Instance({"question": question, "forum": name}, _new_post(connection, name, question, "", "")) for name, question in pairs]


def _submit_link(connection: sqlite3.Connection) -> list[Instance]:
    found = []
    for i, forum in enumerate(forum_names(connection, "submit_link")):
        title, url = f"A guide to {forum}", f"https://guides.example/{forum}/{100 + 7 * i}"
        found.append(Instance({"forum": forum, "title": title, "url": url}, _new_post(connection, forum, title, url, "")))
    return found


def _create_forum(connection: sqlite3.Connection) -> list[Instance]:
    query = f"SELECT name, title, description, creator_id FROM forum_forums WHERE id > {_last(connection, 'forum_forums')}"
    me, found = _me(connection), []
    for name, description in _NEW_FORUMS:
        params = {"name": name, "title": name.capitalize(), "description": description}
        found.append(Instance(params, _state((query, [(name, name.capitalize(), description, me)]))))
    return found


def _edit_bio(connection: sqlite3.Connection) -> list[Instance]:
    query = f"SELECT name, bio FROM forum_users WHERE name = '{USER}'"
    return [Instance({"text": text}, _state((query, [(USER, text)]))) for text in _BIOS]


def _subscriptions(connection: sqlite3.Connection) -> tuple[str, set[str]]:
    query = (
        "SELECT f.name FROM forum_subscriptions s JOIN forum_forums f ON f.id = s.forum_id "
        f"WHERE s.user_id = {_me(connection)} ORDER BY f.name"
    )
    return query, {row[0] for row in connection.execute(query)}


def _subscribe(connection: sqlite3.Connection) -> list[Instance]:
    query, mine = _subscriptions(connection)
    names = [name for name in forum_names(connection, "subscribe", 18) if name not in mine][:PER_FAMILY]
    return [Instance({"forum": name}, _state((query, [(each,) for each in sorted({*mine, name})]))) for name in names]


def _unsubscribe(connection: sqlite3.Connection) -> list[Instance]:
    query, mine = _subscriptions(connection)
    return [Instance({"forum": name}, _state((query, [(each,) for each in sorted(mine - {name})]))) for name in sorted(mine)]


def _delete(connection: sqlite3.Connection) -> list[Instance]:
    query = f"SELECT id FROM forum_posts WHERE author_id = {_me(connection)} ORDER BY id"
    mine = [row[0] for row in connection.execute(query)]
    total = connection.execute("SELECT COUNT(*) FROM forum_posts").fetchone()[0]
    found = []
    for post in posts(connection, f"p.author = '{USER}'"):
        rest = [(each,) for each in mine if each != post["id"]]
        evaluation = _state((query, rest), ("SELECT COUNT(*) FROM forum_posts", [(total - 1,)]))
        found.append(Instance({"title": post["title"], "forum": post["forum"]}, evaluation))
    return found


def _edit(connection: sqlite3.Connection) -> list[Instance]:
    found = []
    for post, text in zip(posts(connection, f"p.author = '{USER}'")[:PER_FAMILY], _TEXTS, strict=True):
        query = f"SELECT title, body FROM forum_posts WHERE id = {post['id']}"
        found.append(Instance({"title": post["title"], "text": text}, _state((query, [(post["title"], text)]))))
    return found


# ---- experts ----


def _solve_vote_post(button: str) -> Callable[..., Script]:
    def solve(page: Page, title: str, forum: str) -> Script:
        page = yield from open_post(page, title)
        page = yield page.click(page.find("button", button))
        yield page.stop()

    return solve


def _solve_vote_leader(sort: str, button: str) -> Callable[..., Script]:
    def solve(page: Page, forum: str) -> Script:
        page = yield from open_sorted(page, forum, sort)
        page = yield page.click(page.find("link", page.rows("Posts")[0].texts[0]))
        page = yield page.click(page.find("button", button))
        yield page.stop()

    return solve


def _comment_link(page: Page, author: str) -> int:
    return next(link for name, link in comments_on(page) if name == author)


def _solve_vote_comment(button: str) -> Callable[..., Script]:
    def solve(page: Page, author: str, title: str) -> Script:
        page = yield from open_post(page, title)
        page = yield page.click(_comment_link(page, author))
        page = yield page.click(page.find("button", button))
        yield page.stop()

    return solve


def _solve_comment(page: Page, title: str, forum: str, text: str) -> Script:
    page = yield from open_post(page, title)
    page = yield page.type_into(page.find("textbox", "Write a comment"), text)
    page = yield page.click(page.find("button", "Comment"))
    yield page.stop()


def _solve_reply(page: Page, author: str, title: str, text: str) -> Script:
    page = yield from open_post(page, title)
    page = yield page.click(_comment_link(page, author))
    page = yield page.type_into(page.find("textbox", "Write a reply"), text)
    page = yield page.click(page.find("button", "Reply"))
    yield page.stop()


def _solve_ask_fitting(page: Page, question: str, forum: str) -> Script:
    page = yield from open_forum(page, forum)
    page = yield page.click(page.find("link", "Submit to this forum"))
    page = yield page.type_into(page.find("textbox", "Title"), question, enter=True)
    yield page.stop()


def _solve_submit_link(page: Page, forum: str, title: str, url: str) -> Script:
    page = yield page.click(page.find("link", "Submit"))
    page = yield page.type_into(page.find("textbox", "Title"), title)
    page = yield page.type_into(page.find("textbox", "URL"), url)
    page = yield page.type_into(page.find("textbox", "Forum"), forum, enter=True)
    yield page.stop()


def _solve_create_forum(page: Page, name: str, title: str, description: str) -> Script:
    page = yield page.click(page.find("link", "Create forum"))
    page = yield page.type_into(page.find("textbox", "Name"), name)
    page = yield page.type_into(page.find("textbox", "Title"), title)
    page = yield page.type_into(page.find("textbox", "Description"), description, enter=True)
    yield page.stop()


def _solve_edit_bio(page: Page, text: str) -> Script:
    page = yield page.click(page.find("link", USER))
    page = yield page.click(page.find("link", "Edit biography"))
    page = yield page.type_into(page.find("textbox", "Biography"), text)
    page = yield page.click(page.find("button", "Save"))
    yield page.stop()


def _solve_forum_button(button: str) -> Callable[..., Script]:
    def solve(page: Page, forum: str) -> Script:
        page = yield from open_forum(page, forum)
        page = yield page.click(page.find("button", button))
        yield page.stop()

    return solve


def _solve_delete(page: Page, title: str, forum: str) -> Script:
    page = yield from open_post(page, title)
    page = yield page.click(page.find("link", "Edit or delete"))
    page = yield page.click(page.find("button", "Delete post"))
    yield page.stop()


def _solve_edit(page: Page, title: str, text: str) -> Script:
    page = yield from open_post(page, title)
    page = yield page.click(page.find("link", "Edit or delete"))
    page = yield page.type_into(page.find("textbox", "Body"), text)
    page = yield page.click(page.find("button", "Save"))
    yield page.stop()


def _template(name: str, intent: str, instances: Callable[..., list[Instance]], solve: Callable[..., Script]) -> TaskTemplate:
    return TaskTemplate(f"forum.{name}", "forum", intent, True, instances, solve)


TEMPLATES = (
    *QUESTIONS,
    _template("upvote_post", 'Upvote the post "{title}" in the forum {forum}.', _vote_post("upvote", 1), _solve_vote_post("Upvote")),
    _template(
        "upvote_newest", "Upvote the newest post in the forum {forum}.", _vote_leader("created", 1), _solve_vote_leader("new", "Upvote")
    ),
    _template(
        "downvote_top",
        "Downvote the post with the highest score in the forum {forum}.",
        _vote_leader("score", -1),
        _solve_vote_leader("top", "Downvote"),
    ),
    _template(
        "upvote_comment", 'Upvote the comment of {author} under the post "{title}".', _vote_comment("up", 1), _solve_vote_comment("Upvote")
    ),
    _template(
        "downvote_comment",
        'Downvote the comment of {author} under the post "{title}".',
        _vote_comment("down", -1),
        _solve_vote_comment("Downvote"),
    ),
    _template("comment", 'Comment "{text}" on the post "{title}" in the forum {forum}.', _comment, _solve_comment),
    _template("reply", 'Reply "{text}" to the comment of {author} under the post "{title}".', _reply, _solve_reply),
    _template(
        "ask_fitting",
        'Post the question "{question}" in the forum where it fits best. Use it as the title; nothing else.',
        _ask_fitting,
        _solve_ask_fitting,
    ),
    _template("submit_link", 'Submit a link to {url} with the title "{title}" to the forum {forum}.', _submit_link, _solve_submit_link),
    _template(
        "create_forum",
        'Create a forum with the name "{name}", the title "{title}" and the description "{description}".',
        _create_forum,
        _solve_create_forum,
    ),
    _template("edit_bio", 'Change my biography to "{text}".', _edit_bio, _solve_edit_bio),
    _template("subscribe", "Subscribe me to the forum {forum}.", _subscribe, _solve_forum_button("Subscribe")),
    _template("unsubscribe", "End my subscription of the forum {forum}.", _unsubscribe, _solve_forum_button("Unsubscribe")),
    _template("delete", 'Delete my post "{title}" in the forum {forum}.', _delete, _solve_delete),
    _template("edit", 'Replace the text of my post "{title}" by "{text}".', _edit, _solve_edit),
)
