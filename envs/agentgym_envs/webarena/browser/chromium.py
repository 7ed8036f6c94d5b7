"""Chromium through Playwright: the same pages, drawn and scripted, with Chromium's own accessibility tree.

One browser process serves every session of the process; a session is a context of its own. Requests of a miniature's pages never
leave the process: they are answered from the same WSGI applications that the text browser calls. Everything else is refused.
"""

from __future__ import annotations

import asyncio
import atexit
import base64
import shutil
import threading
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from agentgym_envs.webarena.actions import ActionError
from agentgym_envs.webarena.browser.base import BLANK, VIEWPORT, Browser, View
from agentgym_envs.webarena.browser.tree import AXNode, Line, listed
from agentgym_envs.webarena.web import CookieJars, Web, allowed_url

_T = TypeVar("_T")
_TIMEOUT = 30.0  # seconds for one action, page load included
_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_ARGUMENTS = (
    "--no-sandbox",  # needed in containers; the pages shown are the sites' own
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-features=BackForwardCache,Translate,MediaRouter,OptimizationHints",
    "--no-first-run",
)
_DEAD_PROXY = {"server": "http://127.0.0.1:9", "bypass": "<-loopback>"}  # where a request would go that escaped interception
_PLAYWRIGHT_KEYS = {"enter": "Enter", "tab": "Tab", "shift+tab": "Shift+Tab", "space": "Space", "escape": "Escape"}
_CHOOSE = """function () {
  const select = this.closest('select');
  if (!select || select.disabled) return;
  select.focus();
  select.selectedIndex = this.index;
  select.dispatchEvent(new Event('input', {bubbles: true}));
  select.dispatchEvent(new Event('change', {bubbles: true}));
}"""
_FOCUS = "function () { this.focus(); if (this.select) this.select(); else document.execCommand('selectAll'); }"
_LINK = """function () {
  const link = (this.nodeType === 3 ? this.parentElement : this).closest('a[href]');
  return link ? link.getAttribute('href') : '';
}"""
_KEEPS_KEY = """(key) => {
  const e = document.activeElement;
  const field = e.tagName === 'TEXTAREA' || (e.tagName === 'INPUT' && !['checkbox', 'radio', 'submit', 'button'].includes(e.type));
  return (e.tagName === 'SELECT' && key !== 'escape') || (field && key !== 'enter') || (e.tagName === 'TEXTAREA' && key === 'enter');
}"""


def executable() -> str | None:
    """Path of a Chromium or Chrome: one on the path, else Playwright's own download; ``None`` if there is neither."""
    if found := next(filter(None, map(shutil.which, _NAMES)), None):
        return found
    caches = sorted(Path.home().glob(".cache/ms-playwright/chromium-*/chrome-linux*/chrome"))
    return str(caches[-1]) if caches else None


class _Engine:
    """The browser process and the event loop, in a thread of its own, that talks to it."""

    _shared: _Engine | None = None
    _lock = threading.Lock()

    def __init__(self) -> None:
        path = executable()
        if path is None:
            raise RuntimeError(
                "expected Chromium for browser='chromium', found none: apt-get install chromium, or playwright install chromium"
            )
        try:
            from playwright.async_api import async_playwright
        except ImportError as error:
            raise RuntimeError("expected the package playwright for browser='chromium': pip install playwright") from error
        self._start = async_playwright
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="chromium", daemon=True).start()
        self.browser = self.run(self._launch(path))
        atexit.register(self.stop)

    @classmethod
    def shared(cls) -> _Engine:
        """The running engine; a new one if the browser has died."""
        with cls._lock:
            if cls._shared is None or not cls._shared.browser.is_connected():
                cls._shared = cls()
            return cls._shared

    async def _launch(self, path: str) -> Any:
        self._playwright = await self._start().start()
        return await self._playwright.chromium.launch(executable_path=path, headless=True, args=list(_ARGUMENTS))

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on the loop and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(2 * _TIMEOUT)

    def stop(self) -> None:
        """End the browser process."""

        async def end() -> None:
            await self.browser.close()
            await self._playwright.stop()

        if self.browser.is_connected():
            self.run(end())
        self.loop.call_soon_threadsafe(self.loop.stop)


