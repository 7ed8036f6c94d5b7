"""`agl plan` against measured peaks: two updates and a weight sync on rows as long as the settings allow, each case in its own process.

On a CPU the measure is what the peak resident set grew by from just before the model was made; on CUDA it is the allocator's peak.

    python benchmarks/plan_memory.py                       # all cases on the CPU
    python benchmarks/plan_memory.py --device cuda --only 1.5b_lora
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
from dataclasses import asdict
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "plan_memory.json"
#: Largest relative error that passes.
TOLERANCE = 0.15
#: A random-init model of about 90 million parameters.
_MEDIUM = {
    "model_type": "qwen2", "vocab_size": 8192, "hidden_size": 768, "intermediate_size": 2304, "num_hidden_layers": 12,
    "num_attention_heads": 12, "num_key_value_heads": 4, "max_position_embeddings": 4096, "tie_word_embeddings": True,
}  # fmt: skip
_LORA = {"r": 16, "alpha": 32}
#: Settings of each case. Episodes per update and their length are chosen so that activations weigh about as much as weights.
CASES: dict[str, dict[str, Any]] = {
    "tiny": {"model": {"path": "tiny"}, "rows": 4, "length": 2048, "sessions": 8},
    "tiny_recompute": {"model": {"path": "tiny", "gradient_checkpointing": True}, "rows": 8, "length": 2048, "sessions": 8},
    "90m": {"model": {"path": "90m"}, "rows": 2, "length": 128, "sessions": 4},
    "90m_recompute": {"model": {"path": "90m", "gradient_checkpointing": True}, "rows": 2, "length": 128, "sessions": 4},
    "90m_lora": {"model": {"path": "90m", "lora": _LORA}, "rows": 2, "length": 128, "sessions": 4},
    "1.5b_lora": {
        "model": {"path": "Qwen/Qwen2.5-1.5B-Instruct", "dtype": "bfloat16", "gradient_checkpointing": True, "lora": _LORA},
        "rows": 4, "length": 4096, "sessions": 32,
    },
    "1.5b_full": {
        "model": {"path": "Qwen/Qwen2.5-1.5B-Instruct", "dtype": "mixed", "gradient_checkpointing": True},
        "rows": 4, "length": 4096, "sessions": 32, "engine": "bfloat16",
    },
}  # fmt: skip
_CPU_CASES = [name for name in CASES if not name.startswith("1.5b")]


def config_of(case: dict[str, Any], folder: Path) -> Any:
    """The case as a training config. ``90m`` becomes a folder with a config.json alone."""
    from agentgym_lite.config import parse_config

    model = dict(case["model"])
    if model["path"] == "90m":
        (folder / "config.json").write_text(json.dumps(_MEDIUM))
        model["path"] = str(folder)
    return parse_config(
        {
            "envs": [{"name": "textcraft"}],
            "model": model,
            "algorithm": {"group_size": case["rows"], "kl_coef": 0.001, "zero_variance": "keep", "epochs": 2},
            "rollout": {"max_length": case["length"], "max_sessions": case["sessions"], "dtype": case.get("engine")},
            "optim": {"micro_batch_tokens": case["rows"] * case["length"]},
            "run": {"groups_per_step": 1},
        }
    )


def episodes(case: dict[str, Any], vocab: int) -> list[Any]:
    """Rows of the full length, all but an eighth of them sampled: the plan counts on the worst."""
    import numpy as np

    from agentgym_lite.rollout.types import EpisodeSpec, StopReason, TokenRow, Trajectory, Turn

    out = []
    for k in range(case["rows"]):
        ids = np.random.default_rng(k).integers(0, vocab, case["length"]).tolist()
        row, start = TokenRow(), case["length"] // 8
        row.append_context(ids[:start], 0)
        row.append_action(ids[start:], [-1.0] * (len(ids) - start), 0)
        turn = Turn("", "", None, reward=float(k % 2), start=start, end=len(ids))
        out.append(Trajectory(EpisodeSpec("textcraft", "textcraft_0", sample=k), [row], [turn], StopReason.SUCCESS))
    return out


def run_child(case: dict[str, Any], device: str) -> dict[str, float]:
    """Measured and planned bytes of one case in this process."""
    import torch
    from transformers import AutoModelForCausalLM

    from agentgym_lite.lora import frozen_reference, with_lora
    from agentgym_lite.models import checkpoint_layers
    from agentgym_lite.plan import Machine, model_facts, plan_memory
    from agentgym_lite.plan.model import architecture
    from agentgym_lite.rollout.native import NativeEngine
    from agentgym_lite.rollout.types import SamplingParams
    from agentgym_lite.training.batch import Batch
    from agentgym_lite.training.update import PolicyUpdater

    with tempfile.TemporaryDirectory() as folder:
        config = config_of(case, Path(folder))
        facts, settings = model_facts(config.model), architecture(config.model.path)
    planned = plan_memory(config, facts, Machine(device, float("inf")))
    data = episodes(case, facts.vocab)
    one = Batch.from_trajectories(data[:1])  # what is imported on first use is not the model's
    del one
    before = peak_bytes(device)
    kind = torch.bfloat16 if config.model.dtype == "bfloat16" else torch.float32
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(settings, dtype=kind)
    model = with_lora(model, config.model.lora, 0)
    if config.model.gradient_checkpointing:
        checkpoint_layers(model)
    rollout = config.rollout
    dtype = getattr(torch, rollout.dtype) if rollout.dtype else None
    engine = NativeEngine(model, max_sessions=rollout.max_sessions, max_length=rollout.max_length, stop_ids=[0], device=device, dtype=dtype)
    updater = PolicyUpdater(
        model, config.algorithm, config.optim, temperature=1.0, seed=0, reference=frozen_reference(model)
    )  # fmt: skip
    session = engine.open()
    engine.submit(session, [1] * (case["length"] // 2), SamplingParams(1.0, 1.0, 4), 0)
    engine.step()
    engine.release(session)
    with torch.autocast(device, torch.bfloat16, enabled=config.model.dtype == "mixed", cache_enabled=False):
        updater.update(Batch.from_trajectories(data, device=device), 1)  # two updates: the second with the moments there
    engine.sync()
    context = sum(i.bytes for i in planned.items if i.name.startswith("CUDA context"))
    return {"measured": peak_bytes(device) - before, "planned": planned.peak - context, "items": [asdict(i) for i in planned.items]}


def peak_bytes(device: str) -> int:
    """Largest resident set of this process so far, or the most that was allocated on the GPU."""
    if device == "cuda":
        import torch

        return torch.cuda.max_memory_allocated()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def measure(name: str, device: str) -> dict[str, Any]:
    """One case in a process of its own."""
    command = [sys.executable, __file__, "--child", name, "--device", device]
    # Every tensor gets pages of its own: holes that the heap keeps between large blocks are the allocator's, not the run's.
    env = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    figures = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, env=env).stdout)
    return figures | {"error": figures["planned"] / figures["measured"] - 1}


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", nargs="*", choices=list(CASES), help="default: all that fit the device")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--child", choices=list(CASES), help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    if args.child:
        print(json.dumps(run_child(CASES[args.child], args.device)))
        return
    figures = {name: measure(name, args.device) for name in args.only or (_CPU_CASES if args.device == "cpu" else list(CASES))}
    from importlib.metadata import version

    report = {
        "command": shlex.join(["python", *sys.argv]),
        "versions": {"python": platform.python_version(), **{p: version(p) for p in ("torch", "transformers", "peft")}},
        "machine": {"cpus": os.cpu_count(), "device": args.device},
        "tolerance": TOLERANCE,
        "cases": figures,
    }
    for name, case in figures.items():
        print(
            f"{name:>16}: planned {case['planned'] / 2**20:9,.0f} MiB, measured {case['measured'] / 2**20:9,.0f} MiB, {case['error']:+.1%}"
        )
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    print(f"wrote {args.out}")
    if any(abs(case["error"]) > TOLERANCE for case in figures.values()):
        raise SystemExit(f"a plan is off by more than {TOLERANCE:.0%}")


if __name__ == "__main__":
    main()
