"""A page as an agent sees it: the observation's tabs, tree and URL, parsed back from the text, and builders of actions on it.

Experts work with this alone, so whatever they find stands in the observation that a language model gets.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

_LINE = re.compile(r"""(\t*)\[(\d+)\] (\S+) ('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")((?: [A-Za-z]+: .*)?)""")
_PROPERTY = re.compile(r" ([A-Za-z]+): (.*?)(?= [A-Za-z]+: |$)")
_CELLS = frozenset(("cell", "gridcell", "columnheader", "rowheader"))

Name = str | re.Pattern[str] | None


@dataclass
class Node:
    """One line of the tree: ``[id] role 'name' property: value ...``, with the lines below it as ``children``."""

    id: int
    role: str
    name: str
    properties: dict[str, str]
    depth: int
    parent: Node | None = field(default=None, repr=False)
    children: list[Node] = field(default_factory=list, repr=False)

    def walk(self) -> Iterator[Node]:
        """The node and everything below it, in the order of the page."""
        yield self
        for child in self.children:
            yield from child.walk()

    @cached_property
    def text(self) -> str:
        """Its name or, if it has none, the texts below it, joined by blanks. The text of a filled input is its content."""
        if self.name and self.role not in ("textbox", "searchbox", "spinbutton"):
            return self.name
        return " ".join(filter(None, (child.text for child in self.children)))

    def matches(self, role: str | None, name: Name) -> bool:
        """Whether the role is equal and the name is equal (``str``) or contains a match (pattern); ``None`` accepts any."""
        if role is not None and self.role != role:
            return False
        return name is None or (self.name == name if isinstance(name, str) else bool(name.search(self.name)))

    def find(self, role: str | None = None, name: Name = None, nth: int = 0) -> int:
        """Id of the ``nth`` matching node below (or at) this one. Raises ``LookupError``."""
        found = [node.id for node in self.walk() if node.matches(role, name)]
        if -len(found) <= nth < len(found):
            return found[nth]
        wanted = name.pattern if isinstance(name, re.Pattern) else name
        raise LookupError(
            f"expected a {role or 'node'} named {wanted!r} (number {nth}) within {self.role} {self.name!r}, found {len(found)}"
        )


@dataclass
class Row(Node):
    """A row of a table; ``cells`` are its cells."""

    @property
    def cells(self) -> list[Node]:
        """The cells (headers included), in order."""
        return [child for child in self.children if child.role in _CELLS]

    @property
    def texts(self) -> list[str]:
        """Text of each cell."""
        return [cell.text for cell in self.cells]


@dataclass(frozen=True)
class Page:
    """A parsed observation.

    Usual moves of an expert: ``yield page.click(page.find("link", "My orders"))``; ``for row in page.rows(): row.texts``;
    ``yield page.type_into(page.find("textbox", "Search"), "lamp", enter=True)``; ``yield page.stop("42")``.
    """

    text: str
    url: str
    tabs: tuple[str, ...]
    current_tab: int
    nodes: tuple[Node, ...]

    @classmethod
    def parse(cls, text: str) -> Page:
        """Read an observation's text. Raises ``ValueError`` if it holds no tree."""
        tabs, current, url = _tabs(text)
        nodes: list[Node] = []
        open_nodes: list[Node] = []
        for match in filter(None, map(_LINE.fullmatch, text.split("\n"))):
            depth = len(match[1])
            open_nodes = [node for node in open_nodes if node.depth < depth]
            parent = open_nodes[-1] if open_nodes else None
            kind = Row if match[3] == "row" else Node
            node = kind(int(match[2]), match[3], _unquoted(match[4]), dict(_PROPERTY.findall(match[5])), depth, parent)
            if parent:
                parent.children.append(node)
            open_nodes.append(node)
            nodes.append(node)
        if not nodes:
            raise ValueError(f"expected an observation with a tree, found {text!r:.200}")
        return cls(text, url, tabs, current, tuple(nodes))

    @property
    def title(self) -> str:
        """Title of the page."""
        return self.nodes[0].name

    def node(self, node_id: int) -> Node:
        """The node with that id. Raises ``LookupError``."""
        for node in self.nodes:
            if node.id == node_id:
                return node
        raise LookupError(f"expected a node [{node_id}] on {self.url}, found none")

    def find_all(self, role: str | None = None, name: Name = None) -> list[Node]:
        """Every node with that role and name (a string is the whole name, a pattern is searched for), in the order of the page."""
        return [node for node in self.nodes if node.matches(role, name)]

    def has(self, role: str | None = None, name: Name = None) -> bool:
        """Whether :meth:`find` would find something."""
        return any(node.matches(role, name) for node in self.nodes)

    def find(self, role: str | None = None, name: Name = None, nth: int = 0) -> int:
        """Id of the ``nth`` node with that role and name. Raises ``LookupError``."""
        found = self.find_all(role, name)
        if -len(found) <= nth < len(found):
            return found[nth].id
        wanted = name.pattern if isinstance(name, re.Pattern) else name
        raise LookupError(f"expected a {role or 'node'} named {wanted!r} (number {nth}) on {self.url}, found {len(found)} in\n{self.text}")

    def rows(self, table: Name = None) -> list[Row]:
        """Body rows (those with a ``cell``) of the tables with that name (``None``: of all tables)."""
        return [
            row
            for node in self.find_all("table", table)
            for row in node.walk()
            if isinstance(row, Row) and any(cell.role in ("cell", "gridcell") for cell in row.cells)
        ]

    def headers(self, table: Name = None) -> list[str]:
        """Column headers of the first table with that name. Raises ``LookupError``."""
        return [node.name for node in self.node(self.find("table", table)).walk() if node.role == "columnheader"]

    def row(self, *texts: str, table: Name = None) -> Row:
        """The first body row that has all these cell texts. Raises ``LookupError``."""
        for row in self.rows(table):
            if all(text in row.texts for text in texts):
                return row
        raise LookupError(f"expected a row with {texts} on {self.url}, found {[row.texts for row in self.rows(table)]}")

    def value(self, term: str) -> str:
        """Text of the ``definition`` (``dd``) that follows the ``term`` (``dt``) with that text. Raises ``LookupError``."""
        listed = [node for node in self.nodes if node.role in ("term", "definition")]
        for node, following in pairwise(listed):
            if node.role == "term" and node.text == term and following.role == "definition":
                return following.text
        raise LookupError(f"expected a term {term!r} with its definition on {self.url}, found {[n.text for n in listed]}")

    @staticmethod
    def click(node_id: int) -> str:
        """``click [id]``"""
        return f"click [{node_id}]"

    @staticmethod
    def type_into(node_id: int, text: str, enter: bool = False) -> str:
        """``type [id] [text] [1]`` if Enter is to follow, else ``[0]``. What the field held is replaced."""
        return f"type [{node_id}] [{text}] [{int(enter)}]"

    @staticmethod
    def goto(url: str) -> str:
        """``goto [url]``"""
        return f"goto [{url}]"

    @staticmethod
    def scroll(direction: str = "down") -> str:
        """``scroll [up|down]``"""
        return f"scroll [{direction}]"

    @staticmethod
    def go_back() -> str:
        """``go_back``"""
        return "go_back"

    @staticmethod
    def stop(answer: str = "") -> str:
        """``stop [answer]``"""
        return f"stop [{answer}]"


def _unquoted(literal: str) -> str:
    return str(ast.literal_eval(literal)) if "\\" in literal else literal[1:-1]


def _tabs(text: str) -> tuple[tuple[str, ...], int, str]:
    """Tab titles, the current tab and the URL of an observation."""
    lines = text.split("\n")
    url = next((line.removeprefix("URL: ") for line in lines if line.startswith("URL: ")), "")
    line = next((line for line in lines if line.startswith("Tab 0")), "")
    tabs = re.findall(r"Tab \d+( \(current\))?: (.*?)(?= \| Tab \d+(?: \(current\))?: |$)", line)
    current = next((i for i, (mark, _) in enumerate(tabs) if mark), 0)
    return tuple(title for _, title in tabs), current, url
