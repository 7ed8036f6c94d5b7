"""One episode as the policy sees it: which messages it answers, what its reply is for, and when history is rewritten.

A dialogue is a pure function of what it is told, so the rows of an episode can be built again from its text.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentgym_lite.agents.chat import Message
from agentgym_lite.agents.formats import ActionFormat, ParsedAction
from agentgym_lite.agents.strategies import Ask, Memory, Strategy

#: Kind of the turns that act; every other kind is an :class:`Ask`'s.
ACT = "act"
_LEFT_OUT = "Some turns are left out here."


@dataclass(frozen=True)
class _Exchange:
    """A message and its answer; ``ask`` is None where the answer is an action."""

    user: str
    reply: str
    ask: Ask | None


class Dialogue:
    """The conversation of one episode, grown by ``begin``, then by ``add_reply`` and what follows from it.

    After a reply with an action comes :meth:`observe`, or :meth:`fail` if the attempt is over without success. After the answer to a
    question comes the next reply, or, where ``needs_reset``, ``begin`` with the first observation of the next attempt.

    ``rewritten`` says that ``messages`` do not merely continue the last ones: what the policy reads next must be encoded as a whole and
    opens a new row. Whoever has done so sets it to False.
    """

    def __init__(self, system: str, action_format: ActionFormat, strategy: Strategy, memory: Memory) -> None:
        self._system, self._format, self._strategy, self._memory = system, action_format, strategy, memory
        self.attempt = -1
        self.rounds = 0  #: of this attempt, so far
        self.rewritten = self.needs_reset = False
        self._task = self._user = self._observed = ""
        self._view: list[_Exchange] = []
        self._lessons: list[str] = []  # of failed attempts
        self._kept: dict[str, str] = {}  # heading -> answer that has gone out of view
        self._left_out = self._failed = self._forgets = False
        self._ask: Ask | None = None

    @property
    def kind(self) -> str:
        """What the next reply is: ``"act"``, ``"plan"``, ``"reflection"``, ``"summary"``, ..."""
        return ACT if self._ask is None else self._ask.kind

    @property
    def messages(self) -> list[Message]:
        """All that the policy reads before its next reply."""
        kept = [_join(label, text, sep="\n") for label, text in self._kept.items()]
        intro = _join(self._task, *self._lessons, *kept, _LEFT_OUT if self._left_out else "")
        users = [*(e.user for e in self._view), self._user]
        out = [{"role": "system", "content": self._system}, {"role": "user", "content": _join(intro, users[0])}]
        for exchange, user in zip(self._view, users[1:], strict=True):
            out += [{"role": "assistant", "content": exchange.reply}, {"role": "user", "content": user}]
        return out

    def begin(self, observation: str) -> None:
        """Start an attempt with its first observation."""
        self.attempt += 1
        self.rounds = 0
        self._task, self._view, self._kept = observation, [], {}
        self._left_out = self._failed = self.needs_reset = False
        self.rewritten = True
        self._go_on("")

    def add_reply(self, text: str) -> ParsedAction | None:
        """Take in the policy's reply: what it says if it is an action, None if it answers a question."""
        ask = self._ask
        self._view.append(_Exchange(self._user, text, ask))
        if ask is None:
            self.rounds += 1
            return self._format.parse(text)
        if self._failed:
            self._lessons.append(_join(ask.label, text, sep="\n") if text.strip() else "")
            self.needs_reset = True
        elif self._forgets:
            self._drop(len(self._view))
            self._left_out = False
            self._go_on(self._observed)
        else:
            self._go_on(ask.then, asked=True)
        return None

    def observe(self, text: str) -> None:
        """Take in the answer to an action."""
        self._go_on(text)

    def fail(self, observation: str) -> bool:
        """End an attempt; whether the policy is asked about it and gets another one."""
        self._ask = self._strategy.after_failure(self.attempt)
        self._failed = self._ask is not None
        if self._ask is not None:
            self._set_user(observation, self._ask.text)
        return self._failed

    def _go_on(self, user: str, asked: bool = False) -> None:
        """Put ``user`` to the policy, with a question if memory or strategy (unless it has ``asked``) has one."""
        self._observed = user
        self._ask = self._memory.ask(sum(e.ask is None for e in self._view))
        self._forgets = self._ask is not None
        if self._ask is None and not asked:
            self._ask = self._strategy.ask(self.attempt, self.rounds)
        self._set_user(user, self._ask.text if self._ask else "")

    def _set_user(self, *parts: str) -> None:
        self._user = _join(*parts)
        if self._memory.turns is not None and len(self._view) > self._memory.turns:
            self._drop(len(self._view) - self._memory.turns)

    def _drop(self, n: int) -> None:
        """Take the first ``n`` exchanges out of view, and keep their answers that have a heading."""
        for e in self._view[:n]:
            if e.ask is not None and e.ask.label and e.reply.strip():
                self._kept[e.ask.label] = e.reply
        del self._view[:n]
        self._left_out = self.rewritten = True


def _join(*parts: str, sep: str = "\n\n") -> str:
    return sep.join(p for p in parts if p)
