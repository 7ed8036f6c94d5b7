"""What an agent does besides acting: it plans, reflects on failures, and minds how much it remembers.

All of it is done by asking the policy in plain text; the answers are sampled, and trained, like any reply.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ask:
    """A question to the policy whose answer is no action: it costs no round and reaches no environment.

    ``kind`` names the turn. ``text`` goes behind the latest observation. The answer is kept under the heading ``label`` when the turn
    itself has gone out of view; without a label it is forgotten then. ``then`` opens the next message.
    """

    kind: str
    text: str
    label: str = ""
    then: str = ""


class Strategy:
    """Acts at once and tries once (ReAct, Yao et al., arXiv 2210.03629). Others override what they change."""

    def ask(self, attempt: int, rounds: int) -> Ask | None:
        """What to ask before the next action, ``rounds`` into an attempt; both counted from 0. None: act."""
        return None

    def after_failure(self, attempt: int) -> Ask | None:
        """What to ask after a failed attempt, counted from 0, before the next one begins. None: give up."""
        return None


class PlanFirst(Strategy):
    """Plans before the first action of each attempt (Plan-and-Solve, Wang et al., arXiv 2305.04091)."""

    def ask(self, attempt: int, rounds: int) -> Ask | None:
        if rounds:
            return None
        text = "Do not act yet. First write a short plan: the steps that lead to the goal, one per line."
        return Ask("plan", text, "Your plan:", "Now carry out the plan, one action at a time. Give your first action.")


class Reflect(Strategy):
    """Tries up to ``attempts`` times, with the lessons of its failures in view (Reflexion, Shinn et al., arXiv 2303.11366).

    Raises ``ValueError`` for less than two attempts.
    """

    def __init__(self, attempts: int = 2) -> None:
        if attempts < 2:
            raise ValueError(f"expected at least 2 attempts to reflect between, found {attempts}")
        self.attempts = attempts

    def after_failure(self, attempt: int) -> Ask | None:
        if attempt + 1 >= self.attempts:
            return None
        text = "This attempt has failed. Do not act. Say in a few sentences what went wrong and what you will do differently next time."
        return Ask("reflection", text, f"You failed attempt {attempt + 1} and noted:")


class Memory:
    """Remembers everything.

    ``turns`` is the number of latest turns that stay in view, None for all of them.
    """

    turns: int | None = None

    def ask(self, rounds: int) -> Ask | None:
        """What to ask for in place of the ``rounds`` in view, which are then forgotten. None: keep them."""
        return None


class WindowMemory(Memory):
    """Keeps the last ``turns`` turns, the task, and what the strategy keeps. Raises ``ValueError`` if that is none."""

    def __init__(self, turns: int) -> None:
        if turns < 1:
            raise ValueError(f"expected a window of at least 1 turn, found {turns}")
        self.turns = turns


class SummaryMemory(Memory):
    """Has the policy replace every ``rounds`` rounds by a summary (as MemAgent does, Yu et al., arXiv 2507.02259).

    Raises ``ValueError`` if that is none.
    """

    def __init__(self, rounds: int) -> None:
        if rounds < 1:
            raise ValueError(f"expected a summary every 1 or more rounds, found {rounds}")
        self.rounds = rounds

    def ask(self, rounds: int) -> Ask | None:
        if rounds < self.rounds:
            return None
        text = (
            "Do not act yet. Everything above but the task will be forgotten. Summarise in a few sentences what matters for reaching the "
            "goal: what you did, what you have, what you know."
        )
        return Ask("summary", text, "What happened so far, as you noted it:")
