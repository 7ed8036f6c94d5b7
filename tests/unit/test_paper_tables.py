"""The paper's tables: cells, intervals, contradictions, own runs beside them, the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentgym_lite.cli.app import app
from agentgym_lite.evaluation import paper, wilson
from agentgym_lite.evaluation.paper import SCENARIOS, TablesError, build_table, counted, inconsistencies, paper_cell, scenario
from agentgym_lite.evaluation.suite import load_suite


def own_results(**success: float) -> dict[str, Any]:
    """What `agl eval` writes for the tasks given as ``env__task=rate`` with ten items each."""
    tasks: dict[str, Any] = {}
    envs: dict[str, list[float]] = {}
    for key, rate in success.items():
        env, _, task = key.partition("__")
        tasks[f"{env}/{task}"] = {"items": 10, "success": {"value": rate, "low": rate / 2, "high": 1.0}}
        envs.setdefault(env, []).append(rate)
    by_env = {e: {"items": 10 * len(r), "success": {"value": sum(r) / len(r), "low": 0.0, "high": 1.0}} for e, r in envs.items()}
    return {"agent": "tiny", "suite": "lite27", "tasks": tasks, "environments": by_env}


def write_run(folder: Path, **success: float) -> Path:
    folder.mkdir()
    (folder / "results.json").write_text(json.dumps(own_results(**success)))
    return folder


def test_the_tables_have_27_tasks_840_items_and_636_cells() -> None:
    assert sum(len(c.tasks) for s in SCENARIOS for c in s.columns) == 27
    assert [s.items for s in SCENARIOS] == [50, 400, 100, 90, 200]
    assert len(paper.printed()) == 636
    for s in SCENARIOS:
        assert {(m, c) for n, m, c in paper.printed() if n == s.name} == {(m, c) for m in paper.models(s) for c in s.names}


def test_the_columns_are_the_rows_of_the_suite() -> None:
    """Every task that the shipped suite has is a column of the paper, with as many items."""
    suite = load_suite("lite27")
    for s in SCENARIOS:
        for c in s.columns:
            found = sum(i.env == s.env and i.task in c.tasks for i in suite.items)
            assert found in (0, c.items), (s.name, c.name)
    known = {(s.env, t) for s in SCENARIOS for c in s.columns for t in c.tasks}
    assert {(i.env, i.task) for i in suite.items} <= known


@pytest.mark.parametrize(
    ("percent", "items", "solved"), [(13.33, 15, 2), (50.5, 200, 101), (9.76, 41, 4), (9.76, 50, None), (33.0, 15, None)]
)
def test_a_cell_is_a_whole_number_of_items(percent: float, items: int, solved: int | None) -> None:
    assert counted(percent, items) == solved


def test_a_paper_cell_has_wilsons_interval() -> None:
    cell = paper_cell(scenario("SciWorld"), "ScalingInter-7B", "Overall")
    assert (cell.value.value, cell.items, cell.remark) == (0.57, 200, "")
    assert (cell.value.low, cell.value.high) == pytest.approx((wilson(114, 200).low, wilson(114, 200).high))


def test_the_contradictions_are_found() -> None:
    search = {i.model: (i.printed, i.found) for i in inconsistencies(scenario("Deep Search"))}
    assert search == {
        "GPT-4o": (26.75, "its parts give 29.50"),
        "Qwen-Max": (29.5, "its parts give 26.50"),
        "DeepSeek-V3-0324": (26.5, "its parts give 26.75"),
    }
    web = inconsistencies(scenario("webarena"))
    assert {i.model for i in web} == {"Qwen2.5-7B-Instruct"}
    assert "Overall" in {i.column for i in web}
    assert [inconsistencies(scenario(n)) for n in ("TextCraft", "BabyAI", "SciWorld")] == [(), (), ()]


def test_the_mean_over_scenarios_is_the_papers_headline() -> None:
    assert paper.mean_overall("ScalingInter-7B") == pytest.approx(61.78, abs=0.01)
    assert paper.mean_overall("Qwen2.5-7B-Instruct") == pytest.approx(27.74, abs=0.01)
    assert paper.mean_overall("SearchR1-it-7B-v0.3 (GRPO)") is None


def test_own_runs_stand_in_columns_of_their_own(tmp_path: Path) -> None:
    run = paper.read_run(
        write_run(tmp_path / "mine", textcraft__depth_1=0.9, textcraft__depth_2=0.5, webarena__gitlab=0.2, webarena__reddit=0.6)
    )
    table = build_table(scenario("TextCraft"), own=[run], show=["ScalingInter-7B"])
    assert table.sources == ("paper: ScalingInter-7B", "own: mine")
    first = table.rows["Depth 1"]["own: mine"]
    assert first is not None
    assert (first.value.value, first.value.low, first.items) == (0.9, 0.45, 10)
    assert table.rows["Depth 3"]["own: mine"] is None
    merged = build_table(scenario("WebArena"), own=[run]).rows["GitLab+Reddit"]["own: mine"]
    assert merged is not None
    assert (merged.value.value, merged.items) == (pytest.approx(0.4), 20)
    assert merged.value.low == pytest.approx(wilson(8, 20).low)


def test_the_headline_needs_all_five_scenarios(tmp_path: Path) -> None:
    part = paper.read_run(write_run(tmp_path / "part", textcraft__depth_1=1.0))
    full = {"textcraft__depth_1": 1.0, "babyai__goto": 0.5, "webarena__map": 0.0, "searchqa__nq": 0.5, "sciworld__find": 0.0}
    whole = paper.read_run(write_run(tmp_path / "whole", **full))
    assert paper.headline([part, whole], ["ScalingInter-7B"]) == {"paper: ScalingInter-7B": pytest.approx(61.78, abs=0.01), "whole": 40.0}


def test_mistakes_are_explained(tmp_path: Path) -> None:
    with pytest.raises(TablesError, match="there are WebArena, Deep Search"):
        scenario("chess")
    with pytest.raises(TablesError, match="it has GPT-4o"):
        build_table(SCENARIOS[0], show=["GPT-9"])
    with pytest.raises(TablesError, match=r"no results\.json"):
        paper.read_run(tmp_path)
    (tmp_path / "results.json").write_text("[]")
    with pytest.raises(TablesError, match="not a result of `agl eval`"):
        paper.read_run(tmp_path)


def test_the_command_prints_paper_and_own_figures_and_marks_contradictions(tmp_path: Path) -> None:
    run = write_run(tmp_path / "mine", textcraft__depth_1=0.9)
    out = CliRunner().invoke(app, ["tables", str(run), "--scenario", "textcraft", "--scenario", "deep search", "--model", "GPT-4o"])
    assert out.exit_code == 0, out.output
    for text in ("Depth 1 (31)", "90.0", "own:", "! GPT-4o, Overall: printed 26.75, its parts give 29.50", "Protocol."):
        assert text in out.stdout
    data = json.loads(CliRunner().invoke(app, ["tables", str(run), "--json"]).stdout)
    assert [t["table"] for t in data["tables"]] == [1, 2, 3, 4, 5]
    assert data["tables"][2]["rows"]["Depth 1"]["own: mine"]["value"]["value"] == 0.9


def test_the_command_draws_the_figures(tmp_path: Path) -> None:
    out = CliRunner().invoke(app, ["tables", "--scenario", "babyai", "--figures", str(tmp_path / "f")])
    assert out.exit_code == 0, out.output
    assert {p.name for p in (tmp_path / "f").iterdir()} == {"babyai.png", "overview.png"}
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in (tmp_path / "f").iterdir())
