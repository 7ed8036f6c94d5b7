"""Which advantage function belongs to which algorithm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from agentgym_lite.algorithms import upstream
from agentgym_lite.algorithms.advantages import gigpo_advantages, grpo_advantages, rloo_advantages
from agentgym_lite.algorithms.returns import discounted_returns, gae, masked_whiten, turn_gae, turn_starts
from agentgym_lite.algorithms.samples import Credit, Packing, Samples


@dataclass(frozen=True)
class Algorithm:
    """An advantage function, given the step's samples and the algorithm's settings, and whether it needs a critic's values.

    The policy loss is a setting of every algorithm (``loss``), so it is not named here.
    """

    credit: Callable[[Samples, Any], Credit]
    needs_values: bool = False


def _grpo(s: Samples, config: Any) -> Credit:
    got = grpo_advantages(s.returns, s.episode_groups, normalize_std=config.normalize_std)
    return Credit(s.spread(got.advantages))


def _rloo(s: Samples, config: Any) -> Credit:
    return Credit(s.spread(rloo_advantages(s.returns, s.episode_groups).advantages))


def _reinforce_pp(s: Samples, config: Any) -> Credit:
    rewards = _rewards(s, config)
    packing = Packing(s.mask, s.episodes)
    returns = discounted_returns(packing.pack(rewards), packing.valid, gamma=config.gamma)
    return Credit(masked_whiten(packing.unpack(returns), s.mask))


def _reinforce_pp_baseline(s: Samples, config: Any) -> Credit:
    centred = grpo_advantages(s.returns, s.episode_groups, normalize_std=False)
    return Credit(masked_whiten(s.spread(centred.advantages), s.mask))


def _ppo(s: Samples, config: Any) -> Credit:
    assert s.values is not None  # the trainer makes a critic for algorithms that need values
    rewards = _rewards(s, config)
    value_mask = s.mask
    if config.upstream_compat:
        advantages, returns = upstream.gae(rewards, s.values, s.mask, gamma=config.gamma, lam=config.lam)
    else:
        packing = Packing(s.mask, s.episodes)
        r, v = packing.pack(rewards), packing.pack(s.values)
        if config.credit == "turn":
            got = turn_gae(r, v, packing.valid, packing.pack(s.turns), gamma=config.gamma, lam=config.lam)
            advantages, returns, value_mask = (packing.unpack(x) for x in got)
        else:
            advantages, returns = (packing.unpack(x) for x in gae(r, v, packing.valid, gamma=config.gamma, lam=config.lam))
    return Credit(masked_whiten(advantages, s.mask) if config.whiten else torch.where(s.mask.bool(), advantages, 0.0), returns, value_mask)


def _gigpo(s: Samples, config: Any) -> Credit:
    packing = Packing(s.mask, s.episodes)
    starts = turn_starts(packing.valid, packing.pack(s.turns))
    index = (starts.cumsum(-1) - 1).clamp(min=0)
    size = (len(starts), int(starts.sum(-1).max()))
    rewards = torch.zeros(size, device=s.mask.device).scatter_add(1, index, packing.pack(s.rewards - s.penalty))
    played = torch.zeros(size, device=s.mask.device).scatter_add(1, index, starts.float())
    anchors = torch.zeros(size, dtype=torch.long, device=s.mask.device).scatter_add(1, index, packing.pack(s.anchors) * starts)
    per_turn = gigpo_advantages(
        rewards,
        played,
        anchors,
        s.episode_groups.to(s.mask.device),
        gamma=config.gamma,
        step_weight=config.step_weight,
        normalize_std=config.normalize_std,
    )
    return Credit(packing.unpack(per_turn.gather(1, index)))


def _rewards(s: Samples, config: Any) -> torch.Tensor:
    """Token rewards less the KL penalty; as published, if asked for."""
    rewards = upstream.reward_on_last_token(s.rewards, s.mask, s.lengths) if config.upstream_compat else s.rewards
    return rewards - s.penalty


ALGORITHMS: dict[str, Algorithm] = {
    "grpo": Algorithm(_grpo),
    "rloo": Algorithm(_rloo),
    "reinforce_pp": Algorithm(_reinforce_pp),
    "reinforce_pp_baseline": Algorithm(_reinforce_pp_baseline),
    "ppo": Algorithm(_ppo, needs_values=True),
    "gigpo": Algorithm(_gigpo),
}
