"""The demo's whole path and the model as an agent, with a model that has learnt nothing, in seconds."""

import json
import subprocess
import sys
from contextlib import contextmanager
from itertools import pairwise

import pytest
import yaml
from cli_factory import save_model
from transformers.utils import logging as transformers_logging

from agentgym_envs import environment_class
from agentgym_lite import demo
from agentgym_lite.cli import main
from agentgym_lite.cli.server_process import ServerProcess
from agentgym_lite.config import load_config
from agentgym_lite.demo import DemoSettings, demo_config, demo_suite, run_demo
from agentgym_lite.evaluation import SuiteError, evaluate, load_suite, make_player
from agentgym_lite.evaluation.suite import Suite
from agentgym_lite.training.items import ItemSampler
from agentgym_lite.viewer.report_data import load_report_data

transformers_logging.disable_progress_bar()  # as `agl` does through the environment, before transformers is imported


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def config(tmp_path_factory, model):
    """Two steps, the second with more rounds than the first; every group is kept, so that weights do move."""
    rounds = {"type": "scaling_inter", "rounds": [1, 2], "steps_scaling_inter": 1}
    data = {
        "model": {"path": str(model)},
        "envs": [{"name": "textcraft", "tasks": ["depth_1"], "rounds": rounds}, {"name": "babyai", "tasks": ["goto"], "rounds": rounds}],
        "algorithm": {"group_size": 2, "zero_variance": "keep", "entropy_coef": 0.01},
        "rollout": {"max_new_tokens": 4},
        "optim": {"lr": 1e-3},
        "run": {"steps": 9, "groups_per_step": 4},
    }
    path = tmp_path_factory.mktemp("config") / "demo.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory, config):
    """A finished demo over HTTP, its folder, and the titles of the phases it went through."""
    titles = []

    @contextmanager
    def phase(title):
        titles.append(title)
        yield lambda done, total, text="": None

    out = tmp_path_factory.mktemp("runs") / "demo"
    settings = DemoSettings(config=config, items_per_task=2, steps=2, seed=3)
    with ServerProcess(["textcraft", "babyai"]) as server:
        run = run_demo(settings, out, server.url, phase, "agl demo --seed 3")
    return run, out, titles


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_demo_leaves_a_complete_run_folder(finished):
    run, out, titles = finished
    assert titles == [
        "evaluate the random agent",
        "evaluate the expert agent",
        "evaluate the base model",
        "train",
        "evaluate the trained model",
    ]
    assert run.report == out / "report.html"
    assert run.report.stat().st_size > 1000
    assert (run.checkpoint / "model.safetensors").is_file()
    assert run.checkpoint.is_relative_to(out)
    assert list(run.times_s) == titles


def test_demo_report_has_every_agent_on_every_task(finished):
    run, out, _ = finished
    data = load_report_data(out)
    assert [(r.env, r.task) for r in data.results] == [
        ("textcraft", "depth_1"),
        ("textcraft", "depth_2"),
        ("textcraft", "depth_3"),
        ("babyai", "goto"),
    ]
    for row in data.results:
        assert row.expert.successes == row.expert.n == 2
        assert row.base.n == row.trained.n == row.random.n == 2
    assert data.settings == run.config.model_dump(mode="json")
    assert (out / data.checkpoint / "config.json").is_file()


def test_demo_trains_with_rounds_that_scale(finished):
    metrics = lines(finished[1] / "metrics.jsonl")
    assert [m["env/babyai/max_rounds"] for m in metrics] == [1, 2]
    assert [m["env/textcraft/max_rounds"] for m in metrics] == [1, 2]


def test_demo_evaluates_on_items_that_training_never_sees(finished):
    _, out, _ = finished
    trained = {t["spec"]["item_id"] for t in lines(out / "trajectories.jsonl") if "when" not in t}
    evaluated = {t["spec"]["item_id"] for name in demo.AGENTS for t in lines(out / "eval" / name / "trajectories.jsonl")}
    assert trained
    assert len(evaluated) == 8
    assert not trained & evaluated
    for env in ("textcraft", "babyai"):
        assert not evaluated & set(environment_class(env).items("train"))


def test_demo_replays_are_one_item_before_and_after(finished):
    _, out, _ = finished
    shown = {r.when: lines(out / "trajectories.jsonl")[r.line] for r in load_report_data(out).replays}
    assert shown.keys() == {"before", "after"}
    assert shown["before"]["spec"] == shown["after"]["spec"]
    assert shown["before"]["rows"] != shown["after"]["rows"]


def test_demo_settings_reach_the_config(config, tmp_path):
    found = demo_config(DemoSettings(config=config, steps=7, seed=5, time_limit_s=12.0), tmp_path / "a: b", "http://127.0.0.1:1")
    assert (found.run.steps, found.run.seed, found.run.time_limit_s) == (7, 5, 12.0)
    assert found.run.out == tmp_path / "a: b"
    assert [e.url for e in found.envs] == ["http://127.0.0.1:1"] * 2
    assert demo_config(DemoSettings(config=config), tmp_path, "local").run.steps == 9


def test_demo_suite_spreads_over_each_row():
    whole, part = demo_suite(DemoSettings()), demo_suite(DemoSettings(items_per_task=10))
    assert {i.task for i in whole.items} == {"depth_1", "depth_2", "depth_3", "goto"}
    assert len(part.items) == 40
    assert set(part.items) < set(whole.items)
    rows = [i for i in whole.items if i.task == "goto"]
    chosen = [rows.index(i) for i in part.items if i.task == "goto"]
    assert chosen[0] == 0
    assert max(b - a for a, b in pairwise(chosen)) <= 6


