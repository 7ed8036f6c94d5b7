"""Task families of the forum that ask: instances from the pristine database, experts on the pages."""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Callable, Generator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from agentgym_envs.webarena.sites.base import Instance, Script, TaskTemplate

if TYPE_CHECKING:
    from agentgym_envs.webarena.page import Page

ORIGIN = "http://forum.test"
PER_FAMILY = 14
_UNKNOWN_FORUMS = ("submarines", "volcanoes", "juggling")
_MOST_PAGES = 4  # of comments, so that the expert ends within the paper's 15 rounds
_POSTS = (
    "SELECT p.*, f.name AS forum, u.name AS author, p.up - p.down AS score, "
    "(SELECT COUNT(*) FROM forum_comments c WHERE c.post_id = p.id) AS comments "
    "FROM forum_posts p JOIN forum_forums f ON f.id = p.forum_id JOIN forum_users u ON u.id = p.author_id"
)
_COMMENT_VOTES = re.compile(r"\d+ up, \d+ down$")
Walk = Generator[str, "Page", "Page"]


def sample(family: str, rows: list[Any], count: int = PER_FAMILY) -> list[Any]:
    """Up to ``count`` rows in an order that depends on the family's name alone."""
    return random.Random(family).sample(rows, min(count, len(rows)))


def posts(connection: sqlite3.Connection, condition: str = "1") -> list[sqlite3.Row]:
    """Posts with forum, author, score and number of comments; ``condition`` is SQL on ``p`` and the added columns."""
    return connection.execute(f"SELECT * FROM ({_POSTS}) p WHERE {condition} ORDER BY p.id").fetchall()


def forum_names(connection: sqlite3.Connection, family: str, count: int = PER_FAMILY) -> list[str]:
    """Names of forums in the family's order."""
    return sample(family, [row[0] for row in connection.execute("SELECT name FROM forum_forums ORDER BY id")], count)


def ranked(connection: sqlite3.Connection, forum: str, column: str) -> list[sqlite3.Row]:
    """A forum's posts, highest value of a column first."""
    return connection.execute(f"SELECT * FROM ({_POSTS}) WHERE forum = ? ORDER BY {column} DESC", (forum,)).fetchall()


def leaders(connection: sqlite3.Connection, family: str, column: str) -> list[sqlite3.Row]:
    """The post of each forum with the highest value of a column, where no other has the same."""
    pairs = [ranked(connection, forum, column)[:2] for forum in forum_names(connection, family, 18)]
    return [first for first, second in pairs if first[column] > second[column]][:PER_FAMILY]


def _exact(answer: object) -> dict[str, Any]:
    return {"eval_types": ["string_match"], "reference_answers": {"exact_match": str(answer)}}


def comments_on(page: Page) -> list[tuple[str, int]]:
    """(author, id of the link to vote or reply) of the comments on a post's page."""
    nodes = page.nodes
    links = [node.id for node in nodes if node.matches("link", "Vote or reply")]
    authors = [author.name for author, votes in pairwise(nodes) if votes.matches("StaticText", _COMMENT_VOTES)]
    return list(zip(authors, links, strict=True))


def open_forum(page: Page, forum: str) -> Walk:
    """From any page to a forum, by the list of forums."""
    page = yield page.click(page.find("link", "Forums"))
    page = yield page.type_into(page.find("textbox", "Search forums"), forum, enter=True)
    return (yield page.click(page.find("link", forum)))


def open_sorted(page: Page, forum: str, sort: str) -> Walk:
    """From any page to a forum in another order."""
    page = yield from open_forum(page, forum)
    return (yield page.click(page.find("link", f"Sort by {sort}")))


def open_post(page: Page, title: str) -> Walk:
    """From the start page to a post, by the search."""
    page = yield page.type_into(page.find("textbox", "Search posts"), title, enter=True)
    return (yield page.click(page.find("link", title)))


# ---- instances ----


