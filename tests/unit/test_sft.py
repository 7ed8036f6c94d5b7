"""Supervised fine-tuning: trajectories from files and experts, the loss, whole runs, resumption, settings."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import supervised_factory as world
import torch
from hypothesis import given
from hypothesis import settings as fast
from hypothesis import strategies as st
from supervised_factory import assert_same_run, env, episode, experts, lines, outcome, renderer, settings, train
from trainer_factory import make_model, make_tokenizer

from agentgym_lite.config import ConfigError, FilterConfig, ScheduledOptimConfig, parse_config
from agentgym_lite.rollout.types import Trajectory
from agentgym_lite.training import CheckpointError, DataError, TrainingError, make_trainer
from agentgym_lite.training.batch import Batch
from agentgym_lite.training.checkpoint import CheckpointStore
from agentgym_lite.training.data import env_of, hold_out, in_tokens_of, parse_agent_traj, read_agent_traj, read_trajectories, select
from agentgym_lite.training.sft import nll_losses
from agentgym_lite.training.supervised import TokenSums, Updates, batch_at, updates_per_epoch

METRICS_DOC = Path(__file__).parents[2] / "docs" / "algorithms" / "metrics.md"


@pytest.fixture(autouse=True)
def _toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_envs.core._REGISTRY", {})
    world.register()


# -- the published format -----------------------------------------------------------------------------------------------


def published(**changes: Any) -> dict[str, Any]:
    """As in AgentTraj-L: rules, acknowledgement (not trained), observation, replies; the second of three is not trained."""
    return {
        "item_id": "echo_4",
        "conversations": [
            {"from": "human", "loss": None, "value": "say"},
            {"from": "gpt", "loss": False, "value": "say"},
            {"from": "human", "loss": None, "value": "green"},
            {"from": "gpt", "loss": True, "value": "Action: green"},
            {"from": "human", "loss": None, "value": "blue"},
            {"from": "gpt", "loss": False, "value": "Action: red"},
            {"from": "human", "loss": None, "value": "blue"},
            {"from": "gpt", "value": "Action: blue"},
            {"from": "human", "loss": None, "value": "end"},
        ],
    } | changes


def trained_text(t: Trajectory) -> list[str]:
    row = t.rows[0]
    return make_tokenizer().convert_ids_to_tokens([i for i, m in zip(row.token_ids, row.action_mask, strict=True) if m])


def test_only_replies_with_loss_are_trained_each_with_its_end_token() -> None:
    t = parse_agent_traj(published(), renderer())
    assert trained_text(t) == ["Action: green", "<|im_end|>", "Action: blue", "<|im_end|>"]
    roles = {"human": "user", "gpt": "assistant"}
    messages = [{"role": roles[c["from"]], "content": c["value"]} for c in published()["conversations"][:-1]]
    assert t.rows[0].token_ids == make_tokenizer().encode(make_tokenizer().apply_chat_template(messages, tokenize=False))


def test_the_opening_reaches_to_the_first_trained_reply() -> None:
    t = parse_agent_traj(published(), renderer())
    row = t.rows[0]
    first = row.action_mask.index(1)
    assert set(row.turn_ids[:first]) == {-1}
    assert row.turn_ids[first:] == sorted(row.turn_ids[first:])
    assert [turn.reply for turn in t.turns] == ["Action: green", "Action: red", "Action: blue"]
    for turn in (t.turns[0], t.turns[2]):
        assert make_tokenizer().decode(row.token_ids[turn.start : turn.end - 1]) == turn.reply
    assert t.turns[1].start == t.turns[1].end
    assert (t.reward, t.success, t.final_observation, t.spec.env, t.spec.item_id) == (1.0, True, "end", "echo", "echo_4")


def test_a_reward_in_the_record_decides_success() -> None:
    low = parse_agent_traj(published(reward=0.5), renderer())
    assert (low.reward, low.success) == (0.5, False)
    last_untrained = published(conversations=published()["conversations"][:6])
    assert parse_agent_traj(last_untrained, renderer()).token_rewards().count(1.0) == 1


def test_text_that_spells_a_control_token_trains_no_control_token() -> None:
    conversations = [{"from": "human", "value": "say"}, {"from": "gpt", "value": "end <|im_end|> end"}]
    t = parse_agent_traj({"item_id": "echo_1", "conversations": conversations}, renderer())
    ids = [i for i, m in zip(t.rows[0].token_ids, t.rows[0].action_mask, strict=True) if m]
    assert ids.count(renderer().end_of_turn) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"item_id": 3}, "field 'item_id' of type str"),
        ({"conversations": []}, "human and gpt messages in turn"),
        ({"conversations": [{"from": "gpt", "value": "say"}]}, "beginning with human"),
        ({"conversations": [{"from": "system", "value": "say"}]}, "human or gpt, found 'system'"),
        ({"conversations": [{"from": "human", "value": "say"}, {"from": "gpt", "value": "x", "loss": False}]}, "at least one gpt message"),
        ({"reward": 80}, "reward from 0 to 1, found 80"),
    ],
)
def test_a_broken_record_is_told_by_file_and_number(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "echo_train.json"
    path.write_text(json.dumps([published(), published(**change)]))
    with pytest.raises(DataError, match=rf"echo_train.json' episode 1: .*{message}"):
        read_agent_traj(path, renderer())


def test_files_that_are_not_there_or_not_lists(tmp_path: Path) -> None:
    for text, message in ((None, "expected a file of episodes"), ("{", "not JSON"), ("{}", "found dict")):
        path = tmp_path / "x.json"
        if text is not None:
            path.write_text(text)
        with pytest.raises(DataError, match=message):
            read_agent_traj(path, renderer())


def test_ids_belong_to_their_environment() -> None:
    assert [env_of(i) for i in ("echo_3", "lmrlgym_wordle_12", "webshop_0")] == ["echo", "lmrlgym_wordle", "webshop"]
    assert env_of("alfworld_pick_trial_T2019") == "alfworld"


# -- our own format -----------------------------------------------------------------------------------------------------


def write(path: Path, episodes: list[Trajectory]) -> Path:
    path.write_text("".join(json.dumps({"step": 1, **t.to_dict()}) + "\n" for t in episodes))
    return path


def test_sampled_ids_are_kept_and_foreign_ones_made_anew(tmp_path: Path) -> None:
    mine = episode(0, ["red", "green"])
    foreign = episode(1, ["green", "blue"])
    want = foreign.rows[0].token_ids
    foreign.rows[0].token_ids = [7] * len(want)  # ids of another tokenizer
    textual = episode(2, ["blue", "red"])
    textual.rows = []  # played without a tokenizer
    textual.turns = [type(t)(**{**vars(t), "start": 0, "end": 0}) for t in textual.turns]
    a, b, c = read_trajectories(write(tmp_path / "t.jsonl", [mine, foreign, textual]), renderer())
    assert (a.rows, a.turns) == (mine.rows, mine.turns)
    assert b.rows[0].token_ids == want
    assert (c.rows, c.turns) == (episode(2, ["blue", "red"]).rows, episode(2, ["blue", "red"]).turns)


def test_ids_beyond_the_vocabulary_are_made_anew(tmp_path: Path) -> None:
    foreign = episode(1, ["green", "blue"])
    foreign.rows[0].token_ids = [10_000] * len(foreign.rows[0])
    (t,) = read_trajectories(write(tmp_path / "t.jsonl", [foreign]), renderer())
    assert t.rows == episode(1, ["green", "blue"]).rows


def test_a_cut_reply_trains_no_end_token() -> None:
    t = episode(0, ["red", "green"])
    t.turns[0].truncated = True
    t.rows = []
    t = in_tokens_of(t, renderer())
    assert trained_text(t) == ["Action: red", "Action: green", "<|im_end|>"]
    assert make_tokenizer().decode(t.rows[0].token_ids) == make_tokenizer().decode(episode(0, ["red", "green"]).rows[0].token_ids)


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", [episode(0, ["red", "green"])])
    path.write_text(path.read_text() + '{"spec": 1}\n')
    with pytest.raises(DataError, match=r"t.jsonl' line 2: expected an episode"):
        read_trajectories(path, renderer())


# -- filters ------------------------------------------------------------------------------------------------------------


def test_filters() -> None:
    won, half, lost = episode(0, ["red", "green"]), episode(0, ["red", "red"]), episode(0, ["blue", "blue"])
    again = episode(0, ["red", "green"], sample=1)
    other = episode(3, ["red", "green"])
    everything = [lost, half, won, again, other]

    def kept(**changes: Any) -> list[Trajectory]:
        return select(everything, FilterConfig(**{"success_only": False, "dedupe": "none"} | changes))

    assert kept() == everything
    assert kept(success_only=True) == [won, again, other]
    assert kept(min_reward=0.5) == [half, won, again, other]
    assert kept(dedupe="exact") == [lost, half, won]  # item 3 shows the same colours, so its tokens are the same
    assert kept(dedupe="item") == [won]
    assert select(everything, FilterConfig(dedupe="exact"), known=[won]) == []
    assert select(everything, FilterConfig(dedupe="none"), known=[won]) == [won, again, other]


def test_of_equals_the_shorter_one_is_kept() -> None:
    long, short = episode(0, ["red", "blue"]), episode(0, ["red"])
    assert select([long, short], FilterConfig(success_only=False, dedupe="item")) == [short]


def test_held_out_items_are_a_share_of_each_environment() -> None:
    items = [("a", f"a_{i}") for i in range(40)] + [("b", f"b_{i}") for i in range(10)] + [("c", "c_0")]
    held = hold_out(items, 0.1, seed=1)
    assert [sum(e == name for e, _ in held) for name in "abc"] == [4, 1, 0]
    assert held == hold_out(reversed(items), 0.1, seed=1) != hold_out(items, 0.1, seed=2)
    assert hold_out(items, 0.0, seed=1) == set()


# -- loss, order, learning rate -----------------------------------------------------------------------------------------


EPISODES = [(0, ["red", "green"]), (1, ["green"]), (2, ["blue", "blue"])]


def test_the_loss_is_the_mean_over_reply_tokens() -> None:
    model = make_model()
    episodes = [episode(*e) for e in EPISODES]
    want = -sum(world.logprob(model, t) for t in episodes) / (5 * 2)  # five replies of two tokens
    parameters = list(model.parameters())
    gradient = torch.autograd.grad(want, parameters)
    for tokens in (1, 40, 10**6):
        sums = TokenSums()
        parts = list(nll_losses(model, episodes, tokens, sums))
        assert len(parts) == {1: 3, 40: 2, 10**6: 1}[tokens]
        assert sum(parts).item() == pytest.approx(want.item(), abs=1e-6)
        for got, expected in zip(torch.autograd.grad(sum(parts), parameters), gradient, strict=True):
            torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-4)
        assert sums.metrics()["tokens/trained"] == 10


def test_observations_are_not_trained() -> None:
    """The gradient of the scores is 0 wherever the next token is context."""
    model = make_model()
    t = episode(0, ["red", "green"])
    captured: list[torch.Tensor] = []
    hook = model.model.norm.register_forward_hook(lambda m, i, out: (out.retain_grad(), captured.append(out))[0] or None)
    sum(nll_losses(model, [t], 10**6, TokenSums())).backward()
    hook.remove()
    moved = captured[0].grad[0].abs().sum(-1) > 0
    assert moved.tolist() == [bool(m) for m in t.rows[0].action_mask[1:]]


@given(n=st.integers(1, 40), size=st.integers(1, 12), epochs=st.integers(1, 3))
@fast(max_examples=30, deadline=None)
def test_every_pass_visits_every_example_once(n: int, size: int, epochs: int) -> None:
    per = updates_per_epoch(n, size)
    for epoch in range(epochs):
        batches = [batch_at(epoch * per + k, n, size, 7) for k in range(1, per + 1)]
        assert sorted(i for b in batches for i in b) == list(range(n))
        assert all(1 <= len(b) <= size for b in batches)


def test_passes_and_seeds_have_orders_of_their_own() -> None:
    orders = [batch_at(s, 20, 20, seed) for s, seed in ((1, 0), (2, 0), (1, 1))]
    assert len({tuple(o) for o in orders}) == 3
    assert batch_at(2, 20, 20, 0) == orders[1]


def test_learning_rates_by_hand() -> None:
    def rates(**changes: Any) -> list[float]:
        updates = Updates(make_model(), ScheduledOptimConfig(lr=1.0, **changes))
        return [updates.lr(s, 6) for s in range(1, 7)]

    assert rates() == [1.0] * 6
    assert rates(schedule="linear") == pytest.approx([1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6])
    assert rates(schedule="linear", warmup_steps=2) == pytest.approx([0.5, 1, 1, 3 / 4, 2 / 4, 1 / 4])
    assert rates(schedule="cosine", warmup_steps=2) == pytest.approx([0.5, 1, 1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2])
    assert min(rates(warmup_steps=50)) > 0


# -- whole runs ---------------------------------------------------------------------------------------------------------


def test_a_run_writes_its_files_and_its_loss_falls(tmp_path: Path) -> None:
    seen: list[int] = []
    result, _ = train(settings("sft", tmp_path), on_step=lambda m: seen.append(int(m["step"])))
    assert (result.step, result.stopped_by, seen) == (6, "steps", [1, 2, 3, 4, 5, 6])
    assert [m["step"] for m in lines(tmp_path / "metrics.jsonl")] == seen
    assert ["eval/loss" in m for m in result.history] == [False, True] * 3
    assert result.history[-1]["eval/loss"] < result.history[1]["eval/loss"]
    assert result.history[-1]["loss/total"] < result.history[0]["loss/total"]
    assert result.history[-1]["tokens/trained_total"] == 10 * 2 * 2 * 2  # episodes, passes, replies, tokens
    assert len(lines(tmp_path / "data.jsonl")) == 12
    assert all(math.isfinite(v) for m in result.history for v in m.values())
    assert result.history[0]["optim/lr"] > 0
    assert list((tmp_path / "tensorboard").iterdir())


def test_sft_teaches_the_toy_task(tmp_path: Path) -> None:
    before = world.success_of(make_model())
    _, model = train(settings("sft", tmp_path, run={"epochs": 30}))
    assert (before, world.success_of(model)) == (0.0, 1.0)


def test_the_published_format_trains(tmp_path: Path) -> None:
    path = tmp_path / "echo_train.json"
    path.write_text(json.dumps([published(item_id=f"echo_{i}") for i in range(4)]))
    sources = [{"kind": "agent_traj", "path": str(path)}]
    result, _ = train(settings("sft", tmp_path / "r", data={"sources": sources, "eval_share": 0.0}))
    assert [m["tokens/trained"] for m in result.history] == [16.0, 16.0]
    ids = {t["spec"]["item_id"] for t in lines(tmp_path / "r" / "data.jsonl")}
    assert ids == {f"echo_{i}" for i in range(4)}


def test_equal_seeds_give_equal_runs_in_two_environments(tmp_path: Path) -> None:
    data = {"sources": [experts(12, "echo", "other")]}
    for name in "ab":
        train(settings("sft", tmp_path / name, data=data))
    assert_same_run(tmp_path / "a", tmp_path / "b")
    ids = {(t["spec"]["env"], t["spec"]["item_id"].rpartition("_")[0]) for t in lines(tmp_path / "a" / "data.jsonl")}
    assert ids == {("echo", "echo"), ("other", "other")}


def test_the_held_out_items_are_never_trained(tmp_path: Path) -> None:
    trainer = make_trainer(settings("sft", tmp_path), model=make_model(), tokenizer=make_tokenizer())
    trainer.train()
    held, trained = ({t.spec.item_id for t in part} for part in (trainer._held_out, trainer._train))
    assert len(held) == 1
    assert not held & trained


def test_a_loss_that_is_not_finite_changes_nothing(tmp_path: Path) -> None:
    model = make_model()
    with torch.no_grad():
        model.lm_head.weight[0, 0] = math.inf
    updates = Updates(model, ScheduledOptimConfig())
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(TrainingError, match="step 3 is not finite"):
        updates.update(nll_losses(model, [episode(0, ["red"])], 100, TokenSums()), 1.0, 3)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_nothing_left_to_train_on(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"found 12 of which 12 pass .* at most 8 tokens \(data.max_length\)"):
        train(settings("sft", tmp_path, data={"max_length": 8}))


@pytest.mark.parametrize("method", ["sft", "dpo", "agentevol"])
def test_every_metric_is_finite_and_documented(tmp_path: Path, method: str) -> None:
    more = {"explore": {"envs": [env("echo"), env("other")]}} if method == "agentevol" else {}
    result, _ = train(settings(method, tmp_path, **more))
    section = METRICS_DOC.read_text().partition("## Supervised methods")[2]
    names = [
        name
        for cell, methods in re.findall(r"^\| (`[^|]+`) \| ([^|]+) \|", section, re.MULTILINE)
        if methods == "all" or method in methods.split(", ")
        for name in re.findall(r"`([^`]+)`", cell)
    ]
    patterns = [re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(n)) + "$") for n in names]
    found = {k for m in result.history for k in m}
    assert all(math.isfinite(v) for m in result.history for v in m.values())
    assert [k for k in found if not any(p.match(k) for p in patterns)] == []
    assert [n for n, p in zip(names, patterns, strict=True) if not any(p.match(k) for k in found)] == []


# -- resuming -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("straight")
    with pytest.MonkeyPatch.context() as m:
        m.setattr("agentgym_envs.core._REGISTRY", {})
        world.register()
        train(settings("sft", out, optim=SCHEDULE))
    return out


SCHEDULE = {"schedule": "cosine", "warmup_steps": 2}


def broken_at(step: int, out: Path, method: str = "sft", **sections: Any) -> None:
    """A run that is interrupted behind a step that was saved."""

    def interrupt(metrics: dict[str, float]) -> None:
        if metrics["step"] == step + 1:
            raise KeyboardInterrupt

    run = sections.pop("run", {}) | {"save_every": 1}
    with pytest.raises(KeyboardInterrupt):
        train(settings(method, out, run=run, **sections), on_step=interrupt)
    assert CheckpointStore(out).steps()[-1] == step


@pytest.mark.parametrize("k", [1, 3, 4])
def test_resumed_equals_straight(straight: Path, tmp_path: Path, k: int) -> None:
    broken_at(k, tmp_path, optim=SCHEDULE)
    result, _ = train(settings("sft", tmp_path, optim=SCHEDULE), resume=True)
    assert [m["step"] for m in result.history] == list(range(k + 1, 7))
    assert_same_run(straight, tmp_path)


SCRIPT = """
import sys
sys.path.insert(0, {here!r})
import supervised_factory as world
world.register()
world.train(world.settings({method!r}, world.Path({out!r}), **{sections!r}))
"""


def killed(method: str, out: Path, **sections: Any) -> int:
    """Run in a process of its own and kill it some time after its first checkpoint; the last step saved."""
    script = SCRIPT.format(here=str(Path(__file__).parent), method=method, out=str(out), sections=sections)
    process = subprocess.Popen([sys.executable, "-c", script], env=os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())})
    try:
        deadline = time.monotonic() + 300
        while not CheckpointStore(out).steps():
            assert process.poll() is None, "the run ended by itself"
            assert time.monotonic() < deadline, "no checkpoint in five minutes"
            time.sleep(0.01)
        time.sleep(0.2)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    return CheckpointStore(out).steps()[-1]


def test_a_killed_run_can_be_resumed(tmp_path: Path) -> None:
    sections = {"run": {"epochs": 400, "save_every": 1}}
    step = killed("sft", tmp_path / "a", **sections)
    assert step < 1200
    stop = {"epochs": 400, "save_every": 100, "time_limit_s": 1e-6}
    result, _ = train(settings("sft", tmp_path / "a", run=stop), resume=True)
    assert (result.step, result.stopped_by) == (step + 1, "time_limit")

    def until(metrics: dict[str, float]) -> None:
        if metrics["step"] > step + 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(settings("sft", tmp_path / "b", run={"epochs": 400, "save_every": step + 1}), on_step=until)
    for folder in "ab":
        metrics = tmp_path / folder / "metrics.jsonl"
        metrics.write_text("".join(line + "\n" for line in metrics.read_text().splitlines()[: step + 1]))
    assert_same_run(tmp_path / "a", tmp_path / "b")


def test_other_data_or_settings_are_refused(straight: Path, tmp_path: Path) -> None:
    shutil.copytree(straight, tmp_path / "r")
    with pytest.raises(ConfigError, match=r"already holds a run \(checkpoint at step 6\)"):
        train(settings("sft", tmp_path / "r", optim=SCHEDULE))
    for name, config in (
        ("run.epochs", settings("sft", tmp_path / "r", optim=SCHEDULE, run={"epochs": 3})),
        ("data.sources.0.n", settings("sft", tmp_path / "r", optim=SCHEDULE, data={"sources": [experts(11)]})),
        ("method", settings("agentevol", tmp_path / "r")),
    ):
        with pytest.raises(ConfigError, match=rf"setting '{name}' is .*, but the run to resume was made with"):
            train(config, resume=True)
    data = tmp_path / "r" / "data.jsonl"
    data.write_text(data.read_text().replace("red", "blue"))
    with pytest.raises(CheckpointError, match="expected the data that the run was made with"):
        train(settings("sft", tmp_path / "r", optim=SCHEDULE), resume=True)


# -- settings -----------------------------------------------------------------------------------------------------------

CHANGES: list[dict[str, Any]] = [
    {"model": {"lora": {"r": 2}}},
    {"data": {"sources": [experts(11)]}},
    {"data": {"sources": [experts(12) | {"envs": [env("other")]}]}},
    {"data": {"sources": [experts(12) | {"envs": [env(tasks=["red"])]}]}},
    {"data": {"sources": [experts(12) | {"envs": [env(rounds={"type": "fixed", "rounds": 1})]}], "success_only": False}},
    {"data": {"dedupe": "item"}},
    {"data": {"eval_share": 0.5}},
    {"optim": {"lr": 1e-3}},
    {"optim": {"schedule": "linear"}},
    {"optim": {"warmup_steps": 3}},
    {"optim": {"betas": (0.5, 0.9)}},
    {"optim": {"weight_decay": 0.5}},
    {"optim": {"grad_clip": 0.01}},
    {"run": {"epochs": 3}},
    {"run": {"batch_size": 3}},
    {"run": {"seed": 1}},
    {"run": {"eval_every": 1}},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda c: json.dumps(c)[:60])
def test_every_setting_changes_the_run(tmp_path: Path, change: dict[str, Any]) -> None:
    base, _ = train(settings("sft", tmp_path / "base"))
    other, _ = train(settings("sft", tmp_path / "other", **change))
    assert outcome(base) != outcome(other)


def test_filters_change_the_run(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", [episode(i, c) for i in range(6) for c in (["red", "green"], ["green", "blue"], ["blue", "blue"])])
    source = {"sources": [{"kind": "trajectories", "path": str(path)}], "success_only": False, "dedupe": "none"}
    runs = []
    for k, change in enumerate([{}, {"success_only": True}, {"min_reward": 0.4}, {"dedupe": "exact"}, {"dedupe": "item"}]):
        runs.append(outcome(train(settings("sft", tmp_path / str(k), data=source | change))[0]))
    assert [r[0]["data/train"] + r[0]["data/held_out"] for r in runs] == [18, 4, 8, 9, 3]
    assert len({json.dumps(r) for r in runs}) == 5


SCALING = {"type": "scaling_inter", "rounds": [1, 2], "steps_scaling_inter": 1}


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"data": {"sources": []}}, "setting 'data.sources'"),
        ({"data": {"sources": [{"kind": "oracle"}]}}, "setting 'data.sources.0'.*'oracle'"),
        ({"data": {"sources": [{"kind": "agent_traj", "pth": "x"}]}}, "unknown setting 'data.sources.0.pth'; allowed there: kind, path"),
        ({"data": {"sources": [experts() | {"envs": [env(rond=1)]}]}}, "unknown setting 'data.sources.0.envs.0.rond'; allowed there: name"),
        ({"data": {"eval_share": 1.0}}, "setting 'data.eval_share'"),
        ({"data": {"evalshare": 0.1}}, "unknown setting 'data.evalshare'; allowed there: .*eval_share"),
        ({"optim": {"schedule": "step"}}, "setting 'optim.schedule'"),
        ({"run": {"steps": 3}}, "unknown setting 'run.steps'; allowed there: seed, out"),
        ({"algorithm": {"name": "grpo"}}, "unknown setting 'algorithm'; allowed there: method"),
        ({"data": {"sources": [experts() | {"envs": [env(rounds=SCALING)]}]}}, "rounds of 'echo' must be of type 'fixed'"),
        ({"data": {"sources": [experts(), experts() | {"envs": [env(url="http://x")]}]}}, "'echo' is given two addresses in 'url'"),
    ],
)
def test_unknown_and_contradictory_settings_are_named(tmp_path: Path, sections: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings("sft", tmp_path, **sections)


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(ConfigError, match="setting 'method': expected rl, sft, dpo, agentevol, found 'ppo'"):
        parse_config({"method": "ppo"})


def test_one_batch_holds_every_row() -> None:
    assert len(Batch.from_trajectories([episode(*e) for e in EPISODES])) == 3
