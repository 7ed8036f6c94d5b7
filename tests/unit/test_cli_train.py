"""``agl train`` for every method: progress, results, resumption, errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_factory import save_model

from agentgym_lite.cli import main
from agentgym_lite.config import METHODS, load_config

ROOT = Path(__file__).resolve().parents[2]
Agl = Callable[..., tuple[int, str, str]]


@pytest.fixture
def agl(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Agl:
    """Run ``agl`` as its entry point does: exit code, stdout, stderr."""

    def run(*args: Any) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["agl", *map(str, args)])
        with pytest.raises(SystemExit) as exit_:
            main()
        return (int(exit_.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


ENVS = [{"name": "textcraft", "tasks": ["depth_1"], "rounds": {"type": "fixed", "rounds": 3}}]
EXPERTS = [{"kind": "expert", "n": 4, "envs": ENVS}]
ROLLOUT = {"max_new_tokens": 4, "max_length": 4096, "max_sessions": 4}
SECTIONS: dict[str, dict[str, Any]] = {
    "sft": {"data": {"sources": EXPERTS, "success_only": False, "eval_share": 0.0}},
    "dpo": {
        "data": {"expert": [{**EXPERTS[0], "envs": [{**ENVS[0], "rounds": {"type": "fixed", "rounds": 20}}]}], "eval_share": 0.0}
        | {"own": [{"kind": "policy", "envs": ENVS}]},
        "rollout": ROLLOUT,
    },
    "agentevol": {
        "data": {"sources": EXPERTS, "success_only": False},
        "explore": {"envs": ENVS, "items": 2},
        "evol": {"iterations": 2, "eval_items": 2},
        "rollout": ROLLOUT,
    },
}


def config(folder: Path, model: Path, method: str) -> Path:
    run = {"epochs": 1, "batch_size": 2, "out": str(folder / "run")}
    path = folder / f"{method}.yaml"
    path.write_text(yaml.safe_dump({"method": method, "model": {"path": str(model)}, "run": run, **SECTIONS[method]}))
    return path


@pytest.mark.parametrize(("method", "steps"), [("sft", 2), ("dpo", 2), ("agentevol", 4)])
def test_a_method_trains_and_resumes(agl: Agl, tmp_path: Path, model: Path, method: str, steps: int) -> None:
    path = config(tmp_path, model, method)
    code, out, err = agl("train", path, "run.time_limit_s=0.000001")
    assert (code, "stopped by the time limit" in out) == (0, True), err
    assert f"train ({method}): {steps}/{steps}" not in err
    code, out, err = agl("train", path, "--resume")
    assert code == 0, err
    assert f"{steps} steps done; checkpoint: {tmp_path / 'run' / 'checkpoints'}" in out
    assert f"train ({method}): {steps}/{steps}" in err
    assert "loss" in err
    assert [json.loads(x)["step"] for x in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()] == list(range(1, steps + 1))


def test_mistakes_are_told_in_one_paragraph(agl: Agl, tmp_path: Path, model: Path) -> None:
    path = config(tmp_path, model, "sft")
    for change, message in (
        ("method=ppo", "setting 'method': expected rl, sft, dpo, agentevol, found 'ppo'"),
        ("run.steps=3", "unknown setting 'run.steps'"),
        ("data.max_length=8", "expected episodes to train on, found 4"),
        ("data.sources=[{kind: agent_traj, path: missing.json}]", "expected a file of episodes at 'missing.json'"),
        ("data.sources.0.envs.0.name=nowhere", "no environment is called 'nowhere'"),
        ("model.lora={targets: [nothing]}", "setting 'model.lora.targets'"),
    ):
        code, out, err = agl("train", path, change)
        assert (code != 0, out) == (True, "")
        assert message in " ".join(err.split())
        assert "Traceback" not in err
    code, _, err = agl("train", path, "--resume", f"run.out={tmp_path / 'nowhere'}")
    assert code != 0
    assert "expected a run to resume" in err


def test_every_shipped_config_is_valid() -> None:
    found = {load_config(path).method for path in sorted((ROOT / "configs").rglob("*.yaml")) if "paper" not in path.parts}
    assert found == METHODS.keys()
