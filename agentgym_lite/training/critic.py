"""Critics: what an episode is still worth, read before each token is sampled."""

from __future__ import annotations

import copy
from typing import Any, Literal

import torch
from torch import Tensor, nn

CriticKind = Literal["head", "detached_head", "separate"]


class Critic(nn.Module):
    r"""A linear head on hidden states, :math:`V_t = w^\top h_t + b`, and for ``separate`` a copy of the policy's layers below it.

    The head starts at 0, so that the first advantages are plain returns. ``head`` and ``detached_head`` read the policy's hidden states;
    only ``head`` sends a gradient into them.
    """

    def __init__(self, model: Any, kind: CriticKind) -> None:
        super().__init__()
        weight = model.get_output_embeddings().weight
        self.kind = kind
        self.backbone = copy.deepcopy(model.get_decoder()) if kind == "separate" else None
        self.head = nn.Linear(weight.shape[1], 1, device=weight.device, dtype=torch.float32)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, input_ids: Tensor, hidden: Tensor) -> Tensor:
        """Values ``[B, T]``: position t has read token t and judges what comes after. ``hidden`` ``[B, T, H]`` is the policy's."""
        if self.backbone is not None:
            hidden = self.backbone(input_ids=input_ids, use_cache=False).last_hidden_state
        elif self.kind == "detached_head":
            hidden = hidden.detach()
        with torch.autocast(hidden.device.type, enabled=False):  # a head in bfloat16 could not tell close values apart
            values: Tensor = self.head(hidden.float()).sum(-1)  # one number; an index would be a view, which FSDP cannot watch
        return values
