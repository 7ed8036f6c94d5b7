"""Checks of lesson 11 against the paper's cells and numbers worked out by hand."""

from __future__ import annotations

import pytest

from agentgym_lite.config import load_config
from agentgym_lite.course import checks
from agentgym_lite.course.cells import NOTEBOOKS
from agentgym_lite.evaluation.paper import SCENARIOS, models, paper_cell, printed, scenario


def test_items_by_hand() -> None:
    assert checks.solved_items.right(87.77, 90) == 79
    assert checks.solved_items.right(9.76, 50) is None
    assert checks.solved_items.right(9.76, 41) == 4


@pytest.mark.parametrize("name", ["TextCraft", "BabyAI"])
def test_the_inferred_numbers_of_items_are_possible(name: str) -> None:
    s = scenario(name)
    for column in s.columns:
        percents = [printed()[s.name, m, column.name] for m in models(s)]
        assert column.items in checks.possible_counts.right(percents, column.items)


def test_depth_4_can_only_have_multiples_of_three_items() -> None:
    percents = [printed()["TextCraft", m, "Depth 4"] for m in models(scenario("TextCraft"))]
    assert checks.possible_counts.right(percents, 12) == [3, 6, 9, 12]


def test_totals_follow_from_their_parts() -> None:
    for s in SCENARIOS:
        cells = [paper_cell(s, "ScalingInter-7B", c.name) for c in s.columns]
        found = checks.overall.right([100 * c.value.value for c in cells], [c.items for c in cells])
        assert found == pytest.approx(printed()[s.name, "ScalingInter-7B", "Overall"], abs=0.02)


def test_a_difference_by_hand() -> None:
    low, high = checks.difference.right(89, 100, 91, 100)
    assert (low, high) == pytest.approx((0.02 - 1.96 * 0.04236, 0.02 + 1.96 * 0.04236), abs=1e-4)


def test_the_published_pair_of_textcraft_differs_in_its_schedule_alone() -> None:
    folder = NOTEBOOKS.parent / "configs" / "paper"
    fixed, scaling = (load_config(folder / f"textcraft_{x}.yaml").model_dump(mode="json") for x in ("fixed", "scaling_inter"))
    found = checks.different_settings.right({"envs": fixed["envs"][0]}, {"envs": scaling["envs"][0]})
    assert set(found) == {"envs.rounds.rounds", "envs.rounds.steps_scaling_inter", "envs.rounds.type"}
