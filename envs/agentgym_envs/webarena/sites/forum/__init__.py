"""Forums with posts, votes, threads of comments and profiles."""

from __future__ import annotations

from pathlib import Path

from agentgym_envs.webarena.sites.base import Site
from agentgym_envs.webarena.sites.forum.questions import ORIGIN
from agentgym_envs.webarena.sites.forum.seed import TITLE, USER, seed
from agentgym_envs.webarena.sites.forum.tasks import TEMPLATES
from agentgym_envs.webarena.sites.forum.views import create_app

SITE = Site(
    name="forum",
    title=TITLE,
    origin=ORIGIN,
    user=USER,
    create_app=create_app,
    schema=(Path(__file__).parent / "schema.sql").read_text(encoding="utf-8"),
    seed=seed,
    templates=TEMPLATES,
)
