"""``python -m agentgym_lite.training.pretrain OUT``: see ``--help``."""

import argparse
import math
from pathlib import Path

import torch

from agentgym_lite.training.pretrain.train import PretrainConfig, pretrain

parser = argparse.ArgumentParser(prog="python -m agentgym_lite.training.pretrain", description="Train the tiny base model from nothing.")
parser.add_argument("out", type=Path, help="folder for the model")
parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="CPU threads (default: %(default)s)")
parser.add_argument("--stop-after", type=float, default=math.inf, metavar="M", help="end after M million tokens")
parser.add_argument("--random-init", action="store_true", help="start without the copy circuits, for comparison")
if __name__ == "__main__":
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    pretrain(PretrainConfig(copy_circuits=not args.random_init), args.out, args.stop_after)
