"""Environment servers of AgentGym-Lite. No torch in here."""

from agentgym_envs.core import (
    Environment,
    Observation,
    StepResult,
    UnknownEnvironment,
    UnknownItem,
    environment_class,
    make,
    names,
    register,
)

__all__ = [
    "Environment",
    "Observation",
    "StepResult",
    "UnknownEnvironment",
    "UnknownItem",
    "environment_class",
    "make",
    "names",
    "register",
]
__version__ = "0.1.0"
