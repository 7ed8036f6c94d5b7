"""Questions: the shipped set, and files in the form of FlashRAG and Search-R1 under the published item numbers."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Protocol

from agentgym_envs.core import Split, UnknownItem

#: The seven kinds of question, one row of the paper's tables each.
KINDS = ("nq", "triviaqa", "popqa", "hotpotqa", "2wiki", "musique", "bamboogle")
#: Published item numbers: (kind, FlashRAG folder, split, first, last).
PUBLISHED_RANGES: tuple[tuple[str, str, Split, int, int], ...] = (
    ("nq", "nq", "eval", 0, 3609),
    ("triviaqa", "triviaqa", "eval", 3610, 14922),
    ("popqa", "popqa", "eval", 14923, 29189),
    ("hotpotqa", "hotpotqa", "eval", 29190, 36594),
    ("2wiki", "2wikimultihopqa", "eval", 36595, 49170),
    ("musique", "musique", "eval", 49171, 51587),
    ("bamboogle", "bamboogle", "eval", 51588, 51712),
    ("nq", "nq", "train", 51713, 130880),
    ("hotpotqa", "hotpotqa", "train", 130881, 221327),
)


@dataclass(frozen=True, slots=True)
class Item:
    """A question with its accepted ``answers`` (the first is shown), the ``gold`` passage ids (hop by hop; empty if not known)."""

    split: Split
    kind: str
    question: str
    answers: tuple[str, ...]
    gold: tuple[str, ...] = ()


class Questions(Protocol):
    """Items by number."""

    def item(self, index: int) -> Item:
        """The item of a number. Raises ``UnknownItem``."""


class Shipped:
    """The shipped questions: evaluation items first, then the training items, kind by kind."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.version: str = data["version"]
        self.items: tuple[Item, ...] = tuple(
            Item(split, kind, question, tuple(answers), tuple(gold)) for split, kind, question, answers, gold in data["items"]
        )

    def item(self, index: int) -> Item:
        if not 0 <= index < len(self.items):
            raise UnknownItem(f"expected a SearchQA item from 0 to {len(self.items) - 1}, found {index}")
        return self.items[index]


@functools.lru_cache(maxsize=1)
def shipped() -> Shipped:
    """The shipped questions, read once."""
    return Shipped(json.loads((resources.files(__package__) / "questions.json").read_text(encoding="utf-8")))


def published_task(index: int) -> str:
    """The kind that a published item number belongs to. Raises ``UnknownItem``."""
    return _published(index)[0]


class QuestionFiles:
    """Questions from ``path``: a folder ``{set}/{split}.jsonl`` under the published numbers, or one ``.jsonl`` numbered from 0.

    Rows need ``question`` and ``golden_answers`` (a list of strings); ``data_source`` names the kind of a single file's row. In a folder,
    evaluation rows come from ``test.jsonl``, else ``dev.jsonl``, else ``train.jsonl``. A missing "?" is appended, as the reference does.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.exists():
            raise FileNotFoundError(f"expected a folder or a .jsonl file of questions, found nothing at {self.path}")
        self._rows = functools.lru_cache(maxsize=None)(_read_rows)

    def item(self, index: int) -> Item:
        if self.path.is_file():
            rows = self._rows(self.path)
            if not 0 <= index < len(rows):
                raise UnknownItem(f"expected an item from 0 to {len(rows) - 1} of {self.path.name}, found {index}")
            return _item(rows[index], rows[index].get("data_source", "nq"), "eval")
        kind, folder, split, first, _ = _published(index)
        names = ("train",) if split == "train" else ("test", "dev", "train")
        files = [f for name in names if (f := self.path / folder / f"{name}.jsonl").is_file()]
        if not files:
            wanted = " or ".join(f"{folder}/{name}.jsonl" for name in names)
            raise UnknownItem(f"item {index} is row {index - first} of {wanted}; expected that file in {self.path}, found none")
        rows = self._rows(files[0])
        if index - first >= len(rows):
            raise UnknownItem(f"item {index} is row {index - first} of {folder}/{files[0].name}; found only {len(rows)} rows")
        return _item(rows[index - first], kind, split)


def _published(index: int) -> tuple[str, str, Split, int, int]:
    for entry in PUBLISHED_RANGES:
        if entry[3] <= index <= entry[4]:
            return entry
    raise UnknownItem(f"expected a published SearchQA item from 0 to {PUBLISHED_RANGES[-1][4]}, found {index}")


def _read_rows(path: Path) -> list[dict[str, Any]]:
    return list(_parsed(path))


def _parsed(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            if not line.strip():
                continue
            row = json.loads(line)
            answers = row.get("golden_answers") if isinstance(row, dict) else None
            good = isinstance(answers, list) and answers and all(isinstance(a, str) for a in answers)
            if not good or not isinstance(row.get("question"), str):
                raise ValueError(f"{path.name} line {number}: expected 'question' and a list 'golden_answers', found {line[:120]!r}")
            yield row


def _item(row: dict[str, Any], kind: str, split: Split) -> Item:
    question = row["question"].strip()
    return Item(split, kind, question if question.endswith("?") else question + "?", tuple(row["golden_answers"]))
