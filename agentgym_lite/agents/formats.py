"""How an action is written inside a reply, and how it is read back."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class ParsedAction:
    """What a reply says: the ``action`` (None if it cannot be told), the ``thought`` before it, and the ``error`` to show the agent."""

    action: str | None
    thought: str = ""
    error: str | None = None


class ActionFormat(Protocol):
    """A way to write one thought and one action as text. ``parse(render(thought, action))`` gives both back."""

    #: How to reply, for the system message.
    reply_rules: str

    def system_prompt(self, instructions: str) -> str:
        """The system message: an environment's rules, with this form in place of the ReAct form that they end in."""
        return f"{without_react_form(instructions)}\n\n{self.reply_rules}"

    def parse(self, reply: str) -> ParsedAction:
        """Read a reply; never raises. Exactly one of ``action`` and ``error`` is set."""

    def render(self, thought: str, action: str) -> str:
        """Write a reply."""


#: A label at the start of a line in any case, with Markdown marks around it, or ``Action:`` spelled exactly so inside a line.
#: Possessive repeats keep the search linear in the length of the reply.
_ACTION = re.compile(r"(?:^[ \t*_#>]*+(?i:action)|\bAction)[ \t*_]*+:[*_]*+", re.MULTILINE)
_THOUGHT = re.compile(r"[\s*_#>]*+thought[ \t*_]*+:[*_]*+", re.IGNORECASE)
_STOP_TEXT = re.compile(r"<\|\w{1,32}\|>|</s>")
#: What introduces the ReAct form in an environment's instructions (to the end of its line, a colon), and the two lines of the form.
_REACT_FORM = re.compile(r"[ \t]*[^.\n]*:[ \t]*\nThought:[^\n]*\nAction:[^\n]*(?:\n|\Z)")


def without_react_form(instructions: str) -> str:
    """Instructions without the sentence and the two lines that ask for ``Thought:`` and ``Action:``."""
    return _REACT_FORM.sub("\n", instructions).strip()


def before_stop(reply: str) -> str:
    """The reply up to the first stop token that it spells out."""
    return _STOP_TEXT.split(reply, maxsplit=1)[0].strip()


def one_line(text: str) -> str:
    """The text with every run of white space as one space: actions are single lines."""
    return " ".join(text.split())


class ReAct(ActionFormat):
    """``Thought: ...`` and ``Action: ...``, on one line each or with the text below the label (Yao et al., arXiv 2210.03629).

    The action is the first line that is not blank after the label, without quotes or backticks around it and without stop tokens
    behind it. A reply must hold exactly one action.
    """

    example = "Thought: <why>\nAction: <one action>"
    reply_rules = f"Reply with one action, in this form:\n{example}"

    def system_prompt(self, instructions: str) -> str:
        """The instructions as they are: environments ask for this form."""
        return instructions

    def parse(self, reply: str) -> ParsedAction:
        labels = list(_ACTION.finditer(reply))
        if not labels:
            return ParsedAction(None, _thought(reply), f"Your reply has no 'Action:' line. Reply in this form:\n{self.example}")
        thought = _thought(reply[: labels[0].start()])
        if len(labels) > 1:
            return ParsedAction(
                None, thought, f"Your reply has {len(labels)} actions; give exactly one. Reply in this form:\n{self.example}"
            )
        action = _first_line(reply, labels[0].end())
        if not action:
            return ParsedAction(None, thought, f"Your reply has nothing after 'Action:'. Reply in this form:\n{self.example}")
        return ParsedAction(action, thought)

    def render(self, thought: str, action: str) -> str:
        return f"Thought: {thought}\nAction: {action}" if thought else f"Action: {action}"


def _thought(text: str) -> str:
    label = _THOUGHT.match(text)
    return text[label.end() if label else 0 :].strip()


def _first_line(text: str, start: int) -> str:
    for line in text[start:].splitlines():
        if cleaned := _unquote(_STOP_TEXT.split(line, maxsplit=1)[0]):
            return cleaned
    return ""


def _unquote(text: str) -> str:
    """Without backticks at the ends, a pair of quotes around the whole, or one quote that has no partner."""
    text = text.strip(" \t`")
    for quote in "\"'":
        count = text.count(quote)
        if count == 2 and text[0] == text[-1] == quote:
            text = text[1:-1].strip()
        elif count % 2:
            text = (text[1:] if text[0] == quote else text.removesuffix(quote)).strip()
    return text
