"""House rules of the notebooks: every broken rule, one sentence each."""

from __future__ import annotations

import json
import re
from statistics import median
from typing import Any

from agentgym_lite.course.cells import BEGIN, END, CourseError, dependents, exercises, measured_seconds
from agentgym_lite.course.student import stub

MAX_CELL_LINES, MAX_MEDIAN_LINES, MAX_LINE_LENGTH, MAX_BYTES = 30, 8, 120, 3_000_000
HEADER_FIELDS = ("**Time**", "**Hardware**", "**You will learn**")
#: What every lesson has after its quickstart, and how many exercises.
SECTIONS, EXERCISES = ("## What to inspect", "## Exercises", "## Recap"), range(3, 6)
TAGS = {"exercise", "solution", "check", "answer", "gpu", "nbval-check-output", "nbval-ignore-output", "raises-exception"}
#: A CPU part may take this long, and its stated time may be off by this factor.
MAX_SECONDS, TIME_FACTOR = 180.0, 2.0

_STATED = re.compile(r"\babout (\d+) (second|minute)s? to run")
_CUDA = re.compile(r"\bcuda\b")
_ABSOLUTE_PATH = re.compile(r"(?<=[\s'\"(=])/\w[\w.-]*/[\w.-]+|\b[A-Z]:\\\\\w")
_INSTALL = re.compile(r"^\s*[!%]\s*(pip|conda|mamba|apt|apt-get|uv|git|wget|curl)\b|\bpip install\b|get_ipython\(\)\.system", re.MULTILINE)
_NETWORK = re.compile(r"https?://(?!localhost|127\.0\.0\.1)")
_PRIVATE = re.compile(r"from agentgym_(?:lite|envs)[\w.]* import[^\n]*\b_\w+|sys\.path")


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [c for c in notebook["cells"] if c["cell_type"] == "code"]


def problems(notebook: dict[str, Any]) -> list[str]:
    """What is wrong with a notebook, whatever it is."""
    return [*_header(notebook), *_time(notebook), *_execution(notebook), *_size(notebook), *_content(notebook), *_tags(notebook)]


def lesson_problems(notebook: dict[str, Any]) -> list[str]:
    """What else is wrong with it as a lesson: sections, a figure, exercises."""
    text = "\n".join(source(c) for c in notebook["cells"] if c["cell_type"] == "markdown")
    out = [f"a lesson needs a section '{s}'" for s in SECTIONS if f"{s}\n" not in f"{text}\n"]
    if not any("image/png" in o.get("data", {}) for c in code_cells(notebook) for o in c["outputs"]):
        out.append("a lesson needs a figure made by code")
    try:
        return [*out, *_exercises(notebook)]
    except CourseError as e:
        return [*out, str(e)]


def _exercises(notebook: dict[str, Any]) -> list[str]:
    found, cells = exercises(notebook), notebook["cells"]
    out = []
    if len(found) not in EXERCISES:
        out.append(f"a lesson needs {EXERCISES.start} to {EXERCISES.stop - 1} exercises, found {len(found)}")
    if [e.number for e in found] != list(range(1, len(found) + 1)):
        out.append(f"exercises must be numbered from 1, found {[e.number for e in found]}")
    for e in found:
        if "<details><summary>Hint</summary>" not in source(cells[e.card]):
            out.append(f"exercise {e.number} has no collapsed hint")
        if e.solution is not None:
            stub(source(cells[e.solution]))
    free = [i for i in dependents(notebook) if not {"solution", "check"} & set(cells[i]["metadata"].get("tags", []))]
    out += [f"cell {i} uses what a learner writes: {source(cells[i])[:60]!r}; only check cells may" for i in free]
    return out


def _time(notebook: dict[str, Any]) -> list[str]:
    stated = _STATED.search(source(notebook["cells"][0])) if notebook["cells"] else None
    if stated is None:
        return ["the first cell must say 'about N minutes to run' (or seconds)"]
    seconds = measured_seconds(notebook)
    if seconds is None:
        return ["the measured time is missing: run scripts/run_notebooks.py"]
    said = int(stated[1]) * (60 if stated[2] == "minute" else 1)
    out = [f"it took {seconds:.0f} s, at most {MAX_SECONDS:.0f} are allowed"] if seconds > MAX_SECONDS else []
    if not said / TIME_FACTOR <= seconds <= said * TIME_FACTOR:
        out.append(f"it says that it takes about {said} s, but took {seconds:.0f} s")
    return out


def _tags(notebook: dict[str, Any]) -> list[str]:
    out, gpu_seen = [], False
    for k, c in enumerate(code_cells(notebook), 1):
        tags = set(c["metadata"].get("tags", []))
        out += [f"code cell {k} has the unknown tag '{t}'" for t in sorted(tags - TAGS)]
        if _CUDA.search(source(c)) and "gpu" not in tags:
            out.append(f"code cell {k} mentions cuda and is not tagged gpu")
        if gpu_seen and "gpu" not in tags:
            out.append(f"code cell {k} comes after a gpu cell: those are last")
        if "solution" not in tags and (BEGIN in source(c) or END in source(c)):
            out.append(f"code cell {k} holds a marked solution and is not tagged solution")
        if "check" in tags and "nbval-check-output" not in tags:
            out.append(f"code cell {k} is a check whose output is not compared: tag it nbval-check-output")
        gpu_seen = gpu_seen or "gpu" in tags
    return out


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
