"""Checkpoints that survive a kill at any moment.

A checkpoint is a folder ``step_000025`` with the model as transformers stores it (``from_pretrained`` reads it), ``optimizer.safetensors``
and ``state.json``. Under LoRA that model has the adapter merged in, and ``adapter/`` holds the adapter alone, as peft stores it. The folder
is written under a temporary name beside its place, flushed to the disk, sealed with ``manifest.json`` (size and SHA-256 of every file) and
then renamed, which happens wholly or not at all. The latest checkpoint is the one with the highest step whose manifest holds; no pointer
file can go stale.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, load_model, save_file
from torch import Tensor
from transformers.utils import logging as hf_logging

from agentgym_lite.lora import is_adapted, load_adapter, save_merged

CHECKPOINTS_DIR = "checkpoints"
_MANIFEST, _STATE, _OPTIMIZER, _MODEL = "manifest.json", "state.json", "optimizer.safetensors", "model.safetensors"
_EXTRA = "critic.safetensors"
_NAME = re.compile(r"step_(\d{6,})")
_TEMPORARY = ".writing-"


class CheckpointError(RuntimeError):
    """No checkpoint that can be used; the message says what was found and what to do."""


class CheckpointStore:
    """The checkpoints of one run, of which the last ``keep`` stay."""

    def __init__(self, run_dir: Path, keep: int = 2) -> None:
        self.folder = run_dir / CHECKPOINTS_DIR
        self._keep = keep

    def steps(self) -> list[int]:
        """Steps of all finished checkpoints, good or damaged, in order."""
        if not self.folder.is_dir():
            return []
        return sorted(int(m[1]) for p in self.folder.iterdir() if (m := _NAME.fullmatch(p.name)))

    def path(self, step: int) -> Path:
        """Folder of a step's checkpoint."""
        return self.folder / f"step_{step:06d}"

    def save(
        self,
        step: int,
        model: Any,
        tokenizer: Any,
        optimizer: Mapping[str, Tensor],
        state: Mapping[str, Any],
        extra: Mapping[str, Tensor] | None = None,
    ) -> Path:
        """Write a checkpoint and drop those that are too old.

        ``optimizer`` comes from :func:`optimizer_tensors`; ``state`` is JSON-ready; ``extra`` are weights besides the model's (a critic's).
        """
        self.remove_half_written()
        self.folder.mkdir(parents=True, exist_ok=True)
        final = self.path(step)
        writing = self.folder / f"{_TEMPORARY}{final.name}"
        writing.mkdir()
        with _no_progress_bar():
            if is_adapted(model):
                save_merged(model, writing)
            else:
                model.save_pretrained(writing, max_shard_size="1000GB")
        tokenizer.save_pretrained(writing)
        save_file({k: v.contiguous() for k, v in optimizer.items()}, writing / _OPTIMIZER)
        if extra:
            save_file({k: v.contiguous() for k, v in extra.items()}, writing / _EXTRA)
        (writing / _STATE).write_text(json.dumps(state, allow_nan=False))
        _seal(writing)
        writing.rename(final)
        _fsync(self.folder)
        for old in self.steps()[: -self._keep]:
            shutil.rmtree(self.path(old))
        return final

    def remove_half_written(self) -> None:
        """Delete what a killed process left behind."""
        for p in self.folder.glob(f"{_TEMPORARY}*"):
            shutil.rmtree(p)

    def discard_after(self, step: int) -> None:
        """Delete checkpoints newer than ``step``: damaged ones that a resume has passed over, which must not count as kept."""
        for newer in self.steps():
            if newer > step:
                shutil.rmtree(self.path(newer))

    def latest(self) -> Path:
        """The newest checkpoint that is whole; damaged ones are passed over with a warning.

        Raises ``CheckpointError`` if there is none.
        """
        steps = self.steps()
        for step in reversed(steps):
            fault = damage(self.path(step))
            if fault is None:
                return self.path(step)
            warnings.warn(f"checkpoint '{self.path(step)}' is damaged ({fault}); trying the one before", stacklevel=2)
        if steps:
            raise CheckpointError(
                f"all {len(steps)} checkpoints in '{self.folder}' are damaged; start again in another folder (run.out=...)"
            )
        raise CheckpointError(f"expected a checkpoint in '{self.folder}', found none; start without resume")


def latest_checkpoint(run_dir: str | Path) -> Path:
    """Model folder of a run's newest good checkpoint. Raises ``CheckpointError``."""
    return CheckpointStore(Path(run_dir)).latest()


def damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_text())
        for name, expected in manifest.items():
            if (folder / name).stat().st_size != expected["size"] or _sha256(folder / name) != expected["sha256"]:
                return f"{name} has changed since it was written"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        return str(e)
    return None


def read_state(folder: Path) -> dict[str, Any]:
    """``state`` as given to :meth:`CheckpointStore.save`."""
    state: dict[str, Any] = json.loads((folder / _STATE).read_text())
    return state


def read_extra(folder: Path) -> dict[str, Tensor]:
    """``extra`` as given to :meth:`CheckpointStore.save`; empty if there was none."""
    path = folder / _EXTRA
    return load_file(path) if path.exists() else {}


def restore(folder: Path, model: Any, optimizer: torch.optim.Optimizer, names: list[str]) -> None:
    """Put a checkpoint's weights and moments into ``model`` and ``optimizer``; ``names`` as in :func:`optimizer_tensors`."""
    if is_adapted(model):
        load_adapter(model, folder)
    else:
        load_model(model, folder / _MODEL)
    stored = load_file(folder / _OPTIMIZER)
    state: dict[int, dict[str, Tensor]] = {}
    for i, name in enumerate(names):
        entries = {k.removeprefix(f"{name}|"): v for k, v in stored.items() if k.startswith(f"{name}|")}
        if entries:
            state[i] = entries
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def optimizer_tensors(optimizer: torch.optim.Optimizer, names: list[str]) -> dict[str, Tensor]:
    """The optimizer's moments and counters as ``{"parameter|moment": tensor}``; ``names`` in the optimizer's order."""
    state = optimizer.state_dict()["state"]
    return {f"{names[i]}|{key}": value for i, entries in state.items() for key, value in entries.items()}


def rng_state() -> dict[str, Any]:
    """States of the global generators of Python, numpy and torch, JSON-ready."""
    version, words, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": [version, list(words), gauss],
        "numpy": [kind, np.asarray(keys).tolist(), position, has_gauss, cached],
        "torch": base64.b64encode(torch.get_rng_state().numpy().tobytes()).decode(),
    }


def set_rng_state(state: Mapping[str, Any]) -> None:
    """Inverse of :func:`rng_state`."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    torch.set_rng_state(torch.frombuffer(bytearray(base64.b64decode(state["torch"])), dtype=torch.uint8))


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    """Without the bar that transformers draws for every file it writes."""
    shown = hf_logging.is_progress_bar_enabled()
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            hf_logging.enable_progress_bar()


def _seal(folder: Path) -> None:
    manifest = {}
    for p in sorted(folder.rglob("*")):
        _fsync(p)
        if p.is_file():
            manifest[p.relative_to(folder).as_posix()] = {"size": p.stat().st_size, "sha256": _sha256(p)}
    (folder / _MANIFEST).write_text(json.dumps(manifest, indent=1))
    _fsync(folder / _MANIFEST)
    _fsync(folder)


def _sha256(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
