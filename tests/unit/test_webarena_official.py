"""The official sites by URL: a local stand-in with two sites of our own, a task file of WebArena's form, both browsers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flask import Flask, redirect, request
from webarena_factory import needs_chromium
from werkzeug.serving import make_server

from agentgym_envs.core import UnknownItem
from agentgym_envs.webarena import WebArena
from agentgym_envs.webarena import official as module
from agentgym_envs.webarena.browser.chromium import ChromiumBrowser
from agentgym_envs.webarena.official import Official, OfficialWeb, member_role, post_url, task_file
from agentgym_envs.webarena.page import Page

LOGIN = """<form method="post"><label for="u">{user}</label><input id="u" name="u">
<label for="p">Password</label><input id="p" name="p" type="password"><button>{button}</button></form>"""
MEMBER = """<tr><td data-label="Account"><span class="gl-avatar-labeled-sublabel">@{0}</span></td>
<td class="col-max-role"><span>{1}</span></td></tr>"""
MEMBERS = f"<table>{MEMBER.format('ann', 'Owner')}{MEMBER.format('bob', 'Guest')}</table>"


def html(title: str, body: str) -> str:
    return f"<!doctype html><html lang=en><head><meta charset=utf-8><title>{title}</title></head><body><main>{body}</main></body></html>"


def shop() -> Flask:
    app = Flask("shop")

    @app.route("/customer/account/login/", methods=["GET", "POST"])
    def login() -> object:
        if request.method == "GET":
            return html("Login", LOGIN.format(user="Email", button="Sign In"))
        response = redirect("/")
        if request.form["p"] == "Password.123":
            response.set_cookie("who", request.form["u"].partition("@")[0])
        return response

    @app.get("/")
    def home() -> str:
        return html(
            "Shop",
            f'<p>Hello {request.cookies.get("who", "stranger")}</p><a href="/lamps.html">Lamps</a><a href="http://127.0.0.1:9/">Partner</a>',
        )

    @app.get("/lamps.html")
    def lamps() -> str:
        return html("Lamps", "<p>Red lamp $5</p>")

    @app.get("/members")
    def members() -> str:
        return html("Members", MEMBERS)

    @app.get("/sales/order/view/order_id/<int:number>/")
    def order(number: int) -> str:
        return html("Order", f'<p class="total">Total of {number}: $7</p><script>document.title = "Scripted"</script>')

    @app.post("/rest/default/V1/integration/admin/token")
    def token() -> object:
        return json.dumps("t0k"), 200, {"Content-Type": "application/json"}

    @app.get("/rest/V1/orders")
    def orders() -> object:
        assert request.headers["Authorization"] == "Bearer t0k"
        return {"items": [{"increment_id": "000000042"}]}

    @app.get("/rest/V1/products/<sku>/reviews")
    def reviews(sku: str) -> object:
        found = [{"nickname": "Eve", "ratings": [{"percent": 80}]}] if sku == "L1" else []
        return json.dumps(found), 200, {"Content-Type": "application/json"}

    return app


def forum() -> Flask:
    app = Flask("forum")
    posts: list[str] = []

    @app.route("/login", methods=["GET", "POST"])
    def login() -> object:
        return html("Log in", LOGIN.format(user="Username", button="Log in")) if request.method == "GET" else redirect("/f/books")

    @app.route("/f/books", methods=["GET", "POST"])
    def books() -> object:
        if request.method == "POST":
            posts.append(request.form["title"])
            return redirect(f"/f/books/{len(posts)}/some-title")
        return html("Books", '<form method="post"><label for="t">Title</label><input id="t" name="title"><button>Post</button></form>')

    @app.get("/f/books/<int:number>/")
    @app.get("/f/books/<int:number>/<slug>")
    def post(number: int, slug: str = "") -> str:
        return html("Post", f"<h1>{posts[number - 1]}</h1>" + (f"<p>by the slug {slug}</p>" if slug else "<p>in short</p>"))

    return app


def config(number: int, sites: list[str], start: str, intent: str, evaluation: dict[str, Any]) -> dict[str, Any]:
    return {"task_id": number, "sites": sites, "require_login": True, "start_url": start, "intent": intent, "eval": evaluation}


def program(url: str, locator: str, **required: Any) -> dict[str, Any]:
    return {"eval_types": ["program_html"], "program_html": [{"url": url, "locator": locator, "required_contents": required}]}


POSTED = program("func:reddit_get_post_url('__last_url__')", "", must_include=["hello", "in short"])
TOTAL = program("func:shopping_get_latest_order_url()", "document.querySelector('.total').outerText", exact_match="Total of 42: $7")
REVIEWED = program("last", "func:shopping_get_sku_latest_review_author('L1')", exact_match="Eve")
NAMED = {"eval_types": ["string_match"], "reference_answers": {"exact_match": "emma.lopez"}}
SHOWN = {"eval_types": ["url_match"], "reference_url": "__SHOPPING__/lamps.html"}
IN_BOOKS = {"eval_types": ["program_html", "url_match"], "reference_url": "__REDDIT__/f/books"}
TASKS = [
    config(24, ["shopping"], "__SHOPPING__", "Who is logged in?", NAMED),
    config(65, ["shopping"], "__SHOPPING__", "Show the lamps", SHOWN),
    config(27, ["reddit"], "__REDDIT__/f/books", "Post 'hello' in books", POSTED | IN_BOOKS),
    config(36, ["shopping"], "__SHOPPING__/ |AND| __REDDIT__/f/books", "Order", TOTAL),
    config(60, ["shopping"], "__SHOPPING__", "Review", REVIEWED),
    config(74, ["gitlab", "shopping"], "__GITLAB__", "Elsewhere", {"eval_types": []}),
]


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    servers = {name: make_server("127.0.0.1", 0, app(), threaded=True) for name, app in (("shopping", shop), ("reddit", forum))}
    for server in servers.values():
        threading.Thread(target=server.serve_forever, daemon=True).start()
    yield {name: f"http://127.0.0.1:{server.port}" for name, server in servers.items()}
    for server in servers.values():
        server.shutdown()


@pytest.fixture(params=["text", pytest.param("chromium", marks=[needs_chromium, pytest.mark.slow])])
def env(request: pytest.FixtureRequest, urls: dict[str, str], tmp_path: Path) -> Iterator[WebArena]:
    (tmp_path / "tasks.json").write_text(json.dumps(TASKS))
    made = WebArena(browser=request.param, official=Official(urls, tmp_path / "tasks.json", settle=0.0))
    yield made
    made.close()


def solve(env: WebArena, item: int, *moves: Callable[[Page], str]) -> bool:
    page = Page.parse(env.reset(f"webarena_{item}").text)
    for move in moves:
        result = env.step(move(page))
        page = Page.parse(result.observation.text)
    assert result.done
    return bool(result.info["success"]) and result.reward == 1.0


def test_string_match_after_login(env: WebArena) -> None:
    assert solve(env, 24, lambda page: page.stop(page.find_all("StaticText", None)[0].name.removeprefix("Hello ")))
    assert not solve(env, 24, lambda page: page.stop("stranger"))


def test_url_match(env: WebArena) -> None:
    assert solve(env, 65, lambda page: page.click(page.find("link", "Lamps")), lambda page: page.stop())
    assert not solve(env, 65, lambda page: page.stop())


def test_program_html_and_url_match(env: WebArena) -> None:
    write = (lambda page: page.type_into(page.find("textbox", "Title"), "hello", enter=True), lambda page: page.stop())
    assert solve(env, 27, *write)
    assert not solve(env, 27, lambda page: page.type_into(page.find("textbox", "Title"), "bye", enter=True), lambda page: page.stop())


def test_several_start_pages_are_tabs(env: WebArena) -> None:
    page = Page.parse(env.reset("webarena_36").text)
    assert (page.tabs, page.current_tab) == (("Shop", "Books"), 0)


def test_functions(env: WebArena) -> None:
    assert solve(env, 60, lambda page: page.stop())


def test_links_to_elsewhere_are_refused(env: WebArena) -> None:
    page = Page.parse(env.reset("webarena_24").text)
    result = env.step(page.click(page.find("link", "Partner")))
    assert result.info["invalid"]
    assert "expected a URL on one of http://127.0.0.1:" in result.observation.text
    assert result.observation.info["url"] == page.url
    assert env.render()["site"] == "shopping"


@needs_chromium
@pytest.mark.slow
def test_scripted_locators(urls: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "tasks.json").write_text(json.dumps(TASKS))
    env = WebArena(browser="chromium", official=Official(urls, tmp_path / "tasks.json", settle=0.0))
    try:
        assert solve(env, 36, lambda page: page.stop())
    finally:
        env.close()
    browser = ChromiumBrowser(OfficialWeb(urls))
    try:
        assert [member_role(browser, f"{urls['shopping']}/members", who) for who in ("ann", "bob", "eve")] == ["Owner", "Guest", ""]
    finally:
        browser.close()


def test_scripted_locators_need_chromium(urls: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "tasks.json").write_text(json.dumps(TASKS))
    env = WebArena(official=Official(urls, tmp_path / "tasks.json"))
    env.reset(36)
    with pytest.raises(NotImplementedError, match="browser='chromium'"):
        env.step("stop")


def test_unknown_tasks_and_sites(urls: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "tasks.json").write_text(json.dumps(TASKS))
    official = Official(urls, tmp_path / "tasks.json")
    with pytest.raises(UnknownItem, match="published task id"):
        official.task(5)
    with pytest.raises(UnknownItem, match="GITLAB"):
        official.task(74)
    with pytest.raises(ValueError, match="site names"):
        Official({"shop": "http://x"}, tmp_path / "tasks.json")


def test_urls_from_the_environment(urls: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tasks.json").write_text(json.dumps(TASKS))
    monkeypatch.setenv("SHOPPING", urls["shopping"] + "/")
    assert Official({}, tmp_path / "tasks.json").task(65).evaluation["reference_url"] == f"{urls['shopping']}/lamps.html"


def test_storage_state_replaces_the_login(urls: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "tasks.json").write_text(json.dumps(TASKS))
    cookies = [{"name": "who", "value": "zoe", "domain": "127.0.0.1"}, {"name": "who", "value": "no", "domain": ".elsewhere.test"}]
    (tmp_path / "state.json").write_text(json.dumps({"cookies": cookies}))
    env = WebArena(official=Official(urls, tmp_path / "tasks.json", tmp_path / "state.json"))
    assert "Hello zoe" in env.reset(24).text


def test_a_site_that_is_down_is_named(tmp_path: Path) -> None:
    (tmp_path / "tasks.json").write_text(json.dumps(TASKS))
    env = WebArena(official=Official({"shopping": "http://127.0.0.1:9"}, tmp_path / "tasks.json"))
    with pytest.raises(RuntimeError, match="check the site's base URL"):
        env.reset(24)


def test_task_file_of_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PACKAGES", ("no-such-package",))
    with pytest.raises(FileNotFoundError, match="libwebarena"):
        task_file()
    monkeypatch.setattr(module, "_PACKAGES", ("no-such-package", "libwebarena", "webarena-verified"))
    try:
        path = task_file()
    except FileNotFoundError:
        pytest.skip("WebArena's task file is not installed: pip install --no-deps libwebarena")
    names = {
        "shopping": "http://s",
        "shopping_admin": "http://a/admin",
        "reddit": "http://r",
        "gitlab": "http://g",
        "map": "http://m",
        "wikipedia": "http://w",
    }
    official = Official(names, path)
    tasks = [official.task(number) for number in range(812)]
    assert not any("__" + name.upper() + "__" in str(task.evaluation) + str(task.start_urls) for task in tasks for name in names)
    assert {task.row for task in tasks} == {"shopping", "cms", "reddit", "gitlab", "map"}


def test_post_url() -> None:
    assert post_url("http://r/f/books/12/title/-/comment/3") == "http://r/f/books/12/"
    assert post_url("http://r/user/ann") == "http://r/user/ann"
