"""The ``openenv`` package's own generic client against our server."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

pytest.importorskip("openenv", reason="pip install openenv to check against its client")
pytest.importorskip("websockets", reason="pip install websockets, which uvicorn needs to serve WebSockets")

from openenv import GenericEnvClient

from agentgym_envs.server import background_server


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with background_server(["textcraft", "babyai"], max_sessions=2) as address:
        yield address


def test_an_episode(url: str) -> None:
    with GenericEnvClient(base_url=f"{url}/textcraft").sync() as env:
        opening = env.reset(split="eval", index=0, seed=3)
        assert opening.observation["text"].startswith("Crafting commands:")
        assert (opening.reward, opening.done) == (None, False)
        step = env.step({"text": "Thought: let me look\nAction: inventory"})
        assert step.observation["text"] == "Inventory: empty"
        assert (step.reward, step.done, step.metadata["invalid"]) == (0.0, False, False)
        assert env.state()["step_count"] == 1
        with pytest.raises(RuntimeError, match="VALIDATION_ERROR"):
            env.step({"command": "inventory"})
        assert env.step({"text": "inventory"}).done is False
    assert httpx.get(f"{url}/textcraft/health").json()["sessions"] == 0


def test_many_clients_and_the_limit(url: str) -> None:
    with GenericEnvClient(base_url=f"{url}/babyai").sync() as a, GenericEnvClient(base_url=f"{url}/babyai").sync() as b:
        first, second = a.reset(split="eval", index=0), b.reset(split="eval", index=1)
        assert first.observation["text"] != second.observation["text"]
        with pytest.raises(Exception, match="CAPACITY_REACHED"), GenericEnvClient(base_url=f"{url}/babyai").sync() as c:
            c.reset()


def test_the_token_travels_in_a_header() -> None:
    with background_server(["textcraft"], token="secret") as url:
        with pytest.raises(ConnectionError, match="401"), GenericEnvClient(base_url=f"{url}/textcraft").sync() as env:
            env.reset()
        headers = {"Authorization": "Bearer secret"}
        with GenericEnvClient(base_url=f"{url}/textcraft", headers=headers).sync() as env:
            assert env.reset(seed=1).observation["actions"]
