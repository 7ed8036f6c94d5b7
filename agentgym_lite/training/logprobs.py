"""Log-probabilities and entropies of the sampled tokens, and of no others.

The head is applied only to the positions that predict a sampled token, in chunks: with a vocabulary of 150k the logits, not the layers,
fill the memory. With right padding and causal attention no attention mask is needed: a real token never sees padding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from agentgym_lite.algorithms import entropy_from_logits
from agentgym_lite.sharding import compute_whole

#: Logits (positions x vocabulary) that exist at one time; 2^25 float32 numbers are 128 MiB.
CHUNK_LOGITS = 2**25


class TokenStats(NamedTuple):
    """``logprobs`` and ``entropy`` in nats, both ``[B, T]``, 0 where the mask is 0; ``values`` ``[B, T]`` of a critic, wherever it is."""

    logprobs: Tensor
    entropy: Tensor
    values: Tensor | None = None


def token_stats(
    model: Any,
    input_ids: Tensor,
    targets: Tensor,
    mask: Tensor,
    *,
    temperature: float,
    entropy: bool = True,
    entropy_grad: bool = True,
    critic: Callable[[Tensor, Tensor], Tensor] | None = None,
    chunk_logits: int = CHUNK_LOGITS,
) -> TokenStats:
    """Score ``targets`` where ``mask`` is set: ``log_softmax(logits / temperature)``, the distribution that the engine samples from.

    ``input_ids``, ``targets`` and ``mask`` are ``[B, T]``, aligned to targets (see ``batch``); ``model`` is a causal LM from transformers.
    Logits are float32 whatever the model's type. Gradients flow if autograd is on (through the entropy only if ``entropy_grad``); several
    chunks are then computed again in the backward pass instead of being kept. Without ``entropy`` it is 0 and costs nothing. ``critic``
    is given ``input_ids`` and the last hidden states.
    """

    def compute() -> TokenStats:
        return _token_stats(model, input_ids, targets, mask, temperature, entropy, entropy_grad, critic, chunk_logits)

    return compute_whole(model, compute)


def _token_stats(
    model: Any,
    input_ids: Tensor,
    targets: Tensor,
    mask: Tensor,
    temperature: float,
    entropy: bool,
    entropy_grad: bool,
    critic: Callable[[Tensor, Tensor], Tensor] | None,
    chunk_logits: int,
) -> TokenStats:
    hidden = model.get_decoder()(input_ids=input_ids, use_cache=False).last_hidden_state
    chosen = mask.bool()
    states, wanted = hidden[chosen], targets[chosen]
    head = model.get_output_embeddings()
    size = max(1, chunk_logits // head.weight.shape[0])

    def score(h: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        logits = head(h).float() / temperature
        logp = logits.log_softmax(-1).gather(-1, t[:, None])[:, 0]
        if not entropy:
            return logp, torch.zeros_like(logp)
        with torch.set_grad_enabled(torch.is_grad_enabled() and entropy_grad):
            return logp, entropy_from_logits(logits)

    several = torch.is_grad_enabled() and len(states) > size
    parts = [
        checkpoint(score, h, t, use_reentrant=False) if several else score(h, t)
        for h, t in zip(states.split(size), wanted.split(size), strict=True)
    ]
    logp, spread = (torch.cat(x) for x in zip(*parts, strict=True))
    blank = torch.zeros(mask.shape, dtype=torch.float32, device=mask.device)
    values = None if critic is None else critic(input_ids, hidden)
    return TokenStats(blank.masked_scatter(chosen, logp), blank.masked_scatter(chosen, spread), values)
