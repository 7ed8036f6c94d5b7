"""Task families of the administration: those that ask, and those that change something."""

from __future__ import annotations

from agentgym_envs.webarena.sites.cms.tasks import changing, reading

TEMPLATES = (*reading.TEMPLATES, *changing.TEMPLATES)
