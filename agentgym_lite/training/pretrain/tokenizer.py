"""The tiny model's tokenizer: byte-level BPE learned on the corpus, with the special tokens and the chat layout of Qwen2.5."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import Qwen2Tokenizer

from agentgym_lite.training.pretrain.corpus import Mixture, document

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
#: English around the environments, so that a reader's own words do not fall apart into bytes.
_PLAIN = "system user assistant Thought Action the a an is are to of in on it you your not and or then so because first next done yes no"


def train_tokenizer(vocab_size: int, documents: int = 6000, seed: int = 1) -> Any:
    """A ``Qwen2Tokenizer`` of at most ``vocab_size`` tokens, learned on ``documents`` chats.

    The class matters: ``AutoTokenizer`` loads it for every Qwen2 model, whatever the saved files say, and with it Qwen2's normaliser
    and its splitting of text before the merges (a digit is always a token of its own).
    """
    like_qwen: Any = Qwen2Tokenizer()._tokenizer
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer, tokenizer.pre_tokenizer = like_qwen.normalizer, like_qwen.pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=list(SPECIAL), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(_texts(documents, seed), trainer)
    learned = json.loads(tokenizer.to_str())["model"]
    merges: Any = [tuple(pair) for pair in learned["merges"]]
    qwen = Qwen2Tokenizer(
        vocab=learned["vocab"],
        merges=merges,
        eos_token="<|im_end|>",
        extra_special_tokens=list(SPECIAL),
    )
    qwen.chat_template = CHAT_TEMPLATE
    return qwen


def _texts(documents: int, seed: int) -> Iterator[str]:
    rng = random.Random(seed)
    mixture = Mixture(lookup=1, invented=2, real=2, babyai=1, careless=0.3)
    for _ in range(documents):
        yield from (message["content"] for message in document(rng, mixture))
    for _ in range(200):
        yield " ".join(rng.sample(_PLAIN.split(), 20))
