"""Credit through the trainer: no reward is lost, whatever the algorithm and stop reason; turns are told apart where episodes are not."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import trainer_factory as toy
from trainer_factory import make_config, make_model, make_tokenizer

from agentgym_lite.algorithms import ALGORITHMS, Credit, Samples
from agentgym_lite.config import ALGORITHM_CONFIGS, ConfigError
from agentgym_lite.rollout.types import EpisodeSpec, StopReason, TokenRow, Trajectory, Turn
from agentgym_lite.training import Trainer, TrainingError
from agentgym_lite.training.batch import Batch
from agentgym_lite.training.episodes import is_overlong, turn_rewards


@pytest.fixture(autouse=True)
def _toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_envs.core._REGISTRY", {})
    toy.register()


# -- no reward is lost ----------------------------------------------------------------------------------------------------------------

STOPS = [StopReason.SUCCESS, StopReason.FAILURE, StopReason.MAX_ROUNDS, StopReason.CONTEXT_FULL]


def episode(rewards: Sequence[float], stop: StopReason = StopReason.SUCCESS, sample: int = 0, *, forked: bool = False) -> Trajectory:
    """One turn of two tokens per reward, an observation after each, at the end of the episode too."""
    rows, turns = [TokenRow()], []
    rows[0].append_context([3, 4], -1)
    for k, reward in enumerate(rewards):
        if forked and k and k == len(rewards) - 1:
            rows.append(TokenRow())
            rows[-1].append_context([3, 4, 5, 5], k)
        row = rows[-1]
        start = len(row)
        row.append_action([9 + sample % 3, 10], [-0.5, -0.5], k)
        turns.append(Turn(f"obs {k}", "", "", reward=reward, row=len(rows) - 1, start=start, end=start + 2))
        row.append_context([6, 7], k + 1)
    return Trajectory(EpisodeSpec("echo", "echo_0", 0, sample), rows=rows, turns=turns, stop_reason=stop)


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("forked", [False, True])
def test_credited_reward_is_the_environments(stop: StopReason, forked: bool) -> None:
    played = [episode(r, stop, i, forked=forked) for i, r in enumerate([[0.25, 0.0, 0.5], [0.0], [0.0, 1.0]])]
    samples = Batch.from_trajectories(played).samples
    torch.testing.assert_close(samples.returns, torch.tensor([t.reward for t in played]))
    assert float((samples.rewards * (1 - samples.mask)).abs().sum()) == 0.0
    last = [t.turns[-1] for t in played]
    batch = Batch.from_trajectories(played)
    for e, (t, turn) in enumerate(zip(played, last, strict=True)):
        rows = (batch.episodes == e).nonzero()[:, 0]
        assert len(rows) == len(t.rows)
        assert float(batch.rewards[rows[turn.row], turn.end - 2]) == turn.reward  # position t holds token t + 1


def _credit(name: str, played: Sequence[Trajectory], **settings: Any) -> tuple[Samples, Credit]:
    config = ALGORITHM_CONFIGS[name](**settings)
    samples = Batch.from_trajectories(played).samples
    values = torch.zeros_like(samples.mask) if ALGORITHMS[name].needs_values else None
    samples = replace(samples, values=values)
    return samples, ALGORITHMS[name].credit(samples, config)


OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("grpo", {}),
    ("grpo", {"normalize_std": False}),
    ("rloo", {}),
    ("reinforce_pp", {}),
    ("reinforce_pp", {"gamma": 0.9}),
    ("reinforce_pp_baseline", {}),
    ("ppo", {}),
    ("ppo", {"gamma": 0.9, "lam": 0.8, "whiten": False}),
    ("ppo", {"credit": "turn", "gamma": 0.9, "lam": 0.8}),
    ("gigpo", {}),
    ("gigpo", {"normalize_std": False, "gamma": 0.5}),
]


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize(("name", "settings"), OPTIONS)
def test_every_algorithm_credits_the_last_turn_although_an_observation_follows(
    name: str, settings: dict[str, Any], stop: StopReason
) -> None:
    """The rewarded episode's tokens end up above those of the other; nothing stands off the mask."""
    good, bad = episode([0.0, 1.0], stop, 0), episode([0.0, 0.0], stop, 1)
    samples, credit = _credit(name, [good, bad], **settings)
    on = samples.mask.bool()
    assert credit.advantages[0][on[0]].min() > credit.advantages[1][on[1]].max()
    assert credit.advantages[~on].abs().sum() == 0


