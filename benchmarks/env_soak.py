"""Episodes without end: 5,000 in each environment, on a new object each, while the memory of the process is watched.

``python benchmarks/env_soak.py [ENV ...]`` writes ``benchmarks/results/env_soak.json`` and fails if the memory, of Java and other
processes below too, grows by more than 5 % after warm-up. Most episodes are ``STEPS`` actions of the random agent on the next item of the
training split; one in ten is the expert's, to the end, on an evaluation item: not every expert knows all training tasks.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from http_throughput import GROWTH, RESULTS, WARM_UP, circumstances
from sciworld_sessions import tree_kib

from agentgym_envs.agents import expert, random_agent
from agentgym_envs.core import environment_class, make, names

STEPS = 10
EXPERT_EVERY = 10
EXPERT_STEPS = 200
SAMPLES = 100  # of the memory


def soak(env: str, episodes: int) -> dict[str, Any]:
    """Play them in this process: growth after warm-up, memory, samples of it at equal distances, and rate."""
    cls = environment_class(env)
    items, for_experts = cls.items("train"), cls.items("eval")
    samples, steps, began = [], 0, time.perf_counter()
    for n in range(episodes):
        by_expert = n % EXPERT_EVERY == 0
        some = for_experts if by_expert else items
        steps += play(env, some[n // (EXPERT_EVERY if by_expert else 1) % len(some)], n, by_expert)
        if (n + 1) % max(1, episodes // SAMPLES) == 0:
            samples.append((n + 1, tree_kib(os.getpid())))
    seconds = time.perf_counter() - began
    rates = {"episodes_per_s": round(episodes / seconds, 1), "seconds": round(seconds, 1)}
    memory = {
        "growth": round(growth(samples), 4),
        "mib": round(samples[-1][1] / 1024, 1),
        "rss_kib": " ".join(str(kib) for _, kib in samples),
    }
    return {"episodes": episodes, "steps": steps, **rates, **memory}


def play(env: str, item: str, n: int, by_expert: bool) -> int:
    """One episode; the number of its steps."""
    core, steps = make(env), 0
    agent = expert(env) if by_expert else random_agent(env, seed=n)
    try:
        observation = core.reset(item, seed=n)
        agent.reset(observation, core.render)
        while steps < (EXPERT_STEPS if by_expert else STEPS):
            result = core.step(agent.act(observation).action)
            observation, steps = result.observation, steps + 1
            if result.done:
                break
    finally:
        core.close()
    return steps


def growth(samples: list[tuple[int, int]]) -> float:
    """The memory of the last tenth of the episodes to that of the tenth after warm-up: medians, as a sample may meet a collection."""
    last = samples[-1][0]
    after = [kib for n, kib in samples if WARM_UP * last < n <= (WARM_UP + 0.1) * last]
    end = [kib for n, kib in samples if n > 0.9 * last]
    return statistics.median(end) / statistics.median(after)


def in_own_process(env: str, episodes: int) -> dict[str, Any]:
    """``soak`` in a fresh process, whose memory is nobody else's."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(soak, env, episodes).result()


def main() -> int:
    """Soak and write; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("envs", nargs="*", default=names(), metavar="ENV", help=f"default: {' '.join(names())}")
    parser.add_argument("--episodes", type=int, default=5000)
    parser.add_argument("--out", type=Path, default=RESULTS / "env_soak.json", help="results of other environments in it are kept")
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    grown = []
    for env in args.envs:
        done = in_own_process(env, args.episodes)
        print(f"{env:10} {done['episodes']:>6} episodes  {done['steps']:>7} steps  {done['seconds']:>7.1f} s", end="  ")
        print(f"{done['mib']:7.1f} MiB  {done['growth'] - 1:+.2%} after warm-up (allowed {GROWTH - 1:.0%})", flush=True)
        results = json.loads(args.out.read_text()) if args.out.exists() else {}
        args.out.write_text(json.dumps(results | {env: done | circumstances()}, indent=1) + "\n")
        grown += [env] if done["growth"] > GROWTH else []
    return int(bool(grown))


if __name__ == "__main__":
    sys.exit(main())
