"""Strategies and memories: what the policy reads, which tokens train, how rows fork, and what counts as success."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from agents_factory import Expert, Said, Sums, renderer, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_envs import core
from agentgym_lite.agents import AgentPolicy, Scaffold, make_scaffold, opening_messages
from agentgym_lite.client import SessionPool
from agentgym_lite.config import ConfigError, parse_config
from agentgym_lite.rollout import EpisodeSpec, StopReason, Trajectory, play
from agentgym_lite.training.batch import Batch
from agentgym_lite.training.data import DataError, in_tokens_of

STRATEGIES = ["plain", "plan", "reflect:2", "reflect:3"]
MEMORIES = ["full", "window:1", "window:2", "summary:1", "summary:2"]
FORMATS = ["react", "function_call", "code", "search_tags", "backticks"]


@pytest.fixture(autouse=True, scope="module")
def _sums() -> Iterator[None]:
    sys.modules.setdefault("agents_factory", sys.modules[Sums.__module__])
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(core._REGISTRY, "sums", f"{Sums.__module__}:Sums")
        yield


@pytest.fixture(autouse=True)
def _log() -> None:
    Sums.log.clear()


def asks(scaffold: Scaffold) -> tuple[str, str]:
    """Texts of the strategy's question before acting and of the one after a failure."""
    first, failed = scaffold.strategy.ask(0, 0), scaffold.strategy.after_failure(0)
    return first.text if first else "", failed.text if failed else ""


# -- by hand ------------------------------------------------------------------------------------------------------------------------

HEAD = "<system\nCount. Reply in this form:\nThought: why\nAction: add N\nGood luck.>\n"


def test_plain_is_one_row_of_rounds() -> None:
    t = Said(["Action: add 1", "Action: add 2"]).play(make_scaffold())
    assert texts(t) == [HEAD + "<user\ngoal 3>\n<assistant\n«Action: add 1>»\n<user\nvalue 1>\n<assistant\n«Action: add 2>»"]
    assert (t.stop_reason, t.reward, t.rounds, t.attempts) == (StopReason.SUCCESS, 1.0, 2, 1)
    assert "agent" not in t.info


def test_the_plan_is_sampled_trained_and_takes_no_round() -> None:
    scaffold = make_scaffold(strategy="plan")
    ask = scaffold.strategy.ask(0, 0)
    assert ask is not None
    t = Said(["1. add three", "Action: add 3"]).play(scaffold, max_rounds=1)
    assert texts(t) == [
        HEAD + f"<user\ngoal 3\n\n{ask.text}>\n<assistant\n«1. add three>»\n<user\n{ask.then}>\n<assistant\n«Action: add 3>»"
    ]
    assert [(u.kind, u.action, u.invalid) for u in t.turns] == [("plan", None, False), ("act", "add 3", False)]
    assert (t.stop_reason, t.reward, t.rounds) == (StopReason.SUCCESS, 1.0, 1)
    assert t.info["agent"] == {"strategy": "plan"}


def test_a_reflection_is_carried_into_the_next_attempt_and_earlier_rewards_do_not_count() -> None:
    scaffold = make_scaffold(strategy="reflect:2")
    _, question = asks(scaffold)
    t = Said(["Action: add 1", "Action: add 9", "Too much.", "Action: add 3"]).play(scaffold)
    assert texts(t) == [
        HEAD + "<user\ngoal 3>\n<assistant\n«Action: add 1>»\n<user\nvalue 1>\n<assistant\n«Action: add 9>»\n"
        f"<user\nvalue 10\n\n{question}>\n<assistant\n«Too much.>»",
        HEAD + "<user\ngoal 3\n\nYou failed attempt 1 and noted:\nToo much.>\n<assistant\n«Action: add 3>»",
    ]
    assert Sums.log == ["reset sums_3 5", "add 1", "add 9", "reset sums_3 5", "add 3"]
    assert [(u.kind, u.attempt, u.row, u.reward) for u in t.turns] == [
        ("act", 0, 0, 0.0),
        ("act", 0, 0, 0.0),
        ("reflection", 0, 0, 0.0),
        ("act", 1, 1, 1.0),
    ]
    assert t.turns[0].info["reward"] == pytest.approx(1 / 3)  # earned, and taken back
    assert (t.stop_reason, t.reward, t.rounds, t.attempts) == (StopReason.SUCCESS, 1.0, 3, 2)