@pytest.mark.parametrize(("name", "settings"), OPTIONS)
def test_how_an_episode_is_split_into_rows_changes_no_advantage(name: str, settings: dict[str, Any]) -> None:
    def flat(forked: bool) -> torch.Tensor:
        played = [episode([0.0, 0.3, 1.0], sample=0, forked=forked), episode([0.2, 0.0], sample=1, forked=forked)]
        samples, credit = _credit(name, played, **settings)
        return credit.advantages[samples.mask.bool()]

    torch.testing.assert_close(flat(True), flat(False))


@pytest.mark.parametrize(("name", "settings"), OPTIONS)
def test_batch_order_changes_no_advantage(name: str, settings: dict[str, Any]) -> None:
    """T10."""
    played = [episode([0.0, 1.0], sample=0), episode([0.5], sample=1), episode([0.0, 0.0, 0.2], sample=2)]
    order = [2, 0, 1]
    a, b = (_credit(name, p, **settings) for p in (played, [played[i] for i in order]))
    rows = [x[1].advantages for x in (a, b)]
    torch.testing.assert_close(rows[1], rows[0][order])


def test_the_gamma_of_reinforce_pp_counts_the_policys_tokens() -> None:
    """Before whitening: 0.9 per sampled token, whatever stands in between."""
    samples, credit = _credit("reinforce_pp", [episode([0.0, 1.0])], gamma=0.9)
    got = credit.advantages[samples.mask.bool()]
    returns = torch.tensor([0.9**3, 0.9**2, 0.9, 1.0])
    torch.testing.assert_close(got, (returns - returns.mean()) / returns.std(), atol=1e-5, rtol=1e-5)


def test_a_lost_reward_is_refused() -> None:
    batch = Batch.from_trajectories([episode([1.0])])
    with pytest.raises(ValueError, match="would be lost"):
        replace(batch, rewards=torch.ones_like(batch.rewards)).samples  # noqa: B018
    with pytest.raises(ValueError, match="expected 1 rewards, one per turn, found 2"):
        Batch.from_trajectories([episode([1.0])], turn_rewards=[[1.0, 2.0]])


# -- rewards of one's own -----------------------------------------------------------------------------------------------------------


def shaped(trajectory: Trajectory) -> list[float]:
    """One number per turn."""
    return [0.1 * (k + trajectory.spec.sample) for k in range(len(trajectory.turns))]


def late(step: int) -> int:
    """Two rounds from step 2."""
    return min(step, 2)


def test_a_number_goes_to_the_last_turn_and_a_list_to_each() -> None:
    played = episode([0.5, 0.5])
    assert turn_rewards(played, None) == [0.5, 0.5]
    assert turn_rewards(played, lambda t: 3.0) == [0.0, 3.0]
    assert turn_rewards(played, shaped) == [0.0, 0.1]
    assert turn_rewards(replace(played, stop_reason=StopReason.ENV_ERROR), shaped) == [0.0, 0.0]
    assert turn_rewards(replace(played, turns=[]), lambda t: 3.0) == []
    for bad in ([1.0], [1.0, math.nan], math.inf):
        with pytest.raises(TrainingError, match="must return a finite number, or a list of one for each of the 2 turns"):
            turn_rewards(played, lambda t, bad=bad: bad)


def test_rewards_and_rounds_can_be_named_in_the_yaml(tmp_path: Path) -> None:
    envs = [{"name": "echo", "rounds": {"type": "callable", "function": "test_credit:late"}}]
    runs = []
    for name, options in (("yaml", {}), ("python", {"reward_fn": shaped})):
        config = make_config(tmp_path / name, envs=envs)
        if name == "yaml":
            config = config.model_copy(update={"reward": "test_credit:shaped"})
        runs.append(Trainer(config, model=make_model(), tokenizer=make_tokenizer(), **options).train().history)  # type: ignore[arg-type]
    drop = [{k: v for k, v in m.items() if not k.startswith("time/")} for h in runs for m in h]
    assert drop[:3] == drop[3:]
    assert [m["env/echo/max_rounds"] for m in runs[0]] == [1, 2, 2]
    assert runs[0][1]["reward/mean"] == pytest.approx(sum(0.1 + 0.2 * s for s in range(4)) / 4)


@pytest.mark.parametrize("name", ["nowhere:f", "test_credit:nothing", "test_credit", "test_credit:STOPS"])
def test_a_function_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    config = make_config(tmp_path).model_copy(update={"reward": name})
    with pytest.raises(ConfigError, match=r"setting 'reward': expected .*found"):
        Trainer(config, model=make_model(), tokenizer=make_tokenizer())


# -- overlong episodes --------------------------------------------------------------------------------------------------------------


def test_overlong_means_out_of_tokens() -> None:
    cut = episode([0.0, 0.0])
    cut.turns[-1].truncated = True
    early = episode([0.0, 0.0])
    early.turns[0].truncated = True
    assert [is_overlong(t) for t in (cut, early, episode([1.0]), episode([0.0], StopReason.MAX_ROUNDS))] == [True, False, False, False]
    assert is_overlong(episode([0.0], StopReason.CONTEXT_FULL))


