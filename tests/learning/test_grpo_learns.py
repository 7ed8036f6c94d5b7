"""GRPO from an untrained model to a solved toy environment."""

from __future__ import annotations

from pathlib import Path

import pytest
import trainer_factory as toy
from trainer_factory import make_config, make_model, make_tokenizer

from agentgym_lite.training import Trainer


@pytest.mark.learning
def test_grpo_solves_the_toy_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Say each of two colours as it is shown: right by chance in under 1 % of episodes, a contextual policy after about 70 steps."""
    monkeypatch.setattr("agentgym_envs.core._REGISTRY", {})
    toy.register()
    config = make_config(
        tmp_path,
        algorithm={"group_size": 8, "kl_coef": 0.0, "entropy_coef": 0.2},  # less entropy and it settles on one colour
        rollout={"max_new_tokens": 2, "max_length": 64, "max_sessions": 96},
        optim={"lr": 5e-3},
        run={"steps": 100, "groups_per_step": 12},
    )
    history = Trainer(config, model=make_model(), tokenizer=make_tokenizer()).train().history
    success = [m["success/mean"] for m in history]
    assert max(success[:5]) < 0.1
    assert min(success[-5:]) > 0.9
    assert history[-1]["rate/invalid_action"] < 0.1 < history[0]["rate/invalid_action"]
