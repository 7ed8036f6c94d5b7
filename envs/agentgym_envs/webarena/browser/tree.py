"""The accessibility tree as WebArena prints it, from whichever browser made it.

``[id] role 'name' property: value ...``, one tab per level. Nameless nodes that only give structure are left out and their children
move up; so is text that already stands in the name of the line above it. Ids count the listed nodes in page order from 1; the text
inside fields comes last in the count, so that typing renumbers nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

#: Properties of Chromium's tree that are not printed; ``url`` and the two behind it are newer than WebArena, the value range is noise.
_HIDDEN = frozenset(
    (
        *("focusable", "editable", "readonly", "level", "settable", "multiline", "invalid", "url", "labelledby", "describedby"),
        *("valuemin", "valuemax", "valuetext", "orientation", "activedescendant", "controls", "owns", "flowto", "details"),
    )
)
#: Roles that are left out if they have neither name nor property: WebArena's list, then what later versions of Chromium add to the tree.
_STRUCTURE = frozenset(
    (
        *("generic", "img", "list", "strong", "paragraph", "banner", "navigation", "Section", "LabelText", "Legend", "listitem", "image"),
        *("main", "contentinfo", "form", "rowgroup", "caption", "emphasis", "DescriptionList", "MenuListPopup", "article", "group"),
        *("code", "time", "blockquote", "region", "figure", "separator", "complementary", "superscript", "subscript", "search", "none"),
    )
)
_NEVER = frozenset(("InlineTextBox", "ListMarker", "LineBreak"))
_FIELDS = frozenset(("textbox", "searchbox", "spinbutton"))
_LOOK_BACK = 3  # lines in which a repeated text is looked for


@dataclass
class AXNode:
    """A node of an accessibility tree; ``ref`` is the browser's own handle on the element."""

    role: str
    name: str = ""
    properties: dict[str, Any] = field(default_factory=dict)
    children: Sequence[AXNode] = ()
    ref: Any = None


@dataclass
class Line:
    """A listed node: its depth, its text (what stands behind the id) and the node; then, numbered, its id and the line as printed."""

    depth: int
    text: str
    node: AXNode
    in_field: bool = False
    id: int = 0
    printed: str = ""

    def __str__(self) -> str:
        return self.printed


def listed(root: AXNode) -> list[Line]:
    """The lines of a tree in page order, numbered."""
    lines: list[Line] = []
    _collect(root, 0, [], False, lines)
    number = 0
    for in_field in (False, True):
        for line in lines:
            if line.in_field == in_field:
                number += 1
                line.id = number
                line.printed = f"{chr(9) * line.depth}[{number}] {line.text}"
    return lines


def _collect(node: AXNode, depth: int, above: list[int], in_field: bool, lines: list[Line]) -> None:
    if node.role in _NEVER:
        return
    name = " ".join(node.name.split())
    shown = _shown(node)
    if _is_listed(node.role, name, shown, [] if in_field else above, lines):
        above = [*above, len(lines)]
        lines.append(Line(depth, f"{node.role} {name!r}{shown}", node, in_field))
        depth += 1
    in_field = in_field or node.role in _FIELDS
    for child in node.children:
        _collect(child, depth, above, in_field, lines)


def _shown(node: AXNode) -> str:
    required_is_noise = node.role in ("columnheader", "rowheader")
    return "".join(
        f" {key}: {value}" for key, value in node.properties.items() if key not in _HIDDEN and not (required_is_noise and key == "required")
    )


def _is_listed(role: str, name: str, shown: str, above: list[int], lines: list[Line]) -> bool:
    if role == "StaticText":
        recent = [i for i in above[-_LOOK_BACK:] if i >= len(lines) - _LOOK_BACK]
        return bool(name) and all(name not in " ".join(lines[i].node.name.split()) for i in recent)
    return bool(name or shown) or role not in _STRUCTURE
