"""Bookkeeping of one episode: the one place that decides rewards, turns, token rows and stop reasons."""

from __future__ import annotations

from collections.abc import Sequence

from agentgym_envs.core import Observation, StepResult
from agentgym_lite.agents.chat import Message
from agentgym_lite.agents.formats import ParsedAction
from agentgym_lite.agents.policies import opening_messages
from agentgym_lite.rollout.types import EpisodeSpec, StopReason, TokenRow, Trajectory, Turn


class Episode:
    """Grows a :class:`Trajectory` and the ``messages`` of its conversation until ``finished``.

    A round is :meth:`add_reply` and, if the reply held an action, :meth:`add_result`.
    """

    def __init__(self, spec: EpisodeSpec, max_rounds: int, *, instructions: str, task: str, env_version: str) -> None:
        self.trajectory = Trajectory(spec, task=task, env_version=env_version, max_rounds=max_rounds)
        self.messages: list[Message] = []
        self.observation = Observation("")
        self.finished = False
        self._instructions = instructions

    @property
    def spec(self) -> EpisodeSpec:
        return self.trajectory.spec

    @property
    def turn(self) -> int:
        """Number of the next reply, from 0."""
        return len(self.trajectory.turns)

    @property
    def row(self) -> TokenRow:
        return self.trajectory.rows[-1]

    def begin(self, observation: Observation) -> None:
        """Take in the first observation."""
        self.messages = opening_messages(self._instructions, observation)
        self._show(observation)

    def add_context(self, ids: Sequence[int], new_row: bool) -> None:
        """Add what the policy reads before its next reply; ``new_row`` if ``ids`` are a whole prompt, the opening of a row."""
        if new_row:
            self.trajectory.rows.append(TokenRow())
        self.row.append_context(ids, -1 if new_row else self.turn)

    def add_reply(
        self, text: str, parsed: ParsedAction, ids: Sequence[int] = (), logprobs: Sequence[float] = (), truncated: bool = False
    ) -> None:
        """Record what the policy said. ``ids`` go into the current row; without rows there are none.

        A reply without an action ends the round: the agent is told so next, and the environment never hears of it.
        """
        start = end = 0
        if self.trajectory.rows:
            start = len(self.row)
            self.row.append_action(ids, logprobs, self.turn)
            end = len(self.row)
        row = max(len(self.trajectory.rows) - 1, 0)
        shown = self.observation.text
        self.trajectory.turns.append(Turn(shown, text, parsed.action, truncated=truncated, row=row, start=start, end=end))
        self.messages.append({"role": "assistant", "content": text})
        if parsed.action is None:
            self.trajectory.turns[-1].invalid = True
            error = Observation(str(parsed.error), self.observation.actions, self.observation.info)
            self._end_round(error, done=False, success=False)

    def add_result(self, result: StepResult) -> None:
        """Record the environment's answer to the latest action. The environment says in ``info["success"]`` whether the goal is reached."""
        turn = self.trajectory.turns[-1]
        turn.reward = result.reward
        turn.invalid = bool(result.info.get("invalid", False))
        turn.info = dict(result.info)
        self._end_round(result.observation, result.done, bool(result.info.get("success", False)))

    def stop(self, reason: StopReason) -> None:
        """End the episode."""
        self.trajectory.stop_reason = reason
        self.finished = True

    def _end_round(self, observation: Observation, done: bool, success: bool) -> None:
        self._show(observation)
        if success:
            self.stop(StopReason.SUCCESS)
        elif done:
            self.stop(StopReason.FAILURE)
        elif self.turn >= self.trajectory.max_rounds:
            self.stop(StopReason.MAX_ROUNDS)
        else:
            self.messages.append({"role": "user", "content": observation.text})

    def _show(self, observation: Observation) -> None:
        self.observation = observation
        self.trajectory.final_observation = observation.text
