"""Suite manifests: what they fix, how a change is noticed, how parts are selected."""

import importlib.util
import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest

from agentgym_envs import environment_class
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


def test_lite27_has_the_papers_rows_and_counts_so_far():
    suite = load_suite("lite27")
    rows = Counter((i.env, i.task) for i in suite.items)
    assert Counter(i.env for i in suite.items) == {"textcraft": 100, "babyai": 90}
    assert len(rows) == 10
    assert "10 of 27" in suite.title
    assert len({(i.env, i.item_id) for i in suite.items}) == 190
    assert {(i.max_rounds, i.metric) for i in suite.items} == {(20, "success")}


def test_lite27_is_what_the_environments_hold_and_never_trained_on():
    suite = load_suite("lite27")
    spec = importlib.util.spec_from_file_location("build_suites", ROOT / "scripts" / "build_suites.py")
    build_suites = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build_suites)
    assert (ROOT / "data/suites/lite27.json").read_text() == build_suites.build(build_suites.LITE27)
    for name in suite.versions:
        trained = set(environment_class(name).items("train"))
        assert not trained & {i.item_id for i in suite.items if i.env == name}
    assert asdict(suite.items[0]).keys() == {"env", "item_id", "seed", "task", "max_rounds", "metric"}
