"""Experts and random agents in several processes: they compute in Python, which uses one core at a time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context, parent_process

from agentgym_envs.core import environment_class, register
from agentgym_lite.agents import RandomPolicy, Scaffold, TextPolicy, make_scaffold
from agentgym_lite.client import SessionPool
from agentgym_lite.rollout.types import EpisodeSpec, Trajectory, derive_seed

#: Episodes in one piece of work: few enough to keep all processes busy to the end, and to lose little when a run is killed.
SHARD = 8


def play_in_processes(
    agent: str,
    seed: int,
    scaffold: Mapping[str, str],
    specs: Sequence[EpisodeSpec],
    max_rounds: int,
    on_episode: Callable[[Trajectory], None],
    workers: int,
) -> None:
    """Play ``specs`` with local environments, each as in one process, and pass on the episodes as their shards end."""
    targets = {env: _target(env) for env in {s.env for s in specs}}
    ordered = sorted(specs, key=lambda s: s.env)  # a process loads what an environment needs once
    shards = [ordered[i : i + SHARD] for i in range(0, len(ordered), SHARD)]
    # Processes start afresh: a copy of this one would share its threads' locks and its connections to virtual machines.
    with ProcessPoolExecutor(min(workers, len(shards)), get_context("spawn"), _begin, (targets,)) as pool:
        futures = [pool.submit(_play_shard, agent, seed, dict(scaffold), shard, max_rounds) for shard in shards]
        try:
            for future in as_completed(futures):
                for episode in future.result():
                    on_episode(episode)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def make_policy(agent: str, seed: int, scaffold: Scaffold, spec: EpisodeSpec) -> TextPolicy:
    """A new policy for one episode: the environment's ``"expert"``, or its random agent with a seed made of ``seed`` and the episode."""
    from agentgym_lite.rollout.play import expert_policy

    if agent == "expert":
        return expert_policy(scaffold)(spec)
    return RandomPolicy(spec.env, derive_seed(seed, spec, 0), scaffold.formats(spec.env))


def _target(env: str) -> str:
    cls = environment_class(env)
    return f"{cls.__module__}:{cls.__qualname__}"


def _begin(targets: Mapping[str, str]) -> None:
    """Make environments known that the calling program registered, and end with that program, however it ends."""
    for name, target in targets.items():
        register(name, target)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A killed parent closes no pool: its workers, and the virtual machines that they own, would wait for work for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _play_shard(agent: str, seed: int, settings: Mapping[str, str], specs: Sequence[EpisodeSpec], max_rounds: int) -> list[Trajectory]:
    from agentgym_lite.rollout.play import play

    scaffold = make_scaffold(**settings)
    with ExitStack() as stack:
        pools = {env: stack.enter_context(SessionPool(env)) for env in sorted({s.env for s in specs})}
        return play(partial(make_policy, agent, seed, scaffold), specs, pools, max_rounds, scaffold=scaffold)
