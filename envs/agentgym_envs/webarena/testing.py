"""Checks that a site keeps to the contract of ``sites``.

It uses the HTML subset, its pages load without errors, and its tasks are solved by their expert but not by doing nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urldefrag, urljoin, urlsplit

from lxml.html import HtmlElement
from werkzeug.exceptions import HTTPException

from agentgym_envs.webarena.actions import parse
from agentgym_envs.webarena.browser.base import Browser
from agentgym_envs.webarena.browser.forms import FormState, urlencode
from agentgym_envs.webarena.browser.html import Document
from agentgym_envs.webarena.browser.text import TextBrowser
from agentgym_envs.webarena.database import pristine
from agentgym_envs.webarena.evaluators import Outcome, evaluate
from agentgym_envs.webarena.page import Page
from agentgym_envs.webarena.sites.base import Instance, Site, TaskTemplate
from agentgym_envs.webarena.web import SiteWeb, application

MAX_ROUNDS = 15  # the paper's limit
_TAGS = frozenset(
    (
        *("html", "head", "title", "meta", "link", "body", "header", "nav", "main", "footer", "section", "h1", "h2", "h3", "p", "a"),
        *("ul", "ol", "li", "dl", "dt", "dd", "table", "caption", "thead", "tbody", "tr", "th", "td", "form", "label", "input"),
        *("textarea", "select", "option", "button", "img", "strong", "em", "br", "div", "span"),
    )
)
_BANNED_ATTRIBUTES = frozenset(("title", "role", "tabindex", "hidden", "style", "onclick", "target", "maxlength", "pattern", "autofocus"))
_INPUTS = frozenset(("text", "search", "number", "password", "checkbox", "radio", "hidden"))


def check_site(site: Site, pages: int = 400, instances: int | None = 3) -> None:
    """Crawl up to ``pages`` pages and solve the first ``instances`` (``None``: all) of every template.

    Raises ``AssertionError`` with the page or task that breaks the contract.
    """
    for url, status, document in crawl(site, pages):
        assert status == 200, f"{url}: status {status}"
        assert_subset(url, document)
    database = pristine(site).connection
    for template in site.templates:
        listed = list(template.instances(database))
        assert listed, f"{template.id}: no instances"
        for instance in listed[:instances]:
            assert_solvable([site], template, instance)


def crawl(site: Site, limit: int) -> Iterator[tuple[str, int, Document]]:
    """Pages that links and GET forms lead to from the start page, breadth first, but one of each kind before the second of any."""
    web = SiteWeb([site])
    cookies = web.login().get(site.origin, {})
    start = f"{site.origin}/"
    fresh, waiting, seen, kinds = deque([start]), deque[str](), {start}, {kind_of(site, start)}
    for _ in range(limit):
        if not (fresh or waiting):
            return
        url = fresh.popleft() if fresh else waiting.popleft()
        response = web.fetch("GET", url, b"", cookies)
        if response.status in (301, 302, 303):
            targets = [urljoin(url, response.header("location"))]
        else:
            document = Document(url, response.body)
            yield url, response.status, document
            targets = [urljoin(url, a.get("href")) for a in document.root.iter("a") if a.get("href") is not None]
            targets += [
                _submitted(url, document, form) for form in document.root.iter("form") if form.get("method", "get").lower() == "get"
            ]
        for target in (urldefrag(t)[0] for t in targets):
            if target.startswith(f"{site.origin}/") and target not in seen:
                (waiting if (kind := kind_of(site, target)) in kinds else fresh).append(target)
                seen.add(target)
                kinds.add(kind)


def _submitted(url: str, document: Document, form: HtmlElement) -> str:
    """Where a GET form leads if its search field, always called ``q``, gets a common word and the rest is left alone."""
    state = FormState(document.forms)
    state.values = {c: state.value(c) or "the" for c in document.forms.members(form) if c.get("name") == "q"}
    return (
        f"{urljoin(url, form.get('action') or url).partition('?')[0]}?{urlencode(state.entries(form, document.forms.default_button(form)))}"
    )


def kind_of(site: Site, url: str) -> tuple[str, frozenset[str]]:
    """Kind of a page: the view that serves it and the names in its query."""
    parts = urlsplit(url)
    return view_of(site, url), frozenset(pair.partition("=")[0] for pair in parts.query.split("&") if pair)


def view_of(site: Site, url: str, method: str = "GET") -> str:
    """Endpoint of the view that answers a URL, or ``""``."""
    try:
        endpoint, _ = application(site).url_map.bind("").match(urlsplit(url).path, method)
    except HTTPException:
        return ""
    return str(endpoint)


def views_of(site: Site, method: str = "GET") -> dict[str, str]:
    """Endpoint and rule of every view of a site that takes ``method``, static files left out."""
    rules = application(site).url_map.iter_rules()
    return {rule.endpoint: rule.rule for rule in rules if method in (rule.methods or ()) and not rule.endpoint.endswith("static")}


def assert_subset(url: str, document: Document) -> None:
    """Raise ``AssertionError`` if a page uses HTML that the two browsers may read differently."""
    for element in document.elements:
        if not isinstance(element.tag, str):
            continue
        where = f"{url}: <{element.tag}> {dict(element.attrib)}"
        assert element.tag in _TAGS, f"{where}: element outside the subset"
        assert not _BANNED_ATTRIBUTES & set(element.attrib), f"{where}: attribute outside the subset"
        if element.tag in ("header", "footer"):
            assert element.getparent().tag == "body", f"{where}: not directly in body"
        if element.tag == "table":
            assert element.find("caption") is not None, f"{where}: no caption"
            assert element.find("thead") is not None, f"{where}: no thead"
        if element.tag == "img":
            assert element.get("alt"), f"{where}: no alt"
        _assert_control(where, element, document)
    assert document.title, f"{url}: no title"


def _assert_control(where: str, element: HtmlElement, document: Document) -> None:
    kind = document.forms.kind(element)
    if element.tag == "input":
        assert element.get("type", "text") in _INPUTS, f"{where}: input type outside the subset"
    if kind and kind not in ("hidden", "submit", "button"):
        assert element.get("aria-label") or document.forms.labels(element), f"{where}: no label"
    if element.tag == "label":
        assert element.get("for"), f"{where}: a label without for"


@dataclass(frozen=True)
class Run:
    """What an expert's run came to."""

    verdicts: dict[str, bool]
    actions: Sequence[str]
    web: SiteWeb

    @property
    def success(self) -> bool:
        """Whether every evaluator was content."""
        return all(self.verdicts.values())


