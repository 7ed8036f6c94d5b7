"""Errors of the vLLM engine."""

from __future__ import annotations

from importlib.util import find_spec


class VllmError(RuntimeError):
    """vLLM cannot be used, or a server of it does not do what is asked; the message says what to do."""


class WeightSyncError(VllmError):
    """The engine answers with other weights than the policy's."""


def check_installed() -> None:
    """Raises ``VllmError``, which says how to get it, if the package ``vllm`` is not there."""
    if find_spec("vllm") is None:
        raise VllmError(
            'expected the package vllm for rollout.engine=vllm, found none; with an NVIDIA GPU: pip install -e ".[gpu]"; without one see '
            "docs/vllm.md, or use rollout.engine=native"
        )
