"""AgentEvol: what is explored and kept, where training begins, resumption at any moment, settings."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import supervised_factory as world
import torch
from supervised_factory import assert_same_run, env, experts, lines, settings, train
from test_sft import broken_at, killed
from trainer_factory import Echo, make_model, make_tokenizer

from agentgym_lite.config import ConfigError
from agentgym_lite.rollout.types import EpisodeSpec, Trajectory
from agentgym_lite.training import TrainingError
from agentgym_lite.training.checkpoint import CheckpointStore, read_state
from agentgym_lite.training.sft import nll_losses
from agentgym_lite.training.supervised import TokenSums, Updates, batch_at


@pytest.fixture(autouse=True)
def _toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_envs.core._REGISTRY", {})
    world.register()


#: The expert shows too little to solve everything, but enough that exploration finds the rest now and then.
LEARNS: dict[str, Any] = {
    "explore": {"items": 6, "samples": 8, "dedupe": "exact"},
    "evol": {"iterations": 3, "eval_items": 3},
    "run": {"epochs": 6},
}


def run(out: Path, **sections: Any) -> tuple[list[dict[str, float]], Any]:
    merged = {k: LEARNS.get(k, {}) | sections.get(k, {}) for k in LEARNS.keys() | sections.keys()}
    result, model = train(settings("agentevol", out, **merged))
    return result.history, model


def iterations(history: list[dict[str, float]]) -> list[list[dict[str, float]]]:
    return [[m for m in history if m["evol/iteration"] == i] for i in range(1, int(history[-1]["evol/iteration"]) + 1)]


# -- the loop -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("straight")
    with pytest.MonkeyPatch.context() as m:
        m.setattr("agentgym_envs.core._REGISTRY", {})
        world.register()
        run(out)
    return out


def test_each_iteration_trains_on_all_successes_so_far(straight: Path) -> None:
    history = lines(straight / "metrics.jsonl")
    parts = iterations(history)
    assert len(parts) == 3
    kept = [part[0].get("explore/kept", 0.0) for part in parts]
    assert kept[0] == 0
    assert kept[1] > 0
    assert [part[0]["evol/set_size"] for part in parts] == [4, 4 + kept[1], 4 + kept[1] + kept[2]]
    for part in parts:
        assert len(part) == 6 * math.ceil(part[0]["evol/set_size"] / 4)
        assert [("explore/episodes" in m) for m in part[1:]] == [False] * (len(part) - 1)
        assert ["eval/success" in m for m in part] == [False] * (len(part) - 1) + [True]
    assert [m["step"] for m in history] == list(range(1, len(history) + 1))
    assert all(math.isfinite(v) for m in history for v in m.values())


def test_only_successes_are_kept_and_no_copies(straight: Path) -> None:
    explored = lines(straight / "explored.jsonl")
    assert {t["stop_reason"] for t in explored} == {"success"}
    rows = [tuple(t["rows"][0]["token_ids"]) for t in [*lines(straight / "data.jsonl"), *explored]]
    assert len(set(rows[4:])) == len(explored)
    assert not set(rows[:4]) & set(rows[4:])


def test_the_best_of_each_item_is_kept_if_so_asked(tmp_path: Path) -> None:
    run(tmp_path, explore={"dedupe": "item", "success_only": False})
    explored = lines(tmp_path / "explored.jsonl")
    for i in (2, 3):
        mine = [t["spec"]["item_id"] for t in explored if t["iteration"] == i]
        assert len(set(mine)) == len(mine) > 0


def test_it_gets_better_from_iteration_to_iteration(straight: Path) -> None:
    last = [part[-1] for part in iterations(lines(straight / "metrics.jsonl"))]
    assert last[-1]["eval/success"] > last[0]["eval/success"]
    assert last[-1]["eval/success"] == last[-1]["eval/echo/success"]


def test_training_begins_at_the_base_model_or_at_the_current_one(tmp_path: Path) -> None:
    first: dict[str, list[float]] = {}
    for name in ("base", "current"):
        history, _ = run(tmp_path / name, evol={"train_from": name})
        first[name] = [part[0]["loss/total"] for part in iterations(history)]
    assert first["base"][0] == first["current"][0]
    assert min(first["base"]) > 2 * max(first["current"][1:])


def test_an_iteration_from_the_base_equals_a_first_one_on_the_same_data(tmp_path: Path, straight: Path) -> None:
    """Neither weights nor moments of the iteration before are left: training on the grown set alone gives the same weights."""
    config = settings("agentevol", tmp_path / "two", **LEARNS | {"evol": {"iterations": 2, "eval_items": 0}})
    _, model = train(config)
    grown = [Trajectory.from_dict(t) for f in ("data.jsonl", "explored.jsonl") for t in lines(tmp_path / "two" / f)]
    assert len(grown) > 4
    fresh = make_model()
    updates = Updates(fresh, config.optim)
    steps = 6 * math.ceil(len(grown) / 4)
    for k in range(1, steps + 1):
        batch = [grown[i] for i in batch_at(k, len(grown), 4, 0, "iteration", 2)]
        updates.update(nll_losses(fresh, batch, 16384, TokenSums()), updates.lr(k, steps), k)
    assert all(torch.equal(a, b) for a, b in zip(fresh.parameters(), model.parameters(), strict=True))


def test_item_ids_stay_with_their_environment(tmp_path: Path) -> None:
    """The published code calls every item webshop_N."""
    run(
        tmp_path,
        data={"sources": [experts(8, "echo", "other")]},
        explore={"envs": [env("echo"), env("other")], "items": 8, "dedupe": "none"},
    )
    explored = lines(tmp_path / "explored.jsonl")
    assert {t["spec"]["env"] for t in explored} == {"echo", "other"}
    for t in explored:
        assert t["spec"]["item_id"].startswith(f"{t['spec']['env']}_")
        opening = make_tokenizer().decode(t["rows"][0]["token_ids"])
        assert opening.split()[6] == t["task"] == Echo.task_of(t["spec"]["item_id"].replace("other", "echo"))
    seen = lines(tmp_path / "metrics.jsonl")[-1]
    assert {"eval/echo/success", "eval/other/success"} <= seen.keys()


def test_rounds_may_grow_with_the_iterations(tmp_path: Path) -> None:
    rounds = {"type": "scaling_inter", "rounds": [1, 2], "steps_scaling_inter": 1}
    run(tmp_path, explore={"envs": [env(rounds=rounds)], "success_only": False, "dedupe": "none"})
    explored = lines(tmp_path / "explored.jsonl")
    assert [{t["max_rounds"] for t in explored if t["iteration"] == i} for i in (2, 3)] == [{1}, {2}]


def test_a_dead_environment_ends_the_run_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(metrics: dict[str, float]) -> None:
        if metrics["step"] == 6:  # the last of the first iteration
            monkeypatch.setattr(Echo, "reset", lambda self, item_id, seed=0: (_ for _ in ()).throw(RuntimeError("gone")))

    with pytest.raises(TrainingError, match="exploration before iteration 2 ended with an environment error"):
        train(settings("agentevol", tmp_path, **LEARNS | {"evol": {"eval_items": 0}}), on_step=die)
    assert CheckpointStore(tmp_path).steps() == [6]


# -- resuming -----------------------------------------------------------------------------------------------------------


def boundaries(folder: Path) -> list[int]:
    return [int(part[-1]["step"]) for part in iterations(lines(folder / "metrics.jsonl"))]


def test_resumed_equals_straight(straight: Path, tmp_path: Path) -> None:
    """Broken inside an iteration, before, at and behind an exploration."""
    first, second, _ = boundaries(straight)
    for k in (first - 1, first, first + 1, second + 2):
        broken_at(k, tmp_path / str(k), "agentevol", **LEARNS)
        train(settings("agentevol", tmp_path / str(k), **LEARNS), resume=True)
        assert_same_run(straight, tmp_path / str(k))


def test_an_interrupted_exploration_saves_the_iteration_before(straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = boundaries(straight)[0]

    def interrupt(metrics: dict[str, float]) -> None:
        if metrics["step"] == first:
            monkeypatch.setattr(Echo, "step", lambda self, action: (_ for _ in ()).throw(KeyboardInterrupt))

    with pytest.raises(KeyboardInterrupt):
        train(settings("agentevol", tmp_path, **LEARNS), on_step=interrupt)
    monkeypatch.undo()
    world.register()
    assert CheckpointStore(tmp_path).steps() == [first]
    train(settings("agentevol", tmp_path, **LEARNS), resume=True)
    assert_same_run(straight, tmp_path)


def test_a_killed_run_can_be_resumed(straight: Path, tmp_path: Path) -> None:
    step = killed("agentevol", tmp_path, **{k: v | ({"save_every": 1} if k == "run" else {}) for k, v in LEARNS.items()})
    assert step >= 1
    train(settings("agentevol", tmp_path, **LEARNS), resume=True)
    assert_same_run(straight, tmp_path)


def test_the_state_names_the_data(straight: Path) -> None:
    assert len(read_state(CheckpointStore(straight).latest())["data"]) == 64


# -- settings -----------------------------------------------------------------------------------------------------------

SHORT = [experts() | {"envs": [env(rounds={"type": "fixed", "rounds": 1})]}]
CHANGES: list[dict[str, Any]] = [
    {"model": {"lora": {"r": 2}}},
    {"data": {"sources": [experts(5)]}},
    {"data": {"dedupe": "item"}, "_base": {"data": {"sources": [experts(9)]}}},
    {"data": {"max_length": 22}, "_base": {"explore": {"success_only": False}, "data": {"success_only": False, "sources": SHORT}}},
    {"explore": {"envs": [env(tasks=["red"])]}},
    {"explore": {"items": 3}},
    {"explore": {"samples": 4}},
    {"explore": {"success_only": False}},
    {"explore": {"min_reward": 0.4}, "_base": {"explore": {"success_only": False}}},
    {"explore": {"dedupe": "item"}},
    {"explore": {"dedupe": "none"}},
    {"evol": {"iterations": 2}},
    {"evol": {"train_from": "current"}},
    {"evol": {"eval_items": 1}},
    {"rollout": {"temperature": 0.3}},
    {"optim": {"lr": 3e-3}},
    {"optim": {"schedule": "cosine"}},
    {"run": {"epochs": 3}},
    {"run": {"batch_size": 3}},
    {"run": {"seed": 1}},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda c: json.dumps(c)[:60])
def test_every_setting_changes_the_run(straight: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    base = change.get("_base", {})
    change = {k: base.get(k, {}) | v for k, v in change.items() if k != "_base"}
    a = run(tmp_path / "a", **base)[0] if base else lines(straight / "metrics.jsonl")
    b, _ = run(tmp_path / "b", **base | change)
    assert [world.untimed(m) for m in a] != [world.untimed(m) for m in b]


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"evol": {"iterations": 0}}, "setting 'evol.iterations'"),
        ({"evol": {"train_from": "best"}}, "setting 'evol.train_from'"),
        ({"explore": {"reward": 1}}, "unknown setting 'explore.reward'; allowed there: .*min_reward"),
        ({"explore": {"envs": [env(url="http://x")]}}, "'echo' is given two addresses in 'url'"),
        ({"data": {"eval_share": 0.1}}, "unknown setting 'data.eval_share'"),
        ({"run": {"eval_every": 5}}, "unknown setting 'run.eval_every'"),
    ],
)
def test_unknown_and_contradictory_settings_are_named(tmp_path: Path, sections: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings("agentevol", tmp_path, **sections)


def test_an_environment_without_the_task_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'echo' has no training task 'pink'; known: blue, green, red"):
        train(settings("agentevol", tmp_path, explore={"envs": [env(tasks=["pink"])]}))


def test_exploration_plays_each_item_as_often_as_asked(tmp_path: Path) -> None:
    history, _ = run(tmp_path, explore={"items": 5, "samples": 3})
    assert [m["explore/episodes"] for m in history if "explore/episodes" in m] == [15, 15]
    assert {EpisodeSpec(**t["spec"]).sample for t in lines(tmp_path / "explored.jsonl")} <= {0, 1, 2}
