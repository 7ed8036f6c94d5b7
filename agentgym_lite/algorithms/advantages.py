"""Baselines from groups: from the returns of episodes (or turns) to one advantage for each."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

STD_EPS = 1e-6


class GroupAdvantages(NamedTuple):
    """``advantages`` and ``zero_variance``, both ``[N]``: the flag is set on every member of a group whose rewards are all equal."""

    advantages: Tensor
    zero_variance: Tensor


class _Groups(NamedTuple):
    """Of each episode ``[N]``: its return less the mean of its group, that group's size and standard deviation, and the flag."""

    centred: Tensor
    size: Tensor
    std: Tensor
    flat: Tensor


def _by_group(rewards: Tensor, groups: Tensor) -> _Groups:
    if rewards.ndim != 1 or rewards.shape != groups.shape:
        raise ValueError(f"expected rewards and groups of one shape [N], found {list(rewards.shape)} and {list(groups.shape)}")
    r = rewards.double()
    unique, index = groups.unique(return_inverse=True)
    zeros = torch.zeros(len(unique), dtype=torch.float64, device=r.device)
    size = zeros.index_add(0, index, torch.ones_like(r))
    centred = r - (zeros.index_add(0, index, r) / size)[index]
    std = (zeros.index_add(0, index, centred.square()) / (size - 1).clamp(min=1)).sqrt()
    high, low = (zeros.scatter_reduce(0, index, r, how, include_self=False) for how in ("amax", "amin"))
    return _Groups(centred, size[index], std[index], (high == low)[index])


def grpo_advantages(rewards: Tensor, groups: Tensor, *, normalize_std: bool = True) -> GroupAdvantages:
    r"""Group-relative advantages.

    .. math:: A_i = (r_i - \mathrm{mean}_G) / (\mathrm{std}_G + 10^{-6})

    with the unbiased standard deviation (Shao et al., arXiv 2402.03300); without it (``normalize_std=False``) the form of Dr. GRPO
    (Liu et al., arXiv 2503.20783). A group of equal rewards, one of a single member included, gets exactly 0: rounding in the mean
    would otherwise be blown up by the small divisor.

    ``rewards`` ``[N]`` are the episodes' returns, ``groups`` ``[N]`` whole numbers that say which episodes belong together, in any
    order. Leave out episodes that the environment spoiled before the call. Raises ``ValueError`` if the shapes differ.
    """
    g = _by_group(rewards, groups)
    advantages = g.centred / (g.std + STD_EPS) if normalize_std else g.centred
    return GroupAdvantages(torch.where(g.flat, 0.0, advantages).float(), g.flat)


def rloo_advantages(rewards: Tensor, groups: Tensor) -> GroupAdvantages:
    r"""Leave-one-out advantages (Ahmadian et al., arXiv 2402.14740).

    .. math:: A_i = r_i - \frac{1}{G-1} \sum_{j \ne i} r_j = \frac{G}{G-1} (r_i - \mathrm{mean}_G)

    Shapes, single members and errors as in :func:`grpo_advantages`.
    """
    g = _by_group(rewards, groups)
    return GroupAdvantages(torch.where(g.flat, 0.0, g.centred * g.size / (g.size - 1).clamp(min=1)).float(), g.flat)


def gigpo_advantages(
    rewards: Tensor,
    turns: Tensor,
    anchors: Tensor,
    groups: Tensor,
    *,
    gamma: float,
    step_weight: float,
    normalize_std: bool = True,
) -> Tensor:
    r"""Advantage of every turn among its peers: GiGPO (Feng et al., arXiv 2505.10978).

    .. math:: A_{ik} = A^E_i + w A^S_{ik}

    :math:`A^E` compares the returns of the episodes of a group, as :func:`grpo_advantages` does. :math:`A^S` compares the discounted
    returns :math:`G_{ik} = \sum_j \gamma^j r_{i,k+j}` of all turns of a group that began from the same observation; a turn whose
    observation nobody else has seen gets 0.

    ``rewards``, ``turns`` (1.0 where the episode has a turn) and ``anchors`` (whole numbers, equal for equal observations of one group
    and no other) are ``[N, K]``, ``groups`` ``[N]``; the result is ``[N, K]``.
    """
    played = turns.bool()
    r = torch.where(played, rewards, 0.0)
    to_go = torch.zeros_like(r)
    running = torch.zeros_like(r[:, 0])
    for k in reversed(range(r.shape[1])):
        running = r[:, k] + gamma * running
        to_go[:, k] = running
    episode = grpo_advantages(r.sum(-1), groups, normalize_std=normalize_std).advantages
    step = torch.zeros_like(r)
    step[played] = grpo_advantages(to_go[played], anchors[played], normalize_std=normalize_std).advantages.to(r.dtype)
    return torch.where(played, episode[:, None] + step_weight * step, 0.0)
