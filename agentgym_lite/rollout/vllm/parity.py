"""Does the engine sample with the policy's weights? Log-probs of short replies, as reported, against the policy's own forward pass.

The replies are drawn like any other, so what is compared went through the sampler, the adapter and the prefix cache: asking vLLM for
log-probs of a prompt would pass by the cache, and a stale one would go unseen. All that is asked is the same at each sync, so a prompt
that is still cached from the weights before is found in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agentgym_lite.lora import adapter_weights, is_adapted
from agentgym_lite.rollout.types import SamplingParams

#: Sequences, tokens before the reply (more than the largest usual block of the prefix cache, 128) and tokens of the reply.
PROBES, PROMPT, REPLY = 4, 160, 8
#: Not 1 and not 0, so that a wrong temperature shows.
SAMPLING = SamplingParams(temperature=0.7, max_new_tokens=REPLY)
#: Mean |difference| that rounding may make, in nats. In bfloat16 a logit of 16 is rounded to a multiple of 1/8: SmolLM2-135M differs from
#: itself in float32 by 0.06 to 0.09.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.25}
#: What is added to a fresh adapter's ``B`` so that it can be seen.
_VISIBLE = 0.02


def prompts(vocab: int, count: int, max_length: int) -> list[list[int]]:
    """Random ids, always the same; shorter where ``max_length`` leaves no more room."""
    length = min(PROMPT, max_length - REPLY)
    if length < 1:
        raise ValueError(f"expected a max_length above {REPLY} with rollout.engine vllm, found {max_length}")
    return np.random.default_rng(0).integers(vocab, size=(min(count, PROBES), length)).tolist()


@torch.no_grad()
def expected_logprobs(model: Any, rows: Sequence[Sequence[int]]) -> Tensor:
    """Log-probs ``[B, REPLY]`` of the last tokens of ``rows``, all of the same length, by the policy at :data:`SAMPLING`'s temperature."""
    ids = torch.tensor(rows, device=next(model.parameters()).device)
    logits = model(input_ids=ids, use_cache=False, logits_to_keep=REPLY + 1).logits[:, :-1].float()
    logprobs = (logits / SAMPLING.temperature).log_softmax(-1)
    return logprobs.gather(-1, ids[:, -REPLY:, None])[..., 0].cpu()


@contextmanager
def visible_adapter(model: Any) -> Iterator[None]:
    """Adapters that change the policy, put back exactly as they were: fresh ones do nothing, and if they never arrived none would know."""
    matrices = [p for name, p in adapter_weights(model).items() if ".lora_B." in name] if is_adapted(model) else []
    kept = [p.detach().clone() for p in matrices]
    try:
        with torch.no_grad():
            for p in matrices:
                p.add_(_VISIBLE)
        yield
    finally:
        with torch.no_grad():
            for p, old in zip(matrices, kept, strict=True):
                p.copy_(old)
