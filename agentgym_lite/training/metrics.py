"""What a step's episodes and updates say. All names: ``docs/algorithms/metrics.md``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

import torch
from torch import Tensor

from agentgym_lite.algorithms import explained_variance
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
        out["rate/invalid_action"] = fmean(t.invalid for t in turns if t.kind == "act") if any(t.kind == "act" for t in turns) else 0.0
        out["rate/truncated_turn"] = fmean(t.truncated for t in turns)
    for env, limit in max_rounds.items():
        out[f"env/{env}/max_rounds"] = limit
        mine = [(t, r) for t, r in played if t.spec.env == env]
        if mine:
            out[f"env/{env}/reward"] = fmean(r for _, r in mine)
            out[f"env/{env}/success"] = fmean(t.success for t, _ in mine)
            out[f"env/{env}/rounds_mean"] = fmean(t.rounds for t, _ in mine)
        for task in sorted({t.task for t, _ in mine}):
            out[f"task/{env}/{task}/success"] = fmean(t.success for t, _ in mine if t.task == task)
    return {k: float(v) for k, v in out.items()}


class UpdateSums:
    """Sums over the micro-batches and updates of one step."""

    def __init__(self) -> None:
        self._tokens: dict[str, tuple[float, float]] = {}
        self._losses: dict[str, float] = defaultdict(float)
        self._norms: list[Mapping[str, float]] = []
        self._diff_sum, self._diff_max, self._diff_n = 0.0, 0.0, 0.0

    def add_tokens(self, mask: Tensor, values: Mapping[str, Tensor]) -> None:
        """Values per token, to be averaged over the mask; all ``[b, T]``."""
        for name, x in values.items():
            total, n = self._tokens.get(name, (0.0, 0.0))
            self._tokens[name] = (total + float(x.detach()[mask.bool()].sum()), n + float(mask.sum()))

    def add_engine_diff(self, mask: Tensor, engine: Tensor, trainer: Tensor) -> None:
        """Log-probs of the sampled tokens by the engine that drew them and by the trainer."""
        diff = torch.where(mask.bool(), (engine - trainer).abs(), 0.0)
        self._diff_sum += float(diff.sum())
        self._diff_max = max(self._diff_max, float(diff.max()))
        self._diff_n += float(mask.sum())

    def add_update(self, losses: Mapping[str, float], norms: Mapping[str, float]) -> None:
        """The parts of the loss of one update, and the norms of its gradients."""
        for name, value in losses.items():
            self._losses[name] += value
        self._norms.append(norms)

    @classmethod
    def merged(cls, parts: Sequence[UpdateSums]) -> UpdateSums:
        """Those of several processes, which made the same updates; losses and norms are the same in all."""
        out = cls()
        for part in parts:
            for name, (total, n) in part._tokens.items():
                seen, count = out._tokens.get(name, (0.0, 0.0))
                out._tokens[name] = (seen + total, count + n)
            out._diff_sum += part._diff_sum
            out._diff_max = max(out._diff_max, part._diff_max)
            out._diff_n += part._diff_n
        out._losses, out._norms = parts[0]._losses, parts[0]._norms
        return out

    def metrics(self) -> dict[str, float]:
        """Means over tokens, and over updates."""
        updates = len(self._norms)
        out = {name: total / n for name, (total, n) in self._tokens.items()}
        out |= {f"loss/{name}": value / updates for name, value in self._losses.items()}
        out |= {f"optim/{name}": fmean(n[name] for n in self._norms) for name in self._norms[0]}
        return out | {
            "optim/updates": float(updates),
            "engine/logp_diff_max": self._diff_max,
            "engine/logp_diff_mean": self._diff_sum / self._diff_n,
        }


def value_metrics(values: Tensor, returns: Tensor, mask: Tensor) -> dict[str, float]:
    """What the critic said before the update, against its targets; all ``[B, T]``."""
    chosen = mask.bool()
    out = {"value/mean": float(values[chosen].mean()), "value/return_mean": float(returns[chosen].mean())}
    explained = explained_variance(values, returns, mask)
    return out if explained is None else out | {"value/explained_variance": explained}
