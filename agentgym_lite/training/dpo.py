"""Direct preference optimisation over whole episodes (multi-turn DPO)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from agentgym_lite.agents import ChatRenderer
from agentgym_lite.algorithms.preference import dpo_loss
from agentgym_lite.client import SessionPool
from agentgym_lite.config import DPOConfig, DPOSection, PolicySource
from agentgym_lite.lora import frozen_reference
from agentgym_lite.rollout.types import Trajectory
from agentgym_lite.training.batch import Batch
from agentgym_lite.training.data import DataError, fit, item_of
from agentgym_lite.training.items import stable_seed
from agentgym_lite.training.logprobs import TokenStats, token_stats
from agentgym_lite.training.loop import OnStep
from agentgym_lite.training.playing import PolicyPlayer, rounds_at, starts_of
from agentgym_lite.training.supervised import EpochTrainer, TokenSums, gather


@dataclass(frozen=True)
class Pair:
    """Two episodes from the same opening, the better one first."""

    chosen: Trajectory
    rejected: Trajectory


class DPOTrainer(EpochTrainer[DPOConfig, Pair]):
    """Trains ``config.model`` on pairs of an expert's and its own episodes, with :func:`make_pairs` and :func:`dpo_loss`.

    The reference is the policy as it was before the first step: a frozen copy, or the base with the adapter off. It is scored in the same
    forward passes as the policy, so that the first loss is exactly ln 2. ``model`` and ``tokenizer`` replace ``config.model``; ``on_step``
    is called with the metrics of every step. A resumed run equals an unbroken one.
    """

    def __init__(self, config: DPOConfig, *, model: Any = None, tokenizer: Any = None, on_step: OnStep | None = None) -> None:
        super().__init__(config, model=model, tokenizer=tokenizer, on_step=on_step)
        self._reference = frozen_reference(self.model)

    def _gather(self, renderer: ChatRenderer, pools: Mapping[str, SessionPool]) -> dict[str, list[Trajectory]]:
        data, seed, agent = self.config.data, self.config.run.seed, self.config.agent
        expert = gather(data.expert, renderer, pools, stable_seed(seed, "expert"), agent)
        own = gather([s for s in data.own if not isinstance(s, PolicySource)], renderer, pools, stable_seed(seed, "own"), agent)
        for number, source in enumerate(data.own):
            if isinstance(source, PolicySource):
                with closing(PolicyPlayer(self.model, renderer, pools, self.config.rollout, seed, agent)) as player:
                    own += player.play(starts_of(expert, source), rounds_at(source.envs, 1), f"own source {number}")
        return {"expert": expert, "own": own}

    def _examples(self, sets: Mapping[str, Sequence[Trajectory]]) -> tuple[list[Pair], dict[str, float]]:
        expert, own = (fit([t for t in sets.get(name, ()) if t.trainable], self.config.data.max_length) for name in ("expert", "own"))
        pairs, counts = make_pairs(expert, own, self.config.dpo)
        if not pairs:
            found = ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in counts.items())
            raise DataError(
                f"expected pairs of an expert's and an own episode to learn from, found none: {len(expert)} and {len(own)} episodes of at "
                f"most {self.config.data.max_length} tokens ({found or 'no start in common'}); see data.expert, data.own, dpo.min_gap and "
                "dpo.min_chosen"
            )
        return pairs, {f"data/{name}": float(counts[name]) for name in ("small_gap", "low_chosen", "other_opening")}

    def _item(self, example: Pair) -> tuple[str, str]:
        return item_of(example.chosen)

    def _losses(self, examples: Sequence[Pair], sums: TokenSums, into: dict[str, float]) -> Iterator[Tensor]:
        for part in _micro_batches(examples, self.config.optim.micro_batch_tokens):
            batch = _interleaved(part, next(self.model.parameters()).device)
            stats = _stats(self.model, batch)
            sums.add(batch.mask, stats.entropy)
            policy = _per_episode(stats.logprobs, batch)
            with torch.no_grad():
                ref = _per_episode(_stats(self._reference, batch, entropy=False).logprobs, batch)
            loss = dpo_loss(policy[0::2], policy[1::2], ref[0::2], ref[1::2], self.config.dpo.beta)
            for name, values in _report(loss.chosen_reward, loss.rejected_reward, policy.detach()).items():
                into[f"dpo/{name}"] += float(values.sum()) / len(examples)
            yield loss.loss.sum() / len(examples)


def make_pairs(expert: Sequence[Trajectory], own: Sequence[Trajectory], settings: DPOSection) -> tuple[list[Pair], Counter[str]]:
    """Pair the expert's first episode from each start with every own one from there, the one with the higher return as chosen.

    As published: kept are pairs whose returns differ by ``min_gap`` at least and whose better return is ``min_chosen`` at least. Pairs
    whose openings differ in tokens are left out: log-probs under different conditions do not compare. Also counts what was left out.
    """
    own_from: dict[tuple[str, str, int], list[Trajectory]] = defaultdict(list)
    for t in own:
        own_from[t.spec.group].append(t)
    expert_from: dict[tuple[str, str, int], Trajectory] = {}
    for t in expert:
        expert_from.setdefault(t.spec.group, t)
    pairs: list[Pair] = []
    counts: Counter[str] = Counter()
    for start, e in expert_from.items():
        for o in own_from[start]:
            better, worse = (e, o) if e.reward >= o.reward else (o, e)
            if _opening(e) != _opening(o):
                counts["other_opening"] += 1
            elif better.reward - worse.reward < settings.min_gap:
                counts["small_gap"] += 1
            elif better.reward < settings.min_chosen:
                counts["low_chosen"] += 1
            else:
                pairs.append(Pair(better, worse))
    return pairs, counts


def _opening(t: Trajectory) -> list[int]:
    row = t.rows[0]
    return row.token_ids[: row.action_mask.index(1)]


def _micro_batches(pairs: Sequence[Pair], tokens: int) -> list[list[Pair]]:
    """Pairs of like length together, at most ``tokens`` positions with padding; both sides of a pair share a forward pass."""

    def size(p: Pair) -> int:
        return max(len(r) - 1 for t in (p.chosen, p.rejected) for r in t.rows)

    def rows(p: Pair) -> int:
        return len(p.chosen.rows) + len(p.rejected.rows)

    out: list[list[Pair]] = []
    for p in sorted(pairs, key=size, reverse=True):
        if out and (sum(map(rows, out[-1])) + rows(p)) * size(out[-1][0]) <= tokens:
            out[-1].append(p)
        else:
            out.append([p])
    return out


def _interleaved(pairs: Sequence[Pair], device: torch.device) -> Batch:
    """Episodes chosen, rejected, chosen, rejected, ..."""
    return Batch.from_trajectories([t for p in pairs for t in (p.chosen, p.rejected)], device=device)


def _stats(model: Any, batch: Batch, entropy: bool = True) -> TokenStats:
    return token_stats(model, batch.input_ids, batch.targets, batch.mask, temperature=1.0, entropy=entropy, entropy_grad=False)


def _per_episode(logprobs: Tensor, batch: Batch) -> Tensor:
    """Summed log-probs of each episode over all its rows, from ``[B, T]``."""
    episodes = int(batch.episodes.max()) + 1
    return torch.zeros(episodes, device=logprobs.device).index_add(0, batch.episodes, logprobs.sum(1))


def _report(chosen: Tensor, rejected: Tensor, policy: Tensor) -> dict[str, Tensor]:
    """Metrics per pair."""
    return {
        "chosen_reward": chosen,
        "rejected_reward": rejected,
        "margin": chosen - rejected,
        "accuracy": (chosen > rejected).float(),
        "chosen_logprob": policy[0::2],
        "rejected_logprob": policy[1::2],
    }
