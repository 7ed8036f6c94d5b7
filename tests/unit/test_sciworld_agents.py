"""SciWorld's expert and random agent, through the public interface."""

from __future__ import annotations

from collections import defaultdict

import pytest
from sciworld_factory import needs_java, new_env
from test_sciworld_env import of, play

from agentgym_envs import Observation
from agentgym_envs.agents import expert, random_agent
from agentgym_envs.sciworld import tasks
from agentgym_envs.sciworld.moves import Walker, route

ROUNDS = 30


@pytest.mark.parametrize(
    ("start", "goal", "way"),
    [
        ("kitchen", "kitchen", []),
        ("kitchen", "bathroom", ["bathroom"]),
        ("foundry", "bathroom", ["outside", "kitchen", "bathroom"]),
        ("art studio", "bedroom", ["hallway", "bedroom"]),
    ],
)
def test_shortest_ways(start: str, goal: str, way: list[str]) -> None:
    assert route(start, goal) == way


def test_walker_opens_only_closed_doors() -> None:
    look = "This room is called the bathroom.\n\tA door to the kitchen (that is open)"
    walk = Walker(look).go("hallway", "Onwards.")
    assert [d.action for d in walk] == ["go to kitchen", "open door to hallway", "go to hallway"]


def test_numbered_lists_are_answered_with_the_preferred_choice() -> None:
    plan = Walker("").do("focus on cup", "I focus.", "inventory")
    assert next(plan).action == "focus on cup"
    assert plan.send("Ambiguous request: which?\n0:\tfocus on cup (on table)\n1:\tfocus on cup (in inventory)").action == "1"


def test_expert_says_which_task_it_does_not_know() -> None:
    with pytest.raises(ValueError, match=r"knows no plan.*boil water"):
        expert("sciworld").reset(Observation("Your task is to boil water."), dict)


@needs_java
def test_expert_solves_every_task_of_the_suite() -> None:
    """One evaluation item of each of the 14 tasks."""
    env, of_task = new_env(), {tasks.locate(i)[0].id: i for i in tasks.eval_items()}
    assert len(of_task) == 14
    for item in of_task.values():
        assert play(env, expert("sciworld"), item, ROUNDS)[-1][1] == 100, item
    env.close()


@needs_java
@pytest.mark.slow
def test_expert_solves_every_eval_item_within_the_round_limit() -> None:
    env = new_env()
    failed = [i for i in tasks.eval_items() if play(env, expert("sciworld"), i, ROUNDS)[-1][1] != 100]
    env.close()
    assert failed == []


@needs_java
def test_random_agent_repeats_itself_and_fails() -> None:
    env, last = new_env(), defaultdict(list)
    for item in tasks.eval_items()[::50]:
        for seed in (1, 1, 2):
            last[seed].append(play(env, random_agent("sciworld", seed), item, ROUNDS))
    env.close()
    assert last[1][::2] == last[1][1::2]
    assert last[1][::2] != last[2]
    assert all(texts[-1][1] < 100 for texts in [*last[1], *last[2]])


def test_random_agent_answers_numbered_lists() -> None:
    agent = random_agent("sciworld", 0)
    agent.reset(Observation("x"), dict)
    assert agent.act(Observation("Ambiguous request:", ("0", "1", "2"))).action in {"0", "1", "2"}


@needs_java
def test_expert_fetches_water_for_the_melting_point() -> None:
    env = new_env()
    assert play(env, expert("sciworld"), of("measure-melting-point-known-substance", 340), ROUNDS)[-1][1] == 100
    env.close()
