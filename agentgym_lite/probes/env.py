"""Probe environments: text tasks so small that only one thing can go wrong in each.

After the probe environments of A. L. Jones ("Debugging RL, Without the Agonizing Pain", 2021). Every observation is one word and every
action is ``left`` or ``right``. An algorithm that fails a probe is broken in the part that the probe isolates, as all others are trivial
there.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from agentgym_envs.core import Environment, Observation, Split, StepResult, UnknownItem

ACTIONS = ("left", "right")
TRAIN_ITEMS, EVAL_ITEMS = range(8), range(8, 12)


class Probe(Environment):
    """Shared mechanics: ``ROUNDS`` rounds, one word per observation, everything paid with the last action.

    Items differ in ``kind`` only, the item's number modulo 2, and the seed changes nothing.
    """

    version: ClassVar[str] = "1"
    instructions: ClassVar[str] = "probe"
    #: The part of an algorithm that fails this probe when it is broken.
    isolates: ClassVar[str]
    ROUNDS: ClassVar[int] = 1
    #: Observation -> the action to prefer there, for a policy that has learned.
    preferred: ClassVar[dict[str, str]] = {}
    #: Observation -> reward to come and turns until it is paid (0: with the next action), for a critic that has learned.
    worth: ClassVar[dict[str, tuple[float, int]]] = {}

    def __init__(self) -> None:
        self._kind = 0
        self._moves: list[str] = []
        self._last: Observation | None = None

    @classmethod
    def items(cls, split: Split) -> list[str]:
        return [f"{cls.name}_{i}" for i in (TRAIN_ITEMS if split == "train" else EVAL_ITEMS)]

    @classmethod
    def task_of(cls, item_id: str | int) -> str:
        return f"kind_{cls._known(item_id) % 2}"

    @classmethod
    def _known(cls, item_id: str | int) -> int:
        index = cls.item_index(item_id)
        if not 0 <= index < EVAL_ITEMS.stop:
            raise UnknownItem(f"expected an item from {cls.name}_0 to {cls.name}_{EVAL_ITEMS.stop - 1}, found {item_id!r:.80}")
        return index

    def reset(self, item_id: str | int, seed: int = 0) -> Observation:
        self._kind = self._known(item_id) % 2
        self._moves = []
        return self._observe(self._word())

    def step(self, action: str) -> StepResult:
        if self._last is None:
            raise RuntimeError("expected reset before step")
        if self._done:
            return self._result(self._last, 0.0, invalid=True)
        if action not in ACTIONS:
            return self._result(self._observe(f"illegal {self._word()}"), 0.0, invalid=True)
        self._moves.append(action)
        if self._done:
            return self._result(self._observe("end"), self._payment(), invalid=False)
        return self._result(self._observe(self._word()), 0.0, invalid=False)

    def available_actions(self) -> list[str]:
        return list(ACTIONS)

    def render(self) -> dict[str, Any]:
        """``best`` is an action that an expert may take now."""
        text = self._last.text if self._last else ""
        return {"kind": self.name, "text": text, "best": self._best(), "moves": list(self._moves)}

    @abstractmethod
    def _word(self) -> str:
        """What is shown before the next action."""

    @abstractmethod
    def _payment(self) -> float:
        """The reward of the last action."""

    def _best(self) -> str:
        return "left"

    @property
    def _done(self) -> bool:
        return len(self._moves) == self.ROUNDS

    def _observe(self, text: str) -> Observation:
        self._last = Observation(text, ACTIONS)
        return self._last

    def _result(self, observation: Observation, reward: float, *, invalid: bool) -> StepResult:
        success = self._done and self._payment() > 0
        score = self._payment() if self._done else 0.0
        return StepResult(observation, reward, self._done, {"success": success, "invalid": invalid, "score": score})


class ValueProbe(Probe):
    """One round, always paid 1: the value function has one number to learn, and no advantage may stay."""

    name: ClassVar[str] = "probe_value"
    isolates: ClassVar[str] = "the value function: its loss, its optimizer, the returns it is fitted to"
    worth: ClassVar[dict[str, tuple[float, int]]] = {"start": (1.0, 0)}

    def _word(self) -> str:
        return "start"

    def _payment(self) -> float:
        return 1.0


class ObservationProbe(Probe):
    """One round, paid 1 under ``sun`` and 0.5 under ``rain`` whatever is done: the value must read the observation."""

    name: ClassVar[str] = "probe_observation"
    isolates: ClassVar[str] = "the way from the observation to the value: alignment of values, gradients through the network"
    worth: ClassVar[dict[str, tuple[float, int]]] = {"sun": (1.0, 0), "rain": (0.5, 0)}

    def _word(self) -> str:
        return ("sun", "rain")[self._kind]

    def _payment(self) -> float:
        return (1.0, 0.5)[self._kind]


class DelayProbe(Probe):
    """Two rounds, always paid 1 at the end: the value of the first round is the discounted value of the second."""

    name: ClassVar[str] = "probe_delay"
    isolates: ClassVar[str] = "discounting and bootstrapping across turns"
    ROUNDS: ClassVar[int] = 2
    worth: ClassVar[dict[str, tuple[float, int]]] = {"first": (1.0, 1), "second": (1.0, 0)}

    def _word(self) -> str:
        return ("first", "second")[len(self._moves)]

    def _payment(self) -> float:
        return 1.0


class ActionProbe(Probe):
    """One round, always the same observation, paid for ``left`` only: the policy has one preference to learn."""

    name: ClassVar[str] = "probe_action"
    isolates: ClassVar[str] = "advantages and the policy loss: their sign, the reward on the way to them"
    preferred: ClassVar[dict[str, str]] = {"start": "left"}

    def _word(self) -> str:
        return "start"

    def _payment(self) -> float:
        return float(self._moves[-1] == "left")


class BothProbe(Probe):
    """One round: ``left`` pays on ``red``, ``right`` on ``blue``, so the policy must read the observation."""

    name: ClassVar[str] = "probe_both"
    isolates: ClassVar[str] = "the way from the observation to the action: masks, batches, alignment of advantages with rows"
    preferred: ClassVar[dict[str, str]] = {"red": "left", "blue": "right"}

    def _word(self) -> str:
        return ("red", "blue")[self._kind]

    def _best(self) -> str:
        return ACTIONS[self._kind]

    def _payment(self) -> float:
        return float(self._moves[-1] == self._best())


class TurnCreditProbe(Probe):
    """Four rounds, paid at the end; only the choice at ``key`` matters, and ``open`` or ``shut`` show from then on how it went.

    An advantage per episode moves all four choices alike; credit per turn moves one. Turns behind the key start from a state that already
    tells the outcome, so values or step groups give them exactly nothing.
    """

    name: ClassVar[str] = "probe_credit"
    isolates: ClassVar[str] = "credit below the episode: values at turn ends, step groups"
    ROUNDS: ClassVar[int] = 4
    #: The turn that matters.
    KEY: ClassVar[int] = 1
    preferred: ClassVar[dict[str, str]] = {"key": "left"}

    def _word(self) -> str:
        if len(self._moves) <= self.KEY:
            return ("wait", "key")[len(self._moves)]
        return "open" if self._moves[self.KEY] == "left" else "shut"

    def _payment(self) -> float:
        return float(self._moves[self.KEY] == "left")


PROBES: dict[str, type[Probe]] = {p.name: p for p in (ValueProbe, ObservationProbe, DelayProbe, ActionProbe, BothProbe, TurnCreditProbe)}
