"""Supervised fine-tuning on trajectories, also called behavioural cloning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from agentgym_lite.agents import ChatRenderer
from agentgym_lite.client import SessionPool
from agentgym_lite.config import DataConfig, SFTConfig
from agentgym_lite.rollout.types import Trajectory
from agentgym_lite.training.batch import Batch
from agentgym_lite.training.data import DataError, fit, item_of, select
from agentgym_lite.training.logprobs import token_stats
from agentgym_lite.training.supervised import EpochTrainer, TokenSums, gather


class SFTTrainer(EpochTrainer[SFTConfig, Trajectory]):
    """Trains ``config.model`` on the replies of the episodes in ``config.data``; the loss is :func:`nll_losses`.

    ``model`` and ``tokenizer`` replace ``config.model``; ``on_step`` is called with the metrics of every step. A resumed run equals an
    unbroken one.
    """

    def _gather(self, renderer: ChatRenderer, pools: Mapping[str, SessionPool]) -> dict[str, list[Trajectory]]:
        return {"expert": gather(self.config.data.sources, renderer, pools, self.config.run.seed, self.config.agent)}

    def _examples(self, sets: Mapping[str, Sequence[Trajectory]]) -> tuple[list[Trajectory], dict[str, float]]:
        return usable(sets.get("expert", ()), self.config.data)

    def _item(self, example: Trajectory) -> tuple[str, str]:
        return item_of(example)

    def _losses(self, examples: Sequence[Trajectory], sums: TokenSums, into: dict[str, float]) -> Iterator[Tensor]:
        return nll_losses(self.model, examples, self.config.optim.micro_batch_tokens, sums)


def nll_losses(model: Any, episodes: Sequence[Trajectory], micro_batch_tokens: int, sums: TokenSums) -> Iterator[Tensor]:
    r"""Parts of :math:`-\frac{1}{|S|} \sum_{t \in S} \log \pi(a_t \mid a_{<t})`, S the trained tokens of all ``episodes``.

    Every token weighs the same; the parts add up to the same number under any split into micro-batches.
    """
    batch = Batch.from_trajectories(episodes, device=next(model.parameters()).device)
    count = float(batch.mask.sum())
    for rows in batch.micro_batches(micro_batch_tokens):
        part = batch.select(rows)
        stats = token_stats(model, part.input_ids, part.targets, part.mask, temperature=1.0, entropy_grad=False)
        sums.add(part.mask, stats.entropy)
        yield -stats.logprobs.sum() / count


def usable(episodes: Sequence[Trajectory], settings: DataConfig) -> tuple[list[Trajectory], dict[str, float]]:
    """Episodes that pass the filters and fit, and how many were left out. Raises ``DataError`` if none remains."""
    kept = select(episodes, settings)
    fitting = fit(kept, settings.max_length)
    if not fitting:
        raise DataError(
            f"expected episodes to train on, found {len(episodes)} of which {len(kept)} pass the filters of 'data' (success_only, "
            f"min_reward, dedupe) and none has at most {settings.max_length} tokens (data.max_length)"
        )
    return fitting, {"data/left_out": float(len(episodes) - len(fitting))}
