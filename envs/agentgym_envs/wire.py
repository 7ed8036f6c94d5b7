"""JSON form of observations, step results and environments: what the server sends and the client reads."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from agentgym_envs.core import Environment, Observation, Split, StepResult

SPLITS: tuple[Split, ...] = ("train", "eval")


def dumps(value: Any) -> bytes:
    """Compact ASCII JSON. Raises ``TypeError`` or ``ValueError`` for a value that JSON cannot hold (NaN included)."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False, default=_plain).encode("ascii")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return value.tolist()
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"expected a value that JSON can hold, found {type(value).__name__}")


def observation_to_wire(observation: Observation) -> dict[str, Any]:
    """``{"observation": text, "actions": [...], "observation_info": {...}}``. Raises ``TypeError`` if the text is not a string."""
    if not isinstance(observation.text, str):
        raise TypeError(f"expected observation text of type str, found {type(observation.text).__name__}")
    return {"observation": observation.text, "actions": list(observation.actions), "observation_info": dict(observation.info)}


def observation_from_wire(data: Mapping[str, Any]) -> Observation:
    """Inverse of :func:`observation_to_wire`; raises ``KeyError`` or ``TypeError`` if a field is missing or of the wrong type."""
    return Observation(_string(data["observation"]), tuple(data.get("actions", ())), dict(data.get("observation_info", {})))


def step_to_wire(result: StepResult) -> dict[str, Any]:
    """The observation's fields and ``reward, done, info``. Raises ``ValueError`` for a reward outside [0, 1]."""
    reward = float(result.reward)
    if not (math.isfinite(reward) and 0.0 <= reward <= 1.0):
        raise ValueError(f"expected a reward in [0, 1], found {result.reward!r}")
    return observation_to_wire(result.observation) | {"reward": reward, "done": bool(result.done), "info": dict(result.info)}


def step_from_wire(data: Mapping[str, Any]) -> StepResult:
    """Inverse of :func:`step_to_wire`; raises ``KeyError`` or ``TypeError`` if a field is missing or of the wrong type."""
    return StepResult(observation_from_wire(data), float(data["reward"]), bool(data["done"]), dict(data["info"]))


def describe(cls: type[Environment], options: Iterable[str] = ()) -> dict[str, Any]:
    """``name, version, description, instructions`` and, per split, ``item_counts``, ``tasks`` (items per sub-task) and ``items``.

    ``options`` are the names of the constructor's options that are not left at their defaults.
    """
    items = {split: cls.items(split) for split in SPLITS}
    return {
        "name": cls.name,
        "version": cls.version,
        "description": (cls.__doc__ or cls.name).strip().partition("\n")[0],
        "instructions": cls.instructions,
        "options": sorted(options),
        "item_counts": {split: len(ids) for split, ids in items.items()},
        "tasks": {split: dict(Counter(cls.task_of(i) for i in ids)) for split, ids in items.items()},
        "items": items,
    }


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected observation text, found {type(value).__name__}")
    return value
