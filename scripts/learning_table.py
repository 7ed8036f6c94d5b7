"""Train the base model with several methods and seeds on one budget of episodes, and tabulate held-out success before and after.

    python scripts/learning_table.py --methods grpo ppo rloo sft dpo agentevol --seeds 0 1 2 --steps 18 --out runs/learning --threads 2

The budget is what reinforcement learning plays in ``--steps`` steps; the methods that learn from trajectories get as many episodes, an
expert's included. Runs go one after the other in this process. The same command goes on where a stopped one was: a finished run is not
trained again, a broken one is resumed, episodes of evaluations that were played are kept. Held-out items are those of the suite's rows
that the configs train on; every model plays each of them once per seed, with the temperature of training.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from agentgym_lite.config import load_config
from agentgym_lite.demo import DemoSettings, demo_suite
from agentgym_lite.evaluation import bootstrap_mean, evaluate, make_player, wilson
from agentgym_lite.evaluation.results import EPISODES
from agentgym_lite.evaluation.suite import Suite
from agentgym_lite.rollout.types import StopReason, Trajectory
from agentgym_lite.training import make_trainer
from agentgym_lite.training.logging import METRICS_FILE

ROOT = Path(__file__).resolve().parents[1]
RL = tuple(sorted(p.stem for p in (ROOT / "configs" / "algorithms").glob("*.yaml")))
METHODS = (*RL, "sft", "dpo", "agentevol")
#: Expert episodes that AgentEvol begins with, its iterations and its episodes per item.
EVOL_START, EVOL_ITERATIONS, EVOL_SAMPLES = 64, 3, 8


@dataclass(frozen=True)
class Budget:
    """What reinforcement learning plays: ``steps`` of ``groups`` items with ``group_size`` episodes each."""

    steps: int
    groups: int
    group_size: int

    @property
    def episodes(self) -> int:
        return self.steps * self.groups * self.group_size


@dataclass(frozen=True)
class Run:
    """One method with one seed: which of the held-out items (``env/task/item``) it solved, before training and after."""

    method: str
    seed: int
    before: dict[str, bool]
    after: dict[str, bool]
    train_s: float


def config_of(method: str) -> Path:
    """The shipped config of a method."""
    return ROOT / "configs" / ("algorithms" if method in RL else "") / f"{method}.yaml"


def overrides(method: str, seed: int, budget: Budget, out: Path) -> list[str]:
    """Changes to the shipped config that give the method this seed, folder and number of episodes."""
    common = [f"run.seed={seed}", f"run.out={json.dumps(str(out))}"]
    n = budget.episodes
    if method in RL:
        own = [f"run.steps={budget.steps}", f"run.groups_per_step={budget.groups}", f"algorithm.group_size={budget.group_size}"]
    elif method == "sft":
        own = [f"data.sources.0.n={n}"]
    elif method == "dpo":
        own = [f"data.expert.0.n={n // 2}", "data.own.0.samples=1"]
    else:
        start = min(EVOL_START, n // 4)
        items = max(1, (n - start) // (EVOL_ITERATIONS * EVOL_SAMPLES))
        own = [
            f"data.sources.0.n={start}",
            f"explore.items={items}",
            f"explore.samples={EVOL_SAMPLES}",
            f"evol.iterations={EVOL_ITERATIONS}",
        ]
    return common + own


def play(model: str, suite: Suite, seed: int, max_new_tokens: int, out: Path) -> dict[str, bool]:
    """Which items of the suite the model solves; episodes that the environment broke are left out."""
    evaluate(make_player(model, seed=seed, temperature=1.0, max_new_tokens=max_new_tokens), suite, out)
    with (out / EPISODES).open(encoding="utf-8") as lines:
        episodes = [Trajectory.from_dict(json.loads(line)) for line in lines]
    return {f"{e.spec.env}/{e.task}/{e.spec.item_id}": e.success for e in episodes if e.stop_reason is not StopReason.ENV_ERROR}


def run(method: str, seed: int, budget: Budget, suite: Suite, args: argparse.Namespace) -> Run:
    """Train (or go on) and evaluate one method with one seed."""
    folder = args.out / method / f"seed_{seed}"
    changes = overrides(method, seed, budget, folder / "train") + ([f"model.path={args.base}"] if args.base else [])
    config = load_config(config_of(method), [*changes, *args.set])
    before = play(config.model.path, suite, seed, args.max_new_tokens, args.out / "base" / f"seed_{seed}")
    trainer = make_trainer(config, on_step=lambda m: print(progress(method, seed, m), flush=True))
    result = trainer.train(resume=(folder / "train" / METRICS_FILE).exists())
    after = play(str(result.checkpoint), suite, seed, args.max_new_tokens, folder / "eval")
    with (folder / "train" / METRICS_FILE).open(encoding="utf-8") as lines:
        seconds = [json.loads(line).get("time/elapsed", 0.0) for line in lines][-1]
    return Run(method, seed, before, after, seconds)


def progress(method: str, seed: int, metrics: dict[str, float]) -> str:
    shown = {k: metrics[k] for k in ("success/mean", "loss/total", "loss/policy") if k in metrics}
    return f"{method} seed {seed} step {metrics['step']:.0f}  " + "  ".join(f"{k} {v:.3f}" for k, v in shown.items())


# -- the table -------------------------------------------------------------------------------------------------------------


def summarize(method: str, runs: Sequence[Run]) -> dict[str, Any]:
    """Success before and after over all items and seeds, the gain, and the same by environment.

    Intervals come from a bootstrap over items, each with its mean over seeds: items are what another test set would change.
    The spread over seeds stands beside it, as three seeds are too few for an interval.
    """
    items = sorted(set.intersection(*({*r.before} & {*r.after} for r in runs)))
    gains = [fmean(r.after[i] - r.before[i] for r in runs) for i in items]
    return {
        "method": method,
        "seeds": [r.seed for r in runs],
        "before": _rate([[r.before[i] for r in runs] for i in items]),
        "after": _rate([[r.after[i] for r in runs] for i in items]),
        "gain": asdict(bootstrap_mean(gains)),
        "gain_by_seed": [fmean(r.after[i] - r.before[i] for i in items) for r in runs],
        "after_by_env": {
            env: fmean(r.after[i] for r in runs for i in items if i.startswith(f"{env}/"))
            for env in sorted({i.split("/")[0] for i in items})
        },
        "train_s": fmean(r.train_s for r in runs),
    }


def _rate(solved: Sequence[Sequence[bool]]) -> dict[str, float]:
    """Mean over items with a bootstrap interval; where all items agree, Wilson's with one vote per item."""
    means = [fmean(x) for x in solved]
    agree = min(means) == max(means) and means[0] in (0.0, 1.0)
    return asdict(wilson(round(sum(means)), len(means)) if agree else bootstrap_mean(means))


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """The table for the docs: percentages with 95 % intervals."""
    envs = list(rows[0]["after_by_env"])
    head = ["method", "before", "after", "gain", "gain by seed", *(f"{env} after" for env in envs), "training"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for r in rows:
        by_seed = ", ".join(f"{100 * g:+.0f}" for g in r["gain_by_seed"])
        by_env = [f"{100 * r['after_by_env'][env]:.0f} %" for env in envs]
        cells = [r["method"], _cell(r["before"]), _cell(r["after"]), _cell(r["gain"], sign="+"), by_seed, *by_env, f"{r['train_s']:.0f} s"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(x: dict[str, float], sign: str = "") -> str:
    value, low, high = (format(100 * x[k], f"{sign}.0f") for k in ("value", "low", "high"))
    return f"{value} % [{low}, {high}]"


def as_json(report: dict[str, Any]) -> str:
    """The report with a line per run, whose items would otherwise take thousands."""
    runs = ",\n".join("    " + json.dumps(r) for r in report["runs"])
    head = json.dumps({k: v for k, v in report.items() if k != "runs"}, indent=2)
    return head[:-2] + ',\n  "runs": [\n' + runs + "\n  ]\n}\n"


# -- command line ----------------------------------------------------------------------------------------------------------


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=18, help="steps of reinforcement learning; they set everyone's budget of episodes")
    parser.add_argument("--groups", type=int, default=12, help="items per step")
    parser.add_argument("--group-size", type=int, default=8, help="episodes per item")
    parser.add_argument("--base", help="model to begin with instead of the configs'")
    parser.add_argument("--items-per-task", type=int, help="held-out items of each task (default: all)")
    parser.add_argument("--max-new-tokens", type=int, default=96, help="limit on a reply in evaluation")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="more changes to the configs of all methods")
    parser.add_argument("--out", type=Path, default=Path("runs/learning"))
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    torch.set_num_threads(args.threads)
    budget = Budget(args.steps, args.groups, args.group_size)
    suite = demo_suite(DemoSettings(items_per_task=args.items_per_task))
    done: dict[str, list[Run]] = {m: [] for m in args.methods}
    for seed in args.seeds:  # a seed of every method first: a stopped run then compares all of them
        for method in args.methods:
            done[method].append(run(method, seed, budget, suite, args))
            rows = [summarize(m, runs) for m, runs in done.items() if runs]
            report = {
                "command": shlex.join(["python", *sys.argv]),
                "budget": {**asdict(budget), "episodes": budget.episodes},
                "suite": {"title": suite.title, "items": len(suite.items)},
                "versions": {"python": platform.python_version(), **{p: version(p) for p in ("agentgym-lite", "torch", "transformers")}},
                "machine": {"cpus": os.cpu_count(), "threads": args.threads},
                "rows": rows,
                "runs": [asdict(r) for runs in done.values() for r in runs],
            }
            (args.out / "learning.json").write_text(as_json(report), encoding="utf-8")
            (args.out / "learning.md").write_text(markdown(rows), encoding="utf-8")
    print(markdown(rows))


if __name__ == "__main__":
    main()
