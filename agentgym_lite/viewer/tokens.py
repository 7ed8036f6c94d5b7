"""Token-mask view: what the policy sampled, token by token, against what it was only shown."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import escape
from typing import Any

from agentgym_lite.rollout.types import TokenRow
from agentgym_lite.viewer.html import View, clean, render

#: Text of one token id.
Decode = Callable[[int], str]

#: Upper ends of the probability classes ``p0`` (surprising) to ``p4`` (sure) that sampled tokens are coloured by.
PROBABILITY_STEPS = (0.05, 0.2, 0.5, 0.9)
CLASS_LABELS = ("p < 0.05", "0.05 – 0.2", "0.2 – 0.5", "0.5 – 0.9", "p ≥ 0.9")

# A vocabulary holds such a text as one token only if it is a special token.
_SPECIAL = re.compile(r"<\|[^|<>]+\|>")
_ANSI_CLASSES = (208, 222, 253, 117, 75)  # orange to blue, from the 256-colour table
_ANSI_RESET, _ANSI_CONTEXT = "\x1b[0m", "\x1b[38;5;245m"


@dataclass(frozen=True)
class TokenCell:
    """One token as shown: its decoded ``text`` and, if the policy sampled it, the probability ``p`` it had at that moment."""

    id: int
    text: str
    turn: int
    sampled: bool
    logprob: float

    @property
    def p(self) -> float:
        return math.exp(self.logprob)

    @property
    def special(self) -> bool:
        return _SPECIAL.fullmatch(self.text) is not None

    @property
    def visible(self) -> str:
        """The text with spaces, tabs and line ends made visible and control characters made harmless."""
        return clean(self.text).replace(" ", "·").replace("\t", "⇥").replace("\n", "⏎\n")

    @property
    def probability_class(self) -> int:
        """Index into :data:`CLASS_LABELS`."""
        return bisect_right(PROBABILITY_STEPS, self.p)

    def html(self) -> str:
        classes = (f"s p{self.probability_class}" if self.sampled else "c") + (" x" if self.special else "")
        note = f"id {self.id} · sampled with p {self.p:.3f} (log-prob {self.logprob:.3f})" if self.sampled else f"id {self.id} · context"
        # <wbr> lets a line break where the space was
        text = escape(self.visible).replace("·", "<i>·</i><wbr>").replace("⏎", "<i>⏎</i>")
        return f'<span class="{classes}" title="{note}">{text}</span>'


def token_decoder(tokenizer: Any) -> Decode:
    """``decode`` for a Hugging Face tokenizer: special tokens are kept, spaces stay as they are."""
    return lambda token_id: tokenizer.decode([token_id], skip_special_tokens=False, clean_up_tokenization_spaces=False)


def token_cells(row: TokenRow, decode: Decode, start: int = 0, end: int | None = None) -> list[TokenCell]:
    """The tokens ``start`` to ``end`` (exclusive) of a row, ready to show."""
    columns = zip(row.token_ids, row.turn_ids, row.action_mask, row.logprobs, strict=True)
    return [TokenCell(i, decode(i), turn, bool(mask), logprob) for i, turn, mask, logprob in list(columns)[start:end]]


def tokens_html(row: TokenRow, decode: Decode, *, with_legend: bool = True) -> View:
    """A training row as HTML: context tokens grey, sampled tokens coloured by their probability, one block per turn."""
    blocks = list(_blocks(token_cells(row, decode)))
    return View(
        render("tokens.html.j2", blocks=blocks, legend=legend() if with_legend else None, total=len(row), trained=sum(row.action_mask))
    )


def tokens_ansi(row: TokenRow, decode: Decode) -> str:
    """The same view for a terminal with 256 colours: special tokens underlined, whitespace visible, escape codes in the text disarmed."""
    parts = []
    for cell in token_cells(row, decode):
        colour = f"\x1b[38;5;{_ANSI_CLASSES[cell.probability_class]}m" if cell.sampled else _ANSI_CONTEXT
        parts.append(colour + ("\x1b[4m" if cell.special else "") + cell.visible + _ANSI_RESET)
    return "".join(parts)


def legend() -> View:
    """Key to the colours."""
    sampled = "".join(f'<span class="s p{k}">{escape(label)}</span>' for k, label in enumerate(CLASS_LABELS))
    return View(f'<p class="legend"><span class="c">context (mask 0)</span> sampled (mask 1), by probability when sampled: {sampled}</p>')


def cells_html(cells: list[TokenCell]) -> View:
    """A run of tokens without legend or turns."""
    return View("".join(c.html() for c in cells))


def _blocks(cells: list[TokenCell]) -> Iterator[tuple[str, View]]:
    start = 0
    for k in range(1, len(cells) + 1):
        if k == len(cells) or cells[k].turn != cells[start].turn:
            turn = cells[start].turn
            yield ("opening" if turn < 0 else f"turn {turn + 1}", cells_html(cells[start:k]))
            start = k
