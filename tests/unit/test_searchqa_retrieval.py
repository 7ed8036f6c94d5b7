"""SearchQA: corpus, indexes, cache and Search-R1's retrieval protocol."""

import os
import subprocess
import sys

import httpx
import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from agentgym_envs.searchqa import BM25, Dense, Passage, RemoteRetriever, RetrievalError, SearchQA, retrieval_router, shared_retriever
from agentgym_envs.searchqa import index as index_module
from agentgym_envs.searchqa.corpus import MAX_WORDS, SOURCES, clean, require_sources
from agentgym_envs.searchqa.dense import TermVectors
from agentgym_envs.searchqa.index import corpus, words

TOY = [
    Passage("a", "Chile: Capital", "name: Santiago | time difference: UTC-3"),
    Passage("b", "Peru: Capital", "name: Lima | time difference: UTC-5"),
    Passage("c", "Peru: Elevation", "highest point: Nevado Huascaran 6,746 m"),
    Passage("d", "Peru: Elevation", "highest point: Nevado Huascaran 6,746 m"),
    Passage("e", "Santiago de Cuba (city)", "Santiago de Cuba is a city in Cuba (North America)."),
]


def test_terms_are_folded_and_without_stop_words():
    assert words("What's the Capitals of Côte d'Ivoire?") == ["what", "capital", "cote", "d'ivoire"]


def test_bm25_ranks_by_score_and_keeps_corpus_order_among_equals():
    index = BM25(TOY)
    hits = index.search("nevado huascaran Peru", 5)
    assert [h.passage.id for h in hits] == ["c", "d", "b"]  # what shares no term is not a hit
    assert hits[0].score == hits[1].score > hits[2].score > 0
    assert index.search_batch(["Chile", "zzz"], 1) == [index.search("Chile", 1), []]
    assert index.search("Chile", 0) == []


def test_bm25_score_by_hand():
    passages = [Passage("a", "", "alpha"), Passage("b", "", "beta gamma"), Passage("c", "", "beta delta")]
    # Lucene's BM25: idf = ln(1 + (N - n + 1/2) / (n + 1/2)), tf part = 1 / (1 + k1 (1 - b + b len / mean length))
    idf, length = np.log(1 + (3 - 1 + 0.5) / 1.5), 1.2 * (1 - 0.5 + 0.5 * 1 / (5 / 3))
    assert BM25(passages).search("alpha")[0].score == pytest.approx(idf / (1 + length), abs=1e-4)


def test_dense_is_exact_inner_product():
    vectors = np.array([[1, 0], [0.6, 0.8], [0, 1], [-1, 0], [0, -1]], dtype=np.float32)
    index = Dense(TOY, vectors, lambda texts: np.tile(np.array([[1, 0]], dtype=np.float32), (len(texts), 1)))
    assert [(h.passage.id, h.score) for h in index.search("any", 5)] == [("a", 1.0), ("b", 0.6)]
    with pytest.raises(ValueError, match="one vector per passage"):
        Dense(TOY[:2], vectors, lambda texts: vectors)


def test_term_vectors_survive_the_disk_and_find_rare_words(tmp_path):
    encoder = TermVectors()
    encoder.build(TOY, tmp_path)
    index = encoder.load(TOY, tmp_path)
    assert index.search("Lima", 1)[0].passage.id == "b"
    assert index.search("Chile Santiago capital", 1)[0].passage.id == "a"
    assert np.linalg.norm(np.load(tmp_path / "vectors.npy"), axis=1) == pytest.approx(np.ones(len(TOY)), abs=1e-5)


def test_corpus_is_large_titled_and_cut_to_size():
    passages = corpus()
    assert len(passages) >= 10_000
    assert len({p.id for p in passages}) == len(passages)
    assert all(p.title and p.text and "\n" not in p.text for p in passages)
    assert max(len(p.text.split()) for p in passages if p.id.startswith("fb/")) <= MAX_WORDS
    assert not any("&nbsp;" in p.text or "<strong>" in p.text for p in passages)


def test_cleaning_by_hand():
    assert clean("<strong>note:</strong>&nbsp;R&eacute;p.\n &amp;ldquo;x&amp;rdquo;") == "note: Rép. “x”"


def test_a_missing_or_other_package_is_named(monkeypatch):
    require_sources()
    monkeypatch.setitem(SOURCES, "no-such-package-here", "1.0")
    with pytest.raises(ImportError, match=r"no-such-package-here==1\.0, found none: pip install"):
        require_sources()


def test_unknown_retriever_is_refused():
    with pytest.raises(ValueError, match="expected the retriever"):
        shared_retriever("faiss")


def test_sessions_share_one_index():
    assert shared_retriever("bm25") is shared_retriever("bm25")
    first, second = SearchQA(), SearchQA()
    assert first._engine() is second._engine()


