"""Learning from pairs: the loss of direct preference optimisation."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor
from torch.nn import functional as F


class PreferenceLoss(NamedTuple):
    """Per pair ``[P]``: the ``loss`` and the implicit rewards of both sides (without gradient)."""

    loss: Tensor
    chosen_reward: Tensor
    rejected_reward: Tensor


def dpo_loss(chosen: Tensor, rejected: Tensor, ref_chosen: Tensor, ref_rejected: Tensor, beta: float) -> PreferenceLoss:
    r"""Sigmoid loss on the difference of implicit rewards (Rafailov et al., arXiv 2305.18290, eq. 7); all arguments ``[P]``.

    .. math:: L = -\log\sigma(r^+ - r^-), \qquad r = \beta\,(\log\pi(y \mid x) - \log\pi_{ref}(y \mid x))

    A log-probability is the sum over all trained tokens of a whole episode, after the opening x that both share (multi-turn DPO:
    observations are part of neither sum).
    """
    chosen_reward, rejected_reward = beta * (chosen - ref_chosen), beta * (rejected - ref_rejected)
    return PreferenceLoss(-F.logsigmoid(chosen_reward - rejected_reward), chosen_reward.detach(), rejected_reward.detach())
