"""Checks of lesson 01: how an episode ends, requests that are sent twice, scores that are paid once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentgym_lite.course.checks.check import Case, Check, Mistake

Result = tuple[float, bool, bool]
Outcome = tuple[float, int, str]

# -- episode_outcome(results, max_rounds) -> (return, rounds, stop reason) -------------------------------------------------------------


def _outcome(results: Sequence[Result], max_rounds: int) -> Outcome:
    total = 0.0
    for rounds, (reward, done, success) in enumerate(results[:max_rounds], 1):
        total += reward
        if success or done:
            return total, rounds, "success" if success else "failure"
    return total, max_rounds, "max_rounds"


def _played(results: Sequence[Result], max_rounds: int) -> Sequence[Result]:
    """The results that the episode lives to see."""
    return results[: _outcome(results, max_rounds)[1]]


def _with(change: Callable[[Sequence[Result], int, Outcome], Outcome]) -> Callable[[Sequence[Result], int], Outcome]:
    return lambda results, limit: change(_played(results, limit), limit, _outcome(results, limit))


def _plays_on(results: Sequence[Result], limit: int) -> Outcome:
    seen = results[:limit]
    return sum(r for r, _, _ in seen), len(seen), "success" if seen[-1][2] else "failure" if seen[-1][1] else "max_rounds"


episode_outcome = Check(
    "episode_outcome",
    _outcome,
    (
        Case("an episode that is paid twice and reaches its goal", ([(0.0, False, False), (0.25, False, False), (0.5, True, True)], 10)),
        Case(
            "an episode that the environment ends without success",
            ([(0.0, False, False), (0.0, True, False), (1.0, True, True)], 10),
        ),
        Case(
            "an episode that earns something and runs into the limit",
            ([(0.0, False, False), (0.5, False, False), (0.0, False, False), (1.0, True, True)], 3),
        ),
        Case("a success in the last round that is allowed", ([(0.0, False, False), (1.0, True, True)], 2)),
        Case("an episode that earns something and fails", ([(0.5, False, False), (0.25, True, False), (1.0, True, True)], 5)),
    ),
    (
        Mistake(
            "only the last reward counts: an environment that pays for progress has paid before (a published evaluation did this)",
            _with(lambda seen, limit, o: (seen[-1][0], *o[1:])),
        ),
        Mistake("the return is the sum of the rewards, not their mean", _with(lambda seen, limit, o: (o[0] / o[1], *o[1:]))),
        Mistake("the episode goes on after `done`: later rewards belong to nobody", _plays_on),
        Mistake(
            "one round too many is played: the limit is the number of rounds, not the number of the last one",
            lambda r, n: _outcome(r, n + 1),
        ),
        Mistake("one round too few is played: the limit itself is still allowed", lambda r, n: _outcome(r, n - 1)),
        Mistake(
            "a positive reward is taken for success: partial credit is no success, the environment says so in its own field",
            _with(lambda seen, limit, o: (o[0], o[1], "success" if o[0] > 0 else o[2])),
        ),
        Mistake(
            "the limit is looked at before the result: a goal that is reached in the last round counts",
            _with(lambda seen, limit, o: (o[0], o[1], "max_rounds" if o[1] == limit else o[2])),
        ),
        Mistake(
            "`done` is taken for success: environments also end what has failed",
            _with(lambda seen, limit, o: (o[0], o[1], "success" if seen[-1][1] else o[2])),
        ),
        Mistake(
            "the limit is called a failure: the environment has not said that, and more rounds might have helped",
            _with(lambda seen, limit, o: (o[0], o[1], "failure" if o[2] == "max_rounds" else o[2])),
        ),
    ),
)

# -- answer_requests(requests) -> replies ----------------------------------------------------------------------------------------------

Request = tuple[int, str]


def _serve(decide: Callable[[int, str, list[str]], str], *, refused_counts: bool = False) -> Callable[[Sequence[Request]], list[str]]:
    """A server that asks ``decide(turn, action, carried out so far)`` whether to ``step``, ``repeat`` or ``refuse``."""

    def answer(requests: Sequence[Request]) -> list[str]:
        carried: list[str] = []
        given: dict[int, str] = {}
        skipped, replies = 0, []
        for turn, action in requests:
            verdict = decide(turn - skipped, action, carried)
            if verdict == "step":
                carried.append(action)
                given[len(carried) - 1] = f"step {len(carried)}: {action}"
                replies.append(given[len(carried) - 1])
            elif verdict == "refuse":
                skipped += refused_counts
                replies.append("refused")
            else:
                replies.append(given[turn if verdict == "old" else len(carried) - 1])
        return replies

    return answer


def _right(turn: int, action: str, carried: list[str]) -> str:
    if turn == len(carried):
        return "step"
    return "repeat" if carried and turn == len(carried) - 1 else "refuse"


def _by_action(turn: int, action: str, carried: list[str]) -> str:
    return "repeat" if carried and action == carried[-1] else _right(turn, action, carried)


def _any_old(turn: int, action: str, carried: list[str]) -> str:
    return "old" if turn < len(carried) else _right(turn, action, carried)


def _same_action_only(verdict: str) -> Callable[[int, str, list[str]], str]:
    def decide(turn: int, action: str, carried: list[str]) -> str:
        found = _right(turn, action, carried)
        return verdict if found == "repeat" and action != carried[-1] else found

    return decide


answer_requests = Check(
    "answer_requests",
    _serve(_right),
    (
        Case("two steps, nothing lost", ([(0, "up"), (1, "down")],)),
        Case("a request that is sent again, then the same action in the next turn", ([(0, "up"), (0, "up"), (1, "up")],)),
        Case("turns that come too early or too late", ([(0, "up"), (2, "up"), (1, "down"), (0, "up"), (2, "open")],)),
        Case("a turn that is sent again with another action", ([(0, "up"), (0, "down"), (1, "down")],)),
    ),
    (
        Mistake(
            "every request is carried out: one whose reply was lost and that is sent again then moves the environment twice",
            _serve(lambda turn, action, carried: "step"),
        ),
        Mistake(
            "a repeated turn is refused: the caller never got the first answer and is stuck, so give that answer again",
            _serve(lambda turn, action, carried: "step" if turn == len(carried) else "refuse"),
        ),
        Mistake(
            "requests are told apart by their action: two equal actions in a row are two steps if their turns differ",
            _serve(_by_action),
        ),
        Mistake(
            "a turn from the future is carried out: something has been lost on the way, so refuse it",
            _serve(lambda turn, action, carried: "step" if turn >= len(carried) else _right(turn, action, carried)),
        ),
        Mistake(
            "any old turn gets its old answer: only the last one can be waiting, so an older number is the caller's mistake",
            _serve(_any_old),
        ),
        Mistake(
            "a repeated turn with another action is carried out: the turn number decides, or a retry could change the past",
            _serve(_same_action_only("step")),
        ),
        Mistake("a repeated turn with another action is refused: the turn number alone decides", _serve(_same_action_only("refuse"))),
        Mistake("a refused request counts as a turn: nothing was carried out, so the number stays", _serve(_right, refused_counts=True)),
    ),
)

# -- rises(scores) -> rewards ----------------------------------------------------------------------------------------------------------


def _paid(
    pay: Callable[[float, float, float], float], *, best: float = 0.0, scale: float = 100.0
) -> Callable[[Sequence[float]], list[float]]:
    """Pays ``pay(score, last score, best score before)``, divided by ``scale``."""

    def rewards(scores: Sequence[float]) -> list[float]:
        last, top, out = 0.0, best, []
        for score in scores:
            out.append(pay(score, last, top) / scale)
            last, top = score, max(top, score)
        return out

    return rewards


def _rise(score: float, last: float, best: float) -> float:
    return max(0.0, score - best)


rises = Check(
    "rises",
    _paid(_rise),
    (
        Case("a score that only rises", ([0.0, 25.0, 25.0, 100.0],)),
        Case("a score that falls and rises again", ([40.0, 10.0, 60.0, 60.0],)),
        Case("a task that ends in failure, with a score of -100", ([25.0, -100.0],)),
    ),
    (
        Mistake("the score is paid at every step: a score that stays is then paid again and again", _paid(lambda s, last, best: s)),
        Mistake("the best score so far is paid at every step: pay what it has risen by", _paid(lambda s, last, best: max(s, best))),
        Mistake("a fall is paid as a negative reward: rewards are in [0, 1]", _paid(lambda s, last, best: s - last)),
        Mistake(
            "the way back up is paid a second time: compare with the best score so far, not with the last one (a published environment "
            "adds its reward again and again like this)",
            _paid(lambda s, last, best: max(0.0, s - last)),
        ),
        Mistake("the scores go to 100, rewards to 1: divide", _paid(_rise, scale=1.0)),
        Mistake("a fall below the best is paid as a negative reward: no rise, no reward", _paid(lambda s, last, best: s - best)),
        Mistake(
            "the first score is taken as the start and not paid: the best score before the first step is 0",
            lambda scores: _paid(_rise, best=scores[0])(scores),
        ),
        Mistake(
            "everything is paid at the end: pay each rise in its own turn", lambda scores: [*[0.0] * (len(scores) - 1), max(scores) / 100]
        ),
    ),
)
