"""A toy world for trainer tests: an instant environment, a tokenizer of a few whole words and a random-init Qwen2."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import torch
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from agentgym_envs import core
from agentgym_envs.core import Environment, Observation, Split, StepResult
from agentgym_lite.config import Config, parse_config

COLOURS = ("red", "green", "blue")
TEMPLATE = """{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' + '\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


class Echo(Environment):
    """Say the colour that is shown, ``ROUNDS`` times; each right answer pays ``1 / ROUNDS``, all right is success."""

    name: ClassVar[str] = "echo"
    version: ClassVar[str] = "1"
    instructions: ClassVar[str] = "say"
    ROUNDS: ClassVar[int] = 2

    def __init__(self) -> None:
        self._colours: list[str] = []

    @classmethod
    def items(cls, split: Split) -> list[str]:
        return [f"{cls.name}_{i}" for i in (range(6) if split == "train" else range(6, 9))]

    @classmethod
    def task_of(cls, item_id: str | int) -> str:
        return COLOURS[cls.item_index(item_id) % 3]

    def reset(self, item_id: str | int, seed: int = 0) -> Observation:
        first = self.item_index(item_id)
        self._colours = [COLOURS[(first + k) % 3] for k in range(self.ROUNDS)]
        self._turn, self._right = 0, 0
        return Observation(self._colours[0])

    def step(self, action: str) -> StepResult:
        right = action == self._colours[self._turn]
        self._turn, self._right = self._turn + 1, self._right + right
        done = self._turn == self.ROUNDS
        success = done and self._right == self.ROUNDS
        observation = Observation("end" if done else self._colours[self._turn])
        info = {"success": success, "invalid": action not in COLOURS, "score": self._right}
        return StepResult(observation, right / self.ROUNDS, done, info)

    def available_actions(self) -> list[str]:
        return list(COLOURS)

    def render(self) -> dict[str, Any]:
        return {"kind": self.name, "text": " ".join(self._colours)}


class Other(Echo):
    """The same under another name, for runs on two environments."""

    name: ClassVar[str] = "other"


class Broken(Echo):
    """Cannot start the items of one colour."""

    name: ClassVar[str] = "broken"

    def reset(self, item_id: str | int, seed: int = 0) -> Observation:
        if self.task_of(item_id) == "red":
            raise RuntimeError("the server burns")
        return super().reset(item_id, seed)


def register() -> None:
    """Make the toy environments known under their names, in this process."""
    sys.modules.setdefault("trainer_factory", sys.modules[__name__])
    for cls in (Echo, Other, Broken):
        core.register(cls.name, f"trainer_factory:{cls.__name__}")


@cache
def make_tokenizer() -> PreTrainedTokenizerFast:
    """Whole replies are single tokens, so that an untrained model says something sensible now and then."""
    words = ["?", "system", "user", "assistant", "say", "end", *COLOURS]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", unk_token="?")
    fast.add_tokens([AddedToken(s, special=True, normalized=False) for s in ("<|im_start|>", "<|im_end|>", "<|endoftext|>")])
    fast.add_tokens([AddedToken(f"Action: {c}", special=False, normalized=False) for c in COLOURS])
    fast.chat_template = TEMPLATE
    return fast


def make_model(seed: int = 0, tied: bool = True) -> Qwen2ForCausalLM:
    """Two layers, width 32, 15 tokens; the global generator is left as it was."""
    state = torch.get_rng_state()
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(make_tokenizer()),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=tied,
        initializer_range=0.1,
        bos_token_id=None,
        eos_token_id=make_tokenizer().eos_token_id,
    )
    model = Qwen2ForCausalLM(config)
    torch.set_rng_state(state)
    return model


def make_config(out: Path, **sections: dict[str, Any]) -> Config:
    """A small, quick run; ``sections`` change single settings, e.g. ``optim={"lr": 1e-2}``."""
    data: dict[str, Any] = {
        "envs": [{"name": "echo", "rounds": {"type": "fixed", "rounds": 2}}],
        "algorithm": {"group_size": 4},
        "rollout": {"max_new_tokens": 2, "max_length": 64, "max_sessions": 8},
        "optim": {"lr": 1e-2},
        "run": {"steps": 3, "groups_per_step": 3, "out": str(out), "save_every": 100},
    }
    for name, change in sections.items():
        data[name] = change if isinstance(change, list) else {**data.get(name, {}), **change}
    return parse_config(data)
