"""WebArena in miniature: five sites in process, a text browser and Chromium, and the official sites by URL."""

from __future__ import annotations

from agentgym_envs.webarena.env import WebArena

__all__ = ["WebArena"]
