"""Losses and advantages equal TRL's on identical rows, wherever TRL's definition is the same; TRL's own trainers compute its side.

Where the definitions differ, the pages under ``docs/algorithms`` say how and why.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="compares with TRL: pip install -e '.[peers]'")

import torch
from datasets import Dataset
from peer_rows import Rows, gradients, make_rows, new_model
from torch import Tensor
from transformers import PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer
from trl.trainer.utils import add_fused_lm_head

from agentgym_lite.algorithms import (
    aggregate,
    clipped_policy_loss,
    denominator,
    entropy_from_logits,
    grpo_advantages,
    importance_weights,
    kl_estimate,
    policy_loss,
    rloo_advantages,
)
from agentgym_lite.algorithms.preference import dpo_loss
from agentgym_lite.probes import probe_tokenizer
from agentgym_lite.training.logprobs import TokenStats, token_stats

GROUP = 4
#: Returns of three groups: a mixed one, one success among four, fractions.
REWARDS = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.25, 0.5, 1.0, 0.75]


def _reference() -> Any:
    """A model with other weights, in the form that TRL scores."""
    model = new_model(1)
    add_fused_lm_head(model)
    return model


def _tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = probe_tokenizer()
    tokenizer.pad_token = "<|endoftext|>"
    return tokenizer


def _settings(config: type, folder: Path, **more: Any) -> Any:
    return config(
        output_dir=str(folder), use_cpu=True, bf16=False, report_to=[], per_device_train_batch_size=len(REWARDS), num_generations=GROUP,
        max_completion_length=32, logging_strategy="no", save_strategy="no", **more,
    )  # fmt: skip


def _in_order(completions: list[Any], **_: Any) -> list[float]:
    """The reward function: the i-th completion of the batch is paid the i-th reward."""
    return REWARDS[: len(completions)]


_PROMPTS = [{"prompt": "start"} for _ in REWARDS]


@pytest.fixture(scope="module")
def grpo(tmp_path_factory: pytest.TempPathFactory) -> GRPOTrainer:
    """``beta`` is set after construction, which would load the reference from the hub."""
    args = _settings(GRPOConfig, tmp_path_factory.mktemp("grpo"), beta=0.0, use_bias_correction_kl=False)
    return GRPOTrainer(new_model(), _in_order, args, train_dataset=Dataset.from_list(_PROMPTS), processing_class=_tokenizer())


@pytest.fixture(scope="module")
def rloo(tmp_path_factory: pytest.TempPathFactory) -> RLOOTrainer:
    args = _settings(RLOOConfig, tmp_path_factory.mktemp("rloo"), beta=0.0)
    return RLOOTrainer(new_model(), _in_order, args, train_dataset=Dataset.from_list(_PROMPTS), processing_class=_tokenizer())


# -- advantages ---------------------------------------------------------------------------------------------------------


def _groups() -> Tensor:
    return torch.arange(len(REWARDS)) // GROUP


@pytest.mark.parametrize(("scale_rewards", "normalize_std"), [("group", True), ("none", False)])
def test_grpo_advantages(grpo: GRPOTrainer, monkeypatch: pytest.MonkeyPatch, scale_rewards: str, normalize_std: bool) -> None:
    monkeypatch.setattr(grpo, "scale_rewards", scale_rewards)
    theirs = grpo._generate_and_score_completions(_PROMPTS)["advantages"]
    ours = grpo_advantages(torch.tensor(REWARDS), _groups(), normalize_std=normalize_std).advantages
    # TRL adds 1e-4 to the standard deviation, we add 1e-6: a relative difference of 1e-4 / std.
    torch.testing.assert_close(ours, theirs, rtol=1e-4 / 0.3 if normalize_std else 1e-6, atol=1e-7)


def test_batch_scaled_advantages_are_mean_free_ones_over_one_std(grpo: GRPOTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not an option here: the nearest is ``reinforce_pp_baseline``, which takes the spread over tokens instead of episodes."""
    monkeypatch.setattr(grpo, "scale_rewards", "batch")
    theirs = grpo._generate_and_score_completions(_PROMPTS)["advantages"]
    rewards = torch.tensor(REWARDS)
    ours = grpo_advantages(rewards, _groups(), normalize_std=False).advantages / (rewards.std() + 1e-4)
    torch.testing.assert_close(ours, theirs)


def test_rloo_advantages(rloo: RLOOTrainer) -> None:
    theirs = rloo._generate_and_score_completions(_PROMPTS)["advantages"]
    torch.testing.assert_close(rloo_advantages(torch.tensor(REWARDS), _groups()).advantages, theirs)


