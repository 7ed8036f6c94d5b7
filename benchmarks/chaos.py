"""Rollouts over a network and a server that fail in 5 % of all steps: what is lost must be marked, and nothing stepped twice or left open.

``python benchmarks/chaos.py`` plays 10,000 steps and writes ``benchmarks/results/chaos.json``; it fails if a promise is broken.

Every action carries a number of its own and, in one of twenty, the name of a fault. Between client and server stands a proxy that strikes
the first request with such an action: it cuts the connection or answers 500, before or after the step is carried out, says nothing at
all, or kills the server, a process of its own, which is replaced by a fresh one. Two faults are the environment's: it raises, or hangs.
Requests that open and close sessions are struck too. A ledger on disk, which outlives the server, holds the number of every step that
was carried out.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import torch
from http_throughput import RESULTS, circumstances
from tally import LENGTH, Tally
from transformers import AutoTokenizer

from agentgym_envs.core import Observation
from agentgym_lite.agents import ChatRenderer, ReAct
from agentgym_lite.algorithms import ALGORITHMS
from agentgym_lite.client import SessionPool
from agentgym_lite.config import GRPOConfig
from agentgym_lite.rollout import EpisodeSpec, StopReason, Trajectory, play
from agentgym_lite.training.batch import Batch

SAMPLES, SESSIONS = 8, 32  # episodes of a group, episodes at a time
RATE = 0.05
TIMEOUT_S, RETRIES = 1.0, 5
DOWN_S = 0.3  # between a server's death and the next one
LEFT_S = 10.0  # for sessions to be closed at the end

#: Faults of the network, with their weights: what happens to the request, and whether the server gets to see it.
NETWORK = {"cut_before": 25, "cut_after": 25, "error_before": 15, "error_after": 15, "silent_before": 4, "silent_after": 4}
ENVIRONMENT = {"raises": 6, "hangs": 6}
DEATH = "dies"
FAULTS = {**NETWORK, **ENVIRONMENT}
TOKENIZER = Path(__file__).parents[1] / "data" / "models" / "tiny"


class Numbered:
    """A policy that says the next number of all and the fault that ``faults`` draws for it."""

    def __init__(self, numbers: Iterator[int], faults: Callable[[int], str]) -> None:
        self._numbers, self._faults = numbers, faults

    def reset(self, observation: Observation, render: Callable[[], dict[str, Any]]) -> None:
        pass

    def act(self, observation: Observation) -> str:
        number = next(self._numbers)
        return ReAct().render("next", f"{number} {self._faults(number)}".strip())


def draw_faults(steps: int, deaths: int, seed: int) -> Callable[[int], str]:
    """The fault of each number, or nothing: ``RATE`` of all, with ``deaths`` of the server spread evenly over ``steps``."""
    deadly = {round(steps * (i + 1) / (deaths + 1)) for i in range(deaths)}

    def draw(number: int) -> str:
        rng = random.Random(seed * 1_000_003 + number)
        fault = rng.choices(list(FAULTS), list(FAULTS.values()))[0] if rng.random() < RATE else ""
        return DEATH if number in deadly else fault

    return draw


class Server:
    """A server process of its own, ready when it has printed its address. ``kill`` gives it no time to say goodbye."""

    def __init__(self, ledger: Path) -> None:
        command = [sys.executable, str(Path(__file__).with_name("tally.py")), str(ledger)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self._port = 0

    @property
    def port(self) -> int:
        if not self._port:
            assert self._process.stdout is not None
            self._port = int(self._process.stdout.readline().rsplit(":", 1)[1])
        return self._port

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class FaultyNetwork:
    """Passes requests on to a server, but for those that it strikes. ``struck`` counts them by fault.

    The next server is started in advance, so that a restart takes ``DOWN_S``; meanwhile nobody listens at ``url``.
    """

    def __init__(self, ledger: Path, seed: int) -> None:
        self.struck: Counter[str] = Counter()
        self._ledger, self._rng = ledger, random.Random(seed)
        self._server, self._spare = Server(ledger), Server(ledger)
        self._seen: set[int] = set()
        self._calls: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="faulty-network", daemon=True)

    def __enter__(self) -> FaultyNetwork:
        self._thread.start()
        self._port = 0
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._hang_up(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._server.kill()
        self._spare.kill()

    @property
    def url(self) -> str:
        """Where clients reach the server through this network."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def server_url(self) -> str:
        """The living server itself."""
        return f"http://127.0.0.1:{self._server.port}"

    async def _listen(self) -> None:
        await asyncio.to_thread(lambda: self._server.port)
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", self._port, limit=1 << 22)
        self._port = self._listener.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):  # cancelled: the server died
                while await self._exchange(reader, writer):
                    pass
        finally:
            self._calls.discard(task)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its reply, if it gets one; whether the connection lives on."""
        request = await _message(reader)
        fault = self._fault(request)
        self.struck.update([fault] if fault else [])
        what, _, when = fault.partition("_")
        if fault == DEATH:
            self._loop.create_task(self._restart())
            return False
        reply = b"" if when == "before" else await self._forward(request)
        if what == "silent":
            await asyncio.sleep(2 * TIMEOUT_S)
        if what in ("cut", "silent"):
            return False
        if what == "error":
            reply = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 6\r\n\r\nbroken"
        writer.write(reply)
        await writer.drain()
        return True

    def _fault(self, request: bytes) -> str:
        for number, word in re.findall(rb'"action": "(\d+) (\w+)"', request):
            if int(number) not in self._seen and word.decode() in (*NETWORK, DEATH):
                self._seen.add(int(number))
                return str(word.decode())
        opens_or_closes = re.match(rb"POST /\w+/(create|close) ", request)
        return self._rng.choice(list(NETWORK)[:4]) if opens_or_closes and self._rng.random() < RATE else ""

    async def _forward(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server.port, limit=1 << 22)
        try:
            writer.write(request)
            return await _message(reader)
        finally:
            writer.close()

    async def _hang_up(self) -> None:
        self._listener.close()
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    async def _restart(self) -> None:
        self._listener.close()
        for call in self._calls:
            call.cancel("the server died")
        await asyncio.to_thread(self._server.kill)
        await asyncio.sleep(DOWN_S)
        self._server, self._spare = self._spare, Server(self._ledger)
        await self._listen()


async def _message(reader: asyncio.StreamReader) -> bytes:
    """A whole HTTP message whose head tells its length."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
    return head + (await reader.readexactly(int(length[1])) if length else b"")


