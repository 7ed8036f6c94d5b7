"""The demo over several training seeds: held-out success before and after, pooled over seeds, as JSON and as a Markdown table.

``python benchmarks/demo_seeds.py --seeds 0 1 2`` runs ``agl demo`` once per seed, one after the other and to the last step (runs that are
complete are kept), and writes ``benchmarks/results/demo_seeds.json``. Intervals are 95 % Wilson intervals of the pooled episodes; the
spread over seeds is shown beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import mean
from typing import Any

from agentgym_lite.viewer.report_data import REPORT_JSON, ReportData, Score, TaskRow, load_report_data

RESULTS = Path(__file__).parent / "results" / "demo_seeds.json"
AGENTS = ("random", "base", "trained", "expert")


def main() -> int:
    """Run what is missing, then summarise; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=Path("runs/demo_seeds"), help="folder of the runs (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    reports = [load_report_data(run(seed, args.runs / f"seed_{seed}")) for seed in args.seeds]
    result = {"command": f"python benchmarks/demo_seeds.py --seeds {' '.join(map(str, args.seeds))}", **summary(reports)}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=2) + "\n")
    print(table(result))
    return 0


def run(seed: int, folder: Path) -> Path:
    """The finished run of a seed. Raises ``SystemExit`` if the demo fails."""
    if not (folder / REPORT_JSON).exists():
        command = [sys.executable, "-m", "agentgym_lite.cli", "demo", "--minutes", "60", "--seed", str(seed), "--out", str(folder)]
        if code := subprocess.call(command):
            sys.exit(f"the demo of seed {seed} ended with code {code}; its folder is '{folder}'")
    return folder


def summary(reports: list[ReportData]) -> dict[str, Any]:
    """Rows by task, and their unweighted mean by environment, with what the runs cost and where they ran."""
    rows: dict[str, dict[str, Any]] = {}
    for first in reports[0].results:
        same = [next(r for r in report.results if (r.env, r.task) == (first.env, first.task)) for report in reports]
        rows[f"{first.env}/{first.task}"] = {agent: cell([score(r, agent) for r in same]) for agent in AGENTS}
    for env in dict.fromkeys(row.split("/")[0] for row in rows):
        members = [row for name, row in rows.items() if name.startswith(f"{env}/")]
        per_seed = {a: [mean(m[a]["by_seed"][i] for m in members) for i in range(len(reports))] for a in AGENTS}
        rows[f"{env}, mean of tasks"] = {a: {"rate": mean(v), "by_seed": v} for a, v in per_seed.items()}
    return {
        "rows": rows,
        "train_seconds": [next(t for name, t in r.times_s.items() if name == "train") for r in reports],
        "total_seconds": [sum(r.times_s.values()) for r in reports],
        "hardware": reports[0].hardware,
        "versions": reports[0].versions,
        "threads": os.environ.get("OMP_NUM_THREADS", "default"),
    }


def score(row: TaskRow, agent: str) -> Score:
    found: Score | None = getattr(row, agent)
    assert found is not None, f"the report has no results of the {agent} agent"
    return found


def cell(scores: list[Score]) -> dict[str, Any]:
    """Pooled success of an agent over seeds."""
    pooled = sum(scores[1:], scores[0])
    return {"rate": pooled.rate, "low": pooled.low, "high": pooled.high, "n": pooled.n, "by_seed": [s.rate for s in scores]}


def table(result: dict[str, Any]) -> str:
    """Markdown."""
    lines = ["| held-out task | random | before | after | by seed | gain, points | expert |", "|---|---|---|---|---|---|---|"]
    for name, row in result["rows"].items():
        before, after = row["base"], row["trained"]
        interval = f" ({after['low']:.0%}-{after['high']:.0%})" if "low" in after else ""
        start = f" ({before['low']:.0%}-{before['high']:.0%})" if "low" in before else ""
        seeds = ", ".join(f"{x:.0%}" for x in after["by_seed"])
        gain = f"{100 * (after['rate'] - before['rate']):+.0f}"
        lines.append(
            f"| {name} | {row['random']['rate']:.0%} | {before['rate']:.0%}{start} | {after['rate']:.0%}{interval} | {seeds} | {gain} "
            f"| {row['expert']['rate']:.0%} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
