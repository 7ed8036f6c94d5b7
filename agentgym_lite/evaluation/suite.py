"""Evaluation suites: manifests that fix every item id, seed, round limit and metric, sealed by a hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from agentgym_lite.rollout.types import EpisodeSpec

#: Where the shipped manifests lie.
SUITES = Path(__file__).resolve().parents[2] / "data" / "suites"


class SuiteError(ValueError):
    """A suite cannot be found, was changed by hand, or does not hold what was asked of it."""


@dataclass(frozen=True)
class SuiteItem:
    """One evaluation item. ``task`` is its row in the paper's tables, ``metric`` the figure that the row reports."""

    env: str
    item_id: str
    seed: int
    task: str
    max_rounds: int
    metric: str = "success"

    def spec(self, sample: int = 0) -> EpisodeSpec:
        """The episode that plays this item."""
        return EpisodeSpec(self.env, self.item_id, self.seed, sample)


@dataclass(frozen=True)
class Suite:
    """A fixed list of items. ``title`` says how much of the full suite it covers; ``versions`` are those of the environments.

    ``needs`` names, for an environment whose items are not the shipped ones, the options that its server must be started with;
    ``notes`` tells for each environment where its item ids come from.
    """

    name: str
    title: str
    versions: Mapping[str, str]
    items: tuple[SuiteItem, ...]
    hash: str
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)

    def select(self, only: Sequence[str] = ()) -> Suite:
        """The items whose environment, task or ``env/task`` is named in ``only``, all of them if it is empty.

        Raises ``SuiteError`` for a name that selects nothing.
        """
        if not only:
            return self
        for name in only:
            if not any(name in _names(i) for i in self.items):
                known = sorted({i.env for i in self.items}) + sorted({f"{i.env}/{i.task}" for i in self.items})
                raise SuiteError(f"suite {self.name} has no environment or task {name!r:.80}; it has {', '.join(known)}")
        items = tuple(i for i in self.items if _names(i) & set(only))
        return replace(self, items=items)


def _names(item: SuiteItem) -> set[str]:
    return {item.env, item.task, f"{item.env}/{item.task}"}


def content_hash(items: Iterable[SuiteItem], versions: Mapping[str, str], needs: Mapping[str, Sequence[str]]) -> str:
    """SHA-256 over all that the manifest fixes; independent of file layout and order of keys."""
    content = {"items": [asdict(i) for i in items], "versions": dict(versions), "needs": {env: list(n) for env, n in needs.items()}}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def manifest_text(
    name: str,
    title: str,
    versions: Mapping[str, str],
    items: Sequence[SuiteItem],
    needs: Mapping[str, Sequence[str]] | None = None,
    notes: Mapping[str, str] | None = None,
) -> str:
    """A manifest as written to disk: JSON, one item per line, so that changes read well in a diff."""
    needs = {env: list(options) for env, options in sorted((needs or {}).items())}
    head = {"name": name, "title": title, "hash": content_hash(items, versions, needs), "versions": dict(sorted(versions.items()))}
    head |= {"needs": needs, "notes": dict(sorted((notes or {}).items()))}
    rows = ",\n".join("    " + json.dumps(asdict(i)) for i in items)
    return json.dumps(head, indent=2)[:-2] + ',\n  "items": [\n' + rows + "\n  ]\n}\n"


def load_suite(name: str | Path) -> Suite:
    """Read a shipped suite by name or a manifest by path and verify its hash. Raises ``SuiteError``."""
    path = Path(name) if str(name).endswith(".json") else SUITES / f"{name}.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        items = tuple(SuiteItem(**i) for i in data["items"])
        needs = {env: tuple(options) for env, options in data.get("needs", {}).items()}
        notes = _strings(data.get("notes", {}))
        suite = Suite(data["name"], data["title"], _strings(data["versions"]), items, data["hash"], needs, notes)
    except FileNotFoundError:
        known = ", ".join(sorted(p.stem for p in SUITES.glob("*.json"))) or "none"
        raise SuiteError(f"expected a suite or a manifest file, found nothing called '{name}'; shipped suites: {known}") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError, AttributeError) as e:
        why = f"{type(e).__name__}: {e}"
        raise SuiteError(f"'{path}' is not a suite manifest ({why}); make it again with scripts/build_suites.py") from None
    found = content_hash(suite.items, suite.versions, suite.needs)
    if found != suite.hash:
        raise SuiteError(
            f"'{path}' does not match its own hash (expected {suite.hash:.12}, found {found:.12}): it was edited by hand. "
            "Make it again with scripts/build_suites.py, so that results stay comparable"
        )
    return suite


def _strings(mapping: Mapping[str, Any]) -> dict[str, str]:
    return {str(k): str(v) for k, v in mapping.items()}
