"""Round schedulers: the published table, and the reference's resume fault, which must be absent."""

from __future__ import annotations

import pytest

from agentgym_lite.config import RoundsConfig
from agentgym_lite.rollout.schedulers import FixedRoundsScheduler, StepRoundsScheduler, as_scheduler, make_scheduler


class ReferenceScheduler:
    """The stateful scheduler of the reference code, from its description: stage counter plus internal step."""

    def __init__(self, steps: int, rounds: list[int]) -> None:
        self.steps, self.rounds, self.stage, self.internal = steps, rounds, 0, 1

    def step(self) -> None:
        if self.stage + 1 < len(self.rounds) and self.internal % self.steps == 0:
            self.stage += 1
        self.internal += 1

    def set_global_steps(self, g: int) -> None:
        self.stage, self.internal = min(g // self.steps, len(self.rounds) - 1), g

    def get_rounds(self) -> int:
        return self.rounds[self.stage]


@pytest.mark.parametrize(
    ("step", "rounds"), [(1, 10), (99, 10), (100, 10), (101, 20), (200, 20), (201, 30), (300, 30), (301, 30), (10_000, 30)]
)
def test_published_table(step: int, rounds: int) -> None:
    assert StepRoundsScheduler(100, [10, 20, 30]).rounds_at(step) == rounds


def test_a_fresh_run_equals_the_reference() -> None:
    ours, theirs = StepRoundsScheduler(7, [3, 5, 9]), ReferenceScheduler(7, [3, 5, 9])
    for step in range(1, 40):
        assert ours.rounds_at(step) == theirs.get_rounds()
        theirs.step()


def test_the_references_resume_fault_is_absent() -> None:
    """Resumed at 100, the reference increments twice: 20 rounds at step 101, 30 already at step 102."""
    theirs = ReferenceScheduler(100, [10, 20, 30])
    theirs.set_global_steps(100)
    faulty = []
    for _ in range(101, 201):
        faulty.append(theirs.get_rounds())
        theirs.step()
    ours = [StepRoundsScheduler(100, [10, 20, 30]).rounds_at(s) for s in range(101, 201)]
    assert ours == [20] * 100
    assert sum(a != b for a, b in zip(ours, faulty, strict=True)) == 99


def test_fixed() -> None:
    assert {FixedRoundsScheduler(15).rounds_at(s) for s in (1, 50, 1000)} == {15}


def test_from_config() -> None:
    assert make_scheduler(RoundsConfig(type="fixed", rounds=4)).rounds_at(9) == 4
    scaling = make_scheduler(RoundsConfig(type="scaling_inter", rounds=[2, 6], steps_scaling_inter=3))
    assert [scaling.rounds_at(s) for s in (1, 3, 4, 99)] == [2, 2, 6, 6]


def test_a_plain_function_is_a_scheduler() -> None:
    assert as_scheduler(lambda step: 2 + step // 10).rounds_at(25) == 4


@pytest.mark.parametrize("bad", [lambda: StepRoundsScheduler(0, [1]), lambda: StepRoundsScheduler(5, []), lambda: FixedRoundsScheduler(0)])
def test_impossible_schedules_are_refused(bad: object) -> None:
    with pytest.raises(ValueError, match="at least"):
        bad()  # type: ignore[operator]


@pytest.mark.parametrize("scheduler", [FixedRoundsScheduler(3), StepRoundsScheduler(5, [1, 2]), as_scheduler(lambda step: step)])
def test_steps_count_from_one(scheduler: object) -> None:
    with pytest.raises(ValueError, match="at least 1, found 0"):
        scheduler.rounds_at(0)  # type: ignore[attr-defined]


def test_other_objects_are_refused() -> None:
    with pytest.raises(TypeError, match="found int"):
        as_scheduler(20)  # type: ignore[arg-type]
