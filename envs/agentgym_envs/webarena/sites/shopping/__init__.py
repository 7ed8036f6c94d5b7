"""The shop as its customers see it: catalogue, cart, wish list, orders, account."""

from __future__ import annotations

from pathlib import Path

from agentgym_envs.webarena.sites.base import Site
from agentgym_envs.webarena.sites.shopping.seed import EMMA_USER, seed
from agentgym_envs.webarena.sites.shopping.tasks import TEMPLATES
from agentgym_envs.webarena.sites.shopping.views import ORIGIN, TITLE, create_app

SITE = Site(
    name="shopping",
    title=TITLE,
    origin=ORIGIN,
    user=EMMA_USER,
    create_app=create_app,
    schema=(Path(__file__).parent / "schema.sql").read_text(encoding="utf-8"),
    seed=seed,
    templates=TEMPLATES,
)
