"""T13: two processes train as one does, keep what they have learned, and stop together."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
import distributed_worker as worker
import trainer_factory as toy

from agentgym_lite.config import ConfigError, parse_config
from agentgym_lite.training import Trainer, make_trainer
from agentgym_lite.training.checkpoint import CheckpointStore, read_tensors
from agentgym_lite.training.distributed import PeerFailure, World

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="this build of torch cannot run several processes")

WORKER = Path(__file__).with_name("distributed_worker.py")
Processes = list["subprocess.Popen[str]"]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def start(task: str, out: Path) -> Processes:
    """Two processes as ``torchrun`` would set them up, without its keeper that ends one when the other dies."""
    shared = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    return [
        subprocess.Popen(
            [sys.executable, str(WORKER), task, str(out)],
            env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]


def finish(processes: Processes, timeout: float = 600) -> list[str]:
    """Their outputs; all must have ended well."""
    outputs = [p.communicate(timeout=timeout)[0] for p in processes]
    for p, output in zip(processes, outputs, strict=True):
        assert p.returncode == 0, output
    return outputs


# -- what needs no second process ------------------------------------------------------------------------------------------------------


def test_shares_are_even_and_complete() -> None:
    costs = [9.0, 1.0, 1.0, 7.0, 5.0, 2.0]
    shares = World(size=3).shares(costs)
    assert sorted(i for share in shares for i in share) == list(range(6))
    assert [sum(costs[i] for i in share) for share in shares] == [9.0, 8.0, 8.0]
    assert World(size=3).shares([4.0]) == [[0], [], []]
    assert World().shares([1.0, 5.0]) == [[0, 1]]  # the order of one process is left as it is


def test_slices_cover_everything_once() -> None:
    for n in (0, 1, 5, 16):
        parts = [list(range(n))[World(rank, 3).slice_of(n)] for rank in range(3)]
        assert [i for part in parts for i in part] == list(range(n))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_methods_that_run_in_one_process_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    source = {"kind": "expert", "n": 1, "envs": [{"name": "textcraft", "rounds": {"rounds": 2}}]}
    config = parse_config({"method": "sft", "data": {"sources": [source]}})
    with pytest.raises(ConfigError, match="method 'sft' runs in one process, found 2"):
        make_trainer(config, model=toy.make_model(), tokenizer=toy.make_tokenizer())


# -- two processes ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_gradients_weights_and_metrics_equal_one_process(tmp_path: Path) -> None:
    """For every algorithm's terms, with minibatches, adapters, recomputed layers, and a process without rows; see the worker."""
    finish(start("gradients", tmp_path))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    finish(start("runs", out))
    return out


def contents(folder: Path, stem: str) -> dict[str, torch.Tensor]:
    return dict(read_tensors(folder, stem))


def untimed(path: Path) -> list[dict[str, Any]]:
    lines = [json.loads(x) for x in (path / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in m.items() if not k.startswith("time/")} for m in lines]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "step"), [("full", 3), ("lora", 3), ("ppo", 2)])
def test_a_resumed_run_of_two_processes_equals_an_unbroken_one(runs: Path, name: str, step: int) -> None:
    a, b = runs / f"{name}_straight", runs / f"{name}_broken"
    left, right = (CheckpointStore(p).path(step) for p in (a, b))
    for stem in ("model", "optimizer", "critic"):
        tensors = contents(left, stem), contents(right, stem)
        assert bool(tensors[0]) == (stem != "critic" or name == "ppo")
        assert tensors[0].keys() == tensors[1].keys()
        assert all(torch.equal(tensors[0][k], tensors[1][k]) for k in tensors[0])
    assert [m["step"] for m in untimed(a)] == list(range(1, step + 1))
    assert untimed(a) == untimed(b)
    assert (a / "trajectories.jsonl").read_bytes() == (b / "trajectories.jsonl").read_bytes()


@pytest.mark.slow
def test_each_process_writes_its_part_and_one_reads_them_all(runs: Path) -> None:
    folder = CheckpointStore(runs / "full_straight").latest()
    parts = [load_file(p) for p in sorted(folder.glob("model-*-of-00002.safetensors"))]
    assert len(parts) == 2
    assert all(parts)
    assert not parts[0].keys() & parts[1].keys()
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert type(model).__name__ == "Qwen2ForCausalLM"
    stored = parts[0] | parts[1]
    assert all(torch.equal(stored[n], p) for n, p in model.named_parameters())


@pytest.mark.slow
def test_one_process_goes_on_from_two_and_two_from_one(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_envs.core._REGISTRY", {})
    toy.register()
    for name, sections in (("full", {}), ("lora", {"model": {"lora": {"r": 2, "alpha": 4}}})):
        config = worker.config_for(runs / f"{name}_straight", 4, **sections)
        trainer = Trainer(config, model=toy.make_model(), tokenizer=toy.make_tokenizer(), reward_fn=worker.reward)
        assert [m["step"] for m in trainer.train(resume=True).history] == [4]
    assert [m["step"] for m in untimed(runs / "alone")] == [1, 2]
    # Two processes after one: nearly the step that one would have made (sums are rounded in another order).
    worker.train(tmp_path / "one", 2, World())
    one, two = (contents(CheckpointStore(p).path(2), "model") for p in (tmp_path / "one", runs / "alone"))
    assert all(torch.allclose(one[k], two[k], rtol=1e-3, atol=1e-4) for k in one)


@pytest.mark.slow
def test_a_process_without_episodes_finishes_too(runs: Path) -> None:
    (metrics,) = untimed(runs / "empty")
    assert metrics["episodes/total"] == 1
    assert metrics["optim/updates"] == 2  # two epochs of one minibatch


# -- the end of one is the end of all --------------------------------------------------------------------------------------------------


def end_of(processes: Processes, survivor: int, limit: float) -> str:
    """What ``survivor`` says when it stops, at most ``limit`` seconds after the other has."""
    try:
        other = processes[1 - survivor]
        other.wait(timeout=300)
        began = time.monotonic()
        output = processes[survivor].communicate(timeout=limit)[0]
        assert time.monotonic() - began < limit
        assert processes[survivor].returncode not in (0, None)
        return " ".join(output.split())
    finally:
        for p in processes:
            p.kill()
            p.wait()


@pytest.mark.slow
def test_a_killed_process_ends_the_other_with_a_message(tmp_path: Path) -> None:
    said = end_of(start("killed", tmp_path), survivor=0, limit=60)
    assert "this process stops too. Start the run again with --resume" in said
    assert CheckpointStore(tmp_path).steps()[0] == 1


@pytest.mark.slow
def test_a_failing_process_tells_the_others_why(tmp_path: Path) -> None:
    said = end_of(start("failed", tmp_path), survivor=0, limit=60)
    assert f"{PeerFailure.__name__}: process 1 of 2 failed: ValueError: the reward function is broken" in said
    assert "step_000001" in str(CheckpointStore(tmp_path).latest())


@pytest.mark.slow
def test_a_process_that_falls_silent_is_given_up(tmp_path: Path) -> None:
    processes = start("frozen", tmp_path)
    try:
        said = processes[0].communicate(timeout=300)[0]
        assert processes[0].returncode == 1
        assert "error: process 1 of 2 has given no sign of life for 30 s; this process stops too" in said
        assert processes[1].poll() is None  # it still sleeps
    finally:
        for p in processes:
            p.kill()
            p.wait()