@dataclass
class Run:
    """What happened: the episodes as asked for and as played, the ledger's (number, episode, place) and the sessions that stayed open."""

    specs: Sequence[EpisodeSpec]
    trajectories: Sequence[Trajectory]
    ledger: Sequence[tuple[int, str, int]]
    sessions_left: int
    actions: int
    seconds: float
    struck: Counter[str] = field(default_factory=Counter)


def run(steps: int, deaths: int, seed: int = 0) -> Run:
    """Play at least ``steps`` steps in groups of ``SAMPLES`` episodes through a faulty network."""
    groups = -(-steps // (LENGTH * SAMPLES))
    specs = [EpisodeSpec(Tally.name, f"tally_{g}", seed, k) for g in range(groups) for k in range(SAMPLES)]
    numbers, faults = count(), draw_faults(steps, deaths, seed)
    renderer = ChatRenderer(AutoTokenizer.from_pretrained(TOKENIZER))
    with tempfile.TemporaryDirectory() as folder, FaultyNetwork(Path(folder, "ledger"), seed) as network:
        began = time.perf_counter()
        with SessionPool(Tally.name, network.url, timeout=TIMEOUT_S, retries=RETRIES) as pool:
            trajectories = play(
                lambda spec: Numbered(numbers, faults), specs, {Tally.name: pool}, LENGTH, renderer=renderer, max_sessions=SESSIONS
            )
            seconds = time.perf_counter() - began
        left = sessions_left(network.server_url)
        lines = [line.split() for line in Path(folder, "ledger").read_text().splitlines()]
        ledger = [(int(number), episode, int(place)) for number, episode, place in lines]
        return Run(specs, trajectories, ledger, left, next(numbers), seconds, network.struck)


def sessions_left(url: str) -> int:
    """Open sessions of the server, once those that are on their way out are gone."""
    deadline = time.monotonic() + LEFT_S
    while (left := int(httpx.get(f"{url}/{Tally.name}/health").json()["sessions"])) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def broken_promises(run: Run) -> dict[str, int]:
    """How often each promise was broken."""
    times = Counter(number for number, _, _ in run.ledger)
    place = {number: (episode, k) for number, episode, k in run.ledger}
    failed = [t for t in run.trajectories if t.stop_reason is StopReason.ENV_ERROR]
    good = [t for t in run.trajectories if t.stop_reason is not StopReason.ENV_ERROR]
    out_of_order = wrong_answers = 0
    for t in good:
        said = [int(str(turn.action).split()[0]) for turn in t.turns]
        places = [place.get(n) for n in said]
        out_of_order += len({p[0] for p in places if p}) != 1 or [p and p[1] for p in places] != list(range(1, LENGTH + 1))
        shown = [turn.observation for turn in t.turns] + [t.final_observation]
        wrong_answers += shown != ["Begin.", *(f"Took {n}." for n in said)]
    return {
        "stepped_twice": sum(n > 1 for n in times.values()),
        "steps_out_of_order": out_of_order,
        "wrong_answers": wrong_answers,
        "episodes_missing": len(run.specs) - sum(t.spec == s for t, s in zip(run.trajectories, run.specs, strict=False)),
        "failures_unmarked": sum("env_error" not in t.info or t.trainable for t in failed) + sum("env_error" in t.info for t in good),
        "wrong_baselines": wrong_baselines(run.trajectories),
        "sessions_left": run.sessions_left,
    }


def wrong_baselines(trajectories: Sequence[Trajectory]) -> int:
    """Episodes whose GRPO advantage is not their reward less the mean reward of those of their group that did not fail."""
    batch = Batch.from_trajectories(trajectories)
    config = GRPOConfig(normalize_std=False)
    advantages = ALGORITHMS["grpo"].credit(batch.samples, config).advantages
    got = (advantages * batch.mask).sum(-1) / batch.mask.sum(-1)
    good = [t for t in trajectories if t.stop_reason is not StopReason.ENV_ERROR]
    rewards: dict[tuple[str, str, int], list[float]] = {}
    for t in good:
        rewards.setdefault(t.spec.group, []).append(t.reward)
    wanted = torch.tensor([t.reward - sum(rewards[t.spec.group]) / len(rewards[t.spec.group]) for t in good])
    return abs(len(good) - len(got)) or int((got - wanted).abs().gt(1e-5).sum())


def main() -> int:
    """Run, check and write; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--deaths", type=int, default=5, help="times that the server is killed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds in which all episodes must have ended")
    parser.add_argument("--out", type=Path, default=RESULTS / "chaos.json")
    args = parser.parse_args()
    done = run(args.steps, args.deaths, args.seed)
    broken = broken_promises(done) | {"out_of_time": int(done.seconds > args.limit)}
    drawn = Counter(filter(None, map(draw_faults(args.steps, args.deaths, args.seed), range(done.actions))))
    report = {
        "actions": done.actions,
        "steps_carried_out": len(done.ledger),
        "faults_drawn": dict(drawn),
        "requests_struck": dict(done.struck),
        "episodes": dict(Counter(t.stop_reason.value for t in done.trajectories)),
        "seconds": round(done.seconds, 1),
        "limit_s": args.limit,
        "broken_promises": broken,
    }
    print(json.dumps(report, indent=2))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report | circumstances(), indent=2) + "\n")
    return int(any(broken.values()))


if __name__ == "__main__":
    sys.exit(main())
