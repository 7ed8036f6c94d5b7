"""Checks of lesson 04: the score function, returns over the policy's tokens, k3, whitening, the mean of a split batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from agentgym_lite.algorithms import discounted_returns, kl_estimate, masked_whiten
from agentgym_lite.course.checks.check import Case, Check, Mistake

# -- score_function(logits, action) -> [V] ---------------------------------------------------------------------------------------------


def _hot(logits: Tensor, action: int) -> Tensor:
    return one_hot(torch.tensor(action), len(logits)).to(logits.dtype)


def _score(logits: Tensor, action: int) -> Tensor:
    return _hot(logits, action) - logits.softmax(-1)


score_function = Check(
    "score_function",
    _score,
    (
        Case("five equally likely tokens", (torch.zeros(5), 2)),
        Case("three tokens of different probability", (torch.tensor([1.0, 0.0, -2.0]), 0)),
        Case("the least likely token", (torch.tensor([0.5, 2.0, -1.0, 0.0]), 2)),
    ),
    (
        Mistake("this is the gradient of -log pi: the sign is turned around", lambda z, a: -_score(z, a)),
        Mistake("the - pi(v) is missing: raising one logit lowers all other probabilities, so their gradients are negative", _hot),
        Mistake("this is the gradient of pi(a), not of log pi(a): one factor pi(a) too many", lambda z, a: z.softmax(-1)[a] * _score(z, a)),
        Mistake(
            "only the entry of the action is filled: the other logits have a gradient too, through the normalisation",
            lambda z, a: _hot(z, a) * _score(z, a),
        ),
        Mistake("log-probabilities are subtracted where probabilities belong", lambda z, a: _hot(z, a) - z.log_softmax(-1)),
        Mistake("the logits are subtracted where probabilities belong: softmax is missing", lambda z, a: _hot(z, a) - z),
    ),
)

# -- policy_returns(rewards, mask, gamma) -> [T] ---------------------------------------------------------------------------------------


def _returns(rewards: Tensor, mask: Tensor, gamma: float) -> Tensor:
    return discounted_returns(rewards[None], mask[None], gamma=gamma)[0]


def _recursion(step: Callable[[float, float, bool, float], float], shown: bool = False) -> Callable[[Tensor, Tensor, float], Tensor]:
    """A backward loop ``running = step(running, reward, sampled, gamma)``, kept at sampled tokens, or everywhere if ``shown``."""

    def returns(rewards: Tensor, mask: Tensor, gamma: float) -> Tensor:
        out, running = torch.zeros_like(rewards), 0.0
        for t in reversed(range(len(rewards))):
            running = step(running, float(rewards[t]), bool(mask[t]), gamma)
            out[t] = running if shown or mask[t] else 0.0
        return out

    return returns


def _forward(rewards: Tensor, mask: Tensor, gamma: float) -> Tensor:
    return _returns(rewards.flip(0), mask.flip(0), gamma).flip(0)


policy_returns = Check(
    "policy_returns",
    _returns,
    (
        Case(
            "two turns with an observation between them and one behind",
            (torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]), torch.tensor([1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0]), 0.5),
        ),
        Case(
            "rewards after both turns",
            (torch.tensor([0.0, 0.0, 0.25, 0.0, 0.0, 1.0]), torch.tensor([0.0, 1.0, 1.0, 0.0, 0.0, 1.0]), 0.9),
        ),
    ),
    (
        Mistake(
            "observation tokens are discounted too: one discount per token that the policy samples",
            _recursion(lambda g, r, sampled, gamma: r + gamma * g),
        ),
        Mistake(
            "the return starts anew at every observation, so that only the last turn sees the reward",
            _recursion(lambda g, r, sampled, gamma: (r + gamma * g) if sampled else 0.0),
        ),
        Mistake("nothing is discounted: gamma is not used", _recursion(lambda g, r, sampled, gamma: r + g)),
        Mistake(
            "observation tokens have a return: put 0 where the mask is 0",
            _recursion(lambda g, r, sampled, gamma: r + gamma * g if sampled else g, shown=True),
        ),
        Mistake("the sum runs forwards: a return counts the rewards that are still to come, so go through the row backwards", _forward),
        Mistake("these are the rewards themselves: a token also answers for what comes after it", lambda r, m, gamma: r * m),
        Mistake(
            "the reward itself is discounted: G = r + gamma G, with gamma on the later part only",
            _recursion(lambda g, r, sampled, gamma: gamma * (r + g) if sampled else g),
        ),
    ),
)

# -- kl_k3(logprobs, ref_logprobs) -> same shape -----------------------------------------------------------------------------------------


def _of_ratio(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda logprobs, ref: f(ref - logprobs)


kl_k3 = Check(
    "kl_k3",
    lambda logprobs, ref: kl_estimate(logprobs, ref, "k3"),
    (
        Case("log-probs above and below the reference", (torch.tensor([-1.0, -0.2, -2.0]), torch.tensor([-0.5, -1.2, -2.0]))),
        Case("a batch of rows", (torch.tensor([[-0.1, -3.0], [-1.0, -0.7]]), torch.tensor([[-0.3, -1.0], [-1.5, -0.9]]))),
    ),
    (
        Mistake(
            "the ratio is upside down: x = log pi_ref - log pi, as the tokens were sampled from pi",
            lambda logprobs, ref: torch.expm1(logprobs - ref) - (logprobs - ref),
        ),
        Mistake("this is k1 = -x: right in the mean, but its gradient as a loss is 0 in the mean", _of_ratio(lambda x: -x)),
        Mistake("this is k2 = x^2 / 2", _of_ratio(lambda x: 0.5 * x.square())),
        Mistake("the - 1 is missing: equal policies must give 0", _of_ratio(lambda x: x.exp() - x)),
        Mistake("the - x is missing: e^x - 1 alone is negative wherever pi_ref < pi", _of_ratio(torch.expm1)),
        Mistake("x is added, not subtracted: the estimate must never be negative", _of_ratio(lambda x: torch.expm1(x) + x)),
    ),
    grad=(0,),
)

# -- whiten(x, mask) -> [B, T] -----------------------------------------------------------------------------------------------------------


def _white(x: Tensor, chosen: Tensor, mask: Tensor, *, correction: int = 1, divide: bool = True) -> Tensor:
    centred = x - chosen.mean()
    return mask * (centred / (chosen.var(correction=correction) + 1e-8).sqrt() if divide else centred)


def _by_row(x: Tensor, mask: Tensor) -> Tensor:
    return torch.stack([_white(r, r[m.bool()], m) for r, m in zip(x, mask, strict=True)])


def _unmasked_result(x: Tensor, mask: Tensor) -> Tensor:
    return _white(x, x[mask.bool()], torch.ones_like(mask))


whiten = Check(
    "whiten",
    masked_whiten,
    (
        Case(
            "two rows of different length",
            (torch.tensor([[1.0, 3.0, 9.0, 9.0], [0.0, 2.0, 4.0, 4.5]]), torch.tensor([[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])),
        ),
        Case(
            "observations in the middle",
            (torch.tensor([[0.5, 7.0, 1.5], [1.0, 7.0, 0.0]]), torch.tensor([[1.0, 0.0, 1.0], [1.0, 0.0, 1.0]])),
        ),
        Case("equal values, which whiten to 0", (torch.ones(2, 2), torch.tensor([[1.0, 1.0], [1.0, 1.0]]))),
    ),
    (
        Mistake(
            "mean and variance are taken over all positions, padding and observations too: count sampled tokens alone",
            lambda x, m: _white(x, x.flatten(), m),
        ),
        Mistake("each row is whitened on its own: REINFORCE++ compares over the whole batch", _by_row),
        Mistake("the variance is divided by n, not by n - 1", lambda x, m: _white(x, x[m.bool()], m, correction=0)),
        Mistake("the values are centred, but not divided by the standard deviation", lambda x, m: _white(x, x[m.bool()], m, divide=False)),
        Mistake("positions off the mask are not 0", _unmasked_result),
    ),
    atol=1e-4,
)

# -- batch_loss(parts) -> scalar ---------------------------------------------------------------------------------------------------------


def _batch_loss(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat(list(parts)).mean()


batch_loss = Check(
    "batch_loss",
    _batch_loss,
    (
        Case("a short and a long episode", ([torch.tensor([1.0, 1.0]), torch.tensor([0.0, 0.5, 0.0, 0.0, 0.0, 0.0])],)),
        Case("three episodes", ([torch.tensor([2.0]), torch.tensor([1.0, 3.0, 2.0]), torch.tensor([0.0, 0.0])],)),
        Case("one micro-batch", ([torch.tensor([1.0, 2.0])],)),
    ),
    (
        Mistake(
            "this is a mean of means: a token in a short micro-batch weighs more than one in a long one. Divide the sum of all by the "
            "number of all tokens (published fault 8)",
            lambda parts: torch.stack([p.mean() for p in parts]).mean(),
        ),
        Mistake("the sum is divided by the micro-batches, not by the tokens", lambda parts: torch.cat(list(parts)).sum() / len(parts)),
        Mistake("the means of the micro-batches are added up", lambda parts: torch.stack([p.mean() for p in parts]).sum()),
        Mistake("this is the sum over all tokens: divide by their number", lambda parts: torch.cat(list(parts)).sum()),
    ),
)
