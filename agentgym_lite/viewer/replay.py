"""Replay of trajectories, one turn at a time: what the agent saw, the picture of the state, what it said, what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentgym_envs import environment_class, make
from agentgym_lite.rollout.types import StopReason, Trajectory, Turn
from agentgym_lite.viewer.html import View, render
from agentgym_lite.viewer.svg import UnsafeSvgError, plain_svg
from agentgym_lite.viewer.tokens import Decode, cells_html, legend, token_cells, tokens_html

_OUTCOMES = {
    StopReason.SUCCESS: "goal reached",
    StopReason.FAILURE: "ended without success",
    StopReason.MAX_ROUNDS: "out of rounds",
    StopReason.CONTEXT_FULL: "context full",
    StopReason.ENV_ERROR: "environment error",
}


@dataclass(frozen=True)
class Frame:
    """One position of the replay: a turn or, at last, the end of the episode."""

    observation: str
    picture: View | None = None
    reply: View | None = None
    turn: Turn | None = None


@dataclass(frozen=True)
class Pane:
    """One trajectory beside the others."""

    label: str
    outcome: str
    success: bool
    facts: str
    frames: list[Frame]
    row_views: list[View]


def replay_html(trajectory: Trajectory, decode: Decode | None = None, *, label: str = "") -> View:
    """Playable replay of one trajectory. With ``decode``, replies are coloured by token and the training rows are shown below."""
    return compare_html([(label, trajectory)], decode)


def compare_html(labelled: Sequence[tuple[str, Trajectory]], decode: Decode | None = None) -> View:
    """Replays side by side under one set of controls, e.g. ``[("before", t0), ("after", t1)]``. Raises ``ValueError`` on an empty list."""
    if not labelled:
        raise ValueError("expected at least one trajectory to replay, found none")
    panes = [_pane(label, trajectory, decode) for label, trajectory in labelled]
    last = max(len(p.frames) for p in panes) - 1
    return View(render("replay.html.j2", panes=panes, last=last, legend=legend() if decode else None))


def _pane(label: str, t: Trajectory, decode: Decode | None) -> Pane:
    facts = [t.spec.item_id, t.task, f"seed {t.spec.seed}", f"{len(t.turns)} of at most {t.max_rounds} rounds", f"reward {t.reward:.3g}"]
    return Pane(
        label=label or t.spec.env,
        outcome=_OUTCOMES[t.stop_reason],
        success=t.success,
        facts=" · ".join(f for f in facts if f),
        frames=[_frame(t, turn, decode) for turn in t.turns] + [_end(t)],
        row_views=[tokens_html(row, decode, with_legend=False) for row in t.rows] if decode else [],
    )


def _frame(t: Trajectory, turn: Turn, decode: Decode | None) -> Frame:
    reply = None
    if decode and turn.row < len(t.rows) and turn.end > turn.start:
        reply = cells_html(token_cells(t.rows[turn.row], decode, turn.start, turn.end))
    return Frame(turn.observation, picture(turn.info.get("render")), reply, turn)


def _end(t: Trajectory) -> Frame:
    return Frame(t.final_observation, picture(t.info.get("render")))


def picture(rendering: Any) -> View | None:
    """What ``Environment.render`` gave, as HTML: its drawing if that is of plain shapes, else its inventory or text, else ``None``."""
    if not isinstance(rendering, Mapping):
        return None
    if isinstance(rendering.get("svg"), str):
        try:
            return View(f'<div class="picture">{plain_svg(rendering["svg"])}</div>')
        except UnsafeSvgError:
            pass  # the text below says the same
    if isinstance(rendering.get("inventory"), Mapping):
        return View(render("inventory.html.j2", goal=str(rendering.get("goal", "")), items=list(rendering["inventory"].items())))
    text = rendering.get("text")
    return View(render("picture.html.j2", text=text)) if isinstance(text, str) and text else None


def with_renderings(trajectory: Trajectory) -> Trajectory:
    """A copy with ``info["render"]`` on every turn and on the end, found by playing the same actions again in process.

    Environments are deterministic, so nothing has to be drawn while training. An episode of another version of the environment stays
    without, and so do the turns from the first one whose observation differs.
    """
    if environment_class(trajectory.spec.env).version != trajectory.env_version:
        return trajectory
    env = make(trajectory.spec.env)
    try:
        turns = list(trajectory.turns)
        seen: str | None = env.reset(trajectory.spec.item_id, trajectory.spec.seed).text
        for k, turn in enumerate(turns):
            if seen is not None and seen not in turn.observation:
                return replace(trajectory, turns=turns)
            turns[k] = replace(turn, info={**turn.info, "render": env.render()})
            seen = env.step(turn.action).observation.text if turn.action is not None else None
        return replace(trajectory, turns=turns, info={**trajectory.info, "render": env.render()})
    finally:
        env.close()
