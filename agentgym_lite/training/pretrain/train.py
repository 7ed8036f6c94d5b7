"""Pre-training of the tiny base model: next-token prediction on the corpus, copying first, then play.

The loss of a reply's token has weight 1, that of any other token ``CONTEXT_WEIGHT``: what environments say is practice in copying, too.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset
from transformers import Qwen2Config, Qwen2ForCausalLM

from agentgym_lite.agents import ChatRenderer
from agentgym_lite.models import load_model, load_tokenizer
from agentgym_lite.training.pretrain.circuits import init_copy_circuits
from agentgym_lite.training.pretrain.corpus import Message, Mixture, document
from agentgym_lite.training.pretrain.tokenizer import train_tokenizer

CONTEXT_WEIGHT = 0.1


@dataclass(frozen=True)
class Phase:
    """``tokens`` (in millions) of one mixture."""

    tokens: float
    mixture: Mixture


@dataclass(frozen=True)
class PretrainConfig:
    """The recipe of the shipped model: sizes, optimizer and phases."""

    vocab_size: int = 2048
    #: Chats that the tokenizer is learned on.
    tokenizer_documents: int = 6000
    hidden_size: int = 192
    intermediate_size: int = 512
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    rope_theta: float = 1e6
    init_std: float = 0.05
    lr: float = 2e-3
    final_lr: float = 1e-4
    warmup_steps: int = 50
    weight_decay: float = 0.01
    batch_tokens: int = 3072
    seed: int = 0
    #: Start with the attention patterns of ``circuits.py``; without them the weights are those of transformers' initialisation.
    copy_circuits: bool = True
    phases: tuple[Phase, ...] = (
        Phase(3, Mixture(lookup=0.6, invented=0.3, real=0.0, babyai=0.1, skill=(1.0, 1.0))),
        Phase(19, Mixture(lookup=0.08, invented=0.47, real=0.30, babyai=0.15, careless=0.08)),
        Phase(4, Mixture(lookup=0.02, invented=0.3, real=0.38, babyai=0.3, careless=0.4)),
    )

    @classmethod
    def finishing(cls) -> PretrainConfig:
        """The second part of the recipe, from the model that the first has made: play of which more than half is careless."""
        phase = Phase(2.5, Mixture(lookup=0.0, invented=0.2, real=0.4, babyai=0.4, careless=0.62))
        return cls(lr=3e-4, seed=1, phases=(phase,))


def new_model(config: PretrainConfig, vocab: int) -> Qwen2ForCausalLM:
    """A Qwen2 model with fresh weights; ``vocab`` is rounded up to a multiple of 64."""
    torch.manual_seed(config.seed)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=-(-vocab // 64) * 64,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.kv_heads,
            max_position_embeddings=4096,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
            initializer_range=config.init_std,
            tie_word_embeddings=True,
        )
    )
    if config.copy_circuits:
        init_copy_circuits(model)
    return model


def encode(renderer: ChatRenderer, messages: list[Message]) -> tuple[list[int], list[float]]:
    """Ids and loss weights of a chat, laid out exactly as in a rollout; the end token of every reply counts as part of it."""
    first = next(i for i, m in enumerate(messages) if m["role"] == "assistant")
    ids = renderer.opening(messages[:first])
    weights = [CONTEXT_WEIGHT] * len(ids)
    for i in range(first, len(messages), 2):
        reply = [*renderer.tokenizer.encode(messages[i]["content"], add_special_tokens=False), renderer.end_of_turn]
        ids += reply
        weights += [1.0] * len(reply)
        if i + 1 < len(messages):
            delta = renderer.next_turn(messages[: i + 2], reply, finished_by_stop=True).ids
            ids += delta
            weights += [CONTEXT_WEIGHT] * len(delta)
    return ids, weights


class Batches(IterableDataset[tuple[Tensor, Tensor]]):
    """Endless batches ``(ids, weights)`` of shape (B, T), about ``batch_tokens`` tokens each, of documents of like length."""

    def __init__(self, tokenizer: Any, mixture: Mixture, batch_tokens: int, seed: int) -> None:
        self._renderer = ChatRenderer(tokenizer)
        self._mixture, self._batch_tokens, self._seed = mixture, batch_tokens, seed

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        torch.set_num_threads(1)
        rng = random.Random(self._seed)
        while True:
            pool = sorted((encode(self._renderer, document(rng, self._mixture)) for _ in range(160)), key=lambda doc: len(doc[0]))
            batches: list[list[tuple[list[int], list[float]]]] = [[]]
            for doc in pool:
                if batches[-1] and len(doc[0]) * (len(batches[-1]) + 1) > self._batch_tokens:
                    batches.append([])
                batches[-1].append(doc)
            rng.shuffle(batches)
            yield from map(_pad, batches)


def _pad(docs: list[tuple[list[int], list[float]]]) -> tuple[Tensor, Tensor]:
    length = max(len(ids) for ids, _ in docs)
    ids = torch.zeros(len(docs), length, dtype=torch.long)
    weights = torch.zeros(len(docs), length)
    for row, (doc, weight) in enumerate(docs):
        ids[row, : len(doc)] = torch.tensor(doc)
        weights[row, : len(doc)] = torch.tensor(weight)
    return ids, weights


def loss_of(model: Any, ids: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted mean cross-entropy of the next token, and the plain mean over replies. Right padding has weight 0."""
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.model(ids[:, :-1]).last_hidden_state
        target_weights = weights[:, 1:]
        counted = target_weights > 0
        logits = model.lm_head(hidden[counted])
    losses = F.cross_entropy(logits.float(), ids[:, 1:][counted], reduction="none")
    w = target_weights[counted]
    return (losses * w).sum() / w.sum(), losses.detach()[w == 1].mean()


