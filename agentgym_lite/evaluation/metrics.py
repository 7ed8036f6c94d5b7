"""Figures of a set of finished episodes: success, reward, pass@k, rounds, invalid actions, stop reasons.

Episodes that the environment broke (``stop_reason = env_error``) say nothing about the agent: they are counted and left out.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from agentgym_lite.evaluation.intervals import Interval, bootstrap_mean, wilson
from agentgym_lite.rollout.types import StopReason, Trajectory


@dataclass(frozen=True)
class Summary:
    """Figures of one group of episodes. ``None`` where no episode counts.

    ``success`` has a Wilson interval when every item was played once, else a bootstrap interval over items (Wilson over items if all
    agree). ``pass_at[k]`` is the mean over items of the unbiased pass@k. ``invalid_rate`` is per action, ``rounds`` and ``reply_tokens``
    are means per episode. ``usage`` sums what an endpoint counted (requests, prompt and completion tokens); empty for other agents.
    """

    items: int
    episodes: int
    env_errors: int
    success: Interval | None
    reward: Interval | None
    pass_at: dict[int, float]
    invalid_rate: float | None
    rounds: float | None
    reply_tokens: float | None
    stop_reasons: dict[str, int]
    usage: dict[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return asdict(self)


def pass_at_k(n: int, c: int, k: int) -> float:
    """Chance that at least one of ``k`` samples succeeds, from ``c`` successes in ``n``: ``1 - C(n-c, k) / C(n, k)``.

    Unbiased (Chen et al., arXiv 2107.03374, eq. 1). Raises ``ValueError`` unless ``0 <= c <= n`` and ``1 <= k <= n``.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"expected 0 <= c <= n and 1 <= k <= n, found n={n}, c={c}, k={k}")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def summarize(episodes: Iterable[Trajectory]) -> Summary:
    """The figures of ``episodes``; samples of one item share its ``(env, item_id, seed)``."""
    episodes = list(episodes)
    counted = [e for e in episodes if e.stop_reason is not StopReason.ENV_ERROR]
    groups: dict[tuple[str, str, int], list[Trajectory]] = defaultdict(list)
    for e in counted:
        groups[e.spec.group].append(e)
    items = list(groups.values())
    actions = [t for e in counted for t in e.turns if t.kind == "act"]
    return Summary(
        items=len(items),
        episodes=len(counted),
        env_errors=len(episodes) - len(counted),
        success=_success_interval(items),
        reward=bootstrap_mean([fmean(e.reward for e in g) for g in items]) if items else None,
        pass_at=_pass_at(items),
        invalid_rate=fmean(t.invalid for t in actions) if actions else None,
        rounds=fmean(e.rounds for e in counted) if counted else None,
        reply_tokens=fmean(_reply_tokens(e) for e in counted) if counted else None,
        stop_reasons=dict(sorted(Counter(e.stop_reason.value for e in counted).items())),
        usage=_usage(episodes),
    )


def _reply_tokens(episode: Trajectory) -> int:
    """Sampled tokens; an endpoint does not show them, but may count them."""
    counted: int = episode.info.get("usage", {}).get("completion_tokens", 0)
    return sum(sum(r.action_mask) for r in episode.rows) or counted


def _usage(episodes: Iterable[Trajectory]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for e in episodes:
        total.update(e.info.get("usage", {}))
    return dict(total)


def _success_interval(items: Sequence[Sequence[Trajectory]]) -> Interval | None:
    if not items:
        return None
    if all(len(g) == 1 for g in items):
        return wilson(sum(g[0].success for g in items), len(items))
    rates = [fmean(e.success for e in g) for g in items]
    if set(rates) in ({0.0}, {1.0}):  # resampling equal values would claim certainty
        return wilson(round(sum(rates)), len(items))
    return bootstrap_mean(rates)


def _pass_at(items: Sequence[Sequence[Trajectory]]) -> dict[int, float]:
    """pass@k for every k that each item has samples for."""
    most = min((len(g) for g in items), default=0)
    return {k: fmean(pass_at_k(len(g), sum(e.success for e in g), k) for g in items) for k in range(1, most + 1)}
