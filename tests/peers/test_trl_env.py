"""TRL's own ``GRPOTrainer`` for two steps on our environments, by both of its hooks, with the shipped tiny model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="pip install -e '.[peers]' to check against TRL")

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from agentgym_lite.client.trl import environment_factory
from agentgym_lite.config import RolloutConfig
from agentgym_lite.models import load_model, load_tokenizer
from agentgym_lite.rollout.trl import TrlRollouts, episode_reward, item_rows, tool_rows

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")


def settings(out: Path, **options: Any) -> GRPOConfig:
    common = {"per_device_train_batch_size": 2, "num_generations": 2, "max_steps": 1, "learning_rate": 1e-3, "logging_steps": 1}
    cpu = {"use_cpu": True, "bf16": False, "report_to": [], "save_strategy": "no"}
    return GRPOConfig(output_dir=str(out), **common, **cpu, **options)


def sampled(completions: Any, completion_ids: list[list[int]], **_: Any) -> list[float]:
    """A reward that differs within a group, so that there is something to learn."""
    return [float(i) for i in range(len(completion_ids))]


def test_rollout_func_trains_on_the_sampled_tokens(tmp_path: Path) -> None:
    model, tokenizer = load_model(), load_tokenizer()
    before = [p.detach().clone() for p in model.parameters()]
    rollouts = TrlRollouts({"babyai": "local"}, max_rounds=2, rollout=RolloutConfig(max_new_tokens=32))
    trainer = GRPOTrainer(
        model,
        reward_funcs=[episode_reward, sampled],
        rollout_func=rollouts,
        train_dataset=Dataset.from_list(item_rows("babyai", ["babyai_3", "babyai_43"])),
        processing_class=tokenizer,
        args=settings(tmp_path),
    )
    trainer.train()
    log = trainer.state.log_history[0]
    assert log["rewards/episode_reward/mean"] == pytest.approx(sum(t.reward for t in rollouts.trajectories) / 2, abs=1e-6)
    assert len(rollouts.trajectories) == 2
    assert len({t.spec.group for t in rollouts.trajectories}) == 1
    assert any(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_environment_factory_pays_the_environments_reward(tmp_path: Path) -> None:
    from trl.chat_template_utils import qwen2_5_chat_template

    tokenizer = load_tokenizer()
    tokenizer.chat_template = qwen2_5_chat_template  # the tiny model's own knows no tools
    trainer = GRPOTrainer(
        load_model(),
        environment_factory=environment_factory("textcraft"),
        train_dataset=Dataset.from_list(tool_rows("textcraft", ["textcraft_3"])),
        processing_class=tokenizer,
        args=settings(tmp_path, max_completion_length=24, max_tool_calling_iterations=1),
    )
    assert [tool.__name__ for tool in trainer.tools] == ["act"]
    trainer.train()
    assert trainer.state.log_history[0]["rewards/TrlEnvironment/mean"] == 0.0
