"""The BabyAI environment object: layouts, rewards, endings, determinism, and that nothing an agent says can break it."""

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from xml.etree import ElementTree

import gymnasium
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_envs.babyai import BabyAI, macros
from agentgym_envs.babyai.expert import Expert, RandomAgent
from agentgym_envs.babyai.levels import LEVELS, TASKS
from agentgym_envs.babyai.world import from_level
from agentgym_envs.core import UnknownItem, make
from agentgym_envs.core import names as environment_names


def play(env, agent, item, rounds=20, seed=0):
    """Texts, rewards and the last result of an episode."""
    observation = env.reset(item, seed)
    agent.reset(observation, env.render)
    texts, rewards = [observation.text], []
    for _ in range(rounds):
        result = env.step(agent.act(observation).action)
        observation = result.observation
        texts.append(observation.text)
        rewards.append(result.reward)
        if result.done:
            break
    return texts, rewards, result


def test_items_are_the_papers():
    train, held_out = BabyAI.items("train"), BabyAI.items("eval")
    assert (len(train), len(held_out), len(set(train) & set(held_out))) == (810, 90, 0)
    assert Counter(map(BabyAI.task_of, held_out)) == {
        "goto": 55,
        "pickup": 15,
        "action_obj_door": 5,
        "find_obj": 5,
        "one_room": 5,
        "synth_loc": 5,
    }
    assert train[0] == "babyai_0"
    assert BabyAI.item_index(held_out[0]) == 45 * 40
    assert BabyAI.level_of("babyai_43") == (4, "GoToObjS4")
    assert BabyAI.task_of(11) == "other"


@pytest.mark.parametrize("item", ["babyai_", "babyai_x", "textcraft_1", -1, True, "babyai_-1", 1.5])
def test_unknown_items(item):
    with pytest.raises(UnknownItem):
        BabyAI().reset(item)


def test_registered_and_needs_a_reset():
    assert "babyai" in environment_names()
    env = make("babyai")
    for call in (lambda: env.step("drop"), env.render, env.available_actions):
        with pytest.raises(RuntimeError, match="call reset"):
            call()


@pytest.mark.parametrize("number", TASKS)
def test_layouts_are_minigrids_and_no_sample_prints(number, capsys):
    reference = gymnasium.make(f"BabyAI-{LEVELS[number - 1]}-v0").unwrapped
    env = BabyAI()
    for seed in (0, 7, 46, 1234):
        env.reset(seed * 40 + number - 1)
        silent = capsys.readouterr().out == ""
        reference.reset(seed=seed)
        capsys.readouterr()
        picture = env.render()
        grid = reference.grid
        expected = [[c and [c.type, c.color] for c in (grid.get(x, y) for x in range(grid.width))] for y in range(grid.height)]
        assert [[cell and cell[:2] for cell in row] for row in picture["cells"]] == expected
        assert picture["mission"] == reference.mission
        assert picture["max_steps"] == reference.max_steps
        assert picture["agent"] == {"x": reference.agent_pos[0], "y": reference.agent_pos[1], "dir": reference.agent_dir}
        assert silent


@pytest.mark.parametrize("number", sorted(set(range(1, 41)) - set(TASKS)))
def test_the_other_levels_can_be_played(number):
    env = BabyAI()
    observation = env.reset(40 * 3 + number - 1)
    assert observation.text.startswith("Your goal: ")
    assert not env.step(observation.actions[0]).info["invalid"]


def test_first_observation_and_reward_by_hand():
    env = BabyAI()
    observation = env.reset("babyai_2")
    assert (
        observation.text == "Your goal: go to the red ball\nYou see: red ball 1, 4 ahead 3 right.\nWall 6 ahead, 2 left. You carry nothing."
    )
    result = env.step("go to red ball 1")  # four forward, one turn, two forward: 7 of 64 primitive steps
    assert result.reward == pytest.approx(1 - 0.9 * 7 / 64)
    assert result.done
    assert result.info == {"success": True, "invalid": False, "score": result.reward, "steps": 7, "max_steps": 64}
    assert result.observation.text == "Goal reached.\nYou see: red ball 1, 1 ahead.\nWall 3 ahead, 2 left. You carry nothing."
    assert result.observation.actions == ()


def test_reward_is_paid_once():
    env = BabyAI()
    env.reset("babyai_2")
    first = env.step("go to red ball 1")
    for action in ("go to red ball 1", "move forward", ""):
        again = env.step(action)
        assert (again.reward, again.done, again.info["invalid"], again.info["success"]) == (0.0, True, True, True)
        assert again.observation == first.observation
        assert again.info["score"] == first.reward


