"""Learning curves from the lines of ``metrics.jsonl``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from agentgym_lite.viewer.charts import Chart, Point, Series, Stage
from agentgym_lite.viewer.html import View, render

Metrics = Sequence[Mapping[str, Any]]

#: Charts of quantities that the whole batch shares: key in the metrics, title, caption, whether it is a share.
_WHOLE = (
    ("reward/mean", "Reward per episode", "Mean return of the step's episodes.", False),
    ("rate/invalid_action", "Invalid actions", "Share of replies that held no action the environment could carry out.", True),
    ("policy/entropy", "Policy entropy", "Nats per sampled token.", False),
    ("policy/kl", "KL to the model before training", "Estimate per sampled token.", False),
)


def curves_html(metrics: Metrics) -> View:
    """All learning curves of a run, side by side."""
    return View(render("charts.html.j2", charts=[chart.view() for chart in learning_curves(metrics)]))


def smoothing(metrics: Metrics) -> int:
    """Number of steps that the lines average: a tenth of the run."""
    return max(1, len(metrics) // 10)


def learning_curves(metrics: Metrics) -> list[Chart]:
    """Charts of what the metrics hold: success and rounds by environment, then reward, invalid actions, entropy, KL."""
    smooth = smoothing(metrics)
    stages = rounds_stages(metrics)
    charts = [_success(metrics, smooth, stages), _rounds(metrics, smooth, stages)]
    for key, title, caption, share in _WHOLE:
        charts.append(Chart(title, [Series("", _points(metrics, key), smooth)], caption, stages, percent=share))
    return [c for c in charts if any(s.points for s in c.series)]


def environments(metrics: Metrics) -> list[str]:
    """Environments that the metrics speak of, in order of first mention."""
    keys = dict.fromkeys(key for m in metrics for key in m)
    return [key.removeprefix("env/").removesuffix("/max_rounds") for key in keys if key.startswith("env/") and key.endswith("/max_rounds")]


def rounds_stages(metrics: Metrics) -> list[Stage]:
    """Runs of steps with the same limits on rounds; none if the limits never change."""
    envs = environments(metrics)
    runs = [
        (key, [m["step"] for m in members]) for key, members in groupby(metrics, key=lambda m: [m.get(f"env/{e}/max_rounds") for e in envs])
    ]
    if len(runs) < 2:
        return []
    edges = [steps[0] for _, steps in runs] + [runs[-1][1][-1]]
    return [Stage(_rounds_label(limits), edges[k], edges[k + 1]) for k, (limits, _) in enumerate(runs)]


def _rounds_label(limits: Iterable[float | None]) -> str:
    return " / ".join(dict.fromkeys(f"{x:g}" for x in limits if x is not None)) + " rounds"


def _points(metrics: Metrics, key: str) -> list[Point]:
    return [Point(m["step"], m[key]) for m in metrics if key in m]


def _success(metrics: Metrics, smooth: int, stages: list[Stage]) -> Chart:
    series = [Series(env, _points(metrics, f"env/{env}/success"), smooth, colour=k) for k, env in enumerate(environments(metrics))]
    caption = "Share of the step's training episodes that reach the goal."
    return Chart("Success while training", series, caption, stages, percent=True, y_range=(0.0, 1.0))


def _rounds(metrics: Metrics, smooth: int, stages: list[Stage]) -> Chart:
    series = []
    for k, env in enumerate(environments(metrics)):
        series.append(Series(env, _points(metrics, f"env/{env}/rounds_mean"), smooth, colour=k))
        series.append(Series("", _points(metrics, f"env/{env}/max_rounds"), stepped=True, colour=k))
    return Chart("Rounds per episode", series, "Mean number of rounds used; dashed, the limit that was in force.", stages)
