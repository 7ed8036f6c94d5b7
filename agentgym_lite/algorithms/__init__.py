"""Reinforcement learning as pure functions on tensors: advantages, returns, losses, KL estimators, aggregation.

An algorithm is an advantage function (:data:`ALGORITHMS`), one of the policy losses and a small frozen config; the trainer looks it up by
name and knows nothing else about it.
"""

from agentgym_lite.algorithms.advantages import GroupAdvantages, gigpo_advantages, grpo_advantages, rloo_advantages
from agentgym_lite.algorithms.aggregation import Aggregation, aggregate, denominator
from agentgym_lite.algorithms.kl import KLEstimator, adapted_kl_coef, kl_estimate
from agentgym_lite.algorithms.losses import (
    LossName,
    PolicyLoss,
    cispo_policy_loss,
    clipped_policy_loss,
    entropy_from_logits,
    gspo_policy_loss,
    importance_weights,
    policy_loss,
    value_loss,
)
from agentgym_lite.algorithms.registry import ALGORITHMS, Algorithm
from agentgym_lite.algorithms.returns import (
    GAE,
    TurnGAE,
    discounted_returns,
    explained_variance,
    fold_rewards,
    gae,
    masked_whiten,
    turn_gae,
)
from agentgym_lite.algorithms.samples import Credit, Packing, Samples

__all__ = [
    "ALGORITHMS",
    "GAE",
    "Aggregation",
    "Algorithm",
    "Credit",
    "GroupAdvantages",
    "KLEstimator",
    "LossName",
    "Packing",
    "PolicyLoss",
    "Samples",
    "TurnGAE",
    "adapted_kl_coef",
    "aggregate",
    "cispo_policy_loss",
    "clipped_policy_loss",
    "denominator",
    "discounted_returns",
    "entropy_from_logits",
    "explained_variance",
    "fold_rewards",
    "gae",
    "gigpo_advantages",
    "grpo_advantages",
    "gspo_policy_loss",
    "importance_weights",
    "kl_estimate",
    "masked_whiten",
    "policy_loss",
    "rloo_advantages",
    "turn_gae",
    "value_loss",
]
