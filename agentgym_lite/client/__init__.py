"""Clients of environments: one episode (``EnvClient``, ``AsyncEnvClient``) or many in parallel (``SessionPool``)."""

from agentgym_lite.client.env_client import AsyncEnvClient, EnvClient
from agentgym_lite.client.errors import EnvironmentFailure
from agentgym_lite.client.pool import Handle, SessionPool

__all__ = ["AsyncEnvClient", "EnvClient", "EnvironmentFailure", "Handle", "SessionPool"]
