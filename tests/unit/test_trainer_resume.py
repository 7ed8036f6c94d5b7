"""T14: a resumed run equals an unbroken one bitwise, at any step and after a kill."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trainer_factory as toy
from safetensors.torch import load_file
from trainer_factory import Echo, make_config, make_model, make_tokenizer

from agentgym_lite.config import Config, ConfigError
from agentgym_lite.rollout.types import Trajectory
from agentgym_lite.training import CheckpointError, Trainer, TrainResult
from agentgym_lite.training.checkpoint import CheckpointStore

STEPS, STAGE = 6, 3


@pytest.fixture(autouse=True)
def _toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_envs.core._REGISTRY", {})
    toy.register()


def reward(t: Trajectory) -> float:
    """Depends on what was sampled; every group has variance."""
    return (sum(t.rows[0].token_ids) % 7 + t.spec.sample) / 10


def noisy_reward(t: Trajectory) -> float:
    """Draws from all three global generators."""
    return random.random() + float(np.random.rand()) + float(torch.rand(()))


def config_for(out: Path, steps: int = STEPS, **sections: Any) -> Config:
    """Two environments, one with stages; several updates per step with mini-batches, warm-up, KL and entropy."""
    scaling = {"type": "scaling_inter", "rounds": [1, 2], "steps_scaling_inter": STAGE}
    data: dict[str, Any] = {
        "envs": [{"name": "echo", "rounds": scaling}, {"name": "other", "weight": 0.5, "rounds": {"type": "fixed", "rounds": 2}}],
        "algorithm": {"group_size": 3, "epochs": 2, "minibatches": 2, "kl_coef": 0.05, "entropy_coef": 0.01},
        "rollout": {"max_new_tokens": 2, "max_length": 64, "max_sessions": 8},
        "optim": {"lr": 3e-3, "warmup_steps": 4},
        "run": {"steps": steps, "groups_per_step": 3, "save_every": 100, "log_trajectories": 2},
    }
    for name, change in sections.items():
        data[name] = change if isinstance(change, list) else data[name] | change
    return make_config(out, **data)


def train(config: Config, resume: bool = False, reward_fn: Any = reward, **options: Any) -> TrainResult:
    """Train as a process of its own would: the global generators of a resuming one are in another state."""
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(99 if CheckpointStore(config.run.out).steps() else 0)
    return Trainer(config, model=make_model(), tokenizer=make_tokenizer(), reward_fn=reward_fn, **options).train(resume=resume)


def assert_same_run(a: Path, b: Path, step: int = STEPS) -> None:
    """Weights, optimizer, generators, counters, metrics and trajectories; only times and the folder's name may differ."""
    left, right = (CheckpointStore(p).path(step) for p in (a, b))
    for name in ("model.safetensors", "optimizer.safetensors"):
        tensors = load_file(left / name), load_file(right / name)
        assert tensors[0].keys() == tensors[1].keys()
        assert all(torch.equal(tensors[0][k], tensors[1][k]) for k in tensors[0])
    states = [json.loads((p / "state.json").read_text()) for p in (left, right)]
    for state in states:
        state["counters"].pop("elapsed_s")
        for free in ("out", "steps", "save_every", "keep", "log_trajectories"):
            state["config"]["run"].pop(free)
    assert states[0] == states[1]
    metrics = [[untimed(json.loads(x)) for x in (p / "metrics.jsonl").read_text().splitlines()] for p in (a, b)]
    assert [m["step"] for m in metrics[0]] == list(range(1, step + 1))
    assert metrics[0] == metrics[1]
    assert (a / "trajectories.jsonl").read_bytes() == (b / "trajectories.jsonl").read_bytes()


