"""What the front end reads: one row of the list, and one trajectory with all that is shown of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentgym_lite.rollout.types import TokenRow, Trajectory
from agentgym_lite.viewer.tokens import Decode, row_data, vocabulary

#: Names of the values of a row of the list, in their order.
COLUMNS = ("id", "run", "env", "task", "item", "seed", "sample", "step", "when", "stop", "success", "rounds", "max_rounds", "reward")


@dataclass(frozen=True)
class Shown:
    """A trajectory and what is known of it besides: its place in a list, its run, the training step it was played at.

    ``token_values`` are more numbers of its tokens by name (``advantage``, ``ratio``), each with one list per row.
    """

    trajectory: Trajectory
    number: int = 0
    label: str = ""
    run: str = ""
    step: int | None = None
    when: str = ""
    token_values: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)


def list_row(shown: Shown) -> list[Any]:
    """Values of :data:`COLUMNS`."""
    t, spec = shown.trajectory, shown.trajectory.spec
    place = [shown.number, shown.run, spec.env, t.task, spec.item_id, spec.seed, spec.sample, shown.step, shown.when]
    return [*place, t.stop_reason.value, t.success, len(t.turns), t.max_rounds, round(t.reward, 4)]


def body(shown: Shown, decode: Decode | None = None, notes: Sequence[str] = ()) -> dict[str, Any]:
    """All that is shown of a trajectory, JSON-ready. Without ``decode`` its tokens are left out, and replies are plain text.

    ``notes`` are sentences for the reader. Raises ``ValueError`` if ``token_values`` do not fit the rows.
    """
    t = shown.trajectory
    rows = t.rows if decode else []
    turns = [
        {
            "observation": turn.observation,
            "reply": turn.reply,
            "action": turn.action,
            "reward": turn.reward,
            "invalid": turn.invalid,
            "truncated": turn.truncated,
            "row": turn.row,
            "start": turn.start,
            "end": turn.end,
            "by": turn.info.get("by"),
            "render": _render(turn.info),
        }
        for turn in t.turns
    ]
    return {
        **dict(zip(COLUMNS, list_row(shown), strict=True)),
        "label": shown.label,
        "turns": turns,
        "end": {"observation": t.final_observation, "render": _render(t.info)},
        "rows": [row_data(row, {name: v[k] for name, v in shown.token_values.items()}) for k, row in enumerate(rows)],
        "vocab": vocabulary(rows, decode) if decode else {},
        "notes": [*notes, *([f"The environment failed: {t.info['env_error']}"] if "env_error" in t.info else [])],
    }


def _render(info: Mapping[str, Any]) -> Any:
    """The state's rendering without a ready drawing, which can be large: the front end draws from the facts."""
    render = info.get("render")
    return {k: v for k, v in render.items() if k != "svg"} if isinstance(render, Mapping) else None


def embedded(shown: Sequence[Shown], decode: Decode | None = None) -> dict[str, Any]:
    """Rows and bodies of a few trajectories, for a page that needs no server."""
    return {"columns": COLUMNS, "rows": [list_row(s) for s in shown], "bodies": [body(s, decode) for s in shown]}


def tokens(row: TokenRow, decode: Decode) -> dict[str, Any]:
    """A training row on its own."""
    return {"view": "tokens", "row": row_data(row), "vocab": vocabulary([row], decode)}


def transcript(shown: Shown) -> str:
    """The episode as plain text, for readers without scripts."""
    t = shown.trajectory
    title = " · ".join(x for x in (shown.label, t.spec.item_id, t.task, f"reward {t.reward:.3g}", t.stop_reason.value) if x)
    rounds = [f"[{k}] environment:\n{turn.observation}\n[{k}] agent:\n{turn.reply}" for k, turn in enumerate(t.turns, 1)]
    return "\n\n".join([title, *rounds, f"[end] environment:\n{t.final_observation}"])
