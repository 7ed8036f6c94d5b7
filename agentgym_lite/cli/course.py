"""``agl course``: student copies of the lessons, and grading."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from agentgym_lite.course.grade import Grade

course = typer.Typer(help="For teachers: student copies of the lessons, and grading.", no_args_is_help=True)

_MARKS = {"passed": "[green]passed[/green]", "wrong": "[red]wrong[/red]", "error": "[red]error[/red]", "unsolved": "not solved"}


@course.command()
def student(
    out: Annotated[Path, typer.Argument(help="Folder for the copies.")],
    only: Annotated[list[str] | None, typer.Option(help="A lesson, by number such as 06; may be repeated. Default: all.")] = None,
    notebooks: Annotated[Path | None, typer.Option(help="Folder of the solved masters. Default: that of the checkout.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace copies that are there already.")] = False,
) -> None:
    """Write notebooks for learners: stubs in place of solutions, answers left out."""
    from agentgym_lite.cli.output import results
    from agentgym_lite.course.cells import NOTEBOOKS, CourseError
    from agentgym_lite.course.student import write_student_copies

    folder = notebooks or NOTEBOOKS
    masters = [p for p in sorted(folder.glob("*.ipynb")) if not only or any(p.name.startswith(f"{o}_") for o in only)]
    if not masters:
        raise CourseError(f"expected lessons {', '.join(only or [])} in '{folder}', found none; name another one with --notebooks")
    for path in write_student_copies(masters, out, overwrite=force):
        results.print(str(path), soft_wrap=True)


@course.command()
def grade(
    notebook: Annotated[
        list[Path], typer.Argument(help="Notebooks to grade. Their code is executed: use an account that holds nothing else.")
    ],
    notebooks: Annotated[Path | None, typer.Option(help="Folder of the solved masters. Default: that of the checkout.")] = None,
    timeout: Annotated[int, typer.Option(min=1, help="Seconds that a cell may take.")] = 60,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON document and nothing else on stdout.")] = False,
) -> None:
    """Run the checks of a learner's notebook and print its score."""
    from agentgym_lite.cli.output import print_json, progress
    from agentgym_lite.course.cells import NOTEBOOKS
    from agentgym_lite.course.grade import grade as run

    grades: list[Grade] = []
    with progress("grading", quiet=as_json or len(notebook) == 1) as advance:
        for path in notebook:
            grades.append(run(path, masters=notebooks or NOTEBOOKS, timeout=timeout))
            advance(len(grades), len(notebook), path.name)
    score, total = sum(g.score for g in grades), sum(g.total for g in grades)
    if as_json:
        print_json({"score": score, "total": total, "notebooks": [g.to_dict() for g in grades]})
        return
    _print(grades, score, total)


def _print(grades: list[Grade], score: int, total: int) -> None:
    from rich.markup import escape

    from agentgym_lite.cli.output import make_table, results

    for g in grades:
        table = make_table(f"{g.notebook}: {g.score} of {g.total}", first="exercise")
        for column in ("result", "message"):
            table.add_column(column)
        for m in g.marks:
            table.add_row(m.title, _MARKS[m.status], escape(m.message))
        results.print(table)
    if len(grades) > 1:
        results.print(f"Together: {score} of {total}")
