"""Returns, GAE, group baselines and whitening of all algorithms: numbers by hand, an oracle on compressed rows, then properties."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from agentgym_lite.algorithms import (
    Packing,
    adapted_kl_coef,
    discounted_returns,
    explained_variance,
    fold_rewards,
    gae,
    gigpo_advantages,
    grpo_advantages,
    masked_whiten,
    rloo_advantages,
    turn_gae,
)


def row(*numbers: float) -> Tensor:
    return torch.tensor([numbers], dtype=torch.float64)


# -- by hand: two turns of two tokens with two observation tokens between and one behind, gamma and lambda below 1 ---------------------

MASK = row(0, 1, 1, 0, 0, 1, 1, 0)
VALUES = row(9, 0.5, 0.25, 9, 9, 0.75, 0.5, 9)
REWARDS = row(0, 0, 0.2, 0, 0, 0, 1, 0)
TURNS = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2]])


def test_discounted_returns_by_hand() -> None:
    # backwards over the four sampled tokens with gamma 1/2: 1, 1/2, 0.2 + 1/4, 0.225
    got = discounted_returns(REWARDS, MASK, gamma=0.5)
    torch.testing.assert_close(got, row(0, 0.225, 0.45, 0, 0, 0.5, 1.0, 0))


def test_gae_by_hand() -> None:
    # gamma 0.9, lambda 0.5. deltas: 1 - 0.5 = 0.5; 0.9 * 0.5 - 0.75 = -0.3; 0.2 + 0.9 * 0.75 - 0.25 = 0.625; 0.9 * 0.25 - 0.5 = -0.275
    a4 = 0.5
    a3 = -0.3 + 0.45 * a4
    a2 = 0.625 + 0.45 * a3
    a1 = -0.275 + 0.45 * a2
    advantages, returns = gae(REWARDS, VALUES, MASK, gamma=0.9, lam=0.5)
    torch.testing.assert_close(advantages, row(0, a1, a2, 0, 0, a3, a4, 0))
    torch.testing.assert_close(returns, row(0, a1 + 0.5, a2 + 0.25, 0, 0, a3 + 0.75, a4 + 0.5, 0))


def test_gae_of_the_published_review_example() -> None:
    """V = 0.5 on actions, 9 on observations, 7 on padding, lambda 0.95, gamma 1, reward 1 at the end."""
    mask = row(1, 1, 0, 1, 1, 0, 0)
    values = row(0.5, 0.5, 9, 0.5, 0.5, 9, 7)
    got = gae(row(0, 0, 0, 0, 1, 0, 0), values, mask, gamma=1.0, lam=0.95).advantages
    torch.testing.assert_close(got, row(0.4286875, 0.45125, 0, 0.475, 0.5, 0, 0))


def test_turn_gae_by_hand() -> None:
    # one step per turn: r = 0.2, 1; V at the first token = 0.5, 0.75; gamma 0.9, lambda 0.5
    a2 = 1 - 0.75
    a1 = 0.2 + 0.9 * 0.75 - 0.5 + 0.45 * a2
    packing = Packing(MASK, torch.tensor([0]))
    got = turn_gae(*(packing.pack(x) for x in (REWARDS, VALUES)), packing.valid, packing.pack(TURNS), gamma=0.9, lam=0.5)
    advantages, returns, where = (packing.unpack(x) for x in got)
    torch.testing.assert_close(advantages, row(0, a1, a1, 0, 0, a2, a2, 0))
    torch.testing.assert_close(returns, row(0, a1 + 0.5, 0, 0, 0, a2 + 0.75, 0, 0))
    assert where.tolist() == [[0, 1, 0, 0, 0, 1, 0, 0]]


def test_a_value_that_knows_the_action_is_not_read() -> None:
    """Turn-level baselines depend on nothing that the turn has sampled."""
    packing = Packing(MASK, torch.tensor([0]))
    later = VALUES.clone()
    later[0, [2, 6]] = 1e4
    args = packing.valid, packing.pack(TURNS)
    a, b = (turn_gae(packing.pack(REWARDS), packing.pack(v), *args, gamma=0.9, lam=0.5) for v in (VALUES, later))
    assert torch.equal(a.advantages, b.advantages)


def test_rloo_by_hand() -> None:
    # group 0: 1 0 0 0: 1 - 0, 0 - 1/3; group 1: 0.2 0.6: -0.4, 0.4; group 2 has one member
    got = rloo_advantages(torch.tensor([1.0, 0.2, 0.0, 0.0, 0.6, 0.0, 5.0]), torch.tensor([0, 1, 0, 0, 1, 0, 2]))
    torch.testing.assert_close(got.advantages, torch.tensor([1.0, -0.4, -1 / 3, -1 / 3, 0.4, -1 / 3, 0.0]))
    assert got.zero_variance.tolist() == [False] * 6 + [True]


def test_gigpo_by_hand() -> None:
    # One group of two episodes. Episode 0 reaches the goal in two turns, episode 1 fails after three; both begin at anchor 0, and
    # episode 1 comes back to it. Anchor 1 is seen by both, anchor 2 by one of them.
    rewards = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    turns = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    anchors = torch.tensor([[0, 1, 99], [0, 1, 0]])
    got = gigpo_advantages(rewards, turns, anchors, torch.tensor([0, 0]), gamma=0.5, step_weight=2.0, normalize_std=False)
    # A_E = 1/2, -1/2. G = [1/2, 1], [0, 0, 0]. anchor 0: 1/2 0 0, mean 1/6; anchor 1: 1 0, mean 1/2
    want = [[0.5 + 2 * (1 / 2 - 1 / 6), 0.5 + 2 * 0.5, 0.0], [-0.5 - 2 / 6, -0.5 - 2 * 0.5, -0.5 - 2 / 6]]
    torch.testing.assert_close(got, torch.tensor(want))


def test_gigpo_divides_both_parts_by_their_standard_deviations() -> None:
    rewards, turns = torch.tensor([[0.0, 1.0], [0.0, 0.0]]), torch.ones(2, 2)
    anchors = torch.tensor([[0, 1], [0, 2]])
    got = gigpo_advantages(rewards, turns, anchors, torch.tensor([0, 0]), gamma=0.5, step_weight=1.0)
    half = 1 / math.sqrt(2)  # any two different numbers, centred over their unbiased deviation
    torch.testing.assert_close(got, torch.tensor([[2 * half, half], [-2 * half, -half]]), atol=1e-5, rtol=0)


def test_whitening_by_hand() -> None:
    got = masked_whiten(torch.tensor([[1.0, 3.0, math.nan], [5.0, math.nan, math.nan]]), torch.tensor([[1, 1, 0], [1, 0, 0]]))
    torch.testing.assert_close(got, torch.tensor([[-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]), atol=1e-6, rtol=0)  # mean 3, std 2


@pytest.mark.parametrize("n", [0, 1, 5])
def test_whitening_equal_values_gives_exactly_zero(n: int) -> None:
    mask = (torch.arange(6) < n).float()[None]
    assert masked_whiten(torch.full((1, 6), 0.3), mask).abs().sum() == 0


def test_explained_variance_by_hand() -> None:
    returns, mask = torch.tensor([[0.0, 1.0, 2.0, 77.0]]), torch.tensor([[1.0, 1.0, 1.0, 0.0]])
    assert explained_variance(returns, returns, mask) == pytest.approx(1.0)
    assert explained_variance(torch.full((1, 4), 3.0), returns, mask) == pytest.approx(0.0)
    assert explained_variance(returns * 0.5, returns, mask) == pytest.approx(1 - 0.25)
    assert explained_variance(-returns, returns, mask) == pytest.approx(1 - 4)
    assert explained_variance(returns, torch.ones(1, 4), mask) is None


def test_the_kl_controller_by_hand() -> None:
    change = {"target": 0.1, "horizon": 100}
    assert adapted_kl_coef(0.5, 0.11, **change, episodes=10) == pytest.approx(0.5 * (1 + 0.1 * 0.1))  # type: ignore[arg-type]
    assert adapted_kl_coef(0.5, 9.0, **change, episodes=10) == pytest.approx(0.5 * 1.02)  # type: ignore[arg-type]
    assert adapted_kl_coef(0.5, 0.0, **change, episodes=10) == pytest.approx(0.5 * 0.98)  # type: ignore[arg-type]
    assert adapted_kl_coef(0.5, 0.1, **change, episodes=10) == 0.5  # type: ignore[arg-type]


# -- T3: drop all that the policy did not sample, then the textbook recursion -----------------------------------------------------------


def oracle(rewards: list[float], values: list[float], mask: list[int], gamma: float, lam: float) -> list[float]:
    """GAE on the compressed row in plain Python; a reward on an observation goes to the action before it."""
    r: list[float] = []
    v: list[float] = []
    for x, y, m in zip(rewards, values, mask, strict=True):
        if m:
            r.append(x)
            v.append(y)
        else:
            r[-1] += x
    advantages = [0.0] * len(r)
    after, running = 0.0, 0.0
    for t in reversed(range(len(r))):
        running = r[t] + gamma * after - v[t] + gamma * lam * running
        advantages[t], after = running, v[t]
    it = iter(advantages)
    return [next(it) if m else 0.0 for m in mask]


number = st.floats(-2, 2).map(lambda x: round(x, 3))


@st.composite
def rows(draw: st.DrawFn) -> tuple[list[float], list[float], list[int]]:
    """A row that begins with a sampled token; observations, rewards on them and trailing ones included."""
    mask = [1, *draw(st.lists(st.integers(0, 1), max_size=14))]
    n = len(mask)
    return draw(st.lists(number, min_size=n, max_size=n)), draw(st.lists(number, min_size=n, max_size=n)), mask


fraction = st.floats(0.05, 0.99)


@given(rows(), fraction, fraction)
@settings(max_examples=150, deadline=None)
def test_gae_equals_the_compressed_oracle(data: Any, gamma: float, lam: float) -> None:
    rewards, values, mask = data
    r, v, m = row(*rewards), row(*values), row(*mask)
    folded = fold_rewards(r, m)
    want = row(*oracle(rewards, values, mask, gamma, lam))
    got = gae(folded, v, m, gamma=gamma, lam=lam)
    torch.testing.assert_close(got.advantages, want)
    torch.testing.assert_close(got.returns, (want + v) * m)
    zero = discounted_returns(folded, m, gamma=gamma)
    torch.testing.assert_close(zero, row(*oracle(rewards, [0.0] * len(mask), mask, gamma, 1.0)))
    assert float(folded.sum()) == pytest.approx(sum(rewards), abs=1e-9)


@given(rows(), st.integers(0, 15), st.integers(1, 4), fraction, fraction)
@settings(max_examples=100, deadline=None)
def test_observation_tokens_anywhere_change_nothing(data: Any, at: int, k: int, gamma: float, lam: float) -> None:
    rewards, values, mask = data
    at = min(at, len(mask))
    longer = [x[:at] + [fill] * k + x[at:] for x, fill in ((rewards, math.nan), (values, 1e4), (mask, 0))]
    before = gae(row(*rewards), row(*values), row(*mask), gamma=gamma, lam=lam)
    after = gae(*(row(*x) for x in longer), gamma=gamma, lam=lam)
    for a, b in zip(before, after, strict=True):
        kept = torch.cat([b[:, :at], b[:, at + k :]], dim=1)
        assert torch.equal(kept, a)
        assert b[:, at : at + k].abs().sum() == 0


@given(rows(), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_padding_changes_nothing(data: Any, k: int) -> None:
    """T4: neither the recursions nor the statistics of whitening see it."""
    rewards, values, mask = (row(*x) for x in data)
    pad = torch.full((1, k), 1e4, dtype=torch.float64)
    wide = [torch.cat([x, fill], dim=1) for x, fill in ((rewards, pad), (values, pad), (mask, 0 * pad))]
    a, b = gae(rewards, values, mask, gamma=0.9, lam=0.8), gae(*wide, gamma=0.9, lam=0.8)
    assert torch.equal(b.advantages[:, :-k], a.advantages)
    torch.testing.assert_close(masked_whiten(b.advantages, wide[2])[:, :-k], masked_whiten(a.advantages, mask))


def test_a_reward_before_the_first_action_is_refused() -> None:
    with pytest.raises(ValueError, match="no action to credit it to"):
        fold_rewards(row(1, 0), row(0, 1))


def test_gamma_and_lambda_of_one_are_the_plain_difference() -> None:
    got = gae(REWARDS, VALUES, MASK, gamma=1.0, lam=1.0)
    torch.testing.assert_close(got.returns, row(0, 1.2, 1.2, 0, 0, 1, 1, 0))
    torch.testing.assert_close(got.advantages, (got.returns - VALUES) * MASK)


def test_a_forked_episode_is_one_sequence() -> None:
    """Rows of one episode, the second repeating the first as context, give what one row gives."""
    whole = gae(REWARDS, VALUES, MASK, gamma=0.9, lam=0.5).advantages
    mask = torch.stack([row(0, 1, 1, 0, 0, 0, 0, 0)[0], row(0, 0, 0, 0, 0, 1, 1, 0)[0]])
    packing = Packing(mask, torch.tensor([0, 0]))
    packed = [packing.pack(x.expand(2, -1)) for x in (REWARDS, VALUES)]
    got = packing.unpack(gae(*packed, packing.valid, gamma=0.9, lam=0.5).advantages)
    torch.testing.assert_close(got.sum(0, keepdim=True), whole)


@given(st.lists(st.lists(st.integers(0, 1), min_size=6, max_size=6), min_size=1, max_size=6), st.randoms())
@settings(max_examples=60, deadline=None)
def test_packing_and_unpacking_lose_nothing(masks: list[list[int]], rng: Any) -> None:
    mask = torch.tensor(masks, dtype=torch.float32)
    episodes = torch.tensor(sorted(rng.randrange(len(masks)) for _ in masks)).unique(return_inverse=True)[1]
    x = torch.arange(mask.numel()).reshape(mask.shape).float() + 1
    packing = Packing(mask, episodes)
    assert torch.equal(packing.unpack(packing.pack(x)), x * mask)
    for e in range(int(episodes.max()) + 1):
        mine = x[episodes == e][mask[episodes == e].bool()]
        assert torch.equal(packing.pack(x)[e][: len(mine)], mine)
        assert packing.valid[e].tolist() == [1.0] * len(mine) + [0.0] * (packing.valid.shape[1] - len(mine))


# -- T4 and T5: groups -------------------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0, 1, width=32), st.integers(0, 3)), min_size=1, max_size=24))
@settings(max_examples=80, deadline=None)
def test_vectorised_groups_equal_a_loop(data: list[tuple[float, int]]) -> None:
    rewards, groups = torch.tensor([r for r, _ in data]), torch.tensor([g for _, g in data])
    centred, scaled, leave_one_out = (torch.zeros(len(data)) for _ in range(3))
    for i, (r, g) in enumerate(data):
        peers = torch.tensor([x for x, h in data if h == g], dtype=torch.float64)
        if peers.max() == peers.min():
            continue
        centred[i] = r - peers.mean()
        scaled[i] = (r - peers.mean()) / (peers.std(correction=1) + 1e-6)
        leave_one_out[i] = r - (peers.sum() - r) / (len(peers) - 1)
    torch.testing.assert_close(grpo_advantages(rewards, groups).advantages, scaled, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(grpo_advantages(rewards, groups, normalize_std=False).advantages, centred, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(rloo_advantages(rewards, groups).advantages, leave_one_out, atol=1e-6, rtol=1e-5)


@given(st.lists(st.floats(0, 1, width=32), min_size=2, max_size=12))
@settings(max_examples=60, deadline=None)
def test_rloo_baseline_leaves_the_member_out(rewards: list[float]) -> None:
    """Changing one reward by d changes its own advantage by exactly d: the baseline does not know it."""
    groups = torch.zeros(len(rewards), dtype=torch.long)
    base = torch.tensor(rewards)
    changed = base.clone()
    changed[0] += 2.0
    a, b = (rloo_advantages(r, groups).advantages for r in (base, changed))
    assert float(b[0] - a[0]) == pytest.approx(2.0, abs=1e-5)


@pytest.mark.parametrize("value", [0.0, 0.1, 0.3])
def test_equal_groups_give_exactly_zero_in_every_baseline(value: float) -> None:
    rewards, groups = torch.full((7,), value), torch.tensor([0, 0, 0, 0, 0, 0, 1])
    assert rloo_advantages(rewards, groups).advantages.tolist() == [0.0] * 7
    turns = torch.ones(7, 2)
    split = torch.stack([rewards, torch.zeros(7)], dim=1)
    anchors = torch.stack([groups, groups + 2], dim=1)
    assert gigpo_advantages(split, turns, anchors, groups, gamma=0.9, step_weight=1.0).abs().sum() == 0
