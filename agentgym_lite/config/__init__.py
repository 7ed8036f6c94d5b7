"""Configuration of a training run: typed, strict and the same from YAML, the command line and Python.

Unknown keys are errors. Every field changes a result.
"""

from agentgym_lite.config.algorithms import AlgorithmConfig
from agentgym_lite.config.base import ConfigError
from agentgym_lite.config.load import load_config, parse_config
from agentgym_lite.config.run import Config, EnvConfig, ModelConfig, OptimConfig, RolloutConfig, RoundsConfig, RunConfig

__all__ = [
    "AlgorithmConfig",
    "Config",
    "ConfigError",
    "EnvConfig",
    "ModelConfig",
    "OptimConfig",
    "RolloutConfig",
    "RoundsConfig",
    "RunConfig",
    "load_config",
    "parse_config",
]
