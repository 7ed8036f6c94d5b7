"""Multi-turn rollouts: the native engine against `generate` of transformers, which computes the whole history anew in every turn.

Both sample the same number of tokens for the same episodes with the same weights: stop tokens are off, each reply has a fixed length
and observations are random ids of uneven length. `generate` gets all episodes as one left-padded batch. Before anything is timed, the
engine's log-probs are compared with a plain forward pass. The runs alternate, and medians are reported. CPU seconds count the work of
all threads and suffer less from other programs on the machine than seconds do.

    python benchmarks/rollout_vs_generate.py --threads 2
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

from agentgym_lite.rollout import NativeEngine, SamplingParams

RESULTS = Path(__file__).parent / "results" / "rollout_vs_generate.json"


@dataclass(frozen=True)
class Work:
    """What is not sampled: ``context[episode][turn]`` are the ids that come before the reply of that turn."""

    context: list[list[list[int]]]
    new_tokens: int

    @property
    def longest(self) -> int:
        return max(sum(len(ids) + self.new_tokens for ids in turns) for turns in self.context)

    @property
    def sampled(self) -> int:
        return sum(len(turns) for turns in self.context) * self.new_tokens

    @property
    def total(self) -> int:
        return self.sampled + sum(len(ids) for turns in self.context for ids in turns)


def make_work(args: argparse.Namespace, vocab: int) -> Work:
    """Openings and observations whose lengths vary by half to either side of the mean."""
    rng = np.random.default_rng(args.seed)

    def ids(mean: int) -> list[int]:
        out: list[int] = rng.integers(0, vocab, size=rng.integers(mean // 2, mean + mean // 2 + 1)).tolist()
        return out

    turns = [args.opening] + [args.observation] * (args.turns - 1)
    return Work([[ids(mean) for mean in turns] for _ in range(args.episodes)], args.new_tokens)


def run_engine(engine: NativeEngine, work: Work) -> tuple[list[list[int]], list[list[float]]]:
    """Play all episodes; return each one's row of tokens and the log-probs of its sampled tokens."""
    sampling = SamplingParams(max_new_tokens=work.new_tokens)
    sessions = {engine.open(): e for e in range(len(work.context))}
    rows: list[list[int]] = [[] for _ in work.context]
    logprobs: list[list[float]] = [[] for _ in work.context]
    turn = [0] * len(work.context)

    def submit(session: int, e: int) -> None:
        ids = work.context[e][turn[e]]
        rows[e] += ids
        engine.submit(session, ids, sampling, seed=e * 1000 + turn[e])
        turn[e] += 1

    for session, e in sessions.items():
        submit(session, e)
    while sessions:
        for reply in engine.step():
            e = sessions[reply.session]
            rows[e] += reply.token_ids
            logprobs[e] += reply.logprobs
            if turn[e] < len(work.context[e]):
                submit(reply.session, e)
            else:
                engine.release(reply.session)
                del sessions[reply.session]
    return rows, logprobs


