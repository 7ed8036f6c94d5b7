"""Checks of lesson 07 against numbers worked out by hand, and answers that people really hand in."""

from __future__ import annotations

import pytest
import torch

from agentgym_lite.course import checks
from agentgym_lite.rollout.types import EpisodeSpec, Trajectory, Turn


def test_the_best_of_a_group_by_hand() -> None:
    got = checks.best_of_group.right(torch.tensor([0.2, 1.0, 0.5, 0.5]), torch.tensor([7, 7, 2, 2]))
    assert got.tolist() == [0.0, 1.0, 0.0, 0.0]


def test_other_advantages_are_not_the_best_of_a_group() -> None:
    assert checks.best_of_group(lambda r, g: (r - r.mean()) / r.std()).status == "wrong"
    assert checks.best_of_group(lambda r, g: r).status == "wrong"


def test_brief_by_hand() -> None:
    turns = [Turn("", "", "left"), Turn("", "", None, invalid=True), Turn("", "", "left", reward=1.0)]
    trajectory = Trajectory(EpisodeSpec("probe_both", "probe_both_0"), turns=turns)
    assert checks.brief.right(trajectory) == pytest.approx([-0.01, -0.06, 0.99])


@pytest.mark.parametrize(("step", "rounds"), [(1, 5), (10, 5), (11, 6), (21, 7), (150, 19), (151, 20), (10_000, 20)])
def test_the_ramp_by_hand(step: int, rounds: int) -> None:
    assert checks.ramp.right(step) == rounds


def test_the_loss_on_pairs_by_hand() -> None:
    one = [torch.tensor([x]) for x in (-2.0, -3.0, -2.5, -2.8)]
    assert checks.pair_loss.right(*one, 0.5).item() == pytest.approx(0.533, abs=5e-4)
    assert checks.pair_loss.right(*one[:2], *one[:2], 0.5).item() == pytest.approx(0.6931, abs=1e-4)


def test_a_loss_on_detached_log_probs_has_lost_its_gradient() -> None:
    result = checks.pair_loss(lambda c, r, rc, rr, beta: checks.pair_loss.right(c.detach(), r.detach(), rc, rr, beta))
    assert "not the gradient" in result.message


def test_what_agentevol_keeps_by_hand() -> None:
    assert checks.keep_best.right(["a", "b", "a", "c", "a"], [1.0, 1.0, 1.0, 0.5, 0.0], [4, 9, 3, 1, 1]) == [1, 2]
