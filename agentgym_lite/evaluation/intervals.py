"""Confidence intervals for success rates and means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval: ``low <= value <= high``."""

    value: float
    low: float
    high: float


def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Wilson score interval of a success rate (Wilson 1927), which stays inside [0, 1] and is honest at 0 % and 100 %.

    ``(p + z²/2n ± z sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n)`` with ``p = successes / n`` and ``z`` the normal quantile.

    Raises ``ValueError`` unless ``0 <= successes <= n`` and ``n >= 1``.
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"expected 0 <= successes <= n and n >= 1, found successes={successes}, n={n}")
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    p = successes / n
    centre = p + z * z / (2 * n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return Interval(p, min(p, max(0.0, (centre - half) / scale)), max(p, min(1.0, (centre + half) / scale)))


def bootstrap_mean(values: Sequence[float], confidence: float = 0.95, resamples: int = 10_000, seed: int = 0) -> Interval:
    """Percentile bootstrap interval of a mean (Efron 1979); equal inputs give equal intervals.

    The values must be independent: with several samples of one item, pass the item's mean. Raises ``ValueError`` on no values.
    """
    data = np.asarray(values, dtype=np.float64)
    if data.size == 0:
        raise ValueError("expected at least one value, found none")
    draws = np.random.default_rng(seed).integers(0, data.size, size=(resamples, data.size))
    tail = (1 - confidence) / 2
    low, high = np.quantile(data[draws].mean(axis=1), [tail, 1 - tail])
    mean = float(data.mean())
    return Interval(mean, min(mean, float(low)), max(mean, float(high)))
