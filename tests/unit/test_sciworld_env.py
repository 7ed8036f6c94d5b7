"""SciWorld's rules: scores, endings, ambiguous requests, refusals, determinism, isolation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sciworld_factory import needs_java, new_env

from agentgym_envs.agents import TextAgent, expert
from agentgym_envs.sciworld import SciWorld, tasks
from agentgym_envs.sciworld.env import MAX_MOVES, _sorted_choices
from agentgym_envs.sciworld.simulator import Outcome


class Script:
    """Stands in for the simulator: answers with the given outcomes."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.outcomes = [Outcome("You see a door.", 0, 0), *outcomes]
        self.sent: list[str] = []

    def load(self, task: str, variation: int, seed: int) -> str:
        return "Your task is to test."

    def act(self, action: str) -> Outcome:
        self.sent.append(action)
        return self.outcomes[len(self.sent) - 1]


def scripted(*outcomes: Outcome) -> tuple[SciWorld, Script]:
    env, script = SciWorld(), Script(*outcomes)
    env._simulator = script  # type: ignore[assignment]
    env.reset(0)
    return env, script


def scores(*values: int) -> tuple[SciWorld, Script]:
    return scripted(*(Outcome("Done.", score, i) for i, score in enumerate(values)))


def test_rewards_are_the_rises_of_the_best_score() -> None:
    env, _ = scores(25, 25, 75, 50, 75, 100)
    results = [env.step("wait1") for _ in range(6)]
    assert [r.reward for r in results] == [0.25, 0.0, 0.5, 0.0, 0.0, 0.25]
    assert [r.done for r in results] == [False] * 5 + [True]
    assert [r.info["success"] for r in results] == [False] * 5 + [True]
    assert results[-1].info["score"] == 100


def test_wrong_focus_ends_as_a_failure_with_reward_0() -> None:
    env, _ = scores(33, -100)
    first, last = env.step("wait1"), env.step("focus on door")
    assert first.reward == 0.33
    assert (last.reward, last.done, last.info["success"], last.info["score"]) == (0.0, True, False, -100)
    again = env.step("look around")
    assert (again.reward, again.done, again.info["invalid"], again.info["success"]) == (0.0, True, True, False)


def test_too_many_moves_end_the_episode() -> None:
    env, _ = scripted(Outcome("Done.", 10, MAX_MOVES), Outcome("Done.", 10, MAX_MOVES + 1))
    assert not env.step("wait").done
    last = env.step("wait1")
    assert last.done
    assert not last.info["success"]


@given(st.lists(st.integers(0, 99), max_size=12), st.booleans())
def test_rewards_add_up_to_the_best_score(values: list[int], solved: bool) -> None:
    values = [*values, 100] if solved else values
    env, _ = scores(*values)
    total, best = 0.0, 0
    for value in values:
        total += env.step("wait1").reward
        best = max(best, value)
        assert total == pytest.approx(best / 100)
        assert total <= best / 100


PROMPT = "Ambiguous request: Please enter the number (or blank to cancel):\n0:\tgo door c\n1:\tgo door a\n2:\tgo door b\n"


def test_choices_are_sorted_and_numbers_mean_what_is_shown() -> None:
    env, script = scripted(Outcome(PROMPT, 0, 0), Outcome("You move.", 0, 1))
    asked = env.step("go door")
    assert asked.observation.text.endswith("0:\tgo door a\n1:\tgo door b\n2:\tgo door c")
    assert asked.observation.actions == ("0", "1", "2") == tuple(env.available_actions())
    assert asked.info["invalid"] is False
    assert env.step("2").observation.text == "You move."
    assert script.sent[-1] == "0", "c is choice 0 of the simulator"


def test_blank_cancels_a_list_and_another_action_replaces_it() -> None:
    env, script = scripted(Outcome(PROMPT, 0, 0), Outcome("", 0, 0), Outcome(PROMPT, 0, 0), Outcome("", 0, 0), Outcome("A lamp.", 0, 1))
    env.step("go door")
    cancelled = env.step("  ")
    assert (cancelled.observation.actions, cancelled.info["invalid"]) == ((), False)
    env.step("go door")
    assert env.step("look at lamp").observation.text == "A lamp."
    assert script.sent[1:] == ["go door", "", "go door", "", "look at lamp"]


def test_long_lists_are_cut() -> None:
    text, numbers = _sorted_choices("Ambiguous request:\n" + "".join(f"{i}:\tlook at {999 - i:03d}\n" for i in range(500)))
    assert len(text.splitlines()) == 22
    assert text.endswith("There are 480 more; name the things more exactly to reach them.")
    assert numbers[:2] == [499, 498]


def test_step_and_render_before_reset_say_so() -> None:
    for call in (lambda e: e.step("wait1"), lambda e: e.render()):
        with pytest.raises(RuntimeError, match="call reset"):
            call(SciWorld())


# -- with the real simulator -------------------------------------------------------------------------------------------------------


@pytest.fixture
def env() -> Iterator[SciWorld]:
    env = new_env()
    yield env
    env.close()


def of(name: str, variation: int = 0) -> int:
    return next(t.first for t in tasks.tasks() if t.name == name) + variation


@needs_java
def test_first_observation_is_the_task_and_a_look(env: SciWorld) -> None:
    text = env.reset(of("chemistry-mix")).text
    assert text.startswith("Your task is to use chemistry to create the substance 'salt water'.")
    assert "This room is called the hallway." in text


