"""The published faults of AgentGym-RL: each shows under ``upstream_compat``, with numbers worked out by hand, and is absent without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from agentgym_lite.agents import ChatRenderer
from agentgym_lite.algorithms import ALGORITHMS, Samples, aggregate, denominator, gae, rloo_advantages, upstream
from agentgym_lite.config import parse_config
from agentgym_lite.config.algorithms import GRPOConfig, PPOConfig, ReinforcePPConfig
from agentgym_lite.probes import PROBES, probe_model, probe_tokenizer, register_probes
from agentgym_lite.rollout import schedulers
from agentgym_lite.rollout.types import EpisodeSpec, StopReason, TokenRow, Trajectory, Turn
from agentgym_lite.training import Trainer
from agentgym_lite.training.batch import Batch
from agentgym_lite.training.episodes import as_published

RENDERER = ChatRenderer(probe_tokenizer())
END = RENDERER.end_of_turn
#: Two turns of two tokens; an observation of two tokens between them and one token behind the last.
MASK = torch.tensor([[1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0]])


def samples(rewards: list[float], values: Tensor | None = None) -> Samples:
    """Episodes that look like MASK, one group; each one's reward stands on its last sampled token, as the kit credits it."""
    n = len(rewards)
    credited = torch.zeros(n, 7)
    credited[:, 5] = torch.tensor(rewards)
    return Samples(
        mask=MASK.expand(n, -1),
        rewards=credited,
        penalty=torch.zeros(n, 7),
        turns=torch.tensor([[0, 0, 1, 1, 1, 1, 2]]).expand(n, -1),
        anchors=torch.zeros(n, 7, dtype=torch.long),
        episodes=torch.arange(n),
        groups=torch.zeros(n, dtype=torch.long),
        lengths=torch.full((n,), 7),
        values=values,
    )


def close(found: Tensor, wanted: list[Any], atol: float = 1e-4) -> None:
    torch.testing.assert_close(found, torch.tensor(wanted, dtype=found.dtype), rtol=0, atol=atol)


# -- the reward is put on an observation's token ---------------------------------------------------------------------------


def test_reward_on_an_observation_token_is_lost() -> None:
    """It is put on the last attended token, which the trailing observation owns, and multiplied by the mask there."""
    rewards = torch.tensor([[0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]])
    assert upstream.reward_on_last_token(rewards, MASK, torch.tensor([7])).sum() == 0.0
    # Only an episode that was cut inside a reply keeps its reward.
    assert upstream.reward_on_last_token(rewards, MASK, torch.tensor([6])).sum() == 1.0


def test_reinforce_pp_learns_nothing_from_lost_rewards() -> None:
    """A success and a failure: returns 1 and 0 on four tokens each, so +-sqrt(7/8) whitened (unbiased variance 2/7)."""
    config = ReinforcePPConfig(kl_coef=0.0, kl_in="reward")
    credit = ALGORITHMS["reinforce_pp"].credit
    ours = credit(samples([1.0, 0.0]), config).advantages
    close(ours, [[s * 0.9354 * m for m in MASK[0].tolist()] for s in (1, -1)])
    assert not credit(samples([1.0, 0.0]), config.model_copy(update={"upstream_compat": True})).advantages.any()


@pytest.mark.parametrize("name", ["grpo", "rloo", "reinforce_pp_baseline", "gigpo"])
def test_algorithms_that_sum_the_row_never_lost_it(name: str) -> None:
    """Why GRPO was the one that worked."""
    config = parse_config({"envs": [{"name": "textcraft"}], "algorithm": {"name": name, "upstream_compat": True}}).algorithm
    assert ALGORITHMS[name].credit(samples([1.0, 0.0]), config).advantages[0, 0] > 0.5


# -- GAE reads values at observations --------------------------------------------------------------------------------------


def values_everywhere() -> Tensor:
    """0.5 on the policy's tokens, 9 on the observation between, 7 behind the end: numbers that nobody trains."""
    return torch.tensor([[0.5, 0.5, 9.0, 9.0, 0.5, 0.5, 7.0]])


def test_gae_bootstraps_from_observations() -> None:
    """Last token: 1 + 7 - 0.5 = 7.5, then 0.95 * 7.5; across the observation 9 - 0.5 + 0.95 * 7.125 = 15.27, then 0.95 times that."""
    rewards = torch.tensor([[0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]])
    theirs = upstream.gae(rewards, values_everywhere(), MASK, gamma=1.0, lam=0.95).advantages
    close(theirs[MASK.bool()], [14.5053, 15.2688, 7.125, 7.5])
    ours = gae(rewards, values_everywhere(), MASK, gamma=1.0, lam=0.95).advantages
    close(ours[MASK.bool()], [0.4287, 0.4513, 0.475, 0.5])


