"""``python -m agentgym_lite.training.pretrain OUT [--start FOLDER] [--threads N]``."""

import argparse
from pathlib import Path

import torch

from agentgym_lite.training.pretrain.train import PretrainConfig, pretrain

parser = argparse.ArgumentParser(prog="python -m agentgym_lite.training.pretrain", description="Train the tiny base model from nothing.")
parser.add_argument("out", type=Path, help="folder for the model")
parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="CPU threads")
if __name__ == "__main__":
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    pretrain(PretrainConfig(), args.out)
