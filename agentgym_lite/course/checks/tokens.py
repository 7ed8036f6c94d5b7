"""Checks of lesson 03: masks, log-probs of targets, rewards on tokens, exact prefixes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from agentgym_lite.course.checks.check import Case, Check, Mistake

Turns = Sequence[tuple[list[int], list[int]]]

# -- build_row(opening, turns, end) -> (token_ids, action_mask) ------------------------------------------------------------------------


def _row(
    *, opening: int = 0, observed: int = 0, cut_end: int | None = 0, sampled_end: int = 1, twice: bool = False
) -> Callable[[list[int], Turns, int], tuple[list[int], list[int]]]:
    """A builder that gives these masks to the opening, observations and end tokens; ``cut_end=None`` adds none to a cut reply."""

    def build(head: list[int], turns: Turns, end: int) -> tuple[list[int], list[int]]:
        ids, mask = list(head), [opening] * len(head)
        for reply, observation in turns:
            stopped = reply[-1] == end
            ids += reply
            mask += [1] * len(reply)
            if stopped:
                mask[-1] = sampled_end
            if twice or (not stopped and cut_end is not None):
                ids.append(end)
                mask.append(cut_end or 0)
            ids += observation
            mask += [observed] * len(observation)
        return ids, mask

    return build


def _inverted(head: list[int], turns: Turns, end: int) -> tuple[list[int], list[int]]:
    ids, mask = _row()(head, turns, end)
    return ids, [1 - m for m in mask]


build_row = Check(
    "build_row",
    _row(),
    (
        Case("two whole replies", ([1, 2, 3], [([10, 11, 9], [4, 5]), ([12, 9], [6])], 9)),
        Case("a reply that was cut before its end token", ([1, 2], [([10, 11], [4, 5]), ([12, 9], [])], 9)),
        Case("one reply and nothing after it", ([1], [([10, 9], [])], 9)),
    ),
    (
        Mistake(
            "the end token behind a cut reply has mask 1: the template put it there, the policy never sampled it, and it would learn to "
            "stop in the middle (published fault 6)",
            _row(cut_end=1),
        ),
        Mistake(
            "end tokens have mask 0 even where the policy sampled them: it would never learn to stop. This happens when padding is "
            "masked out by its id and the end token has the same id",
            _row(sampled_end=0),
        ),
        Mistake(
            "a cut reply is followed by the observation at once: the template still needs its end token there, with mask 0",
            _row(cut_end=None),
        ),
        Mistake("there are two end tokens where one was sampled: add one only if the reply does not end with it", _row(twice=True)),
        Mistake("observations have mask 1: the policy would be trained to write the environment's part", _row(observed=1)),
        Mistake("the opening has mask 1: nobody sampled it", _row(opening=1)),
        Mistake("0 and 1 are swapped: 1 is for what the policy sampled", _inverted),
    ),
)

# -- target_logprobs(logits, ids, mask) -> [T - 1] -------------------------------------------------------------------------------------


def _score(logp: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask.bool(), logp.gather(-1, targets[:, None])[:, 0], 0.0)


def _target_logprobs(logits: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
    return _score(logits.log_softmax(-1)[:-1], ids[1:], mask[1:])


_generator = torch.Generator().manual_seed(3)
target_logprobs = Check(
    "target_logprobs",
    _target_logprobs,
    (
        Case(
            "a row of six tokens, of which the third, fourth and last are sampled",
            (torch.randn(6, 5, generator=_generator), torch.tensor([1, 0, 4, 2, 2, 3]), torch.tensor([0, 0, 1, 1, 0, 1])),
        ),
        Case(
            "a row whose last token is an observation's",
            (3 * torch.randn(4, 3, generator=_generator), torch.tensor([0, 2, 1, 1]), torch.tensor([0, 1, 1, 0])),
        ),
    ),
    (
        Mistake(
            "each token is scored with the logits at its own place, which have already read it: the logits at t predict token t + 1",
            lambda logits, ids, mask: _score(logits.log_softmax(-1)[1:], ids[1:], mask[1:]),
        ),
        Mistake(
            "the logits at t are asked for token t, which they have read, not for token t + 1",
            lambda logits, ids, mask: _score(logits.log_softmax(-1)[:-1], ids[:-1], mask[1:]),
        ),
        Mistake(
            "the targets are shifted, but the mask is not: it belongs to the target too",
            lambda logits, ids, mask: _score(logits.log_softmax(-1)[:-1], ids[1:], mask[:-1]),
        ),
        Mistake(
            "these are the logits themselves: without log_softmax they are no log-probabilities",
            lambda logits, ids, mask: _score(logits[:-1], ids[1:], mask[1:]),
        ),
        Mistake(
            "these are probabilities, not their logarithms",
            lambda logits, ids, mask: _score(logits.softmax(-1)[:-1], ids[1:], mask[1:]),
        ),
        Mistake(
            "log_softmax goes over the positions: the probabilities of one position must sum to 1, so it goes over the last dimension",
            lambda logits, ids, mask: _score(logits.log_softmax(0)[:-1], ids[1:], mask[1:]),
        ),
        Mistake(
            "tokens that the policy did not sample have a log-prob too: they must be 0 here",
            lambda logits, ids, mask: _score(logits.log_softmax(-1)[:-1], ids[1:], torch.ones_like(mask[1:])),
        ),
    ),
    grad=(0,),
)

# -- place_rewards(turn_rewards, mask, turn_ids) -> [T] --------------------------------------------------------------------------------


def _sampled(mask: Sequence[int], turn_ids: Sequence[int], turn: int) -> list[int]:
    return [t for t, m in enumerate(mask) if m and turn_ids[t] == turn]


def _placed(where: Callable[[list[int], int], dict[int, float]]) -> Callable[..., list[float]]:
    """Rewards put where ``where(sampled positions of the turn, length)`` says, with these weights."""

    def place(turn_rewards: Sequence[float], mask: Sequence[int], turn_ids: Sequence[int]) -> list[float]:
        out = [0.0] * len(mask)
        for k, r in enumerate(turn_rewards):
            for t, weight in where(_sampled(mask, turn_ids, k), len(mask)).items():
                out[t] += weight * r
        return out

    return place


def _times_mask(place: Callable[..., list[float]]) -> Callable[..., list[float]]:
    return lambda rewards, mask, turn_ids: [x * m for x, m in zip(place(rewards, mask, turn_ids), mask, strict=True)]


def _last_overall(turn_rewards: Sequence[float], mask: Sequence[int], turn_ids: Sequence[int]) -> list[float]:
    out: list[Any] = [0.0] * len(mask)
    out[max(t for t, m in enumerate(mask) if m)] = sum(turn_rewards)
    return out


_on_row_end = _placed(lambda at, length: {length - 1: 1.0})

place_rewards = Check(
    "place_rewards",
    _placed(lambda at, length: {at[-1]: 1.0}),
    (
        Case("one turn and its last observation", ([1.0], [0, 0, 1, 1, 1, 0, 0], [-1, -1, 0, 0, 0, 1, 1])),
        Case(
            "three turns that all earn",
            ([0.25, 0.5, 0.125], [0, 1, 1, 0, 1, 1, 0, 0, 1, 1, 0], [-1, 0, 0, 1, 1, 1, 2, 2, 2, 2, 3]),
        ),
        Case("a reply of one token", ([0.0, 1.0], [0, 1, 1, 0, 1, 0], [-1, 0, 0, 1, 1, 2])),
    ),
    (
        Mistake(
            "the rewards stand on the last token of the row, an observation's: times the action mask they are gone (published fault 1)",
            _on_row_end,
        ),
        Mistake(
            "the reward is lost: it was put on the last token of the row, where the mask is 0, and multiplied by it (published fault 1)",
            _times_mask(_on_row_end),
        ),
        Mistake(
            "the reward stands one token too late, on the observation that came after the action",
            _placed(lambda at, length: {min(at[-1] + 1, length - 1): 1.0}),
        ),
        Mistake("the reward stands on the first token of the turn: put it on the last", _placed(lambda at, length: {at[0]: 1.0})),
        Mistake(
            "every token of a turn got the whole reward: the sum over the row must be the return of the episode",
            _placed(lambda at, length: dict.fromkeys(at, 1.0)),
        ),
        Mistake(
            "the reward is split over the tokens of its turn: put it on the last one as a whole",
            _placed(lambda at, length: dict.fromkeys(at, 1.0 / len(at))),
        ),
        Mistake("all rewards stand at the end of the last turn: a turn's reward belongs to its own last token", _last_overall),
    ),
)

# -- needs_new_row(seen, prompt) -> bool -----------------------------------------------------------------------------------------------


def _needs_new_row(seen: list[int], prompt: list[int]) -> bool:
    return prompt[: len(seen)] != seen


needs_new_row = Check(
    "needs_new_row",
    _needs_new_row,
    (
        Case("a prompt that only goes on", ([1, 2, 3], [1, 2, 3, 4, 5])),
        Case("a prompt with one id changed in the middle", ([1, 2, 3], [1, 7, 3, 4, 5])),
        Case("a prompt that is shorter than what was seen", ([1, 2, 3], [1, 2])),
        Case("a prompt that adds nothing", ([1, 2, 3], [1, 2, 3])),
        Case("a reply that was encoded again with fewer ids", ([1, 2, 3, 4], [1, 2, 34, 5, 6])),
        Case("a prompt that differs in the last seen id", ([1, 2, 3], [1, 2, 4, 5])),
    ),
    (
        Mistake("only the lengths are compared: ids can change without the number changing", lambda seen, p: len(p) < len(seen)),
        Mistake(
            "zip stops at the shorter list: a prompt that lost its end passes for a continuation",
            lambda seen, p: any(a != b for a, b in zip(seen, p, strict=False)),
        ),
        Mistake("every prompt that grows opens a new row: only what was seen must be equal", lambda seen, p: p != seen),
        Mistake("True and False are swapped: True means that a new row is needed", lambda seen, p: not _needs_new_row(seen, p)),
        Mistake(
            "only the last seen token is compared: all must be equal", lambda seen, p: len(p) < len(seen) or p[len(seen) - 1] != seen[-1]
        ),
    ),
)
