"""The shop as its staff sees it: orders, products, customers, reviews, reports. It works on the tables of site ``shopping``."""

from __future__ import annotations

from agentgym_envs.webarena.sites.base import Site
from agentgym_envs.webarena.sites.cms.tasks import TEMPLATES
from agentgym_envs.webarena.sites.cms.views import ORIGIN, TITLE, create_app
from agentgym_envs.webarena.sites.shopping import SITE as SHOP

SITE = Site(
    name="cms",
    title=TITLE,
    origin=ORIGIN,
    user="admin",
    create_app=create_app,
    schema=SHOP.schema,
    seed=SHOP.seed,
    templates=TEMPLATES,
    database=SHOP.name,
)
