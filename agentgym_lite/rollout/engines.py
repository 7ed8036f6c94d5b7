"""Makes the engine that the settings name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from agentgym_lite.config import RolloutConfig
from agentgym_lite.rollout.native import NativeEngine
from agentgym_lite.rollout.types import Engine


def make_engine(
    model: Any,
    rollout: RolloutConfig,
    stop_ids: Iterable[int],
    *,
    max_sessions: int | None = None,
    on_main: Callable[[Callable[[], Any]], Any] = lambda work: work(),
) -> Engine:
    """The engine ``rollout.engine`` over ``model``, with its weights of the moment; ``max_sessions`` replaces that of the settings.

    ``on_main`` lets one process of several do something for all (``World.main``). Raises ``ValueError`` for a model that the engine does
    not cover, ``VllmError`` if vLLM cannot be used.
    """
    if rollout.engine == "vllm":
        from agentgym_lite.rollout.vllm import make_vllm_engine

        return make_vllm_engine(model, rollout, stop_ids, max_sessions, on_main)
    return NativeEngine(
        model,
        max_sessions=max_sessions or rollout.max_sessions,
        max_length=rollout.max_length,
        stop_ids=stop_ids,
        device=next(model.parameters()).device,
        dtype=None if rollout.dtype is None else getattr(torch, rollout.dtype),
    )


def rest(engine: Engine) -> bool:
    """Let an engine that shares the device with the trainer give its memory back until its next ``sync``; whether it did."""
    sleep = getattr(engine, "sleep", None)
    if sleep is not None:
        sleep()
    return sleep is not None


def close(engine: Engine) -> None:
    """End an engine that holds more than memory of this process."""
    if hasattr(engine, "close"):
        engine.close()
