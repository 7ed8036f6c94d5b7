"""Student copies: the solved masters with stubs in place of the solutions."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from agentgym_lite.course.cells import BEGIN, END, METADATA, CourseError, dependents, exercises, import_extra, read_notebook, tags


def student_copy(master: Any, name: str) -> Any:
    """The notebook for a learner; ``name`` is the master's file name, which grading looks up.

    Solved parts become a line that raises NotImplementedError, answers are left out, and the outputs of cells that need a solution are
    cleared; all other outputs stay, so that the lesson can be read before it is run. Raises ``CourseError`` if the master's exercises are
    not well formed.
    """
    exercises(master)
    out = deepcopy(master)
    for i in dependents(out):
        out["cells"][i] |= {"outputs": [], "execution_count": None}
    for cell in out["cells"]:
        if "solution" in tags(cell):
            cell["source"] = stub("".join(cell["source"]))
    out["cells"] = [c for c in out["cells"] if "answer" not in tags(c)]
    kept = {k: v for k, v in out["metadata"].get(METADATA, {}).items() if k not in ("seconds", "cpu_seconds")}
    out["metadata"][METADATA] = {**kept, "master": name}
    return out


def stub(source: str) -> str:
    """The code of a solution cell with each solved part replaced. Raises ``CourseError`` unless every part is inside a function."""
    out: list[str] = []
    inside = found = False
    for line in source.splitlines():
        if line.strip() == BEGIN:
            indent = line[: len(line) - len(line.lstrip())]
            if inside or not indent:
                raise CourseError(f"expected '{BEGIN}' inside a function and not twice in a row, found {source[:80]!r}")
            out += [f"{indent}# your code here", f'{indent}raise NotImplementedError("not yet solved")']
            inside = found = True
        elif line.strip() == END:
            inside = False
        elif not inside:
            out.append(line)
    if inside or not found:
        raise CourseError(f"expected '{BEGIN}' and '{END}' around the solved part, found {source[:80]!r}")
    return "\n".join(out)


def write_student_copies(masters: Sequence[Path], folder: Path, *, overwrite: bool = False) -> list[Path]:
    """Write a copy of each master into ``folder``, which is made; the paths.

    Raises ``CourseError``, before anything is written, if a copy is there already, unless ``overwrite``: it may hold a learner's work.
    """
    there = [m.name for m in masters if (folder / m.name).exists()]
    if there and not overwrite:
        raise CourseError(f"expected no notebooks of these names in '{folder}', found {', '.join(there)}; give another folder or --force")
    if any(folder.resolve() == m.parent.resolve() for m in masters):
        raise CourseError(f"expected a folder for the copies, found that of the masters, '{folder}'; give another one")
    copies = [student_copy(read_notebook(m), m.name) for m in masters]
    folder.mkdir(parents=True, exist_ok=True)
    for master, copy in zip(masters, copies, strict=True):
        import_extra("nbformat").write(copy, folder / master.name)
    return [folder / m.name for m in masters]
