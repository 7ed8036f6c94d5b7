"""What every environment promises, in process and over HTTP, on one server and on two."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from fake_envs import Counter

from agentgym_envs.agents import expert
from agentgym_envs.core import Observation, StepResult, UnknownItem, environment_class
from agentgym_lite.client import EnvClient

NewClient = Callable[[], EnvClient]

ILLEGAL = ["", "   ", "xyzzy plugh 17", "get", "\x00\n\t", "ÄÖ 木 🙂" * 20, "get " * 2000, '{"action": "get"}', "x" * 1_000_000]

#: Environments that pay for progress before the goal; the others pay at the goal only.
PARTIAL_CREDIT = {"sciworld"}


def items_of(env: str) -> list[str]:
    """The first and last item of each split."""
    cls = environment_class(env)
    return [ids[i] for split in ("train", "eval") for ids in [cls.items(split)] for i in (0, -1)]


def plain(result: StepResult) -> dict[str, Any]:
    """A step result as JSON would carry it, so that a tuple equals a list."""
    value = json.loads(json.dumps([result.observation.actions, dict(result.observation.info), dict(result.info)], default=float))
    return {"text": result.observation.text, "reward": result.reward, "done": result.done, "rest": value}


def random_walk(client: EnvClient, item: str, seed: int, length: int) -> list[StepResult]:
    """Listed actions and, one time in five, an illegal one."""
    client.reset(item, seed)
    rng, results = random.Random(7), []
    for _ in range(length):
        legal = client.available_actions()
        results.append(client.step(rng.choice(legal) if legal and rng.random() < 0.8 else "dance wildly"))
        if results[-1].done:
            break
    return results


def solve(client: EnvClient, env: str, item: str, seed: int = 0) -> list[StepResult]:
    observation = client.reset(item, seed)
    if env == Counter.name:
        results = [client.step("up")]
        while not results[-1].done:
            results.append(client.step("up"))
        return results
    agent, results = expert(env), []
    agent.reset(observation, client.render)
    for _ in range(200):
        results.append(client.step(agent.act(observation).action))
        observation = results[-1].observation
        if results[-1].done:
            break
    return results


def test_items_are_unique_named_disjoint_and_have_a_task(env: str) -> None:
    cls = environment_class(env)
    train, evaluation = cls.items("train"), cls.items("eval")
    assert train
    assert evaluation
    assert len({*train, *evaluation}) == len(train) + len(evaluation)
    assert (train, evaluation) == (cls.items("train"), cls.items("eval"))
    for item in items_of(env):
        assert item.startswith(f"{env}_")
        assert cls.task_of(item) == cls.task_of(cls.item_index(item))
        assert isinstance(cls.task_of(item), str)


def test_class_says_who_it_is(env: str) -> None:
    cls = environment_class(env)
    assert cls.name == env
    assert all(isinstance(text, str) and text for text in (cls.version, cls.instructions))


def test_metadata_describes_the_class(env: str, new_client: NewClient) -> None:
    cls, metadata = environment_class(env), new_client().metadata()
    assert metadata["name"] == env
    assert metadata["version"] == cls.version
    assert metadata["instructions"] == cls.instructions
    for split in ("train", "eval"):
        assert metadata["items"][split] == cls.items(split)
        assert metadata["item_counts"][split] == len(cls.items(split)) == sum(metadata["tasks"][split].values())
    assert cls.task_of(cls.items("eval")[0]) in metadata["tasks"]["eval"]


def test_observation_types(env: str, new_client: NewClient) -> None:
    client = new_client()
    for item in items_of(env):
        observation = client.reset(item)
        assert isinstance(observation, Observation)
        assert isinstance(observation.text, str)
        assert observation.text.strip()
        assert isinstance(observation.actions, tuple)
        assert all(isinstance(a, str) for a in observation.actions)
        assert client.observe().text == observation.text


def test_same_item_seed_and_actions_give_the_same_episode(env: str, new_client: NewClient) -> None:
    item = environment_class(env).items("train")[-1]
    first, second = new_client(), new_client()
    assert first.reset(item, 3) == second.reset(item, 3)
    episode = [plain(r) for r in random_walk(first, item, 3, 25)]
    assert [plain(r) for r in random_walk(second, item, 3, 25)] == episode
    assert [plain(r) for r in random_walk(first, item, 3, 25)] == episode, "a session that was used before must start afresh"
    with EnvClient(env) as local:
        assert [plain(r) for r in random_walk(local, item, 3, 25)] == episode, "the transport must not change anything"


def test_item_as_number_and_as_name(env: str, new_client: NewClient) -> None:
    client = new_client()
    item = environment_class(env).items("eval")[0]
    assert client.reset(item, 5) == client.reset(environment_class(env).item_index(item), 5)


def test_interleaved_sessions_do_not_touch_each_other(env: str, new_client: NewClient) -> None:
    item, other_item = environment_class(env).items("train")[:2]
    alone = [plain(r) for r in random_walk(new_client(), item, 0, 10)]
    client, other = new_client(), new_client()
    client.reset(item, 0)
    other.reset(other_item, 1)
    rng, together = random.Random(7), []
    while len(together) < len(alone):
        legal = client.available_actions()
        together.append(plain(client.step(rng.choice(legal) if legal and rng.random() < 0.8 else "dance wildly")))
        other.step((other.available_actions() or ["wait"])[0])
    assert together == alone


def test_rewards_and_info_of_a_random_walk(env: str, new_client: NewClient) -> None:
    client = new_client()
    for item in items_of(env):
        results = random_walk(client, item, 1, 20)
        assert 0.0 <= sum(r.reward for r in results) <= 1.0
        for result in results:
            assert 0.0 <= result.reward <= 1.0
            assert isinstance(result.done, bool)
            assert isinstance(result.info["success"], bool)
            assert isinstance(result.info["invalid"], bool)
            assert "score" in result.info
            assert result.observation.text.strip()
        json.dumps([plain(r) for r in results])


@pytest.mark.parametrize("action", ILLEGAL, ids=lambda a: f"{a[:12]!r}x{len(a)}")
def test_illegal_action_gets_an_observation(env: str, new_client: NewClient, action: str) -> None:
    client = new_client()
    item = environment_class(env).items("train")[0]
    client.reset(item)
    legal = client.available_actions()
    result = client.step(action)
    assert result.info["invalid"] is True
    assert result.info["success"] is False
    assert (result.reward, result.done) == (0.0, False)
    assert result.observation.text.strip()
    assert len(result.observation.text) < 10_000, "an observation must not repeat all of a long action"
    assert client.available_actions() == legal, "an illegal action must change nothing"


def test_listed_actions_are_accepted(env: str, new_client: NewClient) -> None:
    client = new_client()
    item = environment_class(env).items("train")[0]
    client.reset(item)
    actions = client.available_actions()
    assert actions
    assert len(set(actions)) == len(actions)
    for action in actions[:: max(1, len(actions) // 25)]:
        client.reset(item)
        result = client.step(action)
        assert result.info["invalid"] is False, f"{action!r} is listed but got: {result.observation.text}"


def test_a_solved_episode_is_paid_once(env: str, new_client: NewClient) -> None:
    client = new_client()
    results = solve(client, env, environment_class(env).items("eval")[0])
    last = results[-1]
    assert last.done
    assert last.info["success"] is True
    assert last.reward > 0.0
    assert not any(r.done for r in results[:-1])
    assert sum(r.reward for r in results) <= 1.0
    assert env in PARTIAL_CREDIT or all(r.reward == 0.0 for r in results[:-1])


def test_step_after_done_repeats_the_last_observation(env: str, new_client: NewClient) -> None:
    client = new_client()
    last = solve(client, env, environment_class(env).items("eval")[0])[-1]
    for action in ("inventory", "up", "dance wildly"):
        result = client.step(action)
        assert (result.reward, result.done) == (0.0, True)
        assert result.info["invalid"] is True
        assert result.info["success"] is True
        assert result.observation.text == last.observation.text


def test_render_is_json_with_kind_and_text(env: str, new_client: NewClient) -> None:
    client = new_client()
    client.reset(environment_class(env).items("train")[0])
    before = client.render()
    assert before["kind"] == env
    assert isinstance(before["text"], str)
    json.dumps(before, allow_nan=False)
    assert client.render() == before, "looking must change nothing"


@pytest.mark.parametrize("item", ["nosuch_0", "{env}_", "{env}_-1", "{env}_1.5", "{env}_٣", "", -1])
def test_unknown_item(env: str, new_client: NewClient, item: str | int) -> None:
    item = item.format(env=env) if isinstance(item, str) else item
    known = environment_class(env).items("train")[0]
    client = new_client()
    with pytest.raises(UnknownItem):
        client.reset(item)
    first = client.reset(known)
    with pytest.raises(UnknownItem):
        client.reset(item)
    assert client.reset(known) == first


def test_item_beyond_the_splits_is_an_episode_or_unknown(env: str, new_client: NewClient) -> None:
    """Some environments can make items without end; the others must say so, and nothing else may happen."""
    client = new_client()
    with contextlib.suppress(UnknownItem):
        assert client.reset(10**12).text.strip()
    assert client.reset(environment_class(env).items("train")[0]).text.strip()


def test_step_before_reset_says_so(new_client: NewClient) -> None:
    with pytest.raises(RuntimeError, match="call reset"):
        new_client().step("look")


def test_close_twice(env: str, new_client: NewClient) -> None:
    client = new_client()
    client.reset(environment_class(env).items("train")[0])
    client.close()
    client.close()
    with pytest.raises(RuntimeError, match="call reset"):
        client.observe()


def test_core_object_closes_twice_and_needs_a_reset(env: str) -> None:
    core = environment_class(env)()
    with pytest.raises(RuntimeError):
        core.step("look")
    core.reset(core.items("train")[0])
    core.close()
    core.close()
