"""``report.html`` of a run folder: one file with the result, the curves, two replays and how to do it again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from agentgym_lite.rollout.types import Trajectory
from agentgym_lite.viewer.decoding import decoder
from agentgym_lite.viewer.html import View, duration, render
from agentgym_lite.viewer.plots import curves_html, smoothing
from agentgym_lite.viewer.renderings import with_renderings
from agentgym_lite.viewer.replay import compare_html
from agentgym_lite.viewer.report_data import (
    METRICS_JSONL,
    REPORT_HTML,
    ReportData,
    RunFolderError,
    Score,
    TaskRow,
    load_report_data,
)
from agentgym_lite.viewer.tokens import Decode


def write_report(run_dir: Path, decode: Decode | None = None) -> Path:
    """Write ``report.html`` from ``report.json``, ``metrics.jsonl`` and ``trajectories.jsonl`` of a run folder; returns its path.

    ``decode`` gives the text of a token id; without it, the tokenizer of the run's checkpoint does. Raises ``RunFolderError``.
    """
    run_dir = Path(run_dir)
    data = load_report_data(run_dir)
    metrics = list(read_jsonl(run_dir / METRICS_JSONL))
    page = render(
        "report.html.j2",
        data=data,
        headline=headline(data),
        groups=env_groups(data.results),
        curves=curves_html(metrics),
        smooth=smoothing(metrics),
        steps=len(metrics),
        replays=_replays(run_dir, data, decode or _checkpoint_decoder(run_dir, data)),
        settings=list(flatten(data.settings)),
    )
    path = run_dir / REPORT_HTML
    path.write_text(View(page).page(data.title), encoding="utf-8")
    return path


def read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSON-lines file. Raises ``RunFolderError`` with the line that cannot be read."""
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                record = json.loads(line)
                if not isinstance(record, dict):
                    raise RunFolderError(f"line {number} of '{path}': expected an object, found {type(record).__name__}")
                yield record
    except FileNotFoundError:
        raise RunFolderError(f"expected '{path}', found no such file; the run folder is not complete, run it again") from None
    except json.JSONDecodeError as e:
        raise RunFolderError(f"line {number} of '{path}' is not JSON ({e.msg}); if the run was cut off there, remove that line") from None


@dataclass(frozen=True)
class EnvGroup:
    """The tasks of one environment with their pooled scores."""

    env: str
    rows: list[TaskRow]
    total: TaskRow


def env_groups(results: list[TaskRow]) -> list[EnvGroup]:
    """Results by environment, each with a row over all of its tasks. A column that a task lacks is left out of that row."""
    groups = []
    for env, members in groupby(results, key=lambda r: r.env):
        rows = list(members)
        total = TaskRow(
            env=env,
            task="all",
            base=_pool([r.base for r in rows]),
            trained=_pool([r.trained for r in rows]),
            random=_pool_optional([r.random for r in rows]),
            expert=_pool_optional([r.expert for r in rows]),
        )
        groups.append(EnvGroup(env, rows, total))
    return groups


def _pool(scores: list[Score]) -> Score:
    return Score(n=sum(s.n for s in scores), successes=sum(s.successes for s in scores))


def _pool_optional(scores: list[Score | None]) -> Score | None:
    present = [s for s in scores if s is not None]
    return _pool(present) if len(present) == len(scores) else None


def headline(data: ReportData) -> str:
    """What happened, in one sentence."""
    changes = []
    for group in env_groups(data.results):
        before, after = group.total.base.rate, group.total.trained.rate
        verb = "rose" if after > before else "fell" if after < before else "stayed"
        span = f"from {before:.0%} to {after:.0%}" if after != before else f"at {after:.0%}"
        changes.append(f"{verb} {span} on {group.env}")
    spent = data.times_s.get("train")
    start = f"In {duration(spent)} of training, success" if spent else "Success"
    return f"{start} on held-out items {' and '.join(changes)}."


def flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as dotted names, as the command line takes them."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        elif isinstance(value, list) and any(isinstance(v, Mapping) for v in value):
            yield from flatten({str(k): v for k, v in enumerate(value)}, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", json.dumps(value) if not isinstance(value, str) else value


def _replays(run_dir: Path, data: ReportData, decode: Decode | None) -> View | None:
    if not data.replays:
        return None
    shown = [(f"{ref.when} training", with_renderings(_trajectory(run_dir / ref.file, ref.line))) for ref in data.replays]
    return compare_html(shown, decode)


def _trajectory(path: Path, line: int) -> Trajectory:
    record = next(islice(read_jsonl(path), line, None), None)
    if record is None:
        raise RunFolderError(f"report.json asks for line {line} of '{path}', counted from 0, which is past its end")
    try:
        return Trajectory.from_dict(record)
    except (KeyError, TypeError, ValueError) as e:
        raise RunFolderError(f"line {line + 1} of '{path}' is not a trajectory ({type(e).__name__}: {e})") from None


def _checkpoint_decoder(run_dir: Path, data: ReportData) -> Decode | None:
    if not data.checkpoint:
        return None
    found = decoder(run_dir / data.checkpoint)
    if found is None:
        raise RunFolderError(f"expected a tokenizer in '{run_dir / data.checkpoint}', found none; train again, or pass decode")
    return found
