"""The script that compares schedules: only the schedule differs, budgets of rounds are kept across a resume, a record by hand."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agentgym_lite.config import Config, load_config, parse_config
from agentgym_lite.evaluation import load_suite
from agentgym_lite.probes import probe_model, probe_tokenizer, register_probes

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The module; it imports the table's by name, as it does when it is run."""
    for name in ("learning_table", "scaling_comparison"):
        spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
        assert spec
        assert spec.loader
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules["scaling_comparison"]


def configured(script: ModuleType, schedule: str) -> Config:
    config = load_config(script.CONFIG, script.overrides(schedule, 3, 5, Path("runs/x")))
    assert isinstance(config, Config)
    return config


def test_only_the_schedule_differs(script: ModuleType) -> None:
    found = {s: configured(script, s).model_dump() for s in script.SCHEDULES}
    rounds = {s: [env.pop("rounds") for env in c["envs"]] for s, c in found.items()}
    assert all(c == found["fixed_long"] for c in found.values())
    assert [r["rounds"] for r in rounds["fixed_short"]] == [6, 6]
    assert [r["rounds"] for r in rounds["fixed_long"]] == [20, 20]
    assert [(r["rounds"], r["steps_scaling_inter"]) for r in rounds["scaling_inter"]] == [([6, 12, 20], 5), ([6, 13, 20], 5)]
    assert (found["fixed_long"]["run"]["time_limit_s"], found["fixed_long"]["run"]["seed"]) == (None, 3)


def probe_config(out: Path) -> Config:
    config = parse_config(
        {
            "envs": [{"name": "probe_credit", "rounds": {"type": "scaling_inter", "rounds": [1, 2, 4], "steps_scaling_inter": 1}}],
            "algorithm": {"name": "grpo", "group_size": 2, "kl_coef": 0.0},
            "rollout": {"max_new_tokens": 2, "max_length": 96},
            "run": {"steps": 100, "groups_per_step": 1, "out": out, "save_every": 1},
        }
    )
    assert isinstance(config, Config)
    return config


def test_a_run_ends_when_its_budget_is_spent_resumed_or_not(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two episodes of 1, 2, 4, 4, ... rounds: 2, 6, 14, 22 in all; 15 are reached by the fourth update, 6 by the second."""
    monkeypatch.setattr("agentgym_envs.core._REGISTRY", {})
    register_probes()

    def train(out: str, budget: int, *, resume: bool = False) -> list[float]:
        options: dict[str, Any] = {"model": probe_model(), "tokenizer": probe_tokenizer()}
        result = script.BudgetTrainer(probe_config(tmp_path / out), budget=budget, **options).train(resume=resume)
        return [m["rounds/total"] for m in result.history]

    assert train("unbroken", 15) == [2, 6, 14, 22]
    assert train("broken", 6) == [2, 6]
    assert train("broken", 15, resume=True) == [14, 22]
    assert train("broken", 15, resume=True) == [], "a finished run has nothing to do"


def trained(script: ModuleType, schedule: str, seed: int, after: dict[str, bool]) -> Any:
    run = sys.modules["learning_table"].Run(schedule, seed, dict.fromkeys(after, False), after, 60.0)
    steps = [{"rounds/total": 10.0, "tokens/sampled_total": 90.0, "success/mean": 0.25, "groups/zero_variance": 0.5}]
    return script.Trained(run, steps)


def test_record_by_hand(script: ModuleType) -> None:
    """ScalingInter solves both items with seed 0 and one with seed 1, the long horizon none and one: differences of 1 and 0."""
    args = argparse.Namespace(rounds_budget=10, stage_steps=12, threads=1)
    done = {
        "fixed_long": [
            trained(script, "fixed_long", 0, {"e/t/a": False, "e/t/b": False}),
            trained(script, "fixed_long", 1, {"e/t/a": True, "e/t/b": False}),
        ],
        "scaling_inter": [
            trained(script, "scaling_inter", 0, {"e/t/a": True, "e/t/b": True}),
            trained(script, "scaling_inter", 1, {"e/t/a": True, "e/t/b": False}),
        ],
        "fixed_short": [],
    }
    record = json.loads(json.dumps(script.record(done, args, load_suite("lite27").select(["babyai/goto"]))))
    (pair,) = record["differences"]
    assert (pair["a"], pair["b"], pair["by_seed"]) == ("scaling_inter", "fixed_long", [1.0, 0.0])
    assert (pair["difference"]["value"], pair["difference"]["low"], pair["difference"]["high"]) == (0.5, 0.5, 0.5)
    assert [row["after"]["value"] for row in record["rows"]] == [0.25, 0.75]
    assert [run["solved"] for run in record["runs"]] == [0, 1, 2, 1]
    assert record["runs"][0]["curve"] == {"rounds_total": [10.0], "tokens_total": [90.0], "success": [0.25], "flat_groups": [0.5]}
