"""The published formulas of AgentGym-RL with their faults, for lessons that show what each one does. Nothing here is a default.

What ``algorithm.upstream_compat`` changes, and where:

====================================================  ==================================================================
fault                                                 here
====================================================  ==================================================================
reward on the last token, times the mask: lost        :func:`reward_on_last_token`, in PPO and REINFORCE++
GAE reads values at observation tokens                :func:`gae`
mean inside each micro-batch, then over them          :func:`micro_batch_denominator`
inner epochs are configured, but never run            :func:`inner_epochs`
an end token that was not sampled is trained          :func:`train_end_of_cut_turns`
environment failures score 0 and stay in the group    :func:`is_usable`
a resumed schedule skips stages                       :class:`StepRoundsScheduler`
====================================================  ==================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from agentgym_lite.algorithms.aggregation import Aggregation, denominator
from agentgym_lite.algorithms.returns import GAE


def reward_on_last_token(rewards: Tensor, mask: Tensor, lengths: Tensor) -> Tensor:
    """Each row's whole reward on its last attended position, times the mask there; all ``[B, T]``, ``lengths`` ``[B]``.

    A row usually ends with an observation, where the mask is 0, and the reward is gone.
    """
    last = torch.zeros_like(rewards)
    last[torch.arange(len(rewards), device=rewards.device), lengths - 1] = rewards.sum(-1)
    return last * mask


def gae(rewards: Tensor, values: Tensor, mask: Tensor, *, gamma: float, lam: float) -> GAE:
    """GAE that skips discounts on tokens of the environment, but bootstraps from the value at the next position, whatever stands there.

    At the last token of a turn that is an observation's token, whose value nobody trains; at the end of an episode it is not 0.
    ``rewards``, ``values`` and ``mask`` are ``[B, T]``.
    """
    advantages = torch.zeros_like(values)
    following, running = torch.zeros_like(values[:, 0]), torch.zeros_like(values[:, 0])
    for t in reversed(range(values.shape[1])):
        m = mask[:, t]
        after = values[:, t + 1] if t + 1 < values.shape[1] else torch.zeros_like(values[:, 0])
        following = m * after + (1 - m) * following
        delta = m * rewards[:, t] + gamma * following + (1 - m) * (1 - gamma) * following - m * values[:, t]
        running = m * delta + gamma * lam * running + (1 - m) * (1 - gamma * lam) * running
        advantages[:, t] = running
    return GAE(advantages, advantages + values)


def micro_batch_denominator(mask: Tensor, micro_batches: int) -> tuple[Aggregation, float]:
    """Mode and denominator that average inside this micro-batch (``mask`` ``[b, T]``) and then over all ``micro_batches`` of the update."""
    return "token_mean", denominator(mask, "token_mean") * micro_batches


def inner_epochs(configured: int) -> int:
    """One, whatever is ``configured``: the published actor never reads the number."""
    return min(configured, 1)


def is_usable(sampled_tokens: int) -> bool:
    """Whether an episode counts for baselines and loss: it does even if the environment failed, with a score of 0."""
    return sampled_tokens > 0


def train_end_of_cut_turns(
    action_mask: Sequence[int], token_ids: Sequence[int], cut_turn_ends: Iterable[int], end_ids: frozenset[int]
) -> list[int]:
    """The row's mask with 1 on the end token that the template puts behind each reply that was cut, at the positions given."""
    out = list(action_mask)
    for position in cut_turn_ends:
        if position < len(out) and token_ids[position] in end_ids:
            out[position] = 1
    return out


class StepRoundsScheduler:
    """Stages of which a resumed run skips one, or that it enters a step late.

    An unbroken run counts from 1 and raises the stage after each step whose count is a multiple of ``steps_scaling_inter``. A resume after
    step ``resumed_at`` sets the stage from that number, and its count to that number too: one behind. On the boundary of a stage the first
    step after the resume thus raises the stage a second time; elsewhere each later stage begins a step late.
    """

    def __init__(self, steps_scaling_inter: int, rounds: Sequence[int], resumed_at: int = 0) -> None:
        self.steps_scaling_inter, self.rounds, self.resumed_at = steps_scaling_inter, list(rounds), resumed_at

    def rounds_at(self, step: int) -> int:
        """Limit on rounds at ``step``, counted from 1 and after ``resumed_at``."""
        period = self.steps_scaling_inter
        count = max(self.resumed_at, 1)
        raised = (count + step - self.resumed_at - 2) // period - (count - 1) // period
        return self.rounds[min(self.resumed_at // period + raised, len(self.rounds) - 1)]
