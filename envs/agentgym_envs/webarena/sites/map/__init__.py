"""The map of an invented region: places, what is near them, and the ways between them."""

from __future__ import annotations

from pathlib import Path

from agentgym_envs.webarena.sites.base import Site
from agentgym_envs.webarena.sites.map.seed import USER, seed
from agentgym_envs.webarena.sites.map.tasks import ORIGIN, TEMPLATES
from agentgym_envs.webarena.sites.map.views import create_app

SITE = Site(
    name="map",
    title="Velmark Map",
    origin=ORIGIN,
    user=USER,
    create_app=create_app,
    schema=(Path(__file__).parent / "schema.sql").read_text(encoding="utf-8"),
    seed=seed,
    templates=TEMPLATES,
)
