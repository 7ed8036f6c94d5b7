"""Nothing but sampled tokens trains: whatever stands at the other positions, loss, gradient and metrics stay the same bit for bit."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM

from agentgym_lite.algorithms import aggregate, clipped_policy_loss, denominator, kl_estimate
from agentgym_lite.config import GRPOConfig, OptimConfig
from agentgym_lite.rollout.types import EpisodeSpec, StopReason, TokenRow, Trajectory, Turn
from agentgym_lite.training.batch import Batch
from agentgym_lite.training.logprobs import token_stats
from agentgym_lite.training.update import PolicyUpdater

VOCAB = 32
POISON = [float("nan"), 1e4, -1e4, float("inf")]


@cache
def tiny_model(seed: int) -> Qwen2ForCausalLM:
    torch.manual_seed(seed)
    sizes = {"vocab_size": VOCAB, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    config = Qwen2Config(**sizes, num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=True)
    return Qwen2ForCausalLM(config).eval()


def episode(sample: int, replies: tuple[int, ...]) -> Trajectory:
    """Opening of 3 tokens; then per turn a reply of the given length and an observation of 2 tokens."""
    row, turns = TokenRow(), []
    generator = torch.Generator().manual_seed(sample)
    draw = lambda n: torch.randint(0, VOCAB, (n,), generator=generator).tolist()  # noqa: E731
    row.append_context(draw(3), -1)
    for k, n in enumerate(replies):
        turns.append(Turn("o", "r", "a", start=len(row), end=len(row) + n))
        row.append_action(draw(n), (-3 - torch.rand(n, generator=generator)).tolist(), k)
        row.append_context(draw(2), k + 1)
    return Trajectory(EpisodeSpec("babyai", "babyai_0", sample=sample), [row], turns, StopReason.MAX_ROUNDS)


EPISODES = [episode(0, (2, 3)), episode(1, (1,)), episode(2, (4, 1, 2)), episode(3, (1, 1))]
ADVANTAGES = [1.5, -0.5, -0.5, 0.75]


def sampled_ids(trajectory: Trajectory) -> list[int]:
    return [i for row in trajectory.rows for i, m in zip(row.token_ids, row.action_mask, strict=True) if m]


def poisoned(batch: Batch, value: float) -> Batch:
    """Other targets, advantages and log-probs wherever nothing was sampled, and other tokens in the padding."""
    off = batch.mask == 0
    padding = torch.arange(batch.mask.shape[1]) >= batch.lengths[:, None]
    return replace(
        batch,
        input_ids=torch.where(padding, (batch.input_ids + 11) % VOCAB, batch.input_ids),
        targets=torch.where(off, (batch.targets + 7) % VOCAB, batch.targets),
        advantages=batch.advantages.masked_fill(off, value),
        engine_logprobs=batch.engine_logprobs.masked_fill(off, value),
    )


def train(batch: Batch, **settings: Any) -> tuple[dict[str, float], dict[str, Tensor]]:
    """Metrics of one step from the same weights, and the weights after it."""
    model = copy.deepcopy(tiny_model(0))
    reference = tiny_model(1) if settings.get("kl_coef") else None
    algorithm, optim = GRPOConfig(**settings), OptimConfig(lr=1e-2, micro_batch_tokens=20)
    metrics = PolicyUpdater(model, algorithm, optim, temperature=1.0, seed=0, reference=reference).update(batch, step=1)
    return metrics, model.state_dict()


def test_batch_trains_exactly_the_sampled_ids_in_order() -> None:
    batch = Batch.from_trajectories(EPISODES, ADVANTAGES)
    for row, trajectory in enumerate(EPISODES):
        on = batch.mask[row].bool()
        assert batch.targets[row][on].tolist() == sampled_ids(trajectory)
        assert batch.advantages[row][on].tolist() == [ADVANTAGES[row]] * int(on.sum())
    first = int(batch.mask[0].nonzero()[0])  # the first sampled token is predicted by the last token of the prompt
    assert first == EPISODES[0].turns[0].start - 1
    assert int(batch.input_ids[0, first]) == EPISODES[0].rows[0].token_ids[first]


def test_log_probs_noted_on_context_tokens_never_reach_the_batch() -> None:
    dirty = copy.deepcopy(EPISODES)
    for trajectory in dirty:
        row = trajectory.rows[0]
        row.logprobs = [x if m else math.nan for x, m in zip(row.logprobs, row.action_mask, strict=True)]
    clean, got = (Batch.from_trajectories(e, ADVANTAGES) for e in (EPISODES, dirty))
    assert torch.equal(clean.engine_logprobs, got.engine_logprobs)


@pytest.mark.parametrize("value", POISON)
@pytest.mark.parametrize(
    "settings",
    [
        {"kl_coef": 0.0},
        {"kl_coef": 0.1, "epochs": 2, "minibatches": 2},
        {"kl_coef": 0.1, "kl_estimator": "k1", "aggregation": "seq_mean_token_mean"},
        {"kl_coef": 0.1, "kl_estimator": "k2", "entropy_coef": 0.1},
    ],
)
def test_poison_outside_the_mask_changes_no_weight_and_no_metric(settings: dict[str, Any], value: float) -> None:
    batch = Batch.from_trajectories(EPISODES, ADVANTAGES)
    clean_metrics, clean_weights = train(batch, **settings)
    metrics, weights = train(poisoned(batch, value), **settings)
    assert metrics == clean_metrics
    assert all(math.isfinite(x) for x in metrics.values())
    assert all(torch.equal(weights[name], w) for name, w in clean_weights.items())
    assert any(not torch.equal(w, tiny_model(0).state_dict()[name]) for name, w in clean_weights.items())


@pytest.mark.parametrize("value", POISON)
@pytest.mark.parametrize("mode", ["token_mean", "seq_mean_token_mean"])
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_poisoned_old_and_reference_log_probs_change_no_gradient(estimator: Any, mode: Any, value: float) -> None:
    """These two are filled inside the update, so they are poisoned one level below it."""
    batch = Batch.from_trajectories(EPISODES, ADVANTAGES)
    off = batch.mask == 0

    def loss_and_gradient(fill: float) -> tuple[Tensor, dict[str, Tensor]]:
        model = copy.deepcopy(tiny_model(0))
        stats = token_stats(model, batch.input_ids, batch.targets, batch.mask, temperature=1.0)
        old, ref = ((stats.logprobs.detach() + shift).masked_fill(off, fill) for shift in (0.1, -0.2))
        policy = clipped_policy_loss(stats.logprobs, old, batch.advantages.masked_fill(off, fill), clip_low=0.2, clip_high=0.2).loss
        parts = [policy, kl_estimate(stats.logprobs, ref, estimator), stats.entropy]
        loss = torch.stack([aggregate(x, batch.mask, mode, denominator(batch.mask, mode)) for x in parts]).sum()
        loss.backward()
        return loss.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}

    clean_loss, clean = loss_and_gradient(0.0)
    loss, gradient = loss_and_gradient(value)
    assert torch.equal(loss, clean_loss)
    assert clean.keys() == gradient.keys()
    assert all(torch.equal(gradient[name], g) for name, g in clean.items())


def test_changing_a_sampled_position_does_change_the_update() -> None:
    """The poison tests would pass on a loss that reads nothing; this one would not."""
    batch = Batch.from_trajectories(EPISODES, ADVANTAGES)
    on = batch.mask.nonzero()[0].tolist()
    targets, advantages = batch.targets.clone(), batch.advantages.clone()
    targets[on[0], on[1]] = (targets[on[0], on[1]] + 1) % VOCAB
    advantages[on[0], on[1]] += 1.0
    base, _ = train(batch, kl_coef=0.0)
    assert train(replace(batch, targets=targets), kl_coef=0.0)[0] != base
    assert train(replace(batch, advantages=advantages), kl_coef=0.0)[0] != base
