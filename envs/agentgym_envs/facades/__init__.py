"""The same environments and sessions in other projects' protocols: AgentGym's HTTP dialects and OpenEnv's WebSocket."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import FastAPI

from agentgym_envs.facades import agentgym, openenv
from agentgym_envs.facades.service import Service

__all__ = ["Service", "add_facades", "agentgym", "openenv"]


def add_facades(app: FastAPI, services: Mapping[str, Service]) -> None:
    """Serve ``services`` under ``/agentgym/{env}`` for AgentGym's clients and at ``/{env}/ws`` for OpenEnv's."""
    agentgym.add_routes(app, services)
    openenv.add_routes(app, services)
