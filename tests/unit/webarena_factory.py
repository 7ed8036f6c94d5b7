"""A site small enough to know by heart, and browsers over it: ``http://tiny.test`` with notes that can be searched, added and deleted."""

from __future__ import annotations

import random
import sqlite3

import pytest
from flask import Flask, make_response, redirect, request

from agentgym_envs.webarena.actions import parse
from agentgym_envs.webarena.browser.base import Browser
from agentgym_envs.webarena.browser.chromium import ChromiumBrowser, executable
from agentgym_envs.webarena.browser.text import TextBrowser
from agentgym_envs.webarena.page import Page
from agentgym_envs.webarena.sites.base import Instance, Script, Site, TaskTemplate, db, user
from agentgym_envs.webarena.testing import read
from agentgym_envs.webarena.web import SiteWeb

ORIGIN = "http://tiny.test"
needs_chromium = pytest.mark.skipif(executable() is None, reason="no Chromium found: apt-get install chromium")
#: Both browsers, the second only where it is installed.
BROWSERS = [pytest.param(TextBrowser, id="text"), pytest.param(ChromiumBrowser, id="chromium", marks=[needs_chromium, pytest.mark.slow])]

SCHEMA = "CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL, tag TEXT NOT NULL, pinned TEXT NOT NULL, size TEXT NOT NULL);"
FORM = """<form action="/add" method="post"><input type="hidden" name="token" value="t&amp;1">
<label for="text">Text</label><textarea id="text" name="text" required></textarea>
<label for="tag">Tag</label><select id="tag" name="tag"><option value="h">home</option><option selected>work</option></select>
<label for="pinned">Pinned</label><input type="checkbox" id="pinned" name="pinned">
<label for="s">Small</label><input type="radio" id="s" name="size" value="small" checked>
<label for="l">Large</label><input type="radio" id="l" name="size" value="large">
<input type="number" name="n" aria-label="Count" value="2"><input name="off" aria-label="Off" value="x" disabled>
<button name="how" value="add">Add</button><button name="how" value="draft">Draft</button></form>"""


def page(title: str, body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title} | Tiny</title></head><body>'
        '<header><nav aria-label="Site"><a href="/">Home</a> <a href="/add">Add</a> <a href="/long">Long</a></nav></header>'
        f"<main><h1>{title}</h1>{body}</main></body></html>"
    )


def create_app() -> Flask:
    app = Flask("tiny")

    @app.get("/")
    def home() -> str:
        words = request.args.get("q", "")
        found = db().execute("SELECT * FROM notes WHERE instr(text, ?) ORDER BY id", (words,)).fetchall()
        rows = "".join(f'<tr><td>{n["text"]}</td><td>{n["tag"]}</td><td><a href="/note/{n["id"]}">Open</a></td></tr>' for n in found)
        search = '<form action="/"><label for="q">Search</label><input id="q" name="q"><button>Go</button></form>'
        table = (
            f"<table><caption>Notes</caption><thead><tr><th>Text</th><th>Tag</th><th>Link</th></tr></thead><tbody>{rows}</tbody></table>"
        )
        return page("Notes", f"<p>Hello {user()}, {len(found)} notes.</p>{search}{table}")

    @app.route("/add", methods=["GET", "POST"])
    def add() -> object:
        if request.method == "GET":
            return page("Add", FORM)
        f = request.form
        db().execute(
            "INSERT INTO notes (text, tag, pinned, size) VALUES (?, ?, ?, ?)",
            (f["text"], f["tag"], f"{f.get('pinned', '')} {f['token']} {f['n']} {'off' in f}", f"{f['size']} {f['how']}"),
        )
        return redirect("/", 303)

    @app.get("/note/<int:number>")
    def note(number: int) -> str:
        n = db().execute("SELECT * FROM notes WHERE id = ?", (number,)).fetchone()
        return page("Note", f"<dl><dt>Text</dt><dd>{n['text']}</dd><dt>Tag</dt><dd>{n['tag']}</dd></dl>")

    @app.get("/long")
    def long() -> str:
        return page("Long", "".join(f"<p>Line {i}</p>" for i in range(1, 31)))

    @app.get("/to")
    def to() -> object:
        return redirect(request.args["url"], 302)

    @app.get("/evil")
    def evil() -> str:
        links = "".join(f'<p><a href="{url}">Link {i}</a></p>' for i, url in enumerate(OUTSIDE))
        return page("Evil", f'{links}<form action="http://other.test/take" method="post"><button>Send</button></form>')

    @app.get("/visits")
    def visits() -> object:
        count = int(request.cookies.get("visits", "0")) + 1
        response = make_response(page("Visits", f"<p>Visit {count}</p>"))
        response.set_cookie("visits", str(count))
        return response

    @app.get("/write")
    def write() -> str:
        db().execute("DELETE FROM notes")
        return page("Written", "")

    return app