def test_cache_is_filled_once_whole_or_not_at_all(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    built = []

    def build(folder):
        built.append(folder)
        (folder / "x").write_text("whole")

    def broken(folder):
        (folder / "x").write_text("half")
        raise OSError("disk full")

    def read(folder):
        return (folder / "x").read_text()

    with pytest.raises(OSError, match="disk full"):
        index_module._cached("toy", "1", broken, read)
    assert list(index_module.cache_dir().iterdir()) == [], "a failed build must leave nothing behind"
    assert [index_module._cached("toy", "1", build, read) for _ in range(2)] == ["whole", "whole"]
    assert len(built) == 1
    index_module._cached("toy", "2", build, read)
    assert len(built) == 2, "another key is another folder"


def test_the_first_of_two_builders_wins(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def build(folder):
        if not folder.name.endswith("inner"):
            index_module._cached("toy", "1", lambda d: (d / "x").write_text("first"), lambda d: None)
        (folder / "x").write_text("second")

    assert index_module._cached("toy", "1", build, lambda d: (d / "x").read_text()) == "first"
    assert len(list(index_module.cache_dir().iterdir())) == 1


@pytest.mark.slow
def test_results_do_not_depend_on_the_process_or_its_hash_seed():
    code = """
import hashlib
from agentgym_envs.searchqa import shared_retriever
from agentgym_envs.searchqa.questions import shipped
found = shared_retriever().search_batch([i.question for i in shipped().items[::40]])
print(hashlib.sha256(repr([[(h.passage.id, h.score) for h in hits] for hits in found]).encode()).hexdigest())
"""
    runs = [
        subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True)
        for seed in ("1", "2")
    ]
    assert runs[0].stdout == runs[1].stdout
    assert len(runs[0].stdout.strip()) == 64


def _app(retriever):
    app = FastAPI()
    app.include_router(retrieval_router(retriever))
    return TestClient(app)


def _remote(handler, **options):
    remote = RemoteRetriever("http://retriever.test/retrieve", pause_s=0.0, **options)
    remote._client = httpx.Client(transport=httpx.MockTransport(handler))
    return remote


def test_endpoint_speaks_search_r1():
    client = _app(BM25(TOY))
    body = client.post("/retrieve", json={"queries": ["Chile", "Lima"], "topk": 1, "return_scores": True}).json()
    assert [len(docs) for docs in body["result"]] == [1, 1]
    assert body["result"][0][0]["document"] == {"id": "a", "contents": '"Chile: Capital"\nname: Santiago | time difference: UTC-3'}
    assert body["result"][0][0]["score"] > 0
    plain = client.post("/retrieve", json={"queries": ["Peru"]}).json()["result"][0]
    assert len(plain) == 3
    assert plain[0].keys() == {"id", "contents"}
    assert client.post("/retrieve", json={"queries": []}).status_code == 422
    assert client.post("/retrieve", json={"queries": ["x"], "topk": 10_000}).status_code == 422


def test_client_and_endpoint_give_what_the_index_gives():
    index, client = BM25(TOY), _app(BM25(TOY))

    def forward(request):
        answer = client.post("/retrieve", content=request.content, headers={"content-type": "application/json"})
        return httpx.Response(answer.status_code, content=answer.content)

    queries = ["Santiago", "nevado", "nothing of this"]
    assert _remote(forward).search_batch(queries, 2) == index.search_batch(queries, 2)


def test_client_tries_again_after_a_fault_and_then_gives_up():
    answers = [httpx.Response(503), httpx.ReadTimeout("slow"), httpx.Response(200, json={"result": [[{"document": {"contents": "T\nx"}}]]})]
    calls = []

    def flaky(request):
        calls.append(request)
        answer = answers[len(calls) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert _remote(flaky).search("q")[0].passage == Passage("", "T", "x")
    assert len(calls) == 3
    calls.clear()
    with pytest.raises(RetrievalError, match="ReadTimeout"):
        _remote(flaky, retries=1).search("q")
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (httpx.Response(404), "status 404"),
        (httpx.Response(200, text="<html>"), "expected JSON"),
        (httpx.Response(200, json={"docs": []}), "Search-R1"),
        (httpx.Response(200, json={"result": [[{"document": {}}]]}), "Search-R1"),
        (httpx.Response(200, json={"result": []}), "expected 1 lists"),
    ],
)
def test_a_wrong_answer_is_an_error_at_once(answer, said):
    calls = []

    def handler(request):
        calls.append(request)
        return answer

    with pytest.raises(RetrievalError, match=said):
        _remote(handler).search("q")
    assert len(calls) == 1


def test_the_url_is_checked():
    with pytest.raises(ValueError, match="expected a retrieval URL"):
        RemoteRetriever("ftp://x")