def test_ppo_uses_them_only_under_the_switch() -> None:
    """Together with the lost reward: 7 - 0.5 = 6.5 at the end, 0.95 * 6.5 = 6.175, 8.5 + 0.95 * 6.175 = 14.366, 13.648."""
    config = PPOConfig(kl_coef=0.0, lam=0.95, whiten=False)
    s = samples([1.0], values_everywhere())
    theirs = ALGORITHMS["ppo"].credit(s, config.model_copy(update={"upstream_compat": True})).advantages
    close(theirs[MASK.bool()], [13.6479, 14.3663, 6.175, 6.5])
    close(ALGORITHMS["ppo"].credit(s, config).advantages[MASK.bool()], [0.4287, 0.4513, 0.475, 0.5])


# -- a resumed schedule skips a stage --------------------------------------------------------------------------------------


def test_resume_on_a_boundary_skips_a_stage() -> None:
    """Rounds [10, 20, 30] every 100 steps, resumed after step 100: 99 of the second stage's 100 steps run with 30."""
    theirs = upstream.StepRoundsScheduler(100, [10, 20, 30], resumed_at=100)
    ours = schedulers.StepRoundsScheduler(100, [10, 20, 30])
    assert [theirs.rounds_at(s) for s in (101, 102, 200, 201)] == [20, 30, 30, 30]
    assert [ours.rounds_at(s) for s in (101, 102, 200, 201)] == [20, 20, 20, 30]
    assert sum(theirs.rounds_at(s) != ours.rounds_at(s) for s in range(101, 301)) == 99


def test_resume_elsewhere_delays_the_next_stage() -> None:
    theirs = upstream.StepRoundsScheduler(100, [10, 20, 30], resumed_at=75)
    ours = schedulers.StepRoundsScheduler(100, [10, 20, 30])
    assert [s for s in range(76, 301) if theirs.rounds_at(s) != ours.rounds_at(s)] == [101, 201]


def test_an_unbroken_run_was_right() -> None:
    theirs = upstream.StepRoundsScheduler(100, [10, 20, 30])
    ours = schedulers.StepRoundsScheduler(100, [10, 20, 30])
    assert [theirs.rounds_at(s) for s in range(1, 400)] == [ours.rounds_at(s) for s in range(1, 400)]


# -- settings and algorithms that are dead ---------------------------------------------------------------------------------


@pytest.fixture
def _probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_envs.core._REGISTRY", {})
    register_probes()


def train(out: Path, probe: str, algorithm: dict[str, Any], steps: int = 1) -> list[dict[str, float]]:
    config = parse_config(
        {
            "envs": [{"name": probe, "rounds": {"type": "fixed", "rounds": PROBES[probe].ROUNDS}}],
            "algorithm": {"kl_coef": 0.0, "entropy_coef": 0.0, **algorithm},
            "rollout": {"max_new_tokens": 2, "max_length": 96},
            "optim": {"lr": 3e-3},
            "run": {"steps": steps, "groups_per_step": 4, "out": str(out), "save_every": 1000},
        }
    )
    return Trainer(config, model=probe_model(), tokenizer=probe_tokenizer()).train().history


@pytest.mark.usefixtures("_probes")
def test_inner_epochs_were_never_run(tmp_path: Path) -> None:
    """The scripts ask for 2 passes over each batch; the actor makes 1."""
    assert train(tmp_path / "ours", "probe_action", {"epochs": 2})[0]["optim/updates"] == 2.0
    assert train(tmp_path / "theirs", "probe_action", {"epochs": 2, "upstream_compat": True})[0]["optim/updates"] == 1.0


@pytest.mark.usefixtures("_probes")
@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_algorithm_that_is_offered_can_be_reached(tmp_path: Path, name: str) -> None:
    """There, a configured ``rloo`` ends with NotImplementedError, and PPO, the default, with tensors of two widths."""
    assert train(tmp_path, "probe_action", {"name": name})[0]["optim/updates"] == 1.0


def test_rloo_by_hand() -> None:
    """One success among four: 1 - 0 for it, 0 - 1/3 for each of the others."""
    close(rloo_advantages(torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.zeros(4, dtype=torch.long)).advantages, [1.0, -1 / 3, -1 / 3, -1 / 3])


