"""Advantage functions: from the rewards of a step's episodes to one number per episode."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

STD_EPS = 1e-6


class GroupAdvantages(NamedTuple):
    """``advantages`` and ``zero_variance``, both ``[N]``: the flag is set on every member of a group whose rewards are all equal."""

    advantages: Tensor
    zero_variance: Tensor


def grpo_advantages(rewards: Tensor, groups: Tensor, *, normalize_std: bool = True) -> GroupAdvantages:
    r"""Group-relative advantages.

    .. math:: A_i = (r_i - \mathrm{mean}_G) / (\mathrm{std}_G + 10^{-6})

    with the unbiased standard deviation (Shao et al., arXiv 2402.03300); without it (``normalize_std=False``) the form of Dr. GRPO
    (Liu et al., arXiv 2503.20783). A group of equal rewards, one of a single member included, gets exactly 0: rounding in the mean
    would otherwise be blown up by the small divisor.

    ``rewards`` ``[N]`` are the episodes' returns, ``groups`` ``[N]`` whole numbers that say which episodes belong together, in any
    order. Leave out episodes that the environment spoiled before the call. Raises ``ValueError`` if the shapes differ.
    """
    if rewards.ndim != 1 or rewards.shape != groups.shape:
        raise ValueError(f"expected rewards and groups of one shape [N], found {list(rewards.shape)} and {list(groups.shape)}")
    out = torch.zeros(len(rewards), dtype=torch.float64)
    zero_variance = torch.ones(len(rewards), dtype=torch.bool)
    for g in groups.unique():
        members = groups == g
        r = rewards[members].double()
        if r.max() == r.min():
            continue
        zero_variance[members] = False
        centred = r - r.mean()
        out[members] = centred / (r.std(correction=1) + STD_EPS) if normalize_std else centred
    return GroupAdvantages(out.float(), zero_variance)
