"""Text browser and Chromium side by side on the five sites: every view gives equal observations, every change has equal effects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from webarena_factory import needs_chromium

from agentgym_envs.webarena.browser.base import Browser, View
from agentgym_envs.webarena.browser.chromium import ChromiumBrowser
from agentgym_envs.webarena.browser.text import TextBrowser
from agentgym_envs.webarena.database import pristine
from agentgym_envs.webarena.sites.base import Instance, Site, TaskTemplate
from agentgym_envs.webarena.tasks import sites
from agentgym_envs.webarena.testing import crawl, kind_of, run_script, view_of, views_of
from agentgym_envs.webarena.web import SiteWeb

pytestmark = [needs_chromium, pytest.mark.slow]
_PAGES = 200  # crawled to find the kinds of page
_READ_ONLY = 4  # templates that change nothing, besides all that do
#: (site, view) that a test has compared; the last test asks for all of them.
_compared: set[tuple[str, str]] = set()


class Recorder:
    """A browser that remembers what it showed."""

    def __init__(self, browser: Browser) -> None:
        self.browser, self.shown = browser, list[tuple[str, str]]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.browser, name)

    def view(self) -> View:
        view = self.browser.view()
        self.shown.append((view.url, view.text))
        return view


@pytest.fixture(params=sites(), ids=lambda site: site.name)
def site(request: pytest.FixtureRequest) -> Site:
    return request.param


@pytest.fixture
def chromium(site: Site) -> Iterator[ChromiumBrowser]:
    browser = ChromiumBrowser(SiteWeb([site]))
    yield browser
    browser.close()


def test_pages(site: Site, chromium: ChromiumBrowser) -> None:
    text, kinds = TextBrowser(SiteWeb([site])), set[object]()
    for url, _, _ in crawl(site, _PAGES):
        if (kind := kind_of(site, url)) not in kinds:
            kinds.add(kind)
            text.open(url)
            chromium.open(url)
            assert (text.view().url, text.view().text) == (chromium.view().url, chromium.view().text)
            _compared.add((site.name, view_of(site, url)))


def first_instances(site: Site) -> list[tuple[TaskTemplate, Instance]]:
    reading = [t for t in site.templates if not t.changes_state]
    chosen = [t for t in site.templates if t.changes_state] + reading[:: max(1, len(reading) // _READ_ONLY)]
    return [(template, template.instances(pristine(site).connection)[0]) for template in chosen]


def test_scripts(site: Site) -> None:
    for template, instance in first_instances(site):
        runs, shown = [], []
        for kind in (TextBrowser, ChromiumBrowser):
            web = SiteWeb([site])
            recorder = Recorder(kind(web))
            runs.append(run_script([site], template, instance, recorder, web))  # type: ignore[arg-type]
            shown.append(recorder.shown)
            recorder.close()
        assert shown[0] == shown[1], template.id
        assert runs[0].success, template.id
        assert runs[1].success, template.id
        dumps = ["\n".join(run.web.databases.reading(site.name).iterdump()) for run in runs]
        assert dumps[0] == dumps[1], template.id
        _compared.update((site.name, view_of(site, url)) for url, _ in shown[0])


def test_every_view_was_compared() -> None:
    assert {(site.name, view) for site in sites() for view in views_of(site)} - _compared == set()
