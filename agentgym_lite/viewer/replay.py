"""Trajectories and tokens as values of notebook cells and parts of pages: the component with its data inside, no server needed."""

from __future__ import annotations

from collections.abc import Sequence

from agentgym_lite.rollout.types import TokenRow, Trajectory
from agentgym_lite.viewer.component import component
from agentgym_lite.viewer.export import embed
from agentgym_lite.viewer.html import View
from agentgym_lite.viewer.payload import Shown, embedded, tokens, transcript
from agentgym_lite.viewer.store import TrajectoryList
from agentgym_lite.viewer.tokens import Decode


def replay_html(trajectory: Trajectory, decode: Decode | None = None, *, label: str = "") -> View:
    """Playable replay of one trajectory. With ``decode``, replies are coloured by token and the training rows are shown below."""
    return compare_html([(label, trajectory)], decode)


def compare_html(labelled: Sequence[tuple[str, Trajectory]], decode: Decode | None = None) -> View:
    """Replays side by side under one set of controls, e.g. ``[("before", t0), ("after", t1)]``. Raises ``ValueError`` on an empty list."""
    if not labelled:
        raise ValueError("expected at least one trajectory to replay, found none")
    shown = [Shown(t, number, label) for number, (label, t) in enumerate(labelled)]
    return component({"view": "replay", **embedded(shown, decode)}, "\n\n\n".join(map(transcript, shown)))


def browse_html(trajectories: Sequence[Trajectory], decode: Decode | None = None, *, title: str = "Trajectories") -> View:
    """The whole viewer, list and replay, with all ``trajectories`` inside: for tens or hundreds of them. Raises ``StoreError``."""
    return embed(TrajectoryList(trajectories, decode), range(len(trajectories)), title=title)


def tokens_html(row: TokenRow, decode: Decode) -> View:
    """A training row: context tokens grey, sampled tokens coloured by their probability, one block per turn."""
    return component(tokens(row, decode), "".join(map(decode, row.token_ids)))
