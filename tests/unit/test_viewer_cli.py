"""``agl replay`` and ``agl play`` as typed: what is exported, and what a mistake is told."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from agentgym_lite.cli.app import app
from agentgym_lite.cli.errors import explain
from agentgym_lite.rollout.types import EpisodeSpec, StopReason, Trajectory, Turn


@pytest.fixture
def run(tmp_path):
    """Six episodes: items 0 to 2 of two environments; item 0 succeeds."""
    with (tmp_path / "trajectories.jsonl").open("w") as f:
        for env in ("babyai", "textcraft"):
            for k in range(3):
                reason = StopReason.FAILURE if k else StopReason.SUCCESS
                t = Trajectory(EpisodeSpec(env, f"{env}_{k}"), [], [Turn("o", "r", "a")], reason, env_version="other")
                f.write(json.dumps(t.to_dict()) + "\n")
    return tmp_path


def exported(run, *options: str) -> tuple[list[str], str]:
    """Items in the exported page, and what was printed."""
    done = CliRunner().invoke(app, ["replay", str(run), "--export", str(run / "x.html"), *options], catch_exceptions=False)
    page = (run / "x.html").read_text()
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', page, re.DOTALL).group(1))
    return [b["item"] for b in data["bodies"]], done.output


def test_an_export_takes_what_the_options_choose(run):
    assert exported(run)[0] == ["babyai_0", "babyai_1", "babyai_2", "textcraft_0", "textcraft_1", "textcraft_2"]
    assert exported(run, "--env", "babyai", "--outcome", "failure")[0] == ["babyai_1", "babyai_2"]
    assert exported(run, "--item", "babyai_0", "--item", "textcraft_0", "--outcome", "success")[0] == ["babyai_0", "textcraft_0"]
    items, said = exported(run, "-n", "2")
    assert items == ["babyai_0", "babyai_1"]
    assert "the first of 6; -n takes more" in " ".join(said.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["replay", "nowhere", "--env", "babyai"], "found no --export"),
        (["replay", "nowhere"], "expected a trajectories.jsonl, a run folder or a folder of runs at 'nowhere'"),
        (["play", "--env", "chess"], "no environment is called 'chess'"),
        (["play", "--env", "textcraft", "--item", "textcraft_x"], "expected an item id such as 'textcraft_0', found 'textcraft_x'"),
        (["play", "--env", "textcraft", "--agent", "no/such/model"], "expected a model folder with config.json"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(arguments, message):
    error = CliRunner().invoke(app, arguments).exception
    assert message in (explain(error) or "")
