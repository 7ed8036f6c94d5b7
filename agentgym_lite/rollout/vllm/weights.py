"""The policy's weights in the forms that vLLM takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from agentgym_lite.lora import adapter_weights, base_model, is_adapted, merged_state
from agentgym_lite.sharding import whole

Weights = Iterator[tuple[str, Tensor]]


def policy_weights(model: Any) -> Weights:
    """All weights under the names of transformers, sharded ones whole, adapters merged in. A tied head is left out."""
    state = merged_state(model) if is_adapted(model) else model.state_dict()
    return _untied(model, state.items())


def frozen_weights(model: Any) -> Weights:
    """The weights below a model's adapters."""
    state = base_model(model).state_dict()
    return _untied(model, [(name.replace(".base_layer.", "."), t) for name, t in state.items() if ".lora_" not in name])


def _untied(model: Any, items: Any) -> Weights:
    tied = base_model(model).config.tie_word_embeddings
    for name, tensor in items:
        if not (tied and name.startswith("lm_head.")):
            yield name, whole(tensor).detach()


def save_adapter(model: Any, folder: Path, write: bool = True) -> None:
    """Write the adapter as peft stores it. With sharded weights every process must call it; those without ``write`` only help."""
    weights = {name: whole(p).detach().cpu().contiguous() for name, p in adapter_weights(model).items()}
    if write:
        folder.mkdir(parents=True)
        for settings in model.peft_config.values():
            settings.save_pretrained(folder)
        save_file(weights, folder / "adapter_model.safetensors", {"format": "pt"})


def save_weights(model: Any, folder: Path, write: bool = True) -> None:
    """Write :func:`policy_weights` into ``model.safetensors``; ``write`` as for :func:`save_adapter`."""
    weights = {name: t.cpu().contiguous() for name, t in policy_weights(model) if write}
    if write:
        folder.mkdir(parents=True)
        save_file(weights, folder / "model.safetensors", {"format": "pt"})


def load_into(module: Any, weights: Weights) -> list[str]:
    """Let a vLLM model take over ``weights``; the names of its parameters that got none."""
    with torch.no_grad():
        loaded = set(module.load_weights(weights))
    # A layer that vLLM has wrapped for adapters keeps its own weights one level deeper.
    return sorted({name.replace(".base_layer.", ".") for name, _ in module.named_parameters()} - loaded)


def keep_plain_weights() -> None:
    """Keep vLLM on a CPU from packing weights when it loads them: what is loaded later would not reach the packed copies.

    Nothing says so: vLLM reports success and goes on with the weights from before. To be called before the model is made.
    """
    operations: Any = import_module("vllm._custom_ops")
    layers: Any = import_module("vllm.model_executor.layers.utils")
    operations._supports_onednn = False
    layers.check_cpu_sgl_kernel = lambda *shape_and_type: False


def adapter_rank(model: Any, allowed: Sequence[int]) -> int:
    """The least of the ``allowed`` ranks that holds the model's adapters. Raises ``ValueError`` if none does."""
    rank = max(settings.r for settings in model.peft_config.values())
    fitting = [r for r in allowed if r >= rank]
    if not fitting:
        raise ValueError(f"expected model.lora.r of at most {max(allowed)} with rollout.engine vllm, found {rank}")
    return min(fitting)
