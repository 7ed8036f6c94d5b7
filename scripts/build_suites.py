"""Write the evaluation suites under data/suites.

    python scripts/build_suites.py            # write lite27.json and paper27.json
    python scripts/build_suites.py --check    # exit 1 if a committed manifest differs from what would be written
    python scripts/build_suites.py --published FOLDER --out FILE    # paper27 with the exact ids of the published data set

Both follow the paper's 27 tasks and item counts (50 WebArena, 400 SearchQA, 100 TextCraft, 90 BabyAI, 200 SciWorld). ``lite27`` takes the
evaluation splits of the shipped environments. ``paper27`` takes the published item numbers as far as they are known in public, marks in
its notes what is inferred, and names the back ends that it needs.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentgym_envs import environment_class, names
from agentgym_lite.evaluation.paper import SCENARIOS
from agentgym_lite.evaluation.published import published_items
from agentgym_lite.evaluation.suite import SUITES, SuiteItem, manifest_text

ROWS = 27
#: Limits on rounds of the paper's evaluation (its appendix B), in the order of the tables.
PAPER_ROUNDS = {"webarena": 15, "searchqa": 4, "textcraft": 20, "babyai": 20, "sciworld": 20}
#: Offline, the longest questions take five searches and an answer, and some experiments more than 20 actions; the scripts of AgentGym-RL
#: evaluate both with 30.
LITE_ROUNDS = {**PAPER_ROUNDS, "searchqa": 6, "sciworld": 30}


@dataclass(frozen=True)
class Published:
    """Item numbers of one environment by task, what its server needs to know them, and where the numbers come from."""

    tasks: Mapping[str, Sequence[int]]
    needs: Sequence[str]
    note: str


def spread(ranges: Sequence[tuple[int, int]], count: int) -> list[int]:
    """``count`` numbers spread evenly over inclusive ranges."""
    pool = [i for first, last in ranges for i in range(first, last + 1)]
    return [pool[(2 * k + 1) * len(pool) // (2 * count)] for k in range(count)]


# fmt: off
PAPER27 = {
    "webarena": Published(
        {
            "shopping": (24, 238, 228, 158, 278, 280, 22, 165, 300, 328, 239, 386, 387, 264, 23),
            "cms": (65, 215, 4, 95, 115, 6, 680, 203, 214, 108, 110, 247, 122, 123, 128),
            "map": (36, 60, 74, 222, 251, 255, 381, 378, 365, 763),
            "gitlab": (318, 526, 537, 535, 168),
            "reddit": (598, 27, 28, 67, 29),
        },
        needs=("official",),
        note="WebArena task ids as listed by third parties; they split into the paper's 15, 15, 10 and 10",
    ),
    "searchqa": Published(
        {
            "nq": spread([(0, 3609)], 50),
            "triviaqa": spread([(3610, 14922)], 50),
            "popqa": spread([(14923, 29189)], 50),
            "hotpotqa": spread([(29190, 36594)], 50),
            "2wiki": spread([(36595, 49170)], 50),
            "musique": spread([(49171, 51587)], 100),
            "bamboogle": spread([(51588, 51712)], 50),
        },
        needs=("questions", "retriever"),
        note="published number ranges and counts; which numbers of a range were drawn is not public without the data set, so they are "
        "spread evenly: --published replaces them",
    ),
    "textcraft": Published(
        {"depth_1": range(31), "depth_2": range(140, 181), "depth_3": range(420, 445), "depth_4": range(533, 536)},
        needs=("book",),
        note="published numbers (third-party copy, counts as in the paper); they count the goals of AgentGym's recipe files, in the order "
        "of its authors' file system, and mean other goals in the shipped recipes",
    ),
    "sciworld": Published(
        {
            "measure": spread([(120, 1095)], 53),
            "test_cond": spread([(1136, 2635)], 83),
            "find": spread([(2636, 3835)], 44),
            "chem_mix": spread([(3836, 3939)], 5),
            "lifespan": spread([(3940, 4314)], 15),
        },
        needs=(),
        note="number ranges of the 22-task list (AgentGym issue 49) and the paper's counts; which numbers of a range were drawn is not "
        "public without the data set, so they are spread evenly over all variations, training ones too: --published replaces them",
    ),
}
# fmt: on
BABYAI_NOTE = "numbers 1800 to 1999, layouts 45 to 49 of the eighteen levels: inferred from the counts (90 of 1800..) and third-party code"


def lite27() -> str:
    """The manifest's text. Raises ``SystemExit`` if a split does not hold the rows and items that the paper has."""
    items: list[SuiteItem] = []
    versions: dict[str, str] = {}
    for scenario in SCENARIOS:
        name = scenario.env
        if name not in names():
            continue
        cls = environment_class(name)
        split = [SuiteItem(name, item, 0, cls.task_of(item), LITE_ROUNDS[name]) for item in cls.items("eval")]
        wanted = {t for c in scenario.columns for t in c.tasks}
        if {i.task for i in split} != wanted or len(split) != scenario.items:
            found = ", ".join(f"{task} {n}" for task, n in sorted(Counter(i.task for i in split).items()))
            raise SystemExit(f"expected {scenario.items} items of {name} in the tasks {', '.join(sorted(wanted))}, found {found}")
        items += split
        versions[name] = cls.version
    rows = len({(i.env, i.task) for i in items})
    title = f"lite27 (partial: {rows} of {ROWS} rows)" if rows < ROWS else "lite27"
    return manifest_text("lite27", title, versions, items)


