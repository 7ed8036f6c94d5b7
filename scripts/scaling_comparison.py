"""Train the base model with three schedules of rounds and several seeds on one budget of rounds: does a growing horizon help?

    python scripts/scaling_comparison.py --seeds 0 1 2 --rounds-budget 30000 --out runs/scaling --threads 2
    python scripts/scaling_comparison.py ... --record data/recorded/scaling_inter.json

Only the schedule differs between runs: config, items, seeds and updates are those of the demo. A run ends with the first update at which
its episodes have taken ``--rounds-budget`` rounds in all (``rounds_total`` says what the last update took beyond it). Held-out items are
played before and after with the suite's own limits, the same for all schedules. Runs go one after the other in this process; the same
command goes on where a stopped one was, and a finished run is not trained again. Lesson 08 shows what ``--record`` writes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from learning_table import Run, markdown, play, summarize

from agentgym_lite.config import Config, load_config
from agentgym_lite.demo import DemoSettings, demo_suite
from agentgym_lite.evaluation import bootstrap_mean
from agentgym_lite.evaluation.suite import Suite
from agentgym_lite.training import Trainer
from agentgym_lite.training.episodes import Episodes
from agentgym_lite.training.logging import METRICS_FILE
from agentgym_lite.training.loop import StepReport

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "configs" / "demo" / "grpo.yaml"
SCALING = "scaling_inter"
SCHEDULES = ("fixed_short", "fixed_long", SCALING)
#: Where a run that never spends its budget would end.
MOST_STEPS = 100_000
#: What a curve of the record holds: its name there, and the metric.
CURVES = {
    "rounds_total": "rounds/total",
    "tokens_total": "tokens/sampled_total",
    "success": "success/mean",
    "flat_groups": "groups/zero_variance",
}


@dataclass(frozen=True)
class Trained:
    """One run: what it solved before and after, and its metrics by step."""

    run: Run
    history: list[dict[str, float]]


class BudgetTrainer(Trainer):
    """A trainer that ends with the step at which its episodes have taken ``budget`` rounds in all; logs them as ``rounds/total``."""

    def __init__(self, config: Config, *, budget: int, **options: Any) -> None:
        super().__init__(config, **options)
        self._budget, self._taken, self._last = budget, 0, MOST_STEPS

    @property
    def total_steps(self) -> int:
        """The last step; unknown until the budget is spent."""
        return self._last

    def _learn(self, step: int, episodes: Episodes) -> StepReport:
        report = super()._learn(step, episodes)
        self._take(step, sum(t.rounds for t in episodes.trajectories))
        return StepReport({**report.metrics, "rounds/total": float(self._taken)}, report.trajectories)

    def _take(self, step: int, rounds: int) -> None:
        self._taken += rounds
        if self._taken >= self._budget:
            self._last = step

    def _extra_state(self) -> dict[str, Any]:
        return {**super()._extra_state(), "rounds_total": self._taken}

    def _restore_extra(self, state: Mapping[str, Any]) -> None:
        super()._restore_extra(state)
        self._take(int(state["step"]), int(state["rounds_total"]))


def overrides(schedule: str, seed: int, stage_steps: int, out: Path) -> list[str]:
    """Changes to the demo's config: this schedule (its first, its last or all of its stages), seed and folder, and no other end."""
    changes = [f"run.seed={seed}", f"run.out={json.dumps(str(out))}", f"run.steps={MOST_STEPS}", "run.time_limit_s=null"]
    for i, env in enumerate(_demo().envs):
        stages = list(env.rounds.rounds)
        rounds = {"fixed_short": stages[0], "fixed_long": stages[-1]}.get(schedule)
        if rounds is None:
            changes.append(f"envs.{i}.rounds={{type: scaling_inter, rounds: {stages}, steps_scaling_inter: {stage_steps}}}")
        else:
            changes.append(f"envs.{i}.rounds={{type: fixed, rounds: {rounds}}}")
    return changes


def _demo() -> Config:
    config = load_config(CONFIG)
    assert isinstance(config, Config)
    return config


