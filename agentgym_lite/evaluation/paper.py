"""The result tables of the AgentGym-RL paper (arXiv 2509.08755, Tables 1 to 5), what contradicts itself in them, and own runs beside them.

The cells are facts copied by hand into ``data/paper/cells.csv``. The paper prints percentages without intervals; the numbers of items are
inferred from them (each cell must be a whole number of items, see ``data/paper/README.md``), and with them Wilson intervals can be given.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from agentgym_lite.evaluation.intervals import Interval, wilson

DATA = Path(__file__).resolve().parents[2] / "data" / "paper"
#: Results of this kit that are shipped with it, ``results.json`` of ``agl eval`` each.
RECORDED = DATA / "recorded"
OVERALL = "Overall"
#: Models whose columns are shown unless others are asked for.
DEFAULT_MODELS = ("Qwen2.5-7B-Instruct", "AgentGym-RL-7B", "ScalingInter-7B", "OpenAI o3")
#: Percentages are printed with two digits, one of them cut instead of rounded (87.77 for 79 of 90).
_ROUNDING = 0.01


class TablesError(ValueError):
    """A table, a model or a run that cannot be shown; the message says which there are."""


@dataclass(frozen=True)
class Column:
    """A column of a paper table: the tasks of ours that it covers and its number of items."""

    name: str
    tasks: tuple[str, ...]
    items: int


@dataclass(frozen=True)
class Scenario:
    """One table of the paper."""

    name: str
    table: int
    env: str
    columns: tuple[Column, ...]

    @property
    def items(self) -> int:
        return sum(c.items for c in self.columns)

    def column(self, name: str) -> Column:
        """A column by name, with ``Overall`` as the one of all tasks."""
        if name == OVERALL:
            return Column(OVERALL, tuple(t for c in self.columns for t in c.tasks), self.items)
        return next(c for c in self.columns if c.name == name)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns, ``Overall`` last."""
        return (*(c.name for c in self.columns), OVERALL)


def _columns(*columns: tuple[str, str, int]) -> tuple[Column, ...]:
    return tuple(Column(name, tuple(tasks.split("+")), items) for name, tasks, items in columns)


#: The five tables in the paper's order. Rows of GitLab and Reddit, two of the 27 tasks, share a column there.
SCENARIOS = (
    Scenario(
        "WebArena",
        1,
        "webarena",
        _columns(("Shopping", "shopping", 15), ("CMS", "cms", 15), ("Maps", "map", 10), ("GitLab+Reddit", "gitlab+reddit", 10)),
    ),
    Scenario(
        "Deep Search",
        2,
        "searchqa",
        _columns(
            ("NQ", "nq", 50),
            ("TriviaQA", "triviaqa", 50),
            ("PopQA", "popqa", 50),
            ("HotpotQA", "hotpotqa", 50),
            ("2Wiki", "2wiki", 50),
            ("Musique", "musique", 100),
            ("Bamboogle", "bamboogle", 50),
        ),
    ),
    Scenario("TextCraft", 3, "textcraft", _columns(*((f"Depth {d}", f"depth_{d}", n) for d, n in ((1, 31), (2, 41), (3, 25), (4, 3))))),
    Scenario(
        "BabyAI",
        4,
        "babyai",
        _columns(
            ("GoTo", "goto", 55),
            ("Pickup", "pickup", 15),
            ("ActionObjDoor", "action_obj_door", 5),
            ("FindObjS7", "find_obj", 5),
            ("OneRoomS20", "one_room", 5),
            ("SynthLoc", "synth_loc", 5),
        ),
    ),
    Scenario(
        "SciWorld",
        5,
        "sciworld",
        _columns(
            ("Measure", "measure", 53),
            ("Test-Cond.", "test_cond", 83),
            ("Find", "find", 44),
            ("Chem-Mix", "chem_mix", 5),
            ("Lifespan", "lifespan", 15),
        ),
    ),
)


