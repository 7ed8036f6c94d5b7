"""Checks of lesson 05: generalised advantage estimation, observations between turns, the critic's loss and how good it is."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from agentgym_lite.algorithms import explained_variance, upstream, value_loss
from agentgym_lite.algorithms import gae as library_gae
from agentgym_lite.course.checks.check import Case, Check, Mistake

# -- gae(rewards, values, gamma, lam) -> [T] -------------------------------------------------------------------------------------------

Estimator = Callable[[Tensor, Tensor, float, float], Tensor]


def _gae(r: Tensor, v: Tensor, gamma: float, lam: float) -> Tensor:
    return library_gae(r[None], v[None], torch.ones_like(r)[None], gamma=gamma, lam=lam).advantages[0]


def _recursion(
    delta: Callable[[Tensor, Tensor, Tensor, float], Tensor], *, decay: Callable[[float, float], float] = lambda g, lam: g * lam
) -> Estimator:
    """``delta(r, V, V of the next token, gamma)`` summed up backwards with ``decay(gamma, lam)``."""

    def estimate(r: Tensor, v: Tensor, gamma: float, lam: float) -> Tensor:
        deltas = delta(r, v, torch.cat([v[1:], torch.zeros(1)]), gamma)
        out, running = torch.zeros_like(r), torch.zeros(())
        for t in reversed(range(len(r))):
            running = deltas[t] + decay(gamma, lam) * running
            out[t] = running
        return out

    return estimate


def _forwards(r: Tensor, v: Tensor, gamma: float, lam: float) -> Tensor:
    deltas = _recursion(_td, decay=lambda g, lam: 0.0)(r, v, gamma, lam)
    out, running = torch.zeros_like(r), torch.zeros(())
    for t in range(len(r)):
        running = deltas[t] + gamma * lam * running
        out[t] = running
    return out


def _td(r: Tensor, v: Tensor, following: Tensor, gamma: float) -> Tensor:
    return r + gamma * following - v


def _own_value_at_end(r: Tensor, v: Tensor, gamma: float, lam: float) -> Tensor:
    return _recursion(lambda r, v, following, g: r + g * torch.cat([v[1:], v[-1:]]) - v)(r, v, gamma, lam)


_BY_HAND = Case("three tokens, the reward at the end", (torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0.5, 0.6, 0.8]), 0.9, 0.8))
_TWO_REWARDS = Case("two rewards and a short memory", (torch.tensor([0.5, 0.0, 0.0, 1.0]), torch.tensor([1.0, 0.2, 0.9, 0.4]), 0.5, 0.5))

gae = Check(
    "gae",
    _gae,
    (_BY_HAND, _TWO_REWARDS, Case("a single token", (torch.tensor([1.0]), torch.tensor([0.25]), 0.9, 0.8))),
    (
        Mistake("these are the returns: the value is not taken off", lambda r, v, g, lam: _gae(r, v, g, lam) + v),
        Mistake("lam is missing: without it this is the return less the value", _recursion(_td, decay=lambda g, lam: g)),
        Mistake("gamma is missing where the advantages are summed up: the decay is gamma * lam", _recursion(_td, decay=lambda g, lam: lam)),
        Mistake("gamma is missing in front of the next value", _recursion(lambda r, v, following, g: r + following - v)),
        Mistake("nothing is summed up: these are the one-step errors, GAE with lam = 0", _recursion(_td, decay=lambda g, lam: 0.0)),
        Mistake(
            "behind the last token stands its own value: the episode is over there, so the value is 0",
            _own_value_at_end,
        ),
        Mistake("the recursion runs forwards: an advantage looks at what comes after", _forwards),
        Mistake("the next value is missing: delta = r + gamma * V_next - V", _recursion(lambda r, v, following, g: r - v)),
    ),
)

# -- masked_gae(rewards, values, mask, gamma, lam) -> [T] ------------------------------------------------------------------------------

Masked = Callable[[Tensor, Tensor, Tensor, float, float], Tensor]


def _masked(r: Tensor, v: Tensor, m: Tensor, gamma: float, lam: float) -> Tensor:
    return library_gae(r[None], v[None], m[None], gamma=gamma, lam=lam).advantages[0]


def _published(r: Tensor, v: Tensor, m: Tensor, gamma: float, lam: float) -> Tensor:
    return upstream.gae(r[None], v[None], m[None], gamma=gamma, lam=lam).advantages[0] * m


def _discounts_observations(r: Tensor, v: Tensor, m: Tensor, gamma: float, lam: float) -> Tensor:
    """Values are the right ones, but every observation token between two turns discounts once more."""
    out, running, following = torch.zeros_like(r), torch.zeros(()), torch.zeros(())
    for t in reversed(range(len(r))):
        if m[t]:
            running = r[t] + gamma * following - v[t] + gamma * lam * running
            following, out[t] = v[t], running
        else:
            running, following = gamma * lam * running, gamma * following
    return out


def _stops_at_observations(r: Tensor, v: Tensor, m: Tensor, gamma: float, lam: float) -> Tensor:
    out, running, following = torch.zeros_like(r), torch.zeros(()), torch.zeros(())
    for t in reversed(range(len(r))):
        running = m[t] * (r[t] + gamma * following - v[t] + gamma * lam * running)
        following, out[t] = m[t] * v[t], running
    return out


def _unmasked(r: Tensor, v: Tensor, m: Tensor, gamma: float, lam: float) -> Tensor:
    return _gae(r, v, gamma, lam)


_M = torch.tensor([1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0])
_V = torch.tensor([0.5, 0.5, 9.0, 9.0, 0.5, 0.5, 7.0])
_R = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0])

masked_gae = Check(
    "masked_gae",
    _masked,
    (
        Case("two turns with an observation between them and one behind", (_R, _V, _M, 1.0, 0.95)),
        Case("gamma below 1", (_R, _V, _M, 0.9, 0.8)),
        Case(
            "an opening, and rewards in both turns",
            (
                torch.tensor([0.0, 0.0, 0.25, 0.0, 0.0, 0.75]),
                torch.tensor([3.0, 0.2, 0.4, -5.0, 0.6, 0.8]),
                torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0, 1.0]),
                0.9,
                0.5,
            ),
        ),
    ),
    (
        Mistake(
            "the value at the next position is an observation's, which nobody trains: bootstrap from the next sampled token, and from 0 "
            "behind the last (published fault 2)",
            _published,
        ),
        Mistake("the mask is not used: observations take part like sampled tokens", _unmasked),
        Mistake(
            "the mask is only applied at the end: observations have changed the numbers before them already",
            lambda r, v, m, g, lam: _unmasked(r, v, m, g, lam) * m,
        ),
        Mistake(
            "values of observations are set to 0, but they still take a step: the discount and the next value must skip them",
            lambda r, v, m, g, lam: _gae(r * m, v * m, g, lam) * m,
        ),
        Mistake(
            "observations discount: only a step of the policy does, or a longer text would make the reward smaller", _discounts_observations
        ),
        Mistake(
            "the recursion starts anew at each observation: the reward of a later turn must reach the earlier ones", _stops_at_observations
        ),
        Mistake(
            "observations have an advantage: it must be 0 off the mask", lambda r, v, m, g, lam: _masked(r, v, m, g, lam) - (1 - m) * v
        ),
        Mistake("these are the returns: the value is not taken off", lambda r, v, m, g, lam: _masked(r, v, m, g, lam) + m * v),
    ),
)

# -- clipped_value_loss(values, old_values, returns, clip) -> per token ----------------------------------------------------------------


def _value_loss(v: Tensor, old: Tensor, r: Tensor, clip: float) -> Tensor:
    return value_loss(v, old, r, clip=clip).loss


def _near(v: Tensor, old: Tensor, clip: float) -> Tensor:
    return v.clamp(old - clip, old + clip)


_RETURNS = torch.ones(5)
_NEW = torch.tensor([0.1, 0.3, 0.65, 1.4, 1.9])

clipped_value_loss = Check(
    "clipped_value_loss",
    _value_loss,
    (
        Case("values that moved up from 0.25, towards a return of 1 and past it", (_NEW, torch.full((5,), 0.25), _RETURNS, 0.2)),
        Case("values that moved away from a return of -1", (_NEW, torch.full((5,), 0.25), -_RETURNS, 0.5)),
    ),
    (
        Mistake("the half is missing: 1/2 (V - R)^2, so that the gradient is V - R", lambda *a: 2 * _value_loss(*a)),
        Mistake("nothing is clipped: this is the plain squared error", lambda v, old, r, c: 0.5 * (v - r).square()),
        Mistake(
            "only the clipped error counts: a value that has gone too far the wrong way would get no gradient to come back. Take the "
            "larger of the two",
            lambda v, old, r, c: 0.5 * (_near(v, old, c) - r).square(),
        ),
        Mistake(
            "the smaller of the two errors was taken: a value that has moved far enough would be pushed on",
            lambda v, old, r, c: 0.5 * torch.minimum((v - r).square(), (_near(v, old, c) - r).square()),
        ),
        Mistake(
            "the ratio of the values is clipped: a value is no probability, so its difference to the old one is bounded",
            lambda v, old, r, c: 0.5 * torch.maximum((v - r).square(), (v.clamp(old * (1 - c), old * (1 + c)) - r).square()),
        ),
        Mistake("the error is not squared", lambda v, old, r, c: 0.5 * torch.maximum((v - r).abs(), (_near(v, old, c) - r).abs())),
    ),
    grad=(0,),
)

# -- explained(values, returns) -> float -----------------------------------------------------------------------------------------------


def _var(x: Tensor) -> Tensor:
    return (x - x.mean()).square().mean()


def _explained(v: Tensor, r: Tensor) -> float | None:
    return explained_variance(v, r, torch.ones_like(r))


explained = Check(
    "explained",
    _explained,
    (
        Case("a critic that is half right", (torch.tensor([0.8, 0.2, 0.6, 0.4]), torch.tensor([1.0, 0.0, 1.0, 0.0]))),
        Case("a critic that is off by 0.5 everywhere", (torch.tensor([1.5, 0.5, 1.5, 0.75]), torch.tensor([1.0, 0.0, 1.0, 0.25]))),
        Case("a critic that has it the wrong way round", (torch.tensor([0.2, 0.8, 0.1]), torch.tensor([1.0, 0.0, 0.5]))),
    ),
    (
        Mistake("this is the share that is *not* explained: take it from 1", lambda v, r: _var(r - v) / _var(r)),
        Mistake(
            "the squared error is divided, not the variance of the error: a constant offset cancels in advantages and should not count",
            lambda v, r: 1 - (r - v).square().mean() / _var(r),
        ),
        Mistake(
            "it is divided by the variance of the values: that of the returns is to be explained", lambda v, r: 1 - _var(r - v) / _var(v)
        ),
        Mistake(
            "this is the variance of the values over that of the returns: a critic that varies is not yet right",
            lambda v, r: _var(v) / _var(r),
        ),
        Mistake(
            "this is the squared correlation: it is also 1 for a critic that has everything the wrong way round",
            lambda v, r: ((v - v.mean()) * (r - r.mean())).mean().square() / (_var(v) * _var(r)),
        ),
        Mistake("standard deviations are divided, not variances", lambda v, r: 1 - (_var(r - v) / _var(r)).sqrt()),
        Mistake(
            "this is cut off at 0: that it can be negative is how a harmful critic is found", lambda v, r: max(0.0, _explained(v, r) or 0.0)
        ),
    ),
)