# -- what is trained, and on whom ------------------------------------------------------------------------------------------


def cut_episode(sample: int = 0, reward: float = 0.0) -> Trajectory:
    """Two replies of two tokens; the first was cut by the limit on new tokens, so the template's end token follows it unsampled."""
    row = TokenRow()
    row.append_context([5, 6], -1)
    row.append_action([7, 8], [-0.5, -0.5], 0)
    row.append_context([END, 5], 1)
    row.append_action([9, END], [-0.5, -0.5], 1)
    turns = [
        Turn("a", "x", None, truncated=True, invalid=True, start=2, end=4),
        Turn("b", "y", "y", reward=reward, start=6, end=8),
    ]
    stop = StopReason.SUCCESS if reward == 1.0 else StopReason.FAILURE
    return Trajectory(EpisodeSpec("textcraft", "textcraft_0", 0, sample), [row], turns, stop)


def test_an_end_token_that_was_not_sampled_is_trained() -> None:
    ours = cut_episode()
    theirs = as_published(ours, RENDERER)
    assert ours.rows[0].action_mask == [0, 0, 1, 1, 0, 0, 1, 1]
    assert theirs.rows[0].action_mask[:8] == [0, 0, 1, 1, 1, 0, 1, 1]
    assert not any(theirs.rows[0].action_mask[8:])  # the last observation


def test_failures_of_the_environment_score_zero_in_the_group() -> None:
    """Returns 1, 1 and a crash: (1 - 2/3) / 0.577 and (0 - 2/3) / 0.577 there; here two equal returns, and nothing to learn."""
    crashed = replace(cut_episode(2), stop_reason=StopReason.ENV_ERROR)
    group = [cut_episode(0, 1.0), cut_episode(1, 1.0), crashed]
    credit = ALGORITHMS["grpo"].credit
    ours = Batch.from_trajectories(group)
    assert len(ours) == 2
    assert not credit(ours.samples, GRPOConfig()).advantages.any()
    theirs = Batch.from_trajectories([as_published(t, RENDERER) for t in group])
    advantages = credit(theirs.samples, GRPOConfig(upstream_compat=True)).advantages
    close(advantages[:, 1], [0.5773, 0.5773, -1.1547])


# -- means of means --------------------------------------------------------------------------------------------------------


def weights_of_tokens(mask: Tensor, parts: list[list[int]], published: bool) -> Tensor:
    """Derivative of the loss by each token's value, when the rows are passed in ``parts``."""
    values = torch.zeros_like(mask, requires_grad=True)
    for rows in parts:
        mode: Any = "token_mean"
        denom = denominator(mask, mode)
        if published:
            mode, denom = upstream.micro_batch_denominator(mask[rows], len(parts))
        aggregate(values[rows], mask[rows], mode, denom).backward()
    assert values.grad is not None
    return values.grad


def test_micro_batch_means_weigh_a_token_by_its_company() -> None:
    """Episodes of 10 and 100 tokens, one per micro-batch: 1/20 and 1/200 of the loss per token there, 1/110 here, in any split."""
    mask = torch.zeros(2, 100)
    mask[0, :10] = mask[1] = 1.0
    theirs = weights_of_tokens(mask, [[0], [1]], published=True)
    close(theirs[:, 0], [0.05, 0.005], atol=1e-7)
    ours = [weights_of_tokens(mask, parts, published=False) for parts in ([[0], [1]], [[0, 1]])]
    close(ours[0][:, 0], [1 / 110, 1 / 110], atol=1e-7)
    assert torch.equal(ours[0], ours[1])
    assert not torch.equal(theirs, weights_of_tokens(mask, [[0, 1]], published=True))


# -- the faults at work ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_probes")
def test_reinforce_pp_does_not_move_under_the_switch(tmp_path: Path) -> None:
    """The whole trainer on a one-armed choice: no token carries a signal there, and every step is skipped."""
    theirs = train(tmp_path / "theirs", "probe_action", {"name": "reinforce_pp", "upstream_compat": True}, steps=3)
    assert [m["optim/updates"] for m in theirs] == [0.0, 0.0, 0.0]
    ours = train(tmp_path / "ours", "probe_action", {"name": "reinforce_pp"}, steps=3)
    assert [m["optim/updates"] for m in ours] == [1.0, 1.0, 1.0]