def untimed(metrics: dict[str, float]) -> dict[str, float]:
    return {k: v for k, v in metrics.items() if not k.startswith("time/")}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An unbroken run."""
    out = tmp_path_factory.mktemp("straight")
    with pytest.MonkeyPatch.context() as m:
        m.setattr("agentgym_envs.core._REGISTRY", {})
        toy.register()
        train(config_for(out))
    return out


@pytest.mark.parametrize("k", [1, STAGE - 1, STAGE, STAGE + 1])
def test_resumed_equals_straight(straight: Path, tmp_path: Path, k: int) -> None:
    """Broken before, at and after the boundary of a stage."""
    assert train(config_for(tmp_path, steps=k)).step == k
    result = train(config_for(tmp_path), resume=True)
    assert (result.step, [m["step"] for m in result.history]) == (STEPS, list(range(k + 1, STEPS + 1)))
    assert [m["env/echo/max_rounds"] for m in result.history] == [1 if s <= STAGE else 2 for s in range(k + 1, STEPS + 1)]
    assert_same_run(straight, tmp_path)


def test_resumed_again_and_again_equals_straight(straight: Path, tmp_path: Path) -> None:
    train(config_for(tmp_path, steps=1))
    for steps in range(2, STEPS + 1):
        train(config_for(tmp_path, steps=steps), resume=True)
    assert_same_run(straight, tmp_path)


def test_a_reward_function_that_draws_random_numbers_resumes_too(tmp_path: Path) -> None:
    train(config_for(tmp_path / "a", steps=4), reward_fn=noisy_reward)
    train(config_for(tmp_path / "b", steps=2), reward_fn=noisy_reward)
    train(config_for(tmp_path / "b", steps=4), resume=True, reward_fn=noisy_reward)
    assert_same_run(tmp_path / "a", tmp_path / "b", step=4)


def test_skipped_steps_are_counted_on(tmp_path: Path) -> None:
    train(config_for(tmp_path, steps=2), reward_fn=lambda t: 0.0)
    result = train(config_for(tmp_path, steps=4), resume=True, reward_fn=lambda t: 0.0)
    assert [m["optim/skipped_steps"] for m in result.history] == [3, 4]


def test_an_interrupt_while_collecting_saves_the_last_whole_step(straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(metrics: dict[str, float]) -> None:
        if metrics["step"] == 4:
            monkeypatch.setattr(Echo, "step", lambda self, action: (_ for _ in ()).throw(KeyboardInterrupt))

    with pytest.raises(KeyboardInterrupt):
        train(config_for(tmp_path), on_step=interrupt)
    monkeypatch.undo()
    toy.register()
    assert CheckpointStore(tmp_path).steps() == [4]
    train(config_for(tmp_path), resume=True)
    assert_same_run(straight, tmp_path)


def test_a_damaged_checkpoint_falls_back_to_the_one_before(straight: Path, tmp_path: Path) -> None:
    train(config_for(tmp_path, steps=4, run={"save_every": 2}))
    (CheckpointStore(tmp_path).path(4) / "model.safetensors").write_bytes(b"")
    with pytest.warns(UserWarning, match=r"step_000004' is damaged"):
        result = train(config_for(tmp_path, run={"save_every": 1, "keep": 1}), resume=True)
    assert result.history[0]["step"] == 3
    assert CheckpointStore(tmp_path).steps() == [STEPS]  # the damaged one never took the place of a good one
    assert_same_run(straight, tmp_path)


def test_a_finished_run_resumes_to_itself(straight: Path, tmp_path: Path) -> None:
    shutil.copytree(straight, tmp_path / "r")
    result = train(config_for(tmp_path / "r"), resume=True)
    assert (result.step, result.history) == (STEPS, [])
    assert_same_run(straight, tmp_path / "r")


# -- a kill at a random moment ---------------------------------------------------------------------------------------

SCRIPT = """
import sys
sys.path.insert(0, {here!r})
import trainer_factory as toy
toy.register()
import test_trainer_resume as t
t.train(t.config_for(t.Path({out!r}), steps=10_000, run={{"save_every": 1}}))
"""


def test_a_run_killed_at_a_random_moment_can_be_resumed(straight: Path, tmp_path: Path) -> None:
    script = SCRIPT.format(here=str(Path(__file__).parent), out=str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", script], env=os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())})
    try:
        deadline = time.monotonic() + 120
        while not CheckpointStore(tmp_path).steps():
            assert process.poll() is None, "the run ended by itself"
            assert time.monotonic() < deadline, "no checkpoint after two minutes"
            time.sleep(0.01)
        time.sleep(random.Random().uniform(0.0, 0.5))
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    step = CheckpointStore(tmp_path).steps()[-1]
    steps = max(step + 1, STEPS)
    train(config_for(tmp_path, steps=steps), resume=True)
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == [f"step_{s:06d}" for s in CheckpointStore(tmp_path).steps()]
    if steps == STEPS:
        assert_same_run(straight, tmp_path)
    else:
        train(config_for(tmp_path / "straight", steps=steps))
        assert_same_run(tmp_path / "straight", tmp_path, step=steps)


def test_a_run_killed_before_its_first_checkpoint_starts_again(straight: Path, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "reward/mean": 0.5}\n{"st')
    (tmp_path / "checkpoints" / ".writing-step_000001").mkdir(parents=True)
    with pytest.warns(UserWarning, match="has no checkpoint yet; it starts from the beginning"):
        train(config_for(tmp_path), resume=True)
    assert_same_run(straight, tmp_path)


# -- what may and may not change -------------------------------------------------------------------------------------


def test_another_configuration_is_refused_by_name(tmp_path: Path) -> None:
    train(config_for(tmp_path, steps=1))
    changes: list[tuple[str, dict[str, Any]]] = [
        ("optim.lr", {"optim": {"lr": 0.5}}),
        ("algorithm.group_size", {"algorithm": {"group_size": 2}}),
        ("run.seed", {"run": {"seed": 3}}),
        ("rollout.max_new_tokens", {"rollout": {"max_new_tokens": 1}}),
        ("envs.0.rounds.rounds.1", {"envs": _with_rounds([1, 4])}),
        ("envs.1", {"envs": _with_rounds([1, 2])[:1]}),
    ]
    for name, change in changes:
        with pytest.raises(ConfigError, match=rf"setting '{name}' is .*, but the run to resume was made with"):
            train(config_for(tmp_path, **change), resume=True)


def _with_rounds(rounds: list[int]) -> list[dict[str, Any]]:
    envs = config_for(Path("x")).model_dump()["envs"]
    envs[0]["rounds"]["rounds"] = rounds
    return list(envs)


def test_how_long_and_where_may_change(tmp_path: Path) -> None:
    train(config_for(tmp_path / "a", steps=2))
    (tmp_path / "a").rename(tmp_path / "b")
    train(config_for(tmp_path / "b", run={"save_every": 1, "keep": 5, "time_limit_s": 1000.0}), resume=True)
    assert CheckpointStore(tmp_path / "b").steps() == [2, 3, 4, 5, 6]


def test_another_version_of_the_environment_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(config_for(tmp_path, steps=1))
    monkeypatch.setattr(Echo, "version", "2")
    with pytest.raises(CheckpointError, match="'echo' has version 2, the run to resume was made with 1"):
        train(config_for(tmp_path), resume=True)


def test_a_run_is_never_overwritten_by_a_new_one(tmp_path: Path) -> None:
    train(config_for(tmp_path, steps=1))
    before = (tmp_path / "metrics.jsonl").read_bytes()
    with pytest.raises(ConfigError, match=r"already holds a run \(checkpoint at step 1\); resume it, or choose another folder"):
        train(config_for(tmp_path, steps=1))
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_nothing_to_resume_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"expected a run to resume in .*, found none"):
        train(config_for(tmp_path / "nowhere"), resume=True)
    assert not (tmp_path / "nowhere").exists()