def pretrain(config: PretrainConfig, out: Path, start: Path | None = None, stop_after: float = math.inf) -> None:
    """Train and save model, tokenizer and ``pretrain.json`` (recipe, loss curve) under ``out``.

    ``start`` goes on from a saved model instead of a new one. ``stop_after`` (millions of tokens) ends early, with the learning rates of
    the whole recipe.
    """
    if start is None:
        tokenizer = train_tokenizer(config.vocab_size, config.tokenizer_documents)
        model = new_model(config, len(tokenizer))
    else:
        tokenizer, model = load_tokenizer(start), load_model(start)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, betas=(0.9, 0.98), weight_decay=config.weight_decay)
    total = sum(phase.tokens for phase in config.phases) * 1e6
    seen, step, started = 0, 0, time.time()
    curve: list[tuple[float, float]] = []
    smooth = math.nan
    for number, phase in enumerate(config.phases):
        end = seen + phase.tokens * 1e6
        source = Batches(tokenizer, phase.mixture, config.batch_tokens, config.seed * 1000 + number + 1)
        for ids, weights in DataLoader(source, batch_size=None, num_workers=1, prefetch_factor=8):
            progress = seen / total
            rate = config.final_lr + 0.5 * (config.lr - config.final_lr) * (1 + math.cos(math.pi * progress))
            for group in optimizer.param_groups:
                group["lr"] = rate * min(1.0, (step + 1) / config.warmup_steps)
            loss, reply_loss = loss_of(model, ids, weights)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            seen, step = seen + int((weights > 0).sum()), step + 1
            smooth = reply_loss.item() if math.isnan(smooth) else 0.98 * smooth + 0.02 * reply_loss.item()
            if step % 100 == 0:
                curve.append((round(seen / 1e6, 3), round(smooth, 4)))
                print(f"step {step}  {seen / 1e6:.2f}M tokens  reply loss {smooth:.3f}  {time.time() - started:.0f} s", flush=True)
            if step % 500 == 0:
                _save(model, tokenizer, config, curve, out)
            if seen >= min(end, stop_after * 1e6):
                break
        if seen >= stop_after * 1e6:
            break
    _save(model, tokenizer, config, curve, out)


def _save(model: Any, tokenizer: Any, config: PretrainConfig, curve: list[tuple[float, float]], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    (out / "pretrain.json").write_text(json.dumps({"config": asdict(config), "reply_loss": curve}, indent=1))