def _downvoted(connection: sqlite3.Connection) -> list[Instance]:
    found = []
    for post in leaders(connection, "downvoted", "created"):
        sql = "SELECT COALESCE(SUM(down > up), 0), COUNT(*) FROM forum_comments WHERE author_id = ?"
        count, total = connection.execute(sql, (post["author_id"],)).fetchone()
        if total <= 10 * _MOST_PAGES:
            found.append(Instance({"forum": post["forum"]}, _exact(count)))
    return found


def _top_post(connection: sqlite3.Connection) -> list[Instance]:
    return [Instance({"forum": post["forum"]}, _exact(post["title"])) for post in leaders(connection, "top_post", "score")]


def _newest_author(connection: sqlite3.Connection) -> list[Instance]:
    return [Instance({"forum": post["forum"]}, _exact(post["author"])) for post in leaders(connection, "newest_author", "created")]


def _newest_comments(connection: sqlite3.Connection) -> list[Instance]:
    return [Instance({"forum": post["forum"]}, _exact(post["comments"])) for post in leaders(connection, "newest_comments", "created")]


def _most_commented(connection: sqlite3.Connection) -> list[Instance]:
    found = []
    for post in leaders(connection, "most_commented", "comments"):
        evaluation = {"eval_types": ["url_match"], "reference_url": f"{ORIGIN}/f/{post['forum']}/{post['id']}"}
        found.append(Instance({"forum": post["forum"]}, evaluation))
    return found


def _author_of(connection: sqlite3.Connection) -> list[Instance]:
    return [Instance({"forum": p["forum"], "title": p["title"]}, _exact(p["author"])) for p in sample("author_of", posts(connection))]


def _subscribers(connection: sqlite3.Connection) -> list[Instance]:
    sql = "SELECT COUNT(*) FROM forum_subscriptions WHERE forum_id = (SELECT id FROM forum_forums WHERE name = ?)"
    names = forum_names(connection, "subscribers")
    found = [Instance({"forum": name}, _exact(connection.execute(sql, (name,)).fetchone()[0])) for name in names]
    unknown = {"eval_types": ["string_match"], "reference_answers": {"fuzzy_match": "N/A"}}
    return [*found, *(Instance({"forum": name}, unknown) for name in _UNKNOWN_FORUMS)]


def _link_target(connection: sqlite3.Connection) -> list[Instance]:
    return [Instance({"title": p["title"]}, _exact(p["url"])) for p in sample("link_target", posts(connection, "p.url != ''"))]


def _comments_by(connection: sqlite3.Connection) -> list[Instance]:
    sql = (
        "SELECT p.title, u.name, COUNT(*) FROM forum_comments c JOIN forum_posts p ON p.id = c.post_id "
        "JOIN forum_users u ON u.id = c.author_id "
        "GROUP BY p.id, u.id HAVING COUNT(*) > 1 ORDER BY p.id, u.id"
    )
    rows = sample("comments_by", connection.execute(sql).fetchall())
    return [Instance({"title": title, "user": user}, _exact(count)) for title, user, count in rows]


def _joined(connection: sqlite3.Connection) -> list[Instance]:
    found = []
    for post in sample("joined", posts(connection)):
        joined = connection.execute("SELECT joined FROM forum_users WHERE id = ?", (post["author_id"],)).fetchone()[0]
        found.append(Instance({"title": post["title"]}, _exact(joined)))
    return found


# ---- experts ----


def _solve_downvoted(page: Page, forum: str) -> Script:
    page = yield from open_sorted(page, forum, "new")
    author = page.rows("Posts")[0].texts[1]
    page = yield page.click(page.find("link", page.rows("Posts")[0].texts[0]))
    page = yield page.click(page.find("link", author))
    page = yield page.click(page.find("link", f"Comments of {author}"))
    count = 0
    while True:
        count += sum(int(row.texts[3]) > int(row.texts[2]) for row in page.rows("Newest comments first"))
        if not page.has("link", "Next page"):
            break
        page = yield page.click(page.find("link", "Next page"))
    yield page.stop(str(count))


