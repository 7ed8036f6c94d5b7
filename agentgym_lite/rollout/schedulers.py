"""How many rounds of interaction an episode may take, as a pure function of the training step.

ScalingInter-RL (AgentGym-RL, arXiv 2509.08755) begins with few rounds and allows more, stage by stage. Because a scheduler has no state,
a resumed run sees the same rounds as an unbroken one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from agentgym_lite.config import RoundsConfig
from agentgym_lite.config.base import load_callable


class RoundScheduler(Protocol):
    """Anything with ``rounds_at``; a plain callable from step to rounds does as well (see :func:`as_scheduler`)."""

    def rounds_at(self, step: int) -> int:
        """Limit on rounds at training step ``step``, counted from 1."""


class FixedRoundsScheduler:
    """The same number of rounds at every step."""

    def __init__(self, rounds: int) -> None:
        self.rounds = _at_least_one(rounds)

    def rounds_at(self, step: int) -> int:
        _at_least_one(step)
        return self.rounds


class StepRoundsScheduler:
    """The next stage every ``steps_scaling_inter`` steps; the last stage stays.

    With ``StepRoundsScheduler(100, [10, 20, 30])``: 10 at steps 1-100, 20 at steps 101-200, 30 from step 201.
    """

    def __init__(self, steps_scaling_inter: int, rounds: Sequence[int]) -> None:
        if not rounds:
            raise ValueError("expected the rounds of at least one stage, found none")
        self.steps_scaling_inter = _at_least_one(steps_scaling_inter)
        self.rounds = [_at_least_one(r) for r in rounds]

    def rounds_at(self, step: int) -> int:
        stage = (_at_least_one(step) - 1) // self.steps_scaling_inter
        return self.rounds[min(stage, len(self.rounds) - 1)]


class _CallableScheduler:
    def __init__(self, function: Callable[[int], int]) -> None:
        self._function = function

    def rounds_at(self, step: int) -> int:
        return _at_least_one(self._function(_at_least_one(step)))


def make_scheduler(config: RoundsConfig) -> RoundScheduler:
    """The scheduler that a config asks for."""
    if config.function is not None:
        return _CallableScheduler(load_callable(config.function, "rounds.function"))
    if isinstance(config.rounds, int):
        return FixedRoundsScheduler(config.rounds)
    assert config.steps_scaling_inter is not None  # RoundsConfig has checked it
    return StepRoundsScheduler(config.steps_scaling_inter, config.rounds)


def as_scheduler(scheduler: RoundScheduler | Callable[[int], int]) -> RoundScheduler:
    """Accept a scheduler or a plain function of the step. Raises ``TypeError`` for anything else."""
    if hasattr(scheduler, "rounds_at"):
        return scheduler
    if callable(scheduler):
        return _CallableScheduler(scheduler)
    raise TypeError(f"expected a round scheduler or a function step -> rounds, found {type(scheduler).__name__}")


def _at_least_one(n: int) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ValueError(f"rounds and steps are whole numbers of at least 1, found {n!r}")
    return n
