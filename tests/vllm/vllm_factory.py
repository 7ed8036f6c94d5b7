"""Models that vLLM can run on a CPU (heads of 32 channels), and what is compared on them."""

from __future__ import annotations

from typing import Any

import torch
from test_engine import Talk, forward_logprobs, make_engine, make_model, make_talks, run_talks
from trainer_factory import make_tokenizer
from transformers import Qwen2Config, Qwen2ForCausalLM

from agentgym_lite.config import LoraConfig
from agentgym_lite.lora import with_lora

#: Log-probs of two engines in float32.
CLOSE = 1e-4


def small_model(seed: int = 0, **options: Any) -> Any:
    return make_model(seed=seed, hidden_size=64, num_attention_heads=2, kv_heads=1, **options)


def lora_model(seed: int = 0) -> Any:
    return with_lora(small_model(seed), LoraConfig(r=4, alpha=8), 0)


def policy() -> Qwen2ForCausalLM:
    """A model for the toy environments of the trainer's tests."""
    state = torch.get_rng_state()
    torch.manual_seed(0)
    tokenizer = make_tokenizer()
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        max_position_embeddings=128,
        tie_word_embeddings=True,
        initializer_range=0.1,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        **sizes,
    )
    model = Qwen2ForCausalLM(config).eval()
    torch.set_rng_state(state)
    return model


@torch.no_grad()
def change(model: Any, what: str = "", size: float = 0.05) -> None:
    """Another policy: noise on the parameters with ``what`` in their name."""
    generator = torch.Generator().manual_seed(3)
    for name, p in model.named_parameters():
        if what in name:
            p.add_(size * torch.randn(p.shape, generator=generator))


def conversations(model: Any) -> list[Talk]:
    """Greedy ones of several turns."""
    talks = make_talks(5, temperature=0.0)
    for talk in talks:
        talk.contexts = [[i % model.config.vocab_size for i in ids] for ids in talk.contexts]
    return talks


def assert_same_as_native(engine: Any, model: Any) -> None:
    """Equal tokens, and log-probs within ``CLOSE``."""
    found = run_talks(engine, conversations(model))
    expected = run_talks(make_engine(model, max_sessions=5), conversations(model))
    assert [t.row for t in found] == [t.row for t in expected]
    assert [r.finished_by_stop for t in found for r in t.replies] == [r.finished_by_stop for t in expected for r in t.replies]
    pairs = [(a, b) for t, u in zip(found, expected, strict=True) for a, b in zip(t.logprobs, u.logprobs, strict=True)]
    assert max(abs(a - b) for a, b in pairs if a is not None) < CLOSE


def assert_from_nucleus(model: Any, talk: Talk) -> None:
    """Every sampled token is of the nucleus, and its log-prob is renormalised over that."""
    logprobs = forward_logprobs(model, talk.row, talk.sampling.temperature)
    for i, found in enumerate(talk.logprobs):
        if found is None:
            continue
        p, index = logprobs[i - 1].exp().sort(descending=True)
        kept = int((p.cumsum(0) < talk.sampling.top_p).sum()) + 1
        assert talk.row[i] in index[:kept].tolist()
        assert abs(found - float(logprobs[i - 1, talk.row[i]] - p[:kept].sum().log())) < CLOSE