@dataclass(frozen=True)
class Cell:
    """One figure of a table with its 95 % interval, the number of items behind it, and a remark where the figure is doubtful."""

    value: Interval
    items: int
    remark: str = ""


@dataclass(frozen=True)
class Inconsistency:
    """A printed figure that the other printed figures contradict."""

    scenario: str
    model: str
    column: str
    printed: float
    found: str


def scenario(name: str) -> Scenario:
    """A table by the paper's name or the environment's. Raises ``TablesError``."""
    for s in SCENARIOS:
        if name.lower() in (s.name.lower(), s.env):
            return s
    raise TablesError(f"expected a scenario, found {name!r:.60}; there are {', '.join(s.name for s in SCENARIOS)}")


@cache
def printed() -> Mapping[tuple[str, str, str], float]:
    """All 636 cells as printed, in percent, by (scenario, model, column)."""
    with (DATA / "cells.csv").open(encoding="utf-8", newline="") as f:
        return {(r["scenario"], r["model"], r["column"]): float(r["percent"]) for r in csv.DictReader(f)}


def models(of: Scenario | None = None) -> list[str]:
    """Models of a table, or of all, in the paper's order."""
    return list(dict.fromkeys(m for s, m, _ in printed() if of is None or s == of.name))


def counted(percent: float, items: int) -> int | None:
    """The number of solved items that prints as ``percent`` of ``items``, or ``None`` if there is none."""
    solved = round(percent * items / 100)
    return solved if abs(100 * solved / items - percent) < _ROUNDING else None


def paper_cell(s: Scenario, model: str, column: str) -> Cell:
    """A cell with Wilson's interval from the inferred number of items. Raises ``TablesError`` for a model that the table lacks."""
    try:
        percent = printed()[s.name, model, column]
    except KeyError:
        raise TablesError(f"expected a model of the {s.name} table, found {model!r:.60}; it has {', '.join(models(s))}") from None
    items = s.column(column).items
    solved = counted(percent, items)
    bounds = wilson(round(percent * items / 100) if solved is None else solved, items)
    remark = "; ".join(i.found for i in inconsistencies(s) if (i.model, i.column) == (model, column))
    value = percent / 100
    return Cell(Interval(value, min(value, bounds.low), max(value, bounds.high)), items, remark)


@cache
def inconsistencies(s: Scenario) -> tuple[Inconsistency, ...]:
    """What the table contradicts itself in: cells that no whole number of items gives, and totals that their parts do not add up to."""
    found = []
    for model in models(s):
        cells = {c: printed()[s.name, model, c] for c in s.names}
        solved = {c: counted(cells[c], s.column(c).items) for c in s.names}
        for c in s.names:
            if solved[c] is None:
                found.append(Inconsistency(s.name, model, c, cells[c], f"not a whole number of {s.column(c).items} items"))
        parts = [solved[c.name] for c in s.columns]
        if None not in parts and solved[OVERALL] is not None:
            total = sum(p for p in parts if p is not None)
            if total != solved[OVERALL]:
                found.append(Inconsistency(s.name, model, OVERALL, cells[OVERALL], f"its parts give {100 * total / s.items:.2f}"))
    return tuple(found)


def mean_overall(model: str) -> float | None:
    """Mean of a model's five overall figures, in percent: the paper's headline. ``None`` if a table lacks the model."""
    overall = [printed().get((s.name, model, OVERALL)) for s in SCENARIOS]
    return None if None in overall else sum(x for x in overall if x is not None) / len(overall)


# -- own runs ----------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OwnRun:
    """The figures of one ``agl eval``: its agent, its suite, and summaries by ``env/task`` and by environment as in ``results.json``."""

    name: str
    agent: str
    suite: str
    tasks: Mapping[str, Mapping[str, Any]]
    environments: Mapping[str, Mapping[str, Any]]

    def cell(self, s: Scenario, column: str) -> Cell | None:
        """The figure that belongs into a paper column; ``None`` if the run has not played it."""
        if column == OVERALL:
            return _cell([self.environments.get(s.env)], self.environments.get(s.env))
        parts = [self.tasks.get(f"{s.env}/{t}") for t in s.column(column).tasks]
        return _cell(parts, parts[0] if len(parts) == 1 else None)


