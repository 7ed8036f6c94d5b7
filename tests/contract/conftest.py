"""Servers for the contract tests: real uvicorn in threads of this process, started once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import fake_envs
import pytest

from agentgym_envs.core import environment_class, names
from agentgym_envs.sciworld import JavaNotFound, require_java
from agentgym_envs.server import background_server
from agentgym_lite.client import EnvClient
from agentgym_lite.probes import register_probes

register_probes()
#: Every environment of the package must keep the contract, of the fakes the one that means to, and of the probes one of each length.
CONTRACT_ENVS = [
    *(n for n in names() if environment_class(n).__module__.startswith("agentgym_envs.")),
    fake_envs.Counter.name,
    "probe_both",
    "probe_credit",
]
SERVED = [*CONTRACT_ENVS, fake_envs.Trouble.name, fake_envs.Sleepy.name]


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    with background_server(SERVED) as address:
        yield address


@pytest.fixture(scope="session")
def second_url() -> Iterator[str]:
    with background_server(SERVED) as address:
        yield address


@pytest.fixture(scope="session", params=["local", "http", "two servers"])
def where(request: pytest.FixtureRequest) -> str | list[str]:
    """The url argument of clients: in process, one server, two servers."""
    if request.param == "local":
        return "local"
    first = request.getfixturevalue("url")
    return first if request.param == "http" else [first, request.getfixturevalue("second_url")]


@pytest.fixture(scope="session", params=CONTRACT_ENVS)
def env(request: pytest.FixtureRequest) -> str:
    if request.param == "sciworld":
        try:
            require_java()
        except JavaNotFound as e:
            pytest.skip(str(e))
    return request.param


@pytest.fixture
def new_client(env: str, where: str | list[str]) -> Iterator[Callable[[], EnvClient]]:
    clients: list[EnvClient] = []

    def new() -> EnvClient:
        clients.append(EnvClient(env, where))
        return clients[-1]

    yield new
    for client in clients:
        client.close()
