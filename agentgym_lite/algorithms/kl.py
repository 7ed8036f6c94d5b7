r"""Per-token estimators of :math:`KL(\pi \| \pi_{ref})` from sampled tokens (J. Schulman, "Approximating KL Divergence", 2020)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

KLEstimator = Literal["k1", "k2", "k3"]

#: Upper bound on log(pi_ref / pi) inside the exponential of k3. Beyond it the value is constant and the gradient 0.
MAX_LOG_RATIO = 20.0


def kl_estimate(logprobs: Tensor, ref_logprobs: Tensor, estimator: KLEstimator) -> Tensor:
    r"""One estimate per token. With :math:`x = \log\pi_{ref} - \log\pi` and tokens sampled from :math:`\pi`:

    ====  =======================  ====================  ===============================================
    name  value                    its expectation       expected gradient when used as a loss
    ====  =======================  ====================  ===============================================
    k1    :math:`-x`               KL, exact             0: it trains nothing
    k2    :math:`x^2/2`            KL, biased            that of KL(pi || ref), exact
    k3    :math:`e^x - 1 - x`      KL, exact, never < 0  that of KL(ref || pi), the other direction
    ====  =======================  ====================  ===============================================

    ``expm1`` keeps k3 accurate near 0; ``x`` is clamped from above at 20 there, so that one absurd token cannot give ``inf``. Shapes
    are equal and free; gradients flow through ``logprobs`` only. Raises ``ValueError`` for an unknown estimator.
    """
    x = ref_logprobs.detach() - logprobs
    if estimator == "k1":
        return -x
    if estimator == "k2":
        return 0.5 * x.square()
    if estimator == "k3":
        x = x.clamp(max=MAX_LOG_RATIO)
        return torch.expm1(x) - x
    raise ValueError(f"expected a KL estimator k1, k2 or k3, found {estimator!r}")


def adapted_kl_coef(coef: float, kl: float, *, target: float, horizon: int, episodes: int) -> float:
    r"""The coefficient for the next step: a proportional controller in log space (Ziegler et al., arXiv 1909.08593).

    .. math:: \beta \leftarrow \beta\,(1 + \mathrm{clip}(KL / target - 1, -0.2, 0.2) \cdot episodes / horizon)
    """
    error = min(max(kl / target - 1.0, -0.2), 0.2)
    return coef * (1.0 + error * episodes / horizon)
