"""A small line chart as inline SVG: deterministic, coloured by the page's stylesheet, readable in light and dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev

from agentgym_lite.viewer.html import View, render

WIDTH, HEIGHT = 480, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 10, 22, 24


@dataclass(frozen=True)
class Point:
    """A value at a training step."""

    step: float
    value: float


@dataclass(frozen=True)
class Series:
    """One line: the mean of the latest ``smooth`` steps, in a band of one standard deviation of these steps; single steps are dots."""

    label: str
    points: Sequence[Point]
    smooth: int = 1
    stepped: bool = False
    #: Series of one colour belong together.
    colour: int = 0


@dataclass(frozen=True)
class Stage:
    """A range of steps with something in common, e.g. the same limit on rounds."""

    label: str
    start: float
    end: float


@dataclass
class Chart:
    """One diagram. ``percent`` writes the y axis in per cent, ``y_range`` fixes it."""

    title: str
    series: list[Series]
    caption: str = ""
    stages: list[Stage] = field(default_factory=list)
    percent: bool = False
    y_range: tuple[float, float] | None = None

    def view(self) -> View:
        """The chart as an HTML figure."""
        return View(render("chart.html.j2", chart=self, axes=_Axes.around(self), width=WIDTH, height=HEIGHT))

    def tick_label(self, value: float) -> str:
        return f"{100 * value:.0f}%" if self.percent else f"{value:g}"


def nice_ticks(low: float, high: float, count: int = 4) -> list[float]:
    """About ``count`` round numbers (1, 2 or 5 times a power of ten apart) that lie in ``[low, high]``."""
    if not high > low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{k * step:.10g}") for k in range(first, last + 1)]


def moving(values: Sequence[float], window: int, statistic: Callable[[Sequence[float]], float] = fmean) -> list[float]:
    """``statistic`` of each value and those before it, at most ``window`` of them."""
    return [statistic(values[max(0, k + 1 - window) : k + 1]) for k in range(len(values))]


@dataclass(frozen=True)
class _Axes:
    """Maps steps and values to the drawing's coordinates."""

    x0: float
    x1: float
    y0: float
    y1: float

    left, right, top, bottom = _LEFT, WIDTH - _RIGHT, _TOP, HEIGHT - _BOTTOM

    @classmethod
    def around(cls, chart: Chart) -> _Axes:
        points = [p for s in chart.series for p in s.points]
        steps = [p.step for p in points] or [0.0, 1.0]
        values = [p.value for p in points] or [0.0, 1.0]
        low, high = chart.y_range or (min(values), max(values))
        if low == high:
            low, high = low - 0.5, high + 0.5
        margin = 0.0 if chart.y_range else 0.05 * (high - low)
        x0, x1 = min(steps), max(steps)
        return cls(x0, x1 if x1 > x0 else x0 + 1, low - margin, high + margin)

    def x(self, step: float) -> float:
        return round(self.left + (step - self.x0) / (self.x1 - self.x0) * (self.right - self.left), 1)

    def y(self, value: float) -> float:
        return round(self.bottom - (value - self.y0) / (self.y1 - self.y0) * (self.bottom - self.top), 1)

    @property
    def x_ticks(self) -> list[float]:
        return nice_ticks(self.x0, self.x1, 6)

    @property
    def y_ticks(self) -> list[float]:
        return nice_ticks(self.y0, self.y1)

    def line(self, series: Series) -> str:
        """The ``points`` attribute of the series' line."""
        xs = [self.x(p.step) for p in series.points]
        ys = [self.y(v) for v in moving([p.value for p in series.points], series.smooth)]
        corners = list(zip(xs, ys, strict=True))
        if series.stepped:  # a limit holds until it is changed
            corners = [c for k, (x, y) in enumerate(corners) for c in ([(x, ys[k - 1])] if k else []) + [(x, y)]]
        return _points(corners)

    def band(self, series: Series) -> str:
        """The ``points`` attribute of the area around the line; it ends at the edges of the drawing."""
        values = [p.value for p in series.points]
        rows = list(zip(series.points, moving(values, series.smooth), moving(values, series.smooth, pstdev), strict=True))
        upper = [(self.x(p.step), self.y(min(self.y1, mean + sd))) for p, mean, sd in rows]
        lower = [(self.x(p.step), self.y(max(self.y0, mean - sd))) for p, mean, sd in rows]
        return _points(upper + lower[::-1])


def _points(corners: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in corners)
