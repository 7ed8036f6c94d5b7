"""An engine that says what it is told to: for tests, demonstrations and debugging without a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from agentgym_lite.rollout.types import Generation, SamplingParams

#: (session, turn, context ids so far) -> ids of the reply.
Script = Callable[[int, int, list[int]], Sequence[int]]


@dataclass
class _Session:
    context: list[int] = field(default_factory=list)
    turn: int = 0
    reply: list[int] = field(default_factory=list)  #: not finished yet
    given: int = 0


class ScriptedEngine:
    """An :class:`~agentgym_lite.rollout.types.Engine` whose replies are ``script(session, turn, context)``, one token per step.

    Sessions are numbered from 0 in the order they are opened, turns from 0 within a session. A reply ends with its first id in
    ``stop_ids``, at ``max_new_tokens`` or at ``max_length``, like that of a real engine. Log-probs are ``logprob``. ``contexts`` keeps what
    each session, also a released one, was shown and said; ``opened`` is the set of open ones.
    """

    def __init__(self, script: Script, *, stop_ids: Iterable[int], max_sessions: int = 64, max_length: int = 4096, logprob: float = -0.5):
        self.max_sessions, self.max_length = max_sessions, max_length
        self.contexts: dict[int, list[int]] = {}
        self._script, self._stop, self._logprob = script, frozenset(stop_ids), logprob
        self._open: dict[int, _Session] = {}

    @property
    def opened(self) -> set[int]:
        return set(self._open)

    def open(self) -> int:
        """Begin a session. Raises ``RuntimeError`` when ``max_sessions`` are open."""
        if len(self._open) >= self.max_sessions:
            raise RuntimeError(f"all {self.max_sessions} sessions of the engine are open")
        number = len(self.contexts)
        self._open[number] = _Session()
        self.contexts[number] = self._open[number].context
        return number

    def submit(self, session: int, new_ids: Sequence[int], sampling: SamplingParams, seed: int) -> None:
        """Append ``new_ids`` and ask for the next reply. Raises as :meth:`NativeEngine.submit` does."""
        if session not in self._open or self._open[session].reply:
            raise RuntimeError(f"session {session} is not open, or is still speaking")
        s = self._open[session]
        room = self.max_length - len(s.context) - len(new_ids)
        if not new_ids or room < 1:
            raise ValueError(f"expected new ids and room for a reply, found {len(new_ids)} ids and room for {room}")
        s.context += new_ids
        wanted = list(self._script(session, s.turn, list(s.context)))
        end = next((i + 1 for i, t in enumerate(wanted) if t in self._stop), len(wanted))
        s.reply, s.given = wanted[: min(end, sampling.max_new_tokens, room)], 0
        s.turn += 1
        if not s.reply:
            raise ValueError(f"the script returned no ids for session {session}, turn {s.turn - 1}")

    def step(self) -> list[Generation]:
        """Say one more token of every pending reply; return those that are complete."""
        done = []
        for number, s in self._open.items():
            if not s.reply:
                continue
            s.given += 1
            if s.given == len(s.reply):
                s.context += s.reply
                done.append(Generation(number, s.reply, [self._logprob] * s.given, s.reply[-1] in self._stop))
                s.reply = []
        return done

    def release(self, session: int) -> None:
        """End a session. Raises ``RuntimeError`` if it is not open."""
        if self._open.pop(session, None) is None:
            raise RuntimeError(f"session {session} is not open")

    def sync(self) -> None:
        """A script has no weights. Raises ``RuntimeError`` while a session is open, as real engines do."""
        if self._open:
            raise RuntimeError(f"sync needs all sessions released, found {len(self._open)} open")
