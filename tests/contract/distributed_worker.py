"""One process of a run of several, started by ``test_distributed.py``: ``python distributed_worker.py TASK OUT``."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
import trainer_factory as toy

from agentgym_lite.config import parse_config
from agentgym_lite.lora import frozen_reference, with_lora
from agentgym_lite.models import checkpoint_layers
from agentgym_lite.rollout.types import EpisodeSpec, StopReason, TokenRow, Trajectory, Turn
from agentgym_lite.sharding import whole
from agentgym_lite.training import Trainer
from agentgym_lite.training.batch import Batch
from agentgym_lite.training.distributed import World
from agentgym_lite.training.update import PolicyUpdater

#: Settings that reach every exchange of an update, and how many episodes the batch has.
CASES: dict[str, tuple[dict[str, Any], int]] = {
    "grpo_kl_minibatches": ({"epochs": 2, "minibatches": 2, "kl_coef": 0.05, "aggregation": "seq_mean_token_mean"}, 7),
    "token_mean_entropy": ({"kl_coef": 0.0, "entropy_coef": 0.01}, 6),
    "ppo_separate_critic": ({"name": "ppo", "critic": "separate", "kl_coef": 0.05, "epochs": 2}, 5),
    "ppo_head": ({"name": "ppo", "critic": "head", "kl_coef": 0.0}, 5),
    "one_row_one_rank_empty": ({"kl_coef": 0.05, "zero_variance": "keep"}, 1),
}


def config_for(out: Path, steps: int, **sections: Any) -> Any:
    """Two groups of three episodes on two processes, with everything on that a checkpoint must keep."""
    data: dict[str, Any] = {
        "algorithm": {"group_size": 3, "epochs": 2, "minibatches": 2, "kl_coef": 0.05, "entropy_coef": 0.01},
        "run": {"steps": steps, "groups_per_step": 2, "save_every": 1},
    }
    for name, change in sections.items():
        data[name] = data.get(name, {}) | change
    return toy.make_config(out, **data)


def reward(t: Trajectory) -> float:
    """Depends on what was sampled; every group has variance."""
    return (sum(t.rows[0].token_ids) % 7 + t.spec.sample) / 10


def episode(number: int) -> Trajectory:
    """Made-up tokens, ever longer, in groups of three."""
    rng = np.random.default_rng(number)
    row, turns = TokenRow(), []
    for turn in range(1 + number % 3):
        row.append_context([int(i) for i in rng.integers(0, 9, 2 + 5 * number)], turn)
        start = len(row)
        ids = [int(i) for i in rng.integers(0, 9, 1 + 2 * number)]
        row.append_action(ids, [-1.0] * len(ids), turn)
        turns.append(Turn("", "", None, reward=float(rng.random()), row=0, start=start, end=len(row)))
    spec = EpisodeSpec("echo", f"echo_{number // 3}", sample=number % 3)
    return Trajectory(spec, rows=[row], turns=turns, stop_reason=StopReason.SUCCESS)


def update(algorithm: dict[str, Any], episodes: int, world: World, lora: bool, again: bool) -> dict[str, torch.Tensor]:
    """Gradients (``grad/``), weights and metrics after one step, whole."""
    config = toy.make_config(Path("x"), algorithm=algorithm, optim={"lr": 1e-3, "micro_batch_tokens": 64})
    model = with_lora(toy.make_model(), parse_lora() if lora else None, 0)
    if lora:
        with torch.no_grad():
            for name, p in model.named_parameters():
                if "lora_B" in name:  # zero at first: A would get no gradient
                    p.copy_(torch.linspace(-0.1, 0.1, p.numel()).view_as(p))
    if again:
        checkpoint_layers(model)
    reference = frozen_reference(model) if config.algorithm.kl_coef else None
    updater = PolicyUpdater(model, config.algorithm, config.optim, temperature=1.0, seed=0, reference=reference, world=world)
    metrics = updater.update(Batch.from_trajectories([episode(i) for i in range(episodes)]), 1)
    out = {f"grad/{n}": whole(p.grad) for n, p in updater.parameters.items()}
    out |= {n: whole(p.detach()) for n, p in updater.parameters.items()}
    return out | {f"metric/{k}": torch.tensor(v) for k, v in metrics.items()}


def parse_lora() -> Any:
    return parse_config({"envs": [{"name": "echo"}], "model": {"lora": {"r": 2, "alpha": 4}}}).model.lora


def gradients(world: World) -> None:
    """Every case in all processes together and in this one alone."""
    runs = [(name, *case, lora, again) for name, case in CASES.items() for lora, again in [(False, False)]]
    runs += [("lora", *CASES["grpo_kl_minibatches"], True, False), ("recompute", *CASES["grpo_kl_minibatches"], False, True)]
    for name, algorithm, episodes, lora, again in runs:
        together = update(algorithm, episodes, world, lora, again)
        alone = update(algorithm, episodes, World(), lora, again)
        assert together.keys() == alone.keys(), (name, together.keys() ^ alone.keys())
        assert float(alone["metric/optim/updates"]) >= 1, name
        for key, value in alone.items():
            torch.testing.assert_close(together[key], value, rtol=2e-4, atol=2e-6, msg=lambda m, n=name, k=key: f"{n}: {k}: {m}")


def train(out: Path, steps: int, world: World, resume: bool = False, **sections: Any) -> None:
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(99 if resume else 0)
    config = config_for(out, steps, **sections)
    Trainer(config, model=toy.make_model(), tokenizer=toy.make_tokenizer(), reward_fn=reward, world=world).train(resume=resume)


def runs(out: Path, world: World) -> None:
    """Unbroken and broken runs, of several processes and of one; compared by the test."""
    lora = {"model": {"lora": {"r": 2, "alpha": 4}}}
    for name, sections in (("full", {}), ("lora", lora)):
        train(out / f"{name}_straight", 3, world, **sections)
        train(out / f"{name}_broken", 1, world, **sections)
        train(out / f"{name}_broken", 3, world, resume=True, **sections)
    ppo = {"algorithm": {"name": "ppo", "critic": "separate", "group_size": 3}}
    train(out / "ppo_straight", 2, world, **ppo)
    train(out / "ppo_broken", 1, world, **ppo)
    train(out / "ppo_broken", 2, world, resume=True, **ppo)
    train(out / "empty", 1, world, run={"groups_per_step": 1}, algorithm={"group_size": 1, "name": "ppo"})
    if world.is_main:
        train(out / "alone", 1, World())
    world.gather(None)
    train(out / "alone", 2, world, resume=True)


def stop(out: Path, world: World, how: str) -> None:
    """Process 1 is killed, or fails, in step 2."""

    def fail(t: Trajectory) -> float:
        if world.rank == 1 and (out / "checkpoints" / "step_000001").exists():
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "frozen":
                os.kill(os.getpid(), signal.SIGSTOP)
            raise ValueError("the reward function is broken")
        return reward(t)

    config = config_for(out, 1000)
    Trainer(config, model=toy.make_model(), tokenizer=toy.make_tokenizer(), reward_fn=fail, world=world).train()


def main() -> None:
    task, out = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)
    toy.register()
    world = World.from_environment()
    began = time.monotonic()
    if task == "gradients":
        gradients(world)
    elif task == "runs":
        runs(out, world)
    else:
        stop(out, world, task)
    print(f"done in {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
