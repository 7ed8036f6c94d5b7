"""AgentGym's own client classes against our server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

_HINT = "install AgentGym's package from its repository (pip install -e AgentGym/agentenv) to check against its clients"
agentenv = pytest.importorskip("agentenv", reason=_HINT)
envs: Any = pytest.importorskip("agentenv.envs", reason=_HINT)

from agentgym_envs.agents import expert
from agentgym_envs.core import make
from agentgym_envs.server import background_server


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with background_server(["textcraft", "babyai"]) as address:
        yield f"{address}/agentgym"


@pytest.mark.parametrize(("env", "client"), [("textcraft", "TextCraftEnvClient"), ("babyai", "BabyAIEnvClient")])
def test_an_expert_wins_through_their_client(url: str, env: str, client: str) -> None:
    theirs = getattr(envs, client)(env_server_base=f"{url}/{env}", data_len=1)
    ours = make(env)
    item = ours.item_index(ours.items("eval")[0])
    theirs.reset(item)
    observation, agent = ours.reset(item), expert(env)
    agent.reset(observation, ours.render)
    assert theirs.observe().startswith(observation.text)
    for _ in range(20):
        action = agent.act(observation).action
        output, result = theirs.step(f"Thought:\nfor the test\n\nAction:\n{action}"), ours.step(action)
        observation = result.observation
        assert output.state.startswith(observation.text)
        assert output.done == result.done
        if result.done:
            break
    assert result.info["success"]
    assert output.reward == pytest.approx(result.reward)
    assert theirs.close() is True


def test_two_actions_in_a_reply_never_reach_the_server(url: str) -> None:
    client = envs.TextCraftEnvClient(env_server_base=f"{url}/textcraft", data_len=1)
    client.reset(0)
    assert client.step("Action: inventory\nAction: inventory").reward == 0
    assert client.close() is True
