"""``agl train`` and ``agl demo``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from agentgym_envs.core import environment_class
from agentgym_lite.cli.errors import UserError
from agentgym_lite.cli.output import make_table, notes, percent, percent_range, progress, results
from agentgym_lite.cli.server_process import ServerProcess
from agentgym_lite.config import load_config

if TYPE_CHECKING:
    from agentgym_lite import demo

#: Marks a folder as one that a later demo may replace.
_MARK = "demo.json"


def run_training(config_path: Path, overrides: Sequence[str], presets: Sequence[str], resume: bool) -> None:
    """Train and say where the checkpoint is; of several processes the main one says it.

    Raises ``ConfigError``, ``CheckpointError``, ``EnvironmentFailure``, ``TrainingError``.
    """
    config = load_config(config_path, overrides, presets)
    for env in config.environments:
        environment_class(env)  # an unknown name is told before the model is loaded
    from agentgym_lite.training import make_trainer  # imports torch: not before the config is known to be good

    with progress(f"train ({config.method})", quiet=os.environ.get("RANK", "0") != "0") as advance:

        def report(metrics: dict[str, float]) -> None:
            advance(int(metrics["step"]), trainer.total_steps, _latest(metrics))

        trainer = make_trainer(config, on_step=report)
        result = trainer.train(resume=resume)
        trainer.world.close()
    reason = "" if result.stopped_by == "steps" else f" (stopped by the time limit of {config.run.time_limit_s:g} s)"
    if trainer.world.is_main:
        results.print(f"{result.step} steps done{reason}; checkpoint: {result.checkpoint}", soft_wrap=True)


def _latest(metrics: Mapping[str, float]) -> str:
    """The most telling figures of a step, whatever the method."""
    shown = [f"iteration {metrics['evol/iteration']:.0f}"] if "evol/iteration" in metrics else []
    for name in ("success/mean", "explore/success", "eval/success", "dpo/accuracy"):
        if name in metrics:
            shown.append(f"{name.replace('/mean', '')} {100 * metrics[name]:.0f} %")
    for name in ("loss/total", "eval/loss"):
        if name in metrics and "success/mean" not in metrics:
            shown.append(f"{name.removesuffix('/total')} {metrics[name]:.3f}")
    return "  ".join(shown)


def run_demo(out: Path, steps: int | None, minutes: float | None, seed: int) -> None:
    """The demo from server to report."""
    from agentgym_lite import demo

    settings = demo.DemoSettings(steps=steps, time_limit_s=minutes and 60 * minutes, seed=seed)
    _prepare(out)
    options = {"steps": steps, "minutes": minutes, "seed": seed}
    command = " ".join([f"agl demo --out {out}", *(f"--{name} {value}" for name, value in options.items() if value)])
    envs = list(load_config(settings.config).environments)
    with ServerProcess(envs) as server:
        notes.print(f"environments {', '.join(envs)} at {server.url}", soft_wrap=True)
        run = demo.run_demo(settings, out, server.url, progress, command)
    results.print(_table(run))
    results.print(f"report: {run.report}", soft_wrap=True)


def _prepare(out: Path) -> None:
    """An empty folder with the demo's mark. Raises ``UserError`` rather than touch anything that no demo has made."""
    if out.exists() and not out.is_dir():
        raise UserError(f"expected a folder as --out, found a file at '{out}'")
    if out.is_dir() and any(out.iterdir()):
        if not (out / _MARK).is_file():
            raise UserError(f"'{out}' holds files that no demo has made; choose another --out or empty it")
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / _MARK).write_text('{"made_by": "agl demo"}\n', encoding="utf-8")


def _table(run: demo.DemoRun) -> Table:
    table = make_table("Success on held-out items, with 95 % Wilson intervals")
    for column in ("n", "random", "before", "95 % CI", "after", "95 % CI", "expert"):
        table.add_column(column, justify="right", no_wrap=True)
    rows = {agent: {**r.tasks, **{f"{env} (all)": s for env, s in r.environments.items()}} for agent, r in run.results.items()}
    for name in sorted(rows["trained"]):
        low, before, after, high = (rows[agent][name].success for agent in ("random", "base", "trained", "expert"))
        cells = [percent(low), percent(before), percent_range(before), percent(after), percent_range(after), percent(high)]
        table.add_row(name, str(rows["trained"][name].episodes), *cells, style="bold" if name.endswith("(all)") else "")
    return table
