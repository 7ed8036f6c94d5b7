"""The notebooks keep the house rules, and each rule finds what it forbids. Running the notebooks is the work of ``make nb``."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from notebook_rules import lesson_problems, problems

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
LESSONS = [p for p in NOTEBOOKS if not p.name.startswith("00_")]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_follows_the_rules(path):
    assert problems(json.loads(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem)
def test_lesson_is_complete(path):
    assert lesson_problems(json.loads(path.read_text(encoding="utf-8"))) == []


def test_notebooks_are_numbered():
    numbers = [p.name[:3] for p in NOTEBOOKS]
    assert numbers[0] == "00_"
    assert len(set(numbers)) == len(numbers)
    assert set(numbers) <= {f"{k:02d}_" for k in range(12)}


def good() -> dict[str, Any]:
    output = {"output_type": "stream", "name": "stdout", "text": ["2\n"]}
    cells = [
        {
            "cell_type": "markdown",
            "source": "# Title\n**Time** about 1 minute to run **Hardware** any **You will learn** a thing",
            "metadata": {},
        },
        {
            "cell_type": "code",
            "source": "print(1 + 1)",
            "metadata": {"tags": ["nbval-check-output"]},
            "execution_count": 1,
            "outputs": [output],
        },
        {"cell_type": "code", "source": "x = 'a/b'", "metadata": {}, "execution_count": 2, "outputs": []},
    ]
    return {"cells": cells, "metadata": {"agentgym_lite": {"seconds": 50.0}}}


def test_a_good_notebook_has_no_problems():
    assert problems(good()) == []


@pytest.mark.parametrize(
    ("cell", "change", "message"),
    [
        (0, {"source": "Title"}, "begin with '# '"),
        (0, {"source": "# Title **Time** **Hardware**"}, "You will learn"),
        (0, {"source": "# Title"}, "minutes to run"),
        (0, {"source": "# Title about 10 seconds to run"}, "says that it takes about 10 s, but took 50 s"),
        (0, {"source": "# Title about 2 minutes to run"}, "about 120 s, but took 50 s"),
        (1, {"metadata": {"tags": ["solved"]}}, "unknown tag 'solved'"),
        (1, {"metadata": {"tags": ["gpu"]}}, "comes after a gpu cell"),
        (1, {"metadata": {"tags": ["check"]}}, "not compared"),
        (2, {"source": "x.to('cuda')"}, "not tagged gpu"),
        (2, {"source": "### BEGIN SOLUTION"}, "not tagged solution"),
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


@pytest.mark.parametrize(
    ("measured", "message"),
    [
        ({}, "measured time is missing"),
        ({"seconds": 200.0}, "at most 180"),
        ({"seconds": 900.0, "cpu_seconds": 190.0}, "took 190 s, at most 180"),
        ({"seconds": 50.0, "cpu_seconds": 20.0}, "about 60 s, but took 20 s"),
    ],
)
def test_the_measured_time_is_there_and_fits(measured, message):
    notebook = copy.deepcopy(good()) | {"metadata": {"agentgym_lite": measured}}
    assert any(message in p for p in problems(notebook)), problems(notebook)


def code(text: str, *tags: str) -> dict[str, Any]:
    return {"cell_type": "code", "source": text, "metadata": {"tags": list(tags)}, "execution_count": 1, "outputs": []}


def markdown(text: str, *tags: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "source": text, "metadata": {"tags": list(tags)}}


def card(number: int) -> dict[str, Any]:
    hint = "<details><summary>Hint</summary>think</details>"
    return markdown(f"### Exercise {number} · Add\n★☆☆ · 2 minutes\n\nAdd.\n\n{hint}", "exercise")


def lesson() -> dict[str, Any]:
    """Three exercises at the places 3, 6 and 9."""
    figure = code("plot()") | {"outputs": [{"output_type": "display_data", "data": {"image/png": ""}}]}
    cells = [markdown("# Title"), figure, markdown("## What to inspect\n\n## Exercises")]
    for k in (1, 2, 3):
        cells += [
            card(k),
            code(f"def f{k}(x):\n    ### BEGIN SOLUTION\n    return x\n    ### END SOLUTION", "solution"),
            code(f"checks.f{k}(f{k})", "check"),
        ]
    return {"cells": [*cells, markdown("## Recap")]}


def test_a_complete_lesson_has_no_problems():
    assert lesson_problems(lesson()) == []


@pytest.mark.parametrize(
    ("place", "cell", "message"),
    [
        (1, code("plot()"), "figure"),
        (2, markdown("## Exercises"), "What to inspect"),
        (12, markdown("the end"), "Recap"),
        (3, markdown("### Exercise 1 · Add\n★☆☆ · 2 minutes", "exercise"), "no collapsed hint"),
        (3, markdown("### Exercise one\n★☆☆ · 2 minutes", "exercise"), "expected a card"),
        (3, card(2), "numbered from 1"),
        (3, markdown("no card"), "3 to 5 exercises, found 2"),
        (4, code("def f1(x):\n    return x", "solution"), "around the solved part"),
        (4, code("### BEGIN SOLUTION\ndef f1(x):\n    return x\n### END SOLUTION", "solution"), "inside a function"),
        (4, code("def g(x):\n    return x", "solution"), "'f1' to be defined"),
        (5, code("checks.f1(f1)"), "one 'solution' and one 'check'"),
        (5, code("print(checks.f1(f1))", "check"), "one line"),
        (12, code("f1(3)"), "only check cells may"),
    ],
)
def test_each_rule_of_lessons_finds_what_it_forbids(place, cell, message):
    notebook = lesson()
    notebook["cells"][place] = cell
    assert any(message in p for p in lesson_problems(notebook)), lesson_problems(notebook)