def test_running_out_of_primitive_steps_is_a_failure():
    env = BabyAI()
    env.reset("babyai_3")  # 16 steps
    results = [env.step("turn left") for _ in range(16)]
    assert [result.done for result in results] == [False] * 15 + [True]
    assert (results[-1].reward, results[-1].info["success"]) == (0.0, False)
    assert results[-1].observation.text.startswith("Out of steps.\n")


def test_a_wrong_pick_in_a_strict_level_loses():
    env = BabyAI()
    env.reset("babyai_1459")
    result = env.step("pick up grey key 1")
    assert (result.done, result.reward, result.info["success"]) == (True, 0.0, False)
    assert result.observation.text.startswith("The goal is lost.\n")


def test_order_words_stay_in_the_goal_and_matter():
    env = BabyAI()
    assert "go to the red door after you go to the green door" in env.reset("babyai_207").text
    assert not env.step("go to red door 1").done
    env.reset("babyai_207")
    assert not env.step("go to green door 1").done
    while "red door 1" not in env.step("turn left").observation.text:
        continue
    assert env.step("go to red door 1").info["success"]


def test_an_impossible_action_says_why_and_costs_one_step():
    env = BabyAI()
    env.reset("babyai_2")
    result = env.step("go to green key 1")
    assert result.observation.text.startswith("You cannot go to green key 1: not in view.\nYou see: red ball 1")
    assert (result.reward, result.done, result.info["invalid"], result.info["steps"]) == (0.0, False, True, 1)
    assert "Your goal" not in result.observation.text
    result = env.step("go to red ball 1")
    assert result.reward == pytest.approx(1 - 0.9 * 8 / 64)


def test_nonsense_runs_out_of_steps():
    env = BabyAI()
    env.reset("babyai_3")  # 16 steps
    results = [env.step("fly") for _ in range(16)]
    assert [result.done for result in results] == [False] * 15 + [True]
    assert (results[-1].reward, results[-1].info["success"], results[-1].info["invalid"]) == (0.0, False, True)
    assert results[-1].observation.text.startswith("Out of steps.\n")


def test_check_lists_the_actions_and_the_option_always_does():
    env = BabyAI()
    line = f"Available actions: {', '.join(env.reset('babyai_2').actions)}."
    result = env.step("check available actions")
    assert result.observation.text.splitlines()[0] == line
    assert not result.info["invalid"]
    listing = BabyAI(list_actions=True)
    assert listing.reset("babyai_2").text.splitlines()[-1] == line
    assert listing.step("check available actions").observation.text.count("Available actions") == 1


@pytest.mark.parametrize("item", ["babyai_1", "babyai_1806", "babyai_209", "babyai_1835"])
def test_every_listed_action_is_accepted(item):
    env = BabyAI()
    for action in env.reset(item).actions:
        env.reset(item)
        assert not env.step(action).info["invalid"], action


def test_an_object_behind_the_door_leaves_the_agent_in_the_doorway():
    env = BabyAI()
    env.reset("babyai_10")
    level = env._level
    things = [thing for thing in level.grid.grid if thing is not None and thing.type != "wall"]
    door = next(thing for thing in things if thing.type == "door" and not thing.is_locked)
    moved = next(thing for thing in things if thing.type != "door")
    (x, y), is_upright = door.cur_pos, level.grid.get(door.cur_pos[0], door.cur_pos[1] - 1) is not None
    dx, dy = (1, 0) if is_upright else (0, 1)
    level.grid.set(*moved.cur_pos, None)
    level.grid.set(x - dx, y - dy, None)
    level.grid.set(x + dx, y + dy, moved)
    level.agent_pos, level.agent_dir = (x - dx, y - dy), 0 if is_upright else 1
    env._world = from_level(level)
    result = env.step(f"toggle and go through {door.color} door")
    assert not result.info["invalid"]
    assert result.info["steps"] == 2
    assert (env.render()["agent"]["x"], env.render()["agent"]["y"]) == (x, y)
    assert f"{moved.color} {moved.type} 1, 1 ahead" in result.observation.text


def test_another_seed_is_another_layout_of_the_same_level():
    env = BabyAI()
    first, second, again = (env.reset("babyai_5", seed).text and env.render() for seed in (0, 1, 0))
    assert first == again
    assert first["cells"] != second["cells"]
    assert first["level"] == second["level"]


def test_no_held_out_layout_is_a_training_layout():
    assert BabyAI.coinciding_items(BabyAI.items("eval"), BabyAI.items("train")) == {}
    assert BabyAI.coinciding_items(["babyai_1323", "babyai_0"], ["babyai_43", "babyai_1"]) == {"babyai_1323": ["babyai_43"]}