#: Places that no browser may go to from ``ORIGIN``.
OUTSIDE = (
    "http://other.test/",
    "https://tiny.test/",
    "http://tiny.test:8080/",
    "http://tiny.test.evil.test/",
    "http://tiny.test@evil.test/",
    "http://user:secret@tiny.test/",
    "//evil.test/",
    "javascript:alert(1)",
    "data:text/html,hello",
    "file:///etc/passwd",
    "http://127.0.0.1/",
    "http://[::1]/",
    "http://tiny%2etest/",
    "http://evil.test\\@tiny.test/",
    "ftp://tiny.test/",
    "view-source:http://tiny.test/",
    "chrome://version",
    "about:blank",
)


def seed(connection: sqlite3.Connection, rng: random.Random) -> None:
    connection.executemany(
        "INSERT INTO notes (text, tag, pinned, size) VALUES (?, ?, '', '')",
        [("Buy milk", "home"), ("Call Ann", "work"), ("Pay rent", "home")],
    )


def _solve_count(page: Page, tag: str) -> Script:
    yield page.stop(str(sum(tag in row.texts for row in page.rows("Notes"))))


def _solve_add(page: Page, text: str) -> Script:
    page = yield page.click(page.find("link", "Add"))
    page = yield page.type_into(page.find("textbox", "Text"), text)
    page = yield page.click(page.find("button", "Add"))
    yield page.stop()


def _count(connection: sqlite3.Connection) -> list[Instance]:
    counts = connection.execute("SELECT tag, count(*) FROM notes GROUP BY tag ORDER BY tag")
    return [Instance({"tag": t}, {"eval_types": ["string_match"], "reference_answers": {"exact_match": str(n)}}) for t, n in counts]


def _add(_: sqlite3.Connection) -> list[Instance]:
    query = "SELECT text FROM notes WHERE id > 3"
    return [Instance({"text": t}, {"eval_types": ["state_check"], "state": [{"query": query, "equals": [[t]]}]}) for t in ("Read", "Swim")]


TEMPLATES = (
    TaskTemplate("tiny.count", "tiny", "How many notes have the tag {tag}?", False, _count, _solve_count),
    TaskTemplate("tiny.add", "tiny", "Add the note '{text}'.", True, _add, _solve_add),
)
TINY = Site("tiny", "Tiny", ORIGIN, "ann", create_app, SCHEMA, seed, TEMPLATES)


class Driver:
    """A browser that is told actions as text and shows pages."""

    def __init__(self, kind: type[Browser], path: str = "/", **options: int) -> None:
        self.web = SiteWeb([TINY])
        self.browser = kind(self.web, **options)  # type: ignore[call-arg]
        self.browser.open(ORIGIN + path)

    def do(self, action: str) -> Page:
        self.browser.act(parse(action))
        return self.page

    @property
    def page(self) -> Page:
        return read(self.browser)

    @property
    def last_note(self) -> tuple[str, ...]:
        row = self.web.databases.reading("tiny").execute("SELECT text, tag, pinned, size FROM notes ORDER BY id DESC").fetchone()
        return tuple(row)

    def close(self) -> None:
        self.browser.close()
        self.web.close()
