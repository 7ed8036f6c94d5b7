"""Recursions over the tokens of the policy: returns, generalised advantage estimation, by token and by turn.

What the policy did not sample takes no part: no discount, no value, no reward. Putting observation tokens anywhere changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

WHITEN_EPS = 1e-8


class GAE(NamedTuple):
    """``advantages`` and ``returns`` (targets of the critic), both ``[B, T]``, 0 off the mask."""

    advantages: Tensor
    returns: Tensor


class TurnGAE(NamedTuple):
    """As :class:`GAE`; ``value_mask`` ``[B, T]`` is 1.0 on the first token of each turn, the only place where a value is used."""

    advantages: Tensor
    returns: Tensor
    value_mask: Tensor


def fold_rewards(rewards: Tensor, mask: Tensor) -> Tensor:
    """Move rewards that stand on tokens of the environment to the policy's token before them; all ``[B, T]``.

    The sum of each row stays. Raises ``ValueError`` if a reward comes before the first sampled token: nobody has earned it.
    """
    out = torch.zeros_like(rewards)
    pending = torch.zeros_like(rewards[:, 0])
    for t in reversed(range(rewards.shape[1])):
        pending = pending + rewards[:, t]
        sampled = mask[:, t].bool()
        out[:, t] = torch.where(sampled, pending, 0.0)
        pending = torch.where(sampled, 0.0, pending)
    if bool(pending.any()):
        raise ValueError("expected no reward before the first sampled token, found one; there is no action to credit it to")
    return out


def discounted_returns(rewards: Tensor, mask: Tensor, *, gamma: float) -> Tensor:
    r"""Return of each sampled token, ``[B, T]``: :math:`G_t = r_t + \gamma G_{t+1}` over the tokens of the policy alone."""
    return gae(rewards, torch.zeros_like(rewards), mask, gamma=gamma, lam=1.0).advantages


def gae(rewards: Tensor, values: Tensor, mask: Tensor, *, gamma: float, lam: float) -> GAE:
    r"""Generalised advantage estimation (Schulman et al., arXiv 1506.02438) over the tokens of the policy.

    .. math:: \delta_t = r_t + \gamma V_{t+} - V_t, \quad A_t = \delta_t + \gamma\lambda A_{t+}, \quad R_t = A_t + V_t

    where ``t+`` is the next token that the policy samples, be there observations in between or not; after the last one value and
    advantage are 0. ``V_t`` is the value before token t is sampled. All tensors are ``[B, T]``; nothing is read where the mask is 0, so
    fold rewards that stand there first (:func:`fold_rewards`).
    """
    m = mask.bool()
    r, v = torch.where(m, rewards, 0.0), torch.where(m, values, 0.0)
    advantages = torch.zeros_like(v)
    running, following = torch.zeros_like(v[:, 0]), torch.zeros_like(v[:, 0])
    for t in reversed(range(m.shape[1])):
        delta = r[:, t] + gamma * following - v[:, t]
        running = torch.where(m[:, t], delta + gamma * lam * running, running)
        following = torch.where(m[:, t], v[:, t], following)
        advantages[:, t] = torch.where(m[:, t], running, 0.0)
    return GAE(advantages, torch.where(m, advantages + v, 0.0))


def turn_starts(mask: Tensor, turns: Tensor) -> Tensor:
    """True on the first token of each turn; both ``[B, T]``, sampled tokens first (as :class:`~.samples.Packing` makes them)."""
    first = torch.ones_like(turns, dtype=torch.bool)
    first[:, 1:] = turns[:, 1:] != turns[:, :-1]
    return first & mask.bool()


def turn_gae(rewards: Tensor, values: Tensor, mask: Tensor, turns: Tensor, *, gamma: float, lam: float) -> TurnGAE:
    r"""GAE in which a step is a whole turn (the upper level of RAGEN's, arXiv 2504.20073).

    With :math:`r_k` the rewards of turn k and :math:`V_k` the value at its boundary, where the observation ends and the reply begins,
    :math:`A_k = \sum_j (\gamma\lambda)^j (r_{k+j} + \gamma V_{k+j+1} - V_{k+j})`; every token of the turn gets :math:`A_k`. A value read
    later, at the turn's last token, would know the action that it is to be a baseline for. All tensors are ``[B, T]``, sampled tokens
    first; ``turns`` numbers the turn of each.
    """
    starts = turn_starts(mask, turns)
    index = (starts.cumsum(-1) - 1).clamp(min=0)
    k = torch.zeros(mask.shape[0], int(starts.sum(-1).max()), dtype=rewards.dtype, device=mask.device)
    first = torch.where(starts, values, 0.0)
    per_turn = [k.scatter_add(1, index, torch.where(mask.bool(), x, 0.0)) for x in (rewards, first, starts.to(rewards.dtype))]
    got = gae(*per_turn, gamma=gamma, lam=lam)
    advantages, returns = (torch.where(on, x.gather(1, index), 0.0) for x, on in zip(got, (mask.bool(), starts), strict=True))
    return TurnGAE(advantages, returns, starts.to(mask.dtype))


def masked_whiten(x: Tensor, mask: Tensor) -> Tensor:
    r"""To mean 0 and unbiased variance 1 over the mask: :math:`(x - \mu) / \sqrt{\sigma^2 + 10^{-8}}`; 0 off the mask.

    Equal values, a single one included, give exactly 0.
    """
    m = mask.bool()
    chosen = x[m].double()
    if len(chosen) == 0 or bool(chosen.max() == chosen.min()):
        return torch.zeros_like(x)
    white = (x.double() - chosen.mean()) * (chosen.var(correction=1) + WHITEN_EPS).rsqrt()
    return torch.where(m, white, 0.0).to(x.dtype)


def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> float | None:
    r"""Share of the returns' variance that the critic knows: :math:`1 - \mathrm{Var}(R - V) / \mathrm{Var}(R)` over the mask.

    1 is perfect, 0 no better than a constant. None if the returns do not vary.
    """
    r, v = returns[mask.bool()].double(), values[mask.bool()].double()
    if len(r) == 0 or bool(r.max() == r.min()):
        return None
    return float(1.0 - (r - v).var(correction=0) / r.var(correction=0))
