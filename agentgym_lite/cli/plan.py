"""``agl plan``."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import typer
from rich.table import Table

from agentgym_lite.cli.errors import UserError
from agentgym_lite.cli.output import make_table, notes, results
from agentgym_lite.config import load_config
from agentgym_lite.plan import Plan, Throughput, make_plan, measured

_GIB = 2**30


def run_plan(
    config_path: Path,
    overrides: Sequence[str],
    presets: Sequence[str],
    *,
    gpus: int | None,
    gpu_memory: float | None,
    sampled: float | None,
    trained: float | None,
    run: Path | None,
    as_json: bool,
) -> None:
    """Print what a run needs; exit code 1 if it is impossible. Raises ``ConfigError``, ``PlanError``, ``ModelError``, ``UserError``."""
    usage, throughput = measured(run) if run is not None else (None, None)
    if (sampled is None) != (trained is None):
        raise UserError("expected both --tokens-per-second and --train-tokens-per-second or neither: sampling and updates differ")
    if sampled is not None and trained is not None:
        throughput = Throughput(sampled, trained)
    config = load_config(config_path, overrides, presets)
    plan = make_plan(config, gpus=gpus, gpu_memory=gpu_memory, usage=usage, throughput=throughput)
    if as_json:
        results.print_json(json.dumps(_as_json(plan)))
    else:
        _show(plan)
    if plan.problems:
        raise typer.Exit(1)


def _as_json(plan: Plan) -> dict[str, object]:
    data = dataclasses.asdict(plan)
    data["memory"] |= {"peak": plan.memory.peak, "moment": plan.memory.moment}
    data["work"]["hours"] = plan.work.hours
    data["possible"] = not plan.problems
    return data


def _show(plan: Plan) -> None:
    model, machine, memory = plan.model, plan.machine, plan.memory
    results.print(f"{model.name}: {model.parameters:,} parameters, {model.trainable:,} trained", soft_wrap=True, highlight=False)
    results.print(_memory_table(plan))
    verdict = "fits" if memory.peak <= machine.memory else "does not fit"
    results.print(
        f"peak {memory.peak / _GIB:.2f} GiB per device ({memory.moment}; passes of {plan.pass_tokens:,} tokens): {verdict} into "
        f"{machine.memory / _GIB:.1f} GiB",
        soft_wrap=True,
        highlight=False,
    )
    results.print(_work_table(plan))
    if plan.work.hours is not None:
        results.print(f"{plan.work.hours:.1f} hours in all", highlight=False)
    for note in plan.notes:
        notes.print(f"note: {note}", soft_wrap=True, highlight=False)
    for problem in plan.problems:
        notes.print(f"impossible: {problem}", soft_wrap=True, highlight=False)


def _memory_table(plan: Plan) -> Table:
    table = make_table(f"Memory per device ({plan.machine.devices} x {plan.machine.device})", "what")
    table.add_column("when", no_wrap=True)
    table.add_column("GiB", justify="right", no_wrap=True)
    for item in plan.memory.items:
        table.add_row(item.name, item.when, f"{item.bytes / _GIB:.2f}")
    return table


def _work_table(plan: Plan) -> Table:
    table = make_table("Work per step" if plan.work.measured else "Work per step, at most", "rounds")
    for column in ("steps", "sampled tokens", "tokens", "minutes"):
        table.add_column(column, justify="right", no_wrap=True)
    for stage in plan.work.stages:
        rounds = ", ".join(str(r) if len(stage.rounds) == 1 else f"{name} {r}" for name, r in stage.rounds.items())
        minutes = "-" if stage.seconds is None else f"{stage.seconds / 60:.1f}"
        table.add_row(rounds, str(stage.steps), f"{stage.sampled:,.0f}", f"{stage.tokens:,.0f}", minutes)
    return table
