"""A browser without a window: it fetches pages in process and computes the accessibility tree from the HTML."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urldefrag, urljoin, urlsplit

from lxml.html import HtmlElement

from agentgym_envs.webarena.actions import ActionError
from agentgym_envs.webarena.browser.base import BLANK, VIEWPORT, Browser, View
from agentgym_envs.webarena.browser.forms import TYPED, FormState, urlencode
from agentgym_envs.webarena.browser.html import Document
from agentgym_envs.webarena.browser.tree import Line, listed
from agentgym_envs.webarena.web import CookieJars, Response, Web, allowed_url

_MAX_REDIRECTS = 10
_CACHED_PAGES = 250


@dataclass
class _Loaded:
    """A page as served: its document and, computed when first shown, the lines of its untouched tree."""

    document: Document
    final_url: str
    lines: list[Line] | None = None


class _PageCache:
    """Pages that any session would get the same: least recently used go first."""

    def __init__(self, size: int) -> None:
        self._size, self._lock = size, threading.Lock()
        self._pages: OrderedDict[object, _Loaded] = OrderedDict()

    def get(self, key: object) -> _Loaded | None:
        with self._lock:
            page = self._pages.get(key)
            if page is not None:
                self._pages.move_to_end(key)
            return page

    def put(self, key: object, page: _Loaded) -> None:
        with self._lock:
            self._pages[key] = page
            if len(self._pages) > self._size:
                self._pages.popitem(last=False)


_SHARED = _PageCache(_CACHED_PAGES)


@dataclass
class _Tab:
    page: _Loaded
    state: FormState
    url: str = BLANK
    history: list[str] = field(default_factory=lambda: [BLANK])
    position: int = 0
    offset: int = 0
    lines: Sequence[Line] | None = None


class TextBrowser(Browser):
    """Tabs over :class:`Web` with cookies, redirects and forms; no JavaScript, no layout, no clock."""

    def __init__(self, web: Web, viewport: int = VIEWPORT) -> None:
        super().__init__(viewport)
        self._web = web
        self._cookies = CookieJars(web)
        self._tabs = [_blank()]
        self._current = 0

    @property
    def _tab(self) -> _Tab:
        return self._tabs[self._current]

    def open(self, url: str) -> None:
        self._visit(allowed_url(url, self._web.origins))

    def view(self) -> View:
        tab = self._tab
        titles = tuple(tab.page.document.title for tab in self._tabs)
        return View(titles, self._current, tab.url, self._lines(tab), tab.offset, self.viewport)

    def html(self, url: str = "") -> str:
        page = self._load("GET", allowed_url(url, self._web.origins)) if url else self._tab.page
        return page.document.body.decode("utf-8", "replace")

    def close(self) -> None:
        self._tabs = [_blank()]
        self._current = 0

    def _lines(self, tab: _Tab) -> Sequence[Line]:
        if tab.lines is None:
            if tab.state.is_pristine:
                if tab.page.lines is None:
                    tab.page.lines = listed(tab.page.document.tree(tab.state))
                tab.lines = tab.page.lines
            else:
                tab.lines = listed(tab.page.document.tree(tab.state))
        return tab.lines

    # Loading

    def _visit(self, url: str, method: str = "GET", body: bytes = b"") -> None:
        """Load a page and put it behind the current one in the tab's history."""
        tab = self._tab
        replaces = method == "GET" and url == tab.url  # as in Chromium, where a redirect to the same page is a new entry
        if method == "GET" and urldefrag(url)[0] == urldefrag(tab.url)[0] and urlsplit(url).fragment:
            tab.url = url  # a place on the same page
        else:
            self._show(self._load(method, url, body))
        if not replaces:
            tab.history[tab.position + 1 :] = [tab.url]
            tab.position += 1

    def _show(self, page: _Loaded) -> None:
        tab = self._tab
        tab.page, tab.url = page, page.final_url
        tab.state, tab.offset, tab.lines = FormState(page.document.forms), 0, None

    def _load(self, method: str, url: str, body: bytes = b"") -> _Loaded:
        key: Any = None
        if method == "GET" and (shared := self._web.key(url)) is not None:
            key = (urldefrag(url)[0], shared, tuple(self._cookies.of(url).items()))
            if (page := _SHARED.get(key)) is not None and page.final_url == url:
                return page
        response, final = self._request(method, url, body)
        page = _Loaded(Document(final, response.body), final)
        if key is not None and final == url and not response.header("set-cookie"):
            _SHARED.put(key, page)
        return page

    def _request(self, method: str, url: str, body: bytes) -> tuple[Response, str]:
        """Send a request and follow redirects, each checked like a URL that the agent wrote."""
        for _ in range(_MAX_REDIRECTS):
            response = self._web.fetch(method, urldefrag(url)[0], body, self._cookies.of(url))
            self._cookies.update(url, response)
            location = response.header("location")
            if response.status not in (301, 302, 303, 307, 308) or not location:
                return response, url
            target = allowed_url(location, self._web.origins, url)
            url = target if urlsplit(target).fragment or not urlsplit(url).fragment else f"{target}#{urlsplit(url).fragment}"
            if response.status < 307:
                method, body = "GET", b""
        raise ActionError(f"the page redirected more than {_MAX_REDIRECTS} times")

    # Actions

    def _set_offset(self, offset: int) -> None:
        self._tab.offset = offset

    def _hover(self, line: Line) -> None:
        """Nothing on these pages reacts to the pointer."""

    def _click(self, line: Line) -> None:
        self._tab.lines = None
        self._activate(line.node.ref)

    def _activate(self, element: HtmlElement) -> None:
        """What a click on an element does: the innermost element around it that reacts decides."""
        forms, state = self._tab.page.document.forms, self._tab.state
        target = next((found for e in (element, *element.iterancestors()) if (found := self._reacting(e)) is not None), None)
        if target is None:
            state.focus = None
        elif target.get("disabled") is not None:
            return
        elif target.tag == "a":
            url = allowed_url(target.get("href"), self._web.origins, self._tab.url)
            state.focus = target
            self._visit(url)
        elif target.tag == "option":
            self._choose(target)
        else:
            state.focus = target
            kind = forms.kind(target)
            if kind in ("checkbox", "radio"):
                state.tick(target)
            elif kind == "submit":
                self._submit(forms.owner(target), target)

    def _reacting(self, element: HtmlElement) -> HtmlElement | None:
        """The element itself if it is a link, an option or a control; the control of a label."""
        forms = self._tab.page.document.forms
        if element.tag == "label":
            return forms.labelled(element)
        is_link = element.tag == "a" and element.get("href") is not None
        return element if is_link or element.tag == "option" or forms.kind(element) else None

    def _choose(self, option: HtmlElement) -> None:
        select = next(option.iterancestors("select"))
        if select.get("disabled") is None:
            self._tab.state.choices[select] = option
            self._tab.state.focus = select

    def _submit(self, form: HtmlElement | None, button: HtmlElement | None) -> None:
        tab = self._tab
        if form is None:
            return
        if (invalid := tab.state.first_invalid(form)) is not None:
            tab.state.focus = invalid
            return
        data = urlencode(tab.state.entries(form, button))
        action = urljoin(tab.url, form.get("action") or tab.url)
        if form.get("method", "get").lower() == "post":
            self._visit(allowed_url(action, self._web.origins, tab.url), "POST", data.encode())
        else:
            self._visit(allowed_url(f"{action.partition('#')[0].partition('?')[0]}?{data}", self._web.origins, tab.url))

    def _type(self, line: Line, text: str, enter: bool) -> None:
        tab, field_ = self._tab, line.node.ref
        tab.state.focus, tab.lines = field_, None
        tab.state.values[field_] = text if field_.tag == "textarea" else text.replace("\n", "")
        if enter:
            self._press("enter")

    def _press(self, key: str) -> None:
        tab = self._tab
        focus, forms = tab.state.focus, tab.page.document.forms
        tab.lines = None
        if key in ("tab", "shift+tab"):
            tab.state.focus = self._neighbour(1 if key == "tab" else -1)
        elif focus is None or key == "escape":
            return
        elif key == "enter" and forms.kind(focus) in TYPED | {"checkbox", "radio"}:
            if focus.tag != "textarea" and (form := forms.owner(focus)) is not None:
                self._implicit_submit(form)
        elif (key == "enter" and (focus.tag == "a" or forms.kind(focus) in ("submit", "button"))) or (
            key == "space" and forms.kind(focus) in ("checkbox", "radio", "submit", "button")
        ):
            self._activate(focus)

    def _implicit_submit(self, form: HtmlElement) -> None:
        forms = self._tab.page.document.forms
        button = forms.default_button(form)
        if button is not None:
            if button.get("disabled") is None:
                self._submit(form, button)
        elif sum(forms.kind(c) in TYPED for c in forms.members(form)) == 1:
            self._submit(form, None)

    def _neighbour(self, step: int) -> HtmlElement | None:
        """The next element in tab order; of a radio group only the button that is on, or the first."""
        tab, state = self._tab, self._tab.state
        stops = [e for e in tab.page.document.elements if isinstance(e.tag, str) and self._is_tab_stop(e)]
        start = -1 if step > 0 else len(stops)
        at = (stops.index(state.focus) if state.focus in stops else start) + step
        return stops[at] if 0 <= at < len(stops) else None

    def _is_tab_stop(self, element: HtmlElement) -> bool:
        forms, state = self._tab.page.document.forms, self._tab.state
        kind = forms.kind(element)
        if kind == "radio":
            group = forms.group(element)
            return element is next((c for c in group if state.checked(c)), group[0]) and element.get("disabled") is None
        if kind:
            return kind != "hidden" and element.get("disabled") is None
        return element.tag == "a" and element.get("href") is not None

    # Tabs

    def _new_tab(self) -> None:
        self._tabs.append(_blank())
        self._current = len(self._tabs) - 1

    def _focus_tab(self, index: int) -> None:
        self._current = index

    def _close_tab(self) -> None:
        self._tabs.pop(self._current)
        if not self._tabs:
            self._tabs = [_blank()]
        self._current = len(self._tabs) - 1

    def _travel(self, steps: int) -> None:
        tab = self._tab
        at = tab.position + steps
        if not 0 <= at < len(tab.history) or tab.history[at] == BLANK:
            raise ActionError(f"there is no {'earlier' if steps < 0 else 'later'} page in this tab")
        self._show(self._load("GET", tab.history[at]))
        tab.position = at


def _blank() -> _Tab:
    document = Document(BLANK, b"")
    return _Tab(_Loaded(document, BLANK), FormState(document.forms))
