"""Reading an action: ``<search>query</search>`` or ``<answer>text</answer>``, also written ``search[query]`` and ``answer[text]``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

MAX_TEXT = 500  # characters of a query or an answer
MAX_ACTION = 20_000  # characters of a whole reply
USAGE = "write <search>your query</search> or <answer>your answer</answer>"
_TAG = re.compile(r"<(search|answer)>(.*?)</\1>", re.IGNORECASE | re.DOTALL)
_OPEN = re.compile(r"<(search|answer)>", re.IGNORECASE)
_BARE = re.compile(r"(search|answer|finish)\s*\[(.*)\]\s*[.;]?", re.IGNORECASE | re.DOTALL)


class UnreadableAction(ValueError):
    """The reply holds no action that can be carried out; the message goes to the agent."""


@dataclass(frozen=True)
class Action:
    """A query to search for, or a final answer."""

    kind: Literal["search", "answer"]
    text: str


def parse_action(reply: str) -> Action:
    """The first complete tag in the reply, or the whole reply in brackets form (ReAct's ``search[...]``, ``finish[...]``).

    Raises ``UnreadableAction``, whose message tells the agent what was wrong.
    """
    if len(reply) > MAX_ACTION:
        raise UnreadableAction(f"The reply has {len(reply)} characters, at most {MAX_ACTION} are read: {USAGE}.")
    match = _TAG.search(reply) or _BARE.fullmatch(reply.strip())
    if match is None:
        if opened := _OPEN.search(reply):
            tag = opened[1].lower()
            raise UnreadableAction(f"The tag <{tag}> is not closed by </{tag}>: {USAGE}.")
        raise UnreadableAction(f"No action was found: {USAGE}." if reply.strip() else f"The action is empty: {USAGE}.")
    kind: Literal["search", "answer"] = "search" if match[1].lower() == "search" else "answer"
    text = " ".join("".join(c if c.isprintable() else " " for c in match[2]).split())
    if not text:
        raise UnreadableAction(f"The {kind} is empty: {USAGE}.")
    if len(text) > MAX_TEXT:
        raise UnreadableAction(f"The {kind} has {len(text)} characters, at most {MAX_TEXT} are read; make it shorter.")
    return Action(kind, text)
