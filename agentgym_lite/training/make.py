"""From settings to the trainer of their method."""

from __future__ import annotations

from typing import Any

from agentgym_lite.config import AgentEvolConfig, AnyConfig, Config, DPOConfig, SFTConfig
from agentgym_lite.training.agentevol import AgentEvolTrainer
from agentgym_lite.training.dpo import DPOTrainer
from agentgym_lite.training.loop import TrainLoop
from agentgym_lite.training.sft import SFTTrainer
from agentgym_lite.training.trainer import Trainer

_TRAINERS: dict[type[AnyConfig], type[TrainLoop[Any, Any]]] = {
    Config: Trainer,
    SFTConfig: SFTTrainer,
    DPOConfig: DPOTrainer,
    AgentEvolConfig: AgentEvolTrainer,
}


def make_trainer(config: AnyConfig, **options: Any) -> TrainLoop[Any, Any]:
    """The trainer for a configuration; ``.train(resume=False)`` runs it. ``options`` go to its constructor (``model, tokenizer, on_step``;
    for reinforcement learning also ``reward_fn, schedulers``)."""
    return _TRAINERS[type(config)](config, **options)
