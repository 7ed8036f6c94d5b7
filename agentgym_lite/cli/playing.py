"""``agl rollout`` and ``agl eval``."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from agentgym_envs.core import Split, environment_class
from agentgym_lite.cli.errors import UserError
from agentgym_lite.cli.output import make_table, print_json, progress, results, summary_table
from agentgym_lite.evaluation import Results, ResultsFolder, evaluate, load_suite, make_player, play_missing, summarize
from agentgym_lite.evaluation.metrics import Summary
from agentgym_lite.evaluation.paper import SCENARIOS, OwnRun
from agentgym_lite.evaluation.results import RESULTS
from agentgym_lite.rollout.types import EpisodeSpec, Trajectory


def run_rollout(
    env: str,
    agent: str,
    n: int,
    out: Path,
    split: Split,
    rounds: int,
    seed: int,
    as_json: bool,
    **player_options: Any,
) -> None:
    """Play ``n`` episodes of a split; items in a random order fixed by ``seed``, each once before any is played again.

    ``player_options`` are those of :func:`make_player <agentgym_lite.evaluation.make_player>`.
    """
    items = list(environment_class(env).items(split))
    random.Random(seed).shuffle(items)
    specs = [EpisodeSpec(env, items[k % len(items)], sample=k // len(items)) for k in range(n)]
    player = make_player(resolve(agent), seed=seed, **player_options)
    version = player.backends([env])[env].version
    folder = ResultsFolder(out, {"env": env, "env_version": version, "split": split, "max_rounds": rounds, **player.settings})
    with progress(f"{agent} plays {env}", quiet=as_json) as advance:
        play_missing(player, [(s, rounds) for s in specs], folder, lambda _, done, total: advance(done, total))
    wanted = set(specs)
    episodes = [e for e in folder.episodes.values() if e.spec in wanted]
    by_task = {f"{env}/{t}": summarize([e for e in episodes if e.task == t]) for t in sorted({e.task for e in episodes})}
    overall = summarize(episodes)
    data: dict[str, Any] = {"agent": agent, "tasks": {k: s.to_dict() for k, s in by_task.items()}, "overall": overall.to_dict()}
    (out / RESULTS).write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    _show(f"{agent} on {env} ({split} items, at most {rounds} rounds)", {**by_task, "all": overall}, data, out, as_json)


def run_eval(
    agent: str,
    suite_name: str,
    only: Sequence[str],
    samples: int,
    rounds: int | None,
    out: Path,
    as_json: bool,
    **player_options: Any,
) -> None:
    """Play a suite; print its table, and its figures in the columns of the paper's tables."""
    suite = load_suite(suite_name)
    player = make_player(resolve(agent), **player_options)

    with progress(f"{agent} plays {suite.name}", quiet=as_json) as advance:

        def tell(_: Trajectory, done: int, total: int) -> None:
            advance(done, total)

        found = evaluate(player, suite, out, only=only, samples=samples, max_rounds=rounds, on_episode=tell)
    rows = {**found.tasks, **{f"{env} (all)": s for env, s in found.environments.items()}}
    if not as_json:
        for table in paper_rows(found):
            results.print(table)
    _show(f"{agent} on {suite.title}", rows, found.to_dict(), out, as_json)


def paper_rows(found: Results) -> list[Table]:
    """For each scenario that was played, one line in the columns of the paper's table: success in percent."""
    run = OwnRun("", found.agent, found.suite.name, *({k: s.to_dict() for k, s in g.items()} for g in (found.tasks, found.environments)))
    tables = []
    for s in SCENARIOS:
        cells = {name: run.cell(s, name) for name in s.names}
        if any(cells.values()):
            table = make_table(f"{s.name}, columns of the paper's table {s.table}: success in percent", first="agent")
            for name in cells:
                table.add_column(name, justify="right", no_wrap=True)
            table.add_row(found.agent, *("-" if c is None else f"{100 * c.value.value:.2f}" for c in cells.values()))
            tables.append(table)
    return tables


def resolve(agent: str) -> str:
    """An agent's name; the folder of a training run stands for its last good checkpoint. Raises ``CheckpointError``."""
    if not (Path(agent) / "checkpoints").is_dir():
        return agent
    from agentgym_lite.training.checkpoint import latest_checkpoint  # imports torch

    return str(latest_checkpoint(agent))


def _show(title: str, rows: dict[str, Summary], data: dict[str, Any], out: Path, as_json: bool) -> None:
    """Print the result. Raises ``UserError`` if the environment broke episodes, since then the work is not done."""
    if as_json:
        print_json(data)
    else:
        results.print(summary_table(title, rows))
        results.print(f"episodes and results: {out}", soft_wrap=True)
    if lost := data["overall"]["env_errors"]:
        raise UserError(f"{lost} episodes were lost to environment errors; see that the server runs and repeat the command to play them")
