"""No way leads out of the session's own sites, in either browser, and nothing that an agent writes is more than text."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from test_webarena_core import fuzzed
from webarena_factory import BROWSERS, ORIGIN, OUTSIDE, TINY, Driver

from agentgym_envs.webarena.actions import MAX_TEXT, ActionError, extract, parse
from agentgym_envs.webarena.browser.base import Browser
from agentgym_envs.webarena.browser.text import TextBrowser
from agentgym_envs.webarena.web import MAX_BODY, SiteWeb, allowed_url

ORIGINS = (ORIGIN, "http://other.site:7770")


@pytest.fixture(params=BROWSERS, scope="module")
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    opened = Driver(request.param)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    "url",
    [
        *OUTSIDE,
        "http://tiny。test/",
        " javascript:alert(1)",
        "java\nscript:alert(1)",
        "http:\\\\tiny.test\\",
        "",
        "HTTP://evil.test",
        "http://tiny.test:99999/",
    ],
)
def test_outside_urls(url: str) -> None:
    with pytest.raises(ActionError, match="expected a URL on one of"):
        allowed_url(url, ORIGINS)


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("http://tiny.test", f"{ORIGIN}/"),
        (" HTTP://TINY.test:80/a b?q=ü&x=[1] ", f"{ORIGIN}/a%20b?q=%C3%BC&x=[1]"),
        ("http://tiny.test/a/./b/../c/", f"{ORIGIN}/a/c/"),
        ("http://tiny.test/../../etc/passwd", f"{ORIGIN}/etc/passwd"),
        ("http://other.site:7770/x#y", "http://other.site:7770/x#y"),
    ],
)
def test_inside_urls(url: str, normal: str) -> None:
    assert allowed_url(url, ORIGINS) == normal
    assert allowed_url(normal, ORIGINS) == normal


def test_relative_urls_need_a_page() -> None:
    assert allowed_url("b?c=1", ORIGINS, f"{ORIGIN}/a/") == f"{ORIGIN}/a/b?c=1"
    with pytest.raises(ActionError):
        allowed_url("//other.test/", ORIGINS, f"{ORIGIN}/a/")


@pytest.mark.parametrize("url", OUTSIDE)
def test_goto_and_redirect(driver: Driver, url: str) -> None:
    driver.do(f"goto [{ORIGIN}/note/1]")
    for action in (f"goto [{url}]", f"goto [{ORIGIN}/to?url={quote(url, safe='')}]"):
        with pytest.raises(ActionError, match=r"expected a URL on one of http://tiny\.test"):
            driver.do(action)
        assert driver.page.url == f"{ORIGIN}/note/1"
        assert driver.page.value("Text") == "Buy milk"


def test_links_and_forms(driver: Driver) -> None:
    page = driver.do(f"goto [{ORIGIN}/evil]")
    before = driver.browser.view().text
    ids = [page.find("link", f"Link {i}") for i in range(len(OUTSIDE))] + [page.find("button", "Send")]
    for node in ids:
        with pytest.raises(ActionError, match="expected a URL on one of"):
            driver.do(f"click [{node}]")
        assert driver.page.url == f"{ORIGIN}/evil"
        assert node == ids[-1] or driver.browser.view().text == before  # the button keeps the focus


def test_endless_redirects_end() -> None:
    driver = Driver(TextBrowser)
    url = "/"
    for _ in range(5):
        url = f"/to?url={quote(url, safe='')}"
    assert driver.do(f"goto [{ORIGIN}{url}]").url == f"{ORIGIN}/"
    driver.web.fetch = lambda *_: SiteWeb.fetch(driver.web, "GET", f"{ORIGIN}/to?url=/to", b"", {})  # type: ignore[method-assign]
    with pytest.raises(ActionError, match="redirected more than"):
        driver.do(f"goto [{ORIGIN}/to]")


def test_sizes() -> None:
    driver = Driver(TextBrowser, "/add")
    field = driver.page.find("textbox", "Text")
    with pytest.raises(ActionError, match="at most"):
        driver.do(f"type [{field}] [{'x' * (MAX_TEXT + 100)}] [0]")
    assert driver.do(f"type [{field}] [{'x' * MAX_TEXT}] [0]").node(field).text == "x" * MAX_TEXT
    with pytest.raises(ActionError, match="bytes"):
        driver.web.fetch("POST", f"{ORIGIN}/add", b"x" * (MAX_BODY + 1), {})


def test_control_characters_are_not_typed(driver: Driver) -> None:
    page = driver.do(f"goto [{ORIGIN}/]")
    page = driver.do(f"type [{page.find('textbox')}] [a\x00\x1b\u202eb<script>] [1]")
    assert page.url == f"{ORIGIN}/?q=ab%3Cscript%3E"


@pytest.mark.parametrize(
    "path", ["/%2e%2e/%2e%2e/etc/passwd", "/static/..%2f..%2fseed.py", "/note/1%00", "/note/-1", "/note/999999999999999999999"]
)
def test_path_tricks_lead_to_error_pages(path: str) -> None:
    page = Driver(TextBrowser, path).page
    assert page.title[:3] in ("404", "500")
    assert "root:" not in page.text


def test_fuzzed_actions_only_ever_act_or_are_refused() -> None:
    web = SiteWeb([TINY])
    browser: Browser = TextBrowser(web)
    browser.open(f"{ORIGIN}/add")
    acted = 0
    for text in fuzzed(10_000, seed=1):
        try:
            action = parse(extract(text))
            if action.verb != "stop":
                browser.act(action)
                acted += 1
        except ActionError:
            pass
        browser.view()
    assert acted > 100
