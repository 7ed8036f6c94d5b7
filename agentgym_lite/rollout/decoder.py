"""Forward pass of Qwen2 and Llama models over a cache with one slot per session.

The tokens of all sessions are packed into one list (N tokens), so that every matrix product runs once and without padding; only
attention looks at sessions one by one (prompts) or in runs of neighbouring slots (single tokens). Plain torch operations, no
compiler needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from agentgym_lite.lora import base_model, merged_weight
from agentgym_lite.sharding import gathered

#: Slots per attention call in decoding: more share one call, fewer waste less on slots that are shorter than the longest.
_RUN = 16
#: Idle slots that a run may bridge.
_GAP = 2
_FAMILIES = ("qwen2", "llama")
#: RoPE variants whose frequencies do not change with the length of the sequence.
_ROPE_TYPES = ("default", "linear", "llama3", "yarn")


@dataclass(frozen=True)
class Prompt:
    """Tokens to add to one slot: ``count`` of them, at positions ``start``, ``start + 1``, ..."""

    slot: int
    start: int
    count: int


@dataclass(frozen=True)
class _Layer:
    """Weights of one block. The rows of q and k are reordered so that each rotated pair of channels is adjacent."""

    attention_norm: Tensor
    qkv: tuple[Tensor, Tensor | None]
    out: tuple[Tensor, Tensor | None]
    mlp_norm: Tensor
    gate_up: tuple[Tensor, Tensor | None]
    down: tuple[Tensor, Tensor | None]


class CachedDecoder:
    """Snapshot of a model's weights and the key-value cache of ``slots`` sessions of up to ``max_length`` tokens.

    ``model`` is a transformers ``Qwen2ForCausalLM`` or ``LlamaForCausalLM``, as it is or in LoRA adapters, which are merged into the
    snapshot and stay as they are in the model. On a CPU the cache and the attention are float32 even when
    ``dtype`` is bfloat16, because small bfloat16 products are slower there; elsewhere they have ``dtype``.
    Raises ``ValueError`` for a model of another family or with features that are not covered (sliding window, dynamic RoPE).
    """

    def __init__(self, model: Any, slots: int, max_length: int, device: torch.device, dtype: torch.dtype) -> None:
        model = base_model(model)
        config = model.config
        _check_supported(model)
        self._model = model
        self.device, self.dtype = device, dtype
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        self.head_dim: int = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self._eps: float = config.rms_norm_eps
        self._length = max_length
        cache_dtype = torch.float32 if device.type == "cpu" else dtype
        shape = (config.num_hidden_layers, 2, slots, self.kv_heads, max_length, self.head_dim)
        self.cache = torch.zeros(shape, dtype=cache_dtype, device=device)
        rope = model.model.rotary_emb
        angles = torch.arange(max_length).float()[:, None] * rope.inv_freq.detach().float().cpu()
        self._layers: dict[int, _Layer] = {}
        #: RoPE as multiplication by a complex number: [max_length, 1, head_dim / 2].
        self._rotation = torch.polar(torch.full_like(angles, float(rope.attention_scaling)), angles)[:, None].to(device)
        self.load()

    @torch.inference_mode()
    def load(self) -> None:
        """Copy the model's current weights and clear the cache, so that nothing computed with the old ones can be used."""
        base = self._model.model
        with gathered(self._model):
            self._embedding = self._copy(base.embed_tokens.weight)
            head = self._model.lm_head.weight
            self._head = self._embedding if head is base.embed_tokens.weight else self._copy(head)
            self._norm = self._copy(base.norm.weight)
        for number, block in enumerate(base.layers):  # one at a time: old and new weights never exist side by side
            self._layers[number] = self._load_layer(block)
        self.cache.zero_()

    def _load_layer(self, block: Any) -> _Layer:
        a, m = block.self_attn, block.mlp
        with gathered(block):
            return _Layer(
                self._copy(block.input_layernorm.weight),
                self._fuse((a.q_proj, True), (a.k_proj, True), (a.v_proj, False)),
                self._fuse((a.o_proj, False)),
                self._copy(block.post_attention_layernorm.weight),
                self._fuse((m.gate_proj, False), (m.up_proj, False)),
                self._fuse((m.down_proj, False)),
            )

    def _fuse(self, *parts: tuple[nn.Linear, bool]) -> tuple[Tensor, Tensor | None]:
        """Stack linear layers that share an input; ``True`` marks those whose channels are to be paired for RoPE."""
        for linear, _ in parts:
            if type(getattr(linear, "base_layer", linear)) is not nn.Linear:
                raise ValueError(f"expected plain nn.Linear weights or LoRA adapters on them, found {type(linear).__name__}")
        weight = torch.cat([self._pair(merged_weight(p)) if rotated else merged_weight(p) for p, rotated in parts])
        biases = [self._pair(p.bias) if rotated else p.bias for p, rotated in parts if p.bias is not None]
        if biases and len(biases) != len(parts):
            raise ValueError("expected a bias on all of the fused projections or on none, found some with and some without")
        return self._copy(weight), self._copy(torch.cat(biases)) if biases else None

    def _pair(self, rows: Tensor) -> Tensor:
        """Rows (i, i + D/2) of every head side by side; q k^T does not change when both are reordered alike."""
        return rows.unflatten(0, (-1, 2, self.head_dim // 2)).transpose(1, 2).reshape(rows.shape)

    def _copy(self, weight: Tensor) -> Tensor:
        return weight.detach().to(self.device, self.dtype, copy=True)

    @torch.inference_mode()
    def forward(self, tokens: Tensor, single: np.ndarray, lengths: np.ndarray, prompts: Sequence[Prompt], read: Tensor) -> Tensor:
        """Add tokens to the cache and return the float32 logits [len(read), V] that follow the packed rows ``read``.

        ``tokens`` [N] holds first one token for each slot in ``single`` (ascending; ``lengths`` tokens are cached there so far), then
        the tokens of each prompt.
        """
        slots = np.concatenate([single, *(np.full(p.count, p.slot) for p in prompts)])
        places = np.concatenate([lengths, *(np.arange(p.start, p.start + p.count) for p in prompts)])
        rows = (slots[:, None] * self.kv_heads + np.arange(self.kv_heads)) * self._length + places[:, None]
        write = torch.from_numpy(rows.reshape(-1)).to(self.device)
        rotation = self._rotation[torch.from_numpy(places).to(self.device)]
        decode = _SingleAttention(self, single, lengths) if len(single) else None
        parts = [_PromptAttention(self, p) for p in prompts]
        bounds = [len(single), *(len(single) + np.cumsum([p.count for p in prompts], dtype=np.int64)).tolist()]

        x = F.embedding(tokens, self._embedding)
        for layer, (keys, values) in zip(self._layers.values(), self.cache, strict=True):
            q, k, v = self._project(layer, x, rotation)
            keys.view(-1, self.head_dim).index_copy_(0, write, k.reshape(-1, self.head_dim))
            values.view(-1, self.head_dim).index_copy_(0, write, v.reshape(-1, self.head_dim))
            mixed = [decode(q[: bounds[0]], keys, values)] if decode else []
            mixed += [part(q[a:b], keys, values) for part, (a, b) in zip(parts, pairwise(bounds), strict=True)]
            attended = torch.cat(mixed) if len(mixed) > 1 else mixed[0]
            x = x + F.linear(attended.to(self.dtype), *layer.out)
            gate, up = F.linear(self._rms(x, layer.mlp_norm), *layer.gate_up).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, *layer.down)
        return F.linear(self._rms(x[read], self._norm), self._head).float()

    def _project(self, layer: _Layer, x: Tensor, rotation: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries [N, H, D], rotated keys and values [N, H_kv, D], in the dtype of the cache."""
        qkv = F.linear(self._rms(x, layer.attention_norm), *layer.qkv).view(len(x), -1, self.head_dim)
        pairs = qkv[:, : self.heads + self.kv_heads].float().unflatten(-1, (-1, 2))
        qk = torch.view_as_real(torch.view_as_complex(pairs) * rotation).flatten(-2).to(self.cache.dtype)
        return qk[:, : self.heads], qk[:, self.heads :], qkv[:, self.heads + self.kv_heads :].to(self.cache.dtype)

    def _rms(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self._eps)

    @torch.inference_mode()
    def copy_prefix(self, source: int, targets: Sequence[int], count: int) -> None:
        """Give ``targets`` the first ``count`` cached tokens of slot ``source``."""
        self.cache[:, :, list(targets), :, :count] = self.cache[:, :, source, None, :, :count]


class _SingleAttention:
    """Attention of one new token in each of many slots, over runs of neighbouring slots, as far as the longest of each run reaches."""

    def __init__(self, decoder: CachedDecoder, slots: np.ndarray, lengths: np.ndarray) -> None:
        self._d = decoder
        self._runs = _runs(slots)
        covered = np.concatenate([np.arange(lo, hi) for lo, hi in self._runs])
        where = np.searchsorted(covered, slots)
        last = np.zeros(len(covered), dtype=np.int64)
        last[where] = lengths
        self._spread = self._back = None
        if len(covered) > len(slots):  # idle slots inside runs get a stand-in query; its result is dropped
            self._back = torch.from_numpy(where).to(decoder.device)
            self._spread = torch.from_numpy(np.minimum(np.searchsorted(slots, covered), len(slots) - 1)).to(decoder.device)
        hidden = torch.from_numpy(np.arange(last.max() + 1) > last[:, None]).to(decoder.device)
        mask = torch.zeros(hidden.shape, dtype=decoder.cache.dtype, device=decoder.device).masked_fill_(hidden, -torch.inf)
        mask = mask[:, None].expand(-1, decoder.kv_heads, -1).reshape(-1, 1, mask.shape[-1])
        self._parts = []
        row = 0
        for lo, hi in self._runs:
            reach = int(last[row : row + hi - lo].max()) + 1
            a, b = row * decoder.kv_heads, (row + hi - lo) * decoder.kv_heads
            self._parts.append((lo, hi, a, b, reach, mask[a:b, :, :reach]))
            row += hi - lo

    def __call__(self, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        d = self._d
        q = q if self._spread is None else q[self._spread]
        q = q.reshape(-1, d.heads // d.kv_heads, d.head_dim)  # query heads that share a key head: [rows * H_kv, H / H_kv, D]
        out = []
        for lo, hi, a, b, reach, mask in self._parts:
            k = keys[lo:hi, :, :reach].view(b - a, reach, d.head_dim)
            v = values[lo:hi, :, :reach].view(b - a, reach, d.head_dim)
            scores = torch.baddbmm(mask, q[a:b], k.transpose(1, 2), alpha=d.head_dim**-0.5)
            out.append(torch.bmm(scores.softmax(-1), v))
        joined = (torch.cat(out) if len(out) > 1 else out[0]).reshape(-1, d.heads * d.head_dim)
        return joined if self._back is None else joined[self._back]


class _PromptAttention:
    """Causal attention of a prompt's new tokens over everything that its slot holds."""

    def __init__(self, decoder: CachedDecoder, prompt: Prompt) -> None:
        self._d, self._p = decoder, prompt
        self._end = prompt.start + prompt.count
        self._mask = None
        if prompt.start and prompt.count > 1:
            mask = torch.full((prompt.count, self._end), -torch.inf, dtype=decoder.cache.dtype, device=decoder.device)
            self._mask = mask.triu_(prompt.start + 1)

    def __call__(self, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        k, v = (c[self._p.slot, None, :, : self._end] for c in (keys, values))
        grouped = self._d.heads != self._d.kv_heads
        out = F.scaled_dot_product_attention(
            q.transpose(0, 1)[None], k, v, attn_mask=self._mask, is_causal=self._p.start == 0, enable_gqa=grouped
        )
        return out[0].transpose(0, 1).reshape(len(q), -1)


def _runs(slots: np.ndarray) -> list[tuple[int, int]]:
    """Cover ascending ``slots`` with half-open ranges of at most ``_RUN`` slots that bridge gaps of at most ``_GAP``."""
    runs: list[tuple[int, int]] = []
    lo = hi = -1
    for s in slots.tolist():
        if lo < 0 or s - hi > _GAP or s - lo >= _RUN:
            if lo >= 0:
                runs.append((lo, hi))
            lo = s
        hi = s + 1
    runs.append((lo, hi))
    return runs


def _check_supported(model: Any) -> None:
    config = model.config
    if config.model_type not in _FAMILIES:
        raise ValueError(f"the native engine runs models of type {' and '.join(_FAMILIES)}, found '{config.model_type}'")
    if config.hidden_act != "silu":
        raise ValueError(f"the native engine expects hidden_act 'silu', found '{config.hidden_act}'")
    if "sliding_attention" in (getattr(config, "layer_types", None) or ()):
        raise ValueError("the native engine has no sliding-window attention; set use_sliding_window to false in the model's config")
    rope = model.model.rotary_emb.rope_type
    if rope not in _ROPE_TYPES:
        raise ValueError(f"the native engine covers the RoPE types {', '.join(_ROPE_TYPES)}, found '{rope}'")
