"""Checks of lesson 07: an advantage function, a reward, a curriculum, the loss on pairs, and what AgentEvol keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from agentgym_lite.algorithms.preference import dpo_loss
from agentgym_lite.course.checks.check import Case, Check, Mistake
from agentgym_lite.rollout.types import EpisodeSpec, Trajectory, Turn

# -- best_of_group(returns, groups) -> [N] ---------------------------------------------------------------------------------------------


def _best(*, flat: float = 0.0, all_ties: bool = True, others: float = 0.0) -> Callable[[Tensor, Tensor], Tensor]:
    """1 for the best of each group; ``flat`` for the members of a group of equal returns."""

    def advantages(returns: Tensor, groups: Tensor) -> Tensor:
        out = torch.zeros_like(returns)
        for g in groups.unique():
            r = returns[groups == g]
            best = r == r.max()
            if not all_ties:
                best = torch.arange(len(r)) == r.argmax()
            out[groups == g] = torch.where(best, 1.0, others) if r.max() > r.min() else torch.full_like(r, flat)
        return out

    return advantages


def _best_of_all(returns: Tensor, groups: Tensor) -> Tensor:
    return (returns == returns.max()).float()


def _above_mean(returns: Tensor, groups: Tensor) -> Tensor:
    return torch.stack([(r > returns[groups == g].mean()).float() for r, g in zip(returns, groups, strict=True)])


def _successes(returns: Tensor, groups: Tensor) -> Tensor:
    return torch.where(_best()(returns, groups) > 0, (returns >= 1).float(), 0.0)


best_of_group = Check(
    "best_of_group",
    _best(),
    (
        Case("a group with one best and a group with two", (torch.tensor([1.0, 0.0, 0.2, 0.5, 0.5]), torch.tensor([0, 0, 1, 1, 1]))),
        Case("groups whose members are mixed", (torch.tensor([0.5, 1.0, 0.9, 0.0, 1.0]), torch.tensor([3, 8, 3, 3, 8]))),
        Case("a group of one, and one without a success", (torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0, 1, 1]))),
    ),
    (
        Mistake("the best of the whole batch is taken: an episode is judged by its own group, whose item may be harder", _best_of_all),
        Mistake("where all returns of a group are equal, all are best and none is better: they must get 0", _best(flat=1.0)),
        Mistake("of several best episodes only the first counts: `argmax` finds one, `r == r.max()` all", _best(all_ties=False)),
        Mistake("the others get -1: this rule only says what to imitate, it pushes nothing down", _best(others=-1.0)),
        Mistake("all that are above the mean of their group count: only the best is wanted", _above_mean),
        Mistake("only returns of 1 count as best: with partial rewards the best of a group may have less", _successes),
    ),
)

# -- brief(trajectory) -> list of rewards per turn ---------------------------------------------------------------------------------------


def _brief(*, per_turn: float = 0.01, per_invalid: float = 0.05, base: float = 1.0) -> Callable[[Trajectory], list[float]]:
    return lambda t: [base * u.reward - per_turn - per_invalid * u.invalid for u in t.turns]


def _in_one(trajectory: Trajectory) -> float:
    return sum(_brief()(trajectory))


def _at_the_end(trajectory: Trajectory) -> list[float]:
    return [0.0] * (len(trajectory.turns) - 1) + [_in_one(trajectory)]


def _played(*turns: tuple[float, bool]) -> Trajectory:
    return Trajectory(EpisodeSpec("probe_both", "probe_both_0"), turns=[Turn("", "", "left", reward=r, invalid=i) for r, i in turns])


brief = Check(
    "brief",
    _brief(),
    (
        Case("three turns, of which the second is invalid and the last is paid", (_played((0.0, False), (0.0, True), (1.0, False)),)),
        Case("a paid first turn and two invalid ones", (_played((0.5, False), (0.0, True), (0.0, True)),)),
        Case(
            "a single turn",
            (
                _played(
                    (1.0, False),
                ),
            ),
        ),
    ),
    (
        Mistake(
            "this is one number for the episode, which is credited to the last turn alone: return a list with one number per turn", _in_one
        ),
        Mistake("all of it stands on the last turn: an invalid turn must be blamed where it happened", _at_the_end),
        Mistake("an invalid turn costs no more than any other", _brief(per_invalid=0.0)),
        Mistake("a turn costs nothing unless it is invalid", _brief(per_turn=0.0)),
        Mistake("the costs are added: a turn would be paid for being there", _brief(per_turn=-0.01, per_invalid=-0.05)),
        Mistake("the environment's own reward is gone: with costs alone the best policy is to stop at once", _brief(base=0.0)),
        Mistake("an invalid turn costs 0.05 alone: it is a turn too, and costs 0.01 more", lambda t: _either(t)),
    ),
)


def _either(trajectory: Trajectory) -> list[float]:
    return [u.reward - (0.05 if u.invalid else 0.01) for u in trajectory.turns]


# -- ramp(step) -> rounds ----------------------------------------------------------------------------------------------------------------


def _ramp(step: int) -> int:
    return min(5 + (step - 1) // 10, 20)


ramp = Check(
    "ramp",
    _ramp,
    (
        Case("the first step", (1,)),
        Case("step 10, the last with 5 rounds", (10,)),
        Case("step 11", (11,)),
        Case("step 47", (47,)),
        Case("step 150, the last before the limit", (150,)),
        Case("step 151", (151,)),
        Case("step 500", (500,)),
    ),
    (
        Mistake(
            "the change comes a step too soon: steps count from 1, so step 10 is still in the first ten", lambda s: min(5 + s // 10, 20)
        ),
        Mistake("there is no upper limit: rounds must stop at 20", lambda s: 5 + (s - 1) // 10),
        Mistake("the rounds grow in fractions: an episode takes a whole number of them", lambda s: min(5 + (s - 1) / 10, 20)),
        Mistake("one round more is allowed at every step: only every ten steps", lambda s: min(5 + s - 1, 20)),
        Mistake("it begins with 1 round, not with 5", lambda s: min(1 + (s - 1) // 10, 20)),
        Mistake("rounds never grow: `max` takes the larger, and 20 is larger from the start", lambda s: max(5 + (s - 1) // 10, 20)),
    ),
)

# -- pair_loss(chosen, rejected, ref_chosen, ref_rejected, beta) -> [P] ------------------------------------------------------------------


def _pair(
    margin: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor], squash: Callable[[Tensor], Tensor] | None = None
) -> Callable[..., Tensor]:
    def loss(chosen: Tensor, rejected: Tensor, ref_chosen: Tensor, ref_rejected: Tensor, beta: float) -> Tensor:
        return (squash or (lambda x: -F.logsigmoid(x)))(beta * margin(chosen, rejected, ref_chosen, ref_rejected))

    return loss


def _margin(c: Tensor, r: Tensor, rc: Tensor, rr: Tensor) -> Tensor:
    return (c - rc) - (r - rr)


def _beta_outside(c: Tensor, r: Tensor, rc: Tensor, rr: Tensor, beta: float) -> Tensor:
    return -beta * F.logsigmoid(_margin(c, r, rc, rr))


pair_loss = Check(
    "pair_loss",
    lambda *args: dpo_loss(*args).loss,
    (
        Case(
            "one pair, worked out in section 4",
            (torch.tensor([-2.0]), torch.tensor([-3.0]), torch.tensor([-2.5]), torch.tensor([-2.8]), 0.5),
        ),
        Case(
            "two pairs",
            (torch.tensor([-1.0, -4.0]), torch.tensor([-2.0, -3.0]), torch.tensor([-1.5, -2.0]), torch.tensor([-1.0, -3.5]), 0.1),
        ),
    ),
    (
        Mistake("the reference is left out: without it nothing says how far the policy may go", _pair(lambda c, r, rc, rr: c - r)),
        Mistake("the two sides are exchanged: this makes the worse episode more likely", _pair(lambda *a: -_margin(*a))),
        Mistake("the reference is added, not subtracted", _pair(lambda c, r, rc, rr: (c + rc) - (r + rr))),
        Mistake("beta stands outside of the logarithm: it scales the rewards, inside", _beta_outside),
        Mistake("the logarithm is missing: this is minus the probability", _pair(_margin, lambda x: -torch.sigmoid(x))),
        Mistake("there is no sigmoid: this margin grows without end", _pair(_margin, lambda x: -x)),
        Mistake("only the better episode counts: the loss is about a difference", _pair(lambda c, r, rc, rr: c - rc)),
        Mistake("only the worse episode counts: the loss is about a difference", _pair(lambda c, r, rc, rr: rr - r)),
    ),
    grad=(0, 1),
)

# -- keep_best(items, returns, rounds) -> indices ----------------------------------------------------------------------------------------


def _keep(
    order: Callable[[float, int, int], tuple[float, ...]], *, success_only: bool = True, by_item: bool = True
) -> Callable[[Sequence[str], Sequence[float], Sequence[int]], list[int]]:
    """Indices, ascending, of the episode of each item that is first in ``order(return, rounds, index)``."""

    def keep(items: Sequence[str], returns: Sequence[float], rounds: Sequence[int]) -> list[int]:
        good = [i for i, r in enumerate(returns) if r == 1 or not success_only]
        if not by_item:
            return good
        best: dict[str, int] = {}
        for i in sorted(good, key=lambda i: order(returns[i], rounds[i], i)):
            best.setdefault(items[i], i)
        return sorted(best.values())

    return keep


keep_best = Check(
    "keep_best",
    _keep(lambda r, n, i: (n, i)),
    (
        Case("two items, the shorter success of each", (["a", "a", "b", "a", "b"], [1.0, 1.0, 1.0, 0.0, 1.0], [5, 3, 2, 1, 4])),
        Case("an item that was never solved", (["a", "b", "b", "b"], [0.5, 0.0, 1.0, 1.0], [2, 3, 6, 6])),
        Case("one item, three successes", (["a", "a", "a"], [1.0, 1.0, 1.0], [4, 2, 3])),
    ),
    (
        Mistake("every success is kept: easy items, which are solved often, would drown the others", _keep(lambda *_: (), by_item=False)),
        Mistake(
            "failures are kept too: an item that was never solved has nothing to imitate",
            _keep(lambda r, n, i: (-r, n, i), success_only=False),
        ),
        Mistake("the longest success of each item is kept: take the one with the fewest rounds", _keep(lambda r, n, i: (-n, i))),
        Mistake("the first success of each item is kept, however long: take the one with the fewest rounds", _keep(lambda r, n, i: (i,))),
        Mistake("the last success of each item is kept", _keep(lambda r, n, i: (-i,))),
        Mistake(
            "of two equally short successes the later one is kept: take the first, so that the choice is fixed",
            _keep(lambda r, n, i: (n, -i)),
        ),
        Mistake("the shortest episode of each item is kept, even if it failed", _keep(lambda r, n, i: (n, i), success_only=False)),
    ),
)
