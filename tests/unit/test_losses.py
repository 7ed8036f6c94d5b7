"""Policy losses beyond the plain clip, importance weights and the value loss: numbers by hand, then gradients by enumeration."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from agentgym_lite.algorithms import (
    aggregate,
    cispo_policy_loss,
    clipped_policy_loss,
    denominator,
    gspo_policy_loss,
    importance_weights,
    kl_estimate,
    policy_loss,
    value_loss,
)

CLIP: dict[str, float] = {"clip_low": 0.2, "clip_high": 0.3}


def logs(*numbers: float) -> Tensor:
    return torch.tensor([numbers]).log()


# -- by hand -----------------------------------------------------------------------------------------------------------------------------


def test_dual_clip_bounds_negative_advantages_only() -> None:
    logp = logs(2.0, 5.0, 5.0).requires_grad_()
    loss, clipped = clipped_policy_loss(logp, torch.zeros(1, 3), torch.tensor([[-1.0, -1.0, 1.0]]), **CLIP, dual_clip=3.0)
    torch.testing.assert_close(loss.detach(), torch.tensor([[2.0, 3.0, -1.3]]))
    assert clipped.tolist() == [[0, 1, 1]]
    loss.sum().backward()
    torch.testing.assert_close(logp.grad, torch.tensor([[2.0, 0.0, 0.0]]))


def test_gspo_by_hand() -> None:
    # row 0: ratios 2 and 1/8 over two tokens, geometric mean 1/2; row 1: one token, ratio 1.1
    logp = torch.stack([logs(2.0, 0.125, 7.0)[0], logs(1.1, 3.0, 3.0)[0]]).requires_grad_()
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    advantages = torch.tensor([[1.0, -1.0, 0.0], [2.0, 0.0, 0.0]])
    loss, clipped = gspo_policy_loss(logp, torch.zeros(2, 3), advantages, mask, **CLIP)
    torch.testing.assert_close((loss * mask).detach(), torch.tensor([[-0.5, 0.8, 0.0], [-2.2, 0.0, 0.0]]))
    assert (clipped * mask).tolist() == [[0, 1, 0], [0, 0, 0]]
    (loss * mask).sum().backward()
    torch.testing.assert_close(logp.grad, torch.tensor([[-0.5, 0.0, 0.0], [-2.2, 0.0, 0.0]]))


def test_gspo_gradient_is_that_of_the_sequence_ratio() -> None:
    """With one advantage per row, the token form summed over the row and divided by its length has the gradient of s_i * A."""
    logp = torch.tensor([[0.1, -0.05, 0.02]], dtype=torch.float64, requires_grad=True)
    mask = torch.ones(1, 3, dtype=torch.float64)
    sequence = -0.7 * (logp.sum() / 3).exp()
    want = torch.autograd.grad(sequence, logp)[0]
    loss = gspo_policy_loss(logp, torch.zeros_like(logp), torch.full_like(logp, 0.7), mask, **CLIP).loss
    got = torch.autograd.grad(aggregate(loss, mask, "seq_mean_token_mean", 1.0), logp)[0]
    torch.testing.assert_close(got, want)


def test_cispo_by_hand() -> None:
    logp = logs(0.5, 1.1, 2.0).requires_grad_()
    advantages = torch.tensor([[1.0, -2.0, 3.0]])
    loss, clipped = cispo_policy_loss(logp, torch.zeros(1, 3), advantages, **CLIP)
    weights = torch.tensor([[0.8, 1.1, 1.3]])
    torch.testing.assert_close(loss.detach(), -weights * advantages * logp.detach())
    assert clipped.tolist() == [[1, 0, 1]]
    loss.sum().backward()
    torch.testing.assert_close(logp.grad, -weights * advantages)  # clipped tokens keep their gradient


def test_importance_weights_by_hand() -> None:
    trainer, engine = logs(0.5, 0.9, 0.3), logs(0.25, 0.3, 0.6)
    mask = torch.ones(1, 3)
    token = importance_weights(trainer, engine, mask, level="token", cap=2.5)
    torch.testing.assert_close(token, torch.tensor([[2.0, 2.5, 0.5]]))
    sequence = importance_weights(trainer, engine, mask, level="sequence", cap=4.0)
    torch.testing.assert_close(sequence, torch.full((1, 3), 3.0))  # 2 * 3 * 0.5: a product, not a sum
    assert importance_weights(trainer, engine, mask, level="sequence", cap=2.0).tolist() == [[2.0] * 3]


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_importance_weights_never_read_behind_the_mask(level: Any) -> None:
    mask = torch.tensor([[1.0, 0.0]])
    got = importance_weights(torch.tensor([[-1.0, math.nan]]), torch.tensor([[-1.5, 1e4]]), mask, level=level, cap=9.0)
    torch.testing.assert_close(got, torch.tensor([[math.exp(0.5), 0.0]]))
    assert importance_weights(torch.zeros(1, 2), torch.full((1, 2), -1e4), mask, level=level, cap=9.0).tolist() == [[9.0, 0.0]]


def test_value_loss_by_hand() -> None:
    values = torch.tensor([1.0, 1.0, 0.2], requires_grad=True)
    old, returns = torch.tensor([0.0, 0.0, 0.0]), torch.tensor([2.0, 0.9, 1.0])
    loss, clipped = value_loss(values, old, returns, clip=0.5)
    # clipped values 0.5 0.5 0.2: errors 1 vs 2.25, 0.01 vs 0.16, 0.64 vs 0.64
    torch.testing.assert_close(loss.detach(), torch.tensor([1.125, 0.08, 0.32]))
    assert clipped.tolist() == [1, 1, 0]
    loss[:2].sum().backward()
    assert values.grad is not None
    assert values.grad[:2].tolist() == [0.0, 0.0]
    plain = value_loss(values, old, returns, clip=None)
    torch.testing.assert_close(plain.loss.detach(), torch.tensor([0.5, 0.005, 0.32]))
    assert plain.clipped.sum() == 0


def test_unknown_loss_is_named() -> None:
    with pytest.raises(ValueError, match="clip, gspo or cispo, found 'best'"):
        policy_loss("best", *[torch.zeros(1, 1)] * 4, **CLIP)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["clip", "gspo", "cispo"])
def test_all_losses_agree_on_policy(kind: Any) -> None:
    """T8: at ratio 1 each of them is REINFORCE with the advantage as weight, and nothing is clipped."""
    logp = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    mask, advantages = torch.ones(3, 4), torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    loss, clipped = policy_loss(kind, logp, logp.detach(), advantages, mask, **CLIP)
    torch.testing.assert_close(torch.autograd.grad(loss.sum(), logp)[0], -advantages)
    assert clipped.sum() == 0


@pytest.mark.parametrize("kind", ["clip", "gspo", "cispo"])
def test_poison_behind_the_mask_changes_no_gradient(kind: Any) -> None:
    """T2."""
    mask = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    logp = torch.tensor([[-1.0, 0.0, -2.0], [0.0, -0.5, 0.0]])
    results = []
    for fill in (0.0, 1e4):
        x = logp.clone().requires_grad_()
        old, advantages = ((logp + 0.1).masked_fill(mask == 0, fill), torch.full((2, 3), 0.7).masked_fill(mask == 0, fill))
        loss = policy_loss(kind, x, old, advantages, mask, **CLIP).loss
        mean = aggregate(loss, mask, "token_mean", denominator(mask, "token_mean"))
        results.append((float(mean.detach()), torch.autograd.grad(mean, x)[0]))
    assert results[0][0] == results[1][0]
    assert torch.equal(results[0][1], results[1][1])


# -- T6 --------------------------------------------------------------------------------------------------------------------------------


def test_the_constant_normaliser_by_hand() -> None:
    values = torch.tensor([[1.0, 3.0, 9.0], [5.0, 9.0, 9.0], [9.0, 9.0, 9.0]])
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    denom = denominator(mask, "seq_mean_token_sum_norm", 10.0)
    assert denom == 20.0  # two rows that have tokens
    assert aggregate(values, mask, "seq_mean_token_sum_norm", denom) == pytest.approx(9 / 20)
    parts = sum(aggregate(values[[i]], mask[[i]], "seq_mean_token_sum_norm", denom) for i in range(3))
    assert parts == pytest.approx(9 / 20)
    with pytest.raises(ValueError, match="constant 'norm'"):
        denominator(mask, "seq_mean_token_sum_norm")


def test_a_token_weighs_the_same_in_rows_of_any_length_only_without_sequence_means() -> None:
    mask = torch.zeros(2, 100)
    mask[0, :10], mask[1] = 1.0, 1.0
    ratios = {}
    for mode, norm in (("token_mean", None), ("seq_mean_token_mean", None), ("seq_mean_token_sum_norm", 50.0)):
        x = torch.zeros(2, 100, requires_grad=True)
        value = aggregate(x, mask, mode, denominator(mask, mode, norm))  # type: ignore[arg-type]
        gradient = torch.autograd.grad(value, x)[0]
        ratios[mode] = float(gradient[0, 0] / gradient[1, 0])
    assert ratios == pytest.approx({"token_mean": 1.0, "seq_mean_token_mean": 10.0, "seq_mean_token_sum_norm": 1.0})


# -- T7: a policy over five tokens, expectations by enumeration ----------------------------------------------------------------------------

THETA = torch.tensor([0.5, -0.3, 0.2, 1.1, -0.9], dtype=torch.float64)
STALE = torch.tensor([0.45, -0.28, 0.25, 1.0, -0.85], dtype=torch.float64)
REFERENCE = torch.tensor([-0.2, 0.4, 0.9, 0.1, 0.3], dtype=torch.float64)
REWARD = torch.tensor([1.0, 0.0, 0.3, -0.5, 0.2], dtype=torch.float64)


def analytic(weights: Tensor) -> Tensor:
    r"""Gradient by hand of :math:`\sum_a w_a \log\pi_a` in the logits: :math:`w - \pi \sum_a w_a`."""
    return weights - THETA.softmax(0) * weights.sum()


@pytest.mark.parametrize("kind", ["clip", "gspo", "cispo"])
def test_the_loss_gradient_equals_the_analytic_one_off_policy(kind: Any) -> None:
    """Expectation over tokens of the stale policy; one-token sequences, ratios inside the bounds."""
    logits = THETA.clone().requires_grad_()
    logp, old = logits.log_softmax(0)[:, None], STALE.log_softmax(0)[:, None]
    mask = torch.ones(5, 1, dtype=torch.float64)
    loss = policy_loss(kind, logp, old, REWARD[:, None], mask, **CLIP).loss[:, 0]
    got = torch.autograd.grad((STALE.softmax(0) * loss).sum(), logits)[0]
    # importance weighting gives the gradient of -E_pi[A] whatever was sampled from: weights pi_old * rho * A = pi * A
    torch.testing.assert_close(got, -analytic(THETA.softmax(0) * REWARD))


def test_importance_weights_repair_an_engine_that_is_off() -> None:
    """Tokens drawn from the engine, weights below the cap: the expected gradient is the trainer's own."""
    logits = THETA.clone().requires_grad_()
    logp, engine = logits.log_softmax(0)[:, None], REFERENCE.log_softmax(0)[:, None]
    mask = torch.ones(5, 1, dtype=torch.float64)
    want = -analytic(THETA.softmax(0) * REWARD)
    loss = policy_loss("clip", logp, logp.detach(), REWARD[:, None], mask, **CLIP).loss
    weights = importance_weights(logp, engine, mask, level="token", cap=1e6)
    plain, weighted = (torch.autograd.grad((engine.exp() * x).sum(), logits, retain_graph=True)[0] for x in (loss, loss * weights))
    torch.testing.assert_close(weighted, want)
    assert (plain - want).abs().max() > 0.05


