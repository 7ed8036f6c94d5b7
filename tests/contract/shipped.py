"""The environments of the package as parameters of tests; one that cannot run here is skipped and says how to get what it needs."""

from __future__ import annotations

import pytest

from agentgym_envs.core import environment_class, names
from agentgym_envs.sciworld import JavaNotFound, require_java


def _missing(name: str) -> str:
    try:
        if name == "sciworld":
            require_java()
    except JavaNotFound as e:
        return str(e)
    return ""


#: Those that run here, whatever else tests have registered.
SHIPPED = [n for n in names() if environment_class(n).__module__.startswith("agentgym_envs.")]
PLAYABLE = [n for n in SHIPPED if not _missing(n)]
PARAMETERS = [pytest.param(n, marks=pytest.mark.skipif(n not in PLAYABLE, reason=_missing(n) or "is here")) for n in SHIPPED]
