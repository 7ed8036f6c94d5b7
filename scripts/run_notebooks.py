"""Execute the lessons, keep their outputs and how long they took, and bring the table of lessons up to date.

    python scripts/run_notebooks.py            all of them
    python scripts/run_notebooks.py 03 06      some
    python scripts/run_notebooks.py --table    only the table

Kept are seconds on the clock and seconds of computing; the lesser of the two counts, so that a busy machine does not lengthen a lesson. The
table goes between ``<!-- lessons -->`` and
``<!-- /lessons -->`` of ``notebooks/README.md`` and, where it has these marks, ``README.md``.
"""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from agentgym_lite.course.cells import METADATA, NOTEBOOKS, exercises, measured_seconds

CELL_TIMEOUT_S = 600
BEGIN, END = "<!-- lessons -->", "<!-- /lessons -->"


def execute(path: Path) -> dict[str, float]:
    """Run the notebook from top to bottom in a fresh kernel and save it; its times, kernel start included."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT_S,
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(path.parent)}},
    )
    start, used = time.monotonic(), _children_cpu()
    client.execute(stderr=subprocess.DEVNULL)  # where the kernel itself writes; what cells write is in their outputs
    times = {"seconds": round(time.monotonic() - start, 1), "cpu_seconds": round(_children_cpu() - used, 1)}
    for cell in notebook["cells"]:
        cell["metadata"].pop("execution", None)
    notebook["metadata"][METADATA] = {**notebook["metadata"].get(METADATA, {}), **times}
    nbformat.write(notebook, path)
    return times


def _children_cpu() -> float:
    """Seconds that all kernels so far have computed, once they have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def table(paths: list[Path]) -> str:
    """One line per lesson: title, measured time, exercises and what is learned, in Markdown; links start at the folder of notebooks."""
    lines = ["| lesson | measured | exercises | you will learn |", "|---|---|---|---|"]
    for path in paths:
        notebook = nbformat.read(path, as_version=4)
        header = "".join(notebook["cells"][0]["source"])
        cells = (
            f"[{_title(header)}]({path.name})",
            _seconds(measured_seconds(notebook)),
            str(len(exercises(notebook)) or "-"),
            _learn(header),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _title(header: str) -> str:
    return header.splitlines()[0].removeprefix("# ").strip()


def _learn(header: str) -> str:
    match = re.search(r"\*\*You will learn\*\*\s*\|\s*(.+?)\s*\|", header)
    return match[1] if match else ""


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.0f} s"


def write_table(text: str, root: Path) -> list[Path]:
    """Put the table where the marks are; the files that have them. Links are made relative to each file."""
    written = []
    for file, prefix in ((root / "notebooks" / "README.md", ""), (root / "README.md", "notebooks/")):
        old = file.read_text(encoding="utf-8") if file.is_file() else ""
        if BEGIN not in old:
            continue
        linked = re.sub(r"\]\((\d\d_)", rf"]({prefix}\1", text)
        head, tail = old.split(BEGIN, 1)[0], old.split(END, 1)[1]
        file.write_text(f"{head}{BEGIN}\n{linked}\n{END}{tail}", encoding="utf-8")
        written.append(file)
    return written


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lessons", nargs="*", help="numbers, such as 03; default: all")
    parser.add_argument("--table", action="store_true", help="execute nothing")
    args: Any = parser.parse_args(argv)
    paths = sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))
    chosen = [] if args.table else [p for p in paths if not args.lessons or p.name[:2] in args.lessons]
    if args.lessons and len(chosen) < len(args.lessons):
        parser.error(f"expected numbers of lessons in {NOTEBOOKS}, found {' '.join(args.lessons)}")
    failed = []
    for path in chosen:
        print(f"{path.name} ...", end=" ", flush=True)
        try:
            print(" ".join(f"{name} {value}" for name, value in execute(path).items()))
        except CellExecutionError as e:
            failed.append(path.name)
            print(f"failed\n{e}")
    for file in write_table(table(paths), NOTEBOOKS.parent):
        print(f"table: {file.relative_to(NOTEBOOKS.parent)}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
