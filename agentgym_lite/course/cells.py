"""How the cells of a lesson are marked, which exercises it has, and which cells need which.

A lesson is a solved master. Tags of its cells:

===========  ======================================================================================================================
tag          cell
===========  ======================================================================================================================
`exercise`   markdown card: ``### Exercise 1 · Title``, then stars of difficulty and minutes, the task, a collapsed hint
`solution`   code that defines the learner's function, its solved part between ``### BEGIN SOLUTION`` and ``### END SOLUTION``
`check`      code of one line, ``checks.name(function)``
`answer`     markdown with the answer to a question in words; not in student copies
`gpu`        code that wants a GPU, at the end, showing a recorded run where there is none
===========  ======================================================================================================================
"""

from __future__ import annotations

import builtins
import re
import symtable
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
#: Key of the notebook's metadata that holds what the course keeps there: ``master`` in student copies; in masters the times ``seconds``
#: and ``cpu_seconds`` of the last execution.
METADATA = "agentgym_lite"
#: Under this MIME type the result of a check carries itself as JSON, for whoever executes a notebook to find.
RESULT_MIME = "application/vnd.agentgym-lite.check+json"
#: The solved masters of a checkout.
NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"

_CARD = re.compile(r"###\s+Exercise\s+(?P<number>\d+)\s+·\s+(?P<title>.+)\n+(?P<stars>★{1,3})☆{0,2}\s+·\s+(?P<minutes>\d+)\s+minutes?\b")
_CHECK = re.compile(r"\s*checks\.(?P<name>\w+)\((?P<function>\w+)\)\s*")
_MAGIC = re.compile(r"^\s*[%!].*$", re.MULTILINE)


class CourseError(ValueError):
    """A notebook is not what the course expects; the message says where and what to do."""


class Names(NamedTuple):
    """Global names that a cell defines, and those that it uses, inside functions too."""

    defined: frozenset[str]
    used: frozenset[str]


@dataclass(frozen=True)
class Exercise:
    """A card with its cells (by number in the notebook). Without a check, ``check`` and ``function`` are empty and nothing is graded."""

    number: int
    title: str
    difficulty: int
    minutes: int
    card: int
    solution: int | None = None
    check: str = ""
    function: str = ""


def tags(cell: Any) -> Sequence[str]:
    """Tags of a cell."""
    return cell["metadata"].get("tags", [])


def read_notebook(path: Path) -> Any:
    """The notebook at ``path``. Raises ``CourseError`` if there is none, or nbformat is missing."""
    nbformat = import_extra("nbformat")
    try:
        return nbformat.read(path, as_version=4)
    except FileNotFoundError:
        raise CourseError(f"expected a notebook at '{path}', found none") from None
    except (nbformat.reader.NotJSONError, nbformat.ValidationError, UnicodeDecodeError) as e:
        raise CourseError(f"expected a Jupyter notebook at '{path}', found another file: {str(e).splitlines()[0]:.120}") from None


def import_extra(module: str) -> Any:
    """A module of the ``notebooks`` extra. Raises ``CourseError`` that says how to get it."""
    import importlib

    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as e:
        raise CourseError(f"the course's commands need {e.name}, which is not installed: pip install 'agentgym-lite[notebooks]'") from None


def measured_seconds(notebook: Any) -> float | None:
    """How long the notebook took: on the clock, or computing if that is less (others kept it waiting); None if never measured."""
    kept = notebook["metadata"].get(METADATA, {})
    return min((float(kept[k]) for k in ("seconds", "cpu_seconds") if k in kept), default=None)


def exercises(notebook: Any) -> list[Exercise]:
    """The exercises of a lesson, in order. Raises ``CourseError`` where a card or its cells are not as the table above says."""
    cells = notebook["cells"]
    cards = [i for i, c in enumerate(cells) if "exercise" in tags(c)]
    return [_exercise(cells, i, end) for i, end in pairwise([*cards, len(cells)])]


def _exercise(cells: Sequence[Any], card: int, end: int) -> Exercise:
    text = "".join(cells[card]["source"])
    match = _CARD.match(text)
    if match is None:
        raise CourseError(f"expected a card that begins '### Exercise 1 · Title' and '★☆☆ · 5 minutes', found {text[:60]!r}")
    out = Exercise(int(match["number"]), match["title"].strip(), len(match["stars"]), int(match["minutes"]), card)
    marked = {tag: [i for i in range(card, end) if tag in tags(cells[i])] for tag in ("solution", "check", "answer")}
    found = tuple(len(marked[tag]) for tag in ("solution", "check", "answer"))
    if found == (0, 0, 1):
        return out
    if found[:2] != (1, 1):
        raise CourseError(
            f"expected one 'solution' and one 'check' cell, or one 'answer' cell, after the card of '{out.title}', found {found} of them"
        )
    check = _CHECK.fullmatch("".join(cells[marked["check"][0]]["source"]))
    if check is None:
        raise CourseError(f"expected a check cell of the one line checks.name(function) after the card of '{out.title}'")
    if check["function"] not in names("".join(cells[marked["solution"][0]]["source"])).defined:
        raise CourseError(f"expected '{check['function']}' to be defined in the solution cell of '{out.title}', found no such name")
    return Exercise(**{**vars(out), "solution": marked["solution"][0], "check": check["name"], "function": check["function"]})


def names(source: str) -> Names:
    """Global names of a cell's code; none of either kind if it is not Python."""
    try:
        table = symtable.symtable(_MAGIC.sub("", source), "cell", "exec")
    except SyntaxError:
        return Names(frozenset(), frozenset())
    top = table.get_symbols()
    defined = {s.get_name() for s in top if s.is_assigned() or s.is_imported() or s.is_namespace()}
    used = {s.get_name() for s in top if s.is_referenced()} | {n for child in table.get_children() for n in _globals_of(child)}
    return Names(frozenset(defined), frozenset(used - set(dir(builtins))))


def _globals_of(table: symtable.SymbolTable) -> Iterator[str]:
    yield from (s.get_name() for s in table.get_symbols() if s.is_global())
    for child in table.get_children():
        yield from _globals_of(child)


def dependents(notebook: Any) -> list[int]:
    """Code cells that need what a learner writes: the solutions, and whatever uses their names, directly or through other cells."""
    tainted: set[str] = set()
    out = []
    for i, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] != "code":
            continue
        found = names("".join(cell["source"]))
        if "solution" in tags(cell) or found.used & tainted:
            out.append(i)
            tainted |= found.defined
        else:
            tainted -= found.defined
    return out


def needed_for(notebook: Any, cell: int) -> list[int]:
    """Code cells that ``cell`` needs, itself included, in order: those that define, last before it, a name that it uses."""
    out, wanted = [cell], set(names("".join(notebook["cells"][cell]["source"])).used)
    for i in reversed(range(cell)):
        if notebook["cells"][i]["cell_type"] != "code":
            continue
        found = names("".join(notebook["cells"][i]["source"]))
        if found.defined & wanted:
            out.append(i)
            wanted = (wanted - found.defined) | found.used
    return out[::-1]
