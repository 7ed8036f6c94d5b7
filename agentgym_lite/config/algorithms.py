"""Settings of the policy-gradient algorithms."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentgym_lite.config.base import Strict


class AlgorithmConfig(Strict):
    """GRPO (Shao et al., arXiv 2402.03300) as in the published scripts."""

    name: Literal["grpo"] = "grpo"
    #: Episodes per group (G).
    group_size: int = Field(8, ge=2)
    clip_low: float = Field(0.2, gt=0, lt=1)
    clip_high: float = Field(0.2, gt=0)
    #: Divide by the group's standard deviation.
    normalize_std: bool = True
    kl_coef: float = Field(0.001, ge=0)
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    entropy_coef: float = 0.001
    #: Passes over each batch of episodes.
    epochs: int = Field(1, ge=1)
    #: Optimizer updates per pass.
    minibatches: int = Field(1, ge=1)
    aggregation: Literal["token_mean", "seq_mean_token_mean"] = "token_mean"
    #: Groups whose members all got the same reward: leave them out, keep them (KL and entropy still act), or draw others in their place.
    zero_variance: Literal["drop", "keep", "resample"] = "drop"