def run_script(
    sites: Sequence[Site], template: TaskTemplate, instance: Instance, browser: Browser | None = None, web: SiteWeb | None = None
) -> Run:
    """Let the template's expert solve one instance and evaluate it; ``browser`` and ``web`` replace the text browser on fresh content."""
    site = next(site for site in sites if site.name == template.site)
    web = web or SiteWeb(sites)
    browser = browser or TextBrowser(web)
    browser.open(site.origin + instance.start)
    script = template.solve(read(browser), **instance.params)
    actions: list[str] = []
    action = next(script)
    while True:
        actions.append(action)
        parsed = parse(action)
        if parsed.verb == "stop":
            return Run(_verdicts(web, site, instance, browser, parsed.text), actions, web)
        assert len(actions) < MAX_ROUNDS, f"{template.id} {dict(instance.params)}: more than {MAX_ROUNDS} rounds: {actions}"
        browser.act(parsed)
        action = script.send(read(browser))


def read(browser: Browser) -> Page:
    """The page that a browser shows, as experts get it."""
    view = browser.view()
    return Page.parse(f"{view.text}\nURL: {view.url}")


def _verdicts(web: SiteWeb, site: Site, instance: Instance, browser: Browser, answer: str) -> dict[str, bool]:
    return evaluate(instance.evaluation, Outcome(answer, browser, web.databases.reading(site.name)))


def assert_solvable(sites: Sequence[Site], template: TaskTemplate, instance: Instance) -> None:
    """The expert succeeds; stopping at once with an empty answer does not. Raises ``AssertionError``."""
    site = next(site for site in sites if site.name == template.site)
    what = f"{template.id} {dict(instance.params)}"
    idle_web = SiteWeb(sites)
    idle = TextBrowser(idle_web)
    idle.open(site.origin + instance.start)
    assert not all(_verdicts(idle_web, site, instance, idle, "").values()), f"{what}: succeeds when nothing is done"
    template.intent.format(**instance.params)
    run = run_script(sites, template, instance)
    assert run.success, f"{what}: the expert fails {run.verdicts} with {run.actions}, evaluation {dict(instance.evaluation)}"
    changed = run.web.databases.generation(site.name) > 0
    assert changed == template.changes_state, f"{what}: changes_state is {template.changes_state}, but rows changed: {changed}"
