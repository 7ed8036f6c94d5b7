"""The one interface that every environment implements, and the registry that finds them.

An environment is a plain Python object. It is deterministic for ``(item_id, seed)``, holds no global state and never raises on an
action: an action it cannot read or carry out gets an observation that says what was wrong, with reward 0. The limit on rounds is the
caller's, not the environment's.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

Split = Literal["train", "eval"]

#: Name of each environment and the class that implements it, imported only when asked for.
_REGISTRY: dict[str, str] = {
    "textcraft": "agentgym_envs.textcraft:TextCraft",
    "babyai": "agentgym_envs.babyai:BabyAI",
    "webarena": "agentgym_envs.webarena:WebArena",
    "sciworld": "agentgym_envs.sciworld:SciWorld",
    "searchqa": "agentgym_envs.searchqa:SearchQA",
}


class UnknownEnvironment(KeyError):
    """An environment was asked for by a name that is not registered."""

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0])


class UnknownItem(KeyError):
    """An item id does not belong to the environment."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class Observation:
    """What the agent is shown: ``text``, the legal ``actions`` (may be empty if they cannot be listed), and ``info`` for programs."""

    text: str
    actions: tuple[str, ...] = ()
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StepResult:
    """Answer to one action.

    ``reward`` is in [0, 1] and is paid once per episode goal (never repeated); ``done`` means that the episode has ended inside the
    environment. ``info`` always holds ``success: bool`` (the goal is reached), ``invalid: bool`` (the action could not be read or
    carried out) and ``score`` (the environment's raw score).
    """

    observation: Observation
    reward: float
    done: bool
    info: Mapping[str, Any] = field(default_factory=dict)


class Environment(ABC):
    """One episode at a time: ``reset``, then ``step`` until ``done`` or the caller's round limit."""

    #: Registered name, e.g. ``"textcraft"``; item ids are ``f"{name}_{index}"``.
    name: ClassVar[str]
    #: Changes whenever the same (item_id, seed, actions) would give other observations or rewards.
    version: ClassVar[str]
    #: The rules of the task, shown to the agent once before the first observation.
    instructions: ClassVar[str]

    @classmethod
    @abstractmethod
    def items(cls, split: Split) -> list[str]:
        """Item ids of a split, in one fixed order. Train and eval never overlap."""

    @classmethod
    @abstractmethod
    def task_of(cls, item_id: str | int) -> str:
        """The sub-task (one row of the paper's tables) that an item belongs to, e.g. ``"depth_2"``. Raises ``UnknownItem``."""

    @abstractmethod
    def reset(self, item_id: str | int, seed: int = 0) -> Observation:
        """Start an episode. Raises ``UnknownItem``."""

    @abstractmethod
    def step(self, action: str) -> StepResult:
        """Carry out one action. Raises ``RuntimeError`` only if called before ``reset``; after ``done`` it repeats the last
        observation with reward 0, ``done`` true and ``info["invalid"]`` true."""

    @abstractmethod
    def available_actions(self) -> list[str]:
        """Actions that would be accepted now, as far as they can be listed."""

    @abstractmethod
    def render(self) -> dict[str, Any]:
        """JSON-ready picture of the full state for viewers and experts: at least ``{"kind": name, "text": str}``."""

    def close(self) -> None:  # noqa: B027 - most environments own nothing
        """Free what the episode holds. Safe to call twice."""

    @classmethod
    def item_index(cls, item_id: str | int) -> int:
        """``"textcraft_31"`` or ``31`` to ``31``. Raises ``UnknownItem`` on anything else."""
        if isinstance(item_id, int) and not isinstance(item_id, bool):
            return item_id
        prefix, _, number = str(item_id).rpartition("_")
        if prefix == cls.name and number.isdecimal() and number.isascii():
            return int(number)
        raise UnknownItem(f"expected an item id such as '{cls.name}_0', found {item_id!r:.80}")


def names() -> list[str]:
    """Registered environment names, sorted."""
    return sorted(_REGISTRY)


def register(name: str, target: str) -> None:
    """Add an environment under ``name``; ``target`` is ``"package.module:Class"``."""
    _REGISTRY[name] = target


def environment_class(name: str) -> type[Environment]:
    """The class registered under ``name``. Raises ``UnknownEnvironment`` with the known names."""
    if name not in _REGISTRY:
        raise UnknownEnvironment(f"no environment is called {name!r:.80}; known: {', '.join(names())}")
    module, _, attribute = _REGISTRY[name].partition(":")
    cls: type[Environment] = getattr(importlib.import_module(module), attribute)
    return cls


def make(name: str, **options: Any) -> Environment:
    """A new environment object. ``options`` go to its constructor."""
    return environment_class(name)(**options)
