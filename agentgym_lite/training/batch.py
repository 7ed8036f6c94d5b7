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

from agentgym_lite.algorithms import Samples
from agentgym_lite.rollout.types import TokenRow, Trajectory


@dataclass(frozen=True)
class Batch:
    """``B`` right-padded rows of ``T`` positions, sorted by episode and time; tensors are ``[B, T]`` unless noted.

    ``mask`` is 1.0 where the target was sampled by the policy; ``rewards`` and ``engine_logprobs`` are 0 elsewhere. ``turns`` numbers the
    turn of each target, ``anchors`` the observation that this turn answers: alike for alike observations (and kinds of turn) of one
    group. Of each row, ``[B]``: ``lengths``, its ``episodes`` number and ``groups`` number, and whether it is in the loss (``in_loss``),
    not in the baselines alone. Padding is token 0: under causal attention nothing real can see it. The rest is filled by the update, or
    ``advantages`` by whoever has them already.
    """

    input_ids: Tensor
    targets: Tensor
    mask: Tensor
    rewards: Tensor
    turns: Tensor
    anchors: Tensor
    engine_logprobs: Tensor
    lengths: Tensor
    episodes: Tensor
    groups: Tensor
    in_loss: Tensor
    advantages: Tensor | None = None
    old_logprobs: Tensor | None = None
    ref_logprobs: Tensor | None = None
    values: Tensor | None = None
    returns: Tensor | None = None
    value_mask: Tensor | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    @classmethod
    def from_trajectories(
        cls,
        trajectories: Sequence[Trajectory],
        advantages: Sequence[float] | None = None,
        device: torch.device | str = "cpu",
        *,
        turn_rewards: Sequence[Sequence[float]] | None = None,
        in_loss: Sequence[bool] | None = None,
    ) -> Batch:
        """All rows of all episodes, with each turn's reward on its last sampled token.

        ``turn_rewards`` (one number per turn of each episode) take the place of the environment's; ``in_loss`` says of each episode whether
        it is trained on (default: all are); ``advantages``, one per episode, spare the update from computing them. Episodes that the
        environment spoiled and rows without a sampled token are left out. Raises ``ValueError`` if there is not one entry per trajectory,
        if a row begins with a sampled token (nothing predicts it), or if a reward has no sampled token to stand on.
        """
        _one_each(len(trajectories), advantages=advantages, turn_rewards=turn_rewards, in_loss=in_loss)
        usable = [i for i, t in enumerate(trajectories) if t.trainable]
        rows = [(e, i, k) for e, i in enumerate(usable) for k, r in enumerate(trajectories[i].rows) if any(r.action_mask)]
        shape = (len(rows), max((len(trajectories[i].rows[k]) - 1 for _, i, k in rows), default=0))
        ids, targets, turns, anchors = (torch.zeros(shape, dtype=torch.long) for _ in range(4))
        mask, rewards, logprobs = (torch.zeros(shape) for _ in range(3))
        lengths = torch.tensor([len(trajectories[i].rows[k]) - 1 for _, i, k in rows], dtype=torch.long)
        groups, seen = _Numbers(), _Numbers()
        for b, (_, i, k) in enumerate(rows):
            trajectory, row = trajectories[i], trajectories[i].rows[k]
            _check(row)
            n = len(row) - 1
            tokens = torch.tensor(row.token_ids)
            ids[b, :n], targets[b, :n] = tokens[:-1], tokens[1:]
            mask[b, :n] = torch.tensor(row.action_mask[1:], dtype=torch.float32)
            rewards[b, :n] = torch.tensor(_token_rewards(trajectory, k, None if turn_rewards is None else turn_rewards[i]))[1:]
            turns[b, :n] = torch.tensor(row.turn_ids[1:])
            numbers = [seen[(trajectory.spec.group, t.kind, t.observation)] for t in trajectory.turns]
            anchors[b, :n] = torch.tensor([numbers[t] if 0 <= t < len(numbers) else 0 for t in row.turn_ids[1:]])
            logprobs[b, :n] = torch.where(mask[b, :n].bool(), torch.tensor(row.logprobs[1:]), 0.0)
        episodes = torch.tensor([e for e, _, _ in rows], dtype=torch.long)
        group = torch.tensor([groups[trajectories[i].spec.group] for _, i, _ in rows], dtype=torch.long)
        trained = torch.tensor([in_loss is None or in_loss[i] for _, i, _ in rows], dtype=torch.bool)
        spread = None if advantages is None else torch.tensor([advantages[i] for _, i, _ in rows])[:, None] * mask
        return cls(ids, targets, mask, rewards, turns, anchors, logprobs, lengths, episodes, group, trained, spread).to(device)

    @property
    def episode_tokens(self) -> Tensor:
        """Sampled tokens of each row's episode, over all its rows here; ``[B]``."""
        counts = self.mask.sum(-1)
        return counts.new_zeros(int(self.episodes.max()) + 1).index_add(0, self.episodes, counts)[self.episodes]

    @property
    def samples(self) -> Samples:
        """What an advantage function reads, without a KL penalty."""
        return Samples(
            mask=self.mask,
            rewards=self.rewards,
            penalty=torch.zeros_like(self.rewards),
            turns=self.turns,
            anchors=self.anchors,
            episodes=self.episodes,
            groups=self.groups,
            lengths=self.lengths,
            values=self.values,
        )

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        return replace(self, **{k: v.to(device) for k, v in self._tensors().items()})

    def select(self, rows: Sequence[int]) -> Batch:
        """Some rows (by number), cropped to the longest of them."""
        index = torch.as_tensor(rows, dtype=torch.long, device=self.lengths.device)
        longest = int(self.lengths[index].max()) if len(index) else 0
        picked = {k: v[index] if v.ndim == 1 else v[index, :longest] for k, v in self._tensors().items()}
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


def _one_each(n: int, **given: Sequence[Any] | None) -> None:
    for name, values in given.items():
        if values is not None and len(values) != n:
            raise ValueError(f"expected one entry of {name} per trajectory, found {n} trajectories and {len(values)} {name}")


class _Numbers(dict[Any, int]):
    """Numbers things in the order in which they are first asked for."""

    def __missing__(self, key: Any) -> int:
        self[key] = len(self)
        return self[key]


def _token_rewards(trajectory: Trajectory, row: int, turn_rewards: Sequence[float] | None) -> list[float]:
    if turn_rewards is None:
        return trajectory.token_rewards(row)
    if len(turn_rewards) != len(trajectory.turns):
        raise ValueError(f"expected {len(trajectory.turns)} rewards, one per turn, found {len(turn_rewards)}")
    turns = [replace(t, reward=float(r)) for t, r in zip(trajectory.turns, turn_rewards, strict=True)]
    return replace(trajectory, turns=turns).token_rewards(row)


def _check(row: TokenRow) -> None:
    if row.action_mask[0]:
        raise ValueError("a training row begins with a sampled token, which nothing predicts; a row must open with context")
