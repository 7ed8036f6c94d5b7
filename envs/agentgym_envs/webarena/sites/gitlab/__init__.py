"""A small host of code: projects, commits, issues, merge requests, members, to-dos."""

from __future__ import annotations

from pathlib import Path

from agentgym_envs.webarena.sites.base import Site
from agentgym_envs.webarena.sites.gitlab.parts import ORIGIN
from agentgym_envs.webarena.sites.gitlab.seed import TITLE, USER, seed
from agentgym_envs.webarena.sites.gitlab.tasks import TEMPLATES
from agentgym_envs.webarena.sites.gitlab.views import create_app

SITE = Site(
    name="gitlab",
    title=TITLE,
    origin=ORIGIN,
    user=USER,
    create_app=create_app,
    schema=(Path(__file__).parent / "schema.sql").read_text(encoding="utf-8"),
    seed=seed,
    templates=TEMPLATES,
)
