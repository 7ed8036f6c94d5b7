"""WebArena miniature: steps per second and reset time of the text browser and of Chromium, memory of 50 text sessions.

``python benchmarks/webarena_sessions.py`` writes ``benchmarks/results/webarena_sessions.json``; ``--no-chromium`` leaves Chromium out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from http_throughput import RESULTS, circumstances, resident_kib

from agentgym_envs.agents import expert
from agentgym_envs.webarena import WebArena
from agentgym_envs.webarena import tasks as miniature
from agentgym_envs.webarena.browser.chromium import executable

Episodes = list[tuple[str, list[str]]]


def main() -> int:
    """Run the benchmark; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=50)
    parser.add_argument("--episodes", type=int, default=200, help="expert episodes replayed with the text browser")
    parser.add_argument("--chromium-episodes", type=int, default=20)
    parser.add_argument("--no-chromium", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS / "webarena_sessions.json")
    args = parser.parse_args()
    started = time.perf_counter()
    items = WebArena.items("train")
    measured: dict[str, Any] = {"items": len(items) + len(WebArena.items("eval")), "build_ms": 1000 * (time.perf_counter() - started)}
    reading, changing = record(items[:: max(1, len(items) // args.episodes)])
    text = WebArena()
    measured["text"] = {"read_only": replay(text, reading), "state_changing": replay(text, changing)}
    measured["memory"] = memory(reading + changing, args.sessions)
    if not args.no_chromium and executable():
        drawn = WebArena(browser="chromium")
        some = (reading + changing)[:: max(1, (len(reading) + len(changing)) // args.chromium_episodes)]
        measured["chromium"] = replay(drawn, some)
        drawn.close()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({**measured, **circumstances()}, indent=2) + "\n")
    print(json.dumps(measured, indent=2))
    print(f"written to {args.out}")
    return 0


def record(items: list[str]) -> tuple[Episodes, Episodes]:
    """The expert's episodes on the items: those that only read, and those that change the database."""
    env, episodes = WebArena(), ([], [])  # type: tuple[WebArena, tuple[Episodes, Episodes]]
    for item in items:
        agent, observation, actions, done = expert("webarena"), env.reset(item), list[str](), False
        agent.reset(observation, env.render)
        while not done:
            actions.append(agent.act(observation).action)
            result = env.step(actions[-1])
            observation, done = result.observation, result.done
        template = miniature.tasks()[WebArena.item_index(item)].template
        episodes[template is not None and template.changes_state].append((item, actions))
    return episodes


def replay(env: WebArena, episodes: Episodes) -> dict[str, float]:
    """Steps per second, without the resets, and milliseconds per reset, the first observation included.

    Untouched pages are in the cache already, as in training. The rate per second of this process's own time does not depend on what
    else the machine does; with Chromium it leaves out Chromium's work.
    """
    resets, steps, begun, used = [], 0, time.perf_counter(), time.process_time()
    for item, actions in episodes:
        before = time.perf_counter()
        env.reset(item)
        resets.append(time.perf_counter() - before)
        for action in actions:
            env.step(action)
        steps += len(actions)
    used = time.process_time() - used
    return {
        "episodes": len(episodes),
        "steps": steps,
        "steps_per_second": steps / (time.perf_counter() - begun - sum(resets)),
        "steps_per_cpu_second": steps / used,
        "reset_ms_median": 1000 * statistics.median(resets),
    }


def memory(episodes: Episodes, sessions: int) -> dict[str, float]:
    """Resident memory of this process with so many sessions open, each in the middle of an episode (databases copied where written)."""
    before = resident_kib(os.getpid())
    envs = [WebArena() for _ in range(sessions)]
    for i, env in enumerate(envs):
        item, actions = episodes[-1 - i % len(episodes)]  # the changing ones first: they copy the database
        env.reset(item)
        for action in actions[:-1]:
            env.step(action)
    after = resident_kib(os.getpid())
    for env in envs:
        env.close()
    return {"sessions": sessions, "process_mb": after / 1024, "mb_per_session": (after - before) / 1024 / sessions}


if __name__ == "__main__":
    sys.exit(main())
