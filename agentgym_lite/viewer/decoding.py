"""Finds the tokenizer that a run used, to show the text of its tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from tokenizers import Tokenizer

from agentgym_lite.models import ModelError, model_dir
from agentgym_lite.viewer.tokens import Decode

#: Files of a run folder that name its model, and the key path to the name.
_NAMED_IN = (("config.yaml", ("model", "path")), ("settings.json", ("agent",)))


def decoder(model: str | Path) -> Decode | None:
    """``decode`` of a model's tokenizer; ``None`` if it is not on this machine."""
    try:
        file = Path(model_dir(model)) / "tokenizer.json"
    except ModelError:
        return None
    if not file.is_file():
        return None
    tokenizer = Tokenizer.from_file(str(file))  # transformers would take seconds to import
    return lambda token_id: tokenizer.decode([token_id], skip_special_tokens=False)


def run_decoder(folder: Path, root: Path) -> Decode | None:
    """``decode`` for the episodes of a run folder: what it or a folder above it, up to ``root``, names as its model."""
    for place in (folder, *(p for p in folder.parents if p == root or root in p.parents)):
        for model in _named(place):
            if (found := decoder(model)) is not None:
                return found
    return None


def _named(folder: Path) -> Iterator[str]:
    for file, keys in _NAMED_IN:
        path = folder / file
        if path.is_file():
            value: Any = yaml.safe_load(path.read_text(encoding="utf-8")) if path.suffix == ".yaml" else json.loads(path.read_bytes())
            for key in keys:
                value = value.get(key) if isinstance(value, dict) else None
            if isinstance(value, str):
                yield value