#: All but the parts that other files extend.
SHIPPED = [p for p in sorted(demo.CONFIG.parents[1].rglob("*.yaml")) if p.parent.name != "presets" and p.name != "base.yaml"]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_shipped_configs_name_settings_and_tasks_that_exist(path):
    environments = tuple(load_config(path).environments.values())
    assert environments
    assert ItemSampler(environments, 4, seed=0).groups_at(1)


def test_the_demo_trains_on_the_tasks_that_it_evaluates():
    config = demo_config(DemoSettings(), demo.CONFIG.parent, "local")
    assert {f"{e.name}/{task}" for e in config.envs for task in e.tasks} == set(DemoSettings().tasks)
    assert all(e.rounds.type == "scaling_inter" for e in config.envs)


def small_suite(n):
    suite = load_suite("lite27").select(["babyai/goto"])
    return Suite(suite.name, suite.title, suite.versions, suite.items[:n], suite.hash)


def player(model, **options):
    return make_player(str(model), max_new_tokens=6, **options)


def test_a_model_plays_the_same_whatever_else_is_played(model, tmp_path):
    alone = evaluate(player(model, seed=1), small_suite(2), tmp_path / "alone")
    among = evaluate(player(model, seed=1, max_sessions=3), small_suite(7), tmp_path / "among")
    assert (alone.overall.episodes, among.overall.episodes) == (2, 7)
    replies = [
        {e["spec"]["item_id"]: [t["reply"] for t in e["turns"]] for e in lines(tmp_path / d / "trajectories.jsonl")}
        for d in ("alone", "among")
    ]
    assert replies[0].items() <= replies[1].items()


def test_evaluation_goes_on_where_it_stopped(model, tmp_path):
    whole = evaluate(player(model), small_suite(6), tmp_path / "whole")
    evaluate(player(model), small_suite(3), tmp_path / "parts")
    seen = []
    parts = evaluate(player(model), small_suite(6), tmp_path / "parts", on_episode=lambda e, done, total: seen.append((done, total)))
    assert seen == [(4, 6), (5, 6), (6, 6)]
    assert parts == whole


def test_seed_and_temperature_change_what_a_model_says(model, tmp_path):
    settings = {"a": {"seed": 0}, "b": {"seed": 1}, "c": {"temperature": 0.0}, "d": {"temperature": 0.0, "seed": 1}}
    said = {}
    for name, options in settings.items():
        evaluate(player(model, **options), small_suite(2), tmp_path / name)
        episodes = sorted(lines(tmp_path / name / "trajectories.jsonl"), key=lambda e: e["spec"]["item_id"])
        said[name] = [[t["reply"] for t in e["turns"]] for e in episodes]
    assert said["a"] != said["b"]
    assert said["a"] != said["c"]
    assert said["c"] == said["d"]


def test_other_weights_at_the_same_place_are_another_evaluation(tmp_path):
    save_model(tmp_path / "model", seed=0)
    first = player(tmp_path / "model").settings
    save_model(tmp_path / "model", seed=1)
    assert player(tmp_path / "model").settings["weights"] != first["weights"]


def test_a_suite_made_for_another_version_is_refused(tmp_path):
    suite = load_suite("lite27").select(["babyai"])
    old = Suite(suite.name, suite.title, {**suite.versions, "babyai": "0.5"}, suite.items, suite.hash)
    with pytest.raises(SuiteError, match=r"made for version 0\.5 of 'babyai'"):
        evaluate(make_player("expert"), old, tmp_path)


def agl(monkeypatch, capsys, *args):
    monkeypatch.setattr(sys, "argv", ["agl", *map(str, args)])
    with pytest.raises(SystemExit) as exit_:
        main()
    out, err = capsys.readouterr()
    return exit_.value.code, out, err


def test_train_then_resume_then_eval_its_folder(monkeypatch, capsys, config, tmp_path):
    run = tmp_path / "run"
    code, out, err = agl(monkeypatch, capsys, "train", config, "run.steps=1", f"run.out={run}")
    assert code == 0, err
    assert "1 steps done" in out
    assert "train (rl): 1/1" in err
    command = [sys.executable, "-m", "agentgym_lite.cli", "train", config, "run.steps=1", f"run.out={run}"]
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (again.returncode, again.stdout, len(again.stderr.strip().splitlines())) == (1, "", 1)
    assert "already holds a run" in again.stderr
    code, out, err = agl(monkeypatch, capsys, "train", config, "run.steps=2", f"run.out={run}", "--resume")
    assert code == 0, err
    assert "step_000002" in out
    code, out, err = agl(monkeypatch, capsys, "eval", "--agent", run, "--only", "babyai/find_obj", "--out", tmp_path / "eval", "--json")
    assert code == 0, err
    assert json.loads(out)["agent"].endswith("step_000002")


def test_train_with_a_dead_server_or_a_damaged_checkpoint_is_one_clear_error(monkeypatch, capsys, config, tmp_path):
    run = tmp_path / "run"
    code, _, err = agl(monkeypatch, capsys, "train", config, "envs.0.url=http://127.0.0.1:9", f"run.out={run}")
    assert (code, len(err.strip().splitlines())) == (1, 1)
    assert "http://127.0.0.1:9" in err
    code, _, err = agl(monkeypatch, capsys, "train", config, "run.steps=1", f"run.out={tmp_path / 'other'}")
    assert code == 0, err
    weights = tmp_path / "other" / "checkpoints" / "step_000001" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    resume = ["train", config, "run.steps=2", f"run.out={tmp_path / 'other'}", "--resume"]
    for command in (resume, ["eval", "--agent", tmp_path / "other", "--out", tmp_path / "e"]):
        code, _, err = agl(monkeypatch, capsys, *command)
        warning, error = err.strip().splitlines()
        assert code == 1
        assert warning.startswith("agl: warning: checkpoint")
        assert error.startswith("agl: all 1 checkpoints")
