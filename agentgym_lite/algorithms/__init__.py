"""Reinforcement learning as pure functions on tensors: advantages, policy losses, KL estimators, aggregation.

An algorithm is a pair of functions, an advantage function and a policy loss; the trainer looks it up by name and knows nothing else
about it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agentgym_lite.algorithms.advantages import GroupAdvantages, grpo_advantages
from agentgym_lite.algorithms.aggregation import Aggregation, aggregate, denominator
from agentgym_lite.algorithms.kl import KLEstimator, kl_estimate
from agentgym_lite.algorithms.losses import PolicyLoss, clipped_policy_loss, entropy_from_logits


@dataclass(frozen=True)
class Algorithm:
    """The two parts, with the signatures of :func:`grpo_advantages` and :func:`clipped_policy_loss`."""

    advantages: Callable[..., GroupAdvantages]
    policy_loss: Callable[..., PolicyLoss]


ALGORITHMS: dict[str, Algorithm] = {"grpo": Algorithm(grpo_advantages, clipped_policy_loss)}

__all__ = [
    "ALGORITHMS",
    "Aggregation",
    "Algorithm",
    "GroupAdvantages",
    "KLEstimator",
    "PolicyLoss",
    "aggregate",
    "clipped_policy_loss",
    "denominator",
    "entropy_from_logits",
    "grpo_advantages",
    "kl_estimate",
]
