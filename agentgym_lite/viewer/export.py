"""Chosen trajectories as one piece of HTML that needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from agentgym_lite.viewer.component import component
from agentgym_lite.viewer.html import View
from agentgym_lite.viewer.payload import COLUMNS
from agentgym_lite.viewer.store import Source, StoreError

#: Largest export unless asked otherwise; browsers get slow with more.
LIMIT_MB = 20.0


def export_html(source: Source, numbers: Sequence[int], *, title: str = "Trajectories", limit_mb: float = LIMIT_MB) -> str:
    """A page with the trajectories ``numbers`` inside. Raises ``StoreError`` if there are none or they take more than ``limit_mb``."""
    return embed(source, numbers, title=title, limit_mb=limit_mb, linked=True).page(title, kind="full")


def embed(source: Source, numbers: Sequence[int], *, title: str, limit_mb: float = LIMIT_MB, linked: bool = False) -> View:
    """The whole viewer with the trajectories inside; ``linked`` lets the address of the page follow what is shown.

    Raises ``StoreError`` as :func:`export_html`.
    """
    if not numbers:
        raise StoreError("expected at least one trajectory to export, found none; loosen the filters")
    bodies: list[dict[str, Any]] = []
    size = 0
    for number in numbers:
        bodies.append(source.body(number))
        size += len(json.dumps(bodies[-1], ensure_ascii=False).encode())
        if size > limit_mb * 1e6:
            raise StoreError(
                f"the first {len(bodies)} of {len(numbers)} trajectories take more than the limit of {limit_mb:g} MB; "
                "export fewer (mark some, or use the filters) or raise --limit-mb"
            )
    rows = [[b[name] for name in COLUMNS] for b in bodies]
    data = {"view": "browse", "title": title, "linked": linked, "columns": COLUMNS, "rows": rows, "bodies": bodies}
    return component(data, f"{title}: {len(bodies)} trajectories; they can be read where scripts run.")
