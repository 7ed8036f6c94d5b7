"""Several agents on the same items, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from agentgym_lite.evaluation.evaluate import evaluate
from agentgym_lite.evaluation.players import Player
from agentgym_lite.evaluation.results import Results
from agentgym_lite.evaluation.suite import Suite


def compare_agents(
    agents: Mapping[str, Player], suite: Suite, out: Path, *, only: Sequence[str] = (), samples: int = 1, max_rounds: int | None = None
) -> dict[str, Results]:
    """Evaluate each player (see ``make_player``) on the same items, in the folder of its name under ``out``; results by name.

    A strategy that retries plays up to its number of attempts of each item, each of the full number of rounds: compare it with pass@k of
    the others (``samples``) and look at ``rounds`` and ``reply_tokens``, not at success alone. Arguments and errors are those of
    :func:`~agentgym_lite.evaluation.evaluate`.
    """
    return {name: evaluate(player, suite, out / name, only=only, samples=samples, max_rounds=max_rounds) for name, player in agents.items()}
