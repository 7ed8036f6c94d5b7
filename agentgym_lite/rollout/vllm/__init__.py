"""Rollouts on vLLM, in this process or on servers: the interface of the native engine, with every sync of weights checked."""

from agentgym_lite.rollout.vllm.engine import VllmEngine, make_vllm_engine
from agentgym_lite.rollout.vllm.errors import VllmError, WeightSyncError

__all__ = ["VllmEngine", "VllmError", "WeightSyncError", "make_vllm_engine"]
