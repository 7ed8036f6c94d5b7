"""Errors of the vLLM engine."""

from __future__ import annotations


class VllmError(RuntimeError):
    """vLLM cannot be used, or a server of it does not do what is asked; the message says what to do."""


class WeightSyncError(VllmError):
    """The engine answers with other weights than the policy's."""
