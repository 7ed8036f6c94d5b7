"""The tiny model's tokenizer: byte-level BPE learned on the corpus, with the special tokens and the chat layout of Qwen2.5."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from agentgym_lite.training.pretrain.corpus import Mixture, document

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
#: English around the environments, so that a reader's own words do not fall apart into bytes.
_PLAIN = "system user assistant Thought Action the a an is are to of in on it you your not and or then so because first next done yes no"


def train_tokenizer(vocab_size: int, documents: int = 6000, seed: int = 1) -> Any:
    """A ``PreTrainedTokenizerFast`` of at most ``vocab_size`` tokens, learned on ``documents`` chats."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=list(SPECIAL), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(_texts(documents, seed), trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>", clean_up_tokenization_spaces=False
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def _texts(documents: int, seed: int) -> Iterator[str]:
    rng = random.Random(seed)
    mixture = Mixture(lookup=1, invented=2, real=2, babyai=1, skill=(0.3, 1.0))
    for _ in range(documents):
        yield from (message["content"] for message in document(rng, mixture))
    for _ in range(200):
        yield " ".join(rng.sample(_PLAIN.split(), 20))
