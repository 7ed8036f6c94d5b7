"""Invented people and what they wrote in the forums."""

from __future__ import annotations

import random
import sqlite3
from datetime import datetime, timedelta
from itertools import product

from agentgym_envs.webarena.sites.base import NOW
from agentgym_envs.webarena.sites.forum.topics import ADJECTIVES, BODIES, COMMENTS, TITLES, TOPICS, WORDS_A, WORDS_B, Topic

TITLE = "Tearoom"
USER = "marlow_pine"
_USERS = 72
_FIRST_POST, _FIRST_COMMENT = 1001, 20001  # equally many digits, so that no address begins with another one
_OWN_POSTS = 16
_FORMAT = "%Y-%m-%d %H:%M"


def seed(connection: sqlite3.Connection, rng: random.Random) -> None:
    """Fill the tables of the forum."""
    users = _users(connection, rng)
    me = users[USER]
    others = [user for user in users.values() if user != me]
    for forum, topic in enumerate(TOPICS, 1):
        rules = f"Be kind. Only {topic.name}, please."
        row = (forum, topic.name, topic.title, topic.description, rules, rng.choice(others), _moment(rng, 900, 800))
        connection.execute("INSERT INTO forum_forums VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        subscribers = sorted(rng.sample(others, rng.randint(12, len(others))))
        connection.executemany("INSERT INTO forum_subscriptions VALUES (?, ?)", [(forum, user) for user in subscribers])
        if forum % 2:
            connection.execute("INSERT INTO forum_subscriptions VALUES (?, ?)", (forum, me))
        _posts(connection, forum, topic, others, rng)
    own = sorted(rng.sample([row[0] for row in connection.execute("SELECT id FROM forum_posts WHERE url = '' ORDER BY id")], _OWN_POSTS))
    connection.executemany("UPDATE forum_posts SET author_id = ? WHERE id = ?", [(me, post) for post in own])
    _comments(connection, [*others, me], rng)


def _users(connection: sqlite3.Connection, rng: random.Random) -> dict[str, int]:
    names = sorted([*rng.sample([f"{a}_{b}" for a, b in product(WORDS_A, WORDS_B)], _USERS - 1), USER])
    for i, name in enumerate(names, 1):
        bio = rng.choice(("", "Reader, mostly.", "I write too many comments.", "Ask me anything about tea.", "Here since the beginning."))
        connection.execute("INSERT INTO forum_users VALUES (?, ?, ?, ?)", (i, name, bio, _moment(rng, 800, 420)[:10]))
    return {name: i for i, name in enumerate(names, 1)}


def _moment(rng: random.Random, oldest: int, newest: int = 0) -> str:
    """A point in time between so many days ago and so many days ago."""
    return (NOW - timedelta(minutes=rng.randint(newest * 1440 + 60, oldest * 1440))).strftime(_FORMAT)


def _posts(connection: sqlite3.Connection, forum: int, topic: Topic, authors: list[int], rng: random.Random) -> None:
    pairs = rng.sample(list(product(topic.things, TITLES)), rng.randint(15, 21))
    moments = sorted(_moment(rng, 400) for _ in pairs)
    for (thing, pattern), moment in zip(pairs, moments, strict=True):
        title = pattern.format(thing=thing, adjective=rng.choice(ADJECTIVES))
        title = title.replace(" a unusual ", " an unusual ").replace(" a antique ", " an antique ")
        post = connection.execute("SELECT COALESCE(MAX(id) + 1, ?) FROM forum_posts", (_FIRST_POST,)).fetchone()[0]
        link = rng.random() < 0.3
        url = f"https://{topic.name}.example/{'-'.join(thing.split())}-{rng.randint(100, 999)}" if link else ""
        body = "" if link else " ".join(rng.sample(BODIES, 2))
        up, down = int(rng.paretovariate(0.8)) % 170 + rng.randint(0, 30), rng.randint(0, 25)
        row = (post, forum, rng.choice(authors), title, url, body, moment, up, down)
        connection.execute("INSERT INTO forum_posts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)


def _comments(connection: sqlite3.Connection, authors: list[int], rng: random.Random) -> None:
    """Threads below the posts: about half of the comments answer another one."""
    comment = _FIRST_COMMENT
    for post, created in connection.execute("SELECT id, created FROM forum_posts ORDER BY id").fetchall():
        start = datetime.strptime(created, _FORMAT)
        count = min(int(rng.paretovariate(0.9)), rng.randint(14, 30)) + rng.randint(0, 3)  # a few posts draw most of the comments
        minutes = int((NOW - start).total_seconds() // 60)
        moments = sorted(start + timedelta(minutes=rng.randint(1, minutes - 1)) for _ in range(count))
        thread: list[int] = []
        for moment in moments:
            parent = rng.choice(thread) if thread and rng.random() < 0.5 else None
            up, down = rng.choice(((rng.randint(0, 40), rng.randint(0, 6)), (rng.randint(0, 6), rng.randint(0, 12))))
            row = (comment, post, parent, rng.choice(authors), " ".join(rng.sample(COMMENTS, 2)), moment.strftime(_FORMAT), up, down)
            connection.execute("INSERT INTO forum_comments VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            thread.append(comment)
            comment += 1
