"""Checkpoints that survive a kill at any moment.

A checkpoint is a folder ``step_000025`` with the model as transformers stores it (``from_pretrained`` reads it), ``optimizer.safetensors``
and ``state.json``. Under LoRA that model has the adapter merged in, and ``adapter/`` holds the adapter alone, as peft stores it. Several
processes share the writing: each tensor stands, whole, in the file of one of them (``model-00001-of-00008.safetensors``), so that any
number of processes can go on from there, one included. The folder
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
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from agentgym_lite.lora import ADAPTER_DIR, adapter_weights, base_model, is_adapted, merged_state
from agentgym_lite.sharding import put, sharded_like, whole
from agentgym_lite.training.distributed import World

CHECKPOINTS_DIR = "checkpoints"
_MANIFEST, _STATE = "manifest.json", "state.json"
#: First part of the names of files with tensors.
_MODEL, _OPTIMIZER, _EXTRA, _ADAPTER = "model", "optimizer", "critic", "adapter_model"
_NAME = re.compile(r"step_(\d{6,})")
_TEMPORARY = ".writing-"


class CheckpointError(RuntimeError):
    """No checkpoint that can be used; the message says what was found and what to do."""


class CheckpointStore:
    """The checkpoints of one run, of which the last ``keep`` stay; written by all processes of ``world`` together."""

    def __init__(self, run_dir: Path, keep: int = 2, world: World = World()) -> None:  # noqa: B008 - frozen
        self.folder = run_dir / CHECKPOINTS_DIR
        self._keep, self._world = keep, world

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
        final = self.path(step)
        writing = self.folder / f"{_TEMPORARY}{final.name}"
        self._world.main(lambda: self._begin(writing))
        for stem, tensors in ((_MODEL, model_tensors(model)), (_OPTIMIZER, optimizer), (_EXTRA, extra or {})):
            if tensors or stem == _OPTIMIZER:
                write_tensors(writing, stem, tensors, self._world)
        adapter = {k: whole(v).detach().contiguous() for k, v in adapter_weights(model).items()} if is_adapted(model) else {}

        def finish() -> None:
            _write_config(model, writing)
            if adapter:
                save_file(adapter, writing / ADAPTER_DIR / f"{_ADAPTER}.safetensors", {"format": "pt"})
            tokenizer.save_pretrained(writing)
            (writing / _STATE).write_text(json.dumps(state, allow_nan=False))
            _seal(writing)
            writing.rename(final)
            _fsync(self.folder)
            for old in self.steps()[: -self._keep]:
                shutil.rmtree(self.path(old))

        self._world.main(finish)
        return final

    def _begin(self, writing: Path) -> None:
        self.remove_half_written()
        writing.mkdir(parents=True)

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
    return dict(read_tensors(folder, _EXTRA))


def write_tensors(folder: Path, stem: str, tensors: Mapping[str, Tensor], world: World = World()) -> None:  # noqa: B008 - frozen
    """Write tensors, sharded ones whole, into ``stem.safetensors``, or into a file of each process with an index for transformers."""
    names = list(tensors)
    shares = world.shares([tensors[n].numel() * tensors[n].element_size() for n in names])
    owner = {names[i]: rank for rank, share in enumerate(shares) for i in share}
    mine: dict[str, Tensor] = {}
    for name in names:
        full = whole(tensors[name])
        if owner[name] == world.rank:
            mine[name] = full.detach().cpu().contiguous()
    files = [f"{stem}{f'-{r + 1:05d}-of-{world.size:05d}' if world.size > 1 else ''}.safetensors" for r in range(world.size)]
    world.each(lambda: save_file(mine, folder / files[world.rank], {"format": "pt"}))
    if world.size > 1 and world.is_main:
        index = {"metadata": {}, "weight_map": {name: files[owner[name]] for name in names}}
        (folder / f"{stem}.safetensors.index.json").write_text(json.dumps(index, indent=1))


def read_tensors(folder: Path, stem: str) -> Iterator[tuple[str, Tensor]]:
    """What :func:`write_tensors` wrote, one at a time."""
    for path in sorted(folder.glob(f"{stem}*.safetensors")):
        with safe_open(path, "pt") as f:
            for name in f.keys():  # noqa: SIM118 - not a mapping
                yield name, f.get_tensor(name)


def model_tensors(model: Any) -> dict[str, Tensor]:
    """The weights of a model as transformers names them: adapters merged in, and a tied weight under its first name alone."""
    if is_adapted(model):
        tied = base_model(model).config.tie_word_embeddings
        return {k: v for k, v in merged_state(model).items() if not (tied and k.startswith("lm_head."))}
    first: dict[int, str] = {}
    return {name: t for name, t in model.state_dict(keep_vars=True).items() if first.setdefault(id(t), name) == name}


def restore(folder: Path, model: Any, optimizer: torch.optim.Optimizer, names: list[str]) -> None:
    """Put a checkpoint's weights and moments into ``model`` and ``optimizer``; ``names`` as in :func:`optimizer_tensors`."""
    if is_adapted(model):
        _restore_weights(adapter_weights(model), folder / ADAPTER_DIR, _ADAPTER)
    else:
        _restore_weights(model_tensors(model), folder, _MODEL)
    stored = dict(read_tensors(folder, _OPTIMIZER))
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for i, name in enumerate(names):
        entries = {k.removeprefix(f"{name}|"): v for k, v in stored.items() if k.startswith(f"{name}|")}
        if entries:
            state[i] = {k: sharded_like(v, parameters[i]) if v.ndim else v for k, v in entries.items()}
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _restore_weights(own: Mapping[str, Tensor], folder: Path, stem: str) -> None:
    missing = set(own)
    for name, value in read_tensors(folder, stem):
        if name not in own or own[name].shape != value.shape:
            raise CheckpointError(f"'{folder}' holds a weight '{name}' of shape {list(value.shape)}, which the model does not have")
        put(own[name], value)
        missing.remove(name)
    if missing:
        raise CheckpointError(f"'{folder}' lacks the weight '{min(missing)}' ({len(missing)} are missing); it is of another model")


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


def _write_config(model: Any, folder: Path) -> None:
    """The files beside the weights that ``from_pretrained`` needs, and peft's below them."""
    base = base_model(model)
    if not base.config.architectures:
        base.config.architectures = [type(base).__name__]
    base.config.save_pretrained(folder)
    if base.can_generate():
        base.generation_config.save_pretrained(folder)
    if is_adapted(model):
        (folder / ADAPTER_DIR).mkdir()
        for settings in model.peft_config.values():
            settings.save_pretrained(folder / ADAPTER_DIR)


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
