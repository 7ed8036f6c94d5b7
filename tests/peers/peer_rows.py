"""The same episodes in TRL's layout (left-padded prompts, right-padded completions, a tool mask) and in ours (rows aligned to targets)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from agentgym_lite.probes import probe_model, probe_tokenizer


@dataclass(frozen=True)
class Rows:
    """``B`` episodes of several turns: prompt ids, completion ids and, for these, 1 where the policy sampled."""

    prompts: list[list[int]]
    completions: list[list[int]]
    sampled: list[list[int]]

    def for_trl(self) -> dict[str, Tensor]:
        width = max(map(len, self.prompts))
        length = max(map(len, self.completions))
        return {
            "prompt_ids": torch.tensor([[0] * (width - len(p)) + p for p in self.prompts]),
            "prompt_mask": torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in self.prompts]),
            "completion_ids": torch.tensor([c + [0] * (length - len(c)) for c in self.completions]),
            "completion_mask": torch.tensor([[1] * len(c) + [0] * (length - len(c)) for c in self.completions]),
            "tool_mask": torch.tensor([s + [0] * (length - len(s)) for s in self.sampled]),
            "num_items_in_batch": torch.tensor(float(sum(map(sum, self.sampled)))),
        }

    def for_us(self) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs, targets and mask, ``[B, T]``."""
        rows = [p + c for p, c in zip(self.prompts, self.completions, strict=True)]
        masks = [[0] * len(p) + s for p, s in zip(self.prompts, self.sampled, strict=True)]
        width = max(map(len, rows))
        ids = torch.tensor([r + [0] * (width - len(r)) for r in rows])
        mask = torch.tensor([m + [0] * (width - len(m)) for m in masks], dtype=torch.float32)
        return ids[:, :-1], ids[:, 1:], mask[:, 1:]

    def to_us(self, x: Tensor) -> Tensor:
        """Per-token numbers in TRL's layout ``[B, C]`` moved to ours ``[B, T]``."""
        out = torch.zeros_like(self.for_us()[2])
        for i, (p, c) in enumerate(zip(self.prompts, self.completions, strict=True)):
            out[i, len(p) - 1 : len(p) - 1 + len(c)] = x[i, : len(c)]
        return out


def make_rows(count: int = 6, seed: int = 0) -> Rows:
    """Ragged episodes: 1 to 3 turns of 1 to 4 sampled tokens, observations of 1 to 5 tokens between and behind them."""
    rng = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=rng))

    def ids(n: int) -> list[int]:
        out: list[int] = torch.randint(1, len(probe_tokenizer()), (n,), generator=rng).tolist()
        return out

    rows = Rows([], [], [])
    for _ in range(count):
        completion: list[int] = []
        sampled: list[int] = []
        for _ in range(draw(1, 3)):
            for width, mark in ((draw(1, 4), 1), (draw(1, 5), 0)):
                completion += ids(width)
                sampled += [mark] * width
        rows.prompts.append(ids(draw(2, 6)))
        rows.completions.append(completion)
        rows.sampled.append(sampled)
    return rows


def gradients(model: Any) -> Tensor:
    """All gradients of a model as one vector; they are cleared."""
    out = torch.cat([p.grad.flatten() if p.grad is not None else torch.zeros(p.numel()) for p in model.parameters()])
    model.zero_grad(set_to_none=True)
    return out


def new_model(seed: int = 0) -> Any:
    return probe_model(seed).eval()