def _cell(parts: Sequence[Mapping[str, Any] | None], alone: Mapping[str, Any] | None) -> Cell | None:
    known = [p for p in parts if p is not None and p["success"] is not None]
    if len(known) < len(parts):
        return None
    items = sum(p["items"] for p in known)
    if alone is not None:
        return Cell(Interval(**alone["success"]), items)
    rate = sum(p["success"]["value"] * p["items"] for p in known) / items
    bounds = wilson(round(rate * items), items)  # several rows in one column: an interval over items
    return Cell(Interval(rate, min(rate, bounds.low), max(rate, bounds.high)), items)


def read_run(path: str | Path, name: str | None = None) -> OwnRun:
    """The ``results.json`` that ``agl eval`` wrote, by its path or folder. Raises ``TablesError``."""
    file = Path(path)
    file = file / "results.json" if file.is_dir() else file
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        return OwnRun(name or file.parent.name, data["agent"], data["suite"], data["tasks"], data["environments"])
    except FileNotFoundError:
        raise TablesError(f"expected the folder of an `agl eval`, found no results.json at '{file}'") from None
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise TablesError(f"'{file}' is not a result of `agl eval` ({type(e).__name__}: {e}); run it again on a suite") from None


def recorded_runs() -> list[OwnRun]:
    """Results that are shipped with the kit, by file name."""
    return [read_run(p, p.stem) for p in sorted(RECORDED.glob("*.json"))]


@dataclass(frozen=True)
class Table:
    """One scenario: for each column of the paper, a cell (or ``None``) by source. Sources are ``paper: M``, ``recorded: N``, ``own: N``."""

    scenario: Scenario
    sources: tuple[str, ...]
    rows: Mapping[str, Mapping[str, Cell | None]]
    inconsistencies: tuple[Inconsistency, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "scenario": self.scenario.name,
            "table": self.scenario.table,
            "env": self.scenario.env,
            "sources": list(self.sources),
            "rows": {c: {s: None if x is None else asdict(x) for s, x in row.items()} for c, row in self.rows.items()},
            "inconsistencies": [asdict(i) for i in self.inconsistencies],
        }


def build_table(s: Scenario, own: Sequence[OwnRun] = (), recorded: Sequence[OwnRun] = (), show: Sequence[str] = DEFAULT_MODELS) -> Table:
    """The table of a scenario with paper models, recorded runs and own runs in separate columns. Raises ``TablesError``."""
    known = models()
    if unknown := [m for m in show if m not in known]:
        raise TablesError(f"expected models of the paper, found {', '.join(unknown):.100}; it has {', '.join(known)}")
    sources: dict[str, Any] = {f"paper: {m}": m for m in show if m in models(s)}
    sources |= {f"recorded: {r.name}": r for r in recorded} | {f"own: {r.name}": r for r in own}
    rows = {c: {name: x.cell(s, c) if isinstance(x, OwnRun) else paper_cell(s, x, c) for name, x in sources.items()} for c in s.names}
    shown = tuple(i for i in inconsistencies(s) if i.model in show)
    return Table(s, tuple(sources), rows, shown)


def headline(runs: Sequence[OwnRun], show: Sequence[str] = DEFAULT_MODELS) -> dict[str, float]:
    """Mean over the five scenarios in percent, by source; a run that has not played all five is left out."""
    out = {f"paper: {m}": mean for m in show if (mean := mean_overall(m)) is not None}
    for r in runs:
        cells = [r.cell(s, OVERALL) for s in SCENARIOS]
        if None not in cells:
            out[r.name] = 100 * sum(c.value.value for c in cells if c is not None) / len(cells)
    return out
