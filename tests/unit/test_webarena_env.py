"""The WebArena environment: its items, its observations, its reward, its agents."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

from agentgym_envs.agents import expert, random_agent
from agentgym_envs.core import UnknownItem, make
from agentgym_envs.webarena import WebArena
from agentgym_envs.webarena import tasks as miniature
from agentgym_envs.webarena.page import Page

ROUNDS = 15  # the paper's limit


def play(env: WebArena, item: str, agent_name: str, seed: int = 0) -> tuple[bool, int, float]:
    """Success, rounds and summed reward of one episode."""
    agent = expert("webarena") if agent_name == "expert" else random_agent("webarena", seed)
    observation = env.reset(item)
    agent.reset(observation, env.render)
    total = 0.0
    for turn in range(1, ROUNDS + 1):
        result = env.step(agent.act(observation).action)
        observation, total = result.observation, total + result.reward
        if agent_name == "expert":
            assert not result.info["invalid"], observation.text
        if result.done:
            return bool(result.info["success"]), turn, total
    return False, ROUNDS, total


def test_items() -> None:
    train, evaluation = WebArena.items("train"), WebArena.items("eval")
    assert Counter(map(WebArena.task_of, evaluation)) == {"shopping": 15, "cms": 15, "map": 10, "gitlab": 5, "reddit": 5}
    assert min(Counter(map(WebArena.task_of, train)).values()) >= 200
    assert len(train) + len(evaluation) == len(miniature.tasks())
    objectives = {split: {miniature.tasks()[n].objective for n in miniature.split(split)} for split in ("train", "eval")}
    assert not objectives["train"] & objectives["eval"]
    assert sum(map(len, objectives.values())) == len(miniature.tasks()), "two tasks have the same objective"


def test_templates() -> None:
    templates = [template for site in miniature.sites() for template in site.templates]
    assert len({template.id for template in templates}) == len(templates) >= 40
    assert {t.changes_state for t in templates} == {True, False}
    of = {split: {t.template.id for n in miniature.split(split) if (t := miniature.tasks()[n]).template} for split in ("train", "eval")}
    assert of["train"] == {t.id for t in templates}
    assert len(of["eval"]) == 50, "each evaluation item is of another template"


def test_version_follows_the_content() -> None:
    assert WebArena.version.partition("+")[2] == miniature.content_hash(), "the content has changed: set WebArena.version"


def test_observation_and_reward() -> None:
    env = make("webarena")
    first = env.reset("webarena_0")
    task = miniature.tasks()[0]
    lines = first.text.split("\n")
    assert lines[0] == "OBSERVATION:"
    assert lines[1].startswith("Tab 0 (current): ")
    assert lines[2] == ""
    assert lines[3].startswith("[1] RootWebArea '")
    assert lines[-3:] == [f"URL: {task.start_urls[0]}", f"OBJECTIVE: {task.objective}", "PREVIOUS ACTION: None"]
    page = Page.parse(first.text)
    link = page.find_all("link")[1]
    result = env.step(f"I look there. In summary, the next action I will perform is ```click [{link.id}]```")
    assert result.observation.text.endswith(f"PREVIOUS ACTION: click [{link.id}]")
    assert (result.reward, result.done, dict(result.info)) == (0.0, False, {"success": False, "invalid": False, "score": 0.0})
    result = env.step("click [4000]\nand more")
    assert result.info["invalid"]
    assert result.observation.text.endswith(
        "PREVIOUS ACTION: click [4000] and more\nERROR: expected the id of an element that is shown, found [4000]."
    )
    assert env.render()["evaluation"] is None
    result = env.step("stop [no idea]")
    assert (result.reward, result.done, result.info["success"], result.info["invalid"]) == (0.0, True, False, False)
    assert False in result.info["evaluation"].values()
    again = env.step("go_back")
    assert (again.observation.text, again.reward, again.done, again.info["invalid"]) == (result.observation.text, 0.0, True, True)
    assert env.available_actions() == []


def test_render_is_json() -> None:
    env = make("webarena")
    env.reset("webarena_3")
    env.step("stop [x]")
    picture = json.loads(json.dumps(env.render()))
    assert picture["kind"] == "webarena"
    assert picture["done"] is True
    assert picture["tree"][0].startswith("[1] RootWebArea")
    assert picture["screenshot"] is None
    assert set(picture["evaluation"].values()) == {False}


def test_listed_actions_are_accepted() -> None:
    env = make("webarena", viewport=30)
    listed = env.reset("webarena_0").actions
    assert "scroll [down]" in listed
    for action in listed:
        env.reset("webarena_0")
        assert not env.step(action).info["invalid"], action
    assert {action.split()[0] for action in listed} == {"click", "scroll", "new_tab", "stop"}


@pytest.mark.parametrize("item", ["webarena_99999", "babyai_0", "webarena_-1", "webarena"])
def test_unknown_items(item: str) -> None:
    with pytest.raises(UnknownItem):
        make("webarena").reset(item)


def test_wrong_options() -> None:
    with pytest.raises(ValueError, match="'text' or 'chromium'"):
        make("webarena", browser="firefox")
    with pytest.raises(ValueError, match="at least one line"):
        make("webarena", viewport=0)
    with pytest.raises(RuntimeError, match="reset"):
        make("webarena").step("stop")


def test_expert_solves_the_evaluation_items() -> None:
    env = WebArena()
    played = {item: play(env, item, "expert") for item in WebArena.items("eval")}
    assert [item for item, (success, _, _) in played.items() if not success] == []
    assert {reward for _, _, reward in played.values()} == {1.0}


@pytest.mark.slow
def test_expert_solves_the_training_items() -> None:
    env = WebArena()
    assert [item for item in WebArena.items("train")[::9] if not play(env, item, "expert")[0]] == []


def test_random_agent_is_weak() -> None:
    env = WebArena()
    successes = [play(env, item, "random", seed)[0] for seed, item in enumerate(WebArena.items("eval") * 2)]
    assert sum(successes) / len(successes) < 0.1


def test_experts_thoughts_are_words_of_the_page() -> None:
    env, agent = WebArena(), expert("webarena")
    observation = env.reset(WebArena.items("eval")[0])
    agent.reset(observation, env.render)
    decision = agent.act(observation)
    assert decision.thought.endswith(".")
    assert 3 < len(decision.thought) < 120
    with pytest.raises(ValueError, match="OBJECTIVE"):
        agent.reset(type(observation)("hello"), env.render)


_DIGEST = """
import hashlib
from agentgym_envs.agents import expert, random_agent
from agentgym_envs.webarena import WebArena
env, digest = WebArena(), hashlib.sha256()
for item in WebArena.items("eval")[::9]:
    for agent in (expert("webarena"), random_agent("webarena", 3)):
        observation = env.reset(item)
        agent.reset(observation, env.render)
        for _ in range(8):
            result = env.step(agent.act(observation).action)
            observation = result.observation
            digest.update(observation.text.encode())
            if result.done:
                break
print(digest.hexdigest())
"""


def test_processes_and_hash_seeds_agree() -> None:
    def start(seed: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", _DIGEST], env=os.environ | {"PYTHONHASHSEED": seed}, stdout=subprocess.PIPE, text=True
        )

    first, second = (process.communicate()[0] for process in [start("1"), start("2")])
    assert first == second != ""
