"""The script that compares all methods: equal budgets, valid settings, and a table by hand."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from agentgym_lite.algorithms import ALGORITHMS
from agentgym_lite.config import AgentEvolConfig, Config, DPOConfig, SFTConfig, load_config

SCRIPT = Path(__file__).parents[2] / "scripts" / "learning_table.py"


@pytest.fixture(scope="module")
def table() -> ModuleType:
    spec = importlib.util.spec_from_file_location("learning_table", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)

    sys.modules["learning_table"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def configured(table: ModuleType, method: str, steps: int = 60) -> Config | SFTConfig | DPOConfig | AgentEvolConfig:
    budget = table.Budget(steps, 12, 8)
    return load_config(table.config_of(method), table.overrides(method, 3, budget, Path("runs/x")))


def test_every_algorithm_has_a_config(table: ModuleType) -> None:
    names = {load_config(table.config_of(m)).algorithm.name for m in table.RL}
    assert names == set(ALGORITHMS)


def test_all_methods_get_the_same_episodes(table: ModuleType) -> None:
    """60 steps x 12 items x 8 = 5,760 episodes; AgentEvol's are a multiple of 24 less than that at most."""
    for method in table.METHODS:
        c = configured(table, method)
        if isinstance(c, Config):
            n = c.run.steps * c.run.groups_per_step * c.algorithm.group_size
        elif isinstance(c, SFTConfig):
            n = c.data.sources[0].n
        elif isinstance(c, DPOConfig):
            n = c.data.expert[0].n * (1 + c.data.own[0].samples)
        else:
            n = c.data.sources[0].n + c.evol.iterations * c.explore.items * c.explore.samples
        assert 5760 - 24 < n <= 5760, method
        assert (c.run.seed, c.run.out) == (3, Path("runs/x"))


def test_all_methods_play_the_same_tasks(table: ModuleType) -> None:
    tasks = {m: {name: e.tasks for name, e in configured(table, m).environments.items()} for m in table.METHODS}
    assert all(t == tasks["grpo"] for t in tasks.values())


def test_reinforcement_learning_differs_in_the_algorithm_alone(table: ModuleType) -> None:
    shared = [configured(table, m).model_dump(exclude={"algorithm"}) for m in table.RL]
    assert all(x == shared[0] for x in shared)


def test_summary_by_hand(table: ModuleType) -> None:
    """Two items, two seeds: 1 of 4 solved before, 3 of 4 after; the item that one run lost to its environment is in no figure."""
    runs = [
        table.Run("grpo", 0, {"e/t/a": False, "f/t/b": True, "e/t/lost": True}, {"e/t/a": True, "f/t/b": True}, 10.0),
        table.Run("grpo", 1, {"e/t/a": False, "f/t/b": False}, {"e/t/a": True, "f/t/b": False, "e/t/lost": True}, 20.0),
    ]
    row = table.summarize("grpo", runs)
    assert (row["before"]["value"], row["after"]["value"]) == (0.25, 0.75)
    assert row["gain"]["value"] == 0.5
    assert row["gain_by_seed"] == [0.5, 0.5]
    assert row["after_by_env"] == {"e": 1.0, "f": 0.5}
    assert row["train_s"] == 15.0
    assert row["gain"]["low"] == 0.0  # both draws may be the item that did not change
    text = table.markdown([row])
    assert "| grpo | 25 % [0, 50] | 75 % [50, 100] | +50 % [+0, +100] | +50, +50 | 100 % | 50 % | 15 s |" in text


def test_the_report_has_a_line_per_run(table: ModuleType) -> None:
    report = {"command": "python x", "rows": [{"method": "grpo"}], "runs": [{"seed": 0, "before": {"a": True, "b": False}}, {"seed": 1}]}
    text = table.as_json(report)
    assert json.loads(text) == report
    assert '    {"seed": 0, "before": {"a": true, "b": false}},\n    {"seed": 1}\n' in text
