"""The toy world of ``trainer_factory`` for the methods that learn from trajectories: an expert, settings, comparison of runs."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
import trainer_factory as toy
from safetensors.torch import load_file
from trainer_factory import COLOURS, make_model, make_tokenizer

from agentgym_envs.agents import Decision
from agentgym_envs.core import Observation
from agentgym_lite.agents import ChatRenderer
from agentgym_lite.config import AnyConfig, parse_config
from agentgym_lite.rollout.types import EpisodeSpec, StopReason, TokenRow, Trajectory, Turn
from agentgym_lite.training import TrainResult, make_trainer
from agentgym_lite.training.checkpoint import CheckpointStore


class Expert:
    """Says what it is shown."""

    def reset(self, observation: Observation, render: Callable[[], dict[str, Any]]) -> None:
        pass

    def act(self, observation: Observation) -> Decision:
        return Decision(observation.text)


def register() -> None:
    """The toy environments and their expert."""
    toy.register()
    module = ModuleType("trainer_factory.expert")
    module.Expert = Expert  # type: ignore[attr-defined]
    sys.modules["trainer_factory.expert"] = module


def env(name: str = "echo", **changes: Any) -> dict[str, Any]:
    return {"name": name, "rounds": {"type": "fixed", "rounds": 2}} | changes


def experts(n: int = 12, *names: str) -> dict[str, Any]:
    return {"kind": "expert", "n": n, "envs": [env(name) for name in names or ("echo",)]}


ROLLOUT = {"max_new_tokens": 2, "max_length": 64, "max_sessions": 8}
DEFAULTS: dict[str, dict[str, Any]] = {
    "sft": {
        "data": {"sources": [experts()], "dedupe": "none", "max_length": 64, "eval_share": 0.2},
        "optim": {"lr": 1e-2},
        "run": {"epochs": 2, "batch_size": 4, "eval_every": 2},
    },
    "dpo": {
        "data": {
            "expert": [experts()],
            "own": [{"kind": "policy", "envs": [env()], "samples": 2}],
            "max_length": 64,
            "eval_share": 0.2,
        },
        "rollout": ROLLOUT,
        "optim": {"lr": 3e-3},
        "run": {"epochs": 2, "batch_size": 4, "eval_every": 2},
    },
    "agentevol": {
        "data": {"sources": [experts(4)], "dedupe": "none", "max_length": 64},
        "explore": {"envs": [env()], "items": 6, "samples": 2},
        "evol": {"iterations": 3, "eval_items": 3},
        "rollout": ROLLOUT,
        "optim": {"lr": 1e-2},
        "run": {"epochs": 3, "batch_size": 4},
    },
}


def settings(method: str, out: Path, **sections: dict[str, Any]) -> AnyConfig:
    """A small, quick run; ``sections`` change single settings."""
    data: dict[str, Any] = {"method": method} | {k: dict(v) for k, v in DEFAULTS[method].items()}
    data["run"] |= {"out": str(out), "save_every": 100}
    for name, change in sections.items():
        data[name] = data.get(name, {}) | change
    return parse_config(data)


def train(config: AnyConfig, resume: bool = False, **options: Any) -> tuple[TrainResult, Any]:
    """Train as a process of its own would: the global generators of a resuming one are in another state."""
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(99 if CheckpointStore(config.run.out).steps() else 0)
    trainer = make_trainer(config, **{"model": make_model(), "tokenizer": make_tokenizer(), **options})
    return trainer.train(resume=resume), trainer.model


def untimed(metrics: dict[str, float]) -> dict[str, float]:
    return {k: v for k, v in metrics.items() if not k.startswith("time/")}


def outcome(result: TrainResult) -> list[dict[str, float]]:
    """Everything that a run has reported, without times."""
    return [untimed(m) for m in result.history]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(x) for x in path.read_text().splitlines()]


def assert_same_run(a: Path, b: Path) -> None:
    """Weights, optimizer, metrics and data of two finished runs; only times may differ."""
    stores = [CheckpointStore(p) for p in (a, b)]
    left, right = (s.latest() for s in stores)
    assert left.name == right.name
    names = sorted(p.relative_to(left) for p in left.rglob("*.safetensors"))
    assert names == sorted(p.relative_to(right) for p in right.rglob("*.safetensors"))
    for name in names:
        tensors = load_file(left / name), load_file(right / name)
        assert tensors[0].keys() == tensors[1].keys()
        assert all(torch.equal(tensors[0][k], tensors[1][k]) for k in tensors[0]), name
    metrics = [[untimed(m) for m in lines(p / "metrics.jsonl")] for p in (a, b)]
    assert metrics[0] == metrics[1]
    for name in ("data.jsonl", "explored.jsonl"):
        if (a / name).exists():
            assert (a / name).read_bytes() == (b / name).read_bytes()


def renderer() -> ChatRenderer:
    return ChatRenderer(make_tokenizer())


def episode(item: int, colours: list[str], *, env_name: str = "echo", seed: int = 0, sample: int = 0) -> Trajectory:
    """An episode of ``echo`` in which ``colours`` were said, rendered by hand."""
    r, name = renderer(), f"{env_name}_{item}"
    shown = [COLOURS[(item + k) % 3] for k in range(len(colours))]
    messages = [{"role": "system", "content": "say"}, {"role": "user", "content": shown[0]}]
    row = TokenRow()
    row.append_context(r.opening(messages), -1)
    turns = []
    for k, said in enumerate(colours):
        ids = r.reply(f"Action: {said}")
        start = len(row)
        row.append_action(ids, [0.0] * len(ids), k)
        reward = 0.5 * (said == shown[k])
        turns.append(Turn(shown[k], f"Action: {said}", said, reward, start=start, end=len(row)))
        if k + 1 < len(colours):
            messages += [{"role": "assistant", "content": f"Action: {said}"}, {"role": "user", "content": shown[k + 1]}]
            row.append_context(r.next_turn(messages, ids, True).ids, k + 1)
    won = len(colours) == 2 and colours == shown
    reason = StopReason.SUCCESS if won else StopReason.FAILURE
    return Trajectory(EpisodeSpec(env_name, name, seed, sample), [row], turns, reason, task=shown[0], env_version="1", max_rounds=2)


def logprob(model: Any, t: Trajectory) -> torch.Tensor:
    """Summed log-prob of an episode's replies, from full logits."""
    total = torch.zeros(())
    for row in t.rows:
        ids = torch.tensor(row.token_ids)
        logp = model(input_ids=ids[None]).logits[0, :-1].log_softmax(-1).gather(-1, ids[1:, None])[:, 0]
        total = total + (logp * torch.tensor(row.action_mask[1:])).sum()
    return total


def success_of(model: Any, n: int = 6) -> float:
    """Success of greedy play on the training items."""
    from agentgym_lite.client import SessionPool
    from agentgym_lite.config import RolloutConfig
    from agentgym_lite.training.playing import PolicyPlayer

    with SessionPool("echo") as pool:
        player = PolicyPlayer(model, renderer(), {"echo": pool}, RolloutConfig(**ROLLOUT), 0)
        played = player.play([EpisodeSpec("echo", f"echo_{i}") for i in range(n)], {"echo": 2}, "test", greedy=True)
    return sum(t.success for t in played) / n
