"""Our server and AgentGym's, 32 sessions each, the same items and actions: steps per second over HTTP, processor time, memory.

Get a checkout of https://github.com/WooooDyy/AgentGym and make an environment in which its servers run, of Python 3.11 for instance::

    python -m venv peer
    peer/bin/pip install fastapi uvicorn gym "gymnasium<1.0.0" matplotlib "minigrid<2.5.0" scienceworld "numpy<2"   # sciworld: and Java
    python benchmarks/side_by_side.py textcraft babyai sciworld --agentgym AgentGym --python peer/bin/python

It writes ``benchmarks/results/side_by_side.json``. Both servers get literally the same requests, one per step and session, as ours speaks
AgentGym's protocol too (``same_requests``); then ours is driven as this library's own client does it, with the steps of all sessions that
wait together in one request (``own_client``). Resets are not counted. Processor time is that of the server alone: on a machine that is
busy with other things, its ratio says more than that of the rates.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from http_throughput import EPISODE, RESULTS, circumstances, server
from sciworld_sessions import agentgym_number, tree_kib

from agentgym_envs.agents import expert, random_agent
from agentgym_envs.core import environment_class, make
from agentgym_lite.client import SessionPool

START_S = 300.0


@dataclass(frozen=True)
class Script:
    """What a session does, again and again: an item, its number in requests, and actions that do not end the episode."""

    item: str
    number: int
    actions: tuple[str, ...]


def record(env: str, sessions: int) -> list[Script]:
    """Random actions; in SciWorld, where most of those are refused at once, the expert's."""
    core, cls = make(env), environment_class(env)
    items = cls.items("eval" if env == "sciworld" else "train")
    scripts = []
    for i in range(sessions):
        item = items[i * len(items) // sessions]
        agent = expert(env) if env == "sciworld" else random_agent(env, seed=i)
        observation, actions = core.reset(item), []
        agent.reset(observation, core.render)
        while len(actions) < EPISODE:
            action = agent.act(observation).action
            result = core.step(action)
            observation = result.observation
            if result.done:
                break
            actions.append(action)
        scripts.append(Script(item, cls.item_index(item), tuple(actions or ["inventory"])))
    core.close()
    return scripts


class Connection:
    """One kept-alive connection, on a bare socket: httpx's pool costs more than some of the servers measured here."""

    def __init__(self, port: int, prefix: str) -> None:
        self._port, self._prefix = port, prefix
        self._reader: asyncio.StreamReader | None = None

    async def post(self, endpoint: str, body: dict[str, Any]) -> Any:
        """The answer to one request. Raises ``RuntimeError`` for an error, AgentGym's in answers of status 200 included."""
        if self._reader is None or self._reader.at_eof():  # its server hangs up after 5 idle seconds
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        content = json.dumps(body).encode()
        head = f"POST {self._prefix}/{endpoint} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self._writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        reply = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        answer = json.loads(await self._reader.readexactly(int(reply.split("content-length:")[1].split()[0])))
        if not reply.startswith("http/1.1 200") or (isinstance(answer, dict) and "error" in answer):
            raise RuntimeError(f"{endpoint}: {answer}")
        return answer

    def close(self) -> None:
        self._writer.close()


async def same_requests(port: int, prefix: str, scripts: Sequence[Script], seconds: float, used: Callable[[], int]) -> dict[str, Any]:
    """AgentGym's protocol, every session on a connection of its own and at its own pace; ``used`` is the server's memory in KiB."""
    connections = [Connection(port, prefix) for _ in scripts]
    ids = [(created if isinstance(created := await c.post("create", {}), int) else created["id"]) for c in connections]
    spent, taken = [0.0] * len(scripts), [0] * len(scripts)

    async def drive(i: int) -> None:
        script, post = scripts[i], connections[i].post
        while spent[i] < seconds:
            await post("reset", {"id": ids[i], "data_idx": script.number})
            began = time.perf_counter()
            for action in script.actions:
                taken[i] += 1
                if (await post("step", {"id": ids[i], "action": action}))["done"]:  # another item there: the goal came early
                    break
            spent[i] += time.perf_counter() - began

    await asyncio.gather(*map(drive, range(len(scripts))))
    mib = used() / 1024
    for connection in connections:  # the server is about to be stopped: its sessions need no goodbye
        connection.close()
    rate = sum(n / s for n, s in zip(taken, spent, strict=True))
    return {"steps": sum(taken), "steps_per_s": round(rate, 1), "mib": round(mib, 1), "mib_per_session": round(mib / len(scripts), 2)}


def own_client(env: str, url: str, scripts: Sequence[Script], seconds: float) -> dict[str, Any]:
    """``SessionPool``: a step of every session is submitted, then all are waited for."""
    with SessionPool(env, url, timeout=START_S) as pool:
        handles = [f.result()[0] for f in [pool.start(s.item) for s in scripts]]
        spent, taken = 0.0, 0
        while spent < seconds:
            began = time.perf_counter()
            for turn in range(EPISODE):
                futures = [pool.step(h, s.actions[turn]) for h, s in zip(handles, scripts, strict=True) if turn < len(s.actions)]
                taken += len([f.result() for f in futures])
            spent += time.perf_counter() - began
            for future in [pool.reset(h, s.item) for h, s in zip(handles, scripts, strict=True)]:
                future.result()
    return {"steps": taken, "steps_per_s": round(taken / spent, 1)}


def cpu_s(pid: int) -> float:
    """Seconds of processor time that a process and its living children have used (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = [c for task in Path(f"/proc/{pid}/task").iterdir() for c in (task / "children").read_text().split()]
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + sum(cpu_s(int(c)) for c in children)


@contextlib.contextmanager
def agentgym_server(env: str, checkout: Path, python: Path) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """AgentGym's server of one environment, started as its own command does; gives its port when it answers."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    code = f"from agentenv_{env} import launch; launch()"
    command = [str(python.absolute()), "-c", code, "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(command, cwd=checkout / f"agentenv-{env}", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"AgentGym's server of {env} did not start; try: cd {checkout}/agentenv-{env}; {python} -c '{code}'")
            time.sleep(0.2)
        yield port, process
    finally:
        process.terminate()
        process.wait()


def measured(pid: int, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The row of ``work`` with the server's processor time per step, resets included."""
    before = cpu_s(pid)
    row = work()
    return row | {"cpu_ms_per_step": round((cpu_s(pid) - before) / row["steps"] * 1e3, 4)}


def compare(env: str, args: argparse.Namespace) -> dict[str, Any]:
    """The rows of one environment, and how many times better ours is."""
    scripts = record(env, args.sessions)
    some = scripts
    if env == "sciworld":
        some = [replace(s, number=agentgym_number(s.number)) for s in scripts[: args.sciworld_sessions]]
    rows: dict[str, Any] = {}
    with agentgym_server(env, args.agentgym, args.python) as (port, process):
        pid = process.pid
        used = lambda: tree_kib(pid)  # noqa: E731
        rows["agentgym"] = measured(pid, lambda: asyncio.run(same_requests(port, "", some, args.seconds, used)))
        rows["agentgym"]["sessions"] = len(some)
    with server(env) as (url, ours):
        pid, port = ours.pid, int(url.rsplit(":", 1)[1])
        used = lambda: tree_kib(pid)  # noqa: E731
        rows["same_requests"] = measured(pid, lambda: asyncio.run(same_requests(port, f"/agentgym/{env}", scripts, args.seconds, used)))
        rows["own_client"] = measured(pid, lambda: own_client(env, url, scripts, args.seconds))
    theirs = rows["agentgym"]
    for name in ("same_requests", "own_client"):
        row = rows[name]
        row["times_faster"] = round(row["steps_per_s"] / theirs["steps_per_s"], 1)
        row["times_less_cpu"] = round(theirs["cpu_ms_per_step"] / row["cpu_ms_per_step"], 1)
    rows["same_requests"]["times_less_memory"] = round(theirs["mib_per_session"] / rows["same_requests"]["mib_per_session"], 1)
    for name, row in rows.items():
        print(f"{env:10} {name:14}", *(f"{k} {v}" for k, v in row.items()), sep="  ", flush=True)
    return rows


def main() -> int:
    """Compare and write; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("envs", nargs="+", choices=["textcraft", "babyai", "sciworld"])
    parser.add_argument("--agentgym", type=Path, required=True, help="checkout of AgentGym")
    parser.add_argument("--python", type=Path, required=True, help="interpreter with its servers' packages")
    parser.add_argument("--sessions", type=int, default=32)
    parser.add_argument("--sciworld-sessions", type=int, default=32, help="for AgentGym's server: fewer where 32 GiB are not there")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each measurement, resets not counted")
    parser.add_argument("--out", type=Path, default=RESULTS / "side_by_side.json", help="results of other environments in it are kept")
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    for env in args.envs:
        results = json.loads(args.out.read_text()) if args.out.exists() else {}
        results[env] = compare(env, args) | circumstances()
        results[env]["versions"] |= {name: version(name) for name in ("uvloop", "httptools") if find_spec(name)}  # what uvicorn takes up
        args.out.write_text(json.dumps(results, indent=2) + "\n")
    print(f"written to {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
