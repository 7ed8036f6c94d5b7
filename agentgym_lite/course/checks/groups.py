"""Checks of lesson 06: advantages within a group, groups without signal, the clipped loss."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from agentgym_lite.algorithms import clipped_policy_loss, grpo_advantages, rloo_advantages
from agentgym_lite.course.checks.check import Case, Check, Mistake

EPS = 1e-6
_ONE_GROUP = Case("one success in four", (torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.tensor([0, 0, 0, 0])))
_TWO_GROUPS = Case(
    "two groups of different spread",
    (torch.tensor([1.0, 0.0, 1.0, 0.0, 0.5, 0.25, 0.5, 0.75]), torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])),
)
_MIXED = Case(
    "groups of three and five whose members do not stand side by side",
    (torch.tensor([1.0, 0.25, 0.0, 1.0, 0.5, 0.0, 1.0, 0.0]), torch.tensor([7, 2, 7, 2, 2, 7, 2, 2])),
)
_FLAT = Case("a group of equal rewards beside one that differs", (torch.tensor([1.0, 1.0, 1.0, 0.0, 1.0]), torch.tensor([0, 0, 0, 1, 1])))
_SINGLE = Case("a group with a single member", (torch.tensor([1.0, 0.0, 1.0]), torch.tensor([0, 1, 1])))
_CASES = (_ONE_GROUP, _TWO_GROUPS, _MIXED, _FLAT, _SINGLE)

PerGroup = Callable[[Tensor, Tensor], Tensor]


def _per_group(f: PerGroup) -> PerGroup:
    """``f(rewards of the group, all rewards)`` put together again."""

    def advantages(rewards: Tensor, groups: Tensor) -> Tensor:
        out = torch.zeros_like(rewards)
        for g in groups.unique():
            out[groups == g] = f(rewards[groups == g], rewards)
        return out

    return advantages


def _centred(r: Tensor) -> Tensor:
    return r - r.mean()


def _others(r: Tensor) -> Tensor:
    """Mean of the others; of nobody: 0."""
    return (r.sum() - r) / max(len(r) - 1, 1)


def _side_by_side(rewards: Tensor, groups: Tensor) -> Tensor:
    size = int((groups == groups[0]).sum())
    r = rewards.view(-1, size)
    std = r.std(-1, keepdim=True) if size > 1 else torch.zeros(len(r), 1)
    return ((r - r.mean(-1, keepdim=True)) / (std + EPS)).flatten()


def _std(r: Tensor) -> Tensor:
    return r.std() if len(r) > 1 else torch.zeros(())


# -- group_advantages(rewards, groups) -> [N] ------------------------------------------------------------------------------------------

group_advantages = Check(
    "group_advantages",
    lambda rewards, groups: grpo_advantages(rewards, groups).advantages,
    _CASES,
    (
        Mistake(
            "you divided by the population std (n) of the group: the unbiased one (n - 1) is asked for",
            _per_group(lambda r, batch: _centred(r) / (r.std(correction=0) + EPS)),
        ),
        Mistake(
            "you divided by the std of all samples, not of the group",
            _per_group(lambda r, batch: _centred(r) / (batch.std() + EPS)),
        ),
        Mistake(
            "you divided by the population std of all samples, not of the group",
            _per_group(lambda r, batch: _centred(r) / (batch.std(correction=0) + EPS)),
        ),
        Mistake(
            "mean and std are those of all samples: compare each episode with its own group",
            lambda rewards, groups: _centred(rewards) / (rewards.std() + EPS),
        ),
        Mistake("the division by the std is missing: this is the form of Dr. GRPO", _per_group(lambda r, batch: _centred(r))),
        Mistake("you divided by the variance: take its square root", _per_group(lambda r, batch: _centred(r) / (_std(r).square() + EPS))),
        Mistake(
            "a group of equal rewards gives nan: 0 / 0. Add 1e-6 to the std, and give a group without spread 0",
            _per_group(lambda r, batch: _centred(r) / r.std()),
        ),
        Mistake(
            "a group with a single member gives nan: its unbiased std is 0 / 0. It has nobody to compare with, so 0",
            _per_group(lambda r, batch: _centred(r) / (r.std() + EPS)),
        ),
        Mistake(
            "a group with a single member gets its raw reward: it has nobody to compare with, so 0",
            _per_group(lambda r, batch: _centred(r) / (r.std() + EPS) if len(r) > 1 else r),
        ),
        Mistake(
            "you compared with the mean of the others: that is RLOO's baseline; the mean of the group holds the episode itself",
            _per_group(lambda r, batch: (r - _others(r)) / (_std(r) + EPS) if len(r) > 1 else 0 * r),
        ),
        Mistake("the members of a group are taken to stand side by side: use the numbers in `groups`", _side_by_side),
    ),
    atol=1e-3,
)

# -- leave_one_out(rewards, groups) -> [N] ---------------------------------------------------------------------------------------------


def _all_others(rewards: Tensor, groups: Tensor) -> Tensor:
    return rewards - _others(rewards)


leave_one_out = Check(
    "leave_one_out",
    lambda rewards, groups: rloo_advantages(rewards, groups).advantages,
    _CASES,
    (
        Mistake(
            "the baseline holds the episode's own reward: leave it out of the mean",
            _per_group(lambda r, batch: _centred(r)),
        ),
        Mistake(
            "the sum of the others is divided by G: there are G - 1 of them",
            _per_group(lambda r, batch: r - (r.sum() - r) / len(r) if len(r) > 1 else 0 * r),
        ),
        Mistake(
            "RLOO does not divide by the std: a rare success keeps the weight that its reward gives it",
            _per_group(lambda r, batch: (r - _others(r)) / (_std(r) + EPS) if len(r) > 1 else 0 * r),
        ),
        Mistake(
            "this is the baseline: the advantage is the reward less the baseline",
            _per_group(lambda r, batch: _others(r)),
        ),
        Mistake("the others are those of the whole batch: take the others of the same group", _all_others),
        Mistake(
            "a group with a single member gets its raw reward: there are no others to compare with, so 0",
            _per_group(lambda r, batch: r - _others(r)),
        ),
        Mistake(
            "a group with a single member gives nan: there are no others to average, so 0",
            _per_group(lambda r, batch: r - (r.sum() - r) / (len(r) - 1)),
        ),
    ),
    atol=1e-4,
)

# -- clipped_loss(logprobs, old_logprobs, advantages, clip_low, clip_high) -> per token ------------------------------------------------


def _clipped(logp: Tensor, old: Tensor, a: Tensor, low: float, high: float) -> Tensor:
    return clipped_policy_loss(logp, old, a, clip_low=low, clip_high=high).loss


def _surrogate(
    pick: Callable[[Tensor, Tensor], Tensor], ratio: Callable[[Tensor], Tensor] = torch.exp
) -> Callable[[Tensor, Tensor, Tensor, float, float], Tensor]:
    def loss(logp: Tensor, old: Tensor, a: Tensor, low: float, high: float) -> Tensor:
        rho = ratio(logp - old)
        return pick(-a * rho, -a * rho.clamp(1 - low, 1 + high))

    return loss


_RATIOS = torch.tensor([0.5, 0.9, 1.0, 1.1, 1.25, 1.6])
clipped_loss = Check(
    "clipped_loss",
    _clipped,
    (
        Case("a positive advantage at ratios from 0.5 to 1.6", (_RATIOS.log() - 1, torch.full((6,), -1.0), torch.ones(6), 0.2, 0.2)),
        Case("a negative advantage at ratios from 0.5 to 1.6", (_RATIOS.log() - 1, torch.full((6,), -1.0), -2 * torch.ones(6), 0.2, 0.2)),
        Case("clip-higher", (_RATIOS.log() - 2, torch.full((6,), -2.0), torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, 1.0]), 0.2, 0.28)),
    ),
    (
        Mistake("this is the objective, to be made large: a loss is minimised, so turn the sign around", lambda *args: -_clipped(*args)),
        Mistake("the better of the two was taken: of the two losses the larger one counts", _surrogate(torch.minimum)),
        Mistake(
            "the ratio is always clipped: a token that has gone too far the wrong way would get no gradient to come back. Take the larger "
            "of the clipped and the free loss",
            _surrogate(lambda free, bounded: bounded),
        ),
        Mistake("nothing is clipped: this is the surrogate of the first lesson on ratios", _surrogate(lambda free, bounded: free)),
        Mistake(
            "the ratio is upside down: rho = pi_new / pi_old = exp(logprobs - old_logprobs)",
            _surrogate(torch.maximum, lambda x: (-x).exp()),
        ),
        Mistake("the ratio is the difference of the log-probs: exp is missing", _surrogate(torch.maximum, lambda x: x)),
        Mistake("clip_high is not used: the bounds may differ", lambda lp, old, a, low, high: _clipped(lp, old, a, low, low)),
    ),
    grad=(0,),
)

# -- signal_probability(p, size) -> float ----------------------------------------------------------------------------------------------

signal_probability = Check(
    "signal_probability",
    lambda p, size: 1 - p**size - (1 - p) ** size,
    (
        Case("an item solved half the time, in groups of 2", (0.5, 2)),
        Case("a hard item in groups of 8", (0.05, 8)),
        Case("an easy item in groups of 4", (0.9, 4)),
        Case("an item that is never solved", (0.0, 8)),
    ),
    (
        Mistake("this is the probability that a group has no signal: the other event is asked for", lambda p, n: p**n + (1 - p) ** n),
        Mistake("a group in which all succeed has no signal either: take p^G off as well", lambda p, n: 1 - (1 - p) ** n),
        Mistake("a group in which all fail has no signal either: take (1 - p)^G off as well", lambda p, n: 1 - p**n),
        Mistake("the exponent is the whole size of the group, not one less", lambda p, n: 1 - p ** (n - 1) - (1 - p) ** (n - 1)),
        Mistake("this is the probability that two members differ: more members have more ways to", lambda p, n: 2 * p * (1 - p)),
    ),
)

# -- informative(rewards, groups) -> bool [N] ------------------------------------------------------------------------------------------

informative = Check(
    "informative",
    lambda rewards, groups: ~grpo_advantages(rewards, groups).zero_variance,
    (
        Case("three groups: mixed, all solved, none", (torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 0.0]), torch.tensor([0, 0, 1, 1, 2, 2]))),
        Case(
            "rewards from 0 to 1, in any order",
            (torch.tensor([0.2, 0.2, 0.1, 0.7, 0.2, 0.7]), torch.tensor([3, 5, 3, 5, 3, 9])),
        ),
        Case("equal rewards that are not 0 or 1", (torch.tensor([0.7, 0.7, 0.7, 0.0, 1.0]), torch.tensor([0, 0, 0, 1, 1]))),
    ),
    (
        Mistake("True and False are swapped: True is for groups that teach something", lambda r, g: grpo_advantages(r, g).zero_variance),
        Mistake(
            "groups that are always solved are kept: they teach nothing either",
            _per_group(lambda r, batch: torch.full_like(r, float(r.sum() > 0))),
        ),
        Mistake(
            "groups that are never solved are kept: they teach nothing either",
            _per_group(lambda r, batch: torch.full_like(r, float(r.sum() < len(r)))),
        ),
        Mistake("only successes are kept: a failure beside a success is just as informative", lambda r, g: r > 0),
        Mistake("the spread of the whole batch was looked at, not that of each group", lambda r, g: (r.max() > r.min()).expand(len(r))),
    ),
)