def test_overlong_episodes_count_in_the_baseline_but_not_in_the_loss(tmp_path: Path) -> None:
    """Cut replies are those without an end token; the others' advantages still know their rewards."""
    trained = {}
    for overlong in ("keep", "drop"):
        config = make_config(tmp_path / overlong, algorithm={"overlong": overlong}, run={"steps": 1, "log_trajectories": 99})
        trainer = Trainer(config, model=make_model(), tokenizer=make_tokenizer(), reward_fn=lambda t: float(t.spec.sample))
        batches: list[Batch] = []
        update = trainer._updater.update
        trainer._updater.update = lambda b, step, keep=batches, f=update: (keep.append(b), f(b, step))[1]  # type: ignore[method-assign]
        trained[overlong] = trainer.train().history[0]["tokens/trained"]
        (batch,) = batches
        assert len(batch) == 12
        assert bool(batch.in_loss.all()) == (overlong == "keep")
        credit = ALGORITHMS["grpo"].credit(batch.samples, config.algorithm)
        sizes = credit.advantages[batch.mask.bool()].abs().unique()
        want = torch.tensor([0.5, 1.5]) / math.sqrt(5 / 3)  # rewards 0 1 2 3, all four in every baseline
        assert all(min(abs(float(a) - float(w)) for w in want) < 1e-5 for a in sizes)
    assert 0 < trained["drop"] < trained["keep"]


# -- where only turns can be told apart ---------------------------------------------------------------------------------------------------


def test_two_halves_that_were_right_at_different_turns() -> None:
    """Episode 0 is right in the first turn, episode 1 in the second: equal returns. Only credit by turn finds the good turns."""
    played = [episode([1.0, 0.0], sample=0), episode([0.0, 1.0], sample=1)]
    for name in ("grpo", "rloo", "reinforce_pp_baseline"):
        assert _credit(name, played)[1].advantages.abs().sum() == 0
    for name, settings in (("gigpo", {"gamma": 0.5}), ("ppo", {"credit": "turn", "gamma": 0.5})):
        samples, credit = _credit(name, played, **settings)
        per_turn = credit.advantages[samples.mask.bool()].reshape(2, 2, 2)  # episode, turn, token
        assert torch.equal(per_turn[..., 0], per_turn[..., 1])
        first, second = per_turn[:, 0, 0], per_turn[:, 1, 0]
        assert first[0] > first[1]
        assert second[1] > second[0]


def sooner(t: Trajectory) -> list[float]:
    """Pays 1 in the first turn if it was right, else 1 in the second: every episode returns 1."""
    right = float(t.turns[0].reward > 0)
    return [right, 1.0 - right]


def _right_at_first(name: str, tmp_path: Path, **algorithm: Any) -> tuple[float, float, str]:
    """Share of first turns that were right in the first and the last five steps, and a digest of the weights."""
    config = make_config(
        tmp_path / name,
        envs=[{"name": "echo", "tasks": ["red"], "rounds": {"type": "fixed", "rounds": 2}}],
        algorithm={"name": name, "group_size": 8, "kl_coef": 0.0, "entropy_coef": 0.01, **algorithm},
        run={"steps": 24, "groups_per_step": 3, "log_trajectories": 0},
    )
    share: list[float] = []

    def reward(t: Trajectory) -> list[float]:
        share.append(sooner(t)[0])
        return sooner(t)

    model = make_model()
    Trainer(config, model=model, tokenizer=make_tokenizer(), reward_fn=reward).train()
    digest = hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.state_dict().values())).hexdigest()
    n = 5 * 24
    return sum(share[:n]) / n, sum(share[-n:]) / n, digest


@pytest.mark.parametrize("name", ["grpo", "rloo", "reinforce_pp_baseline"])
def test_credit_by_episode_cannot_learn_it(tmp_path: Path, name: str) -> None:
    digest = _right_at_first(name, tmp_path)[2]
    assert digest == hashlib.sha256(b"".join(v.numpy().tobytes() for v in make_model().state_dict().values())).hexdigest()


BY_TURN = [
    ("gigpo", {"gamma": 0.5}),
    ("ppo", {"credit": "turn", "gamma": 0.5, "critic_lr": 1e-2, "epochs": 2}),
]


@pytest.mark.parametrize(("name", "algorithm"), BY_TURN)
def test_credit_by_turn_learns_it(tmp_path: Path, name: str, algorithm: dict[str, Any]) -> None:
    before, after, _ = _right_at_first(name, tmp_path, **algorithm)
    assert before < 0.4
    assert after > before + 0.3
