"""Search-R1's retrieval protocol: a client for any server that speaks it, and the same endpoint over our own index.

``POST /retrieve {"queries": [...], "topk": 3, "return_scores": true}`` is answered by ``{"result": [[{"document": {"contents":
"\\"Title\\"\\ntext", ...}, "score": 0.9}, ...], ...]}``; without scores the list holds the documents themselves.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from typing import Any

import httpx
from fastapi import APIRouter
from pydantic import BaseModel, Field

from agentgym_envs.searchqa.corpus import Passage
from agentgym_envs.searchqa.index import Hit, Retriever


class RetrievalError(RuntimeError):
    """The retrieval server gave no usable answer; the agent is not to blame."""


class RemoteRetriever:
    """Client of a retrieval URL such as ``http://127.0.0.1:8000/retrieve``.

    Time-outs, lost connections and answers 429 and 5xx are tried again ``retries`` times with doubling pauses; then, and at once for
    other errors, ``RetrievalError``.
    """

    def __init__(self, url: str, timeout_s: float = 30.0, retries: int = 2, pause_s: float = 0.5) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"expected a retrieval URL such as http://127.0.0.1:8000/retrieve, found {url!r:.80}")
        self.url = url
        self._retries, self._pause_s = retries, pause_s
        self._client = httpx.Client(timeout=timeout_s)

    def search(self, query: str, k: int = 3) -> list[Hit]:
        """The best ``k`` passages. Raises ``RetrievalError``."""
        return self.search_batch([query], k)[0]

    def search_batch(self, queries: Sequence[str], k: int = 3) -> list[list[Hit]]:
        """One request for all queries. Raises ``RetrievalError``."""
        body = self._post({"queries": list(queries), "topk": k, "return_scores": True})
        try:
            results = [[_hit(document) for document in documents[:k]] for documents in body["result"]]
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise RetrievalError(f"expected Search-R1's answer {{'result': [[...]]}} from {self.url}, found {str(body)[:120]}") from e
        if len(results) != len(queries):
            raise RetrievalError(f"expected {len(queries)} lists of passages from {self.url}, found {len(results)}")
        return results

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _post(self, body: dict[str, Any]) -> Any:
        problem = ""
        for attempt in range(self._retries + 1):
            if attempt:
                time.sleep(self._pause_s * 2 ** (attempt - 1))
            try:
                response = self._client.post(self.url, json=body)
            except httpx.TransportError as e:
                problem = f"{type(e).__name__}: {e}"
                continue
            problem = f"status {response.status_code}"
            if response.status_code == 200:
                try:
                    return response.json()
                except ValueError as e:
                    raise RetrievalError(f"expected JSON from {self.url}, found {response.text[:120]!r}") from e
            if response.status_code != 429 and response.status_code < 500:
                break
        raise RetrievalError(f"no passages from {self.url} ({problem}); check that the retrieval server runs and that the URL is right")


@functools.lru_cache(maxsize=8)
def shared_remote(url: str) -> RemoteRetriever:
    """The client of this process for a URL, shared by all sessions, so that they share connections too."""
    return RemoteRetriever(url)


class RetrieveRequest(BaseModel):
    """Body of ``POST /retrieve``."""

    queries: list[str] = Field(min_length=1, max_length=1024)
    topk: int | None = Field(default=None, ge=1, le=100)
    return_scores: bool = False


def retrieval_router(retriever: Retriever, topk: int = 3) -> APIRouter:
    """``POST /retrieve`` over a retriever, for clients of Search-R1's server; ``topk`` is used where the request names none."""
    router = APIRouter()

    @router.post("/retrieve")
    def retrieve(request: RetrieveRequest) -> dict[str, Any]:
        found = retriever.search_batch(request.queries, request.topk or topk)
        if request.return_scores:
            return {"result": [[{"document": _document(h.passage), "score": h.score} for h in hits] for hits in found]}
        return {"result": [[_document(h.passage) for h in hits] for hits in found]}

    return router


def _document(passage: Passage) -> dict[str, str]:
    return {"id": passage.id, "contents": f'"{passage.title}"\n{passage.text}'}


def _hit(entry: dict[str, Any]) -> Hit:
    document = entry.get("document", entry)
    title, _, text = document["contents"].partition("\n")
    return Hit(Passage(str(document.get("id", "")), title.strip().strip('"'), " ".join(text.split())), float(entry.get("score", 0.0)))
