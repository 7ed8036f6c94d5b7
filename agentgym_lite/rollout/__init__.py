"""Rollouts: engines that sample replies, the collector that plays episodes with them, and the trajectories that come out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentgym_lite.rollout.collector import Collector, CollectStats
from agentgym_lite.rollout.play import play
from agentgym_lite.rollout.scripted import ScriptedEngine
from agentgym_lite.rollout.types import (
    Engine,
    EpisodeSpec,
    Generation,
    SamplingParams,
    StopReason,
    TokenRow,
    Trajectory,
    Turn,
    derive_seed,
)

if TYPE_CHECKING:
    from agentgym_lite.rollout.native import NativeEngine

__all__ = [
    "CollectStats",
    "Collector",
    "Engine",
    "EpisodeSpec",
    "Generation",
    "NativeEngine",
    "SamplingParams",
    "ScriptedEngine",
    "StopReason",
    "TokenRow",
    "Trajectory",
    "Turn",
    "derive_seed",
    "play",
]


def __getattr__(name: str) -> Any:
    if name == "NativeEngine":  # imported when first used: it needs torch, which takes seconds to load
        from agentgym_lite.rollout.native import NativeEngine

        return NativeEngine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