def _solve_first(sort: str, column: int) -> Callable[..., Script]:
    def solve(page: Page, forum: str) -> Script:
        page = yield from open_sorted(page, forum, sort)
        yield page.stop(page.rows("Posts")[0].texts[column])

    return solve


def _solve_most_commented(page: Page, forum: str) -> Script:
    page = yield from open_sorted(page, forum, "most commented")
    page = yield page.click(page.find("link", page.rows("Posts")[0].texts[0]))
    yield page.stop()


def _solve_author_of(page: Page, forum: str, title: str) -> Script:
    page = yield from open_post(page, title)
    line = page.find("StaticText", re.compile(r"posted .* by$"))
    yield page.stop(next(node.name for node in page.nodes if node.role == "link" and node.id > line))


def _solve_subscribers(page: Page, forum: str) -> Script:
    page = yield page.click(page.find("link", "Forums"))
    page = yield page.type_into(page.find("textbox", "Search forums"), forum, enter=True)
    rows = [row for row in page.rows("Forums") if row.texts[0] == forum]
    yield page.stop(rows[0].texts[2] if rows else "N/A")


def _solve_link_target(page: Page, title: str) -> Script:
    page = yield from open_post(page, title)
    link = page.node(page.find("StaticText", re.compile("^Link: ")))
    yield page.stop(link.name.removeprefix("Link: "))


def _solve_comments_by(page: Page, title: str, user: str) -> Script:
    page = yield from open_post(page, title)
    count = 0
    while True:
        count += sum(author == user for author, _ in comments_on(page))
        if not page.has("link", "Next page"):
            break
        page = yield page.click(page.find("link", "Next page"))
    yield page.stop(str(count))


def _solve_joined(page: Page, title: str) -> Script:
    page = yield from open_post(page, title)
    line = page.find("StaticText", re.compile(r"posted .* by$"))
    page = yield page.click(next(node.id for node in page.nodes if node.role == "link" and node.id > line))
    yield page.stop(page.node(page.find("StaticText", re.compile("^Joined "))).name.removeprefix("Joined "))


def _template(name: str, intent: str, instances: Callable[..., list[Instance]], solve: Callable[..., Script]) -> TaskTemplate:
    return TaskTemplate(f"forum.{name}", "forum", intent, False, instances, solve)


_NUMBER, _USERNAME = " Answer with a number.", " Answer with the user name."
QUESTIONS = (
    _template(
        "downvoted",
        "How many comments with more downvotes than upvotes has the author of the newest post in the forum {forum} written?" + _NUMBER,
        _downvoted,
        _solve_downvoted,
    ),
    _template("top_post", "What is the title of the post with the highest score in the forum {forum}?", _top_post, _solve_first("top", 0)),
    _template("newest_author", "Who wrote the newest post in the forum {forum}?" + _USERNAME, _newest_author, _solve_first("new", 1)),
    _template(
        "newest_comments", "How many comments has the newest post in the forum {forum}?" + _NUMBER, _newest_comments, _solve_first("new", 3)
    ),
    _template("most_commented", "Open the post with the most comments in the forum {forum}.", _most_commented, _solve_most_commented),
    _template("author_of", 'Who wrote the post "{title}" in the forum {forum}?' + _USERNAME, _author_of, _solve_author_of),
    _template(
        "subscribers",
        "How many subscribers has the forum {forum}? Answer with a number, or N/A if there is no such forum.",
        _subscribers,
        _solve_subscribers,
    ),
    _template("link_target", 'Which address does the post "{title}" link to? Answer with the whole URL.', _link_target, _solve_link_target),
    _template("comments_by", 'How many comments has {user} written under the post "{title}"?' + _NUMBER, _comments_by, _solve_comments_by),
    _template("joined", 'On which day did the author of the post "{title}" join? Answer as YYYY-MM-DD.', _joined, _solve_joined),
)
