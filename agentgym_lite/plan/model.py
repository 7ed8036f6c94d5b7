"""Sizes of a model from its configuration alone: no weight is read and none is allocated."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from agentgym_lite.config import ModelConfig
from agentgym_lite.lora import with_lora
from agentgym_lite.models import model_dir

#: Architectures of hub models that need not be at hand: hidden size, MLP size, layers, heads, key-value heads, vocabulary, tied head.
_QWEN25 = {
    "0.5B": (896, 4864, 24, 14, 2, 151936, True),
    "1.5B": (1536, 8960, 28, 12, 2, 151936, True),
    "3B": (2048, 11008, 36, 16, 2, 151936, True),
    "7B": (3584, 18944, 28, 28, 4, 152064, False),
}
KNOWN_MODELS = {f"Qwen/Qwen2.5-{size}{kind}": sizes for size, sizes in _QWEN25.items() for kind in ("", "-Instruct")}


class PlanError(ValueError):
    """A run that cannot be planned; the message says what was found and what to do."""


@dataclass(frozen=True)
class ModelFacts:
    """Parameters and shapes of a causal LM, adapters included."""

    name: str
    parameters: int  #: of the model itself
    trainable: int  #: those that an optimizer changes: all, or the adapters'
    layer_parameters: int  #: of one decoder layer
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    positions: int  #: longest sequence that the model was made for
    tied: bool  #: whether head and embeddings are one matrix

    @property
    def outer_parameters(self) -> int:
        """What is outside the layers: embeddings, head, last norm."""
        return self.parameters - self.layers * self.layer_parameters


@lru_cache
def model_facts(config: ModelConfig) -> ModelFacts:
    """Facts of ``config.path``: a local model's ``config.json``, a hub model in the local cache, or one of ``KNOWN_MODELS``.

    Raises ``PlanError`` for a hub name of which nothing is known here, ``ModelError`` for a folder without a model.
    """
    import torch
    from transformers import AutoModelForCausalLM

    settings = architecture(config.path)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(settings)
        parameters = sum(p.numel() for p in model.parameters())
        layer = sum(p.numel() for p in model.get_decoder().layers[0].parameters())
        model = with_lora(model, config.lora, 0)
    heads = settings.num_attention_heads
    return ModelFacts(
        name=config.path,
        parameters=parameters,
        trainable=sum(p.numel() for p in model.parameters() if p.requires_grad),
        layer_parameters=layer,
        hidden=settings.hidden_size,
        intermediate=settings.intermediate_size,
        layers=settings.num_hidden_layers,
        heads=heads,
        kv_heads=settings.num_key_value_heads,
        head_dim=getattr(settings, "head_dim", None) or settings.hidden_size // heads,
        vocab=settings.vocab_size,
        positions=settings.max_position_embeddings,
        tied=settings.tie_word_embeddings,
    )


def architecture(path: str) -> Any:
    """The transformers configuration behind a name; no weights."""
    from transformers import AutoConfig, Qwen2Config

    where = model_dir(path)
    if where in KNOWN_MODELS:
        hidden, intermediate, layers, heads, kv_heads, vocab, tied = KNOWN_MODELS[where]
        return Qwen2Config(
            hidden_size=hidden,
            intermediate_size=intermediate,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            vocab_size=vocab,
            tie_word_embeddings=tied,
            max_position_embeddings=32768,
        )
    try:
        return AutoConfig.from_pretrained(where, local_files_only=True)
    except (OSError, ValueError) as e:
        raise PlanError(
            f"nothing is known here about the model '{path}' ({str(e).splitlines()[0]:.120}); give a local folder, download its "
            f"config.json, or take one of {', '.join(KNOWN_MODELS)}"
        ) from None