@dataclass(eq=False)
class _Tab:
    page: Any
    cdp: Any
    loading: bool = False
    offset: int = 0
    url: str = BLANK
    lines: Sequence[Line] | None = None
    title: str = ""


class ChromiumBrowser(Browser):
    """A Chromium context. ``settle`` is a pause in seconds after each action, for pages that go on working after they have loaded."""

    has_scripts = True

    def __init__(self, web: Web, viewport: int = VIEWPORT, settle: float = 0.0) -> None:
        super().__init__(viewport)
        self._web, self._settle = web, settle
        self._cookies = CookieJars(web)
        self._refused: ActionError | None = None
        self._failure: BaseException | None = None
        self._tabs: list[_Tab] = []
        self._current = 0
        self._engine = _Engine.shared()
        self._closed = False
        self._engine.run(self._begin())

    # What the environment asks for

    def open(self, url: str) -> None:
        target = allowed_url(url, self._web.origins)
        self._do(self._goto(target))

    def view(self) -> View:
        tab = self._tab
        if tab.lines is None:
            self._engine.run(self._read(tab))
        return View(tuple(t.title for t in self._tabs), self._current, tab.url, tab.lines or (), tab.offset, self.viewport)

    def html(self, url: str = "") -> str:
        target = allowed_url(url, self._web.origins) if url else ""
        return str(self._engine.run(self._elsewhere(target, lambda page: page.content())))

    def evaluate(self, script: str, url: str = "") -> str:
        target = allowed_url(url, self._web.origins) if url else ""
        value = self._engine.run(self._elsewhere(target, lambda page: _value_of(page, script)))
        return str(value) if value else ""

    def screenshot(self) -> bytes | None:
        image: bytes = self._engine.run(self._tab.page.screenshot())
        return image

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._engine.browser.is_connected():
                self._engine.run(self._context.close())

    # Context, tabs, requests

    @property
    def _tab(self) -> _Tab:
        return self._tabs[self._current]

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        """Carry out something that may change the page, then wait until the page is at rest. Raises :class:`ActionError`."""
        self._refused = None
        tab = self._tab
        before = tab.url
        self._engine.run(self._until_rest(work))
        for each in self._tabs:
            each.lines = None
        if self._tab.url != before:
            self._tab.offset = 0
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise RuntimeError(f"{self._tab.url}: the page could not be served") from failure
        if self._refused is not None:
            raise self._refused

    async def _begin(self) -> None:
        proxy = _DEAD_PROXY if self._web.is_local else None
        size = {"width": 1280, "height": 720}
        self._context = await self._engine.browser.new_context(
            viewport=size, proxy=proxy, service_workers="block", accept_downloads=False, locale="en-US"
        )
        self._context.set_default_timeout(_TIMEOUT * 1000)
        if not self._web.is_local:
            await self._context.add_cookies(
                [{"name": k, "value": v, "url": origin} for origin, jar in self._web.login().items() for k, v in jar.items()]
            )
        await self._add_tab()
        self._context.on("page", lambda page: asyncio.ensure_future(self._adopt(page)))

    async def _add_tab(self) -> None:
        self._expected = True
        page = await self._context.new_page()
        self._expected = False
        self._tabs.append(await self._attach(page))
        self._current = len(self._tabs) - 1

    async def _adopt(self, page: Any) -> None:
        """A tab that a page has opened comes to the front, as in WebArena."""
        if not self._expected:
            self._tabs.append(await self._attach(page))
            self._current = len(self._tabs) - 1

    async def _attach(self, page: Any) -> _Tab:
        cdp = await self._context.new_cdp_session(page)
        tab = _Tab(page, cdp)
        main = (await cdp.send("Page.getFrameTree"))["frameTree"]["frame"]["id"]

        def mark(loading: bool) -> Any:
            def on_event(event: Mapping[str, Any]) -> None:
                if event["frameId"] == main:
                    tab.loading = loading

            return on_event

        cdp.on("Page.frameRequestedNavigation", mark(True))
        cdp.on("Page.frameStartedNavigating", mark(True))
        cdp.on("Page.frameStartedLoading", mark(True))
        cdp.on("Page.frameStoppedLoading", mark(False))
        cdp.on("Fetch.requestPaused", lambda event: asyncio.ensure_future(self._answer(tab, event)))
        page.on("dialog", lambda dialog: asyncio.ensure_future(dialog.accept()))
        for domain in ("Page", "DOM", "Accessibility", "Fetch"):
            await cdp.send(f"{domain}.enable")
        return tab

    async def _answer(self, tab: _Tab, event: Mapping[str, Any]) -> None:
        """Serve, pass on or refuse one request of a page."""
        request_id, request = event["requestId"], event["request"]
        is_page = event["resourceType"] == "Document"
        try:
            url = allowed_url(request["url"].partition("#")[0], self._web.origins)
            if not self._web.is_local:
                await tab.cdp.send("Fetch.continueRequest", {"requestId": request_id})
                return
            body = b"".join(base64.b64decode(part.get("bytes", "")) for part in request.get("postDataEntries", ()))
            response = self._web.fetch(request["method"], url, body, self._cookies.of(url))
            self._cookies.update(url, response)
            if location := response.header("location"):
                allowed_url(location, self._web.origins, url)
        except ActionError as refused:
            if is_page:
                self._refused = refused
                tab.loading = False
                await tab.cdp.send("Fetch.fulfillRequest", {"requestId": request_id, "responseCode": 204})  # the page stays as it is
            else:
                await tab.cdp.send("Fetch.failRequest", {"requestId": request_id, "errorReason": "BlockedByClient"})
            return
        except Exception as failure:
            self._failure = failure
            await tab.cdp.send("Fetch.failRequest", {"requestId": request_id, "errorReason": "Failed"})
            return
        headers = [{"name": name, "value": value} for name, value in response.headers if name.lower() != "set-cookie"]
        headers.append({"name": "Cache-Control", "value": "no-store"})
        answer = {"requestId": request_id, "responseCode": response.status, "responseHeaders": headers}
        await tab.cdp.send("Fetch.fulfillRequest", answer | {"body": base64.b64encode(response.body).decode()})

    async def _until_rest(self, work: Coroutine[Any, Any, None]) -> None:
        await work
        tab = self._tab
        await self._rest(tab)
        if self._settle:
            await asyncio.sleep(self._settle)
        tab.url = tab.page.url

    @staticmethod
    async def _rest(tab: _Tab) -> None:
        """Wait until nothing is loading and the page has twice come to the end of its tasks."""
        deadline = asyncio.get_running_loop().time() + _TIMEOUT
        quiet = 0
        while quiet < 2 and asyncio.get_running_loop().time() < deadline:
            quiet = 0 if tab.loading or not await _is_idle(tab) else quiet + 1
            if tab.loading:
                await asyncio.sleep(0.002)

    # Reading

    async def _read(self, tab: _Tab) -> None:
        nodes = (await tab.cdp.send("Accessibility.getFullAXTree"))["nodes"]
        root = _tree(nodes)
        tab.lines, tab.title = listed(root), " ".join(root.name.split())
        tab.url = tab.page.url

    async def _elsewhere(self, url: str, ask: Any) -> Any:
        """Ask the current page, or one loaded for the purpose and closed again."""
        if not url:
            return await ask(self._tab.page)
        current, count = self._current, len(self._tabs)
        await self._add_tab()
        extra = self._tab
        try:
            await extra.page.goto(url, wait_until="load")
            if self._settle:
                await asyncio.sleep(self._settle)
            return await ask(extra.page)
        finally:
            del self._tabs[count:]
            self._current = current
            await extra.page.close()

    # Actions

    async def _goto(self, url: str) -> None:
        self._tab.loading = True
        answer = await self._tab.cdp.send("Page.navigate", {"url": url})
        if "loaderId" not in answer:  # a place on the same page
            self._tab.loading = False

    def _set_offset(self, offset: int) -> None:
        self._tab.offset = offset

    def _click(self, line: Line) -> None:
        self._do(self._click_on(line))

    def _hover(self, line: Line) -> None:
        self._do(self._point(line, self._tab.page.mouse.move))

    def _type(self, line: Line, text: str, enter: bool) -> None:
        self._do(self._type_into(line, text, enter and not line.node.properties.get("multiline")))

    def _press(self, key: str) -> None:
        self._do(self._press_key(key))

    async def _click_on(self, line: Line) -> None:
        if line.node.role == "option":
            return await self._call(line, _CHOOSE)
        if line.node.role == "combobox":
            return await self._call(line, "function () { if (!this.disabled) this.focus(); }")  # a click would open a native list
        if self._web.is_local and (href := await self._call(line, _LINK)):
            allowed_url(href, self._web.origins, self._tab.url)  # as written: Chromium would decode hosts first
        return await self._point(line, self._tab.page.mouse.click)

    async def _point(self, line: Line, gesture: Any) -> None:
        """Move the pointer to the middle of a node's first box, and click there or not; a node without a box is clicked by script."""
        from playwright.async_api import Error

        node = {"backendNodeId": line.node.ref}
        try:
            await self._tab.cdp.send("DOM.scrollIntoViewIfNeeded", node)
            quad = (await self._tab.cdp.send("DOM.getContentQuads", node))["quads"][0]
        except (Error, IndexError):
            if gesture == self._tab.page.mouse.click:
                await self._call(line, "function () { (this.nodeType === 3 ? this.parentElement : this).click(); }")
            return
        await gesture(sum(quad[0::2]) / 4, sum(quad[1::2]) / 4)

    async def _call(self, line: Line, function: str) -> Any:
        found = await self._tab.cdp.send("DOM.resolveNode", {"backendNodeId": line.node.ref})
        call = {"objectId": found["object"]["objectId"], "functionDeclaration": function, "returnByValue": True}
        return (await self._tab.cdp.send("Runtime.callFunctionOn", call))["result"].get("value")

    async def _type_into(self, line: Line, text: str, enter: bool) -> None:
        await self._call(line, _FOCUS)
        await self._tab.page.keyboard.press("Delete")
        if text:
            await self._tab.page.keyboard.insert_text(text)
        if enter:
            await self._tab.page.keyboard.press("Enter")

    async def _press_key(self, key: str) -> None:
        if key in ("tab", "shift+tab") or not await self._tab.page.evaluate(_KEEPS_KEY, key):
            await self._tab.page.keyboard.press(_PLAYWRIGHT_KEYS[key])

    def _new_tab(self) -> None:
        self._engine.run(self._add_tab())

    def _focus_tab(self, index: int) -> None:
        self._current = index
        self._do(self._tab.page.bring_to_front())

    def _close_tab(self) -> None:
        self._engine.run(self._tabs.pop(self._current).page.close())
        if not self._tabs:
            self._engine.run(self._add_tab())
        self._current = len(self._tabs) - 1

    def _travel(self, steps: int) -> None:
        self._do(self._go(steps))

    async def _go(self, steps: int) -> None:
        tab = self._tab
        history = await tab.cdp.send("Page.getNavigationHistory")
        at = history["currentIndex"] + steps
        if not 0 <= at < len(history["entries"]) or history["entries"][at]["url"] == BLANK:
            raise ActionError(f"there is no {'earlier' if steps < 0 else 'later'} page in this tab")
        tab.loading = True
        await tab.cdp.send("Page.navigateToHistoryEntry", {"entryId": history["entries"][at]["id"]})
        if self._web.is_local:  # Chromium fills in again what was typed before
            await self._rest(tab)
            await tab.page.evaluate("() => [...document.forms].forEach(form => form.reset())")


async def _is_idle(tab: _Tab) -> bool:
    """Let the page run the tasks that its last event queued; false if it was replaced meanwhile."""
    from playwright.async_api import Error

    try:
        await tab.page.evaluate("() => new Promise(done => setTimeout(done, 0))")
    except Error:
        return False
    return True


async def _value_of(page: Any, script: str) -> Any:
    """Value of an expression; WebArena counts one that throws as empty."""
    from playwright.async_api import Error

    try:
        return await page.evaluate(f"() => {script}")
    except Error:
        return ""


def _tree(nodes: Sequence[Mapping[str, Any]]) -> AXNode:
    """Chromium's flat list as a tree without its ignored nodes."""
    by_id = {node["nodeId"]: node for node in nodes}

    def build(node: Mapping[str, Any]) -> list[AXNode]:
        children = [ax for child in node.get("childIds", ()) if child in by_id for ax in build(by_id[child])]
        if node.get("ignored"):
            return children
        properties = {p["name"]: p["value"].get("value") for p in node.get("properties", ())}
        name = str(node.get("name", {}).get("value", ""))
        return [AXNode(str(node["role"]["value"]), name, properties, children, node.get("backendDOMNodeId"))]

    return build(nodes[0])[0]
