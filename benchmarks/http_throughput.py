"""Steps per second over HTTP: parallel TextCraft sessions, server in a process of its own, batched and single requests.

``python benchmarks/http_throughput.py`` writes ``benchmarks/results/http_throughput.json``; ``--soak 100000`` takes that many steps
instead, starting episodes afresh all the time, watches the server's memory and fails if it grows by more than 5 % after warm-up.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx

from agentgym_envs.agents import random_agent
from agentgym_envs.core import environment_class, make
from agentgym_lite.client import EnvClient, SessionPool

RESULTS = Path(__file__).parent / "results"
GROWTH = 1.05  # of the server's memory after warm-up
WARM_UP = 0.2  # share of the soak
EPISODE = 30  # steps, the paper's limit for TextCraft


def main() -> int:
    """Run the benchmark or the soak; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="textcraft")
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each measurement")
    parser.add_argument("--soak", type=int, metavar="STEPS", help="take this many batched steps and watch the server's memory")
    parser.add_argument("--out", type=Path, help="JSON file (default under benchmarks/results/)")
    args = parser.parse_args()
    episodes = record(args.env, args.sessions)
    with server(args.env) as (url, process):
        if args.soak:
            measured, ok = soak(args.env, url, process.pid, episodes, args.soak)
        else:
            measured, ok = throughput(args.env, url, episodes, args.seconds), True
    out = args.out or RESULTS / ("http_soak.json" if args.soak else "http_throughput.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"env": args.env, "sessions": args.sessions, **measured, **circumstances()}, indent=2) + "\n")
    print(f"written to {out}")
    return 0 if ok else 1


Episodes = list[tuple[str, list[str]]]


def record(env: str, sessions: int) -> Episodes:
    """One item and ``EPISODE`` actions of the random agent per session, made in advance so that only the transport is measured."""
    items = environment_class(env).items("train")
    episodes = []
    for i in range(sessions):
        core, agent, item = make(env), random_agent(env, seed=i), items[i % len(items)]
        observation = core.reset(item)
        agent.reset(observation, core.render)
        actions = []
        for _ in range(EPISODE):
            actions.append(agent.act(observation).action)
            observation = core.step(actions[-1]).observation
        core.close()
        episodes.append((item, actions))
    return episodes


@contextlib.contextmanager
def server(env: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server process; gives its address as printed when it is ready."""
    command = [sys.executable, "-m", "agentgym_envs.server", env, "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield next(word for word in process.stdout.readline().split() if word.startswith("http://")), process
    finally:
        process.terminate()
        process.wait()


def throughput(env: str, url: str, episodes: Episodes, seconds: float) -> dict[str, Any]:
    """Rates and latencies of three ways to drive the same sessions."""
    measured = {
        "batched": batched(env, url, episodes, seconds),
        "single_concurrent": asyncio.run(single_concurrent(env, url, episodes, seconds)),
        "single_sequential": single_sequential(env, url, episodes, seconds),
    }
    for name, row in measured.items():
        print(f"{name:18} {row['steps_per_s']:>9.0f} steps/s   p50 {row['p50_ms']:7.2f} ms   p95 {row['p95_ms']:7.2f} ms")
    return measured


def batched(env: str, url: str, episodes: Episodes, seconds: float) -> dict[str, float]:
    """``SessionPool``: one step of every session is submitted, then all are waited for (latency is of the whole round)."""
    with SessionPool(env, url) as pool:
        handles = [f.result()[0] for f in [pool.start(item) for item, _ in episodes]]
        began, times, turn = time.perf_counter(), [], 0
        while time.perf_counter() - began < seconds:
            start = time.perf_counter()
            for future in [pool.step(h, actions[turn % EPISODE]) for h, (_, actions) in zip(handles, episodes, strict=True)]:
                future.result()
            times.append(time.perf_counter() - start)
            turn += 1
        return row(turn * len(handles), time.perf_counter() - began, times)


async def single_concurrent(env: str, url: str, episodes: Episodes, seconds: float) -> dict[str, float]:
    """One request per step, every session on a connection of its own, at its own pace.

    Bare sockets, because the server is what is measured: httpx's pool slows down steeply with the number of open connections.
    """
    host, port = url.removeprefix("http://").split(":")
    times: list[float] = []
    began = time.perf_counter()

    async def drive(item: str, actions: list[str]) -> None:
        reader, writer = await asyncio.open_connection(host, int(port))

        async def post(endpoint: str, body: dict[str, Any]) -> dict[str, Any]:
            content = json.dumps(body).encode()
            writer.write(f"POST /{env}/{endpoint} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            answer = json.loads(await reader.readexactly(int(head.split("content-length:")[1].split()[0])))
            assert head.startswith("http/1.1 200"), answer
            return answer

        session, turn = (await post("create", {"item_id": item}))["id"], 0
        while time.perf_counter() - began < seconds:
            start = time.perf_counter()
            await post("step", {"id": session, "action": actions[turn % EPISODE], "turn": turn})
            times.append(time.perf_counter() - start)
            turn += 1
        await post("close", {"id": session})
        writer.close()

    await asyncio.gather(*(drive(*episode) for episode in episodes))
    return row(len(times), time.perf_counter() - began, times)


def single_sequential(env: str, url: str, episodes: Episodes, seconds: float) -> dict[str, float]:
    """``EnvClient``: one session, one step after the other."""
    item, actions = episodes[0]
    with EnvClient(env, url) as client:
        client.reset(item)
        began, times = time.perf_counter(), []
        while time.perf_counter() - began < seconds:
            start = time.perf_counter()
            client.step(actions[len(times) % EPISODE])
            times.append(time.perf_counter() - start)
        return row(len(times), time.perf_counter() - began, times)


def row(steps: int, elapsed: float, times: list[float]) -> dict[str, float]:
    percentiles = statistics.quantiles(times, n=20)
    ms = {"p50_ms": round(percentiles[9] * 1e3, 3), "p95_ms": round(percentiles[18] * 1e3, 3)}
    return {"steps": steps, "seconds": round(elapsed, 3), "steps_per_s": round(steps / elapsed, 1), **ms}


def soak(env: str, url: str, pid: int, episodes: Episodes, steps: int) -> tuple[dict[str, Any], bool]:
    """Whole episodes on fresh sessions until ``steps`` are taken; memory must stay flat after warm-up and no session be left."""
    samples, taken, began = [], 0, time.perf_counter()
    with SessionPool(env, url) as pool:
        while taken < steps:
            handles = [f.result()[0] for f in [pool.start(item, seed=taken) for item, _ in episodes]]
            for turn in range(EPISODE):
                for future in [pool.step(h, actions[turn]) for h, (_, actions) in zip(handles, episodes, strict=True)]:
                    future.result()
            for future in [pool.close(h) for h in handles]:
                future.result()
            taken += EPISODE * len(handles)
            samples.append((taken, resident_kib(pid)))
            if len(samples) % max(1, steps // (EPISODE * len(handles) * 10)) == 0:
                print(f"{taken:>9} steps   {samples[-1][1] / 1024:8.1f} MiB", flush=True)
    warm = next(kib for n, kib in samples if n >= WARM_UP * steps)
    growth, left = samples[-1][1] / warm, httpx.get(f"{url}/{env}/health").json()["sessions"]
    ok = growth <= GROWTH and left == 0
    rate = taken / (time.perf_counter() - began)
    print(f"memory grew by {growth - 1:+.2%} after warm-up (allowed {GROWTH - 1:.0%}), {left} sessions left, {rate:.0f} steps/s")
    return {"steps": taken, "steps_per_s": round(rate, 1), "growth": growth, "sessions_left": left, "rss_kib": samples}, ok


def resident_kib(pid: int) -> int:
    """Resident memory of a process, in KiB (Linux)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def circumstances() -> dict[str, Any]:
    """What a reader needs to judge and repeat the figures."""
    models = [line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "command": " ".join(["python", *sys.argv]),
        "cpu": models[0] if models else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load_average": os.getloadavg()[0],
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("agentgym-envs", "agentgym-lite", "fastapi", "starlette", "uvicorn", "httpx")},
    }


if __name__ == "__main__":
    sys.exit(main())
