"""Write the evaluation suites under data/suites from the environments' evaluation splits.

    python scripts/build_suites.py            # write
    python scripts/build_suites.py --check    # exit 1 if the committed manifests differ from what the environments hold

``lite27`` follows the paper's 27 tasks and item counts (50 WebArena, 400 SearchQA, 100 TextCraft, 90 BabyAI, 200 SciWorld). The rows of
WebArena, SearchQA and SciWorld are added when those environments are; until then the manifest's title says how many are there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

from agentgym_envs import environment_class
from agentgym_lite.evaluation.suite import SUITES, SuiteItem, manifest_text

ROWS = 27
#: Environment -> (round limit, number of rows in the paper's tables, number of items).
LITE27 = {"textcraft": (20, 4, 100), "babyai": (20, 6, 90)}


def build(environments: Mapping[str, tuple[int, int, int]]) -> str:
    """The manifest's text. Raises ``SystemExit`` if a split does not hold the rows and items that the paper has."""
    items: list[SuiteItem] = []
    versions: dict[str, str] = {}
    for name, (max_rounds, rows, count) in environments.items():
        cls = environment_class(name)
        split = [SuiteItem(name, item, 0, cls.task_of(item), max_rounds) for item in cls.items("eval")]
        tasks = sorted({i.task for i in split})
        if (len(tasks), len(split)) != (rows, count):
            raise SystemExit(f"expected {rows} tasks and {count} items of {name}, found {len(tasks)} ({', '.join(tasks)}) and {len(split)}")
        items += split
        versions[name] = cls.version
    present = sum(rows for _, rows, _ in environments.values())
    title = f"lite27 (partial: {present} of {ROWS} rows)" if present < ROWS else "lite27"
    return manifest_text("lite27", title, versions, items)


def main() -> int:
    parser = argparse.ArgumentParser(description="Write data/suites/lite27.json.")
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 if the committed manifest is out of date")
    check = parser.parse_args().check
    path, text = SUITES / "lite27.json", build(LITE27)
    if check:
        same = path.is_file() and path.read_text(encoding="utf-8") == text
        print(f"{path.name}: {'up to date' if same else 'differs from the environments; run scripts/build_suites.py'}")
        return 0 if same else 1
    SUITES.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(f"wrote {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
