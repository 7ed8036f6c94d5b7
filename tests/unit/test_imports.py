"""Imports point one way, and nothing in the tree depends on the machine it was written on."""

import ast
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: Importing package -> packages it must not import (prefixes of dotted names).
FORBIDDEN = {
    "agentgym_envs": ("agentgym_lite", "torch", "transformers"),
    "agentgym_lite.client": tuple(f"agentgym_lite.{p}" for p in ("agents", "algorithms", "training", "evaluation", "viewer", "cli")),
    "agentgym_lite.agents": tuple(f"agentgym_lite.{p}" for p in ("training", "evaluation", "viewer", "cli")),
    "agentgym_lite.rollout": tuple(f"agentgym_lite.{p}" for p in ("training", "evaluation", "viewer", "cli")),
    "agentgym_lite.evaluation": tuple(f"agentgym_lite.{p}" for p in ("training", "viewer", "cli")),
    "agentgym_lite.training": ("agentgym_lite.viewer", "agentgym_lite.cli"),
    "agentgym_lite.viewer": ("agentgym_lite.training", "agentgym_lite.cli"),
    "agentgym_lite.course": ("agentgym_lite.viewer", "agentgym_lite.cli"),
    "agentgym_lite.plan": ("agentgym_lite.viewer", "agentgym_lite.cli"),
}
#: Packages that may import nothing but these, themselves and the standard library.
ONLY = {"agentgym_lite.algorithms": ("torch",)}


def imported(source: str, module: str, is_package: bool) -> Iterator[str]:
    """Dotted names that a module imports anywhere in it, relative imports made absolute."""
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def violations(source: str, module: str, is_package: bool = False) -> list[str]:
    """Names that ``module`` imports against the rules."""
    names = list(imported(source, module, is_package))
    bad = [n for owner, banned in FORBIDDEN.items() if within(module, owner) for n in names if any(within(n, b) for b in banned)]
    for owner, allowed in ONLY.items():
        if within(module, owner):
            free = (*allowed, owner)
            bad += [n for n in names if n.partition(".")[0] not in sys.stdlib_module_names and not any(within(n, a) for a in free)]
    return bad


def modules() -> Iterator[tuple[Path, str]]:
    for root in (ROOT / "agentgym_lite", ROOT / "envs" / "agentgym_envs"):
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root.parent).with_suffix("").parts
            yield path, ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_imports_point_one_way():
    found = {}
    for path, module in modules():
        if bad := violations(path.read_text(encoding="utf-8"), module, path.name == "__init__.py"):
            found[module] = bad
    assert found == {}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("agentgym_envs.core", "import agentgym_lite.client"),
        ("agentgym_envs.textcraft.env", "def f():\n    import torch"),
        ("agentgym_lite.algorithms.grpo", "from agentgym_lite.config import Config"),
        ("agentgym_lite.algorithms.grpo", "import numpy as np"),
        ("agentgym_lite.rollout.collector", "from agentgym_lite import training"),
        ("agentgym_lite.rollout.collector", "from ..evaluation.metrics import summarize"),
        ("agentgym_lite.training.trainer", "if True:\n    from agentgym_lite.viewer.report import write_report"),
        ("agentgym_lite.viewer.report", "from ..training import trainer"),
    ],
)
def test_a_violation_is_found(module, source):
    assert violations(source, module)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("agentgym_lite.algorithms.losses", "import math\nimport torch.nn.functional as F\nfrom .advantages import grpo"),
        ("agentgym_lite.training.trainer", "from agentgym_lite.rollout.types import Trajectory"),
        ("agentgym_envs.server", "from agentgym_envs.core import make"),
    ],
)
def test_allowed_imports_pass(module, source):
    assert violations(source, module) == []


def tree(root: Path) -> Iterator[Path]:
    """Text files of the checkout; neither caches nor anything installed or made by a run."""
    skipped = {".git", ".venv", ".ruff_cache", ".mypy_cache", ".pytest_cache", ".hypothesis", "runs", "__pycache__", "build", "dist"}
    suffixes = {".py", ".md", ".ipynb", ".toml", ".yaml", ".yml", ".cfg", ".sh", ".json", ".txt", ".html", ""}
    for folder, folders, files in os.walk(root):
        folders[:] = [f for f in folders if f not in skipped and not f.endswith(".egg-info")]
        yield from (Path(folder, f) for f in files if Path(f).suffix in suffixes)


def test_no_file_mentions_a_path_of_one_machine():
    pattern = re.compile(r"(?<![\w.])/(?:work|tmp|root)/\w")
    found = [f"{p.relative_to(ROOT)}: {m.group()}" for p in tree(ROOT) for m in pattern.finditer(p.read_text("utf-8", "ignore"))]
    assert found == []
