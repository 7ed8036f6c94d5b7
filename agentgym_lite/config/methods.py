"""Settings of the methods that learn from trajectories: supervised fine-tuning, multi-turn DPO and AgentEvol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from agentgym_lite.config.base import Strict
from agentgym_lite.config.run import CommonRunConfig, EnvConfig, MethodConfig, OptimConfig, RolloutConfig

# -- where trajectories come from ----------------------------------------------------------------------------------------------------


class _Played(Strict):
    envs: list[EnvConfig] = Field(min_length=1)

    @field_validator("envs")
    @classmethod
    def _rounds_are_fixed(cls, envs: list[EnvConfig]) -> list[EnvConfig]:
        for e in envs:
            if e.rounds.type != "fixed":
                raise ValueError(f"data are played once, so the rounds of '{e.name}' must be of type 'fixed'")
        return envs


class ExpertSource(_Played):
    """Episodes that the environments' experts play when the run begins."""

    kind: Literal["expert"]
    #: Episodes, split over the environments by weight. More than there are items plays items again with other seeds.
    n: int = Field(ge=1)


class PolicySource(_Played):
    """Episodes that the policy itself plays when the run begins, from the starts of the expert's episodes."""

    kind: Literal["policy"]
    #: Episodes from each start.
    samples: int = Field(1, ge=1)


class TrajectoriesSource(Strict):
    """A ``trajectories.jsonl`` of this kit."""

    kind: Literal["trajectories"]
    path: Path


class AgentTrajSource(Strict):
    """A file in the published AgentTraj-L / AgentEval format: a JSON list of ``{item_id, conversations}``."""

    kind: Literal["agent_traj"]
    path: Path


FileSource = TrajectoriesSource | AgentTrajSource
Source = Annotated[ExpertSource | FileSource, Field(discriminator="kind")]
OwnSource = Annotated[PolicySource | FileSource, Field(discriminator="kind")]


class FilterConfig(Strict):
    """Which episodes to learn from."""

    #: Only episodes that reached the goal.
    success_only: bool = True
    #: Lowest return.
    min_reward: float = Field(0.0, ge=0, le=1)
    #: ``exact`` drops copies with the same tokens; ``item`` keeps only the best episode of each item (the shorter of equals) besides.
    dedupe: Literal["none", "exact", "item"] = "exact"


class DataConfig(FilterConfig):
    """A set of trajectories."""

    sources: list[Source] = Field(min_length=1)
    #: Longest row; longer episodes are left out and counted, never cut.
    max_length: int = Field(4096, ge=2)


class HeldOut(Strict):
    """Data of which some items are held out."""

    #: Share of each environment's items that only the metrics ``eval/*`` see.
    eval_share: float = Field(0.05, ge=0, lt=1)


class HeldOutDataConfig(DataConfig, HeldOut):
    """A set of trajectories, some held out."""


class PairDataConfig(HeldOut):
    """Two sets of trajectories with items in common."""

    expert: list[Source] = Field(min_length=1)
    own: list[OwnSource] = Field(min_length=1)
    #: Longest row; longer episodes are left out.
    max_length: int = Field(4096, ge=2)


# -- sections ------------------------------------------------------------------------------------------------------------------------


