"""Grading: run the checks of a lesson on the functions in a learner's notebook.

Only the cells that the functions need are executed (imports and what they use), so grading takes seconds where the lesson takes minutes.
The list of exercises and the checks come from the master, if it is known: a check that was edited or deleted counts as it stands there.
It still runs the learner's code with the rights of whoever grades: do so in an account or a container that holds nothing else.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym_lite.course.cells import (
    METADATA,
    NOTEBOOKS,
    RESULT_MIME,
    CourseError,
    Exercise,
    exercises,
    import_extra,
    names,
    needed_for,
    read_notebook,
)


@dataclass(frozen=True)
class Mark:
    """One exercise: ``status`` and ``message`` are the check's; one point if it passed."""

    exercise: str
    title: str
    status: str
    message: str

    @property
    def points(self) -> int:
        return int(self.status == "passed")


@dataclass(frozen=True)
class Grade:
    """A notebook's marks; the score is the number of exercises that passed."""

    notebook: str
    marks: list[Mark]

    @property
    def score(self) -> int:
        return sum(m.points for m in self.marks)

    @property
    def total(self) -> int:
        return len(self.marks)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {"notebook": self.notebook, "score": self.score, "total": self.total, "exercises": [vars(m) for m in self.marks]}


def grade(path: Path, *, masters: Path = NOTEBOOKS, timeout: int = 60) -> Grade:
    """Execute the checks of the notebook at ``path``, ``timeout`` seconds at most per cell.

    Its master is the notebook of ``masters`` that a student copy names in its metadata; without one, the notebook's own exercises and
    checks count. Raises ``CourseError`` if the notebook has none.
    """
    notebook = read_notebook(path)
    master = masters / Path(notebook["metadata"].get(METADATA, {}).get("master", path.name)).name
    asked = [e for e in exercises(read_notebook(master) if master.is_file() else notebook) if e.check]
    if not asked:
        raise CourseError(f"expected exercises with checks in '{path}', found none")
    return Grade(path.name, _run(notebook, asked, path.parent, timeout))


def _run(notebook: Any, asked: list[Exercise], folder: Path, timeout: int) -> list[Mark]:
    v4 = import_extra("nbformat").v4
    where = [_defining(notebook, e.function) for e in asked]
    needed = sorted({i for cell in where if cell is not None for i in needed_for(notebook, cell)})
    codes = ["".join(notebook["cells"][i]["source"]) for i in needed]
    codes += [f"from agentgym_lite.course import checks as _checks\n_checks.{e.check}({e.function})" for e in asked]
    kernel = notebook["metadata"].get("kernelspec", {"name": "python3", "display_name": "Python 3", "language": "python"})
    outputs = _execute(v4.new_notebook(cells=[v4.new_code_cell(c) for c in codes], metadata={"kernelspec": kernel}), folder, timeout)
    of_cell = dict(zip(needed, outputs, strict=False))
    results = outputs[len(needed) :]
    return [_mark(e, None if cell is None else of_cell[cell], r, timeout) for e, cell, r in zip(asked, where, results, strict=True)]


def _defining(notebook: Any, function: str) -> int | None:
    """The last code cell that defines ``function``; one that is no Python and mentions it, if there is no other."""
    code = [(i, "".join(c["source"])) for i, c in enumerate(notebook["cells"]) if c["cell_type"] == "code"]
    defining = [i for i, source in code if function in names(source).defined]
    broken = [i for i, source in code if f"def {function}(" in source]
    return next(iter(reversed(defining or broken)), None)


def _execute(notebook: Any, folder: Path, timeout: int) -> list[Any]:
    """Outputs of every cell; a cell that takes too long is interrupted, and the next one goes on."""
    nbclient = import_extra("nbclient")
    client = nbclient.NotebookClient(
        notebook,
        timeout=timeout,
        allow_errors=True,
        interrupt_on_timeout=True,
        error_on_timeout={"ename": "KeyboardInterrupt", "evalue": "", "traceback": []},
        store_widget_state=False,
        resources={"metadata": {"path": str(folder)}},
    )
    client.log.setLevel("CRITICAL")  # it would print a line for each interrupt
    return [cell["outputs"] for cell in client.execute(stderr=subprocess.DEVNULL)["cells"]]


def _mark(exercise: Exercise, solution: Any, result: Any, timeout: int) -> Mark:
    """``solution`` and ``result`` are the outputs of the cell that defines the function (None: there is none) and of its check."""
    if solution is None:
        status, message = "unsolved", f"the notebook has no function {exercise.function}()"
    elif error := _error(solution, timeout):
        status, message = "error", error
    elif data := next((o["data"][RESULT_MIME] for o in result if RESULT_MIME in o.get("data", {})), None):
        status, message = data["status"], data["message"]
    else:
        status, message = "error", _error(result, timeout) or "the check gave no answer"
    return Mark(exercise.check, exercise.title, status, message)


def _error(outputs: Any, timeout: int) -> str:
    found = next((o for o in outputs if o["output_type"] == "error"), None)
    if found is None:
        return ""
    return f"no answer within {timeout} s" if found["ename"] == "KeyboardInterrupt" else f"{found['ename']}: {found['evalue']}"
