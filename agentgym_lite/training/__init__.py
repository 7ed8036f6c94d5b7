"""Training: one trainer for all policy-gradient algorithms, with checkpoints that resume exactly."""

from agentgym_lite.training.checkpoint import CheckpointError, latest_checkpoint
from agentgym_lite.training.trainer import Trainer, TrainResult
from agentgym_lite.training.update import TrainingError

__all__ = ["CheckpointError", "TrainResult", "Trainer", "TrainingError", "latest_checkpoint"]
