"""Figures of the paper's tables with own runs beside them (needs matplotlib)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agentgym_lite.evaluation.paper import OVERALL, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def table_figure(table: Table) -> Figure:
    """Success of every source by column of one table, as points with 95 % intervals; hollow where the printed figure is contradicted."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.6 + 1.2 * len(table.rows), 4), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / max(1, len(table.sources))
    for k, source in enumerate(table.sources):
        cells = [(x, row[source]) for x, row in enumerate(table.rows.values())]
        shown = [(x + (k + 0.5) * width - 0.4, c) for x, c in cells if c is not None]
        colour = f"C{k}"
        axes.errorbar(
            [x for x, _ in shown],
            [100 * c.value.value for _, c in shown],
            yerr=[[100 * (c.value.value - c.value.low) for _, c in shown], [100 * (c.value.high - c.value.value) for _, c in shown]],
            fmt="none",
            ecolor=colour,
            alpha=0.5,
        )
        axes.scatter(
            [x for x, _ in shown],
            [100 * c.value.value for _, c in shown],
            edgecolors=colour,
            facecolors=["none" if c.remark else colour for _, c in shown],
            label=source,
            zorder=3,
        )
    axes.set_xticks(range(len(table.rows)), list(table.rows))
    axes.set_ylim(-2, 102)
    axes.set_ylabel("success (%)")
    axes.set_title(f"Table {table.scenario.table}: {table.scenario.name}")
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def overview_figure(tables: Sequence[Table]) -> Figure:
    """The overall figure of every source in every table, as grouped bars."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3 + 1.6 * len(tables), 4), layout="constrained")
    axes = figure.subplots()
    sources = list(dict.fromkeys(s for t in tables for s in t.sources))
    width = 0.8 / max(1, len(sources))
    for k, source in enumerate(sources):
        found = [(x, t.rows[OVERALL].get(source)) for x, t in enumerate(tables)]
        axes.bar(
            [x + (k + 0.5) * width - 0.4 for x, c in found if c is not None],
            [100 * c.value.value for _, c in found if c is not None],
            width,
            label=source,
        )
    axes.set_xticks(range(len(tables)), [t.scenario.name for t in tables])
    axes.set_ylabel("success (%)")
    axes.set_ylim(0, 100)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def save_figures(tables: Sequence[Table], folder: Path) -> list[Path]:
    """Write one PNG per table and ``overview.png``; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = {f"{t.scenario.env}.png": table_figure(t) for t in tables} | {"overview.png": overview_figure(tables)}
    for name, figure in figures.items():
        figure.savefig(folder / name, dpi=150)
    return [folder / name for name in figures]
