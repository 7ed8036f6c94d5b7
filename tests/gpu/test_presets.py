"""The presets of ``configs/paper`` on a CUDA device, with the tiny model in place of Qwen2.5."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from agentgym_lite.config import Config, load_config
from agentgym_lite.training import Trainer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here (see `agl doctor`)"),
]

ROOT = Path(__file__).resolve().parents[2]
PAPER = ROOT / "configs" / "paper"
#: What fits the tiny model and a test.
SMALL = [
    "model.path=tiny", "rollout.max_length=2048", "rollout.max_new_tokens=32", "envs.0.rounds={type: fixed, rounds: 3}",
    "rollout.engine=native", "run.steps=2", "run.groups_per_step=2", "algorithm.minibatches=2", "algorithm.group_size=4",
]  # fmt: skip


@pytest.mark.parametrize("preset", ["lora", "full"])
def test_a_preset_trains_on_cuda(preset: str, tmp_path: Path) -> None:
    config = load_config(PAPER / "babyai_fixed.yaml", [*SMALL, f"run.out={tmp_path}"], [preset])
    assert isinstance(config, Config)
    trainer = Trainer(config)
    result = trainer.train()
    assert next(trainer.model.parameters()).is_cuda
    assert [m["optim/updates"] for m in result.history] == [2, 2]
    assert all(m["engine/logp_diff_mean"] < 0.05 for m in result.history)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="FSDP2 over NCCL needs two CUDA devices")
def test_the_full_preset_trains_on_two_devices(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "agentgym_lite.cli", "train"]
    settings = [str(PAPER / "babyai_fixed.yaml"), "--preset", "full", *SMALL, f"run.out={tmp_path}"]
    done = subprocess.run(
        [*command, *settings], capture_output=True, text=True, check=False, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    assert "2 steps done" in done.stdout
