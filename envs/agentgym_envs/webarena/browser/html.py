"""From HTML to accessibility tree and form data, for the subset of HTML that the sites use (see ``webarena/sites``).

Roles and names follow HTML-AAM and AccName as Chromium implements them; the parity test compares with Chromium page by page.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import lxml.html
from lxml.html import HtmlElement

from agentgym_envs.webarena.browser.forms import Forms, FormState
from agentgym_envs.webarena.browser.tree import AXNode

_ROLES = {
    "main": "main", "nav": "navigation", "p": "paragraph", "ul": "list", "ol": "list", "li": "listitem", "dl": "DescriptionList",
    "dt": "term", "dd": "definition", "table": "table", "caption": "caption", "thead": "rowgroup", "tr": "row", "td": "cell",
    "form": "form", "img": "image", "strong": "strong", "em": "emphasis", "article": "article", "code": "code", "time": "time",
    "blockquote": "blockquote", "fieldset": "group", "legend": "Legend", "hr": "separator", "header": "banner", "footer": "contentinfo",
    "label": "LabelText", "aside": "complementary", "section": "region", "pre": "generic",
} | {f"h{i}": "heading" for i in range(1, 7)}  # fmt: skip
_NAMED_BY_CONTENT = frozenset(("heading", "cell", "columnheader", "rowheader", "term"))
_SKIPPED = frozenset(("head", "script", "style", "template", "noscript", "link", "meta", "title", "br", "datalist"))
_BLOCKS = frozenset(
    (
        *("p", "div", "ul", "ol", "li", "dl", "dt", "dd", "table", "caption", "tr", "td", "th", "section", "article", "aside", "header"),
        *("footer", "nav", "main", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "blockquote", "fieldset", "legend", "br", "hr"),
    )
)


@dataclass
class Document:
    """One parsed page. It never changes: what a user has typed or chosen lives in a :class:`FormState`."""

    url: str
    body: bytes
    root: HtmlElement = field(init=False, repr=False)
    forms: Forms = field(init=False, repr=False)

    def __post_init__(self) -> None:
        text = self.body if self.body.strip() else b"<html></html>"
        self.root = lxml.html.document_fromstring(text, parser=lxml.html.HTMLParser(encoding="utf-8"))
        self.forms = Forms(self.root)
        self.elements = list(self.root.iter())  # lxml keeps the identity of an element only while somebody holds it

    @cached_property
    def title(self) -> str:
        """Text of ``<title>`` with blanks collapsed."""
        return " ".join((self.root.findtext(".//title") or "").split())

    def tree(self, state: FormState) -> AXNode:
        """The accessibility tree with the field contents and the focus of ``state``."""
        return _Builder(self, state).root()


class _Builder:
    def __init__(self, document: Document, state: FormState) -> None:
        self.document, self.forms, self.state = document, document.forms, state

    def root(self) -> AXNode:
        body = self.document.root.find("body")
        children = [] if body is None else self.children(body)
        return AXNode("RootWebArea", self.document.title, {"focused": True}, children, self.document.root)

    def children(self, element: HtmlElement) -> list[AXNode]:
        nodes = self.static(element.text, element)
        for child in element:
            if isinstance(child.tag, str):
                nodes += self.nodes(child)
            nodes += self.static(child.tail, element)
        return nodes

    @staticmethod
    def static(text: str | None, element: HtmlElement) -> list[AXNode]:
        collapsed = " ".join(text.split(" ")) if text and text.strip() else ""
        return [AXNode("StaticText", collapsed, ref=element)] if collapsed else []

    def nodes(self, element: HtmlElement) -> list[AXNode]:
        """The node of an element, or its children if it has no role of its own."""
        tag = element.tag
        if tag in _SKIPPED:
            return []
        if tag in ("input", "textarea", "select", "button"):
            return self.control(element)
        if tag == "label" and self.forms.kind(self.forms.labelled(element)) in ("checkbox", "radio"):
            return []  # Chromium gives its text to the box alone
        label = element.get("aria-label", "")
        if tag == "a":
            if element.get("href") is None:
                return self.children(element)
            return [AXNode("link", label or self.content(element), self.focus(element), self.children(element), element)]
        role = self.header_role(element) if tag == "th" else _ROLES.get(tag, "")
        if not role:
            return self.children(element)
        return [AXNode(role, label or self.name(element, role), {}, self.children(element), element)]

    def name(self, element: HtmlElement, role: str) -> str:
        if role in _NAMED_BY_CONTENT:
            return self.content(element)
        if role == "image":
            return str(element.get("alt", ""))
        source = {"table": "caption", "group": "legend"}.get(role)
        found = element.find(source) if source else None
        return "" if found is None else self.content(found)

    @staticmethod
    def header_role(element: HtmlElement) -> str:
        scope = element.get("scope", "")
        in_head = element.getparent().getparent().tag == "thead"
        only_headers = all(cell.tag == "th" for cell in element.getparent())
        return "columnheader" if scope == "col" or (not scope and (in_head or only_headers)) else "rowheader"

    def control(self, element: HtmlElement) -> list[AXNode]:
        kind = self.forms.kind(element)
        if kind == "hidden":
            return []
        properties: dict[str, object] = {"disabled": True} if element.get("disabled") is not None else {}
        properties |= self.focus(element)
        name = self.control_name(element)
        if kind == "select":
            return [self.combobox(element, name, properties)]
        if kind in ("checkbox", "radio"):
            properties["checked"] = "true" if self.state.checked(element) else "false"
            if kind == "checkbox" and element.get("required") is not None:
                properties["required"] = True
            return [AXNode(kind, name, properties, (), element)]
        if kind in ("submit", "button"):
            children = self.children(element) if element.tag == "button" else [AXNode("StaticText", name, ref=element)]
            return [AXNode("button", name, properties, children, element)]
        role = {"search": "searchbox", "number": "spinbutton"}.get(kind, "textbox")
        if role != "searchbox" or element.get("required") is not None:
            properties["required"] = element.get("required") is not None
        shown = "•" * len(self.state.value(element)) if kind == "password" else self.state.value(element)
        return [AXNode(role, name, properties, [AXNode("StaticText", line, ref=element) for line in shown.splitlines()], element)]

    def combobox(self, element: HtmlElement, name: str, properties: dict[str, object]) -> AXNode:
        chosen = self.state.chosen(element)
        options = [
            AXNode("option", " ".join((option.text_content()).split()), {"selected": option is chosen}, (), option)
            for option in element.iter("option")
        ]
        if element.get("required") is not None:
            properties["required"] = True
        return AXNode("combobox", name, properties | {"hasPopup": "menu", "expanded": False}, options, element)

    def control_name(self, element: HtmlElement) -> str:
        if label := element.get("aria-label"):
            return str(label)
        if labels := self.forms.labels(element):
            return " ".join(self.content(label) for label in labels)
        if element.tag == "button":
            return self.content(element)
        if self.forms.kind(element) == "submit":
            return str(element.get("value", "Submit"))
        return str(element.get("placeholder", ""))

    def focus(self, element: HtmlElement) -> dict[str, object]:
        return {"focused": True} if self.state.focus is element else {}

    def content(self, element: HtmlElement) -> str:
        """Name from content: the text below an element; blocks, controls and alternative texts stand apart by blanks."""
        return " ".join("".join(self.pieces(element)).split())

    def pieces(self, element: HtmlElement) -> Iterator[str]:
        yield element.text or ""
        for child in element:
            if isinstance(child.tag, str):
                yield from self.piece(child)
            yield child.tail or ""

    def piece(self, child: HtmlElement) -> Iterator[str]:
        kind = self.forms.kind(child)
        if kind in ("hidden",) or (child.tag in _SKIPPED and child.tag != "br") or child.tag == "form":
            return
        if label := child.get("aria-label") if kind in ("", "submit", "button", "checkbox", "radio") else None:
            yield f" {label} "
        elif child.tag == "img":
            yield f" {child.get('alt', '')} "
        elif kind == "select":
            chosen = self.state.chosen(child)
            yield f" {'' if chosen is None else chosen.text_content()} "
        elif kind in ("checkbox", "radio") or (child.tag == "input" and kind == "submit"):
            yield f" {self.control_name(child)} "
        elif kind and child.tag != "button":
            yield f" {self.state.value(child)} "
        else:
            apart = " " if child.tag in _BLOCKS or child.tag == "button" else ""
            yield apart
            yield from self.pieces(child)
            yield apart
