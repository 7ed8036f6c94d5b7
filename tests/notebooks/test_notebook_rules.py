"""House rules of the notebooks, and that each rule finds what it forbids. Running the notebooks is the work of ``make nb``."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from statistics import median
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
MAX_CELL_LINES, MAX_MEDIAN_LINES, MAX_LINE_LENGTH, MAX_BYTES = 30, 8, 120, 3_000_000
HEADER_FIELDS = ("**Time**", "**Hardware**", "**You will learn**")

_ABSOLUTE_PATH = re.compile(r"(?<=[\s'\"(=])/\w[\w.-]*/[\w.-]+|\b[A-Z]:\\\\\w")
_INSTALL = re.compile(r"^\s*[!%]\s*(pip|conda|mamba|apt|apt-get|uv|git|wget|curl)\b|\bpip install\b|get_ipython\(\)\.system", re.MULTILINE)
_NETWORK = re.compile(r"https?://(?!localhost|127\.0\.0\.1)")
_PRIVATE = re.compile(r"from agentgym_(?:lite|envs)[\w.]* import[^\n]*\b_\w+|sys\.path")


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [c for c in notebook["cells"] if c["cell_type"] == "code"]


def problems(notebook: dict[str, Any]) -> list[str]:
    """Every broken rule, one sentence each."""
    return [*_header(notebook), *_execution(notebook), *_size(notebook), *_content(notebook)]


def _header(notebook: dict[str, Any]) -> list[str]:
    first = notebook["cells"][0] if notebook["cells"] else {"cell_type": "none", "source": ""}
    text = source(first)
    if first["cell_type"] != "markdown" or not text.startswith("# "):
        return ["the first cell must be markdown and begin with '# ' and the title"]
    return [f"the first cell must hold the field {field}" for field in HEADER_FIELDS if field not in text]


def _execution(notebook: dict[str, Any]) -> list[str]:
    cells = code_cells(notebook)
    found = [c["execution_count"] for c in cells]
    out = []
    if found != list(range(1, len(cells) + 1)):  # nbval never compares a cell that has no count
        out.append(f"execution counts must be 1..{len(cells)} in order (restart, run all, save), found {found}")
    if not any(c["outputs"] for c in cells):
        out.append("outputs must be stored")
    for k, c in enumerate(cells, 1):
        tags = c["metadata"].get("tags", [])
        if any(o["output_type"] == "error" for o in c["outputs"]) and "raises-exception" not in tags:
            out.append(f"code cell {k} stores an error")
        if any(o["output_type"] == "stream" and o["name"] == "stderr" for o in c["outputs"]):
            out.append(f"code cell {k} stores warnings or a progress bar (stderr)")
        if any("application/vnd.jupyter.widget-view+json" in o.get("data", {}) for o in c["outputs"]):
            out.append(f"code cell {k} stores a widget, which is empty when it is read without a kernel")
        if "nbval-check-output" in tags and not c["outputs"]:
            out.append(f"code cell {k} is tagged nbval-check-output but has no output")
    if not any("nbval-check-output" in c["metadata"].get("tags", []) for c in cells):
        out.append("at least one cell with deterministic output must be tagged nbval-check-output")
    return out


def _size(notebook: dict[str, Any]) -> list[str]:
    lines = [len(source(c).splitlines()) for c in code_cells(notebook)] or [0]
    out = [f"code cell {k} has {n} lines, at most {MAX_CELL_LINES} are allowed" for k, n in enumerate(lines, 1) if n > MAX_CELL_LINES]
    if median(lines) > MAX_MEDIAN_LINES:
        out.append(f"half of the code cells have more than {MAX_MEDIAN_LINES} lines (median {median(lines)})")
    for k, c in enumerate(code_cells(notebook), 1):
        out += [f"code cell {k} has a line of {len(x)} characters" for x in source(c).splitlines() if len(x) > MAX_LINE_LENGTH]
    if len(json.dumps(notebook)) > MAX_BYTES:
        out.append(f"the file is larger than {MAX_BYTES:,} bytes")
    return out


def _content(notebook: dict[str, Any]) -> list[str]:
    out = []
    for k, c in enumerate(code_cells(notebook), 1):
        shown = source(c) + json.dumps(c["outputs"])
        for what, pattern, text in (
            ("an absolute path", _ABSOLUTE_PATH, shown),
            ("an install or shell download", _INSTALL, source(c)),
            ("a network address", _NETWORK, source(c)),
            ("a private name or a change of sys.path", _PRIVATE, source(c)),
        ):
            if match := pattern.search(text):
                out.append(f"code cell {k} holds {what}: {match.group()!r}")
    return out


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_follows_the_rules(path):
    assert problems(json.loads(path.read_text(encoding="utf-8"))) == []


def test_there_are_notebooks_and_they_are_numbered():
    assert NOTEBOOKS, "expected notebooks under notebooks/"
    assert [p.name[:3] for p in NOTEBOOKS] == [f"{k:02d}_" for k in range(len(NOTEBOOKS))]


def good() -> dict[str, Any]:
    output = {"output_type": "stream", "name": "stdout", "text": ["2\n"]}
    cells = [
        {"cell_type": "markdown", "source": "# Title\n**Time** 1 min **Hardware** any **You will learn** a thing", "metadata": {}},
        {
            "cell_type": "code",
            "source": "print(1 + 1)",
            "metadata": {"tags": ["nbval-check-output"]},
            "execution_count": 1,
            "outputs": [output],
        },
        {"cell_type": "code", "source": "x = 'a/b'", "metadata": {}, "execution_count": 2, "outputs": []},
    ]
    return {"cells": cells}


def test_a_good_notebook_has_no_problems():
    assert problems(good()) == []


@pytest.mark.parametrize(
    ("cell", "change", "message"),
    [
        (0, {"source": "Title"}, "begin with '# '"),
        (0, {"source": "# Title **Time** **Hardware**"}, "You will learn"),
        (1, {"execution_count": None}, "execution counts"),
        (2, {"execution_count": 7}, "execution counts"),
        (1, {"outputs": []}, "outputs must be stored"),
        (1, {"metadata": {}}, "nbval-check-output"),
        (2, {"outputs": [{"output_type": "error"}]}, "stores an error"),
        (2, {"outputs": [{"output_type": "stream", "name": "stderr"}]}, "stderr"),
        (2, {"outputs": [{"output_type": "display_data", "data": {"application/vnd.jupyter.widget-view+json": {}}}]}, "stores a widget"),
        (2, {"source": "x = 1\n" * 31}, "31 lines"),
        (2, {"source": "x = 1\n" * 20}, "median 10.5"),
        (2, {"source": "x" * 121}, "121 characters"),
        (2, {"source": "open('/home/me/x')"}, "absolute path"),
        (2, {"outputs": [{"output_type": "stream", "name": "stdout", "text": ["saved /var/run/x"]}]}, "absolute path"),
        (2, {"source": "%pip install torch"}, "install"),
        (2, {"source": "!wget x"}, "install"),
        (2, {"source": "get('https://example.org')"}, "network"),
        (2, {"source": "from agentgym_lite.viewer.html import _code"}, "private"),
    ],
)
def test_each_rule_finds_what_it_forbids(cell, change, message):
    notebook = copy.deepcopy(good())
    notebook["cells"][cell].update(change)
    assert any(message in p for p in problems(notebook)), problems(notebook)
