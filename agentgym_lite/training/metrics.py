"""What a step's episodes say about the agent: the part of the metrics that needs no model. All names: ``docs/algorithms/metrics.md``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from agentgym_lite.rollout.types import StopReason, Trajectory


def rollout_metrics(trajectories: Sequence[Trajectory], rewards: Sequence[float], max_rounds: Mapping[str, int]) -> dict[str, float]:
    """Metrics of the episodes of one step; ``rewards`` has one number per trajectory, ``max_rounds`` one per environment.

    Episodes that ended with an environment error count only in ``stop/*`` and ``episodes/*``.
    """
    played = [(t, r) for t, r in zip(trajectories, rewards, strict=True) if t.stop_reason is not StopReason.ENV_ERROR]
    out: dict[str, float] = {
        "episodes/total": len(trajectories),
        "episodes/env_error": len(trajectories) - len(played),
        "tokens/sampled": sum(sum(r.action_mask) for t, _ in played for r in t.rows),
        "tokens/context": sum(len(r) - sum(r.action_mask) for t, _ in played for r in t.rows),
    }
    for reason in StopReason:
        out[f"stop/{reason.value}"] = sum(t.stop_reason is reason for t in trajectories) / max(1, len(trajectories))
    if played:
        out["reward/mean"] = fmean(r for _, r in played)
        out["success/mean"] = fmean(t.success for t, _ in played)
    turns = [turn for t, _ in played for turn in t.turns]
    if turns:
        out["rate/invalid_action"] = fmean(t.invalid for t in turns)
        out["rate/truncated_turn"] = fmean(t.truncated for t in turns)
    for env, limit in max_rounds.items():
        out[f"env/{env}/max_rounds"] = limit
        mine = [(t, r) for t, r in played if t.spec.env == env]
        if mine:
            out[f"env/{env}/reward"] = fmean(r for _, r in mine)
            out[f"env/{env}/success"] = fmean(t.success for t, _ in mine)
            out[f"env/{env}/rounds_mean"] = fmean(len(t.turns) for t, _ in mine)
        for task in sorted({t.task for t, _ in mine}):
            out[f"task/{env}/{task}/success"] = fmean(t.success for t, _ in mine if t.task == task)
    return {k: float(v) for k, v in out.items()}
