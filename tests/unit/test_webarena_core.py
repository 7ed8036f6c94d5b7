"""WebArena's action grammar and the page that experts read."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_envs.webarena.actions import MAX_TEXT, USAGE, Action, ActionError, extract, parse
from agentgym_envs.webarena.page import Page

TEXT = """OBSERVATION:
Tab 0: Home | Tab 1 (current): My orders | Shop

[1] RootWebArea 'My orders | Shop' focused: True
\t[2] textbox 'Search' required: False
\t\t[13] StaticText 'red lamp'
\t[3] table 'Orders'
\t\t[4] row ''
\t\t\t[5] columnheader 'Order'
\t\t[6] row ''
\t\t\t[7] cell "Ann's order"
\t\t\t\t[8] link 'Open: now'
\t[9] term 'Status'
\t[10] definition ''
\t\t[11] StaticText 'Complete'
\t[12] combobox 'Sort by' hasPopup: menu expanded: False
URL: http://shop.test/orders?page=2
OBJECTIVE: [99] link 'not a node'
PREVIOUS ACTION: None"""


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("click [12]", Action("click", 12)),
        ("CLICK [ 12 ] where the link is", Action("click", 12)),
        ("hover [3]", Action("hover", 3)),
        ("type [5] [lamp] [0]", Action("type", 5, "lamp", False)),
        ("type [5] [lamp] [1]", Action("type", 5, "lamp", True)),
        ("type [5] [lamp]", Action("type", 5, "lamp", True)),
        ("type [5] [1]", Action("type", 5, "1", True)),
        ("type [5] [a [b] c] [0]", Action("type", 5, "a [b] c", False)),
        ("type [5] [two\nlines] [0]", Action("type", 5, "two\nlines", False)),
        ("type [5] [] [0]", Action("type", 5, "", False)),
        ("press [Enter]", Action("press", text="Enter")),
        ("scroll [down]", Action("scroll", text="down")),
        ("scroll up", Action("scroll", text="up")),
        ("goto [http://shop.test/a[1]]", Action("goto", text="http://shop.test/a[1]")),
        ("new_tab", Action("new_tab")),
        ("tab_focus [1]", Action("tab_focus", 1)),
        ("close_tab", Action("close_tab")),
        ("go_back", Action("go_back")),
        ("go_forward", Action("go_forward")),
        ("stop", Action("stop")),
        ("stop []", Action("stop")),
        ("stop [ $12.50 ]", Action("stop", text="$12.50")),
    ],
)
def test_grammar(text: str, action: Action) -> None:
    assert parse(text) == action


@pytest.mark.parametrize(
    "text",
    [
        "",
        "click",
        "click 5",
        "click [five]",
        "click [²]",
        "type [5]",
        "press []",
        "goto",
        "scroll [left]",
        "buy [3]",
        "[5] click",
        f"stop [{'x' * 3000}]",
    ],
)
def test_what_is_not_an_action_is_refused_with_the_way_to_write_it(text: str) -> None:
    with pytest.raises(ActionError, match="expected"):
        parse(text)


def test_the_first_block_in_back_ticks_is_the_action() -> None:
    assert extract("I open it. In summary, the next action I will perform is ```click [5]``` or ```stop```") == "click [5]"
    assert extract("  click [5]\n") == "click [5]"


def fuzzed(count: int, seed: int = 0) -> list[str]:
    """Damaged actions and noise: every verb, brackets, control characters, code points of all planes."""
    rng = random.Random(seed)
    pieces = [
        *USAGE,
        *USAGE.values(),
        "[",
        "]",
        "[[",
        "`",
        "```",
        " ",
        "\n",
        "\x00",
        "999999999999",
        "-1",
        "0",
        "http://",
        "\\",
        "'",
        '"',
        "\u202e",
        "²",
        "\ud800",
    ]
    texts = []
    for _ in range(count):
        parts = [rng.choice(pieces) if rng.random() < 0.8 else chr(rng.randrange(0x110000)) for _ in range(rng.randint(0, 9))]
        texts.append("".join(parts) * rng.choice((1, 1, 1, 40)))
    return texts


def read_or_refuse(text: str) -> tuple[Action | None, str]:
    """The action, or why it is refused."""
    try:
        return parse(extract(text)), ""
    except ActionError as refused:
        return None, str(refused)


def test_ten_thousand_strings_are_actions_or_refused() -> None:
    read = 0
    for text in fuzzed(10_000):
        action, refusal = read_or_refuse(text)
        assert len(refusal) < 400
        assert refusal.isprintable()
        if action is not None:
            read += 1
            assert action.verb in USAGE
            assert len(action.text) <= MAX_TEXT + 40
    assert read > 500


def test_page_is_read_back() -> None:
    page = Page.parse(TEXT)
    assert (page.title, page.url, page.tabs, page.current_tab) == (
        "My orders | Shop",
        "http://shop.test/orders?page=2",
        ("Home", "My orders | Shop"),
        1,
    )
    assert [node.id for node in page.nodes] == [1, 2, 13, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    assert page.node(12).properties == {"hasPopup": "menu", "expanded": "False"}
    assert page.node(2).text == "red lamp"
    assert page.headers("Orders") == ["Order"]
    assert [row.texts for row in page.rows()] == [["Ann's order"]]
    assert page.row("Ann's order").find("link", re.compile("^Open")) == 8
    assert page.value("Status") == "Complete"
    assert page.find("link") == 8
    assert page.has("combobox", "Sort by")
    assert not page.has("combobox", "Sort")


@pytest.mark.parametrize(
    "look",
    [lambda p: p.find("button"), lambda p: p.find("link", nth=1), lambda p: p.node(99), lambda p: p.value("Total"), lambda p: p.row("Bob")],
)
def test_what_is_not_on_the_page_is_named(look: object) -> None:
    with pytest.raises(LookupError, match="expected"):
        look(Page.parse(TEXT))  # type: ignore[operator]


def test_text_without_a_tree_is_no_page() -> None:
    with pytest.raises(ValueError, match="tree"):
        Page.parse("hello")


@given(st.integers(1, 999), st.text(st.characters(exclude_characters="\x00"), max_size=20), st.booleans())
def test_builders_write_what_the_grammar_reads(node: int, text: str, enter: bool) -> None:
    assert parse(Page.click(node)) == Action("click", node)
    assert parse(Page.type_into(node, text, enter)) == Action("type", node, text, enter)
    assert parse(Page.stop(text)).text == text.strip()
