"""Metrics on hand-made episodes."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_lite.evaluation.intervals import wilson
from agentgym_lite.evaluation.metrics import pass_at_k, summarize
from agentgym_lite.rollout.types import EpisodeSpec, StopReason, TokenRow, Trajectory, Turn


def episode(item, success, sample=0, turns=1, invalid=0, stop=None):
    """An episode of ``turns`` turns, the first ``invalid`` of them invalid, 3 sampled tokens each, paid 1 at the end on success."""
    stop = stop or (StopReason.SUCCESS if success else StopReason.MAX_ROUNDS)
    played = [Turn("see", "do", "do", reward=float(success and k == turns - 1), invalid=k < invalid) for k in range(turns)]
    row = TokenRow()
    for k in range(turns):
        row.append_context([1, 2], k)
        row.append_action([3, 4, 5], [0.0] * 3, k)
    return Trajectory(EpisodeSpec("textcraft", f"textcraft_{item}", sample=sample), [row], played, stop, task="depth_1")


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_equals_enumeration(case):
    n, c, k = case
    draws = list(combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(any(d) for d in draws) / len(draws))


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, 1, 5), (4, 1, 0), (4, -1, 1)])
def test_pass_at_k_refuses_impossible_counts(n, c, k):
    with pytest.raises(ValueError, match="expected 0 <= c <= n"):
        pass_at_k(n, c, k)


def test_summary_by_hand():
    found = summarize([episode(0, True, turns=2, invalid=1), episode(1, False, turns=4), episode(2, True, turns=3)])
    assert (found.items, found.episodes, found.env_errors) == (3, 3, 0)
    assert found.success == wilson(2, 3)
    assert found.reward.value == pytest.approx(2 / 3)
    assert found.rounds == 3
    assert found.reply_tokens == 9
    assert found.invalid_rate == pytest.approx(1 / 9)
    assert found.stop_reasons == {"max_rounds": 1, "success": 2}
    assert found.pass_at == {1: pytest.approx(2 / 3)}


def test_environment_errors_are_counted_and_left_out():
    good, broken = episode(0, True), episode(1, False, turns=9, invalid=9, stop=StopReason.ENV_ERROR)
    with_error, without = summarize([good, broken]), summarize([good])
    assert with_error.env_errors == 1
    assert with_error.success == without.success
    assert with_error.rounds == without.rounds
    assert with_error.invalid_rate == without.invalid_rate == 0


def test_several_samples_of_an_item_are_not_independent():
    # Two items, four samples each: one always solved, the other never. 4 of 8 pooled would claim a tight interval around 1/2.
    found = summarize([episode(i, i == 0, sample=s) for i in range(2) for s in range(4)])
    assert (found.items, found.episodes) == (2, 8)
    assert (found.success.value, found.success.low, found.success.high) == (0.5, 0.0, 1.0)
    assert found.pass_at == {1: 0.5, 2: 0.5, 3: 0.5, 4: 0.5}


@pytest.mark.parametrize("success", [True, False])
def test_items_that_all_agree_do_not_make_it_certain(success):
    found = summarize([episode(i, success, sample=s) for i in range(5) for s in range(4)])
    assert found.success == wilson(5 * success, 5)


def test_pass_at_k_over_items_by_hand():
    # Item 0: 1 of 2, item 1: 0 of 2. pass@1 = (1/2 + 0) / 2, pass@2 = (1 + 0) / 2.
    found = summarize([episode(0, True, 0), episode(0, False, 1), episode(1, False, 0), episode(1, False, 1)])
    assert found.pass_at == {1: 0.25, 2: 0.5}


def test_no_episode_gives_no_figures():
    found = summarize([episode(0, False, stop=StopReason.ENV_ERROR)])
    assert (found.success, found.reward, found.rounds, found.invalid_rate, found.pass_at) == (None, None, None, None, {})
