"""The miniature's task list: which sites there are, which item is which filled-in template, and what is kept for evaluation."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from agentgym_envs.core import Split
from agentgym_envs.webarena.database import pristine
from agentgym_envs.webarena.sites.base import Instance, Site, TaskTemplate

_MODULES = ("shopping", "cms", "map", "gitlab", "forum")
#: Name of each site's row in the paper's tables, and how many of the 50 evaluation items it has there.
ROWS = {"shopping": "shopping", "cms": "cms", "map": "map", "gitlab": "gitlab", "forum": "reddit"}
EVAL_ITEMS = {"shopping": 15, "cms": 15, "map": 10, "gitlab": 5, "forum": 5}
#: At most this many instances of a template become items, spread evenly over all that the template lists.
MAX_INSTANCES = 40


@dataclass(frozen=True)
class Task:
    """One item as the environment runs it, of the miniature or of the official sites."""

    row: str
    objective: str
    start_urls: tuple[str, ...]
    evaluation: Mapping[str, Any]
    site: str
    template: TaskTemplate | None = None
    instance: Instance | None = None


@cache
def sites() -> tuple[Site, ...]:
    """The five sites, in the order of their items."""
    return tuple(importlib.import_module(f"agentgym_envs.webarena.sites.{name}").SITE for name in _MODULES)


@cache
def tasks() -> tuple[Task, ...]:
    """Every item: site by site, template by template. The index is the item's number."""
    return tuple(task for site in sites() for template in site.templates for task in _of_template(site, template))


def _of_template(site: Site, template: TaskTemplate) -> list[Task]:
    instances = template.instances(pristine(site).connection)
    count = min(len(instances), MAX_INSTANCES)
    chosen = [instances[i * len(instances) // count] for i in range(count)]
    return [
        Task(ROWS[site.name], template.intent.format(**i.params), (site.origin + i.start,), i.evaluation, site.name, template, i)
        for i in chosen
    ]


@cache
def split(name: Split) -> tuple[int, ...]:
    """Item numbers of a split. Evaluation takes an instance of each template in turn, site by site, up to the site's quota."""
    held_out = set[int]()
    by_template: dict[str, dict[str, list[int]]] = {}
    for number, task in enumerate(tasks()):
        assert task.template is not None
        by_template.setdefault(task.site, {}).setdefault(task.template.id, []).append(number)
    for site, templates in by_template.items():
        held_out.update(_held_out(templates, EVAL_ITEMS[site]))
    return tuple(n for n in range(len(tasks())) if (n in held_out) == (name == "eval"))


def _held_out(templates: Mapping[str, Sequence[int]], quota: int) -> list[int]:
    """Drawn by hash, so that neither first templates nor first instances are preferred; a template gives at most a third of its own."""
    drawn = []
    for _, numbers in sorted(templates.items()):
        shuffled = sorted(numbers, key=lambda n: _draw(f"item {tasks()[n].objective}"))
        drawn.append(shuffled[: len(numbers) // 3])
    drawn.sort(key=lambda some: _draw(f"template {[tasks()[n].objective for n in some]}"))
    rounds = max(map(len, drawn), default=0)
    return [numbers[i] for i in range(rounds) for numbers in drawn if i < len(numbers)][:quota]


def _draw(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def content_hash() -> str:
    """Twelve digits that change with any site's content, tasks or split."""
    parts = [pristine(site).dump_hash for site in sites()]
    parts += [f"{task.objective} {task.start_urls} {sorted(task.evaluation.items())}" for task in tasks()]
    return hashlib.sha256("\n".join([*parts, str(split("eval"))]).encode()).hexdigest()[:12]