@needs_java
def test_solving_by_hand_pays_1(env: SciWorld) -> None:
    """Variation 0 starts where the animals are two doors away and a brown bear lives longest."""
    env.reset(of("lifespan-longest-lived"))
    results = [env.step(a) for a in ("open door to greenhouse", "go to greenhouse", "open door to outside", "go to outside")]
    assert [r.reward for r in results] == [0.0, 0.25, 0.0, 0.25]
    last = env.step("focus on brown bear")
    assert (last.reward, last.done, last.info["success"], last.info["score"]) == (0.5, True, True, 100)


@needs_java
def test_wrong_focus_really_fails(env: SciWorld) -> None:
    env.reset(of("lifespan-longest-lived"))
    result = env.step("focus on door to greenhouse")
    assert (result.reward, result.done, result.info["score"], result.info["success"]) == (0.0, True, -100, False)


@needs_java
def test_waiting_runs_into_the_move_limit(env: SciWorld) -> None:
    env.reset(of("chemistry-mix"))
    results = [env.step("wait") for _ in range(10)]
    assert [r.done for r in results] == [False] * 9 + [True]


@needs_java
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(max_size=30) | st.sampled_from(["look at object", "0", "99", "help", "objects", "open door"]), max_size=4))
def test_no_text_raises(env: SciWorld, actions: list[str]) -> None:
    if env._task is None or env._done:
        env.reset(of("find-plant"))
    for action in actions:
        result = env.step(action)
        assert result.observation.text.strip()
        assert len(result.observation.text) < 10_000


def walk(env: SciWorld, item: int, seed: int, actions: list[str]) -> list[Any]:
    observed: list[Any] = [env.reset(item, seed).text]
    for action in actions:
        result = env.step(action)
        observed.append([result.observation.text, result.reward, result.done])
    return observed


AMBIGUOUS = ["look at door", "1", "open door to kitchen", "go to kitchen", "open cupboard", "look at cup", "1", "go door", "2", "wait"]


def walk_in_a_new_process() -> None:
    """Prints what the actions of ``AMBIGUOUS`` show, after as many other episodes as the first argument says."""
    env = SciWorld(heap_mb=256)
    for i in range(int(sys.argv[1])):
        env.reset(i)
        env.available_actions()
    print(json.dumps(walk(env, of("chemistry-mix"), 3, AMBIGUOUS)))
    env.close()


@needs_java
@pytest.mark.slow
def test_processes_with_other_hash_seeds_and_histories_agree(env: SciWorld) -> None:
    here = walk(env, of("chemistry-mix"), 3, AMBIGUOUS)
    assert sum("Ambiguous" in str(o) for o in here) >= 3, "the walk has to meet ambiguous requests"
    for hash_seed, others in (("1", "0"), ("2", "3")):
        environ = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.path.dirname(__file__)}
        code = "import test_sciworld_env as t; t.walk_in_a_new_process()"
        done = subprocess.run([sys.executable, "-c", code, others], env=environ, capture_output=True, text=True, check=True, timeout=300)
        assert json.loads(done.stdout) == here


@needs_java
def test_looking_at_the_state_changes_nothing(env: SciWorld) -> None:
    item, actions = of("find-plant", 3), ["wait1", "open door to hallway", "look at door", "0", "wait"]
    plain = walk(env, item, 0, actions)
    watched: list[Any] = [env.reset(item, 0).text]
    for action in actions:
        first = env.render()
        env.available_actions()
        assert env.render() == first
        result = env.step(action)
        watched.append([result.observation.text, result.reward, result.done])
    assert watched == plain


def play(env: SciWorld, agent: TextAgent, item: int, limit: int = 30) -> list[Any]:
    observation = env.reset(item)
    agent.reset(observation, env.render)
    texts: list[Any] = [observation.text]
    for _ in range(limit):
        result = env.step(agent.act(observation).action)
        observation = result.observation
        texts.append((observation.text, result.info["score"]))
        if result.done:
            break
    return texts


@needs_java
def test_twelve_threads_in_one_process_do_not_touch_each_other() -> None:
    """Alone and together, 12 solved episodes are the same text for text; paint and water make new objects while others do too."""
    names = ["chemistry-mix-paint-tertiary-color", "use-thermometer", "find-plant", "test-conductivity-of-unknown-substances"]
    items = [of(name, v) for name in names for v in (1, 7, 9)]
    envs = [new_env() for _ in items]
    alone = [play(env, expert("sciworld"), item) for env, item in zip(envs, items, strict=True)]
    assert all(texts[-1][1] == 100 for texts in alone)
    together: list[list[Any]] = [[] for _ in items]

    def run(i: int) -> None:
        together[i] = play(envs[i], expert("sciworld"), items[i])

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(items))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for env in envs:
        env.close()
    assert together == alone


@needs_java
def test_picture_of_the_house(env: SciWorld) -> None:
    env.reset(of("chemistry-mix"))
    env.step("open door to kitchen")
    env.step("go to kitchen")
    env.step("pick up thermometer")
    picture = env.render()
    json.dumps(picture, allow_nan=False)
    assert picture["place"] == "kitchen"
    assert "thermometer" in [thing["name"] for thing in picture["inventory"]]
    assert len(picture["places"]) == len(picture["doors"]) == 10
    doors = {tuple(d["between"]): d["open"] for d in picture["doors"]}
    assert (doors["hallway", "kitchen"], doors["bathroom", "kitchen"], doors["hallway", "workshop"]) == (True, False, None)
    counter = next(t for p in picture["places"] if p["name"] == "kitchen" for t in p["things"] if t["name"] == "counter")
    assert "apple" in str(counter["contents"])
    assert picture["score"] == env.step("inventory").info["score"]
