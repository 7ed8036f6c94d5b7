"""Experts and random agents in several processes: the same episodes as in one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds worker processes in /proc, which only Linux has")
def test_workers_end_with_a_killed_program(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "agentgym_lite.cli", "eval", "--agent", "random", "--only", "babyai", "-n", "50"]
    with subprocess.Popen([*program, "--workers", "2", "--out", str(tmp_path)], stderr=subprocess.DEVNULL) as run:
        started = _wait_for(lambda: [pid for pid in _children(run.pid) if b"spawn_main" in _command(pid)], 60)
        run.kill()
    assert started
    assert _wait_for(lambda: not any(b"spawn_main" in _command(pid) for pid in started), 20)


def _wait_for(condition: Callable[[], Any], seconds: float) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.1)
    return found


def _children(pid: int) -> list[int]:
    return [int(n) for task in Path(f"/proc/{pid}/task").glob("*/children") for n in task.read_text().split()]


def _command(pid: int) -> bytes:
    """Command line of a process; empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
