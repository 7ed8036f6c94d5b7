"""A session's view of one site without a browser: requests in, status, text of the page and database rows out."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from typing import Any
from urllib.parse import urlencode

from agentgym_envs.webarena.browser.html import Document
from agentgym_envs.webarena.sites.base import Site
from agentgym_envs.webarena.web import Response, SiteWeb


class Session:
    """Requests to one site as its user, or as nobody."""

    def __init__(self, site: Site, logged_in: bool = True) -> None:
        self.site = site
        self.web = SiteWeb([site])
        self.cookies = self.web.login()[site.origin] if logged_in else {}

    def get(self, path: str, **query: str) -> Response:
        return self.web.fetch("GET", self.site.origin + path + ("?" + urlencode(query) if query else ""), b"", self.cookies)

    def text(self, path: str, **query: str) -> str:
        """All text of a page that answers 200."""
        response = self.get(path, **query)
        assert response.status == 200, (path, query, response.status)
        return page_text(response)

    def post(self, path: str, **form: str) -> Response:
        return self.web.fetch("POST", self.site.origin + path, urlencode(form).encode(), self.cookies)

    def change(self, path: str, **form: str) -> str:
        """Send a form that is accepted, and give the path that it redirects to."""
        response = self.post(path, **form)
        assert response.status == 303, (path, form, response.status, page_text(response))
        return response.header("Location")

    def refusal(self, path: str, status: int = 400, /, **form: str) -> str:
        """Send a form that is refused, and give the text of the page; no row changes."""
        before = self.web.databases.generation(self.site.name)
        response = self.post(path, **form)
        assert response.status == status, (path, form, response.status)
        assert self.web.databases.generation(self.site.name) == before
        return page_text(response)

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.database.execute(sql, values)]

    @property
    def database(self) -> sqlite3.Connection:
        return self.web.databases.reading(self.site.name)


def page_text(response: Response) -> str:
    return " ".join(" ".join(Document("http://x.test/", response.body).root.itertext()).split())


def hash_in_another_process(name: str) -> str:
    """Hash of a site's start content, computed by a new process with another hash seed."""
    code = (
        f"from agentgym_envs.webarena.sites.{name} import SITE\n"
        "from agentgym_envs.webarena.database import pristine\n"
        "print(pristine(SITE).dump_hash)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "4711"})
    return result.stdout.strip()


#: Values that a form or a query may be sent with, none of which may make a page fail.
NASTY = (
    "",
    " ",
    "0",
    "-1",
    "99999999999999999999",
    "nan",
    "1e999",
    "'; DROP TABLE x; --",
    '"><script>alert(1)</script>',
    "%_\\",
    "\x00",
    "é" * 400,
)
