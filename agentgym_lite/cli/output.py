"""What commands print: tables, progress on a terminal, plain lines elsewhere."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from agentgym_lite.evaluation.intervals import Interval
from agentgym_lite.evaluation.metrics import Summary

#: Progress and remarks; results go to stdout, so that they can be piped.
notes = Console(stderr=True, highlight=False)
results = Console(highlight=False, width=None if sys.stdout.isatty() else 120)

#: Seconds between plain progress lines when stderr is not a terminal.
_PLAIN_INTERVAL = 10.0


class Advance(Protocol):
    """Reports progress: how much is done of how much, and a few words on the latest state."""

    def __call__(self, done: int, total: int, text: str = "") -> None: ...


def print_json(data: Any) -> None:
    """One JSON document on stdout and nothing else."""
    print(json.dumps(data, indent=2))


@contextmanager
def progress(title: str, quiet: bool = False) -> Iterator[Advance]:
    """A bar on a terminal, a line every few seconds otherwise, nothing if ``quiet``."""
    if quiet:
        yield lambda done, total, text="": None
    elif notes.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        with Progress(*columns, TextColumn("{task.fields[text]}"), console=notes) as bar:
            task = bar.add_task(title, total=None, text="")
            yield lambda done, total, text="": bar.update(task, completed=done, total=total, text=text)
    else:
        yield _plain(title)


def _plain(title: str) -> Advance:
    start = time.monotonic()
    printed = start

    def advance(done: int, total: int, text: str = "") -> None:
        nonlocal printed
        now = time.monotonic()
        if done >= total or now - printed >= _PLAIN_INTERVAL:
            printed = now
            notes.print(f"{title}: {done}/{total} after {now - start:.0f} s{'  ' + text if text else ''}", soft_wrap=True)

    return advance


def percent(interval: Interval | None) -> str:
    """``"82 %"``, or a dash where nothing was played."""
    return "-" if interval is None else f"{100 * interval.value:.0f} %"


def percent_range(interval: Interval | None) -> str:
    """``"73 - 89"``: the 95 % interval in percent."""
    return "-" if interval is None else f"{100 * interval.low:.0f} - {100 * interval.high:.0f}"


def summary_table(title: str, rows: dict[str, Summary]) -> Table:
    """One line per key of ``rows``; columns that would say nothing are left out."""
    samples = max((k for s in rows.values() for k in s.pass_at), default=1)
    errors = any(s.env_errors for s in rows.values())
    table = make_table(title)
    for column in ("n", "success", "95 % CI", "reward", "rounds", "invalid"):
        table.add_column(column, justify="right", no_wrap=True)
    if samples > 1:
        table.add_column(f"pass@{samples}", justify="right", no_wrap=True)
    if errors:
        table.add_column("env errors", justify="right", no_wrap=True)
    for name, s in rows.items():
        cells = [str(s.episodes), percent(s.success), percent_range(s.success)]
        cells += [_number(s.reward.value if s.reward else None, 2), _number(s.rounds, 1)]
        cells += [_number(None if s.invalid_rate is None else 100 * s.invalid_rate, 0, " %")]
        cells += [_number(s.pass_at.get(samples), 2)] if samples > 1 else []
        cells += [str(s.env_errors)] if errors else []
        table.add_row(name, *cells)
    return table


def make_table(title: str, first: str = "task") -> Table:
    """A plain table whose first column names the task, or what ``first`` says."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(first, no_wrap=True)
    return table


def _number(value: float | None, digits: int, unit: str = "") -> str:
    return "-" if value is None else f"{value:.{digits}f}{unit}"
