"""Item ids in the form of the published data set, from local folders."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from agentgym_envs.core import environment_class
from agentgym_lite.config import ConfigError, EnvConfig
from agentgym_lite.evaluation.published import PublishedError, published_items
from agentgym_lite.training.items import task_items

pytest.importorskip("datasets", reason="pip install datasets to read item ids in the published form")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def write(path: Path, ids: list[object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([{"item_id": i} for i in ids]))
    return path


def test_a_folder_of_the_published_form(tmp_path: Path) -> None:
    write(tmp_path / "train" / "textcraft_train.json", ["textcraft_31", "textcraft_7"])
    write(tmp_path / "eval" / "textcraft_test.json", ["textcraft_0"])
    write(tmp_path / "eval" / "searchqa_test.json", ["nq_17", "2wikimultihopqa_36600"])
    assert published_items("textcraft", "train", tmp_path) == ["textcraft_31", "textcraft_7"]
    assert published_items("textcraft", "eval", tmp_path) == ["textcraft_0"]
    assert published_items("searchqa", "eval", tmp_path) == ["searchqa_17", "searchqa_36600"]


@pytest.mark.parametrize(
    ("split", "place"),
    [("train", "AgentItemId/babyai_train.json"), ("eval", "AgentEval/babyai/babyai_test.json"), ("eval", "babyai/babyai_test.json")],
)
def test_the_folders_that_the_scripts_of_agentgym_rl_expect(tmp_path: Path, split: str, place: str) -> None:
    write(tmp_path / place, ["babyai_1805"])
    assert published_items("babyai", split, tmp_path) == ["babyai_1805"]  # type: ignore[arg-type]


def test_one_file(tmp_path: Path) -> None:
    assert published_items("sciworld", "train", write(tmp_path / "mine.json", ["sciworld_4"])) == ["sciworld_4"]


def test_mistakes_are_told(tmp_path: Path) -> None:
    with pytest.raises(PublishedError, match=r"expected one of train/babyai_train\.json.*found none"):
        published_items("babyai", "train", tmp_path)
    with pytest.raises(PublishedError, match="found nothing at 'no/such/place'"):
        published_items("babyai", "train", "no/such/place")
    with pytest.raises(PublishedError, match=r"ends in a number.*row 1"):
        published_items("alfworld", "train", write(tmp_path / "a.json", ["alfworld_1", "look_at_trial_T2019"]))
    (tmp_path / "b.json").write_text('[{"id": "babyai_1"}]')
    with pytest.raises(PublishedError, match="expected the field 'item_id'"):
        published_items("babyai", "train", tmp_path / "b.json")
    (tmp_path / "c.json").write_text("no json")
    with pytest.raises(PublishedError, match="is not a JSON array"):
        published_items("babyai", "train", tmp_path / "c.json")


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(PublishedError, match="pip install datasets"):
        published_items("babyai", "train", write(tmp_path / "a.json", ["babyai_1"]))


def test_training_draws_from_a_published_list(tmp_path: Path) -> None:
    write(tmp_path / "textcraft_train.json", ["textcraft_40", "textcraft_41", "textcraft_200"])
    env = EnvConfig(name="textcraft", items=str(tmp_path))
    assert task_items(env) == ["textcraft_40", "textcraft_41", "textcraft_200"]
    deep = env.model_copy(update={"tasks": (environment_class("textcraft").task_of("textcraft_200"),)})
    assert task_items(deep) == ["textcraft_200"]
    with pytest.raises(ConfigError, match=r"'babyai': items: expected one of"):
        task_items(EnvConfig(name="babyai", items=str(tmp_path)))
