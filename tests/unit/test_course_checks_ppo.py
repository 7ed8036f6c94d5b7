"""Checks of lesson 05: the lesson's numbers by hand, and what learners write."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from agentgym_lite.course import checks


def test_gae_by_hand() -> None:
    """delta = 0.04, 0.12, 0.2; with gamma * lam = 0.72: 0.2, 0.264, 0.23008."""
    found = checks.gae.right(torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0.5, 0.6, 0.8]), 0.9, 0.8)
    torch.testing.assert_close(found, torch.tensor([0.23008, 0.264, 0.2]))


def test_masked_gae_by_hand() -> None:
    """The example of docs/algorithms/upstream_faults.md."""
    values = torch.tensor([0.5, 0.5, 9.0, 9.0, 0.5, 0.5, 7.0])
    mask, rewards = torch.tensor([1.0, 1, 0, 0, 1, 1, 0]), torch.tensor([0.0, 0, 0, 0, 0, 1, 0])
    found = checks.masked_gae.right(rewards, values, mask, 1.0, 0.95)
    torch.testing.assert_close(found, torch.tensor([0.42869, 0.45125, 0, 0, 0.475, 0.5, 0]), atol=1e-4, rtol=0)


@pytest.mark.parametrize(("value", "loss"), [(0.35, 0.21125), (0.65, 0.15125), (-0.15, 0.66125)])
def test_value_loss_by_hand(value: float, loss: float) -> None:
    assert float(checks.clipped_value_loss.right(torch.tensor(value), torch.tensor(0.25), torch.tensor(1.0), 0.2)) == pytest.approx(loss)


def test_explained_variance_by_hand() -> None:
    assert checks.explained.right(torch.tensor([0.8, 0.2, 0.6, 0.4]), torch.tensor([1.0, 0.0, 1.0, 0.0])) == pytest.approx(0.6)


def test_the_published_recursion_is_named() -> None:
    def published(rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float) -> Tensor:
        out, running, following = torch.zeros_like(rewards), torch.zeros(()), torch.zeros(())
        for t in reversed(range(len(rewards))):
            after = values[t + 1] if t + 1 < len(values) else torch.zeros(())
            if mask[t]:
                following = after
                running = rewards[t] + gamma * following - values[t] + gamma * lam * running
            out[t] = running
        return out * mask

    assert "published fault 2" in checks.masked_gae(published).message


def test_a_lost_gradient_is_told() -> None:
    result = checks.clipped_value_loss(lambda v, old, r, c: checks.clipped_value_loss.right(v.detach(), old, r, c))
    assert "not the gradient" in result.message


def test_unbiased_variances_explain_as_much() -> None:
    assert checks.explained(lambda v, r: 1 - (r - v).var() / r.var()).passed
