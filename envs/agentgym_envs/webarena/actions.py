"""WebArena's action grammar (Zhou et al. 2024, table 1): text to :class:`Action`.

Quirks kept: the verb is what stands before the first bracket; a missing Enter flag of ``type`` means 1; ``scroll`` takes its direction with
or without brackets; ``stop`` needs no answer; text after the closing bracket is passed over.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_TEXT = 2000  # characters of typed text, an URL or an answer
_BLOCK = re.compile(r"```(.+?)```", re.DOTALL)
_ID = re.compile(r"\[\s*(\d{1,9})\s*\]", re.ASCII)
_TYPE = re.compile(r"type\s*\[\s*(\d{1,9})\s*\]\s*\[(.*)\]\s*\[\s*([01])\s*\]", re.ASCII | re.DOTALL | re.IGNORECASE)
_BRACKETS = re.compile(r"\[(.*)\]", re.DOTALL)
#: Each verb with how it is written.
USAGE = {
    "click": "click [id]",
    "hover": "hover [id]",
    "type": "type [id] [text] [1], or [0] to leave out Enter",
    "press": "press [key]",
    "scroll": "scroll [down] or scroll [up]",
    "goto": "goto [url]",
    "new_tab": "new_tab",
    "tab_focus": "tab_focus [number]",
    "close_tab": "close_tab",
    "go_back": "go_back",
    "go_forward": "go_forward",
    "stop": "stop [answer]",
}


class ActionError(Exception):
    """The action cannot be read or carried out; the message goes to the agent."""


@dataclass(frozen=True)
class Action:
    """One action: ``target`` is a node id or tab number, ``text`` what is typed, pressed, visited or answered."""

    verb: str
    target: int = 0
    text: str = ""
    enter: bool = False


def extract(reply: str) -> str:
    """The action within a reply: the first block in triple back-ticks, else the whole text."""
    match = _BLOCK.search(reply)
    return (match[1] if match else reply).strip().strip("`").strip()


def parse(text: str) -> Action:
    """Read one action. Raises :class:`ActionError` saying what was expected."""
    verb = text.partition("[")[0].strip().lower()
    if verb.startswith("scroll "):
        verb, text = "scroll", f"scroll [{verb.removeprefix('scroll ').strip()}]"
    if verb not in USAGE:
        raise ActionError(f"expected one of the actions {', '.join(USAGE)}, found {_short(text)}")
    if len(text) > MAX_TEXT + 40:
        raise ActionError(f"expected at most {MAX_TEXT} characters, found {len(text)}")
    if verb in ("new_tab", "close_tab", "go_back", "go_forward"):
        return Action(verb)
    if verb == "type":
        return _parse_type(text)
    if verb in ("click", "hover", "tab_focus"):
        if match := _ID.search(text):
            return Action(verb, int(match[1]))
        raise ActionError(f"expected {USAGE[verb]}, found {_short(text)}")
    match = _BRACKETS.search(text)
    argument = match[1].strip() if match else ""
    if verb == "scroll":
        if argument.lower() not in ("up", "down"):
            raise ActionError(f"expected {USAGE[verb]}, found {_short(text)}")
        return Action(verb, text=argument.lower())
    if not argument and verb != "stop":
        raise ActionError(f"expected {USAGE[verb]}, found {_short(text)}")
    return Action(verb, text=argument)


def _parse_type(text: str) -> Action:
    match = _TYPE.match(text) or _TYPE.match(f"{text} [1]")
    if match is None:
        raise ActionError(f"expected {USAGE['type']}, found {_short(text)}")
    return Action("type", int(match[1]), match[2], match[3] == "1")


def _short(text: str) -> str:
    """The agent's own words, at most 60 characters, safe to print on one line."""
    clean = "".join(c if c.isprintable() else "?" for c in text)
    return repr(clean if len(clean) <= 60 else f"{clean[:60]}...")
