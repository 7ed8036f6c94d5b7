"""Data that flows between environments, agents, engines and trainer: episode specs, turns, token rows, trajectories.

Token in, token out: the ids that the policy sampled are the ids that it is trained on. A :class:`TokenRow` grows through one
function, so its lists cannot get out of step.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol


class StopReason(StrEnum):
    """Why an episode ended."""

    SUCCESS = "success"  #: the environment says that the goal is reached
    FAILURE = "failure"  #: the environment ended the episode without success
    MAX_ROUNDS = "max_rounds"  #: the caller's limit on rounds was reached
    CONTEXT_FULL = "context_full"  #: the next turn would not fit into the context
    ENV_ERROR = "env_error"  #: the environment failed; not the agent's fault, left out of training and of baselines


@dataclass(frozen=True)
class EpisodeSpec:
    """One episode to run. ``sample`` tells apart the members of a group, which share ``(env, item_id, seed)``."""

    env: str
    item_id: str
    seed: int = 0
    sample: int = 0

    @property
    def group(self) -> tuple[str, str, int]:
        """Episodes with the same group start from the same observation."""
        return (self.env, self.item_id, self.seed)


@dataclass
class Turn:
    """One reply: what the agent saw, said and did, and what came of it.

    ``kind`` is ``"act"`` for a round of interaction with the environment. Any other turn (``"plan"``, ``"summary"``, ``"reflection"``, ...)
    answers a question of the agent's own making: it is sampled and trained like the rest, but has no action and takes no round.
    ``attempt`` counts the attempts at the item from 0; only the last one's rewards count, those of others stand in ``info["reward"]``.
    ``start`` and ``end`` bound the sampled tokens in row ``row`` of the trajectory (end exclusive). ``truncated`` means that the
    reply was cut by the limit on new tokens, so that no end-of-turn token was sampled.
    """

    observation: str
    reply: str
    action: str | None
    reward: float = 0.0
    invalid: bool = False
    truncated: bool = False
    row: int = 0
    start: int = 0
    end: int = 0
    kind: str = "act"
    attempt: int = 0
    info: dict[str, Any] = field(default_factory=dict)


@dataclass
class TokenRow:
    """Equal-length lists over the tokens of one training row (T tokens).

    ``action_mask`` is 1 where the policy sampled the token. ``turn_ids`` is -1 on the opening, else the index of the turn that the
    token belongs to: an observation shares its id with the reply that it leads to. ``logprobs`` is the sampling-time log-probability
    of sampled tokens (temperature applied), 0.0 elsewhere.
    """

    token_ids: list[int] = field(default_factory=list)
    action_mask: list[int] = field(default_factory=list)
    position_ids: list[int] = field(default_factory=list)
    turn_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.token_ids)

    def append_context(self, ids: Sequence[int], turn: int) -> None:
        """Add tokens that the policy did not sample: opening, observations, separators."""
        self._append(ids, 0, turn, [0.0] * len(ids))

    def append_action(self, ids: Sequence[int], logprobs: Sequence[float], turn: int) -> None:
        """Add the tokens that the policy sampled in one turn. Raises ``ValueError`` if the lengths differ."""
        self._append(ids, 1, turn, logprobs)

    def _append(self, ids: Sequence[int], mask: int, turn: int, logprobs: Sequence[float]) -> None:
        if len(ids) != len(logprobs):
            raise ValueError(f"expected one log-prob per token, found {len(ids)} tokens and {len(logprobs)} log-probs")
        n = len(self.token_ids)
        self.token_ids.extend(ids)
        self.action_mask.extend([mask] * len(ids))
        self.position_ids.extend(range(n, n + len(ids)))
        self.turn_ids.extend([turn] * len(ids))
        self.logprobs.extend(float(x) for x in logprobs)


@dataclass
class Trajectory:
    """One episode (the paper's RolloutHandler): its token rows, turns, rewards and the reason it stopped.

    There is one row unless history is rewritten, by the chat template or by the agent's memory: then a new row begins with that turn, and
    what it repeats of earlier replies is context there. Every sampled token is in one row only as such, and trained once.
    ``task`` is the sub-task of the item; ``max_rounds`` the limit (of each attempt) that was in force. ``info["agent"]`` names the
    agent's format, strategy and memory where they are not the usual ones.
    """

    spec: EpisodeSpec
    rows: list[TokenRow] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    stop_reason: StopReason = StopReason.FAILURE
    task: str = ""
    env_version: str = ""
    max_rounds: int = 0
    final_observation: str = ""
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def reward(self) -> float:
        """Return of the episode: the sum of its turns' rewards, in [0, 1]."""
        return float(sum(t.reward for t in self.turns))

    @property
    def rounds(self) -> int:
        """Rounds of interaction, of all attempts."""
        return sum(t.kind == "act" for t in self.turns)

    @property
    def attempts(self) -> int:
        """Attempts that were begun."""
        return self.turns[-1].attempt + 1 if self.turns else 0

    @property
    def success(self) -> bool:
        return self.stop_reason is StopReason.SUCCESS

    @property
    def trainable(self) -> bool:
        """Whether the episode counts for training and baselines: the environment did not fail and something was sampled."""
        return self.stop_reason is not StopReason.ENV_ERROR and any(sum(r.action_mask) for r in self.rows)

    def token_rewards(self, row: int = 0) -> list[float]:
        """Rewards on the tokens of a row: each turn's reward stands on the last token *sampled* in that turn.

        Raises ``ValueError`` if a turn has a reward but no sampled token, as the reward would be lost.
        """
        out = [0.0] * len(self.rows[row])
        for t in self.turns:
            if t.row == row and t.reward:
                if t.end <= t.start:
                    raise ValueError(f"expected sampled tokens in a turn with reward {t.reward}, found the empty span {t.start}:{t.end}")
                out[t.end - 1] += t.reward
        return out

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form, as written to ``trajectories.jsonl``."""
        d = asdict(replace(self, rows=[]))  # asdict copies number by number, which is slow on long rows
        d["rows"] = [{name: list(values) for name, values in vars(row).items()} for row in self.rows]
        d["stop_reason"] = self.stop_reason.value
        d["reward"] = self.reward
        return d

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> Trajectory:
        """Inverse of :meth:`to_dict`."""
        return cls(
            spec=EpisodeSpec(**d["spec"]),
            rows=[TokenRow(**r) for r in d["rows"]],
            turns=[Turn(**t) for t in d["turns"]],
            stop_reason=StopReason(d["stop_reason"]),
            task=d["task"],
            env_version=d["env_version"],
            max_rounds=d["max_rounds"],
            final_observation=d["final_observation"],
            info=d["info"],
        )


@dataclass(frozen=True)
class SamplingParams:
    """How one reply is drawn. ``temperature`` 0 is greedy; log-probs are those of the distribution that was sampled from."""

    temperature: float = 1.0
    top_p: float = 1.0
    max_new_tokens: int = 64


@dataclass(frozen=True)
class Generation:
    """One finished reply: sampled ``token_ids`` (with the stop token, if one was sampled) and their ``logprobs``."""

    session: int
    token_ids: list[int]
    logprobs: list[float]
    finished_by_stop: bool


class Engine(Protocol):
    """Continuous-batching sampler. A session is one episode's cache, from ``open`` to ``release``."""

    #: Number of sessions that can be open at once.
    max_sessions: int
    #: Longest sequence (context and sampled tokens) that a session can hold.
    max_length: int

    def open(self) -> int:
        """Begin a session. Raises ``RuntimeError`` when ``max_sessions`` are open."""

    def submit(self, session: int, new_ids: Sequence[int], sampling: SamplingParams, seed: int) -> None:
        """Append ``new_ids`` (only what is new since the last reply, at least one) to the session and ask for one reply."""

    def step(self) -> list[Generation]:
        """Advance every pending request by at least one token; return the replies that finished."""

    def release(self, session: int) -> None:
        """End a session and free its cache."""

    def sync(self) -> None:
        """Take over the policy's current weights; only legal while no session is open."""


def derive_seed(run_seed: int, spec: EpisodeSpec, turn: int) -> int:
    """Seed of one reply, from (run, item, sample, turn), so that batch order and neighbours do not matter; 63 bits."""
    key = f"{run_seed}|{spec.env}|{spec.item_id}|{spec.seed}|{spec.sample}|{turn}"
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") >> 1
