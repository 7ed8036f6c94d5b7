"""Optimizer updates on one batch of episodes: the part that every policy-gradient algorithm shares."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agentgym_lite.algorithms import ALGORITHMS, aggregate, denominator, kl_estimate
from agentgym_lite.config import AlgorithmConfig, OptimConfig
from agentgym_lite.training.batch import Batch
from agentgym_lite.training.items import stable_seed
from agentgym_lite.training.logprobs import TokenStats, token_stats


class TrainingError(RuntimeError):
    """Training cannot go on; the message says what was found and what to do."""


def lr_at(step: int, config: OptimConfig) -> float:
    """Learning rate of ``step``, counted from 1: ``lr * min(1, step / warmup_steps)``, never 0."""
    return config.lr * min(1.0, step / max(1, config.warmup_steps))


class PolicyUpdater:
    """AdamW on ``policy loss + kl_coef * KL - entropy_coef * entropy``, for ``epochs`` x ``minibatches`` updates per batch.

    With one update per batch the sampling policy is the policy itself, so the ratio is exactly 1 and its log-probs are taken from the
    same forward pass. With several, they are computed by the trainer before the first update; the engine's are only compared with them.
    The model stays in evaluation mode: dropout would make the ratio differ from 1 on its own.
    """

    def __init__(
        self, model: Any, algorithm: AlgorithmConfig, optim: OptimConfig, *, temperature: float, seed: int, reference: Any = None
    ) -> None:
        self.model = model.eval()
        self.reference = reference
        self._algorithm, self._optim, self._temperature, self._seed = algorithm, optim, temperature, seed
        self._policy_loss = ALGORITHMS[algorithm.name].policy_loss
        self.parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self.optimizer = torch.optim.AdamW(list(self.parameters.values()), lr=optim.lr, betas=optim.betas, weight_decay=optim.weight_decay)

    def update(self, batch: Batch, step: int) -> dict[str, float]:
        """Train on ``batch``; the step's metrics (``docs/algorithms/metrics.md``). Raises ``TrainingError`` if a loss or gradient is not
        finite; the weights are then those of the last good update."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr_at(step, self._optim)
        if self.reference is not None:
            batch = replace(batch, ref_logprobs=self._score(self.reference, batch))
        if self._algorithm.epochs * self._algorithm.minibatches > 1:
            batch = replace(batch, old_logprobs=self._score(self.model, batch))
        sums = _Sums()
        for epoch, rows in self._minibatches(len(batch), step):
            self._one_update(batch.select(rows), step, sums, first_pass=epoch == 0)
        return sums.metrics() | {"optim/lr": lr_at(step, self._optim), "tokens/trained": float(batch.mask.sum())}

    def _minibatches(self, n: int, step: int) -> Iterator[tuple[int, list[int]]]:
        for epoch in range(self._algorithm.epochs):
            order = np.random.default_rng(stable_seed(self._seed, "minibatches", step, epoch)).permutation(n)
            for part in np.array_split(order, min(self._algorithm.minibatches, n)):
                yield epoch, sorted(part.tolist())

    def _one_update(self, batch: Batch, step: int, sums: _Sums, first_pass: bool) -> None:
        config = self._algorithm
        denom = denominator(batch.mask, config.aggregation)
        losses: dict[str, float] = defaultdict(float)
        self.optimizer.zero_grad()
        for rows in batch.micro_batches(self._optim.micro_batch_tokens):
            part = batch.select(rows)
            stats = self._stats(self.model, part, entropy_grad=config.entropy_coef != 0)
            old = stats.logprobs.detach() if part.old_logprobs is None else part.old_logprobs
            policy, clipped = self._policy_loss(stats.logprobs, old, part.advantages, clip_low=config.clip_low, clip_high=config.clip_high)
            parts = {"policy": policy, "entropy": stats.entropy}
            sums.add_tokens(
                part.mask, {"entropy": stats.entropy, "clip_fraction": clipped, "old_kl": kl_estimate(old, stats.logprobs, "k3")}
            )
            if part.ref_logprobs is not None:
                parts["kl"] = kl_estimate(stats.logprobs, part.ref_logprobs, config.kl_estimator)
                sums.add_tokens(part.mask, {"kl": parts["kl"]})
            if first_pass:
                sums.add_engine_diff(part.mask, part.engine_logprobs, old)
            means = {name: aggregate(x, part.mask, config.aggregation, denom) for name, x in parts.items()}
            total = means["policy"] - config.entropy_coef * means["entropy"]
            if "kl" in means:
                total = total + config.kl_coef * means["kl"]
            if not torch.isfinite(total):
                raise TrainingError(_not_finite("loss", {k: float(v.detach()) for k, v in means.items()}, step))
            total.backward()
            for name, value in (means | {"total": total}).items():
                losses[name] += float(value.detach())
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters.values(), self._optim.grad_clip))
        if not math.isfinite(norm):
            raise TrainingError(_not_finite("gradient", {"norm": norm}, step))
        self.optimizer.step()
        sums.add_update(losses, norm)

    def _stats(self, model: Any, batch: Batch, *, entropy_grad: bool) -> TokenStats:
        return token_stats(model, batch.input_ids, batch.targets, batch.mask, temperature=self._temperature, entropy_grad=entropy_grad)

    @torch.no_grad()
    def _score(self, model: Any, batch: Batch) -> Tensor:
        """Log-probs of the whole batch under ``model``, without gradient: ``[B, T]``."""
        out = torch.zeros_like(batch.mask)
        for rows in batch.micro_batches(self._optim.micro_batch_tokens):
            logprobs = self._stats(model, batch.select(rows), entropy_grad=False).logprobs
            out[rows, : logprobs.shape[1]] = logprobs
        return out


