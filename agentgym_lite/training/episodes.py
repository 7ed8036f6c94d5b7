"""The episodes of one step: what they earned, turn by turn, and which of them are learned from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from agentgym_lite.agents import ChatRenderer
from agentgym_lite.algorithms import upstream
from agentgym_lite.rollout.types import EpisodeSpec, StopReason, TokenRow, Trajectory
from agentgym_lite.training.errors import TrainingError

#: A reward for the whole episode, credited to its last turn, or one number per turn.
RewardFn = Callable[[Trajectory], float | Sequence[float]]


@dataclass
class Episodes:
    """Episodes as played, with the rewards of their turns; ``learned`` is what the update sees of each."""

    trajectories: list[Trajectory] = field(default_factory=list)
    learned: list[Trajectory] = field(default_factory=list)
    turn_rewards: list[list[float]] = field(default_factory=list)
    #: First spec of each group played -> whether its rewards are all equal.
    degenerate: dict[EpisodeSpec, bool] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def rewards(self) -> list[float]:
        """Return of each episode."""
        return [sum(r) for r in self.turn_rewards]


def turn_rewards(trajectory: Trajectory, reward_fn: RewardFn | None) -> list[float]:
    """The reward of each turn: the environment's, or what ``reward_fn`` says.

    An episode that the environment spoiled is not judged: it gets 0 and counts for nothing. Raises ``TrainingError`` if the function
    returns something else than a finite number or one per turn, or a reward for an episode without a turn.
    """
    n = len(trajectory.turns)
    if trajectory.stop_reason is StopReason.ENV_ERROR:
        return [0.0] * n
    if reward_fn is None:
        return [t.reward for t in trajectory.turns]
    given = reward_fn(trajectory)
    rewards = [float(r) for r in given] if isinstance(given, Sequence) else [0.0] * (n - 1) + [float(given)] * min(n, 1)
    if len(rewards) != n or not all(map(math.isfinite, rewards)):
        raise TrainingError(
            f"the reward of {trajectory.spec} is {given}; a reward function must return a finite number, or a list of one for each of the "
            f"{n} turns"
        )
    return rewards


def is_overlong(trajectory: Trajectory) -> bool:
    """Whether the episode ended because it ran out of tokens: the context was full or its last reply was cut."""
    return trajectory.stop_reason is StopReason.CONTEXT_FULL or (bool(trajectory.turns) and trajectory.turns[-1].truncated)


def as_published(trajectory: Trajectory, renderer: ChatRenderer) -> Trajectory:
    """The episode as the published code would train on it: see :mod:`agentgym_lite.algorithms.upstream`.

    There the last observation belongs to the row, although nothing answers it.
    """
    failed = trajectory.stop_reason is StopReason.ENV_ERROR
    if failed and upstream.is_usable(sum(sum(r.action_mask) for r in trajectory.rows)):
        trajectory = replace(trajectory, stop_reason=StopReason.FAILURE)
    rows = [_copy(row) for row in trajectory.rows]
    if rows and trajectory.turns and trajectory.turns[-1].end == len(rows[-1]):
        rows[-1].append_context(_last_observation(trajectory, renderer), len(trajectory.turns))
    for number, row in enumerate(rows):
        cut = [t.end for t in trajectory.turns if t.row == number and t.truncated]
        row.action_mask = upstream.train_end_of_cut_turns(row.action_mask, row.token_ids, cut, frozenset({renderer.end_of_turn}))
    return replace(trajectory, rows=rows)


def _last_observation(trajectory: Trajectory, renderer: ChatRenderer) -> list[int]:
    """What the template puts behind the last reply; nothing if it would rewrite the row."""
    last = trajectory.turns[-1]
    texts = [("system", ""), ("user", last.observation), ("assistant", last.reply), ("user", trajectory.final_observation)]
    reply_ids = trajectory.rows[-1].token_ids[last.start : last.end]
    delta = renderer.next_turn([{"role": r, "content": c} for r, c in texts], reply_ids, finished_by_stop=not last.truncated)
    return [] if delta.rewrote_history else delta.ids


def _copy(row: TokenRow) -> TokenRow:
    return TokenRow(**{name: list(values) for name, values in vars(row).items()})