def paper27(published: str | None = None) -> str:
    """The manifest's text; with the data set at ``published`` (a folder or a hub name), its evaluation ids take the place of ours."""
    items: list[SuiteItem] = []
    versions: dict[str, str] = {}
    needs: dict[str, Sequence[str]] = {}
    notes: dict[str, str] = {}
    for scenario in SCENARIOS:
        name = scenario.env
        entry = PAPER27[name] if name in PAPER27 else _babyai()
        by_task = entry.tasks if published is None else _tasks_of(name, published_items(name, "eval", published), entry)
        items += [SuiteItem(name, f"{name}_{i}", 0, task, PAPER_ROUNDS[name]) for task, numbers in by_task.items() for i in numbers]
        versions[name] = environment_class(name).version if name in names() else ""
        if entry.needs:
            needs[name] = entry.needs
        notes[name] = entry.note if published is None else f"ids of {Path(published).name}"
    return manifest_text("paper27", "paper27", versions, items, needs, notes)


def _babyai() -> Published:
    cls = environment_class("babyai")
    tasks: dict[str, list[int]] = {}
    for item in cls.items("eval"):
        tasks.setdefault(cls.task_of(item), []).append(cls.item_index(item))
    return Published(tasks, (), BABYAI_NOTE)


def _tasks_of(env: str, items: Sequence[str], entry: Published) -> Mapping[str, Sequence[int]]:
    """Published ids by task; where an environment's class cannot tell (other item sets), by the nearest number of our list."""
    known = {i: task for task, numbers in entry.tasks.items() for i in numbers}
    tasks: dict[str, list[int]] = {task: [] for task in entry.tasks}
    for item in items:
        number = int(item.rpartition("_")[2])
        task = known[min(known, key=lambda i: abs(i - number))] if entry.needs else environment_class(env).task_of(item)
        tasks.setdefault(task, []).append(number)
    return tasks


def main() -> int:
    parser = argparse.ArgumentParser(description="Write data/suites/lite27.json and paper27.json.")
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 if a committed manifest is out of date")
    parser.add_argument("--published", metavar="SOURCE", help="folder or hub name of the published item ids: write paper27 with them")
    parser.add_argument("--out", type=Path, help="file to write with --published")
    args = parser.parse_args()
    if args.published:
        if args.out is None:
            parser.error("--published needs --out FILE: the shipped manifest holds nothing of the data set")
        args.out.write_text(paper27(args.published), encoding="utf-8")
        print(f"wrote {args.out}")
        return 0
    outdated = []
    for name, build in {"lite27": lite27, "paper27": paper27}.items():
        path, text = SUITES / f"{name}.json", build()
        if not args.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.name}")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            outdated.append(path.name)
    if outdated:
        print(f"{', '.join(outdated)}: differs from the environments; run scripts/build_suites.py")
    return 1 if outdated else 0


if __name__ == "__main__":
    sys.exit(main())
