"""Peak memory of the loss at a production vocabulary: the library's chunked log-probs against full logits.

Both compute the same clipped policy loss with an entropy bonus over the same rows, forward and backward, each in a process of its own.
Loss and gradients are compared before any figure counts. Memory is what the process's peak resident set grew by from just before the
loss to the end of the backward pass, gradients included. The default is the head of Qwen2.5-0.5B (hidden 896) on one layer: the layers
are the same on both sides, so they are left small.

    python benchmarks/loss_memory.py --threads 2
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "loss_memory.json"
PATHS = ("full", "chunked")
#: Least cosine between the gradients of the two paths, and largest relative difference of the losses.
MIN_COSINE, MAX_LOSS_GAP = 0.99999, 1e-5


def peak_bytes() -> int:
    """Largest resident set of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def make_problem(args: argparse.Namespace) -> dict[str, Any]:
    """A random model and rows of which the last ``--tokens`` over all rows are sampled, the rest context."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(args.seed)
    config = Qwen2Config(
        vocab_size=args.vocab, hidden_size=args.hidden, intermediate_size=2 * args.hidden, num_hidden_layers=1,
        num_attention_heads=args.hidden // 64, num_key_value_heads=1, max_position_embeddings=8192, tie_word_embeddings=True,
    )  # fmt: skip
    sampled = args.tokens // args.rows
    length = round(sampled / (1 - args.context_share))
    ids = torch.randint(0, args.vocab, (args.rows, length + 1))
    mask = torch.zeros(args.rows, length)
    mask[:, length - sampled :] = 1.0
    return {
        "model": Qwen2ForCausalLM(config).eval(),
        "input_ids": ids[:, :-1],
        "targets": ids[:, 1:],
        "mask": mask,
        "advantages": torch.randn(args.rows, 1).expand_as(mask) * mask,
    }


def statistics_of(path: str, problem: dict[str, Any]) -> tuple[Any, Any]:
    """Log-probs and entropies ``[B, T]`` by the library or by full logits."""
    from agentgym_lite.algorithms import entropy_from_logits
    from agentgym_lite.training.logprobs import token_stats

    inputs = (problem["model"], problem["input_ids"], problem["targets"], problem["mask"])
    if path == "chunked":
        stats = token_stats(*inputs, temperature=1.0)
        return stats.logprobs, stats.entropy
    logits = problem["model"](problem["input_ids"]).logits.float()
    return logits.log_softmax(-1).gather(-1, problem["targets"][..., None])[..., 0], entropy_from_logits(logits)


def loss_of(path: str, problem: dict[str, Any]) -> Any:
    """Token mean of ``-A rho - 0.001 H``, on-policy (the ratio is 1, its gradient is not 0)."""
    logprobs, entropy = statistics_of(path, problem)
    per_token = -problem["advantages"] * (logprobs - logprobs.detach()).exp() - 1e-3 * entropy
    return (per_token * problem["mask"]).sum() / problem["mask"].sum()


def run_child(args: argparse.Namespace) -> None:
    """One path in this process; figures to stdout, gradients to ``--gradients``."""
    import torch

    torch.set_num_threads(args.threads)
    problem = make_problem(args)
    before, start = peak_bytes(), time.perf_counter()
    loss = loss_of(args.child, problem)
    loss.backward()
    figures = {"loss": loss.item(), "added_bytes": peak_bytes() - before, "before_bytes": before, "seconds": time.perf_counter() - start}
    torch.save({n: p.grad for n, p in problem["model"].named_parameters()}, args.gradients)
    print(json.dumps(figures))


def run_parent(args: argparse.Namespace) -> dict[str, Any]:
    """Both paths, checked against each other."""
    with tempfile.TemporaryDirectory() as folder:
        files = {path: Path(folder) / f"{path}.pt" for path in PATHS}
        figures = {path: json.loads(child_output(path, files[path])) for path in PATHS}
        cosine = smallest_cosine(*files.values())
    gap = abs(figures["full"]["loss"] - figures["chunked"]["loss"]) / abs(figures["full"]["loss"])
    if cosine < MIN_COSINE or gap > MAX_LOSS_GAP:
        raise SystemExit(f"the two paths differ: smallest gradient cosine {cosine:.7f}, relative loss gap {gap:.1e}; no figure counts")
    return {
        **figures,
        "ratio": figures["chunked"]["added_bytes"] / figures["full"]["added_bytes"],
        "smallest_gradient_cosine": cosine,
        "relative_loss_gap": gap,
    }


def child_output(path: str, gradients: Path) -> bytes:
    """Standard output of this script run with the same options for one path."""
    command = [sys.executable, *sys.argv, "--child", path, "--gradients", str(gradients)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


def smallest_cosine(first: Path, second: Path) -> float:
    """Over all parameters: the smallest cosine between the two gradients, in float64."""
    import torch

    a, b = torch.load(first), torch.load(second)
    return min(float(torch.dot(a[n].flatten(), b[n].flatten()) / (a[n].norm() * b[n].norm())) for n in a)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab", type=int, default=151_665)
    parser.add_argument("--tokens", type=int, default=2048, help="sampled tokens over all rows")
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument(
        "--context-share", type=float, default=0.0, help="share of each row that was not sampled; full logits pay for it too"
    )
    parser.add_argument("--hidden", type=int, default=896)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--child", choices=PATHS, help=argparse.SUPPRESS)
    parser.add_argument("--gradients", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    if args.child:
        run_child(args)
        return
    result = run_parent(args)
    from importlib.metadata import version

    report = {
        "command": shlex.join(["python", *sys.argv]),
        "problem": {k: getattr(args, k) for k in ("vocab", "tokens", "rows", "context_share", "hidden")},
        "versions": {"python": platform.python_version(), **{p: version(p) for p in ("torch", "transformers")}},
        "machine": {"cpus": os.cpu_count(), "threads": args.threads, "load": os.getloadavg()},
        "result": result,
    }
    for path in PATHS:
        print(f"{path:>8}: {result[path]['added_bytes'] / 2**20:8,.0f} MiB added, {result[path]['seconds']:.1f} s")
    print(f"chunked / full {result['ratio']:.3f}, gradients equal to cosine {result['smallest_gradient_cosine']:.7f}")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=2) + "\n")
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
