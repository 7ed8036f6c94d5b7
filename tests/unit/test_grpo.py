"""Advantages, policy loss, KL estimators, entropy and aggregation: numbers by hand, exact expectations, then properties."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_lite.algorithms import (
    aggregate,
    clipped_policy_loss,
    denominator,
    entropy_from_logits,
    grpo_advantages,
    kl_estimate,
)

MODES = ["token_mean", "seq_mean_token_mean"]


# -- advantages ------------------------------------------------------------------------------------------------------------------------


def test_grpo_advantages_by_hand() -> None:
    # group 0: rewards 1 0 0 0, mean 1/4, unbiased variance (9 + 1 + 1 + 1) / 16 / 3 = 1/4, std 1/2
    # group 1: rewards 0.2 0.6, mean 0.4, std sqrt(0.08) = 0.282843
    rewards = torch.tensor([1.0, 0.2, 0.0, 0.0, 0.6, 0.0])
    groups = torch.tensor([0, 1, 0, 0, 1, 0])
    got = grpo_advantages(rewards, groups)
    want = torch.tensor([1.5, -0.70711, -0.5, -0.5, 0.70711, -0.5])
    torch.testing.assert_close(got.advantages, want, atol=1e-5, rtol=0)
    assert not got.zero_variance.any()


def test_grpo_divides_by_std_plus_1e_6() -> None:
    got = grpo_advantages(torch.tensor([0.0, 2e-6]), torch.tensor([0, 0])).advantages
    std = math.sqrt(2) * 1e-6
    torch.testing.assert_close(got, torch.tensor([-1e-6, 1e-6]) / (std + 1e-6), rtol=1e-4, atol=0)


def test_grpo_without_std_only_centres() -> None:
    got = grpo_advantages(torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.zeros(4, dtype=torch.long), normalize_std=False)
    torch.testing.assert_close(got.advantages, torch.tensor([0.75, -0.25, -0.25, -0.25]))


@pytest.mark.parametrize("value", [0.0, 0.1, 0.3, 1.0])
@pytest.mark.parametrize("size", [1, 3, 7])
def test_equal_rewards_give_exactly_zero(value: float, size: int) -> None:
    got = grpo_advantages(torch.full((size,), value), torch.zeros(size, dtype=torch.long))
    assert got.advantages.tolist() == [0.0] * size
    assert got.zero_variance.all()


def test_zero_variance_is_flagged_per_group() -> None:
    got = grpo_advantages(torch.tensor([1.0, 1.0, 0.0, 1.0, 0.5]), torch.tensor([4, 4, 9, 9, 2]))
    assert got.zero_variance.tolist() == [True, True, False, False, True]


def test_advantages_of_no_episodes_are_empty() -> None:
    got = grpo_advantages(torch.zeros(0), torch.zeros(0, dtype=torch.long))
    assert got.advantages.shape == got.zero_variance.shape == (0,)


def test_advantages_need_one_group_per_reward() -> None:
    with pytest.raises(ValueError, match=r"one shape \[N\], found \[3\] and \[2\]"):
        grpo_advantages(torch.zeros(3), torch.zeros(2, dtype=torch.long))


@given(st.lists(st.tuples(st.floats(0, 1, width=32), st.integers(0, 3)), min_size=1, max_size=24), st.randoms())
@settings(max_examples=50, deadline=None)
def test_advantages_follow_their_episode_under_permutation_and_sum_to_zero(data: list[tuple[float, int]], rng: object) -> None:
    rewards, groups = torch.tensor([r for r, _ in data]), torch.tensor([g for _, g in data])
    base = grpo_advantages(rewards, groups)
    order = list(range(len(data)))
    rng.shuffle(order)  # type: ignore[attr-defined]
    moved = grpo_advantages(rewards[order], groups[order])
    torch.testing.assert_close(moved.advantages, base.advantages[order], atol=1e-5, rtol=1e-5)
    for g in groups.unique():
        assert abs(float(base.advantages[groups == g].sum())) < 1e-4


# -- policy loss -----------------------------------------------------------------------------------------------------------------------


def test_clipped_loss_by_hand() -> None:
    ratio = torch.tensor([1.0, 1.5, 0.5, 1.5, 0.5, 1.25])
    advantage = torch.tensor([2.0, 2.0, 2.0, -2.0, -2.0, 2.0])
    loss, clipped = clipped_policy_loss(ratio.log(), torch.zeros(6), advantage, clip_low=0.2, clip_high=0.3)
    # A > 0: -A min(rho, 1.3); A < 0: -A max(rho, 0.8)
    torch.testing.assert_close(loss, torch.tensor([-2.0, -2.6, -1.0, 3.0, 1.6, -2.5]))
    assert clipped.tolist() == [0, 1, 0, 0, 1, 0]


def test_clipped_loss_gradient_by_hand() -> None:
    logp = torch.tensor([1.0, 1.5, 0.5, 1.5, 0.5]).log().requires_grad_()
    advantage = torch.tensor([2.0, 2.0, 2.0, -2.0, -2.0])
    clipped_policy_loss(logp, torch.zeros(5), advantage, clip_low=0.2, clip_high=0.2).loss.sum().backward()
    # d(-A rho)/d logp = -A rho where the free branch is active, else 0
    torch.testing.assert_close(logp.grad, torch.tensor([-2.0, 0.0, -1.0, 3.0, 0.0]))


def test_on_policy_loss_has_the_policy_gradient_and_nothing_is_clipped() -> None:
    logp = torch.randn(7, generator=torch.Generator().manual_seed(0)).requires_grad_()
    advantage = torch.arange(-3.0, 4.0)
    loss, clipped = clipped_policy_loss(logp, logp, advantage, clip_low=0.2, clip_high=0.2)
    loss.sum().backward()
    torch.testing.assert_close(loss.detach(), -advantage)
    torch.testing.assert_close(logp.grad, -advantage)
    assert clipped.sum() == 0


def test_loss_stays_finite_for_absurd_ratios() -> None:
    loss, _ = clipped_policy_loss(torch.tensor([500.0, -500.0]), torch.zeros(2), torch.tensor([-1.0, 1.0]), clip_low=0.2, clip_high=0.2)
    assert torch.isfinite(loss).all()


def test_entropy_by_hand() -> None:
    logits = torch.tensor([[0.0, 0.0, 0.0, 0.0], [math.log(3.0), 0.0, -1e9, -1e9]])
    want = [math.log(4), -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))]
    torch.testing.assert_close(entropy_from_logits(logits), torch.tensor(want))


# -- KL: a policy over five tokens, every expectation by enumeration --------------------------------------------------------------------

POLICY = torch.tensor([0.5, -0.3, 0.2, 1.1, -0.9], dtype=torch.float64)
REFERENCE = torch.tensor([-0.2, 0.4, 0.9, 0.1, 0.3], dtype=torch.float64)


def _exact_kl(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    return (p.exp() * (p - q)).sum()


def _gradient(value: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(value, logits)[0]


def _expected_loss_gradient(estimator: str) -> torch.Tensor:
    """Mean over tokens drawn from the policy of the gradient of the estimator, as a sampled loss would see it."""
    logits = POLICY.clone().requires_grad_()
    logp = logits.log_softmax(-1)
    estimate = kl_estimate(logp, REFERENCE.log_softmax(-1), estimator)  # type: ignore[arg-type]
    return _gradient((logp.detach().exp() * estimate).sum(), logits)


def test_k1_and_k3_are_unbiased_and_k2_is_not() -> None:
    p, q = POLICY.log_softmax(-1), REFERENCE.log_softmax(-1)
    mean = {k: float((p.exp() * kl_estimate(p, q, k)).sum()) for k in ("k1", "k2", "k3")}
    exact = float(_exact_kl(p, q))
    assert mean["k1"] == pytest.approx(exact, abs=1e-12)
    assert mean["k3"] == pytest.approx(exact, abs=1e-12)
    assert mean["k2"] == pytest.approx(0.5 * float((p.exp() * (p - q) ** 2).sum()), abs=1e-12)
    assert abs(mean["k2"] - exact) > 0.01


def test_k1_as_a_loss_has_no_expected_gradient() -> None:
    assert _expected_loss_gradient("k1").abs().max() < 1e-12


def test_k2_as_a_loss_has_the_gradient_of_the_reverse_kl() -> None:
    logits = POLICY.clone().requires_grad_()
    exact = _gradient(_exact_kl(logits.log_softmax(-1), REFERENCE.log_softmax(-1)), logits)
    torch.testing.assert_close(_expected_loss_gradient("k2"), exact)


def test_k3_as_a_loss_has_the_gradient_of_the_forward_kl() -> None:
    logits = POLICY.clone().requires_grad_()
    forward = _gradient(_exact_kl(REFERENCE.log_softmax(-1), logits.log_softmax(-1)), logits)
    reverse = _gradient(_exact_kl(logits.log_softmax(-1), REFERENCE.log_softmax(-1)), logits)
    torch.testing.assert_close(_expected_loss_gradient("k3"), forward)
    assert (forward - reverse).abs().max() > 0.01


def test_kl_values_by_hand() -> None:
    logp, ref = torch.tensor([math.log(0.5)]), torch.tensor([math.log(0.25)])
    log2 = math.log(2)
    assert kl_estimate(logp, ref, "k1").item() == pytest.approx(log2)
    assert kl_estimate(logp, ref, "k2").item() == pytest.approx(log2**2 / 2)
    assert kl_estimate(logp, ref, "k3").item() == pytest.approx(0.5 - 1 + log2)


def test_k3_is_accurate_near_zero_in_single_precision() -> None:
    x = 1e-4
    got = kl_estimate(torch.tensor([0.0]), torch.tensor([x]), "k3").item()
    assert got == pytest.approx(x * x / 2, rel=0.01)  # exp(x) - 1 - x would be 0 or 1e-7 here


def test_k3_clamp_gives_finite_values_and_no_gradient_beyond_it() -> None:
    logp = torch.tensor([-100.0, -1.0, 100.0]).requires_grad_()
    k3 = kl_estimate(logp, torch.zeros(3), "k3")
    k3.sum().backward()
    assert torch.isfinite(k3).all()
    assert k3[0].item() == pytest.approx(math.exp(20) - 21, rel=1e-6)
    torch.testing.assert_close(logp.grad, torch.tensor([0.0, 1 - math.e, 1.0]))


def test_equal_policies_have_zero_kl_and_gradient() -> None:
    logp = torch.randn(9, generator=torch.Generator().manual_seed(1)).requires_grad_()
    for k in ("k2", "k3"):
        value = kl_estimate(logp, logp.detach(), k)
        assert value.abs().sum() == 0
        assert torch.autograd.grad(value.sum(), logp)[0].abs().sum() == 0


def test_unknown_estimator_is_named() -> None:
    with pytest.raises(ValueError, match="k1, k2 or k3, found 'k4'"):
        kl_estimate(torch.zeros(1), torch.zeros(1), "k4")  # type: ignore[arg-type]


# -- aggregation -----------------------------------------------------------------------------------------------------------------------


def test_aggregation_by_hand() -> None:
    values = torch.tensor([[1.0, 3.0, 9.0], [5.0, 9.0, 9.0]])
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    assert aggregate(values, mask, "token_mean", denominator(mask, "token_mean")) == pytest.approx((1 + 3 + 5) / 3)
    assert aggregate(values, mask, "seq_mean_token_mean", denominator(mask, "seq_mean_token_mean")) == pytest.approx((2 + 5) / 2)


@pytest.mark.parametrize("mode", MODES)
def test_rows_without_sampled_tokens_count_for_nothing(mode: str) -> None:
    values, mask = torch.tensor([[2.0, 4.0], [7.0, 7.0]]), torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    assert aggregate(values, mask, mode, denominator(mask, mode)) == pytest.approx(3.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", MODES)
def test_poison_behind_the_mask_changes_neither_value_nor_gradient(mode: str) -> None:
    mask = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    clean = torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]], requires_grad=True)
    poisoned = torch.where(mask.bool(), clean.detach(), torch.nan).requires_grad_()
    results = []
    for x in (clean, poisoned):
        value = aggregate(x, mask, mode, denominator(mask, mode))  # type: ignore[arg-type]
        results.append((value.item(), torch.autograd.grad(value, x)[0]))
    assert results[0][0] == results[1][0]
    assert torch.equal(results[0][1], results[1][1])


@pytest.mark.parametrize("mode", MODES)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=8).filter(any), st.lists(st.integers(0, 3), min_size=8, max_size=8))
@settings(max_examples=60, deadline=None)
def test_any_split_gives_the_same_value_and_gradient(mode: str, lengths: list[int], parts: list[int]) -> None:
    """T6: one batch, micro-batches of one, uneven parts (as on ranks with unequal tokens)."""
    mask = (torch.arange(6)[None] < torch.tensor(lengths)[:, None]).double()
    x = torch.linspace(-1, 2, mask.numel(), dtype=torch.float64).reshape(mask.shape).requires_grad_()
    denom = denominator(mask, mode)  # type: ignore[arg-type]

    def run(split: list[list[int]]) -> tuple[float, torch.Tensor]:
        total = sum(aggregate(x[rows].sin(), mask[rows], mode, denom) for rows in split)  # type: ignore[arg-type]
        return float(total.detach()), torch.autograd.grad(total, x)[0]  # type: ignore[arg-type, union-attr]

    rows = list(range(len(lengths)))
    whole = run([rows])
    uneven = [[i for i in rows if parts[i] == p] for p in range(4)]
    for split in ([[i] for i in rows], [s for s in uneven if s]):
        value, gradient = run(split)
        assert value == pytest.approx(whole[0], abs=1e-12)
        torch.testing.assert_close(gradient, whole[1])


def test_empty_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one sampled token"):
        aggregate(torch.zeros(1, 2), torch.zeros(1, 2), "token_mean", 0.0)
