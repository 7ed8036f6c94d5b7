"""Suite manifests: what they fix, how a change is noticed, how parts are selected."""

import importlib.util
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from agentgym_envs import environment_class
from agentgym_lite.evaluation.evaluate import check_backends
from agentgym_lite.evaluation.paper import SCENARIOS
from agentgym_lite.evaluation.players import Backend
from agentgym_lite.evaluation.suite import SuiteError, SuiteItem, load_suite, manifest_text

ROOT = Path(__file__).resolve().parents[2]

ITEMS = [
    SuiteItem("textcraft", "textcraft_0", 0, "depth_1", 20),
    SuiteItem("textcraft", "textcraft_7", 0, "depth_2", 20),
    SuiteItem("babyai", "babyai_3", 5, "GoTo", 20),
]


@pytest.fixture
def manifest(tmp_path):
    path = tmp_path / "small.json"
    path.write_text(manifest_text("small", "small", {"textcraft": "1", "babyai": "1"}, ITEMS))
    return path


def test_a_manifest_comes_back_as_written(manifest):
    suite = load_suite(manifest)
    assert suite.items == tuple(ITEMS)
    assert suite.versions == {"textcraft": "1", "babyai": "1"}
    assert suite.items[2].spec(sample=4).group == ("babyai", "babyai_3", 5)


@pytest.mark.parametrize(("field", "value"), [("item_id", "babyai_4"), ("seed", 6), ("max_rounds", 50), ("metric", "score"), ("task", "x")])
def test_any_change_of_an_item_breaks_the_hash(manifest, field, value):
    data = json.loads(manifest.read_text())
    data["items"][2][field] = value
    manifest.write_text(json.dumps(data))
    with pytest.raises(SuiteError, match="does not match its own hash"):
        load_suite(manifest)


def test_a_dropped_item_and_a_changed_version_break_the_hash(manifest):
    data = json.loads(manifest.read_text())
    for changed in ({**data, "items": data["items"][:2]}, {**data, "versions": {"textcraft": "2", "babyai": "1"}}):
        manifest.write_text(json.dumps(changed))
        with pytest.raises(SuiteError, match="does not match its own hash"):
            load_suite(manifest)


def test_layout_of_the_file_does_not_matter(manifest):
    manifest.write_text(json.dumps(json.loads(manifest.read_text()), sort_keys=True, indent=7))
    assert load_suite(manifest).items == tuple(ITEMS)


def test_select_by_environment_task_or_both(manifest):
    suite = load_suite(manifest)
    assert [i.item_id for i in suite.select(["textcraft"]).items] == ["textcraft_0", "textcraft_7"]
    assert [i.item_id for i in suite.select(["GoTo", "textcraft/depth_1"]).items] == ["textcraft_0", "babyai_3"]
    assert suite.select([]) is suite
    with pytest.raises(SuiteError, match=r"no environment or task 'sciworld'; it has babyai, textcraft, babyai/GoTo"):
        suite.select(["babyai", "sciworld"])


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"items": [1]}', '{"name": "x", "items": ['])
def test_a_file_that_is_no_manifest_gets_one_clear_error(tmp_path, text):
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(SuiteError, match="is not a suite manifest"):
        load_suite(path)


def test_an_unknown_suite_lists_the_shipped_ones():
    with pytest.raises(SuiteError, match=r"shipped suites: .*lite27"):
        load_suite("paper99")


def test_needs_are_sealed_and_notes_are_kept(tmp_path):
    path = tmp_path / "small.json"
    needs, notes = {"textcraft": ["book"]}, {"babyai": "a guess"}
    path.write_text(manifest_text("small", "small", {"textcraft": "1", "babyai": "1"}, ITEMS, needs, notes))
    suite = load_suite(path)
    assert suite.needs == {"textcraft": ("book",)}
    assert suite.notes == notes
    assert suite.select(["babyai"]).needs == suite.needs
    path.write_text(json.dumps({**json.loads(path.read_text()), "needs": {}}))
    with pytest.raises(SuiteError, match="does not match its own hash"):
        load_suite(path)


def test_backends_must_play_the_suites_items(manifest):
    suite = replace(load_suite(manifest), needs={"textcraft": ("book",)}, notes={"textcraft": "other numbers"})
    check_backends(suite, {"babyai": Backend("1")})
    check_backends(suite, {"textcraft": Backend("1", ("book", "distractors"))})
    with pytest.raises(SuiteError, match=r"other items of 'textcraft'.*other numbers.*--set textcraft\.book=.*--only babyai"):
        check_backends(suite, {"textcraft": Backend("1")})
    with pytest.raises(SuiteError, match="version 1 of 'babyai', found version 2"):
        check_backends(suite, {"babyai": Backend("2")})


def rows_and_items(suite):
    return {s.env: [sum(i.env == s.env and i.task in c.tasks for i in suite.items) for c in s.columns] for s in SCENARIOS}


PAPER_COUNTS = {s.env: [c.items for c in s.columns] for s in SCENARIOS}


def test_lite27_has_the_papers_rows_and_counts():
    suite = load_suite("lite27")
    found = {env: counts for env, counts in rows_and_items(suite).items() if any(counts)}
    assert found == {env: PAPER_COUNTS[env] for env in found}
    rows = len({(i.env, i.task) for i in suite.items})
    assert suite.title == ("lite27" if rows == 27 else f"lite27 (partial: {rows} of 27 rows)")
    assert len({(i.env, i.item_id) for i in suite.items}) == len(suite.items)
    assert {i.metric for i in suite.items} == {"success"}


def test_manifests_are_what_the_script_makes_and_lite27_is_never_trained_on():
    spec = importlib.util.spec_from_file_location("build_suites", ROOT / "scripts" / "build_suites.py")
    build_suites = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = build_suites  # dataclasses look their module up
    spec.loader.exec_module(build_suites)
    suite = load_suite("lite27")
    assert (ROOT / "data/suites/lite27.json").read_text() == build_suites.lite27()
    assert (ROOT / "data/suites/paper27.json").read_text() == build_suites.paper27()
    for name in suite.versions:
        trained = set(environment_class(name).items("train"))
        assert not trained & {i.item_id for i in suite.items if i.env == name}
    assert asdict(suite.items[0]).keys() == {"env", "item_id", "seed", "task", "max_rounds", "metric"}


def test_paper27_holds_the_published_numbers():
    suite = load_suite("paper27")
    assert rows_and_items(suite) == PAPER_COUNTS
    assert len({(i.env, i.item_id) for i in suite.items}) == 840
    numbers = {env: {int(i.item_id.rpartition("_")[2]) for i in suite.items if i.env == env} for env in PAPER_COUNTS}
    assert numbers["textcraft"] == {*range(31), *range(140, 181), *range(420, 445), *range(533, 536)}
    assert min(numbers["babyai"]) == 1800
    assert max(numbers["babyai"]) < 2000
    assert max(numbers["searchqa"]) <= 51712
    assert max(numbers["sciworld"]) <= 4314
    assert {23, 128, 763, 168, 29} <= numbers["webarena"]
    assert {i.env: i.max_rounds for i in suite.items} == {"webarena": 15, "searchqa": 4, "textcraft": 20, "babyai": 20, "sciworld": 20}
    assert suite.needs == {"webarena": ("official",), "searchqa": ("questions", "retriever"), "textcraft": ("book",)}
    assert suite.notes.keys() == PAPER_COUNTS.keys()
    for name in ("babyai", "sciworld"):  # these number their items as published
        cls = environment_class(name)
        assert all(cls.task_of(i.item_id) == i.task for i in suite.items if i.env == name)