def test_rloo_takes_kl_off_the_reward(rloo: RLOOTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum of k1 over the sampled tokens, times beta, leaves the return before the baseline does."""
    monkeypatch.setattr(rloo, "beta", 0.1)
    monkeypatch.setattr(rloo, "ref_model", _reference())
    out = rloo._generate_and_score_completions(_PROMPTS)
    inputs = torch.cat([out["prompt_ids"], out["completion_ids"]], 1)
    attention = torch.cat([out["prompt_mask"], out["completion_mask"]], 1)
    kept = out["completion_ids"].shape[1]
    with torch.no_grad():
        policy, reference = (rloo._get_per_token_logps_and_entropies(m, inputs, attention, kept)[0] for m in (rloo.model, rloo.ref_model))
    penalty = 0.1 * (kl_estimate(policy, reference, "k1") * out["completion_mask"]).sum(-1)
    ours = rloo_advantages(torch.tensor(REWARDS) - penalty, _groups()).advantages
    torch.testing.assert_close(ours, out["advantages"], rtol=1e-4, atol=1e-5)


# -- losses: value and gradient -------------------------------------------------------------------------------------------


def _advantages(rows: Rows) -> Tensor:
    return torch.linspace(-1.5, 2.0, len(rows.prompts))


def _logprobs(trainer: Any, model: Any, rows: Rows) -> Tensor:
    """By TRL, in its layout, without gradient."""
    x = rows.for_trl()
    ids, attention = torch.cat([x["prompt_ids"], x["completion_ids"]], 1), torch.cat([x["prompt_mask"], x["completion_mask"]], 1)
    with torch.no_grad():
        return trainer._get_per_token_logps_and_entropies(model, ids, attention, x["completion_ids"].shape[1])[0]


def _theirs(grpo: GRPOTrainer, monkeypatch: pytest.MonkeyPatch, rows: Rows, old: Tensor, reference: Tensor, **settings: Any) -> Any:
    """Loss and gradient of TRL for these rows; ``settings`` are attributes of the trainer or of its arguments."""
    for name, value in settings.items():
        monkeypatch.setattr(grpo if hasattr(grpo, name) else grpo.args, name, value)
    inputs = {**rows.for_trl(), "advantages": _advantages(rows), "old_per_token_logps": old, "ref_per_token_logps": reference}
    grpo.model.eval()  # no division by accumulation steps; there is one
    grpo.model.zero_grad(set_to_none=True)
    loss = grpo._compute_loss(grpo.model, inputs)
    loss.backward()
    return loss.detach(), gradients(grpo.model)


def _ours(model: Any, rows: Rows, loss_of: Callable[[TokenStats, Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """Loss and gradient of ours; ``loss_of`` gets the token statistics, the advantages ``[B, T]`` and the mask."""
    inputs, targets, mask = rows.for_us()
    stats = token_stats(model, inputs, targets, mask, temperature=1.0)
    loss = loss_of(stats, _advantages(rows)[:, None] * mask, mask)
    loss.backward()
    return loss.detach(), gradients(model)


def _same(ours: tuple[Tensor, Tensor], theirs: tuple[Tensor, Tensor]) -> None:
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ours[1], theirs[1], rtol=1e-4, atol=1e-6)
    assert theirs[1].norm() > 1e-3


@pytest.fixture
def stale(grpo: GRPOTrainer) -> tuple[Rows, Tensor, Tensor]:
    """Rows with old log-probs that make ratios from about 0.5 to 2, and a reference's log-probs."""
    rows = make_rows()
    now = _logprobs(grpo, grpo.model, rows)
    noise = torch.empty_like(now).uniform_(-0.7, 0.7, generator=torch.Generator().manual_seed(3))
    return rows, now + noise, _logprobs(grpo, _reference(), rows)


LOSS_TYPES = {"grpo": "seq_mean_token_mean", "bnpo": "token_mean", "dapo": "token_mean", "dr_grpo": "seq_mean_token_sum_norm"}


@pytest.mark.parametrize("loss_type", sorted(LOSS_TYPES))
@pytest.mark.parametrize(("low", "high", "delta"), [(0.2, 0.2, None), (0.2, 0.28, None), (0.2, 0.2, 1.5)])
def test_clipped_losses(
    grpo: GRPOTrainer,
    monkeypatch: pytest.MonkeyPatch,
    stale: tuple[Rows, Tensor, Tensor],
    loss_type: str,
    low: float,
    high: float,
    delta: float | None,
) -> None:
    """Every aggregation; plain, clip-higher, and two-sided clipping (``delta`` is dual clip's bound); with KL k3 in the loss."""
    rows, old, reference = stale
    settings = {"beta": 0.1, "loss_type": loss_type, "epsilon_low": low, "epsilon_high": high, "delta": delta}
    theirs = _theirs(grpo, monkeypatch, rows, old, reference, **settings)
    mode: Any = LOSS_TYPES[loss_type]

    def loss_of(stats: TokenStats, advantages: Tensor, mask: Tensor) -> Tensor:
        policy = clipped_policy_loss(stats.logprobs, rows.to_us(old), advantages, clip_low=low, clip_high=high, dual_clip=delta).loss
        per_token = policy + 0.1 * kl_estimate(stats.logprobs, rows.to_us(reference), "k3")
        return aggregate(per_token, mask, mode, denominator(mask, mode, 32.0))

    _same(_ours(grpo.model, rows, loss_of), theirs)


def test_two_sided_clipping_was_active(stale: tuple[Rows, Tensor, Tensor], grpo: GRPOTrainer) -> None:
    rows, old, _ = stale
    ratio = rows.to_us(_logprobs(grpo, grpo.model, rows) - old).exp()
    assert ((ratio > 1.5) & (_advantages(rows)[:, None] < 0) & rows.for_us()[2].bool()).any()


def test_gspo(grpo: GRPOTrainer, monkeypatch: pytest.MonkeyPatch, stale: tuple[Rows, Tensor, Tensor]) -> None:
    rows, old, reference = stale
    settings = {"loss_type": "grpo", "importance_sampling_level": "sequence", "beta": 0.0, "epsilon_low": 0.05, "epsilon_high": 0.08}
    theirs = _theirs(grpo, monkeypatch, rows, old, reference, **settings)

    def loss_of(stats: TokenStats, advantages: Tensor, mask: Tensor) -> Tensor:
        got = policy_loss("gspo", stats.logprobs, rows.to_us(old), advantages, mask, clip_low=0.05, clip_high=0.08)
        return aggregate(got.loss, mask, "seq_mean_token_mean", denominator(mask, "seq_mean_token_mean"))

    _same(_ours(grpo.model, rows, loss_of), theirs)


def test_cispo(grpo: GRPOTrainer, monkeypatch: pytest.MonkeyPatch, stale: tuple[Rows, Tensor, Tensor]) -> None:
    """TRL's ``epsilon_high`` bounds the ratio itself and there is no lower bound; our ``clip_high`` bounds its distance from 1."""
    rows, old, reference = stale
    theirs = _theirs(grpo, monkeypatch, rows, old, reference, loss_type="cispo", epsilon_high=1.3, beta=0.0)

    def loss_of(stats: TokenStats, advantages: Tensor, mask: Tensor) -> Tensor:
        got = policy_loss("cispo", stats.logprobs, rows.to_us(old), advantages, mask, clip_low=0.999, clip_high=0.3)
        return aggregate(got.loss, mask, "token_mean", denominator(mask, "token_mean"))

    _same(_ours(grpo.model, rows, loss_of), theirs)


@pytest.mark.parametrize(("mode", "level"), [("token_truncate", "token"), ("sequence_truncate", "sequence")])
def test_truncated_importance_sampling(
    grpo: GRPOTrainer, monkeypatch: pytest.MonkeyPatch, stale: tuple[Rows, Tensor, Tensor], mode: str, level: Any
) -> None:
    """The weights go into TRL's loss as it makes them in its generation step (exp, then clamp from above); the loss multiplies by them."""
    rows, old, reference = stale
    engine = old + torch.empty_like(old).uniform_(-1.0, 1.0, generator=torch.Generator().manual_seed(5))
    sampled = rows.for_trl()["tool_mask"]
    gap = (old - engine) * sampled
    weights = (gap if mode == "token_truncate" else gap.sum(-1, keepdim=True)).exp().clamp(max=1.5)
    monkeypatch.setattr(grpo, "use_vllm", True)
    monkeypatch.setattr(grpo, "vllm_importance_sampling_correction", True, raising=False)
    monkeypatch.setattr(grpo, "_compute_loss", lambda m, x: GRPOTrainer._compute_loss(grpo, m, {**x, "importance_sampling_ratio": weights}))
    monkeypatch.setattr(grpo, "epsilon_low", 0.2)
    theirs = _theirs(grpo, monkeypatch, rows, old, reference, loss_type="bnpo", beta=0.0, epsilon_high=0.2)

    def loss_of(stats: TokenStats, advantages: Tensor, mask: Tensor) -> Tensor:
        got = clipped_policy_loss(stats.logprobs, rows.to_us(old), advantages, clip_low=0.2, clip_high=0.2).loss
        tis = importance_weights(rows.to_us(old), rows.to_us(engine), mask, level=level, cap=1.5)
        return aggregate(got * tis, mask, "token_mean", denominator(mask, "token_mean"))

    _same(_ours(grpo.model, rows, loss_of), theirs)


def test_entropy_bonus(grpo: GRPOTrainer, monkeypatch: pytest.MonkeyPatch, stale: tuple[Rows, Tensor, Tensor]) -> None:
    """A mean over the sampled tokens, as ours is with ``token_mean``."""
    rows, old, reference = stale
    settings = {"loss_type": "bnpo", "beta": 0.0, "entropy_coef": 0.3, "_entropy_bonus_enabled": True, "epsilon_high": 0.2}
    theirs = _theirs(grpo, monkeypatch, rows, old, reference, **settings)

    def loss_of(stats: TokenStats, advantages: Tensor, mask: Tensor) -> Tensor:
        policy = clipped_policy_loss(stats.logprobs, rows.to_us(old), advantages, clip_low=0.2, clip_high=0.2).loss
        return aggregate(policy - 0.3 * stats.entropy, mask, "token_mean", denominator(mask, "token_mean"))

    _same(_ours(grpo.model, rows, loss_of), theirs)


def test_entropy_from_logits() -> None:
    from trl.trainer.utils import entropy_from_logits as theirs

    logits = 5 * torch.randn(3, 7, 22, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(entropy_from_logits(logits), theirs(logits))


def test_rloo_loss_has_the_same_gradient_on_policy(rloo: RLOOTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL clips one ratio per completion; at ratio 1 its gradient is that of our token losses, summed over each sequence.

    Its mask covers all of the completion, so these completions hold no observations.
    """
    rows = make_rows()
    rows = Rows(rows.prompts, rows.completions, [[1] * len(c) for c in rows.completions])
    old = (_logprobs(rloo, rloo.model, rows) * rows.for_trl()["tool_mask"]).sum(-1)
    rloo.model.eval()
    rloo.model.zero_grad(set_to_none=True)
    rloo._compute_loss(rloo.model, {**rows.for_trl(), "advantages": _advantages(rows), "old_logps": old}).backward()
    theirs = gradients(rloo.model)

    def loss_of(stats: TokenStats, advantages: Tensor, mask: Tensor) -> Tensor:
        per_token = clipped_policy_loss(stats.logprobs, stats.logprobs.detach(), advantages, clip_low=0.2, clip_high=0.2).loss
        return aggregate(per_token, mask, "seq_mean_token_sum_norm", denominator(mask, "seq_mean_token_sum_norm", 1.0))

    torch.testing.assert_close(_ours(rloo.model, rows, loss_of)[1], theirs, rtol=1e-4, atol=1e-6)


# -- preferences -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0.1, 0.5])
def test_dpo_sigmoid_loss(tmp_path: Path, beta: float) -> None:
    """Multi-turn pairs: the sum over sampled tokens leaves out the observations between them, on both sides."""
    args = DPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to=[], beta=beta, logging_strategy="no", save_strategy="no")
    data = Dataset.from_list([{"prompt": "start", "chosen": " red", "rejected": " blue"}])
    trainer = DPOTrainer(new_model(), new_model(1), args, train_dataset=data, processing_class=_tokenizer())
    rows = make_rows(8)
    inputs, targets, mask = rows.for_us()
    whole = torch.cat([inputs, targets[:, -1:]], 1)
    layout = {
        "input_ids": whole,
        "attention_mask": torch.tensor(
            [[i < len(p) + len(c) for i in range(whole.shape[1])] for p, c in zip(rows.prompts, rows.completions, strict=True)]
        ).long(),
        "completion_mask": torch.cat([torch.zeros(len(mask), 1), mask], 1).long(),
    }
    model = trainer.model.eval()
    model.zero_grad(set_to_none=True)
    theirs = trainer._compute_loss(model, layout, return_outputs=False)
    theirs.backward()
    their_gradient = gradients(model)

    def sums(m: Any) -> Tensor:
        return token_stats(m, inputs, targets, mask, temperature=1.0).logprobs.sum(-1)

    with torch.no_grad():
        reference = sums(trainer.ref_model)
    policy = sums(model)
    ours = dpo_loss(policy[:4], policy[4:], reference[:4], reference[4:], beta).loss.mean()  # TRL: all chosen, then all rejected
    ours.backward()
    _same((ours.detach(), gradients(model)), (theirs.detach(), their_gradient))
