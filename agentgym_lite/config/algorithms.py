"""Settings of the policy-gradient algorithms: one small class each, chosen by ``algorithm.name``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from agentgym_lite.config.base import Strict


class PolicyGradientConfig(Strict):
    """What all of them share: the policy loss, its regularisers and how a batch is passed over. Defaults as in the published scripts."""

    name: str
    #: Episodes per item and step.
    group_size: int = Field(8, ge=1)
    #: ``clip``: PPO's surrogate per token; ``gspo``: one ratio per sequence (arXiv 2507.18071); ``cispo``: clipped, detached weights on
    #: log-probs (arXiv 2506.13585).
    loss: Literal["clip", "gspo", "cispo"] = "clip"
    clip_low: float = Field(0.2, gt=0, lt=1)
    #: Above ``clip_low``: clip-higher (arXiv 2503.14476).
    clip_high: float = Field(0.2, gt=0)
    #: Bound on the loss of tokens with a negative advantage, in units of it (arXiv 1912.09729). Null: none.
    dual_clip: float | None = Field(None, gt=1)
    #: Weigh the loss by ``min(pi_trainer / pi_engine, tis_cap)`` per token or per sequence. Null: the engine is trusted.
    tis: Literal["token", "sequence"] | None = None
    tis_cap: float = Field(2.0, gt=0)
    kl_coef: float = Field(0.001, ge=0)
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    #: A term of the loss, or taken off the reward of each token.
    kl_in: Literal["loss", "reward"] = "loss"
    #: Change ``kl_coef`` from step to step so that the KL goes to this value (arXiv 1909.08593). Null: ``kl_coef`` stays.
    kl_target: float | None = Field(None, gt=0)
    #: Episodes over which the controller reacts.
    kl_horizon: int = Field(10000, ge=1)
    entropy_coef: float = 0.001
    #: Passes over each batch of episodes.
    epochs: int = Field(1, ge=1)
    #: Optimizer updates per pass.
    minibatches: int = Field(1, ge=1)
    aggregation: Literal["token_mean", "seq_mean_token_mean", "seq_mean_token_sum_norm"] = "token_mean"
    #: Tokens that ``seq_mean_token_sum_norm`` divides each sequence's sum by, whatever its length.
    aggregation_norm: float | None = Field(None, gt=0)
    #: ``drop``: episodes that ended because the context was full or the last reply was cut stay in the baselines, but not in the loss.
    overlong: Literal["keep", "drop"] = "keep"
    #: The published formulas with their faults, for lessons (``algorithms/upstream.py``).
    upstream_compat: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> PolicyGradientConfig:
        self._needs("dual_clip", self.loss == "clip", "loss: clip")
        self._needs("tis_cap", self.tis is not None, "tis: token or tis: sequence")
        for name in ("kl_estimator", "kl_in", "kl_target"):
            self._needs(name, self.kl_coef > 0, "kl_coef above 0")
        self._needs("aggregation", not self.upstream_compat, "upstream_compat off, which averages inside each micro-batch")
        self._needs("kl_horizon", self.kl_target is not None, "a kl_target")
        by_constant = self.aggregation == "seq_mean_token_sum_norm"
        self._needs("aggregation_norm", by_constant, "aggregation: seq_mean_token_sum_norm")
        if by_constant and self.aggregation_norm is None:
            raise ValueError("aggregation 'seq_mean_token_sum_norm' needs 'aggregation_norm', the number of tokens to divide by")
        return self

    def _needs(self, name: str, active: bool, what: str) -> None:
        """Refuse a setting that differs from its default and would do nothing."""
        if not active and getattr(self, name) != type(self).model_fields[name].default:
            raise ValueError(f"'{name}' is set to {getattr(self, name)!r}, but has an effect only with {what}")


class GroupConfig(PolicyGradientConfig):
    """Algorithms whose baseline is the group."""

    #: Episodes per group (G).
    group_size: int = Field(8, ge=2)
    #: Groups whose members all got the same reward: leave them out, keep them (KL and entropy still act), or draw others in their place.
    zero_variance: Literal["drop", "keep", "resample"] = "drop"


class GRPOConfig(GroupConfig):
    """GRPO (Shao et al., arXiv 2402.03300). Dr. GRPO: ``normalize_std: false`` and ``aggregation: seq_mean_token_sum_norm``."""

    name: Literal["grpo"] = "grpo"
    #: Divide by the group's standard deviation.
    normalize_std: bool = True


class RLOOConfig(GroupConfig):
    """REINFORCE with a leave-one-out baseline (Ahmadian et al., arXiv 2402.14740); KL in the reward."""

    name: Literal["rloo"] = "rloo"
    kl_estimator: Literal["k1", "k2", "k3"] = "k1"
    kl_in: Literal["loss", "reward"] = "reward"


class ReinforcePPConfig(PolicyGradientConfig):
    """REINFORCE++ (Hu, arXiv 2501.03262): discounted returns of each token, whitened over the batch; KL in the reward."""

    name: Literal["reinforce_pp"] = "reinforce_pp"
    #: Discount per token of the policy.
    gamma: float = Field(1.0, gt=0, le=1)
    kl_estimator: Literal["k1", "k2", "k3"] = "k1"
    kl_in: Literal["loss", "reward"] = "reward"


class ReinforcePPBaselineConfig(GroupConfig):
    """REINFORCE++ with the group's mean as baseline, whitened over the batch; KL k2 in the loss, as its paper has it."""

    name: Literal["reinforce_pp_baseline"] = "reinforce_pp_baseline"
    kl_estimator: Literal["k1", "k2", "k3"] = "k2"


