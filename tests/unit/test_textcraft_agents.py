"""TextCraft's expert and random agent."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_envs import Observation
from agentgym_envs.agents import Decision, TextAgent, expert, random_agent
from agentgym_envs.textcraft import Expert, Recipes, TextCraft


def episode(env: TextCraft, agent: TextAgent, item: str | int, rounds: int, seed: int = 0) -> tuple[bool, list[Decision]]:
    """Play up to ``rounds`` actions; returns success and what the agent did."""
    observation = env.reset(item, seed)
    agent.reset(observation, env.render)
    decisions: list[Decision] = []
    while len(decisions) < rounds:
        decisions.append(agent.act(observation))
        result = env.step(decisions[-1].action)
        observation = result.observation
        if result.done:
            return bool(result.info["success"]), decisions
    return False, decisions


def no_render() -> dict[str, object]:
    raise AssertionError("the expert has to act from the texts alone")


def test_expert_by_hand() -> None:
    rows = [
        ("oak planks", 4, {"oak log": 1}),
        ("birch planks", 4, {"birch log": 1}),
        ("slab", 6, {"oak planks": 3}),
        ("barrel", 1, {"slab": 2, "planks": 6, "glue": 1}),
    ]
    book = Recipes(rows, {"planks": ["oak planks", "birch planks"]})
    success, decisions = episode(TextCraft(book=book), Expert(), 3, 20)
    assert success
    barrel = "barrel needs 2 slab, 6 planks, 1 glue."
    planks = "oak planks needs 1 oak log."
    slab = "slab needs 3 oak planks. need 2, 6 each: 1 time."
    assert decisions == [
        Decision("get 1 oak log", f"{barrel} {slab} {planks} need 3, 4 each: 1 time."),
        Decision("craft 4 oak planks using 1 oak log", "craft oak planks, 1 time."),
        Decision("craft 6 slab using 3 oak planks", "craft slab, 1 time."),
        Decision("get 2 oak log", f"{barrel} have slab. planks: oak planks. {planks} need 6, have 1, 4 each: 2 times."),
        Decision("craft 4 oak planks using 1 oak log", "craft oak planks, 2 times."),
        Decision("craft 4 oak planks using 1 oak log", "craft oak planks, 1 more time."),
        Decision("get 1 glue", f"{barrel} have slab, oak planks."),
        Decision("craft 1 barrel using 2 slab, 6 oak planks, 1 glue", "craft barrel now."),
    ]


def test_expert_solves_every_eval_item_within_the_round_limit() -> None:
    env, agent = TextCraft(), expert("textcraft")
    goals = Recipes.default().goals
    for item in TextCraft.items("eval"):
        success, decisions = episode(env, agent, item, 20)
        assert success, item
        assert len(decisions) == goals[TextCraft.item_index(item)].rounds


@pytest.mark.parametrize("distractors", [0, 10])
def test_expert_solves_a_sample_of_train_items(distractors: int) -> None:
    env, agent = TextCraft(distractors), Expert()
    goals = Recipes.default().goals
    for item in TextCraft.items("train")[::5]:
        success, decisions = episode(env, agent, item, 60, seed=distractors)
        assert success, item
        assert len(decisions) == goals[TextCraft.item_index(item)].rounds  # the plan does not depend on what else is listed


def test_expert_acts_from_the_texts_alone() -> None:
    env, agent = TextCraft(), Expert()
    observation = env.reset("textcraft_540")
    agent.reset(Observation(observation.text), no_render)
    for _ in range(60):
        result = env.step(agent.act(Observation(observation.text)).action)
        observation = result.observation
        if result.done:
            break
    assert result.reward == 1.0


def test_expert_refuses_a_text_that_is_no_first_observation() -> None:
    with pytest.raises(ValueError, match="expected a first TextCraft observation"):
        Expert().reset(Observation("Got 1 oak log"), no_render)


@st.composite
def books(draw: st.DrawFn) -> Recipes:
    """Random books without cycles: an item is made from items with smaller numbers, named outright or by a tag."""
    size = draw(st.integers(4, 12))
    tags = {"first ones": ["item 0", "item 1"], "second ones": ["item 2", "item 3"]}
    rows = []
    for number in range(3, size):
        names = [f"item {i}" for i in range(number)] + ["first ones"] + (["second ones"] if number > 3 else [])
        chosen = {names[draw(st.integers(0, len(names) - 1))] for _ in range(draw(st.integers(1, 3)))}
        rows.append((f"item {number}", draw(st.integers(1, 4)), {name: draw(st.integers(1, 3)) for name in sorted(chosen)}))
    return Recipes(rows, tags)


@settings(max_examples=100, deadline=None)
@given(books(), st.data())
def test_expert_solves_invented_books_without_a_wasted_action(book: Recipes, data: st.DataObject) -> None:
    env, agent = TextCraft(book=book), Expert()
    index = data.draw(st.integers(0, len(book.goals) - 1))
    observation = env.reset(index)
    agent.reset(observation, env.render)
    for _ in range(20_000):
        result = env.step(agent.act(observation).action)
        observation = result.observation
        assert not result.info["invalid"]
        if result.done:
            break
    assert result.reward == 1.0


def test_random_agent_almost_never_succeeds() -> None:
    env = TextCraft()
    items = TextCraft.items("eval")
    wins = sum(episode(env, random_agent("textcraft", seed), item, 20)[0] for seed, item in enumerate(items))
    assert wins < 5


def test_random_agent_is_set_by_its_seed_and_uses_the_whole_grammar() -> None:
    env = TextCraft()
    runs = [episode(env, random_agent("textcraft", seed), "textcraft_3", 30)[1] for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]
    verbs = {decision.action.split()[0] for decision in runs[0]}
    assert verbs == {"get", "craft", "inventory"}
