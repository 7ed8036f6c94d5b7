"""Token-mask view: what the policy sampled, token by token, against what it was only shown."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentgym_lite.rollout.types import TokenRow
from agentgym_lite.viewer.html import clean

#: Text of one token id.
Decode = Callable[[int], str]

#: Upper ends of the probability classes, surprising to sure, that sampled tokens are coloured by.
PROBABILITY_STEPS = (0.05, 0.2, 0.5, 0.9)

# A vocabulary holds such a text as one token only if it is a special token.
_SPECIAL = re.compile(r"<\|[^|<>]+\|>")
_ANSI_CLASSES = (208, 222, 253, 117, 75)  # orange to blue, from the 256-colour table
_ANSI_RESET, _ANSI_CONTEXT = "\x1b[0m", "\x1b[38;5;245m"


def token_decoder(tokenizer: Any) -> Decode:
    """``decode`` for a Hugging Face tokenizer: special tokens are kept, spaces stay as they are."""
    return lambda token_id: tokenizer.decode([token_id], skip_special_tokens=False, clean_up_tokenization_spaces=False)


def row_data(row: TokenRow, values: Mapping[str, Sequence[float]] | None = None) -> dict[str, Any]:
    """A training row as the component reads it; ``values`` are more numbers per token, such as ``advantage`` and ``ratio``.

    Raises ``ValueError`` if one of them has not one number per token.
    """
    columns = {"logprob": row.logprobs, **(values or {})}
    for name, column in columns.items():
        if len(column) != len(row):
            raise ValueError(f"expected {len(row)} numbers of {name}, one per token of the row, found {len(column)}")
    numbers = {name: [round(float(x), 5) for x in column] for name, column in columns.items()}
    return {"ids": list(row.token_ids), "mask": list(row.action_mask), "turn": list(row.turn_ids), **numbers}


def vocabulary(rows: Sequence[TokenRow], decode: Decode) -> dict[int, str]:
    """The text of every id that occurs."""
    return {i: decode(i) for i in sorted({i for row in rows for i in row.token_ids})}


def tokens_ansi(row: TokenRow, decode: Decode) -> str:
    """The view for a terminal with 256 colours: special tokens underlined, whitespace visible, escape codes in the text disarmed."""
    parts = []
    for token_id, sampled, logprob in zip(row.token_ids, row.action_mask, row.logprobs, strict=True):
        text = decode(token_id)
        colour = f"\x1b[38;5;{_ANSI_CLASSES[bisect_right(PROBABILITY_STEPS, math.exp(logprob))]}m" if sampled else _ANSI_CONTEXT
        visible = clean(text).replace(" ", "·").replace("\t", "⇥").replace("\n", "⏎\n")
        parts.append(colour + ("\x1b[4m" if _SPECIAL.fullmatch(text) else "") + visible + _ANSI_RESET)
    return "".join(parts)
