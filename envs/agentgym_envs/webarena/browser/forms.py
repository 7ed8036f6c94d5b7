"""Forms of a page: controls, labels, what the user has entered, and what a submission sends."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from urllib.parse import quote_plus

from lxml.html import HtmlElement

_TEXT_INPUTS = frozenset(("text", "search", "number", "password", "email", "url", "tel", "date"))
TYPED = _TEXT_INPUTS | {"textarea"}


class Forms:
    """The controls of a page in document order, with their labels and forms."""

    def __init__(self, root: HtmlElement) -> None:
        self.controls = list(root.iter("input", "textarea", "select", "button"))
        self._ids: dict[str, HtmlElement] = {}
        for element in root.iter():
            if isinstance(element.tag, str) and element.get("id"):
                self._ids.setdefault(element.get("id"), element)
        self._labels: dict[HtmlElement, list[HtmlElement]] = {}
        for label in root.iter("label"):
            if (control := self.labelled(label)) is not None:
                self._labels.setdefault(control, []).append(label)

    def kind(self, element: HtmlElement | None) -> str:
        """Kind of control: ``text``, ``number``, ``checkbox``, ``submit``, ``select``, ``textarea`` ...; ``""`` for other elements."""
        if element is None or element.tag not in ("input", "textarea", "select", "button"):
            return ""
        if element.tag == "button":
            return str(element.get("type", "submit")).lower()
        if element.tag == "input":
            kind = str(element.get("type", "text")).lower()
            return kind if kind in _TEXT_INPUTS | {"checkbox", "radio", "hidden", "submit", "button"} else "text"
        return str(element.tag)

    def labelled(self, label: HtmlElement) -> HtmlElement | None:
        """The control that a ``label`` names with ``for`` or holds."""
        if (wanted := label.get("for")) is not None:
            return self._ids.get(wanted)
        return next(label.iter("input", "textarea", "select", "button"), None)

    def labels(self, control: HtmlElement) -> list[HtmlElement]:
        """The labels of a control."""
        return self._labels.get(control, [])

    def owner(self, control: HtmlElement) -> HtmlElement | None:
        """The form that a control belongs to: by its ``form`` attribute, else the one around it."""
        if (wanted := control.get("form")) is not None:
            return self._ids.get(wanted)
        return next(control.iterancestors("form"), None)

    def members(self, form: HtmlElement) -> list[HtmlElement]:
        """The controls of a form."""
        return [control for control in self.controls if self.owner(control) is form]

    def default_button(self, form: HtmlElement) -> HtmlElement | None:
        """The button that Enter in a text field presses."""
        return next((control for control in self.members(form) if self.kind(control) == "submit"), None)

    def group(self, radio: HtmlElement) -> list[HtmlElement]:
        """The radio buttons among which only one is on."""
        form, name = self.owner(radio), radio.get("name")
        return [c for c in self.controls if self.kind(c) == "radio" and c.get("name") == name and self.owner(c) is form]


@dataclass
class FormState:
    """What the user has entered on a page so far, and the focused element."""

    forms: Forms
    values: dict[HtmlElement, str] = field(default_factory=dict)
    checks: dict[HtmlElement, bool] = field(default_factory=dict)
    choices: dict[HtmlElement, HtmlElement] = field(default_factory=dict)
    focus: HtmlElement | None = None

    @property
    def is_pristine(self) -> bool:
        """Whether the page looks as it was served."""
        return self.focus is None and not (self.values or self.checks or self.choices)

    def value(self, control: HtmlElement) -> str:
        """Content of a text field."""
        if control in self.values:
            return self.values[control]
        if control.tag == "textarea":
            return str(control.text or "").removeprefix("\r").removeprefix("\n")
        return str(control.get("value", ""))

    def checked(self, control: HtmlElement) -> bool:
        """Whether a check box or radio button is on; of several radio buttons served as on, the last one is."""
        if control in self.checks:
            return self.checks[control]
        if control.get("checked") is None:
            return False
        if self.forms.kind(control) == "checkbox":
            return True
        return [c for c in self.forms.group(control) if c.get("checked") is not None][-1] is control

    def chosen(self, select: HtmlElement) -> HtmlElement | None:
        """The selected option: the user's, else the last one served as selected, else the first."""
        if select in self.choices:
            return self.choices[select]
        options = list(select.iter("option"))
        return next((o for o in reversed(options) if o.get("selected") is not None), options[0] if options else None)

    def tick(self, control: HtmlElement) -> None:
        """Click on a check box or radio button."""
        if self.forms.kind(control) == "checkbox":
            self.checks[control] = not self.checked(control)
        else:
            self.checks |= {other: other is control for other in self.forms.group(control)}

    def first_invalid(self, form: HtmlElement) -> HtmlElement | None:
        """The first control that keeps the browser from sending the form."""
        return next((c for c in self.forms.members(form) if c.get("disabled") is None and not self._is_valid(c)), None)

    def _is_valid(self, control: HtmlElement) -> bool:
        kind, required = self.forms.kind(control), control.get("required") is not None
        if kind in ("hidden", "submit", "button"):
            return True
        if kind == "checkbox":
            return not required or self.checked(control)
        if kind == "radio":
            group = self.forms.group(control)
            return not any(c.get("required") is not None for c in group) or any(map(self.checked, group))
        if kind == "select":
            chosen = self.chosen(control)
            return not required or (chosen is not None and bool(_option_value(chosen)))
        value = self.value(control)
        if not value:
            return not required
        return kind != "number" or _number_fits(value, control)

    def entries(self, form: HtmlElement, submitter: HtmlElement | None) -> list[tuple[str, str]]:
        """Names and values that a submission sends, in document order."""
        pairs = []
        for control in self.forms.members(form):
            kind, name = self.forms.kind(control), control.get("name")
            if not name or control.get("disabled") is not None or kind == "button" or (kind == "submit" and control is not submitter):
                continue
            if kind in ("checkbox", "radio"):
                if self.checked(control):
                    pairs.append((name, control.get("value", "on")))
            elif kind == "select":
                if (chosen := self.chosen(control)) is not None and chosen.get("disabled") is None:
                    pairs.append((name, _option_value(chosen)))
            elif kind in ("hidden", "submit"):
                pairs.append((name, control.get("value", "")))
            else:
                pairs.append((name, self.value(control)))
        return pairs


def _option_value(option: HtmlElement) -> str:
    value = option.get("value")
    return " ".join(option.text_content().split()) if value is None else str(value)


def as_number(text: str) -> Decimal | None:
    """The value of a number field, or ``None`` for what the browser would not take as one."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() and text.isascii() and not set(text) & set("_+ \t\n") else None


def _number_fits(value: str, control: HtmlElement) -> bool:
    number = as_number(value)
    if number is None:
        return False
    low, high = as_number(control.get("min", "")), as_number(control.get("max", ""))
    if (low is not None and number < low) or (high is not None and number > high):
        return False
    step = control.get("step", "1")
    base = low if low is not None else as_number(control.get("value", "")) or Decimal(0)
    return step == "any" or (number - base) % (as_number(step) or Decimal(1)) == 0


def urlencode(pairs: list[tuple[str, str]]) -> str:
    """``application/x-www-form-urlencoded`` as browsers write it."""
    return "&".join(f"{_encode(name)}={_encode(value)}" for name, value in pairs)


def _encode(text: str) -> str:
    crlf = text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")
    return quote_plus(crlf, safe="*").replace("~", "%7E")
