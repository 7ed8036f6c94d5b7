"""The BabyAI expert plays by the public interface, explains itself, and solves what can be solved."""

import pytest

from agentgym_envs.agents import expert
from agentgym_envs.babyai import BabyAI

ROUNDS = 20  # the paper's limit

#: Train items whose only key lies behind the door that it opens: minigrid draws such layouts of GoToImpUnlock now and then.
UNSOLVABLE = {"babyai_246", "babyai_566", "babyai_1406"}


def solve(item, seed=0, rounds=ROUNDS):
    """Decisions of an episode, and whether it succeeded."""
    env, agent = BabyAI(), expert("babyai")
    observation = env.reset(item, seed)
    agent.reset(observation, env.render)
    decisions = []
    for _ in range(rounds):
        decisions.append(agent.act(observation))
        result = env.step(decisions[-1].action)
        observation = result.observation
        if result.done:
            break
    return decisions, result.info["success"]


def test_solves_every_evaluation_item():
    assert [item for item in BabyAI.items("eval") if not solve(item)[1]] == []


@pytest.mark.slow
def test_solves_every_training_item_that_can_be_solved():
    assert {item for item in BabyAI.items("train") if not solve(item)[1]} == UNSOLVABLE


@pytest.mark.parametrize("item", sorted(UNSOLVABLE))
def test_unsolvable_layouts_have_their_key_behind_the_door(item):
    decisions, success = solve(item, rounds=3)
    assert not success
    assert decisions[-1].thought.startswith("there is no way to the ")


def test_takes_a_visible_goal_at_once_and_says_so():
    decisions, _ = solve("babyai_2")
    assert [(d.thought, d.action) for d in decisions] == [("red ball 1 is visible.", "go to red ball 1")]


def test_looks_around_for_a_goal_out_of_view():
    decisions, success = solve("babyai_41")
    assert success
    assert decisions[0].thought == "red ball is not visible, look around."
    assert decisions[0].action in ("turn left", "turn right")
    assert decisions[-1].action == "go to red ball 1"


def test_keeps_the_order_of_the_mission():
    decisions, success = solve("babyai_207")  # the red door after the green door
    assert success
    targets = [d.action for d in decisions if d.action.startswith("go to")]
    assert targets == ["go to green door 1", "go to red door 1"]


def test_claims_a_goal_that_it_faces_from_the_start():
    decisions, success = solve(41210)
    assert success
    assert [d.action for d in decisions] == ["go to purple door 1"]


def test_fetches_the_key_before_the_locked_door():
    decisions, success = solve("babyai_1846")
    actions = [d.action for d in decisions]
    assert success
    assert actions.index("pick up red key 1") < actions.index("toggle and go through red door 1")


def test_opens_a_box_that_bars_the_way_where_picking_it_up_would_lose():
    decisions, success = solve("babyai_1459")
    assert success
    assert [d.action for d in decisions] == ["go to grey box 1", "toggle", "pick up green key 1"]


@pytest.mark.parametrize("level", [12, 17, 18, 22, 23, 28, 32, 34, 37, 39])
def test_copes_with_levels_beyond_the_papers(level):
    assert sum(solve(40 * layout + level - 1, rounds=60)[1] for layout in range(1000, 1004)) >= 3