def test_attempts_are_bounded_and_the_last_one_says_how_it_ended() -> None:
    t = Said(["Action: add 1", "I was slow."]).play(make_scaffold(strategy="reflect:3"), max_rounds=1)
    assert [u.kind for u in t.turns] == ["act", "reflection", "act", "reflection", "act"]
    assert (t.stop_reason, t.attempts, t.rounds) == (StopReason.MAX_ROUNDS, 3, 3)
    assert t.reward == pytest.approx(1 / 3)
    over = Said(["Action: add 9", "I was rash."]).play(make_scaffold(strategy="reflect:2"), max_rounds=5)
    assert (over.stop_reason, over.attempts, over.reward) == (StopReason.FAILURE, 2, 0.0)
    assert texts(t)[2].count("I was slow.") == 2


def test_success_at_once_needs_no_reflection() -> None:
    t = Said(["Action: add 3"]).play(make_scaffold(strategy="reflect:3"))
    assert (t.success, t.attempts, len(t.rows)) == (True, 1, 1)


def test_a_window_forks_the_row_where_history_is_dropped() -> None:
    t = Said(["Action: add 1"]).play(make_scaffold(memory="window:1"))
    left_out = "Some turns are left out here."
    assert texts(t) == [
        HEAD + "<user\ngoal 3>\n<assistant\n«Action: add 1>»\n<user\nvalue 1>\n<assistant\n«Action: add 1>»",
        HEAD + f"<user\ngoal 3\n\n{left_out}\n\nvalue 1>\n<assistant\nAction: add 1>\n<user\nvalue 2>\n<assistant\n«Action: add 1>»",
    ]
    assert (t.success, [u.row for u in t.turns]) == (True, [0, 0, 1])


def test_a_plan_that_leaves_the_window_stays_in_view() -> None:
    scaffold = make_scaffold(strategy="plan", memory="window:1")
    t = Said(["1. add ones", *["Action: add 1"] * 3]).play(scaffold)
    assert "Your plan:\n1. add ones\n\nSome turns are left out here.\n\nvalue 1>" in texts(t)[-1]


def test_a_summary_takes_the_place_of_history() -> None:
    scaffold = make_scaffold(memory="summary:1")
    ask = scaffold.memory.ask(1)
    assert ask is not None
    t = Said(["Action: add 1", "I have 1.", "Action: add 2"]).play(scaffold)
    assert texts(t) == [
        HEAD + f"<user\ngoal 3>\n<assistant\n«Action: add 1>»\n<user\nvalue 1\n\n{ask.text}>\n<assistant\n«I have 1.>»",
        HEAD + "<user\ngoal 3\n\nWhat happened so far, as you noted it:\nI have 1.\n\nvalue 1>\n<assistant\n«Action: add 2>»",
    ]
    assert [u.kind for u in t.turns] == ["act", "summary", "act"]
    assert t.reward == pytest.approx(1.0)


def test_a_new_summary_replaces_the_old_one() -> None:
    t = Said(["Action: add 1", "I have 1.", "Action: add 1", "I have 2.", "Action: add 1"]).play(make_scaffold(memory="summary:1"))
    assert ("I have 1." in texts(t)[2], "I have 2." in texts(t)[2]) == (False, True)


def test_a_reply_that_is_no_action_is_a_round_and_is_told() -> None:
    t = Said(["hm", "Action: add 3"]).play(make_scaffold())
    assert [(u.invalid, u.action) for u in t.turns] == [(True, None), (False, "add 3")]
    assert "no 'Action:' line" in t.turns[1].observation
    assert Sums.log == ["reset sums_3 5", "add 3"]


def test_the_plain_dialogue_opens_as_before() -> None:
    dialogue = make_scaffold().dialogue("sums", "rules")
    dialogue.begin("first")
    assert dialogue.messages == opening_messages("rules", "first")


