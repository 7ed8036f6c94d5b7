"""Token rows and trajectories: lists in step, reward conserved for every stop reason, JSON there and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_lite.rollout.types import EpisodeSpec, StopReason, TokenRow, Trajectory, Turn, derive_seed


def test_a_row_by_hand() -> None:
    row = TokenRow()
    row.append_context([7, 8], -1)
    row.append_action([9], [-0.5], 0)
    row.append_context([5], 1)
    row.append_action([1, 2], [-0.25, 0], 1)
    assert row.token_ids == [7, 8, 9, 5, 1, 2]
    assert row.action_mask == [0, 0, 1, 0, 1, 1]
    assert row.position_ids == [0, 1, 2, 3, 4, 5]
    assert row.turn_ids == [-1, -1, 0, 1, 1, 1]
    assert row.logprobs == [0.0, 0.0, -0.5, 0.0, -0.25, 0.0]


def test_a_reply_without_its_logprobs_is_refused_and_changes_nothing() -> None:
    row = TokenRow()
    with pytest.raises(ValueError, match="found 2 tokens and 1 log-probs"):
        row.append_action([1, 2], [-0.5], 0)
    assert row == TokenRow()


def test_rewards_stand_on_the_last_sampled_token_of_their_turn() -> None:
    row = TokenRow()
    row.append_context([7, 8], -1)
    row.append_action([9, 9], [-1, -1], 0)
    row.append_context([5, 5, 5], 1)  # the observation that follows does not take the reward
    row.append_action([1], [-1], 1)
    row.append_context([5], 2)
    turns = [Turn("a", "b", "b", reward=0.25, start=2, end=4), Turn("a", "b", "b", reward=0.75, start=7, end=8)]
    trajectory = Trajectory(EpisodeSpec("textcraft", "textcraft_0"), [row], turns)
    assert trajectory.token_rewards() == [0, 0, 0, 0.25, 0, 0, 0, 0.75, 0]
    assert trajectory.reward == 1.0


def test_a_reward_without_a_sampled_token_is_not_lost_in_silence() -> None:
    row = TokenRow()
    row.append_context([7], -1)
    trajectory = Trajectory(EpisodeSpec("textcraft", "textcraft_0"), [row], [Turn("a", "", None, reward=1.0, start=1, end=1)])
    with pytest.raises(ValueError, match=r"empty span 1:1"):
        trajectory.token_rewards()


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    """Any number of turns, replies of any length, forks anywhere, with or without a last observation."""
    rows, turns = [TokenRow()], []
    rows[0].append_context(draw(st.lists(st.integers(0, 99), min_size=1, max_size=4)), -1)
    for k in range(draw(st.integers(0, 5))):
        n = draw(st.integers(1, 4))
        start = len(rows[-1])
        logprobs = draw(st.lists(st.floats(-20, 0), min_size=n, max_size=n))
        rows[-1].append_action(draw(st.lists(st.integers(0, 99), min_size=n, max_size=n)), logprobs, k)
        reward = draw(st.sampled_from([0.0, 0.125, 0.25, 1.0]))
        reply = draw(st.text(max_size=5))
        turns.append(
            Turn("o", reply, None, reward, invalid=True, truncated=draw(st.booleans()), row=len(rows) - 1, start=start, end=start + n)
        )
        if draw(st.integers(0, 3)) == 0:
            rows.append(TokenRow())
        rows[-1].append_context(draw(st.lists(st.integers(0, 99), max_size=3)), k + 1)
    spec = EpisodeSpec("babyai", "babyai_3", seed=draw(st.integers(0, 9)), sample=draw(st.integers(0, 9)))
    reason = draw(st.sampled_from(StopReason))
    return Trajectory(spec, rows, turns, reason, "goto", "1", 8, draw(st.text(max_size=5)), {"seconds": 0.5})


@settings(deadline=None)
@given(trajectories())
def test_reward_is_conserved_for_every_stop_reason(trajectory: Trajectory) -> None:
    credited = [trajectory.token_rewards(i) for i in range(len(trajectory.rows))]
    assert sum(map(sum, credited)) == trajectory.reward == sum(t.reward for t in trajectory.turns)
    for rewards, row in zip(credited, trajectory.rows, strict=True):
        assert len(rewards) == len(row)
        assert all(mask for reward, mask in zip(rewards, row.action_mask, strict=True) if reward)
    for turn in trajectory.turns:
        assert credited[turn.row][turn.end - 1] == turn.reward
        assert trajectory.rows[turn.row].action_mask[turn.start : turn.end] == [1] * (turn.end - turn.start)


@settings(deadline=None)
@given(trajectories())
def test_json_there_and_back(trajectory: Trajectory) -> None:
    d = trajectory.to_dict()
    assert d["reward"] == trajectory.reward
    assert d["stop_reason"] == trajectory.stop_reason.value
    assert Trajectory.from_dict(json.loads(json.dumps(d))) == trajectory
    if trajectory.turns:
        d["rows"][0]["token_ids"].clear()  # the dictionary is a copy
        assert trajectory.rows[0].token_ids


def test_only_episodes_with_sampled_tokens_and_a_sound_environment_are_trained() -> None:
    context, sampled = TokenRow(), TokenRow()
    context.append_context([1], -1)
    sampled.append_action([1], [-1.0], 0)
    spec = EpisodeSpec("babyai", "babyai_0")
    for reason in StopReason:
        assert not Trajectory(spec, [context], stop_reason=reason).trainable
        assert Trajectory(spec, [context, sampled], stop_reason=reason).trainable == (reason is not StopReason.ENV_ERROR)
        assert Trajectory(spec, stop_reason=reason).success == (reason is StopReason.SUCCESS)


def test_seeds_differ_by_run_item_sample_and_turn_and_by_nothing_else() -> None:
    spec = EpisodeSpec("babyai", "babyai_3", seed=1, sample=2)
    variants = [
        (0, spec, 0),
        (1, spec, 0),
        (0, spec, 1),
        (0, EpisodeSpec("textcraft", "babyai_3", 1, 2), 0),
        (0, EpisodeSpec("babyai", "babyai_4", 1, 2), 0),
        (0, EpisodeSpec("babyai", "babyai_3", 2, 2), 0),
        (0, EpisodeSpec("babyai", "babyai_3", 1, 3), 0),
    ]
    seeds = [derive_seed(*v) for v in variants]
    assert len(set(seeds)) == len(variants)
    assert derive_seed(0, EpisodeSpec("babyai", "babyai_3", 1, 2), 0) == seeds[0] == 5936681012011948494
    assert all(0 <= s < 2**63 for s in seeds)
    assert spec.group == EpisodeSpec("babyai", "babyai_3", seed=1, sample=5).group != EpisodeSpec("babyai", "babyai_3", seed=2).group
