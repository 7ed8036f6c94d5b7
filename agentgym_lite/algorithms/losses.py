"""Per-token losses, importance weights and the entropy of the policy. Nothing here averages over tokens: see ``aggregation``."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

#: The log of a probability ratio is clamped to this before ``exp``: e^20 = 5e8 is far outside any clip range, and finite.
MAX_LOG_RATIO = 20.0

LossName = Literal["clip", "gspo", "cispo"]


class PolicyLoss(NamedTuple):
    """``loss`` per token and ``clipped`` (0 or 1 per token): its mean over sampled tokens is the clip fraction."""

    loss: Tensor
    clipped: Tensor


def _ratio(log_ratio: Tensor) -> Tensor:
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def _surrogate(ratio: Tensor, advantages: Tensor, clip_low: float, clip_high: float, dual_clip: float | None) -> PolicyLoss:
    free = -advantages * ratio
    bounded = -advantages * ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    loss, clipped = torch.maximum(free, bounded), bounded > free
    if dual_clip is not None:
        most = -advantages * dual_clip
        too_much = (advantages < 0) & (loss > most)
        loss, clipped = torch.where(too_much, most, loss), clipped | too_much
    return PolicyLoss(loss, clipped.float())


def clipped_policy_loss(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, *, clip_low: float, clip_high: float, dual_clip: float | None = None
) -> PolicyLoss:
    r"""PPO's clipped surrogate with separate bounds (Schulman et al., arXiv 1707.06347; clip-higher: Yu et al., arXiv 2503.14476).

    .. math:: L_t = \max(-A_t \rho_t,\; -A_t\,\mathrm{clip}(\rho_t, 1-\epsilon_{low}, 1+\epsilon_{high})), \quad
              \rho_t = e^{\log\pi_t - \log\pi^{old}_t}

    With ``dual_clip`` = c (Ye et al., arXiv 1912.09729), :math:`L_t` is at most :math:`-c A_t` where :math:`A_t < 0`. All tensors have one
    shape (any); gradients flow through ``logprobs`` only.
    """
    return _surrogate(_ratio(logprobs - old_logprobs.detach()), advantages, clip_low, clip_high, dual_clip)


def gspo_policy_loss(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, *, clip_low: float, clip_high: float
) -> PolicyLoss:
    r"""The clipped surrogate with one ratio per sequence (GSPO, Zheng et al., arXiv 2507.18071).

    :math:`s_i = \exp(\frac{1}{|y_i|} \sum_t \log\rho_{it})` over the sampled tokens, in its token form
    :math:`s_{it} = \mathrm{sg}[s_i]\, \pi_t / \mathrm{sg}[\pi_t]`, so that advantages may differ within a row. Useful bounds are small:
    3e-4 and 4e-4 in the paper. All tensors are ``[B, T]``.
    """
    log_ratio = torch.where(mask.bool(), logprobs - old_logprobs.detach(), 0.0)
    mean = log_ratio.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
    return _surrogate(_ratio(mean.detach() + logprobs - logprobs.detach()), advantages, clip_low, clip_high, None)


def cispo_policy_loss(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, *, clip_low: float, clip_high: float) -> PolicyLoss:
    r"""REINFORCE with clipped, detached importance weights (CISPO of MiniMax-M1, arXiv 2506.13585).

    .. math:: L_t = -\mathrm{sg}[\mathrm{clip}(\rho_t, 1-\epsilon_{low}, 1+\epsilon_{high})] A_t \log\pi_t

    No token loses its gradient by clipping. All tensors have one shape (any).
    """
    ratio = _ratio(logprobs.detach() - old_logprobs.detach())
    weight = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    return PolicyLoss(-weight * advantages * logprobs, (weight != ratio).float())


def policy_loss(
    kind: LossName,
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> PolicyLoss:
    """The policy loss of that name; all tensors ``[B, T]``. Raises ``ValueError`` for an unknown one."""
    if kind == "clip":
        return clipped_policy_loss(logprobs, old_logprobs, advantages, clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip)
    if kind == "gspo":
        return gspo_policy_loss(logprobs, old_logprobs, advantages, mask, clip_low=clip_low, clip_high=clip_high)
    if kind == "cispo":
        return cispo_policy_loss(logprobs, old_logprobs, advantages, clip_low=clip_low, clip_high=clip_high)
    raise ValueError(f"expected a policy loss clip, gspo or cispo, found {kind!r}")


def importance_weights(
    trainer_logprobs: Tensor, engine_logprobs: Tensor, mask: Tensor, *, level: Literal["token", "sequence"], cap: float
) -> Tensor:
    r"""Truncated importance weights for an engine that samples from something else than the trainer's policy, ``[B, T]``, no gradient.

    Per token :math:`\min(\pi_t / \mu_t, C)`; per sequence :math:`\min(\prod_t \pi_t / \mu_t, C)` on all its tokens (Yao et al., "Your
    Efficient RL Framework Secretly Brings You Off-Policy RL Training", 2025). 0 off the mask.
    """
    m = mask.bool()
    log_ratio = torch.where(m, trainer_logprobs - engine_logprobs, 0.0).detach()
    if level == "sequence":
        log_ratio = log_ratio.sum(-1, keepdim=True).expand_as(log_ratio)
    return torch.where(m, _ratio(log_ratio).clamp(max=cap), 0.0)


def value_loss(values: Tensor, old_values: Tensor, returns: Tensor, *, clip: float | None) -> PolicyLoss:
    r"""Half the squared error of the critic, clipped as in PPO's first code.

    .. math:: L_t = \tfrac12 \max((V_t - R_t)^2, (\mathrm{clip}(V_t, V^{old}_t - \epsilon, V^{old}_t + \epsilon) - R_t)^2)

    ``clip=None`` leaves the second out. All tensors have one shape (any); gradients flow through ``values`` only.
    """
    error = (values - returns).square()
    if clip is None:
        return PolicyLoss(0.5 * error, torch.zeros_like(error))
    near = values.clamp(old_values - clip, old_values + clip)
    bounded = (near - returns).square()
    return PolicyLoss(0.5 * torch.maximum(error, bounded), (bounded > error).float())


def entropy_from_logits(logits: Tensor) -> Tensor:
    r"""Entropy in nats, :math:`H = -\sum_v p_v \log p_v`, of ``softmax(logits)``: ``[..., V]`` to ``[...]``."""
    logp = logits.log_softmax(-1)
    return -(logp.exp() * logp).sum(-1)
