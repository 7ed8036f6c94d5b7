"""Settings of a reinforcement-learning run, section by section."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from agentgym_lite.config.algorithms import AlgorithmConfig, GRPOConfig
from agentgym_lite.config.base import Strict


class LoraConfig(Strict):
    r"""Low-rank adapters (Hu et al., arXiv 2106.09685): :math:`W + \frac{\alpha}{r} B A` with only A and B trained; B starts at 0."""

    #: Rank.
    r: int = Field(16, ge=1)
    alpha: int = Field(32, ge=1)
    #: Linear layers of the decoder's blocks by the end of their name, e.g. ``[q_proj, v_proj]``; ``all-linear`` takes every one.
    targets: Literal["all-linear"] | tuple[str, ...] = "all-linear"


class ModelConfig(Strict):
    """The policy."""

    #: ``"tiny"`` (shipped with the kit), a local directory, or a name on the model hub.
    path: str = "tiny"
    #: Weights and arithmetic. ``mixed`` keeps float32 weights and computes the layers of an update in bfloat16.
    dtype: Literal["float32", "bfloat16", "mixed"] = "float32"
    #: Where the model is loaded to; ``auto``: a CUDA device if there is one.
    device: Literal["auto", "cpu", "cuda"] = "auto"
    #: Compute a layer's activations again in the backward pass instead of keeping them: about a third more work, far less memory.
    gradient_checkpointing: bool = False
    #: Train adapters instead of all weights. Null: all weights.
    lora: LoraConfig | None = None

    def chosen_device(self) -> str:
        """``cpu`` or ``cuda``."""
        from torch import cuda  # slow to import

        return ("cuda" if cuda.is_available() else "cpu") if self.device == "auto" else self.device


class AgentConfig(Strict):
    """How the policy is made an agent, see ``docs/agents.md``. Each may also be ``package.module:name`` of your own."""

    #: How actions are written: ``react, function_call, code, search_tags, backticks``.
    format: str = "react"
    #: ``plain``, ``plan`` (before acting), ``reflect:N`` (N attempts, with reflections in between).
    strategy: str = "plain"
    #: What stays in view: ``full`` history, ``window:K`` turns, or a ``summary:K`` made every K rounds.
    memory: str = "full"

    @field_validator("format", "strategy", "memory")
    @classmethod
    def _known(cls, value: str, info: ValidationInfo) -> str:
        from agentgym_lite.agents.scaffold import make_scaffold  # imports this package

        make_scaffold(**{str(info.field_name): value})
        return value


class RoundsConfig(Strict):
    """How many rounds of interaction an episode may take (section ScalingInter-RL of arXiv 2509.08755)."""

    type: Literal["fixed", "scaling_inter", "callable"] = "fixed"
    #: One number for ``fixed``; the stages' numbers for ``scaling_inter``.
    rounds: int | list[int] = 20
    #: Steps per stage; ``scaling_inter`` only.
    steps_scaling_inter: int | None = None
    #: ``package.module:function`` from the training step (from 1) to the rounds; ``callable`` only.
    function: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> RoundsConfig:
        if self.type == "fixed" and (not isinstance(self.rounds, int) or self.steps_scaling_inter is not None):
            raise ValueError("type 'fixed' takes one whole number in 'rounds' and no 'steps_scaling_inter'")
        if self.type == "scaling_inter" and (not isinstance(self.rounds, list) or self.steps_scaling_inter is None):
            raise ValueError("type 'scaling_inter' takes a list in 'rounds' and a number in 'steps_scaling_inter'")
        others = self.rounds != type(self).model_fields["rounds"].default or self.steps_scaling_inter is not None
        if self.type == "callable" and (self.function is None or others):
            raise ValueError("type 'callable' takes package.module:function in 'function' and nothing else")
        if self.type != "callable" and self.function is not None:
            raise ValueError("'function' has an effect only with type 'callable'")
        stages = [self.rounds] if isinstance(self.rounds, int) else self.rounds
        if not stages or min(stages) < 1 or (self.steps_scaling_inter is not None and self.steps_scaling_inter < 1):
            raise ValueError("'rounds' and 'steps_scaling_inter' must be at least 1")
        return self


class EnvConfig(Strict):
    """One environment to train on."""

    name: str
    #: ``"local"`` (in process), one server address, or several that share the sessions.
    url: str | list[str] = "local"
    #: Arguments of the environment's constructor, e.g. ``{retriever: e5}``; for ``local`` alone, as a server has its own.
    options: dict[str, Any] = Field(default_factory=dict)
    #: Item ids in the form of ``AgentGym/AgentGym-RL-Data-ID``: its name on the hub, a folder or a file. Null: the environment's own.
    items: str | None = None
    #: Sub-tasks to draw items from, e.g. ``["depth_1", "depth_2"]``; empty means all.
    tasks: tuple[str, ...] = ()
    #: Share of each step's groups, relative to the other environments.
    weight: float = Field(1.0, gt=0)
    rounds: RoundsConfig = RoundsConfig()

    @model_validator(mode="after")
    def _options_have_an_effect(self) -> EnvConfig:
        if self.options and self.url != "local":
            raise ValueError("'options' has an effect only with url: local; give a server its options where it is started")
        return self


class VllmConfig(Strict):
    """vLLM as the engine, see ``docs/vllm.md``."""

    #: ``"local"`` (in this process, on the policy's device) or the address of a server that ``python -m agentgym_lite.rollout.vllm.serve``
    #: has started, or several that share the sessions.
    url: str | list[str] = "local"
    #: Share of the GPU's memory for weights and cache, when local.
    gpu_memory: float = Field(0.45, gt=0, lt=1)
    #: Give that memory back while the policy learns, when local.
    sleep: bool = True
    #: What a sync sends of a policy with ``model.lora``: its adapters, or all weights with the adapters merged in.
    lora: Literal["adapter", "merged"] = "adapter"
    #: Mean difference of log-probs, in nats, that a sync may leave. Null: 1e-4 in float32, 0.25 in bfloat16.
    sync_tolerance: float | None = Field(None, gt=0)
    #: Folder that servers on other machines see too, through which weights go to them. Null: a temporary one, for servers on this machine.
    sync_dir: Path | None = None

    @model_validator(mode="after")
    def _consistent(self) -> VllmConfig:
        if not self.url:
            raise ValueError("'url' takes 'local', an address or a list of at least one")
        for name in ("sync_dir",) if self.url == "local" else ("gpu_memory", "sleep"):
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"'{name}' has no effect with url: {'local' if self.url == 'local' else 'a server, which has its own'}")
        return self


class RolloutConfig(Strict):
    """How episodes are sampled."""

    #: ``native`` (torch, part of the kit) or ``vllm``, which is to be installed.
    engine: Literal["native", "vllm"] = "native"
    vllm: VllmConfig = VllmConfig()
    temperature: float = Field(1.0, gt=0)
    top_p: float = Field(1.0, gt=0, le=1)
    #: Limit on sampled tokens per turn.
    max_new_tokens: int = Field(64, ge=1)
    #: Longest row, context and replies together.
    max_length: int = Field(2048, ge=16)
    #: Type of the engine's weights. Null: the model's. Another one makes its log-probs differ from the trainer's (``algorithm.tis``).
    dtype: Literal["float32", "bfloat16"] | None = None
    #: Episodes that hold a cache at the same time.
    max_sessions: int = Field(64, ge=1)
    #: Decoding steps between sending an action and using its answer. A fixed number keeps runs reproducible while environments and
    #: decoding overlap; ``null`` uses each answer as soon as it is there.
    env_lag: int | None = Field(2, ge=1)

    @model_validator(mode="after")
    def _vllm_has_an_effect(self) -> RolloutConfig:
        if self.engine != "vllm" and self.vllm != VllmConfig():
            raise ValueError("'vllm' has an effect only with engine: vllm")
        return self


class OptimConfig(Strict):
    """AdamW."""

    lr: float = Field(1e-6, gt=0)
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = Field(0.01, ge=0)
    grad_clip: float = Field(1.0, gt=0)
    #: Steps of linear warm-up; the first step's rate is never 0.
    warmup_steps: int = Field(0, ge=0)
    #: Tokens (padding included) per forward pass.
    micro_batch_tokens: int = Field(16384, ge=1)


class CommonRunConfig(Strict):
    """What every run has."""

    seed: int = 0
    #: Folder of the run.
    out: Path = Path("runs/train")
    #: Steps between checkpoints; the last step is always saved.
    save_every: int = Field(25, ge=1)
    #: Checkpoints to keep.
    keep: int = Field(2, ge=1)
    #: Stop after this many seconds of training, with a checkpoint. Null: no limit.
    time_limit_s: float | None = Field(None, gt=0)


class RunConfig(CommonRunConfig):
    """The run."""

    #: Training steps.
    steps: int = Field(100, ge=1)
    #: Groups (distinct items) per step.
    groups_per_step: int = Field(8, ge=1)
    #: Episodes of each step, spread over its groups, that are written to ``trajectories.jsonl``.
    log_trajectories: int = Field(4, ge=0)


class MethodConfig(Strict):
    """What the settings of every method share. ``method`` names the method in a YAML file."""

    method: str
    model: ModelConfig = ModelConfig()
    agent: AgentConfig = AgentConfig()
    run: CommonRunConfig = CommonRunConfig()

    @property
    @abstractmethod
    def environments(self) -> Mapping[str, EnvConfig]:
        """The environments that the run plays, by name."""


class Config(MethodConfig):
    """All settings of reinforcement learning, the default method of ``agl train``."""

    method: Literal["rl"] = "rl"
    envs: list[EnvConfig] = Field(min_length=1)
    algorithm: AlgorithmConfig = GRPOConfig()
    #: ``package.module:function`` from a trajectory to its reward, one number or one per turn, in place of the environment's. Null: that.
    reward: str | None = None
    rollout: RolloutConfig = RolloutConfig()
    optim: OptimConfig = OptimConfig()
    run: RunConfig = RunConfig()

    @property
    def environments(self) -> Mapping[str, EnvConfig]:
        return {e.name: e for e in self.envs}
