"""Conversation to token ids, one turn at a time, for any tokenizer with a chat template.

A reply that was sampled is never decoded and encoded again (token in, token out). After a reply only what the template puts behind it
is tokenised: the end-of-turn token if it was not sampled, the separator, the observation and the next generation prompt. The text of
these comes from the template itself, rendered over a stand-in for the older history, so a turn costs time in its own length only.

Templates that change history (strip ``<think>`` from past replies, mark only the last message, ...) are found by rendering, not by
name: the renderer then returns the whole new prompt, and the caller starts a new token row with it.

Special tokens come only from the template. Where an observation or a reply spells one out, its text is cut behind the first character
before it is encoded, so that ``<|im_end|>`` in an item's name stays ten plain characters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from jinja2 import TemplateError

Message = dict[str, str]

#: Stand-ins for real contents: short, without white space, and told apart when searched for in a rendering.
_USER, _REPLY = "uQ1z", "rQ2z"
#: A reply of each kind that templates are known to treat differently once it has become history.
_PROBES = (_REPLY, f"<think>\n{_USER}\n</think>\n\n{_REPLY}")
#: A Unicode noncharacter: marks the places where a text is cut before encoding.
_CUT = "\ufdd0"


@dataclass(frozen=True)
class TurnDelta:
    """What follows a sampled reply: ``ids`` to append to the row, or the whole new prompt if ``rewrote_history``."""

    ids: list[int]
    rewrote_history: bool


class ChatRenderer:
    """Builds token ids from messages with the chat template of a ``transformers`` tokenizer.

    ``stop_ids`` are the tokens that end a reply: the special token that the template puts behind an assistant message and, if it is
    another one, the tokenizer's end-of-sequence token. ``end_of_turn`` is the first of them. A template that refuses system messages
    gets them at the head of the first user message.

    Raises ``ValueError`` if the tokenizer has no chat template, or one that does not end assistant messages with a special token.
    """

    def __init__(self, tokenizer: Any) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise ValueError(
                f"expected a tokenizer with a chat template, found none on {type(tokenizer).__name__}; set tokenizer.chat_template"
            )
        self.tokenizer = tokenizer
        added = {str(token): (i, token) for i, token in tokenizer.added_tokens_decoder.items() if len(str(token)) > 1}
        self._ids = {text: i for text, (i, _) in added.items()}
        self._any_added = _alternatives(list(added))
        self._control = _alternatives([text for text, (_, token) in added.items() if token.special])
        self._append_only: dict[tuple[str, ...], bool] = {}
        self._takes_system = self._accepts(("system", "user"))
        self._end_text = self._find_end_of_turn()
        self.end_of_turn: int = self._ids[self._end_text]
        eos = tokenizer.eos_token_id
        self.stop_ids: tuple[int, ...] = (self.end_of_turn,) if eos in (None, self.end_of_turn) else (self.end_of_turn, eos)

    def opening(self, messages: Sequence[Message]) -> list[int]:
        """Ids of the whole conversation ``messages`` and the prompt for the next reply."""
        cut = self._cut_for(messages)
        return self._encode(self._render([self._guard(m, cut) for m in messages]), cut)

    def next_turn(self, messages: Sequence[Message], reply_ids: Sequence[int], finished_by_stop: bool) -> TurnDelta:
        """Ids that come after the reply just sampled.

        ``messages`` ends with that reply as text (``decode(reply_ids)``) and the new observation. White space that a template trims
        from the ends of a reply does not count as a change of history: the row keeps what was sampled. Raises ``ValueError`` if
        ``messages`` does not end with an assistant and a user message.
        """
        if len(messages) < 3 or messages[-2]["role"] != "assistant" or messages[-1]["role"] == "assistant":
            raise ValueError(
                f"expected messages that end with a reply and an observation, found roles {[m['role'] for m in messages[-2:]]}"
            )
        reply, observation = messages[-2], messages[-1]
        cut = self._cut_for([observation])
        text = self._after_reply(_head_roles(messages), reply, self._guard(observation, cut))
        if text is None:
            return TurnDelta(self.opening(messages), rewrote_history=True)
        if finished_by_stop and reply_ids and reply_ids[-1] == self.end_of_turn:
            # Encoded together with the end token, then dropped: what follows a special token must not be taken for the start of a text.
            return TurnDelta(self._encode(text[text.index(self._end_text) :], cut)[1:], rewrote_history=False)
        return TurnDelta(self._encode(text, cut), rewrote_history=False)

    def reply(self, text: str, whole: bool = True) -> list[int]:
        """Ids of a reply given as text, with its end-of-turn token if it is ``whole``: what a policy that said it would have sampled.

        Control tokens that the text spells out stay plain characters.
        """
        message = {"role": "assistant", "content": text}
        cut = self._cut_for([message])
        # Encoded behind a special token: some tokenizers add a space to the start of a text.
        ids = self._encode(self._end_text + self._guard(message, cut)["content"], cut)[1:]
        return [*ids, self.end_of_turn] if whole else ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of a sampled reply, without the stop token at its end."""
        ids = list(ids)
        if ids and ids[-1] in self.stop_ids:
            ids = ids[:-1]
        text: str = self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    def _render(self, messages: Sequence[Message]) -> str:
        if not self._takes_system:
            messages = _merge_system(messages)
        text: str = self.tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
        return text

    def _accepts(self, roles: tuple[str, ...]) -> bool:
        try:
            self.tokenizer.apply_chat_template([_stand_in(role) for role in roles], tokenize=False)
        except TemplateError:
            return False
        return True

    def _after_reply(self, head: tuple[str, ...], reply: Message, observation: Message) -> str | None:
        """Template text from the end of the reply to the next generation prompt; None if history would change."""
        if not self._is_append_only(head):
            return None
        opening = [_stand_in(role) for role in head]
        before = self._render(opening)
        after = self._render([*opening, reply, observation])
        said = reply["content"]
        for kept in (said, said.rstrip(), said.lstrip(), said.strip()):
            if after.startswith(before + kept):
                return after[len(before) + len(kept) :]
        return None

    def _is_append_only(self, head: tuple[str, ...]) -> bool:
        """Whether messages older than the last reply stay as they are when the conversation grows."""
        if head not in self._append_only:
            grown = [[self._render(_conversation(head, probe, turns)) for turns in (1, 2, 3, 4)] for probe in _PROBES]
            self._append_only[head] = all(later.startswith(earlier) for texts in grown for earlier, later in pairwise(texts))
        return self._append_only[head]

    def _find_end_of_turn(self) -> str:
        try:
            text = self._render(_conversation(("user",), _REPLY, turns=1))
        except TemplateError as e:
            raise ValueError(f"expected a chat template for messages with text contents, found one that fails on them: {e}") from None
        after = text.rpartition(_REPLY)[2].rpartition(_USER)[0]
        match = self._any_added.search(after)
        if match is None:
            raise ValueError(
                f"expected a chat template that shows text and ends an assistant message with a special token, found {text!r:.300}; "
                "add the token to the tokenizer and the template"
            )
        return match.group(1)

    def _guard(self, message: Message, cut: str) -> Message:
        """The message with every special token that its content spells out marked for cutting.

        A reply may hold tokens that are not control tokens, such as ``</think>``: the policy sampled them and the template acts on them.
        """
        pattern = self._control if message["role"] == "assistant" else self._any_added
        return {**message, "content": pattern.sub(lambda m: m.group() + cut, message["content"])}

    def _cut_for(self, messages: Sequence[Message]) -> str:
        cut = _CUT
        while any(cut in m["content"] for m in messages):
            cut += _CUT
        return cut

    def _encode(self, text: str, cut: str) -> list[int]:
        first, *rest = text.split(cut)
        ids: list[int] = self.tokenizer.encode(first, add_special_tokens=False)
        for piece in rest:  # behind a special token, which is dropped, so that no piece is taken for the start of a text
            ids += self.tokenizer.encode(self._end_text + piece, add_special_tokens=False)[1:]
        return ids


def _alternatives(texts: list[str]) -> re.Pattern[str]:
    """Matches the first character of each of the texts; group 1 is the whole text (the longest that fits)."""
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile(f"(?=({'|'.join(map(re.escape, longest_first))}))." if texts else "(?!)", re.DOTALL)


def _head_roles(messages: Sequence[Message]) -> tuple[str, ...]:
    roles = [m["role"] for m in messages]
    return tuple(roles[: roles.index("assistant")])


def _stand_in(role: str) -> Message:
    return {"role": role, "content": _USER}


def _merge_system(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages with the system message put at the head of the first user message."""
    if len(messages) < 2 or messages[0]["role"] != "system":
        return messages
    system, first, *rest = messages
    return [{**first, "content": f"{system['content']}\n\n{first['content']}"}, *rest]


def _conversation(head: tuple[str, ...], reply: str, turns: int) -> list[Message]:
    turn = [{"role": "assistant", "content": reply}, _stand_in("user")]
    return [*(_stand_in(role) for role in head), *turn * turns]
