"""What the environment asks of a browser, and the part of WebArena's actions that is equal in all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from agentgym_envs.webarena.actions import MAX_TEXT, Action, ActionError
from agentgym_envs.webarena.browser.forms import as_number
from agentgym_envs.webarena.browser.tree import Line

#: Lines of the tree that are shown at a time: a scroll moves by as many. More than any page of the miniature has.
VIEWPORT = 200
MAX_TABS = 8
BLANK = "about:blank"
#: Keys that ``press`` takes; Chromium's names, lower case.
KEYS = ("enter", "tab", "shift+tab", "space", "escape", "pagedown", "pageup")
_TYPED_ROLES = frozenset(("textbox", "searchbox", "spinbutton"))


@dataclass(frozen=True)
class View:
    """What is shown of the browser: titles of the tabs, the current tab's URL and the listed lines of its tree."""

    titles: tuple[str, ...]
    current: int
    url: str
    lines: Sequence[Line]
    offset: int
    size: int

    @property
    def window(self) -> Sequence[Line]:
        """The root and the lines in the viewport."""
        return [*self.lines[:1], *self.lines[1 + self.offset : 1 + self.offset + self.size]]

    @property
    def text(self) -> str:
        """The observation in WebArena's form: tabs, blank line, tree."""
        tabs = " | ".join(f"Tab {i}{' (current)' if i == self.current else ''}: {title}" for i, title in enumerate(self.titles))
        return "\n".join([tabs, "", *(line.printed for line in self.window)])


class Browser(ABC):
    """Tabs, their history and their pages. Every method that acts raises :class:`ActionError` on what cannot be done."""

    #: Whether ``evaluate`` works.
    has_scripts = False

    def __init__(self, viewport: int = VIEWPORT) -> None:
        self.viewport = viewport

    @abstractmethod
    def open(self, url: str) -> None:
        """Go to ``url`` in the current tab."""

    @abstractmethod
    def view(self) -> View:
        """The current tab as shown."""

    @abstractmethod
    def html(self, url: str = "") -> str:
        """HTML of the current page or, without disturbing it, of another one."""

    def evaluate(self, script: str, url: str = "") -> str:
        """Value of a JavaScript expression on the current page or on ``url``, as text."""
        raise NotImplementedError(f"{type(self).__name__} runs no JavaScript: choose browser='chromium' for {script!r:.80}")

    def screenshot(self) -> bytes | None:
        """PNG of the current page, if the browser draws pages."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Free everything. Safe to call twice."""

    def act(self, action: Action) -> None:
        """Carry out one action other than ``stop``."""
        match action.verb:
            case "click":
                self._click(self._visible(action.target))
            case "hover":
                self._hover(self._visible(action.target))
            case "type":
                self._type_checked(self._visible(action.target), action.text, action.enter)
            case "press":
                self._press_checked(action.text)
            case "scroll":
                self._scroll(1 if action.text == "down" else -1)
            case "goto":
                self.open(action.text)
            case "new_tab":
                if len(self.view().titles) >= MAX_TABS:
                    raise ActionError(f"expected at most {MAX_TABS} tabs: close one with close_tab first")
                self._new_tab()
            case "tab_focus":
                if not 0 <= action.target < len(self.view().titles):
                    raise ActionError(f"expected a tab from 0 to {len(self.view().titles) - 1}, found {action.target}")
                self._focus_tab(action.target)
            case "close_tab":
                self._close_tab()
            case "go_back":
                self._travel(-1)
            case "go_forward":
                self._travel(1)
            case _:
                raise ActionError(f"the browser has no action {action.verb!r}")

    def _visible(self, node_id: int) -> Line:
        view = self.view()
        for line in view.window:
            if line.id == node_id:
                return line
        raise ActionError(f"expected the id of an element that is shown, found [{node_id}]")

    def _type_checked(self, line: Line, text: str, enter: bool) -> None:
        role = line.node.role
        if role not in _TYPED_ROLES:
            raise ActionError(f"expected a textbox, searchbox or spinbutton to type into, found {role} [{line.id}]")
        if line.node.properties.get("disabled"):
            raise ActionError(f"{role} [{line.id}] is disabled")
        if len(text) > MAX_TEXT:
            raise ActionError(f"expected at most {MAX_TEXT} characters to type, found {len(text)}")
        text = "".join(c for c in text if c == "\n" or c.isprintable())
        if role == "spinbutton" and text and as_number(text) is None:
            raise ActionError(f"expected a number for {role} [{line.id}], found {text!r:.40}")
        self._type(line, text, enter)

    def _press_checked(self, keys: str) -> None:
        key = keys.replace(" ", "").lower()
        if key not in KEYS:
            raise ActionError(f"expected one of the keys {', '.join(KEYS)}, found {keys!r:.40}")
        if key in ("pagedown", "pageup"):
            self._scroll(1 if key == "pagedown" else -1)
        else:
            self._press(key)

    def _scroll(self, direction: int) -> None:
        view = self.view()
        last = max(0, len(view.lines) - 1 - view.size)
        self._set_offset(min(max(view.offset + direction * view.size, 0), last))

    @abstractmethod
    def _set_offset(self, offset: int) -> None: ...

    @abstractmethod
    def _click(self, line: Line) -> None: ...

    @abstractmethod
    def _hover(self, line: Line) -> None: ...

    @abstractmethod
    def _type(self, line: Line, text: str, enter: bool) -> None: ...

    @abstractmethod
    def _press(self, key: str) -> None: ...

    @abstractmethod
    def _new_tab(self) -> None: ...

    @abstractmethod
    def _focus_tab(self, index: int) -> None: ...

    @abstractmethod
    def _close_tab(self) -> None: ...

    @abstractmethod
    def _travel(self, steps: int) -> None: ...
