"""Training rows as padded tensors. The one place where quantities are aligned to targets.

A row of n tokens becomes n - 1 positions: position t reads token t and holds everything about token t + 1, the one it predicts. Nobody
else shifts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from agentgym_lite.rollout.types import TokenRow, Trajectory


@dataclass(frozen=True)
class Batch:
    """``B`` right-padded rows of ``T`` positions; every tensor is ``[B, T]`` except ``lengths`` ``[B]``.

    ``mask`` is 1.0 where the target was sampled by the policy; ``advantages`` and ``engine_logprobs`` are 0 elsewhere. Padding is token 0:
    under causal attention nothing real can see it. ``old_logprobs`` and ``ref_logprobs`` are filled by the update.
    """

    input_ids: Tensor
    targets: Tensor
    mask: Tensor
    advantages: Tensor
    engine_logprobs: Tensor
    lengths: Tensor
    old_logprobs: Tensor | None = None
    ref_logprobs: Tensor | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    @classmethod
    def from_trajectories(
        cls, trajectories: Sequence[Trajectory], advantages: Sequence[float], device: torch.device | str = "cpu"
    ) -> Batch:
        """All rows of all episodes, each with its episode's advantage on its sampled tokens.

        Episodes that the environment spoiled and rows without a sampled token are left out. Raises ``ValueError`` if there is not one
        advantage per trajectory, or if a row begins with a sampled token (nothing predicts it).
        """
        if len(trajectories) != len(advantages):
            raise ValueError(
                f"expected one advantage per trajectory, found {len(trajectories)} trajectories and {len(advantages)} advantages"
            )
        rows = [(r, float(a)) for t, a in zip(trajectories, advantages, strict=True) if t.trainable for r in t.rows if any(r.action_mask)]
        shape = (len(rows), max((len(r) - 1 for r, _ in rows), default=0))
        ids, targets = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
        mask, adv, logprobs = torch.zeros(shape), torch.zeros(shape), torch.zeros(shape)
        lengths = torch.tensor([len(r) - 1 for r, _ in rows], dtype=torch.long)
        for i, (row, advantage) in enumerate(rows):
            _check(row)
            n = len(row) - 1
            tokens = torch.tensor(row.token_ids)
            ids[i, :n], targets[i, :n] = tokens[:-1], tokens[1:]
            mask[i, :n] = torch.tensor(row.action_mask[1:], dtype=torch.float32)
            adv[i, :n] = advantage * mask[i, :n]
            logprobs[i, :n] = torch.where(mask[i, :n].bool(), torch.tensor(row.logprobs[1:]), 0.0)
        return cls(ids, targets, mask, adv, logprobs, lengths).to(device)

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        return replace(self, **{k: v.to(device) for k, v in self._tensors().items()})

    def select(self, rows: Sequence[int]) -> Batch:
        """Some rows, cropped to the longest of them."""
        index = torch.as_tensor(rows, device=self.lengths.device)
        longest = int(self.lengths[index].max())
        picked = {k: v[index] if k == "lengths" else v[index, :longest] for k, v in self._tensors().items()}
        return replace(self, **picked)

    def micro_batches(self, tokens: int) -> list[list[int]]:
        """Row numbers of each forward pass: rows of like length together, at most ``tokens`` positions with padding.

        A row longer than ``tokens`` gets a pass of its own. The longest come first, so that memory runs out at once or not at all.
        """
        order = sorted(range(len(self)), key=lambda i: (-int(self.lengths[i]), i))
        out: list[list[int]] = []
        for i in order:
            if out and (len(out[-1]) + 1) * int(self.lengths[out[-1][0]]) <= tokens:
                out[-1].append(i)
            else:
                out.append([i])
        return out

    def _tensors(self) -> dict[str, Any]:
        return {f.name: v for f in fields(self) if (v := getattr(self, f.name)) is not None}


def _check(row: TokenRow) -> None:
    if row.action_mask[0]:
        raise ValueError("a training row begins with a sampled token, which nothing predicts; a row must open with context")