def test_render_is_json_with_a_well_formed_picture():
    env = BabyAI()
    env.reset("babyai_2")
    picture = json.loads(json.dumps(env.render()))
    assert picture["kind"] == "babyai"
    assert picture["text"].startswith("Your goal")
    assert (len(picture["cells"]), {len(row) for row in picture["cells"]}) == (picture["height"], {picture["width"]})
    assert picture["cells"][2][2] == ["ball", "red", ""]
    assert picture["cells"][0][0] == ["wall", "grey", ""]
    assert picture["cells"][5][6] is None
    assert (picture["visible"][2][2], picture["visible"][5][7]) == (1, 0)
    assert picture["objects"] == [{"id": 0, "type": "ball", "color": "red", "state": "", "x": 2, "y": 2}]
    assert ElementTree.fromstring(picture["svg"]).get("viewBox") == "0 0 128 128"


def test_known_cells_grow_and_ids_last():
    env = BabyAI()
    env.reset("babyai_18")  # PickupLoc
    before = env.render()
    env.step(next(action for action in env.available_actions() if action.startswith("pick up")))
    after = env.render()
    assert sum(map(sum, after["known"])) >= sum(map(sum, before["known"]))
    assert all(new >= old for rows in zip(before["known"], after["known"], strict=True) for old, new in zip(*rows, strict=True))
    assert {thing["id"] for thing in before["objects"]} == {thing["id"] for thing in after["objects"]} | {after["carrying"]["id"]}


TRANSCRIPT = """
import hashlib
from agentgym_envs.babyai import BabyAI, macros
from agentgym_envs.babyai.expert import Expert, RandomAgent
env, digest = BabyAI(), hashlib.sha256()
for item in BabyAI.items("train")[::50]:
    for agent in (RandomAgent(3), Expert()):
        observation = env.reset(item)
        agent.reset(observation, env.render)
        for _ in range(8):
            decision = agent.act(observation)
            result = env.step(decision.action)
            observation = result.observation
            digest.update(repr((decision, observation.text, observation.actions, result.reward)).encode())
print(digest.hexdigest())
"""


def test_equal_in_every_process_and_under_every_hash_seed():
    outputs = {
        subprocess.run(
            [sys.executable, "-c", TRANSCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "77")
    }
    assert len(outputs) == 1
    assert len(outputs.pop().strip()) == 64


WORDS = (
    "go to",
    "pick up",
    "go through",
    "toggle",
    "and",
    "drop",
    "turn",
    "left",
    "the",
    "a",
    "red",
    "grey",
    "ball",
    "key",
    "door",
    "1",
    "99",
)


@settings(max_examples=60, deadline=None)
@given(
    item=st.sampled_from(BabyAI.items("train")),
    choices=st.lists(
        st.one_of(
            st.integers(0, 10**6),
            st.text(max_size=40),
            st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join),
        ),
        max_size=25,
    ),
)
def test_no_sequence_of_actions_breaks_it(item, choices):
    env = BabyAI()
    observation = env.reset(item)
    total, is_done = 0.0, False
    for choice in choices:
        listed = isinstance(choice, int) and bool(observation.actions)
        action = observation.actions[choice % len(observation.actions)] if listed else str(choice)
        result = env.step(action)
        assert not (listed and result.info["invalid"])
        assert result.done or not is_done
        assert result.reward == 0.0 or (result.done and result.info["success"] and not is_done)
        assert result.info["steps"] <= result.info["max_steps"]
        observation, is_done, total = result.observation, result.done, total + result.reward
        assert list(observation.actions) == env.available_actions()
    assert total == (result.info["score"] if choices else 0.0)
    assert 0.0 <= total <= 1.0


def test_a_megabyte_of_action_is_refused():
    env = BabyAI()
    env.reset("babyai_2")
    result = env.step("go to the " * 100_000)
    assert result.info["invalid"]
    assert len(result.observation.text) < 250


def test_sessions_in_threads_do_not_disturb_each_other():
    items = BabyAI.items("train")[:36]
    alone = [play(BabyAI(), Expert(), item)[0] for item in items]
    found = {}

    def run(number):
        env = BabyAI()
        found[number] = [play(env, Expert(), item)[0] for item in items]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {0: alone, 1: alone}


def test_close_twice_and_play_again():
    env = BabyAI()
    env.reset("babyai_2")
    env.close()
    env.close()
    with pytest.raises(RuntimeError):
        env.step("drop")
    assert env.reset("babyai_2").actions


def test_random_agent_repeats_by_seed_and_only_acts():
    env = BabyAI()
    observation = env.reset("babyai_2")
    draws = [[agent.act(observation).action for _ in range(300)] for agent in (RandomAgent(5), RandomAgent(5), RandomAgent(6))]
    assert draws[0] == draws[1] != draws[2]
    commands = [macros.parse(action) for action in draws[0]]  # raises on anything outside the grammar
    assert {c.verb for c in commands} == {"turn left", "turn right", "move forward", "drop", "toggle", "go to", "pick up"} | {
        "go through",
        "toggle and go through",
    }
    assert len({c.name for c in commands}) > 20
