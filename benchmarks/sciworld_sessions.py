"""SciWorld sessions: steps per second and memory of ours and of the usual way, which is a Java process and a list of all actions each.

``python benchmarks/sciworld_sessions.py`` measures our server over HTTP and the package's ``ScienceWorldEnv`` in this process, and writes
``benchmarks/results/sciworld_sessions.json``. With ``--agentgym URL --agentgym-pid PID`` it measures a running server of AgentGym's
``agentenv-sciworld`` too, over HTTP with the same items and actions.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from http_throughput import RESULTS, circumstances, resident_kib, server

from agentgym_envs.agents import expert
from agentgym_envs.sciworld import SciWorld, tasks

ROUNDS = 30  # actions recorded per session at most: what the experts need on the suite


class Target(Protocol):
    """One session of what is measured."""

    def reset(self, item: int) -> None: ...

    def step(self, action: str) -> None: ...

    def close(self) -> None: ...


class Http:
    """One keep-alive connection, on the standard library: heavier clients would be much of what is measured."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._path, self._connection = address.path, HTTPConnection(address.hostname or "", address.port, timeout=600)
        self._used = time.monotonic()

    def post(self, endpoint: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer, which must be no error."""
        if time.monotonic() - self._used > 4.0:  # uvicorn ends connections that are idle for 5 seconds
            self._connection.close()
        headers = {"Content-Type": "application/json"}
        self._connection.request("POST", f"{self._path}/{endpoint}", json.dumps(body), headers)
        response = self._connection.getresponse()
        answer: Any = json.loads(response.read())
        self._used = time.monotonic()
        assert response.status == 200, answer
        assert answer is True or "error" not in answer, answer
        return answer if isinstance(answer, dict) else {}

    def hang_up(self) -> None:
        self._connection.close()


class Ours:
    """A session of our server, one HTTP request per step."""

    def __init__(self, url: str) -> None:
        self._http = Http(f"{url}/sciworld")
        self._id = self._http.post("create", {})["id"]

    def reset(self, item: int) -> None:
        self._http.post("reset", {"id": self._id, "item_id": item})

    def step(self, action: str) -> None:
        self._http.post("step", {"id": self._id, "action": action})

    def close(self) -> None:
        self._http.post("close", {"id": self._id})
        self._http.hang_up()


class AgentGym:
    """A session of AgentGym's server."""

    def __init__(self, url: str) -> None:
        self._http = Http(url)
        self._id = self._http.post("create", {})["id"]

    def reset(self, item: int) -> None:
        self._http.post("reset", {"id": self._id, "data_idx": agentgym_number(item)})

    def step(self, action: str) -> None:
        self._http.post("step", {"id": self._id, "action": action})

    def close(self) -> None:
        self._http.post("close", {"id": self._id})
        self._http.hang_up()


class Package:
    """The package's own environment, in this process."""

    def __init__(self) -> None:
        from scienceworld import ScienceWorldEnv

        self._env = ScienceWorldEnv()

    def reset(self, item: int) -> None:
        task, variation = tasks.locate(item)
        self._env.load(task.name, variation)
        self._env.reset()

    def step(self, action: str) -> None:
        self._env.step(action)

    def close(self) -> None:
        self._env.close()


def agentgym_number(item: int) -> int:
    """AgentGym's server counts the 300 variations of task 2-3 too."""
    return item if item < 1096 else item + 300


def record(sessions: int) -> list[tuple[int, list[str]]]:
    """An evaluation item per session and the expert's actions on it, without the last: no episode ends while it is measured."""
    env, episodes = SciWorld(), []
    for item in tasks.eval_items()[:: len(tasks.eval_items()) // sessions][:sessions]:
        agent, observation, actions, done = expert("sciworld"), env.reset(item), [], False
        agent.reset(observation, env.render)
        while not done and len(actions) < ROUNDS:
            actions.append(agent.act(observation).action)
            result = env.step(actions[-1])
            observation, done = result.observation, result.done
        episodes.append((item, actions[:-1] or ["look around"]))
    env.close()
    return episodes


def measure(new: Callable[[], Target], episodes: list[tuple[int, list[str]]], seconds: float, pid: int, own: int = 0) -> dict[str, Any]:
    """Every session in a thread of its own takes its actions again and again; resets are not counted.

    Then all take their actions once more, for the processor time per step of the process ``pid`` and of all below it, which says more
    than the rate where other programs run. Of their memory, ``own`` KiB are not counted.
    """
    targets = [new() for _ in episodes]
    rates = [0.0] * len(targets)

    def drive(i: int, seconds: float) -> None:
        item, actions = episodes[i]
        spent, taken = 0.0, 0
        while not taken or spent < seconds:
            began = time.perf_counter()
            for action in actions:
                targets[i].step(action)
            spent += time.perf_counter() - began
            taken += len(actions)
            if seconds:
                targets[i].reset(item)
        rates[i] = taken / spent

    def all_drive(seconds: float) -> None:
        threads = [threading.Thread(target=drive, args=(i, seconds)) for i in range(len(targets))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    for target, (item, _) in zip(targets, episodes, strict=True):
        target.reset(item)
    all_drive(seconds)
    rate, mib, cpu = sum(rates), (tree_kib(pid) - own) / 1024, tree_cpu_s(pid)
    all_drive(0.0)
    cpu_ms = (tree_cpu_s(pid) - cpu) / sum(len(actions) for _, actions in episodes) * 1e3
    for target in targets:
        target.close()
    row = {"sessions": len(targets), "steps_per_s": round(rate, 1), "cpu_ms_per_step": round(cpu_ms, 2)}
    return row | {"mib": round(mib), "mib_per_session": round(mib / len(targets), 1)}


def below(pid: int) -> list[int]:
    """The process and all that it started, directly or not (Linux)."""
    children = [int(c) for task in Path(f"/proc/{pid}/task").iterdir() for c in (task / "children").read_text().split()]
    return [pid, *(p for child in children for p in below(child))]


def tree_cpu_s(pid: int) -> float:
    """Processor time of these processes so far, in seconds."""
    fields = [Path(f"/proc/{p}/stat").read_text().rpartition(")")[2].split() for p in below(pid)]
    return sum(int(f[11]) + int(f[12]) for f in fields) / os.sysconf("SC_CLK_TCK")


def tree_kib(pid: int) -> int:
    """Resident memory of these processes, in KiB."""
    return sum(map(resident_kib, below(pid)))


def main() -> int:
    """Measure and write; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=32)
    parser.add_argument("--package-sessions", type=int, default=2, help="about 1 GiB each")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of each measurement")
    parser.add_argument("--agentgym", metavar="URL", help="a running server of agentenv-sciworld")
    parser.add_argument("--agentgym-pid", type=int, help="its process, for the memory")
    parser.add_argument("--agentgym-sessions", type=int, default=32, help="fewer where 32 GiB are not there: two cores are busy with four")
    parser.add_argument("--out", type=Path, default=RESULTS / "sciworld_sessions.json")
    args = parser.parse_args()
    episodes = record(args.sessions)
    measured: dict[str, Any] = {}
    with server("sciworld") as (url, process):
        measured["ours_http"] = measure(lambda: Ours(url), episodes, args.seconds, process.pid)
    if args.agentgym:
        pid = args.agentgym_pid or parser.error("--agentgym needs --agentgym-pid")
        some = episodes[: args.agentgym_sessions]
        measured["agentgym_http"] = measure(lambda: AgentGym(args.agentgym), some, args.seconds, pid)
    own = tree_kib(os.getpid())
    few = episodes[: args.package_sessions]
    measured["package_in_process"] = measure(Package, few, args.seconds, os.getpid(), own)
    ours = measured["ours_http"]
    for name, row in measured.items():
        row["steps_per_s_of_ours"] = round(ours["steps_per_s"] / row["steps_per_s"], 1)
        row["cpu_to_ours"] = round(row["cpu_ms_per_step"] / ours["cpu_ms_per_step"], 1)
        row["memory_to_ours"] = round(row["mib_per_session"] / ours["mib_per_session"], 1)
        print(
            f"{name:20} {row['sessions']:>3} sessions {row['steps_per_s']:>8.1f} steps/s {row['cpu_ms_per_step']:>7.2f} ms of CPU per step "
            f"{row['mib_per_session']:>7.1f} MiB per session"
        )
    facts = circumstances()
    facts["versions"] |= {name: version(name) for name in ("scienceworld", "py4j")}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({**measured, **facts}, indent=2) + "\n", encoding="utf-8")
    print(f"written to {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