def test_the_context_budget_is_checked_before_every_turn_of_any_kind() -> None:
    full = Said(["Action: add 1"], max_length=330).play(make_scaffold(), item=9, max_rounds=9, max_new_tokens=40)
    window = Said(["Action: add 1"], max_length=330).play(make_scaffold(memory="window:1"), item=9, max_rounds=9, max_new_tokens=40)
    assert full.stop_reason is StopReason.CONTEXT_FULL
    assert window.success  # it forgets, so that it fits
    assert all(len(row) <= 330 for t in (full, window) for row in t.rows)
    noted = Said(["Action: add 1"], max_length=190).play(make_scaffold(memory="summary:1"), item=9, max_rounds=9, max_new_tokens=40)
    assert noted.stop_reason is StopReason.CONTEXT_FULL  # there was no room to ask for the summary
    assert [u.kind for u in noted.turns] == ["act"]


# -- always -------------------------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(
    strategy=st.sampled_from(STRATEGIES),
    memory=st.sampled_from(MEMORIES),
    replies=st.lists(st.sampled_from(["Action: add 1", "Action: add 2", "Action: add 9", "hm", ""]), min_size=1, max_size=6),
    item=st.integers(1, 9),
    rounds=st.integers(1, 4),
)
def test_tokens_masks_and_rewards_of_every_agent(strategy: str, memory: str, replies: list[str], item: int, rounds: int) -> None:
    said = Said(replies)
    t = said.play(make_scaffold(strategy=strategy, memory=memory), item, rounds)
    assert len(said.prompts) == len(t.turns)
    for number, (turn, prompt) in enumerate(zip(t.turns, said.prompts, strict=True)):
        row = t.rows[turn.row]
        assert row.token_ids[: turn.start] == prompt  # the exact prefix that the sampler read
        assert row.token_ids[turn.start : turn.end] == renderer().reply(turn.reply)
        assert set(row.action_mask[turn.start : turn.end]) == {1}
        assert set(row.turn_ids[turn.start : turn.end]) == {number}
    # Every sampled token trains once, and nothing else does.
    assert sum(sum(r.action_mask) for r in t.rows) == sum(u.end - u.start for u in t.turns)
    assert [u.row for u in t.turns] == sorted(u.row for u in t.turns)
    assert sum(sum(t.token_rewards(i)) for i in range(len(t.rows))) == pytest.approx(t.reward)
    assert 0.0 <= t.reward <= 1.0 + 1e-9
    assert max(sum(u.kind == "act" and u.attempt == a for u in t.turns) for a in range(t.attempts)) <= rounds
    # The text alone gives the same rows again.
    again = in_tokens_of(Trajectory.from_dict({**t.to_dict(), "rows": []}), renderer())
    assert [(r.token_ids, r.action_mask, r.turn_ids) for r in again.rows] == [(r.token_ids, r.action_mask, r.turn_ids) for r in t.rows]


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("strategy", ["plain", "plan", "reflect"])
def test_rows_of_an_episode_are_one_sample_to_the_trainer(strategy: str, memory: str) -> None:
    scaffold = make_scaffold(strategy=strategy, memory=memory)
    good, bad = Said(["Action: add 1"]).play(scaffold), Said(["hm", "Action: add 1"]).play(scaffold, max_rounds=2)
    batch = Batch.from_trajectories([good, bad])
    assert len(batch) == len(good.rows) + len(bad.rows)
    assert batch.samples.returns.tolist() == pytest.approx([good.reward, bad.reward])
    tokens = [sum(sum(r.action_mask) for r in t.rows) for t in (good, bad)]
    assert batch.episode_tokens.tolist() == [tokens[e] for e in batch.episodes.tolist()]
    sampled = [i for t in (good, bad) for u in t.turns for i in t.rows[u.row].token_ids[u.start : u.end]]
    assert batch.targets[batch.mask.bool()].tolist() == sampled
    assert torch.equal(batch.rewards[batch.mask == 0], torch.zeros(int((batch.mask == 0).sum())))


def test_kinds_of_turn_with_one_observation_are_not_peers() -> None:
    t = Said(["1. go", "Action: add 3"]).play(make_scaffold(strategy="plan"))
    batch = Batch.from_trajectories([t])
    anchors = {int(batch.anchors[0, u.start - 1]) for u in t.turns}
    assert len(anchors) == 2