@torch.inference_mode()
def run_generate(model: Any, work: Work) -> list[list[int]]:
    """Play all episodes in lock-step, one `generate` call per turn over the whole history."""
    rows: list[list[int]] = [[] for _ in work.context]
    for turn in range(len(work.context[0])):
        for row, turns in zip(rows, work.context, strict=True):
            row += turns[turn]
        width = max(map(len, rows))
        ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        out = model.generate(
            ids, attention_mask=mask, do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=work.new_tokens,
            eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
        for row, new in zip(rows, out[:, width:].tolist(), strict=True):
            row += new
    return rows


@torch.inference_mode()
def check_logprobs(model: Any, work: Work, rows: list[list[int]], logprobs: list[list[float]]) -> tuple[float, float]:
    """Largest and mean |difference| between the engine's log-probs and a plain forward pass over the same rows."""
    gaps: list[float] = []
    for turns, row, found in zip(work.context, rows, logprobs, strict=True):
        ids = torch.tensor([row])
        expected = model(ids).logits[0, :-1].float().log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
        at, places = 0, []
        for context in turns:
            at += len(context)
            places += range(at, at + work.new_tokens)
            at += work.new_tokens
        gaps += (expected[torch.tensor(places) - 1] - torch.tensor(found)).abs().tolist()
    return max(gaps), statistics.fmean(gaps)


def measure(model: Any, work: Work, repeats: int) -> dict[str, Any]:
    """Check the numbers, then time both by turns."""
    engine = NativeEngine(model, max_sessions=len(work.context), max_length=work.longest, stop_ids=())
    rows, logprobs = run_engine(engine, work)  # also warms up
    largest, mean = check_logprobs(model, work, rows, logprobs)
    if model.dtype == torch.float32 and largest > 1e-4:
        raise SystemExit(f"engine and forward pass differ by {largest:.2e} in log-prob; expected at most 1e-4")
    seconds: dict[str, list[float]] = {"engine": [], "generate": []}
    cpu_seconds: dict[str, list[float]] = {"engine": [], "generate": []}
    for _ in range(repeats):
        for name, run in (("engine", lambda: run_engine(engine, work)[0]), ("generate", lambda: run_generate(model, work))):
            start, cpu_start = time.perf_counter(), time.process_time()
            total = sum(map(len, run()))
            seconds[name].append(time.perf_counter() - start)
            cpu_seconds[name].append(time.process_time() - cpu_start)
            if total != work.total:
                raise SystemExit(f"{name} produced {total} tokens, expected {work.total}")
    median = {name: statistics.median(s) for name, s in seconds.items()}
    cpu_median = {name: statistics.median(s) for name, s in cpu_seconds.items()}
    return {
        "dtype": str(model.dtype).removeprefix("torch."),
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "sampled_tokens_per_s": {name: work.sampled / s for name, s in median.items()},
        "ratio": median["generate"] / median["engine"],
        "cpu_ratio": cpu_median["generate"] / cpu_median["engine"],
        "max_logprob_gap": largest,
        "mean_logprob_gap": mean,
        "cache_bytes": engine.cache_bytes,
    }


def load_model(path: str | None) -> Any:
    if path:
        return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=2048, hidden_size=192, intermediate_size=512, num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=2,
        max_position_embeddings=4096, tie_word_embeddings=True, initializer_range=0.06,
    )  # fmt: skip
    return Qwen2ForCausalLM(config).eval()


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="model directory; default: random weights, hidden 192, 4 layers, vocabulary 2048")
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--new-tokens", type=int, default=12, help="sampled tokens per turn")
    parser.add_argument("--opening", type=int, default=100, help="mean tokens before the first reply")
    parser.add_argument("--observation", type=int, default=16, help="mean tokens of an observation")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"], choices=["float32", "bfloat16"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    torch.set_num_threads(args.threads)
    model = load_model(args.model)
    work = make_work(args, model.config.vocab_size)
    results = [measure(model.to(getattr(torch, dtype)), work, args.repeats) for dtype in args.dtypes]
    report = {
        "command": shlex.join(["python", *sys.argv]),
        "work": {
            "episodes": args.episodes,
            "turns": args.turns,
            "new_tokens": args.new_tokens,
            "sampled_tokens": work.sampled,
            "total_tokens": work.total,
            "longest_row": work.longest,
        },
        "model": {"path": args.model, "parameters": sum(p.numel() for p in model.parameters()), "type": model.config.model_type},
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "transformers": transformers.__version__},
        "machine": {"cpus": os.cpu_count(), "threads": args.threads, "load": os.getloadavg()},
        "results": results,
    }
    for r in results:
        speed = r["sampled_tokens_per_s"]
        print(
            f"{r['dtype']:>8}: engine {speed['engine']:,.0f} tokens/s, generate {speed['generate']:,.0f} tokens/s, "
            f"ratio {r['ratio']:.2f} (in CPU seconds {r['cpu_ratio']:.2f}), largest log-prob gap {r['max_logprob_gap']:.1e}"
        )
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=2) + "\n")
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
