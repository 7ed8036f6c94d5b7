"""Trajectories to learn from: our own files, the published format, filters, and the split into training and held-out items.

Every episode ends up as a :class:`Trajectory` whose token rows are those of this run's tokenizer, with the action mask on the tokens to
train. Item ids keep the name of their environment, so that sets of several environments mix.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from agentgym_envs.core import environment_class, names
from agentgym_lite.agents import ChatRenderer, make_scaffold
from agentgym_lite.agents.chat import Message
from agentgym_lite.config import ConfigError, FilterConfig
from agentgym_lite.rollout.types import EpisodeSpec, StopReason, TokenRow, Trajectory, Turn
from agentgym_lite.training.items import stable_seed

_ROLES = {"human": "user", "gpt": "assistant"}


class DataError(ValueError):
    """Training data that cannot be used; the message says where, what was expected and what was found."""


# -- files ---------------------------------------------------------------------------------------------------------------------------


def read_trajectories(path: Path, renderer: ChatRenderer) -> list[Trajectory]:
    """Episodes of a ``trajectories.jsonl``; those that the environment broke are left out.

    Token rows stay as they were sampled if this tokenizer reads the same conversation from them; else (another tokenizer, or an agent
    without one) they are made from the text. Raises ``DataError``.
    """
    out = []
    for n, line in enumerate(_read(path).splitlines(), 1):
        try:
            trajectory = Trajectory.from_dict(json.loads(line))
        except (ValueError, KeyError, TypeError) as e:
            raise DataError(f"'{path}' line {n}: expected an episode as this kit writes it, found {type(e).__name__}: {e}") from None
        if trajectory.turns and trajectory.stop_reason is not StopReason.ENV_ERROR:
            out.append(in_tokens_of(trajectory, renderer))
    return out


def read_agent_traj(path: Path, renderer: ChatRenderer) -> list[Trajectory]:
    """Episodes in the published AgentTraj-L / AgentEval format, see :func:`parse_agent_traj`. Raises ``DataError``."""
    try:
        records = json.loads(_read(path))
    except ValueError as e:
        raise DataError(f"'{path}': expected a JSON list of episodes, found text that is not JSON: {e}") from None
    if not isinstance(records, list):
        raise DataError(f"'{path}': expected a JSON list of episodes, found {type(records).__name__}")
    out = []
    for n, record in enumerate(records):
        try:
            out.append(parse_agent_traj(record, renderer))
        except DataError as e:
            raise DataError(f"'{path}' episode {n}: {e}") from None
    return out


def parse_agent_traj(record: Any, renderer: ChatRenderer) -> Trajectory:
    """One ``{item_id, conversations: [{from, value, loss}]}``, in the turns of this kit.

    Trained are ``gpt`` messages whose ``loss`` is not false, each with its end-of-turn token: they are complete replies. Everything up to
    the first of them (rules, acknowledgement, first observation) is the opening. An episode is a success with return 1 unless the record
    has a ``reward``. Raises ``DataError``.
    """
    item_id, conversation = _field(record, "item_id", str), _field(record, "conversations", list)
    messages = [{"role": _role(m, i), "content": _field(m, "value", str)} for i, m in enumerate(conversation)]
    trained = [m["role"] == "assistant" and c.get("loss") is not False for m, c in zip(messages, conversation, strict=True)]
    if any(a["role"] == b["role"] for a, b in pairwise(messages)) or not messages or messages[0]["role"] != "user":
        raise DataError(f"item '{item_id}': expected human and gpt messages in turn, beginning with human")
    if not any(trained):
        raise DataError(f"item '{item_id}': expected at least one gpt message to train on, found none whose loss is not false")
    first = trained.index(True)
    reward = record.get("reward", 1.0)
    if isinstance(reward, bool) or not isinstance(reward, int | float) or not 0 <= reward <= 1:
        raise DataError(f"item '{item_id}': expected a reward from 0 to 1, found {reward!r:.80}; scale it first")
    turns = [Turn(messages[i - 1]["content"], messages[i]["content"], None) for i in range(first, len(messages), 2)]
    said = [i for i, m in enumerate(messages) if m["role"] == "assistant"]
    rows = _rows(renderer, [_Reply(messages[:i], messages[i]["content"], i == said[0], trained[i]) for i in said], turns)
    next(t for t in reversed(turns) if t.end > t.start).reward = float(reward)
    final = messages[-1]["content"] if messages[-1]["role"] == "user" else ""
    stop = StopReason.SUCCESS if reward == 1 else StopReason.FAILURE
    return Trajectory(EpisodeSpec(env_of(item_id), item_id), rows, turns, stop, max_rounds=len(turns), final_observation=final)


def env_of(item_id: str) -> str:
    """Environment that a namespaced item id belongs to: ``"textcraft_31"`` -> ``"textcraft"``."""
    known = [name for name in names() if item_id.startswith(f"{name}_")]
    if known:
        return max(known, key=len)
    head, _, tail = item_id.rpartition("_")
    return head if head and tail.isdecimal() else item_id.partition("_")[0]


# -- tokens --------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Reply:
    """A reply, the prompt that it answers, and whether that prompt begins a row and the reply is trained."""

    prompt: Sequence[Message]
    text: str
    rewritten: bool
    trained: bool = True


def in_tokens_of(trajectory: Trajectory, renderer: ChatRenderer) -> Trajectory:
    """The episode with token rows for this tokenizer: its own if they say the same, else made from its text.

    Raises ``DataError`` if its agent (``info["agent"]``) is not known here, or would not have held this conversation.
    """
    turns = [replace(t) for t in trajectory.turns]
    rows = _rows(renderer, _retold(trajectory), turns)
    if _text(trajectory.rows, renderer) == _text(rows, renderer):
        return trajectory
    return replace(trajectory, rows=rows, turns=turns)


def _retold(trajectory: Trajectory) -> list[_Reply]:
    """What the policy was shown before each of its replies."""
    try:
        scaffold = make_scaffold(**trajectory.info.get("agent", {}))
    except (ConfigError, TypeError) as e:
        raise DataError(f"item '{trajectory.spec.item_id}': its agent cannot be made here: {e}") from None
    dialogue = scaffold.dialogue(trajectory.spec.env, environment_class(trajectory.spec.env).instructions)
    dialogue.begin(trajectory.turns[0].observation)
    out = []
    for turn, after in zip(trajectory.turns, [*trajectory.turns[1:], None], strict=True):
        if turn.kind != dialogue.kind:
            raise DataError(f"item '{trajectory.spec.item_id}': expected a turn of kind '{dialogue.kind}', found one of kind '{turn.kind}'")
        out.append(_Reply(dialogue.messages, turn.reply, dialogue.rewritten))
        dialogue.rewritten = False
        acted = dialogue.add_reply(turn.reply) is not None
        if after is None:
            break
        if dialogue.needs_reset:
            dialogue.begin(after.observation)
        elif acted and not (after.kind == "reflection" and dialogue.fail(after.observation)):
            dialogue.observe(after.observation)
    return out


def _rows(renderer: ChatRenderer, replies: Sequence[_Reply], turns: Sequence[Turn]) -> list[TokenRow]:
    """Token rows of a conversation, as if the policy had sampled its trained replies; sets ``row, start, end`` of ``turns``.

    ``turns`` belong to the last replies; what comes before is opening. A reply that was cut has no end-of-turn token.
    """
    skipped = len(replies) - len(turns)
    rows: list[TokenRow] = []
    ids: list[int] = []
    whole = True
    for k, reply in enumerate(replies):
        number = k - skipped
        if reply.rewritten:
            context, new_row = renderer.opening(reply.prompt), True
        else:
            delta = renderer.next_turn(reply.prompt, ids, finished_by_stop=whole)
            context, new_row = delta.ids, delta.rewrote_history
        if new_row:
            rows.append(TokenRow())
        rows[-1].append_context(context, -1 if new_row or number <= 0 else number)
        whole = number < 0 or not turns[number].truncated
        ids = renderer.reply(reply.text, whole)
        start = len(rows[-1])
        if reply.trained:
            rows[-1].append_action(ids, [0.0] * len(ids), number)
        else:
            rows[-1].append_context(ids, max(number, -1))
        if number >= 0:
            turn = turns[number]
            turn.row, turn.start, turn.end = len(rows) - 1, start, start + len(ids) if reply.trained else start
    return rows


def _text(rows: Iterable[TokenRow], renderer: ChatRenderer) -> list[str | None]:
    """What the tokenizer reads from each row; None where it does not know a token."""
    size = len(renderer.tokenizer)
    return [renderer.tokenizer.decode(r.token_ids) if max(r.token_ids, default=0) < size else None for r in rows]


# -- sets ----------------------------------------------------------------------------------------------------------------------------


def select(trajectories: Sequence[Trajectory], settings: FilterConfig, known: Iterable[Trajectory] = ()) -> list[Trajectory]:
    """Those that pass the filters, in order. Copies of ``known`` count as copies."""
    kept = [t for t in trajectories if t.trainable and t.reward >= settings.min_reward and (t.success or not settings.success_only)]
    if settings.dedupe == "item":
        best: dict[tuple[str, str], Trajectory] = {}
        for t in kept:
            other = best.setdefault((t.spec.env, t.spec.item_id), t)
            if (t.reward, -len(t.turns)) > (other.reward, -len(other.turns)):
                best[t.spec.env, t.spec.item_id] = t
        kept = [t for t in kept if best[t.spec.env, t.spec.item_id] is t]
    if settings.dedupe == "none":
        return kept
    old = {_content(t) for t in known}
    first = {_content(t): t for t in reversed(kept)}
    return [t for t in kept if first[_content(t)] is t and _content(t) not in old]


def fit(trajectories: Sequence[Trajectory], max_length: int) -> list[Trajectory]:
    """Those whose rows all have at most ``max_length`` tokens."""
    return [t for t in trajectories if all(len(r) <= max_length for r in t.rows)]


def hold_out(items: Iterable[tuple[str, str]], share: float, seed: int) -> set[tuple[str, str]]:
    """Items ``(env, item_id)`` to hold out: a share of each environment's, at least one if there are two; the same for equal seeds."""
    out: set[tuple[str, str]] = set()
    by_env: dict[str, list[tuple[str, str]]] = {}
    for item in sorted(set(items)):
        by_env.setdefault(item[0], []).append(item)
    for mine in by_env.values():
        mine.sort(key=lambda item: stable_seed(seed, "held out", *item))
        n = max(1, round(share * len(mine))) if share > 0 and len(mine) > 1 else 0
        out |= set(mine[:n])
    return out


def item_of(trajectory: Trajectory) -> tuple[str, str]:
    """``(env, item_id)``."""
    return (trajectory.spec.env, trajectory.spec.item_id)


def _content(t: Trajectory) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(r.token_ids) for r in t.rows)


# -- small helpers -------------------------------------------------------------------------------------------------------------------


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as e:
        raise DataError(f"expected a file of episodes at '{path}', found: {e.strerror}") from None
    except UnicodeDecodeError as e:
        raise DataError(f"'{path}' is not text in UTF-8: {e}") from None


def _field(record: Any, name: str, kind: type) -> Any:
    value = record.get(name) if isinstance(record, Mapping) else None
    if not isinstance(value, kind):
        raise DataError(f"expected a field '{name}' of type {kind.__name__}, found {record!r:.120}")
    return value


def _role(message: Any, index: int) -> str:
    sender = _field(message, "from", str)
    if sender not in _ROLES:
        raise DataError(f"message {index}: expected 'from' to be human or gpt, found {sender!r:.40}")
    return _ROLES[sender]
