"""YAML files and ``dotted.key=value`` overrides to validated configurations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from agentgym_lite.config.algorithms import AlgorithmConfig
from agentgym_lite.config.base import ConfigError, Strict
from agentgym_lite.config.run import Config, EnvConfig, ModelConfig, OptimConfig, RolloutConfig, RoundsConfig, RunConfig


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
    sections: dict[str, type[Strict]] = {
        "model": ModelConfig,
        "envs": EnvConfig,
        "algorithm": AlgorithmConfig,
        "rollout": RolloutConfig,
        "optim": OptimConfig,
        "run": RunConfig,
    }
    cls: type[Strict] = RoundsConfig if "rounds" in loc[:-1] else sections.get(str(loc[0]), Config) if len(loc) > 1 else Config
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
