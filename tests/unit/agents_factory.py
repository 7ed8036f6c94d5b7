"""A toy environment with partial rewards, a tokenizer of bytes, and collectors with scripted replies, for tests of agents."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from agentgym_envs.agents import Decision
from agentgym_envs.core import Environment, Observation, Split, StepResult
from agentgym_lite.agents import ChatRenderer, ReAct, Scaffold
from agentgym_lite.client import SessionPool
from agentgym_lite.config import RolloutConfig
from agentgym_lite.rollout import Collector, EpisodeSpec, ScriptedEngine, Trajectory

TEMPLATE = """{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


class Sums(Environment):
    """Reach the item's number by ``add N``; every step on the way pays its share of the goal, beyond it the episode fails."""

    name: ClassVar[str] = "sums"
    version: ClassVar[str] = "1"
    instructions: ClassVar[str] = "Count. Reply in this form:\nThought: why\nAction: add N\nGood luck."
    log: ClassVar[list[str]] = []

    @classmethod
    def items(cls, split: Split) -> list[str]:
        return [f"sums_{i}" for i in range(1, 10)]

    @classmethod
    def task_of(cls, item_id: str | int) -> str:
        return "all"

    def reset(self, item_id: str | int, seed: int = 0) -> Observation:
        self.log.append(f"reset {item_id} {seed}")
        self.goal, self.value = self.item_index(item_id), 0
        return Observation(f"goal {self.goal}")

    def step(self, action: str) -> StepResult:
        self.log.append(action)
        verb, _, number = action.partition(" ")
        invalid = verb != "add" or not number.isdecimal()
        before, self.value = self.value, self.value + (0 if invalid else int(number))
        over = self.value > self.goal
        reward = 0.0 if over else (self.value - before) / self.goal
        success = self.value == self.goal
        return StepResult(Observation(f"value {self.value}"), reward, success or over, {"success": success, "invalid": invalid})

    def available_actions(self) -> list[str]:
        return ["add 1"]

    def render(self) -> dict[str, Any]:
        return {"kind": self.name, "text": str(self.value), "goal": self.goal}


class Expert:
    """Adds 1 until the goal is reached."""

    def reset(self, observation: Observation, render: Callable[[], dict[str, Any]]) -> None:
        pass

    def act(self, observation: Observation) -> Decision:
        return Decision("add 1", "one more")


def shouting(env: str) -> ReAct:
    """A format whose system message is the environment's name."""

    class Shouting(ReAct):
        def system_prompt(self, instructions: str) -> str:
            return env.upper()

    return Shouting()


@cache
def renderer() -> ChatRenderer:
    """One token per byte, and the ChatML tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bpe = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|im_end|>")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.chat_template = TEMPLATE
    return ChatRenderer(tokenizer)


class Said:
    """An engine that gives ``replies`` one after the other to a single episode; ``prompts`` are the ids that each was an answer to."""

    def __init__(self, replies: list[str], max_length: int = 20_000) -> None:
        self.prompts: list[list[int]] = []
        self._replies = replies
        self.engine = ScriptedEngine(self._next, stop_ids=renderer().stop_ids, max_sessions=1, max_length=max_length)

    def _next(self, session: int, turn: int, context: list[int]) -> list[int]:
        reply = self._replies[len(self.prompts) % len(self._replies)]
        self.prompts.append(context)
        return renderer().reply(reply)

    def play(self, scaffold: Scaffold, item: int = 3, max_rounds: int = 4, max_new_tokens: int = 400) -> Trajectory:
        with SessionPool("sums") as pool:
            settings = RolloutConfig(max_length=20_000, max_new_tokens=max_new_tokens)
            collector = Collector(self.engine, renderer(), {"sums": pool}, scaffold, settings)
            [trajectory] = collector.collect([EpisodeSpec("sums", f"sums_{item}", 5)], max_rounds, 0)
        assert not self.engine.opened
        return trajectory


def texts(trajectory: Trajectory) -> list[str]:
    """Rows as text, with what the policy sampled in «marks»."""
    out = []
    for row in trajectory.rows:
        parts, start = [], 0
        for i in range(1, len(row) + 1):
            if i == len(row) or row.action_mask[i] != row.action_mask[start]:
                text = renderer().tokenizer.decode(row.token_ids[start:i])
                parts.append(f"«{text}»" if row.action_mask[start] else text)
                start = i
        out.append("".join(parts).replace("<|im_start|>", "<").replace("<|im_end|>", ">"))
    return out
