"""``agl tables``: the paper's tables with recorded and own runs beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentgym_lite.cli.output import make_table, print_json, results
from agentgym_lite.evaluation.paper import (
    DEFAULT_MODELS,
    SCENARIOS,
    Cell,
    Scenario,
    Table,
    build_table,
    headline,
    read_run,
    recorded_runs,
    scenario,
)

PROTOCOL = (
    "Protocol. paper: as printed (arXiv 2509.08755; one sample at temperature 1, full-scale environments); the paper gives no intervals, "
    "these are Wilson's from its inferred numbers of items. recorded and own: `agl eval` of this kit. A run on lite27 plays the offline "
    "environments, whose tasks are others: its figures stand beside the paper's, they do not compare with them."
)


def run_tables(runs: Sequence[Path], names: Sequence[str], models: Sequence[str], figures: Path | None, as_json: bool) -> None:
    """Print one table per scenario and the mean over scenarios; write the figures if asked to."""
    own, recorded = [read_run(r) for r in runs], recorded_runs()
    shown: Sequence[Scenario] = [scenario(n) for n in names] or SCENARIOS
    tables = [build_table(s, own, recorded, models or DEFAULT_MODELS) for s in shown]
    means = headline([*recorded, *own], models or DEFAULT_MODELS)
    if as_json:
        print_json({"protocol": PROTOCOL, "tables": [t.to_dict() for t in tables], "mean_of_scenarios": means})
    else:
        for t in tables:
            _print(t)
        results.print("Mean over the five scenarios: " + "; ".join(f"{k} {v:.1f} %" for k, v in means.items()))
        results.print(PROTOCOL)
    if figures is not None:
        from agentgym_lite.viewer.paper_plots import save_figures

        for path in save_figures(tables, figures):
            results.print(f"figure: {path}", soft_wrap=True)


def _print(table: Table) -> None:
    title = f"Table {table.scenario.table}. {table.scenario.name}: success in percent [95 % interval]"
    out = make_table(title)
    for source in table.sources:
        out.add_column(source.replace(": ", ":\n", 1), justify="right")
    for column, row in table.rows.items():
        out.add_row(f"{column} ({table.scenario.column(column).items})", *(_text(row[s]) for s in table.sources))
    results.print(out)
    for i in table.inconsistencies:
        results.print(f"  ! {i.model}, {i.column}: printed {i.printed:.2f}, {i.found}")


def _text(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    v = cell.value
    return f"{100 * v.value:.1f}{' !' if cell.remark else ''}\n[dim]{100 * v.low:.0f} - {100 * v.high:.0f}[/dim]"
