"""Bookkeeping of one episode: the one place that decides rewards, turns, token rows and stop reasons."""

from __future__ import annotations

from collections.abc import Sequence

from agentgym_envs.core import Observation, StepResult
from agentgym_lite.agents.chat import Message
from agentgym_lite.agents.scaffold import Scaffold
from agentgym_lite.rollout.types import EpisodeSpec, StopReason, TokenRow, Trajectory, Turn


class Episode:
    """Grows a :class:`Trajectory` and the ``messages`` of its conversation until ``finished``.

    A round is :meth:`add_reply` and, if the reply held an action, :meth:`add_result`. Where ``needs_reset``, the next attempt begins:
    :meth:`begin` again, with the first observation of the same item.
    """

    def __init__(
        self, spec: EpisodeSpec, max_rounds: int, *, instructions: str, task: str, env_version: str, scaffold: Scaffold | None = None
    ) -> None:
        scaffold = scaffold or Scaffold()
        self.trajectory = Trajectory(spec, task=task, env_version=env_version, max_rounds=max_rounds)
        if scaffold.settings:
            self.trajectory.info["agent"] = dict(scaffold.settings)
        self.observation = Observation("")
        self.finished = False
        self._dialogue = scaffold.dialogue(spec.env, instructions)

    @property
    def spec(self) -> EpisodeSpec:
        return self.trajectory.spec

    @property
    def messages(self) -> list[Message]:
        """The whole prompt of the next reply."""
        return self._dialogue.messages

    @property
    def kind(self) -> str:
        """Kind of the next turn."""
        return self._dialogue.kind

    @property
    def attempt(self) -> int:
        """Number of the attempt, from 0."""
        return self._dialogue.attempt

    @property
    def rewritten(self) -> bool:
        """Whether the next prompt is not the last one, its reply and one message more: it must open a new row."""
        return self._dialogue.rewritten

    @property
    def needs_reset(self) -> bool:
        """Whether the environment must begin again before the next reply."""
        return self._dialogue.needs_reset and not self.finished

    @property
    def turn(self) -> int:
        """Number of the next reply, from 0."""
        return len(self.trajectory.turns)

    @property
    def row(self) -> TokenRow:
        return self.trajectory.rows[-1]

    def begin(self, observation: Observation) -> None:
        """Take in the first observation of an attempt. What earlier attempts earned no longer counts."""
        for turn in self.trajectory.turns:
            if turn.reward:
                turn.info["reward"], turn.reward = turn.reward, 0.0
        self._dialogue.begin(observation.text)
        self._show(observation)

    def add_context(self, ids: Sequence[int], new_row: bool) -> None:
        """Add what the policy reads before its next reply; ``new_row`` if ``ids`` are a whole prompt, the opening of a row."""
        if new_row:
            self.trajectory.rows.append(TokenRow())
        self.row.append_context(ids, -1 if new_row else self.turn)
        self._dialogue.rewritten = False

    def add_reply(self, text: str, ids: Sequence[int] = (), logprobs: Sequence[float] = (), truncated: bool = False) -> None:
        """Record what the policy said. ``ids`` go into the current row; without rows there are none.

        A reply that should hold an action and does not ends the round: the agent is told so next, and the environment never hears of it.
        """
        start = end = 0
        if self.trajectory.rows:
            start = len(self.row)
            self.row.append_action(ids, logprobs, self.turn)
            end = len(self.row)
        row = max(len(self.trajectory.rows) - 1, 0)
        turn = Turn(self.observation.text, text, None, 0.0, False, truncated, row, start, end, self.kind, self.attempt)
        self.trajectory.turns.append(turn)
        parsed = self._dialogue.add_reply(text)
        if parsed is None:
            return
        turn.action = parsed.action
        if parsed.action is None:
            turn.invalid = True
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
        elif done or self._dialogue.rounds >= self.trajectory.max_rounds:
            if not self._dialogue.fail(observation.text):
                self.stop(StopReason.FAILURE if done else StopReason.MAX_ROUNDS)
        else:
            self._dialogue.observe(observation.text)

    def _show(self, observation: Observation) -> None:
        self.observation = observation
        self.trajectory.final_observation = observation.text
