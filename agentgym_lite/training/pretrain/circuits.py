"""Weights that start with the two attention patterns that copying needs.

A small transformer must discover two patterns before it can copy a name out of its prompt (Olsson et al. 2022, "induction heads"):
a head that looks at the previous token, and one that looks for places whose *previous* token equals the current one. Finding them
takes a randomly initialised model of this size millions of tokens; written into the initial weights, training only has to refine
them. The idea follows mimetic initialisation (Trockman & Kolter 2023).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_POSITION_PAIRS = 5  # rotary pairs, fastest first, that carry the "one token back" pattern


@torch.no_grad()
def init_copy_circuits(model: Any, *, sharpness: float = 6.0, match: float = 2.2, damping: float = 0.1) -> None:
    """Write previous-token heads into layer 0 and match heads into layers 1 and 2 of a Qwen2 model, in place.

    With rotary frequencies ``f_i`` a constant key ``u`` and a query rotated back by ``f_i`` give the score ``sum_i u_i^2 cos(f_i (d-1))``
    at distance ``d``, largest at ``d = 1``: Qwen2's q and k biases can hold it. A match head compares what layer 0 wrote about the
    previous token (keys) with the current token (queries), in the slow rotary pairs, which barely turn over a few hundred tokens.
    ``damping`` scales what the other random parts add to the residual stream, so that they do not drown the patterns.
    """
    c = model.config
    hidden, heads, kv_heads = c.hidden_size, c.num_attention_heads, c.num_key_value_heads
    dim, group, std = hidden // heads, heads // kv_heads, c.initializer_range
    generator = torch.Generator().manual_seed(0)

    def orthonormal(rows: int) -> Tensor:
        return torch.linalg.qr(torch.randn(hidden, hidden, generator=generator))[0][:rows]

    token = [orthonormal(dim) for _ in range(kv_heads)]  # features of a token that are carried one place on
    place = orthonormal(kv_heads * dim).view(kv_heads, dim, hidden)  # where in the residual stream they are written
    for layer in model.model.layers:
        layer.mlp.down_proj.weight.mul_(damping)
        layer.self_attn.o_proj.weight.mul_(damping)
    _look_back(model.model.layers[0].self_attn, c, token, place, sharpness, std)
    slow = torch.full((dim, 1), 0.1)
    half = dim // 2
    slow[half // 3 : half] = slow[half + half // 3 :] = 1.0
    for index in (1, 2):
        attention = model.model.layers[index].self_attn
        values = orthonormal(kv_heads * dim)
        noise = 0.02 * torch.randn(attention.q_proj.weight.shape, generator=generator)
        for kv in range(kv_heads):
            attention.k_proj.weight[kv * dim : (kv + 1) * dim] = match * slow * place[kv]
            for h in range(kv * group, (kv + 1) * group):
                attention.q_proj.weight[h * dim : (h + 1) * dim] = match * slow * token[kv]
                attention.o_proj.weight[:, h * dim : (h + 1) * dim] = 0.5 * std * values[kv * dim : (kv + 1) * dim].T
        attention.q_proj.weight.add_(noise)
        attention.v_proj.weight.copy_(values)


def _look_back(attention: Any, config: Any, token: list[Tensor], place: Tensor, sharpness: float, std: float) -> None:
    """Head ``h`` of a group looks ``1 + h`` tokens back; the first of each group copies ``token`` features to ``place``."""
    kv_heads, dim = place.shape[:2]
    group, half, n = config.num_attention_heads // kv_heads, dim // 2, _POSITION_PAIRS
    frequency = config.rope_parameters["rope_theta"] ** (-torch.arange(half) / half)
    attention.q_proj.weight.mul_(0.3)
    attention.k_proj.weight.mul_(0.3)
    attention.q_proj.bias.zero_()
    attention.k_proj.bias.zero_()
    for kv in range(kv_heads):
        attention.k_proj.bias[kv * dim : kv * dim + n] = sharpness
        attention.v_proj.weight[kv * dim : (kv + 1) * dim] = token[kv]
        for h in range(kv * group, (kv + 1) * group):
            angle = frequency[:n] * (1 + h - kv * group)
            attention.q_proj.bias[h * dim : h * dim + n] = sharpness * angle.cos()
            attention.q_proj.bias[h * dim + half : h * dim + half + n] = -sharpness * angle.sin()
            if h == kv * group:
                attention.o_proj.weight[:, h * dim : (h + 1) * dim] = std * place[kv].T
