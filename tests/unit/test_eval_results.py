"""Results folders: what a killed evaluation leaves behind can be continued, and nothing is counted twice."""

import json

import pytest

from agentgym_lite.evaluation.results import ResultsError, ResultsFolder, episode_key, tabulate
from agentgym_lite.evaluation.suite import Suite, SuiteItem
from agentgym_lite.rollout.types import EpisodeSpec, StopReason, TokenRow, Trajectory, Turn

SETTINGS = {"agent": "expert", "seed": 0}


def episode(env="textcraft", item=0, stop=StopReason.SUCCESS, sample=0):
    reward = float(stop is StopReason.SUCCESS)
    return Trajectory(EpisodeSpec(env, f"{env}_{item}", 0, sample), [TokenRow()], [Turn("see", "do", "do", reward=reward)], stop, task="t")


def test_episodes_come_back_and_count_as_done(tmp_path):
    ResultsFolder(tmp_path, SETTINGS).add(episode())
    again = ResultsFolder(tmp_path, SETTINGS)
    assert again.done(episode().spec)
    assert not again.done(episode(item=1).spec)
    assert not again.done(episode(sample=1).spec)
    assert again.episodes[episode_key(episode().spec)].to_dict() == episode().to_dict()


def test_half_a_line_at_the_end_is_dropped_and_the_file_stays_usable(tmp_path):
    folder = ResultsFolder(tmp_path, SETTINGS)
    folder.add(episode(item=0))
    folder.add(episode(item=1))
    file = tmp_path / "trajectories.jsonl"
    file.write_bytes(file.read_bytes()[:-20])
    again = ResultsFolder(tmp_path, SETTINGS)
    assert (again.done(episode(item=0).spec), again.done(episode(item=1).spec)) == (True, False)
    again.add(episode(item=1))
    assert len(ResultsFolder(tmp_path, SETTINGS).episodes) == 2
    assert len([json.loads(line) for line in file.read_text().splitlines()]) == 2


def test_a_broken_line_inside_the_file_is_an_error_that_names_it(tmp_path):
    ResultsFolder(tmp_path, SETTINGS).add(episode())
    file = tmp_path / "trajectories.jsonl"
    file.write_text("{}\n" + file.read_text())
    with pytest.raises(ResultsError, match="line 1 of"):
        ResultsFolder(tmp_path, SETTINGS)


def test_an_episode_that_the_environment_broke_is_played_again_and_counted_once(tmp_path):
    folder = ResultsFolder(tmp_path, SETTINGS)
    folder.add(episode(stop=StopReason.ENV_ERROR))
    assert not folder.done(episode().spec)
    folder.add(episode())
    again = ResultsFolder(tmp_path, SETTINGS)
    assert [e.stop_reason for e in again.episodes.values()] == [StopReason.SUCCESS]


def test_other_settings_are_refused_and_named(tmp_path):
    ResultsFolder(tmp_path, SETTINGS).add(episode())
    with pytest.raises(ResultsError, match=r"agent: 'expert' there, 'random' now.*choose another --out"):
        ResultsFolder(tmp_path, {**SETTINGS, "agent": "random"})


def test_tabulate_keeps_environments_apart():
    items = (SuiteItem("textcraft", "textcraft_0", 0, "depth_1", 20), SuiteItem("babyai", "babyai_0", 0, "GoTo", 20))
    suite = Suite("s", "s", {"textcraft": "1", "babyai": "1"}, items, "h")
    stray = episode("textcraft", 5)
    found = tabulate("a", suite, [episode("textcraft"), episode("babyai", stop=StopReason.MAX_ROUNDS), stray])
    assert {k: (s.episodes, s.success.value) for k, s in found.tasks.items()} == {"textcraft/depth_1": (1, 1.0), "babyai/GoTo": (1, 0.0)}
    assert {k: s.success.value for k, s in found.environments.items()} == {"textcraft": 1.0, "babyai": 0.0}
    assert (found.overall.episodes, found.overall.success.value) == (2, 0.5)
    assert json.loads(json.dumps(found.to_dict()))["tasks"]["babyai/GoTo"]["success"]["value"] == 0.0


def test_a_task_that_was_not_played_still_has_its_row():
    suite = Suite("s", "s", {"babyai": "1"}, (SuiteItem("babyai", "babyai_0", 0, "GoTo", 20),), "h")
    assert tabulate("a", suite, []).tasks["babyai/GoTo"].success is None
