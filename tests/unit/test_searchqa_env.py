"""SearchQA: episodes, rewards, options, rendering and agents."""

import json

import pytest

from agentgym_envs.agents import expert, random_agent
from agentgym_envs.core import make
from agentgym_envs.searchqa import BM25, Passage, RetrievalError, SearchQA
from agentgym_envs.searchqa.questions import Item

TOY = [Passage("p1", "Peru: Capital", "name: Lima | x"), Passage("p2", "Chile: Capital", "name: Santiago | x")]


class Toy:
    """One question."""

    def item(self, index):
        return Item("eval", "nq", "What is the capital of Peru?", ("Lima City", "Lima"), ("p1",))


def toy(**options):
    env = SearchQA(retriever=BM25(TOY), questions=Toy(), **options)
    env.reset(0)
    return env


def test_a_search_and_an_answer():
    env = toy()
    result = env.step("Thought: look.\nAction: <search>Peru</search>")
    assert result.observation.text == '<information>Doc 1(Title: "Peru: Capital") name: Lima | x</information>'
    assert (result.reward, result.done, result.info["passages"]) == (0.0, False, ["p1"])
    result = env.step("<answer>the lima.</answer>")
    assert (result.reward, result.done, result.info["success"]) == (1.0, True, True)
    assert (result.info["em"], result.info["f1"], result.info["score"]) == (1.0, 1.0, 1.0)


def test_topk_and_no_hit():
    assert toy(topk=1).step("<search>capital</search>").info["passages"] == ["p1"]
    assert "No passage was found" in toy().step("<search>zzz</search>").observation.text


def test_a_wrong_answer_ends_the_episode():
    env = toy()
    result = env.step("<answer>Lima Peru</answer>")
    assert (result.reward, result.done, result.info["success"]) == (0.0, True, False)
    assert result.info["f1"] == pytest.approx(2 / 3)
    assert env.step("<answer>Lima</answer>").reward == 0.0


def test_f1_reward_pays_part():
    result = toy(reward="f1").step("<answer>Lima Peru</answer>")
    assert result.reward == result.info["score"] == pytest.approx(2 / 3)
    assert result.info["success"] is False


@pytest.mark.parametrize("reward", ["em", "f1"])
def test_reference_lets_the_agent_guess_on(reward):
    env = toy(end_on_wrong_answer=False, reward=reward)
    wrong = [env.step(f"<answer>{guess}</answer>") for guess in ("Santiago", "Lima Peru", "Cusco")]
    assert [(r.reward, r.done) for r in wrong] == [(0.0, False)] * 3
    right = env.step("<answer>Lima</answer>")
    assert (right.reward, right.done) == (1.0, True)


def test_constructor_checks():
    with pytest.raises(ValueError, match="topk >= 1"):
        SearchQA(topk=0)
    with pytest.raises(ValueError, match="'em' or 'f1'"):
        SearchQA(reward="bleu")  # type: ignore[arg-type]


def test_a_dead_retriever_is_not_the_agents_fault():
    class Dead:
        def search(self, query, k=3):
            raise RetrievalError("no passages from there")

    env = SearchQA(retriever=Dead(), questions=Toy())
    env.reset(0)
    with pytest.raises(RetrievalError):
        env.step("<search>x</search>")
    assert env.render()["steps"] == [], "a search that failed is not part of the episode"


def test_long_passages_are_cut():
    env = SearchQA(retriever=BM25([Passage("p", "T", "word " * 5000)]), questions=Toy())
    env.reset(0)
    assert len(env.step("<search>word</search>").observation.text) < 2200


def test_render_shows_gold_scores_and_grading():
    env = toy()
    assert env.render()["gold"] == [{"id": "p1", "found": False}]
    env.step("<search>capital</search>")
    env.step("<answer>Santiago</answer>")
    shown = env.render()
    json.dumps(shown, allow_nan=False)
    assert shown["gold"] == [{"id": "p1", "found": True}]
    search, answer = shown["steps"]
    assert [(p["id"], p["gold"]) for p in search["passages"]] == [("p1", True), ("p2", False)]
    assert search["passages"][0]["score"] > 0
    assert (answer["answer"], answer["em"], answer["f1"]) == ("Santiago", 0.0, 0.0)
    assert shown["answers"] == ["Lima City", "Lima"]
    for part in ("Question: What is", "Search: capital", "* ", "Peru: Capital", "Answer: Santiago (exact match 0, F1 0.00)"):
        assert part in shown["text"]


def test_seed_changes_nothing():
    env = SearchQA()
    assert env.reset(3, 0) == env.reset("searchqa_3", 9)


def play(agent, env, item, rounds=10):
    observation = env.reset(item)
    agent.reset(observation, lambda: pytest.fail("agents read observations only"))
    for n in range(1, rounds + 1):
        result = env.step(agent.act(observation).action)
        assert not result.info["invalid"]
        observation = result.observation
        if result.done:
            return bool(result.info["success"]), n
    return False, rounds


def test_expert_solves_a_sample_of_both_splits():
    env = make("searchqa")
    for item in [*SearchQA.items("eval")[::20], *SearchQA.items("train")[::120]]:
        assert play(expert("searchqa"), env, item)[0], item


@pytest.mark.slow
def test_expert_solves_every_eval_item_in_six_rounds():
    env = make("searchqa")
    evaluation = SearchQA.items("eval")
    items = [*evaluation, *SearchQA.items("train")[::5]]
    outcomes = {item: play(expert("searchqa"), env, item) for item in items}
    assert [item for item, (solved, _) in outcomes.items() if not solved] == []
    assert max(outcomes[item][1] for item in evaluation) <= 6
    assert max(n for _, n in outcomes.values()) <= 10


def test_expert_thinks_aloud_and_reads_only_what_it_is_shown():
    env, agent = toy(), expert("searchqa")
    agent.reset(env.reset(0), env.render)
    first = agent.act(env.reset(0))
    assert first.action.startswith("<search>Peru Capital")
    decision = agent.act(env.step(first.action).observation)
    assert decision.action == "<answer>Lima</answer>"
    assert "Peru: Capital says Lima." in decision.thought


def test_expert_gives_up_where_passages_do_not_say():
    env = SearchQA(retriever=BM25(TOY[1:]), questions=Toy())
    assert play(expert("searchqa"), env, 0) == (False, 3)


def test_random_agent_repeats_itself_and_rarely_wins():
    env = make("searchqa")
    items = SearchQA.items("eval")[::8]
    won = [play(random_agent("searchqa", seed), env, item)[0] for seed, item in enumerate(items)]
    assert won == [play(random_agent("searchqa", seed), env, item)[0] for seed, item in enumerate(items)]
    assert sum(won) < 0.1 * len(won)
