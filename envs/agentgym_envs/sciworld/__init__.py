"""SciWorld: science tasks in a simulated house, on the simulator of the ``scienceworld`` package."""

from agentgym_envs.sciworld.env import SciWorld
from agentgym_envs.sciworld.jvm import JavaNotFound, JvmPool, SimulatorError, find_java, require_java

__all__ = ["JavaNotFound", "JvmPool", "SciWorld", "SimulatorError", "find_java", "require_java"]
