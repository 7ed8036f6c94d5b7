"""From HTML to the printed accessibility tree. What Chromium gives for the same pages is compared in ``test_webarena_browser_parity``."""

from __future__ import annotations

import pytest

from agentgym_envs.webarena.browser.forms import FormState
from agentgym_envs.webarena.browser.html import Document
from agentgym_envs.webarena.browser.tree import AXNode, listed


def lines(body: str) -> list[str]:
    """Printed lines of a page with that body, without the root."""
    document = Document("http://tiny.test/", f"<html><head><title> A  title </title></head><body>{body}</body></html>".encode())
    printed = [str(line) for line in listed(document.tree(FormState(document.forms)))]
    assert printed[0] == "[1] RootWebArea 'A title' focused: True"
    return [line.removeprefix("\t") for line in printed[1:]]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('<a href="/x">My  <b>o</b>rders</a>', ["[2] link 'My orders'"]),
        ("<a>no link</a>", ["[2] StaticText 'no link'"]),
        ("<p>one <strong>two</strong></p><p>  </p>", ["[2] StaticText 'one'", "[3] StaticText 'two'"]),
        ('<nav aria-label="Site"><ul><li><a href="/">Home</a></li></ul></nav>', ["[2] navigation 'Site'", "\t[3] link 'Home'"]),
        ("<h2>It's <em>late</em></h2>", ['[2] heading "It\'s late"']),
        ('<img alt="A lamp" src="/l.png">', ["[2] image 'A lamp'"]),
        (
            '<label for="q">Find</label><input id="q" name="q" placeholder="x" value="ab">',
            ["[2] StaticText 'Find'", "[3] textbox 'Find' required: False", "\t[4] StaticText 'ab'"],
        ),
        ('<input aria-label="Q" type="search">', ["[2] searchbox 'Q'"]),
        ('<input aria-label="N" type="number" value="3" required>', ["[2] spinbutton 'N' required: True", "\t[3] StaticText '3'"]),
        ('<input aria-label="P" type="password" value="abc">', ["[2] textbox 'P' required: False", "\t[3] StaticText '•••'"]),
        ('<label for="c">Yes</label><input type="checkbox" id="c" checked>', ["[2] checkbox 'Yes' checked: true"]),
        ('<input type="radio" name="r" aria-label="R" disabled>', ["[2] radio 'R' disabled: True checked: false"]),
        (
            '<textarea aria-label="T">\none\n\ntwo</textarea>',
            ["[2] textbox 'T' required: False", "\t[3] StaticText 'one'", "\t[4] StaticText 'two'"],
        ),
        (
            '<select aria-label="S"><option>a<option value="2" selected>b</select>',
            ["[2] combobox 'S' hasPopup: menu expanded: False", "\t[3] option 'a' selected: False", "\t[4] option 'b' selected: True"],
        ),
        ("<button>Go</button><input type='submit' value='Send'><input type='hidden' value='h'>", ["[2] button 'Go'", "[3] button 'Send'"]),
        ('<button aria-label="Close">x</button>', ["[2] button 'Close'", "\t[3] StaticText 'x'"]),
        ("<dl><dt>Total</dt><dd>$5</dd></dl>", ["[2] term 'Total'", "[3] definition ''", "\t[4] StaticText '$5'"]),
        ("<section><p>x</p></section>", ["[2] StaticText 'x'"]),
    ],
)  # fmt: skip
def test_elements(body: str, expected: list[str]) -> None:
    assert lines(body) == expected


def test_table_cells_are_named_by_all_they_hold() -> None:
    body = """<table><caption>Cart</caption><thead><tr><th>Item</th><th>Qty</th></tr></thead><tbody>
    <tr><td><p>Red</p><p>lamp</p></td><td><input aria-label="Qty" value="2"> <a href="/r">Remove</a></td></tr>
    <tr><td></td><td><img alt="None" src="/n"></td></tr></tbody></table>"""
    assert lines(body) == [
        "[2] table 'Cart'",
        "\t[3] row ''",
        "\t\t[4] columnheader 'Item'",
        "\t\t[5] columnheader 'Qty'",
        "\t[6] row ''",
        "\t\t[7] cell 'Red lamp'",
        "\t\t[8] cell '2 Remove'",
        "\t\t\t[9] textbox 'Qty' required: False",
        "\t\t\t\t[15] StaticText '2'",
        "\t\t\t[10] link 'Remove'",
        "\t[11] row ''",
        "\t\t[12] cell ''",
        "\t\t[13] cell 'None'",
        "\t\t\t[14] image 'None'",
    ]


def test_typing_renumbers_nothing() -> None:
    document = Document("http://t.test/", b"<title>T</title><body><input aria-label='A'><a href='/'>B</a></body>")
    state = FormState(document.forms)
    before = {line.node.ref: line.id for line in listed(document.tree(state))}
    state.values[document.forms.controls[0]] = "typed"
    after = listed(document.tree(state))
    assert [line.text for line in after if line.in_field] == ["StaticText 'typed'"]
    assert {line.node.ref: line.id for line in after if not line.in_field} == before


def test_structure_is_left_out_and_children_move_up() -> None:
    text = AXNode("StaticText", "hi")
    tree = AXNode("RootWebArea", "", {"focused": True}, [AXNode("generic", "", {}, [AXNode("list", "", {"level": 1}, [text])])])
    assert [str(line) for line in listed(tree)] == ["[1] RootWebArea '' focused: True", "\t[2] StaticText 'hi'"]


def test_text_is_left_out_only_if_a_line_above_it_says_it() -> None:
    """WebArena leaves it out after any line that contains it, so that a 1 after 'Rating 1 of 5' is lost."""
    inside = AXNode("link", "Order 15", {}, [AXNode("StaticText", "Order 15")])
    tree = AXNode("RootWebArea", "R", {}, [inside, AXNode("StaticText", "15")])
    assert [line.text for line in listed(tree)] == ["RootWebArea 'R'", "link 'Order 15'", "StaticText '15'"]
