"""The TRL adapters without TRL: what its trainer would call, and what it would get."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest

from agentgym_envs.agents import expert
from agentgym_lite.agents import ChatRenderer
from agentgym_lite.client import EnvironmentFailure
from agentgym_lite.client.trl import TrlEnvironment, environment_factory
from agentgym_lite.config import RolloutConfig
from agentgym_lite.models import load_tokenizer
from agentgym_lite.rollout import ScriptedEngine, TokenRow
from agentgym_lite.rollout.trl import TrlRollouts, _row, episode_reward, item_rows, tool_rows
from agentgym_lite.rollout.types import EpisodeSpec, StopReason, Trajectory


def test_public_methods_are_exactly_those_that_trl_looks_for() -> None:
    """Any other public method would be offered to the model as a tool."""
    found = {name for name, _ in inspect.getmembers(TrlEnvironment, inspect.isfunction) if not name.startswith("_")}
    assert found == {"reset", "act", "get_reward"}
    doc = inspect.getdoc(TrlEnvironment.act)
    assert doc is not None
    assert "Args:\n    action: " in doc
    assert inspect.signature(TrlEnvironment.act, eval_str=True).parameters["action"].annotation is str


def test_an_expert_earns_the_environments_reward() -> None:
    environment = environment_factory("textcraft")()
    row = tool_rows("textcraft", ["textcraft_3"])[0]
    assert "Thought:" not in row["prompt"][0]["content"]
    first = environment.reset(**row)
    assert first is not None
    agent = expert("textcraft")
    from agentgym_envs.core import Observation

    agent.reset(Observation(first), dict)
    text = first
    for _ in range(20):
        text = environment.act(agent.act(Observation(text)).action)
        if environment.get_reward():
            break
    assert environment.get_reward() == 1.0
    assert environment.act("inventory") == "The episode has ended."
    environment.reset(**row)
    assert environment.get_reward() == 0.0


def test_a_failed_environment_has_no_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = TrlEnvironment("textcraft")
    environment.reset("textcraft_0")

    def fail(*_: Any) -> None:
        raise EnvironmentFailure("gone", env="textcraft", url="local", item_id="textcraft_0")

    monkeypatch.setattr(environment._client, "step", fail)
    assert environment.act("inventory") == "The episode has ended."
    assert environment.get_reward() is None
    monkeypatch.setattr(environment._client, "reset", fail)
    assert environment.reset("textcraft_0") is None
    assert environment.get_reward() is None


def test_a_row_is_cut_where_the_policy_first_speaks() -> None:
    row = TokenRow()
    row.append_context([1, 2, 3], -1)
    row.append_action([4, 5], [-0.1, -0.2], 0)
    row.append_context([6], 1)
    row.append_action([7], [-0.3], 1)
    episode = Trajectory(EpisodeSpec("textcraft", "textcraft_0"), rows=[row], stop_reason=StopReason.MAX_ROUNDS)
    assert _row(episode, end_of_turn=9) == {
        "prompt_ids": [1, 2, 3],
        "completion_ids": [4, 5, 6, 7],
        "logprobs": [-0.1, -0.2, 0.0, -0.3],
        "env_mask": [1, 1, 0, 1],
        "episode_return": 0.0,
    }
    broken = Trajectory(episode.spec, stop_reason=StopReason.ENV_ERROR)
    assert _row(broken, end_of_turn=9)["env_mask"] == [0]
    assert episode_reward([], [_row(e, 9)["episode_return"] for e in (episode, broken)]) == [0.0, None]
    with pytest.raises(ValueError, match="rewrites history"):
        _row(Trajectory(episode.spec, rows=[row, row]), 9)


def test_the_rollout_function_plays_every_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = load_tokenizer()
    renderer = ChatRenderer(tokenizer)
    reply = renderer.reply("Action: inventory")
    engine = ScriptedEngine(lambda *_: reply, stop_ids=renderer.stop_ids)
    rollouts = TrlRollouts({"textcraft": "local"}, max_rounds=2, rollout=RolloutConfig(max_new_tokens=32))
    monkeypatch.setattr(rollouts, "_engine", lambda *_: engine)
    trainer = SimpleNamespace(processing_class=tokenizer, temperature=0.7, top_p=1.0)
    prompts = [row["prompt"] for row in item_rows("textcraft", ["textcraft_3", "textcraft_7"]) for _ in range(2)]
    out = rollouts(prompts, trainer)
    assert [(t.spec.item_id, t.spec.sample) for t in rollouts.trajectories] == [
        ("textcraft_3", 0),
        ("textcraft_3", 1),
        ("textcraft_7", 0),
        ("textcraft_7", 1),
    ]
    assert out["prompt_ids"][0] == out["prompt_ids"][1] != out["prompt_ids"][2]
    for ids, mask, logprobs in zip(out["completion_ids"], out["env_mask"], out["logprobs"], strict=True):
        assert len(ids) == len(mask) == len(logprobs)
        assert [i for i, m in zip(ids, mask, strict=True) if m] == reply * 2
    assert out["episode_return"] == [0.0] * 4
    with pytest.raises(ValueError, match="env/item_id/seed"):
        rollouts([[{"role": "user", "content": "hello"}]], trainer)
