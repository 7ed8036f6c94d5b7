"""Both browsers on a tiny site: forms, history, tabs, focus, keys, scrolling, redirects and cookies behave alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from webarena_factory import BROWSERS, ORIGIN, TINY, Driver

from agentgym_envs.webarena.actions import ActionError
from agentgym_envs.webarena.browser.base import MAX_TABS, Browser
from agentgym_envs.webarena.browser.text import TextBrowser
from agentgym_envs.webarena.web import SiteWeb

Start = Callable[..., Driver]


@pytest.fixture(params=BROWSERS)
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    drivers: list[Driver] = []

    def new(path: str = "/", **options: int) -> Driver:
        drivers.append(Driver(request.param, path, **options))
        return drivers[-1]

    yield new
    for driver in drivers:
        driver.close()
        driver.browser.close()  # may be said twice


def test_first_page(start: Start) -> None:
    view = start().browser.view()
    assert view.url == f"{ORIGIN}/"
    assert view.text.startswith("Tab 0 (current): Notes | Tiny\n\n[1] RootWebArea 'Notes | Tiny' focused: True\n\t[2] navigation 'Site'\n")
    assert "StaticText 'Hello ann, 3 notes.'" in view.text


def test_get_form_by_enter_and_by_button(start: Start) -> None:
    driver = start()
    page = driver.do(driver.page.type_into(driver.page.find("textbox", "Search"), "a n", enter=True))
    assert page.url == f"{ORIGIN}/?q=a+n"
    page = driver.do(page.type_into(page.find("textbox", "Search"), "Ré~*&='(", enter=False))
    assert page.node(page.find("textbox", "Search")).text == "Ré~*&='("
    assert page.node(page.find("textbox")).properties == {"focused": "True", "required": "False"}
    page = driver.do(page.click(page.find("button", "Go")))
    assert page.url == f"{ORIGIN}/?q=R%C3%A9%7E*%26%3D%27%28"
    assert page.rows() == []


def test_typing_replaces_and_may_clear(start: Start) -> None:
    driver = start()
    field = driver.page.find("textbox")
    assert driver.do(f"type [{field}] [one] [0]").node(field).text == "one"
    assert driver.do(f"type [{field}] [two] [0]").node(field).text == "two"
    assert driver.do(f"type [{field}] [] [0]").node(field).text == ""


def test_post_form_sends_what_was_entered(start: Start) -> None:
    driver = start("/add")
    page = driver.page
    for action in (
        page.type_into(page.find("textbox", "Text"), "Two\nlines", enter=True),
        page.click(page.find("option", "home")),
        page.click(page.find("checkbox", "Pinned")),
        page.click(page.find("radio", "Large")),
        page.type_into(page.find("spinbutton", "Count"), "7"),
    ):
        page = driver.do(action)
    assert [n.name for n in page.nodes if n.properties.get("selected") == "True"] == ["home"]
    assert [n.name for n in page.nodes if n.properties.get("checked") == "true"] == ["Pinned", "Large"]
    page = driver.do(page.click(page.find("button", "Draft")))
    assert page.url == f"{ORIGIN}/"
    assert driver.last_note == ("Two\r\nlines", "h", "on t&1 7 False", "large draft")
    assert page.rows()[-1].texts[0] == "Two lines"


def test_defaults_are_sent_untouched(start: Start) -> None:
    driver = start("/add")
    page = driver.do(driver.page.type_into(driver.page.find("textbox", "Text"), "x"))
    driver.do(page.click(page.find("button", "Add")))
    assert driver.last_note == ("x", "work", " t&1 2 False", "small add")


def test_a_form_that_is_not_filled_in_is_not_sent(start: Start) -> None:
    driver = start("/add")
    page = driver.do(driver.page.click(driver.page.find("button", "Add")))
    assert page.url == f"{ORIGIN}/add"
    assert page.node(page.find("textbox", "Text")).properties["focused"] == "True"
    page = driver.do(page.type_into(page.find("textbox", "Text"), "x"))
    page = driver.do(page.type_into(page.find("spinbutton"), "2.5"))
    page = driver.do(page.click(page.find("button", "Add")))
    assert page.url == f"{ORIGIN}/add"
    assert driver.last_note[0] == "Pay rent"


def test_check_box_twice_is_off_again(start: Start) -> None:
    driver = start("/add")
    box = driver.page.find("checkbox")
    driver.do(f"click [{box}]")
    assert driver.do(f"click [{box}]").node(box).properties["checked"] == "false"


def test_history(start: Start) -> None:
    driver = start()
    with pytest.raises(ActionError, match="earlier"):
        driver.do("go_back")
    page = driver.do(driver.page.click(driver.page.find("link", "Open", nth=1)))
    assert page.value("Text") == "Call Ann"
    page = driver.do(page.click(page.find("link", "Add")))
    page = driver.do(page.type_into(page.find("textbox", "Text"), "kept?"))
    assert driver.do("go_back").url == f"{ORIGIN}/note/2"
    assert driver.do("go_back").url == f"{ORIGIN}/"
    assert driver.do("go_forward").url == f"{ORIGIN}/note/2"
    page = driver.do("go_forward")
    assert page.node(page.find("textbox", "Text")).text == ""
    with pytest.raises(ActionError, match="later"):
        driver.do("go_forward")
    driver.do("go_back")
    driver.do(f"goto [{ORIGIN}/long]")
    with pytest.raises(ActionError, match="later"):
        driver.do("go_forward")


def test_a_changed_page_is_fresh_after_going_back(start: Start) -> None:
    driver = start()
    page = driver.do(driver.page.click(driver.page.find("link", "Add")))
    page = driver.do(page.type_into(page.find("textbox", "Text"), "new"))
    page = driver.do(page.click(page.find("button", "Add")))
    assert driver.do("go_back").url == f"{ORIGIN}/add"
    assert driver.do("go_back").has("cell", "new")


def test_tabs(start: Start) -> None:
    driver = start()
    page = driver.do("new_tab")
    assert (page.tabs, page.current_tab, page.url, page.text.split("\n")[2]) == (
        ("Notes | Tiny", ""),
        1,
        "about:blank",
        "[1] RootWebArea '' focused: True",
    )
    driver.do(f"goto [{ORIGIN}/add]")
    page = driver.do("tab_focus [0]")
    assert (page.tabs, page.current_tab, page.url) == (("Notes | Tiny", "Add | Tiny"), 0, f"{ORIGIN}/")
    with pytest.raises(ActionError, match="tab from 0 to 1"):
        driver.do("tab_focus [2]")
    assert driver.do("close_tab").tabs == ("Add | Tiny",)
    assert driver.do("close_tab").tabs == ("",)
    for _ in range(MAX_TABS - 1):
        driver.do("new_tab")
    with pytest.raises(ActionError, match=f"at most {MAX_TABS} tabs"):
        driver.do("new_tab")


def test_keys(start: Start) -> None:
    driver = start()
    names = []
    for key in ("tab", "Tab", "TAB", "tab", "shift + tab"):
        focused = [n for n in driver.do(f"press [{key}]").nodes[1:] if "focused" in n.properties]
        names += [n.name for n in focused]
    assert names == ["Home", "Add", "Long", "Search", "Long"]
    page = driver.do("press [enter]")
    assert page.url == f"{ORIGIN}/long"
    for _ in range(4):
        driver.do("press [escape]")
    with pytest.raises(ActionError, match="one of the keys"):
        driver.do("press [Control+W]")


def test_space_ticks_and_enter_sends(start: Start) -> None:
    driver = start("/add")
    page = driver.do(driver.page.type_into(driver.page.find("textbox", "Text"), "x"))
    driver.do("press [space]")
    for _ in range(2):
        driver.do("press [tab]")
    page = driver.do("press [space]")
    assert page.node(page.find("checkbox")).properties == {"focused": "True", "checked": "true"}
    driver.do("press [enter]")
    assert driver.last_note == ("x", "work", "on t&1 2 False", "small add")


def test_clicks_on_text(start: Start) -> None:
    driver = start("/add")
    page = driver.do(driver.page.click(driver.page.find("StaticText", "Text")))
    assert page.node(page.find("textbox", "Text")).properties["focused"] == "True"
    page = driver.do(page.click(page.find("heading")))
    assert [n.role for n in page.nodes if "focused" in n.properties] == ["RootWebArea"]
    page = driver.do(page.click(page.find("combobox")))
    assert page.node(page.find("combobox")).properties == {"focused": "True", "hasPopup": "menu", "expanded": "False"}
    driver.do(page.click(page.find("textbox", "Off")))
    page = driver.do(f"hover [{page.find('heading')}]")
    assert page.url == f"{ORIGIN}/add"


def test_scrolling_moves_a_window_over_the_tree(start: Start) -> None:
    driver = start("/long", viewport=20)

    def shown() -> list[str]:
        return [n.name for n in driver.page.nodes if n.name.startswith("Line")]

    assert shown()[-1] == "Line 15"  # after navigation, three links and the heading
    with pytest.raises(ActionError, match="is shown"):
        driver.do("click [30]")
    assert driver.do("scroll [down]").title == "Long | Tiny"
    assert shown() == [f"Line {i}" for i in range(11, 31)]  # the last window is full
    driver.do("scroll [down]")
    assert shown()[-1] == "Line 30"
    driver.do("scroll [up]")
    assert shown()[-1] == "Line 15"
    driver.do("press [pagedown]")
    driver.do(f"goto [{ORIGIN}/]")
    assert driver.page.has("link", "Home")


def test_redirects_and_cookies(start: Start) -> None:
    driver = start("/to?url=/to?url=/note/1")
    assert driver.page.url == f"{ORIGIN}/note/1"
    for visit in (1, 2):
        assert driver.do(f"goto [{ORIGIN}/visits]").has("StaticText", f"Visit {visit}")
    assert driver.do(f"goto [{ORIGIN}/visits#here]").url == f"{ORIGIN}/visits#here"
    assert driver.page.has("StaticText", "Visit 2")
    assert driver.do(f"goto [{ORIGIN}/a/../long]").url == f"{ORIGIN}/long"


def test_html_of_this_and_of_another_page(start: Start) -> None:
    driver = start("/note/1")
    assert "Buy milk" in driver.browser.html()
    assert "Call Ann" in driver.browser.html(f"{ORIGIN}/note/2")
    assert (driver.page.url, driver.page.tabs) == (f"{ORIGIN}/note/1", ("Note | Tiny",))


@pytest.mark.parametrize(
    ("action", "why"),
    [
        ("click [999]", "is shown"),
        ("type [1] [x] [0]", "to type into"),
        ("type [{Off}] [x] [0]", "disabled"),
        ("type [{Count}] [many] [0]", "expected a number"),
        ("goto [tiny.test]", "expected a URL"),
    ],
)
def test_what_cannot_be_done(start: Start, action: str, why: str) -> None:
    driver = start("/add")
    before = driver.browser.view().text
    ids = {node.name: node.id for node in driver.page.nodes if node.role in ("textbox", "spinbutton")}
    with pytest.raises(ActionError, match=why):
        driver.do(action.format(**ids))
    assert driver.browser.view().text == before


def test_missing_page_is_a_page(start: Start) -> None:
    assert start("/nowhere").page.title == "404 Not Found"


def test_sessions_do_not_see_each_other(start: Start) -> None:
    first, second = start("/add"), start()
    page = first.do(first.page.type_into(first.page.find("textbox", "Text"), "mine"))
    assert first.do(page.click(page.find("button", "Add"))).has("cell", "mine")
    assert not second.do(f"goto [{ORIGIN}/?q=m]").has("cell", "mine")
    assert not start().page.has("cell", "mine")


def test_a_view_that_writes_on_get_fails(start: Start) -> None:
    driver = start("/write")
    assert driver.page.title == "500 Internal Server Error"
    assert driver.last_note[0] == "Pay rent"


def test_shared_pages_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    class Counting(SiteWeb):
        def fetch(self, method: str, url: str, body: bytes, cookies: object) -> object:  # type: ignore[override]
            calls.append(url)
            return super().fetch(method, url, body, cookies)  # type: ignore[arg-type]

    def visit() -> Browser:
        browser = TextBrowser(Counting([TINY]))
        browser.open(f"{ORIGIN}/?q=shared")
        return browser

    assert visit().view() == visit().view()
    assert calls == [f"{ORIGIN}/?q=shared"]


def test_changed_pages_are_never_shared() -> None:
    """A closed session's memory address may be reused by the next one: its pages must not be."""
    for name in ("first", "second", "third"):
        driver = Driver(TextBrowser, "/add")
        page = driver.do(driver.page.type_into(driver.page.find("textbox", "Text"), name))
        page = driver.do(page.click(page.find("button", "Add")))
        assert [row.texts[0] for row in page.rows("Notes")][3:] == [name]
        driver.close()
        del driver
