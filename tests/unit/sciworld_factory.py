"""What the SciWorld tests share: one small Java process for all of them, and the hint when there is no Java."""

from __future__ import annotations

from functools import cache

import pytest

from agentgym_envs.sciworld import JavaNotFound, JvmPool, SciWorld, require_java


def _missing() -> str:
    try:
        require_java()
    except JavaNotFound as e:
        return str(e)
    return ""


#: Marks tests that start the simulator; without Java they are skipped and say how to get it.
needs_java = pytest.mark.skipif(bool(_missing()), reason=_missing() or "Java is here")


@cache
def pool() -> JvmPool:
    """The pool that the tests of this process use together."""
    return JvmPool(1, heap_mb=512)


def new_env() -> SciWorld:
    return SciWorld(pool=pool())
