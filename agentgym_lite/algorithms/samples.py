"""What advantages are computed from: the rows of one step, seen as sequences of the policy's own tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Samples:
    """``B`` rows of ``T`` positions, aligned to targets; ``N`` episodes, each one row or several (where the template rewrote history).

    ``mask`` ``[B, T]`` is 1.0 where the policy sampled the target. ``rewards`` ``[B, T]`` holds each turn's reward on its last sampled
    token; ``penalty`` ``[B, T]`` is what the KL takes off the reward of each token, 0 if it is in the loss. ``turns`` and
    ``anchors`` ``[B, T]`` number the token's turn within its episode and the observation that the turn answers, alike for alike
    observations of a group. ``values`` ``[B, T]`` are a critic's. ``episodes`` ``[B]`` (0 to N - 1) and ``groups`` ``[B]`` say what a row
    belongs to; ``lengths`` ``[B]`` counts the positions that are no padding.
    """

    mask: Tensor
    rewards: Tensor
    penalty: Tensor
    turns: Tensor
    anchors: Tensor
    episodes: Tensor
    groups: Tensor
    lengths: Tensor
    values: Tensor | None = None

    def __post_init__(self) -> None:
        if bool((self.rewards[~self.mask.bool()] != 0).any()):
            raise ValueError("a reward stands on a token that the policy did not sample, where it would be lost; see fold_rewards")

    @property
    def returns(self) -> Tensor:
        """Sum of each episode's rewards less its penalties, ``[N]``."""
        per_row = (self.rewards - self.penalty).double().sum(-1)
        total = torch.zeros(self.count, dtype=torch.float64).index_add(0, self.episodes.cpu(), per_row.cpu())
        return total.float()  # equal rewards that were summed in another order are equal again

    @property
    def episode_groups(self) -> Tensor:
        """Group of each episode, ``[N]``."""
        return torch.zeros(self.count, dtype=torch.long).index_copy(0, self.episodes.cpu(), self.groups.cpu())

    @property
    def count(self) -> int:
        """N."""
        return int(self.episodes.max()) + 1 if len(self.episodes) else 0

    def spread(self, per_episode: Tensor) -> Tensor:
        """One number per episode, ``[N]``, onto all of its sampled tokens, ``[B, T]``."""
        return torch.where(self.mask.bool(), per_episode.to(self.mask.device)[self.episodes][:, None], 0.0)


@dataclass(frozen=True)
class Credit:
    """Result of an advantage function, all ``[B, T]`` and 0 off the mask.

    With a critic, ``returns`` are its targets at the positions where ``value_mask`` is 1.0.
    """

    advantages: Tensor
    returns: Tensor | None = None
    value_mask: Tensor | None = None


class Packing:
    """The policy's tokens of each episode side by side, ``[N, L]``, in the order in which they were sampled.

    Whatever is computed on them cannot depend on observations, padding, or how an episode is split into rows. ``valid`` ``[N, L]`` is 1.0
    up to the length of each. Built from ``mask`` ``[B, T]`` and ``episodes`` ``[B]``; rows of an episode follow each other in time.
    """

    def __init__(self, mask: Tensor, episodes: Tensor) -> None:
        self._shape = mask.shape
        rows, columns = mask.bool().nonzero(as_tuple=True)
        order = episodes[rows].argsort(stable=True)
        self._rows, self._columns = rows[order], columns[order]
        self._owner = episodes[self._rows]
        counts = torch.bincount(self._owner, minlength=int(episodes.max()) + 1 if len(episodes) else 0)
        starts = counts.cumsum(0) - counts
        self._place = torch.arange(len(self._owner), device=mask.device) - starts[self._owner]
        size = (len(counts), int(counts.max()) if len(counts) else 0)
        self.valid = torch.zeros(size, device=mask.device).index_put((self._owner, self._place), torch.ones((), device=mask.device))

    def pack(self, x: Tensor) -> Tensor:
        """``[B, T]`` to ``[N, L]``."""
        out = torch.zeros(self.valid.shape, dtype=x.dtype, device=x.device)
        return out.index_put((self._owner, self._place), x[self._rows, self._columns])

    def unpack(self, y: Tensor) -> Tensor:
        """``[N, L]`` to ``[B, T]``, 0 off the mask."""
        out = torch.zeros(self._shape, dtype=y.dtype, device=y.device)
        return out.index_put((self._rows, self._columns), y[self._owner, self._place])
