"""YAML files and ``dotted.key=value`` overrides to validated configurations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import ValidationError

from agentgym_lite.config.base import ConfigError, Strict
from agentgym_lite.config.methods import AgentEvolConfig, DPOConfig, SFTConfig
from agentgym_lite.config.run import Config

AnyConfig = Config | SFTConfig | DPOConfig | AgentEvolConfig

#: What the top-level key ``method`` may say.
METHODS: dict[str, type[AnyConfig]] = {"rl": Config, "sft": SFTConfig, "dpo": DPOConfig, "agentevol": AgentEvolConfig}


def load_config(path: str | Path, overrides: Sequence[str] = (), presets: Sequence[str] = ()) -> AnyConfig:
    """Read a YAML file, put presets on it and apply ``dotted.key=value`` overrides (values are YAML; list items by index).

    A file may say ``extends: [a.yaml, b.yaml]`` (one name or several, relative to itself): those are read first, in that order, then
    the file itself, and then each of ``presets``, a YAML file or the name of one in the folder ``presets`` beside the config. What is read
    later wins, setting by setting; lists are replaced whole. The top-level key ``method`` says which class comes back. Raises
    ``ConfigError`` for a missing file, bad YAML, an unknown key or a value that is not allowed.
    """
    path = Path(path)
    data = _read(path)
    for name in presets:
        data = _merge(data, _read(_preset(path, name)))
    for item in overrides:
        key, eq, raw = item.partition("=")
        if not eq or not key:
            raise ConfigError(f"expected an override such as run.steps=10, found {item!r}")
        _set(data, key, yaml.safe_load(raw))
    return parse_config(data)


def _read(path: Path, within: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A file over all that it extends. ``within`` are the files that are being read already."""
    if path.resolve() in within:
        raise ConfigError(f"'{path}' extends itself, by way of {', '.join(p.name for p in within)}; take one 'extends' out")
    try:
        data = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"expected a config file at '{path}', found none; shipped configs are under configs/") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as e:
        raise ConfigError(f"'{path}' is not readable YAML: {e}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"'{path}' must hold a mapping of sections such as {', '.join(Config.model_fields)}; found {type(data).__name__}")
    bases = data.pop("extends", [])
    bases = [bases] if isinstance(bases, str) else bases
    if not isinstance(bases, list) or not all(isinstance(b, str) for b in bases):
        raise ConfigError(f"'{path}': 'extends' takes a file name or a list of them, found {bases!r:.80}")
    merged: dict[str, Any] = {}
    for base in bases:
        merged = _merge(merged, _read(path.parent / base, (*within, path.resolve())))
    return _merge(merged, data)


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """``above`` put on ``below``: sections setting by setting, everything else replaced."""
    out = dict(below)
    for key, value in above.items():
        old = out.get(key)
        out[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return out


def _preset(config: Path, name: str) -> Path:
    if name.endswith((".yaml", ".yml")):
        return Path(name)
    folder = config.parent / "presets"
    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.yaml"))) or "none"
        raise ConfigError(f"expected a preset of '{folder}' ({known}) or a YAML file, found '{name}'")
    return path


def parse_config(data: dict[str, Any]) -> AnyConfig:
    """Validate a plain dictionary as the settings of its ``method`` (default ``rl``). Raises ``ConfigError``."""
    method = data.get("method", "rl")
    if not isinstance(method, str) or method not in METHODS:
        raise ConfigError(f"setting 'method': expected {', '.join(METHODS)}, found {method!r:.80}")
    cls = METHODS[method]
    try:
        return cls.model_validate(data)
    except ValidationError as e:
        raise ConfigError("; ".join(_explain(err, cls) for err in e.errors())) from None


def _explain(err: Any, cls: type[Strict]) -> str:
    *parents, last = err["loc"] or ("config",)
    where, classes = _walk(cls, parents)
    if err["type"] == "extra_forbidden":
        allowed = dict.fromkeys(name for c in classes for name in c.model_fields)
        return f"unknown setting '{'.'.join([*where, str(last)])}'; allowed there: {', '.join(allowed)}"
    path, _ = _walk(cls, [*parents, last])
    return f"setting '{'.'.join(path) or last}': {err['msg']}, found {err['input']!r:.80}"


def _walk(cls: type[Strict], loc: Sequence[int | str]) -> tuple[list[str], list[type[Strict]]]:
    """Names on the way of pydantic's ``loc``, without the tags of unions that it mixes in, and the classes at its end."""
    path: list[str] = []
    classes: list[type[Strict]] = [cls]
    for part in loc:
        fields = [c.model_fields[part] for c in classes if part in c.model_fields] if isinstance(part, str) else []
        if fields:
            classes = [m for f in fields for m in _models(f.annotation)]
        elif isinstance(part, str):  # the value of a discriminator, or the name of a type in a union
            classes = [c for c in classes if any(part in get_args(f.annotation) for f in c.model_fields.values())] or classes
            continue
        path.append(str(part))
    return path, classes


def _models(annotation: Any) -> list[type[Strict]]:
    """Configuration classes that occur in a type."""
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        return [annotation]
    return [m for a in get_args(annotation) for m in _models(a)]


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
