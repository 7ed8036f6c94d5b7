"""The 22 tasks of SciWorld: their numbering, their splits and the sub-task that each belongs to. Needs neither Java nor the package."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise


@dataclass(frozen=True)
class Task:
    """One task of ScienceWorld with ``variations`` numbered from 0; its items are ``first`` to ``first + variations - 1``."""

    id: str
    name: str
    variations: int
    first: int

    @property
    def family(self) -> str:
        """The sub-task, one column of the paper's tables where it has one."""
        return _FAMILY_OF.get(self.id) or _FAMILY_OF[self.id.split("-")[0]]

    @property
    def train(self) -> range:
        """Variations of the library's training set: the first half, in whole quarters."""
        return range(2 * (self.variations // 4))

    @property
    def test(self) -> range:
        """Variations of the library's test set: what follows the third quarter."""
        return range(3 * (self.variations // 4), self.variations)


#: Families by topic number, with the two topics that the paper's tables split.
_FAMILY_OF = {
    "1": "matter",
    "2": "measure",
    "3-1": "power",
    "3-2": "power",
    "3": "test_cond",
    "4": "find",
    "6": "chem_mix",
    "7": "lifespan",
    "8": "life_stages",
}

#: Evaluation items of each sub-task, as many as the paper reports.
EVAL_COUNTS = {"measure": 53, "test_cond": 83, "find": 44, "chem_mix": 5, "lifespan": 15}

#: Task id, name and number of variations in scienceworld 1.2.3, in the order that numbers the published items. Left out like there:
#: 5-1, 5-2, 9-1, 9-2, 9-3, 10-1 and 10-2, and also 2-3, without which the published ids fit (AgentGym issue 49).
_TABLE = (
    ("1-1", "boil", 30),
    ("1-2", "melt", 30),
    ("1-3", "freeze", 30),
    ("1-4", "change-the-state-of-matter-of", 30),
    ("2-1", "use-thermometer", 540),
    ("2-2", "measure-melting-point-known-substance", 436),
    ("3-1", "power-component", 20),
    ("3-2", "power-component-renewable-vs-nonrenewable-energy", 20),
    ("3-3", "test-conductivity", 900),
    ("3-4", "test-conductivity-of-unknown-substances", 600),
    ("4-1", "find-living-thing", 300),
    ("4-2", "find-non-living-thing", 300),
    ("4-3", "find-plant", 300),
    ("4-4", "find-animal", 300),
    ("6-1", "chemistry-mix", 32),
    ("6-2", "chemistry-mix-paint-secondary-color", 36),
    ("6-3", "chemistry-mix-paint-tertiary-color", 36),
    ("7-1", "lifespan-longest-lived", 125),
    ("7-2", "lifespan-shortest-lived", 125),
    ("7-3", "lifespan-longest-lived-then-shortest-lived", 125),
    ("8-1", "identify-life-stages-1", 14),
    ("8-2", "identify-life-stages-2", 10),
)


@cache
def tasks() -> tuple[Task, ...]:
    """The tasks in the order of their items."""
    rows, first = [], 0
    for task_id, name, variations in _TABLE:
        rows.append(Task(task_id, name, variations, first))
        first += variations
    return tuple(rows)


def item_count() -> int:
    """Number of items, 4339."""
    return tasks()[-1].first + tasks()[-1].variations


def locate(index: int) -> tuple[Task, int]:
    """Task and variation of an item. Raises ``IndexError``."""
    for task in tasks():
        if task.first <= index < task.first + task.variations:
            return task, index - task.first
    raise IndexError(index)


@cache
def train_items() -> tuple[int, ...]:
    """Every training variation of the library, all 22 tasks."""
    return tuple(task.first + v for task in tasks() for v in task.train)


@cache
def eval_items() -> tuple[int, ...]:
    """``EVAL_COUNTS`` test variations of each sub-task, evenly spaced over those of its tasks."""
    chosen: list[int] = []
    for family, count in EVAL_COUNTS.items():
        pool = [task.first + v for task in tasks() if task.family == family for v in task.test]
        chosen += [pool[(2 * k + 1) * len(pool) // (2 * count)] for k in range(count)]
    assert all(a < b for a, b in pairwise(chosen))
    return tuple(chosen)
