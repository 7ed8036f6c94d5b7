"""The benchmarks as modules, so that tests can run short versions of them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import chaos
import env_soak

__all__ = ["chaos", "env_soak"]