class PPOConfig(PolicyGradientConfig):
    """PPO (Schulman et al., arXiv 1707.06347) with generalised advantage estimation (arXiv 1506.02438)."""

    name: Literal["ppo"] = "ppo"
    #: Where values come from: a head on the policy's last hidden state, the same without gradient into the policy, or a network of its own.
    critic: Literal["head", "detached_head", "separate"] = "separate"
    #: Step of the recursion: a token of the policy, or a whole turn with its value read where the turn begins.
    credit: Literal["token", "turn"] = "token"
    #: Discount per ``credit`` step.
    gamma: float = Field(1.0, gt=0, le=1)
    lam: float = Field(1.0, ge=0, le=1)
    #: Advantages to mean 0 and standard deviation 1 over the batch.
    whiten: bool = True
    #: Values may move this far from those before the step. Null: anywhere.
    value_clip: float | None = Field(0.5, gt=0)
    value_coef: float = Field(1.0, gt=0)
    critic_lr: float = Field(1e-5, gt=0)
    kl_estimator: Literal["k1", "k2", "k3"] = "k1"
    kl_in: Literal["loss", "reward"] = "reward"

    @model_validator(mode="after")
    def _published_by_token(self) -> PPOConfig:
        self._needs("credit", not self.upstream_compat, "upstream_compat off, which knows credit by token alone")
        return self


class GiGPOConfig(GroupConfig):
    """GiGPO (Feng et al., arXiv 2505.10978): the group's advantage plus one among turns that began from the same observation."""

    name: Literal["gigpo"] = "gigpo"
    #: Divide by the standard deviations of groups and step groups.
    normalize_std: bool = True
    #: Weight of the advantage among turns.
    step_weight: float = Field(1.0, gt=0)
    #: Discount per turn.
    gamma: float = Field(0.95, gt=0, le=1)


ALGORITHM_CONFIGS: dict[str, type[PolicyGradientConfig]] = {
    "grpo": GRPOConfig,
    "rloo": RLOOConfig,
    "reinforce_pp": ReinforcePPConfig,
    "reinforce_pp_baseline": ReinforcePPBaselineConfig,
    "ppo": PPOConfig,
    "gigpo": GiGPOConfig,
}


def _name_of(value: Any) -> Any:
    return value.get("name", "grpo") if isinstance(value, dict) else getattr(value, "name", None)


#: Any of them; a mapping without ``name`` is GRPO.
AlgorithmConfig = Annotated[
    Annotated[GRPOConfig, Tag("grpo")]
    | Annotated[RLOOConfig, Tag("rloo")]
    | Annotated[ReinforcePPConfig, Tag("reinforce_pp")]
    | Annotated[ReinforcePPBaselineConfig, Tag("reinforce_pp_baseline")]
    | Annotated[PPOConfig, Tag("ppo")]
    | Annotated[GiGPOConfig, Tag("gigpo")],
    Discriminator(
        _name_of,
        custom_error_type="algorithm_name",
        custom_error_message=f"expected a mapping with 'name' one of {', '.join(ALGORITHM_CONFIGS)}",
    ),
]
