"""Retrievers over passages in memory: BM25 and dense vectors, built once per machine and shared by all sessions of a process."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from agentgym_envs.searchqa.corpus import Passage, build_corpus, sources_digest
from agentgym_envs.searchqa.grading import fold

#: Modules that decide what an index holds; the cache is keyed by their source.
_CODE = ("corpus.py", "dense.py", "grading.py", "index.py")
_WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?")
_STOP_WORDS = (
    "a an the of in on at to for from by with and or is are was were be been do does did has have had it its this that these those "
    "as what which who whom whose where when how many much"
)
_STOP = frozenset(_STOP_WORDS.split())


@dataclass(frozen=True)
class Hit:
    """A retrieved passage and its score (larger is better; scales differ between retrievers)."""

    passage: Passage
    score: float


class Retriever(Protocol):
    """Finds passages; safe to use from many threads."""

    def search(self, query: str, k: int = 3) -> list[Hit]:
        """The best ``k`` passages, best first."""

    def search_batch(self, queries: Sequence[str], k: int = 3) -> list[list[Hit]]:
        """Results of :meth:`search` for each query."""


def words(text: str) -> list[str]:
    """Terms of a text: lower case, no accents, no stop words, plural ``s`` dropped."""
    return [_stem(w) for w in _WORD.findall(fold(text)) if w not in _STOP]


class BM25:
    """Okapi BM25 (Robertson et al., Lucene's form) by ``bm25s``; titles count ``title_weight`` times. Equal scores: corpus order."""

    title_weight = 3

    def __init__(self, passages: Sequence[Passage], index: Any = None) -> None:
        self.passages = passages
        self._index = index or self._build(passages)

    @classmethod
    def _build(cls, passages: Sequence[Passage]) -> Any:
        import bm25s

        index = bm25s.BM25(method="lucene", k1=1.2, b=0.5)
        index.index([words(p.title) * cls.title_weight + words(p.text) for p in passages], show_progress=False)
        return index

    def search(self, query: str, k: int = 3) -> list[Hit]:
        """The best ``k`` passages that share a term with the query."""
        known = [w for w in words(query) if w in self._index.vocab_dict]
        return _top(self.passages, self._index.get_scores(known), k) if known else []

    def search_batch(self, queries: Sequence[str], k: int = 3) -> list[list[Hit]]:
        return [self.search(query, k) for query in queries]

    def save(self, folder: Path) -> None:
        """Write the index (not the passages) into a folder."""
        self._index.save(str(folder), show_progress=False)

    @classmethod
    def load(cls, passages: Sequence[Passage], folder: Path) -> BM25:
        """Inverse of :meth:`save`; the arrays are mapped, so that processes share their memory."""
        import bm25s

        return cls(passages, bm25s.BM25.load(str(folder), mmap=True))


class Dense:
    """Inner product of unit vectors, exact search. ``vectors``: (passages, d); ``encode``: texts to (texts, d)."""

    def __init__(
        self, passages: Sequence[Passage], vectors: NDArray[np.float32], encode: Callable[[Sequence[str]], NDArray[np.float32]]
    ) -> None:
        if len(passages) != len(vectors):
            raise ValueError(f"expected one vector per passage ({len(passages)}), found {len(vectors)}")
        self.passages, self._vectors, self._encode = passages, vectors, encode

    def search(self, query: str, k: int = 3) -> list[Hit]:
        """The best ``k`` passages of positive score."""
        return self.search_batch([query], k)[0]

    def search_batch(self, queries: Sequence[str], k: int = 3) -> list[list[Hit]]:
        scores = self._encode(queries) @ self._vectors.T
        return [_top(self.passages, row, k) for row in scores]


@functools.lru_cache(maxsize=4)
def _shared(kind: str) -> Retriever:
    if kind == "bm25":
        passages = corpus()
        return _cached("bm25", version("bm25s"), lambda d: BM25(passages).save(d), lambda d: BM25.load(passages, d))
    if kind in ("dense", "e5"):
        from agentgym_envs.searchqa import dense

        passages, encoder = corpus(), dense.ENCODERS[kind]
        return _cached(kind, encoder.key(), lambda d: encoder.build(passages, d), lambda d: encoder.load(passages, d))
    raise ValueError(f"expected the retriever 'bm25', 'dense', 'e5' or a URL, found {kind!r:.80}")


_lock = threading.RLock()


def shared_retriever(kind: str = "bm25") -> Retriever:
    """The index of this process over the shipped corpus: ``bm25``, ``dense`` or ``e5``. Built (seconds) if the cache has none.

    Raises ``ValueError`` for another kind and ``ImportError`` if a package is missing.
    """
    with _lock:
        return _shared(kind)


@functools.lru_cache(maxsize=1)
def corpus() -> tuple[Passage, ...]:
    """The shipped passages, read from the cache if they are there."""
    return _cached("passages", "", _write_corpus, _read_corpus)


def cache_dir() -> Path:
    """``$XDG_CACHE_HOME/agentgym-lite/searchqa``, by default under ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentgym-lite" / "searchqa"


def _cached(name: str, key: str, build: Callable[[Path], None], load: Callable[[Path], Any]) -> Any:
    """Load from the folder of the cache that belongs to this content, made first if it is not there.

    The folder is filled under another name and then renamed: others see all of it or nothing, and the first of two builders wins.
    """
    digest = hashlib.sha256(f"{name} {key} {sources_digest()}".encode())
    for module in _CODE:
        digest.update((resources.files(__package__) / module).read_bytes())
    folder = cache_dir() / f"{name}-{digest.hexdigest()[:16]}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder.parent))
        try:
            build(partial)
            try:
                partial.rename(folder)
            except OSError:
                if not folder.is_dir():
                    raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return load(folder)


def _write_corpus(folder: Path) -> None:
    lines = (json.dumps(asdict(p), ensure_ascii=False) for p in build_corpus())
    (folder / "passages.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _read_corpus(folder: Path) -> tuple[Passage, ...]:
    with (folder / "passages.jsonl").open(encoding="utf-8") as f:
        return tuple(Passage(**json.loads(line)) for line in f)


def _top(passages: Sequence[Passage], scores: NDArray[np.float32], k: int) -> list[Hit]:
    k = min(k, len(scores))
    if k < 1:
        return []
    floor = np.partition(scores, -k)[-k]
    candidates = np.flatnonzero(scores >= max(floor, np.finfo(np.float32).tiny))
    best = candidates[np.argsort(-scores[candidates], kind="stable")[:k]]
    return [Hit(passages[i], round(float(scores[i]), 4)) for i in best]


def _stem(word: str) -> str:
    word = word.removesuffix("'s")
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
