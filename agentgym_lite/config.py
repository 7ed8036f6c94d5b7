"""Configuration of a training run: typed, strict and the same from YAML, the command line and Python.

Unknown keys are errors. Every field changes a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator


class ConfigError(ValueError):
    """A configuration that cannot be used; the message names the field, what was found and what is allowed."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelConfig(_Strict):
    """The policy."""

    #: ``"tiny"`` (shipped with the kit), a local directory, or a name on the model hub.
    path: str = "tiny"
    #: Weights and arithmetic.
    dtype: Literal["float32", "bfloat16"] = "float32"


class RoundsConfig(_Strict):
    """How many rounds of interaction an episode may take (section ScalingInter-RL of arXiv 2509.08755)."""

    type: Literal["fixed", "scaling_inter"] = "fixed"
    #: One number for ``fixed``; the stages' numbers for ``scaling_inter``.
    rounds: int | list[int] = 20
    #: Steps per stage; ``scaling_inter`` only.
    steps_scaling_inter: int | None = None

    @model_validator(mode="after")
    def _consistent(self) -> RoundsConfig:
        if self.type == "fixed" and (not isinstance(self.rounds, int) or self.steps_scaling_inter is not None):
            raise ValueError("type 'fixed' takes one whole number in 'rounds' and no 'steps_scaling_inter'")
        if self.type == "scaling_inter" and (not isinstance(self.rounds, list) or self.steps_scaling_inter is None):
            raise ValueError("type 'scaling_inter' takes a list in 'rounds' and a number in 'steps_scaling_inter'")
        stages = [self.rounds] if isinstance(self.rounds, int) else self.rounds
        if not stages or min(stages) < 1 or (self.steps_scaling_inter is not None and self.steps_scaling_inter < 1):
            raise ValueError("'rounds' and 'steps_scaling_inter' must be at least 1")
        return self


class EnvConfig(_Strict):
    """One environment to train on."""

    name: str
    #: ``"local"`` (in process), one server address, or several that share the sessions.
    url: str | list[str] = "local"
    #: Sub-tasks to draw items from, e.g. ``["depth_1", "depth_2"]``; empty means all.
    tasks: list[str] = []
    #: Share of each step's groups, relative to the other environments.
    weight: float = Field(1.0, gt=0)
    rounds: RoundsConfig = RoundsConfig()


class AlgorithmConfig(_Strict):
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


class RolloutConfig(_Strict):
    """How episodes are sampled."""

    temperature: float = Field(1.0, gt=0)
    top_p: float = Field(1.0, gt=0, le=1)
    #: Limit on sampled tokens per turn.
    max_new_tokens: int = Field(64, ge=1)
    #: Longest row, context and replies together.
    max_length: int = Field(2048, ge=16)
    #: Episodes that hold a cache at the same time.
    max_sessions: int = Field(64, ge=1)
    #: Decoding steps between sending an action and using its answer. A fixed number keeps runs reproducible while environments and
    #: decoding overlap; ``null`` uses each answer as soon as it is there.
    env_lag: int | None = Field(2, ge=1)


class OptimConfig(_Strict):
    """AdamW."""

    lr: float = Field(1e-6, gt=0)
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = Field(0.01, ge=0)
    grad_clip: float = Field(1.0, gt=0)
    #: Steps of linear warm-up; the first step's rate is never 0.
    warmup_steps: int = Field(0, ge=0)
    #: Tokens (padding included) per forward pass.
    micro_batch_tokens: int = Field(16384, ge=1)


class RunConfig(_Strict):
    """The run."""

    #: Training steps.
    steps: int = Field(100, ge=1)
    #: Groups (distinct items) per step.
    groups_per_step: int = Field(8, ge=1)
    seed: int = 0
    #: Folder of the run.
    out: Path = Path("runs/train")
    #: Steps between checkpoints; the last step is always saved.
    save_every: int = Field(25, ge=1)
    #: Checkpoints to keep.
    keep: int = Field(2, ge=1)
    #: Stop after this many seconds of training, with a checkpoint. Null: no limit.
    time_limit_s: float | None = Field(None, gt=0)
    #: Episodes of each step, spread over its groups, that are written to ``trajectories.jsonl``.
    log_trajectories: int = Field(4, ge=0)


class Config(_Strict):
    """All settings of ``agl train``."""

    model: ModelConfig = ModelConfig()
    envs: list[EnvConfig] = Field(min_length=1)
    algorithm: AlgorithmConfig = AlgorithmConfig()
    rollout: RolloutConfig = RolloutConfig()
    optim: OptimConfig = OptimConfig()
    run: RunConfig = RunConfig()


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Read a YAML file and apply ``dotted.key=value`` overrides (values are YAML; list items by index, ``envs.0.url=local``).

    Raises ``ConfigError`` for a missing file, bad YAML, an unknown key or a value that is not allowed.
    """
    path = Path(path)
    try:
        data = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"expected a config file at '{path}', found none; shipped configs are under configs/") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as e:
        raise ConfigError(f"'{path}' is not readable YAML: {e}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"'{path}' must hold a mapping of sections ({', '.join(Config.model_fields)}), found {type(data).__name__}")
    for item in overrides:
        key, eq, raw = item.partition("=")
        if not eq or not key:
            raise ConfigError(f"expected an override such as run.steps=10, found {item!r}")
        _set(data, key, yaml.safe_load(raw))
    return parse_config(data)


def parse_config(data: dict[str, Any]) -> Config:
    """Validate a plain dictionary. Raises ``ConfigError``."""
    try:
        return Config.model_validate(data)
    except ValidationError as e:
        raise ConfigError("; ".join(_explain(err) for err in e.errors())) from None


def _explain(err: Any) -> str:
    where = ".".join(str(p) for p in err["loc"]) or "config"
    if err["type"] == "extra_forbidden":
        return f"unknown setting '{where}'; allowed there: {', '.join(_allowed(err['loc']))}"
    return f"setting '{where}': {err['msg']}, found {err['input']!r:.80}"


def _allowed(loc: tuple[Any, ...]) -> list[str]:
    sections: dict[str, type[_Strict]] = {
        "model": ModelConfig,
        "envs": EnvConfig,
        "algorithm": AlgorithmConfig,
        "rollout": RolloutConfig,
        "optim": OptimConfig,
        "run": RunConfig,
    }
    cls: type[_Strict] = RoundsConfig if "rounds" in loc[:-1] else sections.get(str(loc[0]), Config) if len(loc) > 1 else Config
    return list(cls.model_fields)


def _set(data: Any, key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for i, part in enumerate(parents):
        data = data[_index(data, part, key)] if isinstance(data, list) else data.setdefault(part, {})
        if not isinstance(data, dict | list):
            raise ConfigError(f"override '{key}': '{'.'.join(parents[: i + 1])}' is not a section")
    if isinstance(data, list):
        data[_index(data, last, key)] = value
    else:
        data[last] = value


def _index(data: list[Any], part: str, key: str) -> int:
    if not part.isdecimal() or int(part) >= len(data):
        raise ConfigError(f"override '{key}': expected an index below {len(data)}, found '{part}'")
    return int(part)
