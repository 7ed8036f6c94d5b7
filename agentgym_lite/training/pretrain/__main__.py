"""The two parts of the recipe: ``python -m agentgym_lite.training.pretrain PART1``, then ``... OUT --finish PART1``."""

import argparse
import math
from pathlib import Path

import torch

from agentgym_lite.training.pretrain.train import PretrainConfig, pretrain

parser = argparse.ArgumentParser(prog="python -m agentgym_lite.training.pretrain", description="Train the tiny base model from nothing.")
parser.add_argument("out", type=Path, help="folder for the model")
parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="CPU threads (default: %(default)s)")
parser.add_argument("--stop-after", type=float, default=math.inf, metavar="M", help="end after M million tokens")
parser.add_argument("--finish", type=Path, metavar="FOLDER", help="run the second part of the recipe on the model that the first has made")
parser.add_argument("--random-init", action="store_true", help="start without the copy circuits, for comparison")
if __name__ == "__main__":
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    config = PretrainConfig.finishing() if args.finish else PretrainConfig(copy_circuits=not args.random_init)
    pretrain(config, args.out, start=args.finish, stop_after=args.stop_after)
