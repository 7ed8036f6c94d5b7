"""Per-token policy losses and the entropy of the policy. Nothing here averages: see ``aggregation``."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

#: The log of a probability ratio is clamped to this before ``exp``: e^20 = 5e8 is far outside any clip range, and finite.
MAX_LOG_RATIO = 20.0


class PolicyLoss(NamedTuple):
    """``loss`` per token and ``clipped`` (0 or 1 per token): its mean over sampled tokens is the clip fraction."""

    loss: Tensor
    clipped: Tensor


def clipped_policy_loss(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, *, clip_low: float, clip_high: float) -> PolicyLoss:
    r"""PPO's clipped surrogate with separate bounds (Schulman et al., arXiv 1707.06347; clip-higher: Yu et al., arXiv 2503.14476).

    .. math:: L_t = \max(-A_t \rho_t,\; -A_t\,\mathrm{clip}(\rho_t, 1-\epsilon_{low}, 1+\epsilon_{high})), \quad
              \rho_t = e^{\log\pi_t - \log\pi^{old}_t}

    All tensors have one shape (any); gradients flow through ``logprobs`` only.
    """
    ratio = (logprobs - old_logprobs.detach()).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    free = -advantages * ratio
    bounded = -advantages * ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    return PolicyLoss(torch.maximum(free, bounded), (bounded > free).float())


def entropy_from_logits(logits: Tensor) -> Tensor:
    r"""Entropy in nats, :math:`H = -\sum_v p_v \log p_v`, of ``softmax(logits)``: ``[..., V]`` to ``[...]``."""
    logp = logits.log_softmax(-1)
    return -(logp.exp() * logp).sum(-1)