class ScheduledOptimConfig(OptimConfig):
    """AdamW with a learning rate that may fall. Defaults as in the published scripts for behavioural cloning."""

    lr: float = Field(1e-5, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    #: After the warm-up: stay, or fall in a line or a half cosine. Neither the first nor the last step's rate is 0.
    schedule: Literal["constant", "linear", "cosine"] = "constant"


class EpochsRunConfig(CommonRunConfig):
    """A run over a set of examples."""

    #: Passes over the set.
    epochs: int = Field(1, ge=1)
    #: Trajectories, or pairs of them, per optimizer update.
    batch_size: int = Field(16, ge=1)


class HeldOutRunConfig(EpochsRunConfig):
    """A run that looks at held-out examples now and then."""

    #: Updates between two looks; the last update is always followed by one.
    eval_every: int = Field(50, ge=1)


class DPOSection(Strict):
    """Direct preference optimisation (Rafailov et al., arXiv 2305.18290). Defaults as published with AgentGym."""

    beta: float = Field(0.5, gt=0)
    #: Least difference between the returns of a pair.
    min_gap: float = Field(0.01, gt=0, le=1)
    #: Least return of the better one.
    min_chosen: float = Field(0.7, ge=0, le=1)


class ExploreConfig(FilterConfig):
    """How AgentEvol explores. In ``envs``, the rounds of type ``scaling_inter`` count iterations as steps."""

    envs: list[EnvConfig] = Field(min_length=1)
    #: Distinct items per iteration, split over the environments by weight.
    items: int = Field(64, ge=1)
    #: Episodes per item.
    samples: int = Field(1, ge=1)
    dedupe: Literal["none", "exact", "item"] = "item"


class EvolSection(Strict):
    """AgentEvol (Xi et al., arXiv 2406.04151): train, explore, keep the successes, train again on all there is."""

    iterations: int = Field(4, ge=1)
    #: Where each iteration's training begins: at the base model, as published, or where the last one ended.
    train_from: Literal["base", "current"] = "base"
    #: Held-out items of each environment to play greedily after each iteration's training. 0: none.
    eval_items: int = Field(32, ge=0)


# -- methods -------------------------------------------------------------------------------------------------------------------------


class EpochConfig(MethodConfig):
    """What methods share that pass over a fixed set of examples."""

    data: HeldOut
    optim: ScheduledOptimConfig = ScheduledOptimConfig()
    run: HeldOutRunConfig = HeldOutRunConfig()


class SFTConfig(EpochConfig):
    """Supervised fine-tuning, also called behavioural cloning."""

    method: Literal["sft"] = "sft"
    data: HeldOutDataConfig

    @property
    def environments(self) -> Mapping[str, EnvConfig]:
        return _by_name(_played_by(self.data.sources))

    @model_validator(mode="after")
    def _one_address_each(self) -> SFTConfig:
        _check_addresses(_played_by(self.data.sources))
        return self


class DPOConfig(EpochConfig):
    """Multi-turn direct preference optimisation."""

    method: Literal["dpo"] = "dpo"
    data: PairDataConfig
    dpo: DPOSection = DPOSection()
    #: How a source of kind ``policy`` samples.
    rollout: RolloutConfig = RolloutConfig()
    optim: ScheduledOptimConfig = ScheduledOptimConfig(lr=5e-7)
    run: HeldOutRunConfig = HeldOutRunConfig(epochs=3)

    @property
    def environments(self) -> Mapping[str, EnvConfig]:
        return _by_name(_played_by([*self.data.expert, *self.data.own]))

    @model_validator(mode="after")
    def _one_address_each(self) -> DPOConfig:
        _check_addresses(_played_by([*self.data.expert, *self.data.own]))
        return self

    @model_validator(mode="after")
    def _rollout_is_used(self) -> DPOConfig:
        if "rollout" in self.model_fields_set and not any(s.kind == "policy" for s in self.data.own):
            raise ValueError("'rollout' says how a source of kind 'policy' samples, but 'data.own' has none; leave it out or add one")
        return self


class AgentEvolConfig(MethodConfig):
    """AgentEvol."""

    method: Literal["agentevol"] = "agentevol"
    data: DataConfig
    explore: ExploreConfig
    evol: EvolSection = EvolSection()
    rollout: RolloutConfig = RolloutConfig()
    optim: ScheduledOptimConfig = ScheduledOptimConfig()
    #: ``epochs`` and the learning rate's schedule are those of one iteration.
    run: EpochsRunConfig = EpochsRunConfig()

    @property
    def environments(self) -> Mapping[str, EnvConfig]:
        return _by_name([*self.explore.envs, *_played_by(self.data.sources)])

    @model_validator(mode="after")
    def _one_address_each(self) -> AgentEvolConfig:
        _check_addresses([*self.explore.envs, *_played_by(self.data.sources)])
        return self


def _played_by(sources: Iterable[Strict]) -> list[EnvConfig]:
    return [e for s in sources if isinstance(s, _Played) for e in s.envs]


def _by_name(envs: Iterable[EnvConfig]) -> dict[str, EnvConfig]:
    return {e.name: e for e in envs}


def _check_addresses(envs: Iterable[EnvConfig]) -> None:
    urls: dict[str, str | list[str]] = {}
    for e in envs:
        if urls.setdefault(e.name, e.url) != e.url:
            raise ValueError(f"environment '{e.name}' is given two addresses in 'url', {urls[e.name]!r} and {e.url!r}; give it one")
