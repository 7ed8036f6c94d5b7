"""From per-token values to one number, exact under any split of a batch into micro-batches.

The caller counts the denominator once, over everything that one optimizer update sees; the parts then simply add up. Averaging inside
each micro-batch instead would weigh a token by the company it is in.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Aggregation = Literal["token_mean", "seq_mean_token_mean", "seq_mean_token_sum_norm"]


def denominator(mask: Tensor, mode: Aggregation, norm: float | None = None, episodes: Tensor | None = None) -> float:
    """What to divide by: the sampled tokens of ``mask`` ``[B, T]``, or its rows that have any (times ``norm``, if that is in force).

    Rows with the same number in ``episodes`` ``[B]`` are one sequence and count once.
    """
    counts = mask.sum(-1)
    if mode == "token_mean":
        return float(counts.sum())
    rows = float((counts > 0).sum() if episodes is None else len(episodes[counts > 0].unique()))
    if mode == "seq_mean_token_mean":
        return rows
    if norm is None:
        raise ValueError("expected the constant 'norm' with seq_mean_token_sum_norm, found none")
    return rows * norm


def aggregate(values: Tensor, mask: Tensor, mode: Aggregation, denom: float, sizes: Tensor | None = None) -> Tensor:
    r"""Masked mean of ``values`` ``[B, T]``; the results of all parts of a batch sum to the batch's.

    * ``token_mean``: :math:`\sum_{i,t} m_{it} L_{it} / D`: every token weighs the same (DAPO, arXiv 2503.14476);
    * ``seq_mean_token_mean``: :math:`\sum_i (\sum_t m_{it} L_{it} / \sum_t m_{it}) / D`: all sequences weigh the same (GRPO as published);
    * ``seq_mean_token_sum_norm``: :math:`\sum_{i,t} m_{it} L_{it} / D`, D being the rows times a constant: no weight depends on a length
      (Dr. GRPO, arXiv 2503.20783).

    ``denom`` is D = :func:`denominator` of the whole batch. Where a sequence is spread over several rows, ``sizes`` ``[B]`` gives each row
    the sampled tokens of its whole sequence; default: each row's own. Values where the mask is 0 are not read, not even NaN. Rows without
    a sampled token add nothing. Raises ``ValueError`` unless D > 0.
    """
    if not denom > 0:
        raise ValueError(f"expected a positive denominator, found {denom}: a batch needs at least one sampled token")
    kept = torch.where(mask.bool(), values, 0.0)
    if mode == "seq_mean_token_mean":
        return (kept.sum(-1) / (mask.sum(-1) if sizes is None else sizes).clamp(min=1)).sum() / denom
    return kept.sum() / denom