class _Sums:
    """Sums over the micro-batches and updates of one step."""

    def __init__(self) -> None:
        self._tokens: dict[str, tuple[float, float]] = {}
        self._losses: dict[str, float] = defaultdict(float)
        self._norms: list[float] = []
        self._diff_sum, self._diff_max, self._diff_n = 0.0, 0.0, 0.0

    def add_tokens(self, mask: Tensor, values: dict[str, Tensor]) -> None:
        for name, x in values.items():
            total, n = self._tokens.get(name, (0.0, 0.0))
            self._tokens[name] = (total + float(x.detach()[mask.bool()].sum()), n + float(mask.sum()))

    def add_engine_diff(self, mask: Tensor, engine: Tensor, trainer: Tensor) -> None:
        diff = torch.where(mask.bool(), (engine - trainer).abs(), 0.0)
        self._diff_sum += float(diff.sum())
        self._diff_max = max(self._diff_max, float(diff.max()))
        self._diff_n += float(mask.sum())

    def add_update(self, losses: dict[str, float], norm: float) -> None:
        for name, value in losses.items():
            self._losses[name] += value
        self._norms.append(norm)

    def metrics(self) -> dict[str, float]:
        updates = len(self._norms)
        out = {f"policy/{name}": total / n for name, (total, n) in self._tokens.items()}
        out |= {f"loss/{name}": value / updates for name, value in self._losses.items()}
        return out | {
            "optim/grad_norm": sum(self._norms) / updates,
            "optim/updates": float(updates),
            "engine/logp_diff_max": self._diff_max,
            "engine/logp_diff_mean": self._diff_sum / self._diff_n,
        }


def _not_finite(what: str, values: dict[str, float], step: int) -> str:
    found = ", ".join(f"{k} {v}" for k, v in values.items())
    return (
        f"the {what} of step {step} is not finite ({found}); no update was made with it. Lower optim.lr or rollout.temperature, or raise "
        "algorithm.kl_coef, and resume from the last checkpoint"
    )
