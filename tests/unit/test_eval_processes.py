"""Experts and random agents in several processes: the same episodes as in one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentgym_lite.evaluation import evaluate, load_suite, make_player
from agentgym_lite.evaluation.processes import SHARD


@pytest.mark.parametrize("agent", ["random"])
def test_workers_do_not_change_a_result(agent: str, tmp_path: Path) -> None:
    suite = load_suite("lite27")
    alone = evaluate(make_player(agent, seed=3), suite, tmp_path / "one", only=["textcraft/depth_1"])
    ended: list[int] = []
    spread = evaluate(
        make_player(agent, seed=3, workers=2),
        suite,
        tmp_path / "two",
        only=["textcraft/depth_1"],
        on_episode=lambda _, n, __: ended.append(n),
    )
    assert spread.to_dict() == alone.to_dict()
    assert ended == list(range(1, 32))
    assert len(ended) > SHARD
    lines = [(tmp_path / name / "trajectories.jsonl").read_text().splitlines() for name in ("one", "two")]
    one, two = ({json.loads(line)["spec"]["item_id"]: json.loads(line) for line in part} for part in lines)
    assert one == two