def train(schedule: str, seed: int, suite: Suite, args: argparse.Namespace) -> Trained:
    """Train (or go on) and evaluate one schedule with one seed."""
    folder = args.out / schedule / f"seed_{seed}"
    changes = overrides(schedule, seed, args.stage_steps, folder / "train") + ([f"model.path={args.base}"] if args.base else [])
    config = load_config(CONFIG, [*changes, *args.set])
    assert isinstance(config, Config)
    before = play(config.model.path, suite, seed, args.max_new_tokens, args.out / "base" / f"seed_{seed}")
    trainer = BudgetTrainer(config, budget=args.rounds_budget, on_step=lambda m: print(progress(schedule, seed, m), flush=True))
    result = trainer.train(resume=(folder / "train" / METRICS_FILE).exists())
    after = play(str(result.checkpoint), suite, seed, args.max_new_tokens, folder / "eval")
    with (folder / "train" / METRICS_FILE).open(encoding="utf-8") as lines:
        history = [json.loads(line) for line in lines]
    return Trained(Run(schedule, seed, before, after, history[-1]["time/elapsed"]), history)


def progress(schedule: str, seed: int, metrics: Mapping[str, float]) -> str:
    return f"{schedule} seed {seed} step {metrics['step']:.0f}  rounds {metrics['rounds/total']:.0f}  success {metrics['success/mean']:.2f}"


# -- the record ------------------------------------------------------------------------------------------------------------


def difference(a: Sequence[Run], b: Sequence[Run]) -> dict[str, Any]:
    """Held-out success after training of ``a`` less that of ``b``: over items, each with its mean over the seeds that both have.

    The interval comes from a bootstrap over items; ``by_seed`` stands beside it, as three seeds are too few for an interval.
    """
    other = {r.seed: r for r in b}
    pairs = [(r, other[r.seed]) for r in a if r.seed in other]
    items = sorted(set.intersection(*({*x.after} & {*y.after} for x, y in pairs)))
    return {
        "a": a[0].method,
        "b": b[0].method,
        "difference": asdict(bootstrap_mean([fmean(x.after[i] - y.after[i] for x, y in pairs) for i in items])),
        "by_seed": [fmean(x.after[i] - y.after[i] for i in items) for x, y in pairs],
    }


def record(done: Mapping[str, Sequence[Trained]], args: argparse.Namespace, suite: Suite) -> dict[str, Any]:
    """All that lesson 08 shows; JSON-ready."""
    runs = {name: [t.run for t in trained] for name, trained in done.items() if trained}
    others = [name for name in runs if name != SCALING] if SCALING in runs else []
    return {
        "command": shlex.join(["python", *sys.argv]),
        "budget": {"rounds": args.rounds_budget, "stage_steps": args.stage_steps},
        "suite": {"title": suite.title, "items": len(suite.items)},
        "versions": {"python": platform.python_version(), **{p: version(p) for p in ("agentgym-lite", "torch", "transformers")}},
        "machine": {"cpus": os.cpu_count(), "threads": args.threads},
        "rows": [summarize(name, trained) for name, trained in runs.items()],
        "differences": [difference(runs[SCALING], runs[name]) for name in others],
        "runs": [
            {
                "method": t.run.method,
                "seed": t.run.seed,
                "updates": len(t.history),
                "train_s": t.run.train_s,
                "solved": sum(t.run.after.values()),
                "curve": {name: [round(m.get(metric, 0.0), 4) for m in t.history] for name, metric in CURVES.items()},
            }
            for trained in done.values()
            for t in trained
        ],
    }


# -- command line ----------------------------------------------------------------------------------------------------------


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", nargs="+", default=list(SCHEDULES), choices=SCHEDULES)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rounds-budget", type=int, default=30_000, help="rounds that a run's episodes may take in all")
    parser.add_argument("--stage-steps", type=int, default=12, help="updates per stage of the growing schedule")
    parser.add_argument("--base", help="model to begin with instead of the config's")
    parser.add_argument("--items-per-task", type=int, help="held-out items of each task (default: all)")
    parser.add_argument("--max-new-tokens", type=int, default=96, help="limit on a reply in evaluation")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="more changes to the config of all runs")
    parser.add_argument("--out", type=Path, default=Path("runs/scaling"))
    parser.add_argument("--record", type=Path, help="also write the result here, for lesson 08")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args(argv)


def main() -> None:
    args = parse_args()
    torch.set_num_threads(args.threads)
    suite = demo_suite(DemoSettings(items_per_task=args.items_per_task))
    done: dict[str, list[Trained]] = {name: [] for name in args.schedules}
    for seed in args.seeds:  # a seed of every schedule first: a stopped run then compares all of them
        for schedule in args.schedules:
            done[schedule].append(train(schedule, seed, suite, args))
            report = record(done, args, suite)
            for path in filter(None, (args.out / "scaling.json", args.record)):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(markdown(report["rows"]))


if __name__ == "__main__":
    main()
