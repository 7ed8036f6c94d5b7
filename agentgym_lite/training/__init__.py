"""Training: reinforcement learning, SFT, DPO and AgentEvol, with checkpoints that resume exactly."""

from agentgym_lite.training.agentevol import AgentEvolTrainer
from agentgym_lite.training.checkpoint import CheckpointError, latest_checkpoint
from agentgym_lite.training.data import DataError
from agentgym_lite.training.dpo import DPOTrainer
from agentgym_lite.training.errors import TrainingError
from agentgym_lite.training.loop import TrainLoop, TrainResult
from agentgym_lite.training.make import make_trainer
from agentgym_lite.training.sft import SFTTrainer
from agentgym_lite.training.trainer import Trainer

__all__ = [
    "AgentEvolTrainer",
    "CheckpointError",
    "DPOTrainer",
    "DataError",
    "SFTTrainer",
    "TrainLoop",
    "TrainResult",
    "Trainer",
    "TrainingError",
    "latest_checkpoint",
    "make_trainer",
]
