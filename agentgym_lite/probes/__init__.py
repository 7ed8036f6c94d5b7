"""Probes: six tiny tasks that each isolate one part of an algorithm, and a policy that learns them in seconds on one core."""

from __future__ import annotations

from agentgym_envs import core
from agentgym_lite.probes.env import PROBES, Probe
from agentgym_lite.probes.policy import probe_model, probe_tokenizer
from agentgym_lite.probes.run import ProbeRun, run_probe

__all__ = ["PROBES", "Probe", "ProbeRun", "probe_model", "probe_tokenizer", "register_probes", "run_probe"]


def register_probes() -> None:
    """Make the probes known under their names (``probe_value``, ...) in this process. They are not registered by default."""
    for name, cls in PROBES.items():
        core.register(name, f"{cls.__module__}:{cls.__name__}")