@pytest.mark.parametrize(("estimator", "direction"), [("k1", "none"), ("k2", "reverse"), ("k3", "forward")])
def test_each_kl_estimator_as_a_loss_by_analysis(estimator: Any, direction: str) -> None:
    logits = THETA.clone().requires_grad_()
    logp, ref = logits.log_softmax(0), REFERENCE.log_softmax(0)
    got = torch.autograd.grad((logp.detach().exp() * kl_estimate(logp, ref, estimator)).sum(), logits)[0]
    p, x = THETA.softmax(0), THETA.log_softmax(0) - REFERENCE.log_softmax(0)
    want = {
        "none": torch.zeros(5, dtype=torch.float64),
        "reverse": analytic(p * x),  # grad of sum p log(p / q)
        "forward": p - REFERENCE.softmax(0),  # grad of -sum q log p
    }[direction]
    torch.testing.assert_close(got, want, atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize(("estimator", "bias"), [("k1", 0), ("k2", 1), ("k3", 0)])
def test_each_kl_estimator_in_the_reward_by_analysis(estimator: Any, bias: int) -> None:
    """As a reward, k1 and k3 have the exact KL as mean; k1 alone also gives its exact gradient, k2 and k3 are biased."""
    logits = THETA.clone().requires_grad_()
    logp, ref = logits.log_softmax(0), REFERENCE.log_softmax(0)
    penalty = kl_estimate(logp, ref, estimator).detach()
    exact = torch.autograd.grad((logp.exp() * (logp - ref)).sum(), logits, retain_graph=True)[0]
    got = torch.autograd.grad((logp.exp() * penalty).sum(), logits)[0]
    kl = float((THETA.softmax(0) * (THETA.log_softmax(0) - ref)).sum())
    mean = float((THETA.softmax(0) * penalty).sum())
    assert (abs(mean - kl) > 0.01) == bool(bias)
    assert ((got - exact).abs().max() < 1e-12) == (estimator == "k1")
    torch.testing.assert_close(got, analytic(THETA.softmax(0) * penalty))


def test_k1_off_policy_needs_the_ratio() -> None:
    """Tokens of a stale policy: the mean of k1 is not the KL of the current one, weighted by the ratio it is."""
    logp, old, ref = (x.log_softmax(0) for x in (THETA, STALE, REFERENCE))
    exact = float((logp.exp() * (logp - ref)).sum())
    k1 = kl_estimate(logp, ref, "k1")
    assert abs(float((old.exp() * k1).sum()) - exact) > 1e-3
    assert float((old.exp() * (logp - old).exp() * k1).sum()) == pytest.approx(exact, abs=1e-12)
