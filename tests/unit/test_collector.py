"""The collector and the text player: stop reasons, rewards, failures, order, budgets, forks, clean-up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, ClassVar

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from agentgym_envs import core
from agentgym_envs.core import Environment, Observation, Split, StepResult, UnknownItem
from agentgym_envs.server import background_server
from agentgym_lite.agents import ChatRenderer, ReAct
from agentgym_lite.client import EnvironmentFailure, SessionPool
from agentgym_lite.config import RolloutConfig
from agentgym_lite.rollout import (
    Collector,
    EpisodeSpec,
    NativeEngine,
    ScriptedEngine,
    StopReason,
    Trajectory,
    derive_seed,
    play,
)

CHATML = """{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
# The newest message carries a mark that it loses when it has become history.
MARK_LAST = """{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + ('[new] ' if loop.last else '') + m.content + '<|im_end|>\\n' }}
{%- endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


class Counter(Environment):
    """Reach the item's number by ``add N``: reward 1 on success; past it the episode fails. ``crash`` raises, once or always."""

    name: ClassVar[str] = "counter"
    version: ClassVar[str] = "7"
    instructions: ClassVar[str] = "Count."
    opened: ClassVar[int] = 0
    steps: ClassVar[int] = 0
    crashes: ClassVar[int] = 0
    delay: ClassVar[float] = 0.0

    @classmethod
    def items(cls, split: Split) -> list[str]:
        return [f"counter_{i}" for i in (range(10) if split == "train" else range(10, 20))]

    @classmethod
    def task_of(cls, item_id: str | int) -> str:
        if not 0 <= cls.item_index(item_id) < 20:
            raise UnknownItem(f"no item {item_id}")
        return "even" if cls.item_index(item_id) % 2 == 0 else "odd"

    def reset(self, item_id: str | int, seed: int = 0) -> Observation:
        self.goal, self.value, self._closed = self.item_index(item_id), 0, False
        type(self).opened += 1
        return Observation(f"goal {self.goal} seed {seed}", ("add 1",))

    def step(self, action: str) -> StepResult:
        type(self).steps += 1
        time.sleep(type(self).delay)
        if action == "crash" and type(self).crashes:
            type(self).crashes -= 1
            raise OSError("gone")
        words = action.split()
        invalid = len(words) != 2 or not words[1].isdecimal()
        self.value += 0 if invalid else int(words[1])
        success, done = self.value == self.goal, self.value >= self.goal
        info = {"success": success, "invalid": invalid, "score": self.value}
        return StepResult(Observation(f"value {self.value}", ("add 1",)), float(success), done, info)

    def available_actions(self) -> list[str]:
        return ["add 1"]

    def render(self) -> dict[str, Any]:
        return {"kind": self.name, "text": str(self.value), "value": self.value, "goal": self.goal}

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            type(self).opened -= 1


@pytest.fixture(autouse=True)
def _counter(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(core._REGISTRY, "counter", f"{__name__}:Counter")
    Counter.opened = Counter.steps = Counter.crashes = 0
    Counter.delay = 0.0
    yield
    assert Counter.opened == 0, "an environment session was left open"


@pytest.fixture
def pools() -> Iterator[dict[str, SessionPool]]:
    with SessionPool("counter") as pool:
        yield {"counter": pool}


@cache
def make_renderer(template: str = CHATML) -> ChatRenderer:
    """One token per byte, and the three ChatML tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bpe = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|im_end|>")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]})
    tokenizer.chat_template = template
    return ChatRenderer(tokenizer)


def say(text: str, end: bool = True) -> list[int]:
    renderer = make_renderer()
    return [*renderer.tokenizer.encode(text), *([renderer.end_of_turn] if end else [])]


Script = Callable[[int, int, str], str | list[int]]


def scripted(script: Script, max_sessions: int = 4, max_length: int = 2000) -> ScriptedEngine:
    """An engine whose script sees and says text."""

    def ids(session: int, turn: int, context: list[int]) -> list[int]:
        said = script(session, turn, make_renderer().tokenizer.decode(context))
        return say(said) if isinstance(said, str) else said

    return ScriptedEngine(ids, stop_ids=make_renderer().stop_ids, max_sessions=max_sessions, max_length=max_length)


def make_collector(engine: Any, pools: Any, template: str = CHATML, **settings: Any) -> Collector:
    return Collector(engine, make_renderer(template), pools, ReAct(), RolloutConfig(**{"max_length": 2000, **settings}))


def collect_one(script: Script, pools: Any, item: int = 3, max_rounds: int = 5, **settings: Any) -> Trajectory:
    engine = scripted(script)
    trajectory = make_collector(engine, pools, **settings).collect([EpisodeSpec("counter", f"counter_{item}")], max_rounds, 0)[0]
    assert not engine.opened
    return trajectory


def check_rows(trajectory: Trajectory) -> None:
    """Rewards are conserved, and the masked tokens of each turn are the reply that the turn records."""
    decode = make_renderer().decode
    assert sum(sum(trajectory.token_rewards(i)) for i in range(len(trajectory.rows))) == trajectory.reward
    for number, turn in enumerate(trajectory.turns):
        row = trajectory.rows[turn.row]
        assert set(row.action_mask[turn.start : turn.end]) == {1}
        assert set(row.turn_ids[turn.start : turn.end]) == {number}
        assert decode(row.token_ids[turn.start : turn.end]) == turn.reply
    assert sum(sum(r.action_mask) for r in trajectory.rows) == sum(t.end - t.start for t in trajectory.turns)


# -- stop reasons -------------------------------------------------------------------------------------------------------------------


def test_success_and_everything_that_is_recorded(pools: Any) -> None:
    t = collect_one(lambda s, turn, c: f"Thought: go\nAction: add {turn + 1}", pools)
    assert (t.stop_reason, t.reward, t.success, t.task, t.env_version, t.max_rounds) == (StopReason.SUCCESS, 1.0, True, "odd", "7", 5)
    assert [(u.observation, u.action, u.reward, u.invalid, u.truncated) for u in t.turns] == [
        ("goal 3 seed 0", "add 1", 0.0, False, False),
        ("value 1", "add 2", 1.0, False, False),
    ]
    assert t.turns[1].info == {"success": True, "invalid": False, "score": 3}
    assert t.final_observation == "value 3"
    opening = "<|im_start|>system\nCount.<|im_end|>\n<|im_start|>user\ngoal 3 seed 0<|im_end|>\n<|im_start|>assistant\n"
    reply = "Thought: go\nAction: add 1<|im_end|>"
    between = "\n<|im_start|>user\nvalue 1<|im_end|>\n<|im_start|>assistant\n"
    [row] = t.rows
    assert make_renderer().tokenizer.decode(row.token_ids) == opening + reply + between + "Thought: go\nAction: add 2<|im_end|>"
    assert row.token_ids[t.turns[0].end - 1] == make_renderer().end_of_turn
    assert row.turn_ids[: t.turns[0].start] == [-1] * t.turns[0].start
    assert set(row.turn_ids[t.turns[0].end : t.turns[1].start]) == {1}  # an observation goes with the reply that it leads to
    assert {p for p, m in zip(row.logprobs, row.action_mask, strict=True) if m} == {-0.5}
    assert row.position_ids == list(range(len(row)))
    check_rows(t)


def test_failure(pools: Any) -> None:
    t = collect_one(lambda s, turn, c: "Action: add 9", pools)
    assert (t.stop_reason, t.reward, len(t.turns), t.final_observation) == (StopReason.FAILURE, 0.0, 1, "value 9")
    check_rows(t)


def test_max_rounds(pools: Any) -> None:
    t = collect_one(lambda s, turn, c: "Action: add 1", pools, item=9, max_rounds=4)
    assert (t.stop_reason, len(t.turns), Counter.steps) == (StopReason.MAX_ROUNDS, 4, 4)
    assert t.rows[0].action_mask[-1] == 1  # no observation behind the last reply
    check_rows(t)


def test_success_in_the_last_round_is_success(pools: Any) -> None:
    assert collect_one(lambda s, turn, c: "Action: add 3", pools, max_rounds=1).stop_reason is StopReason.SUCCESS


def test_context_full_stops_before_the_turn_that_might_not_fit(pools: Any) -> None:
    reply = "Action: add 1"
    probe = collect_one(lambda s, turn, c: reply, pools, item=9, max_rounds=3)
    # Exactly enough for the context of turn 2 and a full reply of 30 tokens, then one token less.
    enough = probe.turns[2].start + 30
    for limit, turns in ((enough, 3), (enough - 1, 2)):
        t = collect_one(lambda s, turn, c: reply, pools, item=9, max_rounds=9, max_length=limit, max_new_tokens=30)
        assert (t.stop_reason, len(t.turns)) == (StopReason.CONTEXT_FULL, turns)
        assert len(t.rows[0]) <= limit
        assert t.rows[0].action_mask[-1] == 1
        assert t.final_observation == f"value {turns}"
        check_rows(t)


def test_the_engines_own_limit_counts_too(pools: Any) -> None:
    engine = scripted(lambda s, turn, c: "Action: add 1", max_length=200)
    t = make_collector(engine, pools).collect([EpisodeSpec("counter", "counter_9")], 9, 0)[0]
    assert t.stop_reason is StopReason.CONTEXT_FULL
    assert len(t.rows[0]) <= 200


def test_an_opening_that_does_not_fit_is_an_error(pools: Any) -> None:
    with pytest.raises(ValueError, match=r"opening of counter item 'counter_3' has \d+ tokens.*raise rollout.max_length"):
        collect_one(lambda s, turn, c: "Action: add 1", pools, max_length=60)


def test_env_error_is_retried_once_from_the_start_with_the_same_seeds(pools: Any) -> None:
    Counter.crashes = 1
    seeds: list[int] = []
    engine = scripted(lambda s, turn, c: ["Action: add 1", "Action: crash", "Action: add 2"][turn])
    submit = engine.submit
    engine.submit = lambda session, ids, sampling, seed: seeds.append(seed) or submit(session, ids, sampling, seed)  # type: ignore[method-assign, func-returns-value]
    collector = make_collector(engine, pools)
    spec = EpisodeSpec("counter", "counter_3", seed=4, sample=2)
    t = collector.collect([spec], 5, run_seed=8)[0]
    # The second time `crash` is merely an action that the environment cannot read.
    assert (t.stop_reason, [u.invalid for u in t.turns]) == (StopReason.SUCCESS, [False, True, False])
    expected = [derive_seed(8, spec, turn) for turn in range(3)]
    assert seeds == expected[:2] + expected
    assert (collector.stats.env_failures, collector.stats.env_errors) == (1, 0)
    assert not engine.opened
    check_rows(t)


def test_env_error_twice_is_marked_counted_and_kept(pools: Any) -> None:
    Counter.crashes = 2
    engine = scripted(lambda s, turn, c: "Action: crash" if "goal 3" in c else "Action: add 1")
    collector = make_collector(engine, pools)
    specs = [EpisodeSpec("counter", "counter_3"), EpisodeSpec("counter", "counter_1")]
    broken, fine = collector.collect(specs, 5, 0)
    assert (broken.stop_reason, broken.trainable, broken.reward, len(broken.turns)) == (StopReason.ENV_ERROR, False, 0.0, 1)
    assert "OSError: gone" in broken.info["env_error"]
    assert fine.stop_reason is StopReason.SUCCESS
    assert (collector.stats.env_failures, collector.stats.env_errors) == (2, 1)
    check_rows(broken)


# -- replies ------------------------------------------------------------------------------------------------------------------------


def test_a_reply_without_an_action_is_told_so_and_never_reaches_the_environment(pools: Any) -> None:
    contexts: list[str] = []
    t = collect_one(lambda s, turn, c: contexts.append(c) or ("mumble" if turn == 0 else "Action: add 3"), pools)  # type: ignore[func-returns-value]
    assert (t.stop_reason, Counter.steps) == (StopReason.SUCCESS, 1)
    first, second = t.turns
    assert (first.action, first.invalid, first.reward) == (None, True, 0.0)
    assert second.observation == ReAct().parse("mumble").error
    assert f"<|im_start|>user\n{second.observation}<|im_end|>" in contexts[1]
    check_rows(t)


def test_replies_without_actions_use_up_the_rounds(pools: Any) -> None:
    t = collect_one(lambda s, turn, c: "mumble", pools, max_rounds=3)
    assert (t.stop_reason, len(t.turns), Counter.steps) == (StopReason.MAX_ROUNDS, 3, 0)


def test_a_truncated_reply_is_marked_and_its_end_token_is_not_trained(pools: Any) -> None:
    t = collect_one(lambda s, turn, c: say("Action: add 1 and on and on"), pools, item=2, max_rounds=2, max_new_tokens=13)
    assert [(u.reply, u.truncated, u.end - u.start) for u in t.turns] == [("Action: add 1", True, 13)] * 2
    end = make_renderer().end_of_turn
    [row] = t.rows
    assert (row.token_ids[t.turns[0].end], row.action_mask[t.turns[0].end]) == (end, 0)
    assert t.stop_reason is StopReason.SUCCESS
    check_rows(t)


def test_a_template_that_rewrites_history_forks_the_rows(pools: Any) -> None:
    engine = scripted(lambda s, turn, c: f"Action: add {s + 1}", max_sessions=1)
    [t] = make_collector(engine, pools, MARK_LAST).collect([EpisodeSpec("counter", "counter_6")], 5, 0)
    assert (t.stop_reason, [u.row for u in t.turns], [u.action for u in t.turns]) == (
        StopReason.SUCCESS,
        [0, 1, 2],
        ["add 1", "add 2", "add 3"],
    )
    assert [engine.contexts[i] for i in range(3)] == [r.token_ids for r in t.rows]  # a fresh session for each row
    assert make_renderer().tokenizer.decode(t.rows[1].token_ids).count("[new]") == 1
    assert [t.token_rewards(i)[-1] for i in range(3)] == [0.0, 0.0, 1.0]
    check_rows(t)


# -- many episodes ------------------------------------------------------------------------------------------------------------------


def random_length_script(session: int, turn: int, context: str) -> str:
    goal = int(context.split("goal ")[1].split()[0])
    return f"Thought: {'hm' * (goal * 7 % 5)}\nAction: add {1 + goal % 3}"


@pytest.mark.parametrize("lag", [1, 3, None])
def test_order_of_results_progress_and_refilled_slots(pools: Any, lag: int | None) -> None:
    specs = [EpisodeSpec("counter", f"counter_{1 + i * 7 % 19}", sample=i) for i in range(20)]
    engine = scripted(random_length_script, max_sessions=3)
    progress: list[tuple[int, int]] = []
    ended: list[Trajectory] = []
    collector = make_collector(engine, pools, env_lag=lag)
    out = collector.collect(specs, {"counter": 25}, 0, lambda *p: progress.append(p), on_episode=ended.append)
    assert [t.spec for t in out] == specs
    assert progress == [(i + 1, 20) for i in range(20)]
    assert sorted(map(id, ended)) == sorted(map(id, out))
    assert [t.spec for t in ended] != specs  # they end in another order
    assert len(engine.contexts) == 20
    stats = collector.stats
    assert stats.sampled_tokens == sum(sum(t.rows[0].action_mask) for t in out)
    assert stats.prefilled_tokens == sum(len(t.rows[0]) for t in out) - stats.sampled_tokens
    assert stats.engine_steps > 0
    assert stats.total_s > stats.env_wait_s >= 0


def tiny_engine(max_sessions: int) -> NativeEngine:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(make_renderer().tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.2,
    )
    model = Qwen2ForCausalLM(config).eval()
    return NativeEngine(model, max_sessions=max_sessions, max_length=900, stop_ids=make_renderer().stop_ids)


class SpeakingFormat(ReAct):
    """Makes an action of any reply, so that an untrained policy gets to act."""

    def parse(self, reply: str) -> Any:
        return super().parse(f"Action: add {len(reply) % 3}" if len(reply) % 4 else reply)


def collect_sampled(pools: Any, max_sessions: int = 8, lag: int | None = 2, order: int = 1, **options: Any) -> list[Trajectory]:
    specs = [EpisodeSpec("counter", f"counter_{5 + i // 2}", sample=i % 2) for i in range(10)][::order]
    settings = RolloutConfig(max_new_tokens=12, max_length=900, env_lag=lag)
    collector = Collector(tiny_engine(max_sessions), make_renderer(), pools, SpeakingFormat(), settings)
    return collector.collect(specs, 4, **{"run_seed": 3, **options})[::order]


def tokens(trajectories: Sequence[Trajectory]) -> list[list[int]]:
    return [r.token_ids for t in trajectories for r in t.rows]


def test_a_real_engine_gives_the_same_episodes_whatever_the_schedule(pools: Any) -> None:
    expected = collect_sampled(pools)
    for t in expected:
        check_rows(t)
    assert len({tuple(row) for row in tokens(expected)}) == 10  # members of a group differ
    for variant in ({"lag": 1}, {"lag": 3}, {"lag": None}, {"max_sessions": 1}, {"order": -1}):
        assert tokens(collect_sampled(pools, **variant)) == tokens(expected), variant
    again = collect_sampled(pools)
    assert [t.to_dict() for t in again] == [t.to_dict() for t in expected]  # to the last bit of every log-prob


def test_run_seed_changes_the_episodes_and_greedy_ignores_it(pools: Any) -> None:
    assert tokens(collect_sampled(pools, run_seed=4)) != tokens(collect_sampled(pools))
    greedy = collect_sampled(pools, greedy=True)
    assert tokens(greedy) == tokens(collect_sampled(pools, greedy=True, run_seed=4))
    assert tokens(greedy[0:1]) == tokens(greedy[1:2])  # a group without chance


@pytest.mark.parametrize("lag", [2, None])
def test_episodes_over_http_equal_those_in_process(pools: Any, lag: int | None) -> None:
    expected = collect_sampled(pools)
    with background_server(["counter"]) as url, SessionPool("counter", url) as pool:
        found = collect_sampled({"counter": pool}, lag=lag)
        Counter.delay = 0.003
        late = collect_sampled({"counter": pool}, lag=lag)
    assert tokens(found) == tokens(late) == tokens(expected)
    if lag is not None:
        assert [t.to_dict() for t in found] == [t.to_dict() for t in late] == [t.to_dict() for t in expected]


# -- misuse and clean-up ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_nothing_is_left_open_when_something_raises(pools: Any, error: type[BaseException]) -> None:
    def script(session: int, turn: int, context: str) -> str:
        if session == 4:
            raise error
        return random_length_script(session, turn, context)

    engine = scripted(script, max_sessions=3)
    with pytest.raises(error):
        make_collector(engine, pools).collect([EpisodeSpec("counter", f"counter_{i}") for i in range(1, 9)], 9, 0)
    assert not engine.opened
    assert Counter.opened == 0
    engine.sync()


def test_nothing_is_left_open_over_http_when_something_raises() -> None:
    def script(session: int, turn: int, context: str) -> str:
        if session == 2:
            raise KeyboardInterrupt
        return "Action: add 1"

    Counter.delay = 0.01
    with background_server(["counter"]) as url, SessionPool("counter", url) as pool:
        engine = scripted(script, max_sessions=3)
        with pytest.raises(KeyboardInterrupt):
            make_collector(engine, {"counter": pool}).collect([EpisodeSpec("counter", f"counter_{i}") for i in range(5, 9)], 9, 0)
        deadline = time.monotonic() + 5
        while Counter.opened and time.monotonic() < deadline:
            time.sleep(0.01)
        assert Counter.opened == 0
        assert not engine.opened


def test_an_unknown_item_is_an_error_and_leaves_nothing_open(pools: Any) -> None:
    engine = scripted(lambda s, turn, c: "Action: add 1")
    with pytest.raises(UnknownItem, match="no item counter_99"):
        make_collector(engine, pools).collect([EpisodeSpec("counter", "counter_1"), EpisodeSpec("counter", "counter_99")], 9, 0)
    assert not engine.opened


def test_a_server_that_cannot_be_reached_is_one_error() -> None:
    engine = scripted(lambda s, turn, c: "Action: add 1")
    with SessionPool("counter", "http://127.0.0.1:9", retries=0) as pool, pytest.raises(EnvironmentFailure, match="no server answers"):
        make_collector(engine, {"counter": pool}).collect([EpisodeSpec("counter", "counter_1")], 9, 0)


@pytest.mark.parametrize("rounds", [0, {}, {"counter": 0}])
def test_missing_limits_and_pools_are_refused(pools: Any, rounds: Any) -> None:
    collector = make_collector(scripted(lambda s, turn, c: "Action: add 1"), pools)
    with pytest.raises(ValueError, match="max_rounds of at least 1 for environment 'counter'"):
        collector.collect([EpisodeSpec("counter", "counter_1")], rounds, 0)
    with pytest.raises(ValueError, match="found none for textcraft"):
        collector.collect([EpisodeSpec("textcraft", "textcraft_1")], 3, 0)


def test_no_specs_no_episodes(pools: Any) -> None:
    assert make_collector(scripted(lambda s, turn, c: "Action: add 1"), pools).collect([], 3, 0) == []


# -- text policies ------------------------------------------------------------------------------------------------------------------


class Stepper:
    """Adds 1 until the goal, which it reads from the rendering; says something without an action first if ``mumble``."""

    def __init__(self, mumble: bool = False) -> None:
        self._mumble = mumble

    def reset(self, observation: Observation, render: Callable[[], dict[str, Any]]) -> None:
        self._render = render
        assert observation.text.startswith("goal")

    def act(self, observation: Observation) -> str:
        if self._mumble:
            self._mumble = False
            return "mumble"
        state = self._render()
        assert observation.actions == ("add 1",)
        return f"Thought: {state['goal'] - state['value']} to go\nAction: add 1"


def test_play_runs_text_policies_without_tokens(pools: Any) -> None:
    specs = [EpisodeSpec("counter", f"counter_{i}") for i in (4, 1, 2, 9)]
    ended: list[Trajectory] = []
    out = play(lambda spec: Stepper(), specs, pools, 5, max_sessions=2, on_episode=ended.append)
    assert [t.spec for t in out] == specs
    assert [(t.stop_reason.value, len(t.turns)) for t in out] == [("success", 4), ("success", 1), ("success", 2), ("max_rounds", 5)]
    assert all(t.rows == [] and not t.trainable for t in out)
    assert out[0].turns[1].reply == "Thought: 3 to go\nAction: add 1"
    assert len(ended) == 4


def test_play_with_a_renderer_builds_the_rows_that_an_engine_would(pools: Any) -> None:
    specs = [EpisodeSpec("counter", "counter_3")]
    [t] = play(lambda spec: Stepper(mumble=True), specs, pools, 5, renderer=make_renderer())
    replies = [u.reply for u in t.turns]
    assert [u.invalid for u in t.turns] == [True, False, False, False]
    [sampled] = make_collector(scripted(lambda s, turn, c: replies[turn]), pools).collect(specs, 5, 0)
    assert t.rows[0].token_ids == sampled.rows[0].token_ids
    assert t.rows[0].action_mask == sampled.rows[0].action_mask
    assert t.turns == sampled.turns
    assert set(t.rows[0].logprobs) == {0.0}
    check_rows(t)


def test_play_forks_rows_and_retries_with_a_new_policy(pools: Any) -> None:
    Counter.crashes = 1
    made: list[EpisodeSpec] = []

    class Crasher(Stepper):
        def act(self, observation: Observation) -> str:
            return "Action: crash" if len(made) == 1 else super().act(observation)

    def factory(spec: EpisodeSpec) -> Crasher:
        made.append(spec)
        return Crasher()

    [t] = play(factory, [EpisodeSpec("counter", "counter_2")], pools, 5, renderer=make_renderer(MARK_LAST))
    assert (t.stop_reason, len(made), len(t.rows)) == (StopReason.SUCCESS, 2, 2)
    check_rows(t)
