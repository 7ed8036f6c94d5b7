"""Weights spread over the processes of a run (FSDP2, ``torch.distributed.fsdp.fully_shard``): sharding, and reading them whole.

Everything here does nothing to a model that is not sharded, so that one process and many run the same code. What only a run of several
processes needs is imported there: it takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from agentgym_lite.lora import AdapterOff, base_model

T = TypeVar("T")


def shard(module: nn.Module, mesh: Any) -> None:
    """Spread the parameters of a causal LM, or of a critic, over ``mesh``; they become ``DTensor`` on the mesh's device.

    Each decoder layer is gathered when it is computed and freed behind it; what lies outside the layers stays gathered from the forward
    pass to the backward pass. Gradients are summed over the processes, not averaged: losses carry global denominators.
    """
    from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

    root = base_model(module)
    if hasattr(root, "config"):
        root.config.architectures = [type(root).__name__]  # sharding changes the class
    for layer in _decoder_layers(root):
        fully_shard(layer, mesh=mesh)
    fully_shard(root, mesh=mesh, reshard_after_forward=False)
    root.compute_whole = _compute
    register_fsdp_forward_method(root, "compute_whole")
    for part in root.modules():
        if isinstance(part, FSDPModule):
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)  # gloo knows no other


def compute_whole(model: Any, function: Callable[[], T]) -> T:
    """``function()`` as a forward pass of ``model``, for what reads its head or calls its decoder directly.

    ``model`` may be a transformers model, a ``PeftModel`` or an :class:`~agentgym_lite.lora.AdapterOff`. Gradients flow through tensors
    that ``function`` returns.
    """
    root = base_model(model.policy if isinstance(model, AdapterOff) else model)
    return root.compute_whole(function) if _is_sharded(root) else function()


@contextmanager
def gathered(module: Any) -> Iterator[None]:
    """Plain, whole weights in ``module`` itself, not in sharded modules below it. All processes must enter it together."""
    if not _is_sharded(module):
        yield
        return
    # Weights that were gathered in inference mode could not be trained on afterwards.
    with torch.inference_mode(False), torch.no_grad():
        module.unshard()
    try:
        yield
    finally:
        module.reshard()


def whole(tensor: Tensor) -> Tensor:
    """The whole of a tensor that may be sharded. All processes must call it together."""
    full: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full


def sharded_like(full: Tensor, like: Tensor) -> Tensor:
    """This process's part of ``full``, if ``like`` is sharded; every process must hold the same ``full``."""
    if not hasattr(like, "full_tensor"):
        return full
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)  # what else has a full_tensor
    return distribute_tensor(full.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


@torch.no_grad()
def put(target: Tensor, full: Tensor) -> None:
    """Overwrite ``target``, sharded or not, with a whole tensor."""
    target.copy_(sharded_like(full.to(target.dtype), target))


def _is_sharded(module: Any) -> bool:
    if not (dist.is_available() and dist.is_initialized()):
        return False
    from torch.distributed.fsdp import FSDPModule

    return isinstance(module, FSDPModule)


def _compute(function: Callable[[], T]) -> T:
    return function()


def _decoder_layers(root: Any) -> list[nn.Module]:
    decoder = root.get_decoder() if hasattr(root, "get_decoder") else getattr(root, "backbone", None)
    return [] if decoder is None else list(decoder.layers)
