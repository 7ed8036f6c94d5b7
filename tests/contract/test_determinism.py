"""The same (item, seed, actions) give the same answers in other processes, under other hash seeds and with any number of workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
from replaying import Answers, Script, answer, from_json, record, replay, replay_all, to_json
from shipped import PARAMETERS, PLAYABLE

from agentgym_envs.core import environment_class, make
from agentgym_envs.server import background_server
from agentgym_lite.client import SessionPool

#: Items of each split, and actions of each episode, in an environment whose steps are slow, and in the others.
SLOW_ENVS = {"sciworld"}
ITEMS, LENGTH = {True: 1, False: 3}, {True: 8, False: 20}
SECONDS = 300.0

pytestmark = pytest.mark.parametrize("name", PARAMETERS)


@cache
def scripts_of(name: str) -> list[Script]:
    """Random agents on items of both splits, experts on those of the evaluation split (not all know more), with seeds of their own."""
    slow, env, cls = name in SLOW_ENVS, make(name), environment_class(name)
    evaluated, trained = (ids[:: len(ids) // ITEMS[slow]][: ITEMS[slow]] for ids in (cls.items("eval"), cls.items("train")))
    cast = [*((item, "random") for item in (*evaluated, *trained)), *((item, "expert") for item in evaluated)]
    scripts = [record(env, item, seed, kind, LENGTH[slow]) for seed, (item, kind) in enumerate(cast)]
    env.close()
    return scripts


@cache
def answers_of(name: str) -> list[Answers]:
    return replay_all(scripts_of(name))


def elsewhere(scripts: Sequence[Script], hash_seed: int) -> list[Answers]:
    """The answers that another process gives."""
    command = [sys.executable, str(Path(__file__).with_name("replaying.py"))]
    variables = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    done = subprocess.run(command, input=to_json(scripts), capture_output=True, text=True, timeout=SECONDS, env=variables, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    answers: list[Answers] = json.loads(done.stdout)
    return answers


def assert_same(found: Sequence[Answers], name: str) -> None:
    for script, got, wanted in zip(scripts_of(name), found, answers_of(name), strict=True):
        for turn, (g, w) in enumerate(zip(got, wanted, strict=True)):
            assert g == w, f"{script.item}, seed {script.seed}, answer {turn} to {script.actions[:turn]}"


def test_scripts_say_something(name: str) -> None:
    scripts = scripts_of(name)
    assert from_json(to_json(scripts)) == scripts
    assert len({script.actions for script in scripts}) > len(scripts) / 2
    answers = answers_of(name)
    assert any(a[-2]["info"]["success"] for a in answers) or name in SLOW_ENVS, "experts arrive"
    assert len({json.dumps(a) for a in answers}) == len(scripts)


@pytest.mark.parametrize("hash_seed", [0, 4242])
def test_other_processes_and_hash_seeds(name: str, hash_seed: int) -> None:
    assert_same(elsewhere(scripts_of(name), hash_seed), name)


def test_one_object_for_all_episodes(name: str) -> None:
    """What was played before leaves nothing behind."""
    env = make(name)
    try:
        assert_same([replay(env, script) for script in scripts_of(name)], name)
    finally:
        env.close()


@pytest.fixture(scope="module")
def urls() -> Iterator[list[str]]:
    with background_server(PLAYABLE) as first, background_server(PLAYABLE) as second:
        yield [first, second]


@pytest.mark.parametrize(("servers", "workers"), [(1, 1), (1, 8), (2, 5)])
def test_any_number_of_workers_over_http(name: str, urls: list[str], servers: int, workers: int) -> None:
    scripts = scripts_of(name)
    with SessionPool(name, urls[:servers], timeout=SECONDS) as pool:
        found: list[Answers] = []
        for at in range(0, len(scripts), workers):
            found += together(pool, scripts[at : at + workers])
    assert_same(found, name)


def together(pool: SessionPool, scripts: Sequence[Script]) -> list[Answers]:
    """Episodes that are played at the same time, a step of each after the other."""
    started = [f.result() for f in [pool.start(script.item, script.seed) for script in scripts]]
    handles = [handle for handle, _ in started]
    answers = [[answer(observation)] for _, observation in started]
    for turn in range(max(len(script.actions) for script in scripts)):
        steps = [(i, pool.step(handles[i], s.actions[turn])) for i, s in enumerate(scripts) if turn < len(s.actions)]
        for i, step in steps:
            answers[i].append(answer(step.result()))
    for handle, done in zip(handles, answers, strict=True):
        done.append({"listed": pool.available_actions(handle).result(), "render": pool.render(handle).result()})
        pool.close(handle)
    return answers
