"""What a session's browser can reach: the sites' WSGI applications with the session's databases, and nothing else."""

from __future__ import annotations

import io
import re
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any, Protocol
from urllib.parse import quote, unquote_to_bytes, urljoin, urlsplit, urlunsplit

from flask import Flask

from agentgym_envs.webarena.actions import MAX_TEXT, ActionError
from agentgym_envs.webarena.database import Databases
from agentgym_envs.webarena.sites.base import DATABASE, USER_COOKIE, Site

MAX_BODY = 64 * 1024
_PATH_SAFE = "/:@!$&'()*+,;=-._~%[]|^"
_QUERY_SAFE = "/:@!$&()*+,;=-._~%?[]|^`{}\\"
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f\\]")

Cookies = dict[str, str]


@dataclass(frozen=True)
class Response:
    """An HTTP answer; ``headers`` in the order sent."""

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str:
        """First header of that name, or ``""``."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), "")


class Web(Protocol):
    """Somewhere pages come from."""

    #: ``scheme://host[:port]`` of what may be visited.
    origins: tuple[str, ...]
    #: Whether ``fetch`` serves the pages itself, so that no browser needs a network for them.
    is_local: bool

    def fetch(self, method: str, url: str, body: bytes, cookies: Mapping[str, str]) -> Response:
        """Answer one request to an allowed URL."""

    def key(self, url: str) -> object | None:
        """What the page at ``url`` depends on besides URL and cookies; equal keys give equal pages; ``None``: do not keep it."""

    def login(self) -> dict[str, Cookies]:
        """Cookies by origin that a fresh browser starts with."""


def allowed_url(url: str, origins: Sequence[str], base: str = "") -> str:
    """``url`` (relative to ``base``) in normal form if it belongs to one of ``origins``; raises :class:`ActionError` for all else.

    Scheme, host and port are compared literally, after refusing what browsers read leniently: control characters, back-slashes, user
    names, encoded or non-ASCII hosts.
    """
    text = url.strip(" \t\r\n\f")
    if len(text) > MAX_TEXT:
        raise ActionError(f"expected a URL of at most {MAX_TEXT} characters, found {len(text)}")
    spaceless = text.replace(" ", "%20")
    try:
        parts = urlsplit(urljoin(base, spaceless))
        host, port = parts.hostname or "", parts.port
    except ValueError:
        parts, host, port = urlsplit(""), "", None
    default = {"http": 80, "https": 443}.get(parts.scheme)
    origin = f"{parts.scheme}://{host}" + (f":{port}" if port not in (None, default) else "")
    disguised = _FORBIDDEN.search(spaceless) or "@" in parts.netloc or "%" in parts.netloc or not parts.netloc.isascii()
    if disguised or default is None or origin not in origins:
        raise ActionError(f"expected a URL on one of {', '.join(origins)}, found {_printable(text)}")
    path = urlsplit(urljoin(origin, parts.path or "/")).path if "/." in parts.path else parts.path  # resolves dot segments
    return urlunsplit(
        (
            *urlsplit(origin)[:2],
            quote(path or "/", safe=_PATH_SAFE),
            quote(parts.query, safe=_QUERY_SAFE),
            quote(parts.fragment, safe=_QUERY_SAFE),
        )
    )


def _printable(text: str) -> str:
    clean = "".join(c if c.isprintable() else "?" for c in text)
    return repr(clean if len(clean) <= 80 else f"{clean[:80]}...")


class SiteWeb:
    """The miniature's sites as one session sees them."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self.sites = {site.origin: site for site in sites}
        self.origins = tuple(self.sites)
        self.is_local = True
        self.databases = Databases(sites)

    def fetch(self, method: str, url: str, body: bytes, cookies: Mapping[str, str]) -> Response:
        """Answer one request. Only a POST gets a database that it can write to."""
        if len(body) > MAX_BODY:
            raise ActionError(f"expected a form of at most {MAX_BODY} bytes, found {len(body)}")
        parts = urlsplit(url)
        site = self.sites[f"{parts.scheme}://{parts.netloc}"]
        connection = self.databases.reading(site.name) if method in ("GET", "HEAD") else self.databases.writing(site.name)
        response = _call(application(site), _environ(method, url, body, cookies, connection))
        if connection.in_transaction:
            (connection.commit if response.status < 500 else connection.rollback)()
        return response

    def key(self, url: str) -> object | None:
        """Only pages of untouched content are equal for all sessions."""
        parts = urlsplit(url)
        return None if self.databases.generation(self.sites[f"{parts.scheme}://{parts.netloc}"].name) else "pristine"

    def login(self) -> dict[str, Cookies]:
        """The site's user is logged in from the start."""
        return {origin: {USER_COOKIE: site.user} for origin, site in self.sites.items() if site.user}

    def close(self) -> None:
        """Free the databases."""
        self.databases.close()


_apps: dict[str, Flask] = {}
_lock = threading.Lock()


def application(site: Site) -> Flask:
    """The application of a site, shared by all sessions of the process."""
    with _lock:
        if site.name not in _apps:
            _apps[site.name] = site.create_app()
        return _apps[site.name]


def _environ(method: str, url: str, body: bytes, cookies: Mapping[str, str], connection: sqlite3.Connection) -> dict[str, Any]:
    parts = urlsplit(url)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(parts.path).decode("latin-1"),
        "QUERY_STRING": parts.query,
        "SERVER_NAME": parts.hostname,
        "SERVER_PORT": str(parts.port or 80),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": parts.netloc,
        "HTTP_COOKIE": "; ".join(f"{name}={value}" for name, value in cookies.items()),
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": parts.scheme,
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        DATABASE: connection,
    }
    if method == "POST":
        environ["CONTENT_TYPE"] = "application/x-www-form-urlencoded"
    return environ


def _call(app: Flask, environ: dict[str, Any]) -> Response:
    started: list[tuple[str, list[tuple[str, str]]]] = []

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: object = None) -> Any:
        started.append((status, headers))

    chunks = app(environ, start_response)
    body = b"".join(chunks)
    if close := getattr(chunks, "close", None):
        close()
    status, headers = started[-1]
    return Response(int(status.split()[0]), headers, body)


class CookieJars:
    """Cookies of a browser, kept apart by origin."""

    def __init__(self, web: Web) -> None:
        self._jars: dict[str, Cookies] = {origin: {} for origin in web.origins}
        for origin, cookies in web.login().items():
            self._jars[origin].update(cookies)

    def of(self, url: str) -> Cookies:
        """The cookies that a request to an allowed URL carries."""
        parts = urlsplit(url)
        return self._jars[f"{parts.scheme}://{parts.netloc}"]

    def update(self, url: str, response: Response) -> None:
        """Apply the ``Set-Cookie`` headers of a response."""
        _set_cookies(self.of(url), response)


def _set_cookies(jar: Cookies, response: Response) -> None:
    for name, value in response.headers:
        if name.lower() != "set-cookie":
            continue
        try:
            morsels = SimpleCookie(value)
        except CookieError:
            continue  # browsers pass over a cookie that they cannot read, too
        for key, morsel in morsels.items():
            if morsel["max-age"] == "0" or morsel["expires"].startswith("Thu, 01 Jan 1970"):
                jar.pop(key, None)
            else:
                jar[key] = morsel.coded_value
