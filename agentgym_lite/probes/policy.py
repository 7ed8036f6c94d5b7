"""A policy for the probes: a random-init Qwen2 of 22 tokens that knows how a reply looks and nothing else."""

from __future__ import annotations

from functools import cache

import torch
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from agentgym_lite.probes.env import ACTIONS
from agentgym_lite.training.pretrain.tokenizer import CHAT_TEMPLATE, SPECIAL

_WORDS = ("?", "system", "user", "assistant", "probe", "illegal", "start", "sun", "rain", "first", "second")
_MORE = ("red", "blue", "wait", "key", "open", "shut", "end")
#: Coordinates of the embedding that say "a token to read" and "an action", and how strongly they speak.
_READ, _SAID, _STRENGTH = 0, 1, 4.5


@cache
def probe_tokenizer() -> PreTrainedTokenizerFast:
    """One token per word of the probes, and one per whole reply (``Action: left``, ``Action: right``); ChatML."""
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(_WORDS + _MORE)}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", unk_token="?")
    fast.add_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIAL])
    fast.add_tokens([AddedToken(reply(a), special=False, normalized=False) for a in ACTIONS])
    fast.chat_template = CHAT_TEMPLATE
    return fast


def reply(action: str) -> str:
    """A whole reply as text, one token of :func:`probe_tokenizer`."""
    return f"Action: {action}"


def probe_model(seed: int = 0) -> Qwen2ForCausalLM:
    """Two layers of width 32, random but for one thing: it answers with an action, then ends its turn.

    Which action is up to chance. Two coordinates of the embedding tell tokens to read from actions, and the head turns the first into an
    action, the second into ``<|im_end|>``; so a probe measures learning to choose, not learning to speak. The global generator is left as
    it was.
    """
    tokenizer = probe_tokenizer()
    actions = [tokenizer.convert_tokens_to_ids(reply(a)) for a in ACTIONS]
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=False,
        initializer_range=0.05,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(config)
        embedding: Tensor = model.model.embed_tokens.weight
        head: Tensor = model.lm_head.weight
        embedding.normal_(std=0.3)
        embedding[:, [_READ, _SAID]] = torch.tensor([1.0, 0.0])
        embedding[actions] = embedding[actions].index_copy(1, torch.tensor([_READ, _SAID]), torch.tensor([[0.0, 1.0]] * len(actions)))
        head[:, [_READ, _SAID]] = 0.0
        head[actions, _READ] = _STRENGTH
        head[tokenizer.eos_token_id, _SAID] = _STRENGTH
    return model.eval()
