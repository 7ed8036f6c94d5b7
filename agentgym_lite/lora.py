"""Low-rank adapters by ``peft``: wrapping a model, the reference that it started from, and its weights with the adapter merged in.

Merged weights are computed on the side. Merging into the model and taking the adapter out again would leave rounding errors in the frozen
weights, and a resumed run would no longer equal an unbroken one.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from agentgym_lite.config import ConfigError

if TYPE_CHECKING:
    from agentgym_lite.config import LoraConfig

#: Folder of a checkpoint that holds the adapter in peft's format; the folder above it holds the merged model.
ADAPTER_DIR = "adapter"
_NAME = "default"


def with_lora(model: Any, config: LoraConfig | None, seed: int) -> Any:
    """``model`` with new adapters on its linear layers, a ``PeftModel``; the model itself if ``config`` is None.

    ``A`` is drawn with ``seed`` and ``B`` is 0, so that the policy starts as the model was. The model is changed in place. Raises
    ``ConfigError`` if the model has no layer that ``targets`` names, or has adapters already.
    """
    if config is None:
        return model
    import peft  # slow to import, and most runs do without

    if is_adapted(model):
        raise ConfigError("setting 'model.lora': expected a model without adapters, found a PeftModel; merge it or leave model.lora out")
    targets = config.targets if isinstance(config.targets, str) else list(config.targets)
    settings = peft.LoraConfig(r=config.r, lora_alpha=config.alpha, target_modules=targets, task_type="CAUSAL_LM")
    _check_targets(model, config.targets)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return peft.get_peft_model(model, settings, adapter_name=_NAME)


def is_adapted(model: Any) -> bool:
    """Whether ``model`` is a ``PeftModel``."""
    return hasattr(model, "get_base_model")


def base_model(model: Any) -> Any:
    """The transformers model inside; a model without adapters is its own."""
    return model.get_base_model() if is_adapted(model) else model


def frozen_reference(model: Any) -> Any:
    """The policy as it is now, to measure against: a frozen copy, or under LoRA the base model with the adapter off (no copy).

    What comes back can be scored by :func:`~agentgym_lite.training.logprobs.token_stats`.
    """
    return AdapterOff(model) if is_adapted(model) else copy.deepcopy(model).eval().requires_grad_(False)


class AdapterOff:
    """A view of a ``PeftModel`` that computes with the adapter switched off. It shares all weights with the model and owns none."""

    def __init__(self, model: Any) -> None:
        #: The model with its adapter.
        self.policy = model

    def get_decoder(self) -> Any:
        """The decoder as a function; the adapter is on again when it returns."""
        return self._decode

    def get_output_embeddings(self) -> nn.Module:
        """The head, which never has an adapter."""
        head: nn.Module = self.policy.get_output_embeddings()
        return head

    @torch.no_grad()
    def _decode(self, **inputs: Any) -> Any:
        with self.policy.disable_adapter():
            return self.policy.get_decoder()(**inputs)


@torch.no_grad()
def merged_weight(layer: nn.Module) -> Tensor:
    r"""Weight ``[out, in]`` that a linear layer acts with: its own, plus :math:`\frac{\alpha}{r} B A` of its active adapters.

    Computed in float32 at least and returned in the layer's type.
    """
    lora: Any = layer  # peft's layers are typed as plain modules
    weight: Tensor = lora.weight
    if not hasattr(layer, "get_delta_weight"):
        return weight
    delta = sum(lora.get_delta_weight(name).float() for name in lora.active_adapters)
    return (weight.float() + delta).to(weight.dtype)


def merged_state(model: Any) -> dict[str, Tensor]:
    """``state_dict`` of a ``PeftModel``'s base with the adapter merged in, under the names of the plain model; nothing is changed."""
    base = base_model(model)
    adapted = {name: module for name, module in base.named_modules() if hasattr(module, "get_delta_weight")}
    out = {}
    for name, value in base.state_dict().items():
        owner, inside, leaf = name.partition(".base_layer.")
        if inside:
            out[f"{owner}.{leaf}"] = merged_weight(adapted[owner]) if leaf == "weight" else value
        elif not any(name.startswith(f"{module}.") for module in adapted):
            out[name] = value
    return out


def adapter_weights(model: Any) -> dict[str, Tensor]:
    """The trained weights of a ``PeftModel``'s adapter by the names that peft gives them in files."""
    return {name.replace(f".{_NAME}.", "."): p for name, p in model.named_parameters() if f".{_NAME}." in name}


def _check_targets(model: Any, targets: str | tuple[str, ...]) -> None:
    if isinstance(targets, str):
        return
    head = model.get_output_embeddings()
    linear = {name.rpartition(".")[2] for name, m in model.named_modules() if isinstance(m, nn.Linear) and m is not head}
    unknown = [t for t in targets if t not in linear]
    if unknown or not targets:
        raise ConfigError(
            f"setting 'model.lora.targets': expected names of the decoder's linear layers ({', '.join(sorted(linear))}) or 'all-linear', "
            f"found {', '.join(map(repr, unknown)) or 'none'}"
        )
