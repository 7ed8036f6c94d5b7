"""Memory per device, item by item, and the moment at which most of it is held.

The engine's cache, all weights and the optimizer's moments are held throughout; what else there is depends on the moment: sampling
episodes, the passes of an update, or the optimizer's step. ``benchmarks/plan_memory.py`` holds the formulas against measured peaks.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentgym_lite.config import Config, PPOConfig
from agentgym_lite.plan.model import ModelFacts
from agentgym_lite.rollout.native import PROMPT_TOKENS
from agentgym_lite.training.logprobs import CHUNK_LOGITS

GIB = 2**30
_MOMENTS = ("always", "sampling", "update", "step")
_BYTES = {"float32": 4, "bfloat16": 2, "mixed": 4}
#: Copies of a chunk of logits that the loss holds at its worst moment: scaled, log-softmax, and three of the entropy.
_LOGIT_COPIES = 5
#: Copies of the logits of one decoding step that sampling holds: scaled, exponentials, their running sum, targets.
_SAMPLE_COPIES = 4
#: What a CUDA context takes, and the share that the allocator cannot use.
_CUDA_CONTEXT, _CUDA_WASTE = 0.8 * GIB, 0.05


@dataclass(frozen=True)
class Machine:
    """The devices of a run; ``memory`` in bytes per device, ``nodes`` is their number divided by those of one machine."""

    device: str  #: ``cpu`` or ``cuda``
    memory: float
    devices: int = 1


@dataclass(frozen=True)
class Item:
    """Bytes on one device, and when they are held: ``always``, ``sampling``, ``update`` or ``step``."""

    name: str
    bytes: float
    when: str


@dataclass(frozen=True)
class Memory:
    """All items of one device."""

    items: list[Item]

    def at(self, moment: str) -> float:
        """Bytes held at ``sampling``, ``update`` or ``step``."""
        return sum(i.bytes for i in self.items if i.when in ("always", moment))

    @property
    def moment(self) -> str:
        """When most is held."""
        return max(_MOMENTS[1:], key=self.at)

    @property
    def peak(self) -> float:
        """Most bytes held at any moment."""
        return self.at(self.moment)


def plan_memory(config: Config, model: ModelFacts, machine: Machine) -> Memory:
    """What one device of ``machine`` holds during a run of ``config``."""
    n = machine.devices
    weight = _BYTES[config.model.dtype]
    trained = 4 if config.model.lora else weight  # adapters are float32 over bfloat16 weights
    items = [Item("weights", model.parameters * weight / n, "always")]
    if config.model.lora:
        items.append(Item("adapters", model.trainable * trained / n, "always"))
    elif config.algorithm.kl_coef > 0:
        items.append(Item("reference weights", model.parameters * weight / n, "always"))
    critic = _critic_parameters(config, model)
    if critic:
        items.append(Item("critic weights", critic * weight / n, "always"))
    learned = (model.trainable * trained + critic * weight) / n
    items += [
        Item("optimizer moments", 2 * learned, "always"),
        Item("gradients", learned, "update"),
        Item("gradients", learned, "step"),
        Item("optimizer's temporaries", learned if machine.device == "cuda" else 0.0, "step"),
        *_engine(config, model, machine),
        *_passes(config, model, machine),
    ]
    if machine.device == "cuda":
        held = Memory(items).peak
        items.append(Item("CUDA context and unusable blocks", _CUDA_CONTEXT + _CUDA_WASTE * held, "always"))
    return Memory([i for i in items if i.bytes])


def pass_tokens(config: Config, machine: Machine) -> int:
    """Tokens (padding included) of the largest forward pass of an update: a row that is longer than a pass gets one of its own."""
    rollout, optim, algorithm = config.rollout, config.optim, config.algorithm
    rows = -(-config.run.groups_per_step * algorithm.group_size // (algorithm.minibatches * machine.devices))
    longest = rollout.max_length
    return min(rows * longest, max(longest, optim.micro_batch_tokens // longest * longest))


def activation_bytes(model: ModelFacts, dtype: str, lora: bool = False) -> float:
    """Bytes per token that one decoder layer keeps for its backward pass.

    Counted from the operations, in numbers per token: each norm keeps its input, the normalised input and its output; attention keeps
    queries, keys, values and its output; the gated MLP keeps four times its inner size. ``bfloat16`` norms compute in float32; ``mixed``
    casts the input of every matrix product, and keeps the casts. Frozen weights keep no input of theirs; adapters keep one for each, which
    is float32 over bfloat16 weights.
    """
    h, i, q = model.hidden, model.intermediate, model.heads * model.head_dim
    attention = 2 * q + 2 * model.kv_heads * model.head_dim
    if dtype == "float32":
        return 4 * ((4 if lora else 6) * h + attention + 4 * i)
    if lora:
        inputs = 5 * h + q + i
        return 4 * 2 * h + (4 if dtype == "bfloat16" else 2) * inputs + 2 * (attention + 3 * i)
    if dtype == "bfloat16":
        return 2 * (8 * h + attention + 4 * i)
    return 4 * 4 * h + 2 * (5 * h + attention + 4 * i)


def vllm_needs(config: Config, model: ModelFacts) -> float:
    """Bytes that vLLM needs at least: the weights, and the cache of one episode."""
    kind = config.rollout.dtype or ("float32" if config.model.dtype == "mixed" else config.model.dtype)
    per_token = 2 * model.layers * model.kv_heads * model.head_dim
    return _BYTES[kind] * (model.parameters + config.rollout.max_length * per_token)


def _engine(config: Config, model: ModelFacts, machine: Machine) -> list[Item]:
    rollout = config.rollout
    if rollout.engine == "vllm":
        if rollout.vllm.url != "local":
            return []
        when = "sampling" if rollout.vllm.sleep else "always"
        return [Item("vLLM's share (rollout.vllm.gpu_memory)", rollout.vllm.gpu_memory * machine.memory, when)]
    kind = rollout.dtype or ("float32" if config.model.dtype == "mixed" else config.model.dtype)
    weight = _BYTES[kind]
    cache = 4 if machine.device == "cpu" else weight
    sessions = rollout.max_sessions
    per_token = 2 * model.layers * model.kv_heads * model.head_dim * cache
    prompts = min(PROMPT_TOKENS, sessions * rollout.max_length) * (4 * model.intermediate + 6 * model.hidden) * weight
    return [
        Item("engine weights", model.parameters * weight, "always"),
        Item("engine cache", sessions * rollout.max_length * (per_token + 16), "always"),
        Item("engine activations", prompts + _SAMPLE_COPIES * sessions * model.vocab * 4, "sampling"),
    ]


def _passes(config: Config, model: ModelFacts, machine: Machine) -> list[Item]:
    dtype = config.model.dtype
    weight = _BYTES[dtype]
    tokens = pass_tokens(config, machine)
    kept = activation_bytes(model, dtype, config.model.lora is not None)
    casts = 2 * model.layer_parameters if dtype == "mixed" else 0  # autocast's copy of a layer's weights, kept for its backward pass
    logits = min(tokens * model.vocab, CHUNK_LOGITS) * 4 * _LOGIT_COPIES  # as if every token had been sampled
    stream = tokens * model.hidden * weight
    embedding = model.vocab * model.hidden * weight
    if config.model.gradient_checkpointing:  # the logits are gone when the first layer is computed again
        items = [
            Item("activations", (model.layers + 2) * stream, "update"),
            Item("a layer computed again, or the logits", max(tokens * kept + casts, logits), "update"),
        ]
    else:
        items = [
            Item("activations", model.layers * (tokens * kept + casts) + 2 * stream, "update"),
            Item("logits", logits, "update"),
        ]
    if not config.model.lora:
        items.append(Item("gradient of the embeddings, second part", embedding, "update"))
    if machine.devices > 1:
        gathered = (model.outer_parameters + 2 * model.layer_parameters) * weight
        items.append(Item("gathered weights", gathered, "update"))
        if not config.model.lora:
            items.append(Item("gathered gradients", gathered, "update"))
    return items


def _critic_parameters(config: Config, model: ModelFacts) -> int:
    algorithm = config.algorithm
    if not isinstance(algorithm, PPOConfig):
        return 0
    head = 0 if model.tied else model.vocab * model.hidden
    return model.hidden + 1 + (model.parameters - head if algorithm.critic == "separate" else 0)