# -- experts ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", ["full", "window:1", "summary:1"])
@pytest.mark.parametrize("strategy", ["plain", "plan"])
@pytest.mark.parametrize("form", FORMATS)
def test_experts_speak_as_any_agent(form: str, strategy: str, memory: str) -> None:
    scaffold = make_scaffold(form, strategy, memory)
    with SessionPool("sums") as pool:

        def episode(**options: Any) -> Trajectory:
            policy = AgentPolicy(Expert(), scaffold.formats("sums"), lambda: ["add 1", "add 1"])
            [t] = play(lambda _: policy, [EpisodeSpec("sums", "sums_2")], {"sums": pool}, 5, scaffold=scaffold, **options)
            return t

        told, tokens = episode(), episode(renderer=renderer())
    assert told.success
    assert (strategy == "plan") == ("1. add 1\n2. add 1" in [u.reply for u in told.turns])
    assert [u.action for u in told.turns if u.kind == "act"] == ["add 1", "add 1"]
    assert in_tokens_of(told, renderer()).rows == tokens.rows


def test_a_policy_that_cannot_answer_questions_is_refused() -> None:
    class Mute:
        def reset(self, observation: Any, render: Any) -> None: ...

        def act(self, observation: Any) -> str:
            return "Action: add 1"

    with SessionPool("sums") as pool, pytest.raises(TypeError, match="method 'note' to answer questions of kind 'plan', found Mute"):
        play(lambda _: Mute(), [EpisodeSpec("sums", "sums_2")], {"sums": pool}, 5, scaffold=make_scaffold(strategy="plan"))


def test_a_failed_policy_reflects_on_what_it_did() -> None:
    with SessionPool("sums") as pool:
        scaffold = make_scaffold(strategy="reflect")
        [t] = play(lambda _: AgentPolicy(Expert()), [EpisodeSpec("sums", "sums_9")], {"sums": pool}, 2, scaffold=scaffold)
    assert t.attempts == 2
    assert "add 1; add 1" in t.turns[2].reply


def test_data_of_an_agent_that_would_have_spoken_otherwise_are_refused() -> None:
    t = Said(["1. go", "Action: add 3"]).play(make_scaffold(strategy="plan"))
    t.info["agent"] = {"strategy": "plain"}
    with pytest.raises(DataError, match="expected a turn of kind 'act', found one of kind 'plan'"):
        in_tokens_of(t, renderer())
    t.info["agent"] = {"strategy": "dream"}
    with pytest.raises(DataError, match="cannot be made here"):
        in_tokens_of(t, renderer())


# -- settings -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"format": "xml"}, "format: expected react, function_call, code, search_tags, backticks or package.module:name"),
        ({"strategy": "reflect:1"}, "at least 2 attempts"),
        ({"strategy": "reflect:many"}, "whole number behind 'reflect:'"),
        ({"strategy": "plan:3"}, "'plan' takes no number"),
        ({"memory": "window"}, "'window' needs a number"),
        ({"memory": "window:0"}, "at least 1 turn"),
        ({"memory": "summary:0"}, "every 1 or more rounds"),
        ({"memory": "no_such_package:f"}, "agent.memory"),
    ],
)
def test_wrong_settings_are_explained(wrong: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_scaffold(**wrong)
    with pytest.raises(ConfigError, match=message):
        parse_config({"envs": [{"name": "textcraft"}], "agent": wrong})


def test_settings_name_what_is_not_usual() -> None:
    assert make_scaffold().settings == {}
    assert make_scaffold("code", "reflect:3", "window:4").settings == {"format": "code", "strategy": "reflect:3", "memory": "window:4"}


def test_parts_of_ones_own_are_found_by_their_place() -> None:
    own = make_scaffold("agents_factory:shouting", "agentgym_lite.agents:PlanFirst", "agentgym_lite.agents:Memory")
    dialogue = own.dialogue("sums", "rules")
    dialogue.begin("first")
    assert (dialogue.kind, dialogue.messages[0]["content"]) == ("plan", "SUMS")
