"""Optimizer updates on one batch of episodes: the part that every policy-gradient algorithm shares."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from agentgym_lite.algorithms import (
    ALGORITHMS,
    Aggregation,
    adapted_kl_coef,
    aggregate,
    denominator,
    importance_weights,
    kl_estimate,
    policy_loss,
    upstream,
    value_loss,
)
from agentgym_lite.config import OptimConfig, PolicyGradientConfig, PPOConfig
from agentgym_lite.sharding import put, whole
from agentgym_lite.training.batch import Batch
from agentgym_lite.training.critic import Critic
from agentgym_lite.training.distributed import World
from agentgym_lite.training.errors import TrainingError
from agentgym_lite.training.items import stable_seed
from agentgym_lite.training.logprobs import TokenStats, token_stats
from agentgym_lite.training.metrics import UpdateSums, value_metrics


class _Term(NamedTuple):
    """One part of the loss: a value per token, where it counts, its weight and how it is averaged."""

    values: Tensor
    mask: Tensor
    weight: float
    mode: Aggregation
    denom: float


def lr_at(step: int, config: OptimConfig) -> float:
    """Learning rate of ``step``, counted from 1: ``lr * min(1, step / warmup_steps)``, never 0."""
    return config.lr * min(1.0, step / max(1, config.warmup_steps))


class PolicyUpdater:
    """AdamW on ``policy loss + kl_coef * KL - entropy_coef * entropy + value_coef * value loss``, ``epochs`` x ``minibatches`` times.

    With one update per batch the sampling policy is the policy itself, so the ratio is exactly 1 and its log-probs are taken from the
    same forward pass. With several, they are computed by the trainer before the first update; the engine's are only compared with them,
    or weigh the loss (``tis``). The model stays in evaluation mode: dropout would make the ratio differ from 1 on its own.

    ``reference`` is the policy that the KL is measured against, anything that ``token_stats`` can score; ``critic`` is None for algorithms
    without values. ``parameters`` are those of both by name, in the optimizer's order. All three are sharded over ``world``, if it has
    more than one process.
    """

    def __init__(
        self,
        model: Any,
        algorithm: PolicyGradientConfig,
        optim: OptimConfig,
        *,
        temperature: float,
        seed: int,
        reference: Any = None,
        world: World = World(),  # noqa: B008 - frozen
    ) -> None:
        self.model = model.eval()
        self._world = world
        self.reference = reference
        self.kl_coef = algorithm.kl_coef
        self._algorithm, self._optim, self._temperature, self._seed = algorithm, optim, temperature, seed
        self._credit = ALGORITHMS[algorithm.name].credit
        self.critic = Critic(model, algorithm.critic).eval() if isinstance(algorithm, PPOConfig) else None
        world.shard(model, reference, self.critic)
        self._policy = {n: p for n, p in model.named_parameters() if p.requires_grad}
        groups: list[dict[str, Any]] = [{"params": list(self._policy.values()), "lr": optim.lr}]
        self._value: dict[str, Tensor] = {}
        if isinstance(algorithm, PPOConfig) and self.critic is not None:
            self._value = {f"critic.{n}": p for n, p in self.critic.named_parameters() if p.requires_grad}
            groups.append({"params": list(self._value.values()), "lr": algorithm.critic_lr})
        self._base_lr: list[float] = [g["lr"] for g in groups]
        self.parameters = self._policy | self._value
        self.optimizer = torch.optim.AdamW(groups, lr=optim.lr, betas=optim.betas, weight_decay=optim.weight_decay)

    def state(self) -> dict[str, Any]:
        """What a checkpoint must keep besides weights and optimizer, JSON-ready."""
        return {"kl_coef": self.kl_coef}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state` gave."""
        self.kl_coef = float(state["kl_coef"])

    def critic_tensors(self) -> dict[str, Tensor]:
        """The critic's trained weights by name; empty without a critic."""
        return {name: p.detach() for name, p in self._value.items()}

    def load_critic(self, tensors: Mapping[str, Tensor]) -> None:
        """Inverse of :meth:`critic_tensors`."""
        for name, p in self._value.items():
            put(p, tensors[name])

    def update(self, batch: Batch, step: int) -> dict[str, float]:
        """Compute advantages and train on the rows that are in the loss; the step's metrics (``docs/algorithms/metrics.md``).

        Nothing is changed, and ``optim/updates`` is 0, if no token carries a signal: weight decay and momentum must not move the weights
        on their own. Raises ``TrainingError`` if a loss or gradient is not finite; the weights are then those of the last good update.
        """
        warmed_up = lr_at(step, self._optim) / self._optim.lr
        for group, lr in zip(self.optimizer.param_groups, self._base_lr, strict=True):
            group["lr"] = lr * warmed_up
        metrics = {"optim/lr": lr_at(step, self._optim), "optim/updates": 0.0, "tokens/trained": 0.0}
        if not len(batch):
            return metrics
        batch, before = self._prepare(batch)
        if not len(batch) or not self._has_signal(batch):
            return metrics
        sums = UpdateSums()
        for epoch, rows in self._minibatches(batch.episodes.tolist(), step):
            self._one_update(batch.select(rows), step, sums, first_pass=epoch == 0)
        sums = UpdateSums.merged(self._world.gather(sums))
        metrics |= before | sums.metrics() | {"tokens/trained": float(batch.mask.sum())}
        if self.reference is not None:
            metrics["policy/kl_coef"] = self.kl_coef
            self._adapt_kl(metrics["policy/kl"], len(batch.episodes.unique()))
        return metrics

    # -- before the first update -----------------------------------------------------------------------------------------------------

    def _prepare(self, batch: Batch) -> tuple[Batch, dict[str, float]]:
        """The rows to train on, with everything that the policy before the update says about them; metrics of that policy."""
        config = self._algorithm
        metrics: dict[str, float] = {}
        in_reward = self.reference is not None and config.kl_in == "reward"
        updates = self._epochs * config.minibatches
        if self.reference is not None:
            batch = replace(batch, ref_logprobs=self._score(self.reference, batch).logprobs)
        if updates > 1 or in_reward or self.critic is not None:
            before = self._score(self.model, batch, self.critic)
            batch = replace(batch, old_logprobs=before.logprobs, values=before.values)
        if batch.advantages is None:
            samples = batch.samples
            if batch.old_logprobs is not None and batch.ref_logprobs is not None and in_reward:
                kl = kl_estimate(batch.old_logprobs, batch.ref_logprobs, config.kl_estimator)
                samples = replace(samples, penalty=self.kl_coef * torch.where(batch.mask.bool(), kl, 0.0))
                metrics["policy/kl"] = float(kl[batch.mask.bool()].mean())
            credit = self._credit(samples, config)
            batch = replace(batch, advantages=credit.advantages, returns=credit.returns, value_mask=credit.value_mask)
        batch = batch.select(batch.in_loss.nonzero()[:, 0].tolist())
        if batch.values is not None and batch.returns is not None and batch.value_mask is not None and len(batch):
            metrics |= value_metrics(batch.values, batch.returns, batch.value_mask)
        if updates == 1:
            batch = replace(batch, old_logprobs=None)
        return batch, metrics

    def _has_signal(self, batch: Batch) -> bool:
        config = self._algorithm
        kl_in_loss = self.kl_coef > 0 and config.kl_in == "loss"
        assert batch.advantages is not None  # _prepare has filled them
        return bool(batch.advantages[batch.mask.bool()].any()) or kl_in_loss or config.entropy_coef != 0 or self.critic is not None

    @property
    def _epochs(self) -> int:
        config = self._algorithm
        return upstream.inner_epochs(config.epochs) if config.upstream_compat else config.epochs

    @torch.no_grad()
    def _score(self, model: Any, batch: Batch, critic: Critic | None = None) -> TokenStats:
        """Log-probs (and values) of the whole batch under ``model``, without gradient: ``[B, T]``; no entropy."""
        logprobs, values = torch.zeros_like(batch.mask), torch.zeros_like(batch.mask)
        for rows in self._passes(batch)[0]:
            if not rows:
                self._idle(model, batch, critic)
                continue
            stats = self._stats(model, batch.select(rows), critic, entropy=False)
            logprobs[rows, : stats.logprobs.shape[1]] = stats.logprobs
            if stats.values is not None:
                values[rows, : stats.values.shape[1]] = stats.values
        self._world.add(logprobs)
        return TokenStats(logprobs, torch.zeros_like(logprobs), None if critic is None else self._world.add(values))

    def _passes(self, batch: Batch) -> tuple[list[list[int]], int]:
        """The rows of each of this process's forward passes, and the passes with rows in all processes.

        Every process gets equally many, some without rows: sharded weights are gathered by all processes together.
        """
        shares = self._world.shares(batch.lengths.tolist())
        limit = self._optim.micro_batch_tokens
        plans = [[[rows[i] for i in part] for part in batch.select(rows).micro_batches(limit)] for rows in shares]
        mine = plans[self._world.rank]
        return mine + [[]] * (max(map(len, plans)) - len(mine)), sum(map(len, plans))

    def _idle(self, model: Any, batch: Batch, critic: Critic | None) -> Tensor:
        """A pass over one token that touches every weight and adds nothing, for a process that has no rows left; 0."""
        one = replace(batch.select([0]), mask=torch.ones_like(batch.mask[:1]))
        one = replace(one, **{name: getattr(one, name)[:, :1] for name in ("input_ids", "targets", "mask")})
        stats = self._stats(model, one, critic)
        parts = [stats.logprobs, stats.entropy] + ([] if stats.values is None else [stats.values])
        return 0.0 * torch.cat(parts).sum()

    def _stats(self, model: Any, batch: Batch, critic: Critic | None, *, entropy: bool = True) -> TokenStats:
        return token_stats(
            model,
            batch.input_ids,
            batch.targets,
            batch.mask,
            temperature=self._temperature,
            entropy=entropy,
            entropy_grad=self._algorithm.entropy_coef != 0,
            critic=critic,
        )

    # -- updates ---------------------------------------------------------------------------------------------------------------------

    def _minibatches(self, episodes_of_rows: Sequence[int], step: int) -> Iterator[tuple[int, list[int]]]:
        """Epoch and rows of each update; the rows of an episode stay together."""
        rows_of: dict[int, list[int]] = defaultdict(list)
        for row, episode in enumerate(episodes_of_rows):
            rows_of[episode].append(row)
        episodes = list(rows_of.values())
        for epoch in range(self._epochs):
            order = np.random.default_rng(stable_seed(self._seed, "minibatches", step, epoch)).permutation(len(episodes))
            for part in np.array_split(order, min(self._algorithm.minibatches, len(episodes))):
                yield epoch, sorted(row for i in part.tolist() for row in episodes[i])

    def _one_update(self, batch: Batch, step: int, sums: UpdateSums, first_pass: bool) -> None:
        losses: dict[str, float] = defaultdict(float)
        self.optimizer.zero_grad()
        (passes, micro_batches), sizes = self._passes(batch), batch.episode_tokens
        for rows in passes:
            if not rows:
                self._idle(self.model, batch, self.critic).backward()
                continue
            terms = self._terms(batch.select(rows), batch, micro_batches, sums, first_pass)
            means = {name: aggregate(t.values, t.mask, t.mode, t.denom, sizes[rows]) for name, t in terms.items()}
            total = torch.stack([terms[name].weight * mean for name, mean in means.items()]).sum()
            total.backward()
            for name, value in (means | {"total": total}).items():
                losses[name] += float(value.detach())
        losses = self._world.add_numbers(losses)
        if not all(map(math.isfinite, losses.values())):  # not earlier: the other processes count on this one's passes
            raise TrainingError(_not_finite("loss", losses, step))
        norms = {}
        for name, parameters in (("grad_norm", self._policy), ("critic_grad_norm", self._value)):
            if parameters:
                norms[name] = clip_gradients(parameters.values(), self._optim.grad_clip)
        if not all(map(math.isfinite, norms.values())):
            raise TrainingError(_not_finite("gradient", norms, step))
        self.optimizer.step()
        sums.add_update(losses, norms)

    def _terms(self, part: Batch, whole: Batch, micro_batches: int, sums: UpdateSums, first_pass: bool) -> dict[str, _Term]:
        """The parts of the loss on one micro-batch ``part`` of the update's batch ``whole``."""
        config = self._algorithm
        stats = self._stats(self.model, part, self.critic)
        old = stats.logprobs.detach() if part.old_logprobs is None else part.old_logprobs
        if first_pass:
            sums.add_engine_diff(part.mask, part.engine_logprobs, old)
        mode, denom = self._denominator(part, whole, micro_batches)
        policy = self._policy_term(part, stats, old, sums)
        terms = {
            "policy": _Term(policy, part.mask, 1.0, mode, denom),
            "entropy": _Term(stats.entropy, part.mask, -config.entropy_coef, mode, denom),
        }
        if part.ref_logprobs is not None and config.kl_in == "loss":
            kl = kl_estimate(stats.logprobs, part.ref_logprobs, config.kl_estimator)
            terms["kl"] = _Term(kl, part.mask, self.kl_coef, mode, denom)
            sums.add_tokens(part.mask, {"policy/kl": kl})
        if isinstance(config, PPOConfig) and stats.values is not None:
            terms["value"] = self._value_term(config, part, whole, stats.values, micro_batches, sums)
        return terms

    def _value_term(self, config: PPOConfig, part: Batch, whole: Batch, values: Tensor, micro_batches: int, sums: UpdateSums) -> _Term:
        if part.values is None or part.returns is None or part.value_mask is None or whole.value_mask is None:
            raise ValueError("expected a batch with the critic's targets, found advantages alone; leave them to the update")
        loss, clipped = value_loss(values, part.values, part.returns, clip=config.value_clip)
        sums.add_tokens(part.value_mask, {"value/clip_fraction": clipped})
        mode: Aggregation = "token_mean"
        denom = denominator(whole.value_mask, mode)
        if config.upstream_compat:
            mode, denom = upstream.micro_batch_denominator(part.value_mask, micro_batches)
        return _Term(loss, part.value_mask, config.value_coef, mode, denom)

    def _policy_term(self, part: Batch, stats: TokenStats, old: Tensor, sums: UpdateSums) -> Tensor:
        config = self._algorithm
        assert part.advantages is not None  # _prepare has filled them
        loss, clipped = policy_loss(
            config.loss,
            stats.logprobs,
            old,
            part.advantages,
            part.mask,
            clip_low=config.clip_low,
            clip_high=config.clip_high,
            dual_clip=config.dual_clip,
        )
        shown = {
            "policy/entropy": stats.entropy,
            "policy/clip_fraction": clipped,
            "policy/old_kl": kl_estimate(old, stats.logprobs, "k3"),
            "policy/advantage_abs": part.advantages.abs(),
        }
        if config.tis is not None:
            weights = importance_weights(old, part.engine_logprobs, part.mask, level=config.tis, cap=config.tis_cap)
            loss = loss * weights
            shown |= {"engine/weight": weights, "engine/weight_capped": (weights >= config.tis_cap).float()}
        sums.add_tokens(part.mask, shown)
        return loss

    def _denominator(self, part: Batch, whole: Batch, micro_batches: int) -> tuple[Aggregation, float]:
        config = self._algorithm
        if config.upstream_compat:
            return upstream.micro_batch_denominator(part.mask, micro_batches)
        return config.aggregation, denominator(whole.mask, config.aggregation, config.aggregation_norm, whole.episodes)

    def _adapt_kl(self, kl: float, episodes: int) -> None:
        config = self._algorithm
        if config.kl_target is not None:
            self.kl_coef = adapted_kl_coef(self.kl_coef, kl, target=config.kl_target, horizon=config.kl_horizon, episodes=episodes)


def clip_gradients(parameters: Iterable[Tensor], limit: float) -> float:
    """Scale the gradients so that their norm over all of them, in all processes, is at most ``limit``; the norm before."""
    parameters = list(parameters)
    norm = whole(torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]))
    torch.nn.utils.clip_grads_with_norm_(parameters, limit, norm)
    return float(norm)


def _not_finite(what: str, values: dict[str, float], step: int) -> str:
    found = ", ".join(f"{k} {v}" for k, v in values.items())
    return (
        f"the {what} of step {step} is not finite ({found}); no update was made with it. Lower optim.lr or rollout.temperature, or raise "
        "algorithm.kl_coef, and resume from the last checkpoint"
    )
