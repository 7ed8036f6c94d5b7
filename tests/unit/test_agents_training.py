"""Agents in training, evaluation and on the command line: rows that belong together, settings that arrive, data in every format."""

from __future__ import annotations

import copy
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import trainer_factory
from cli_factory import save_model
from test_masks import VOCAB, tiny_model

from agentgym_envs.core import environment_class
from agentgym_lite.agents import FunctionCall, make_scaffold
from agentgym_lite.algorithms import Aggregation, aggregate, denominator
from agentgym_lite.cli import main
from agentgym_lite.config import GRPOConfig, OptimConfig, SFTConfig, parse_config
from agentgym_lite.evaluation import compare_agents, load_suite, make_player
from agentgym_lite.rollout.types import EpisodeSpec, StopReason, TokenRow, Trajectory, Turn
from agentgym_lite.training import SFTTrainer, Trainer
from agentgym_lite.training.batch import Batch
from agentgym_lite.training.update import PolicyUpdater

trainer_factory.register()


# -- aggregation --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["token_mean", "seq_mean_token_mean", "seq_mean_token_sum_norm"])
def test_an_episode_weighs_the_same_in_one_row_or_in_several(mode: Aggregation) -> None:
    whole, whole_mask = torch.tensor([[1.0, 2.0, 3.0], [5.0, 0.0, 0.0]]), torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    split, split_mask = torch.tensor([[1.0, 2.0], [3.0, 0.0], [5.0, 0.0]]), torch.tensor([[1.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    episodes = torch.tensor([0, 0, 1])
    want = aggregate(whole, whole_mask, mode, denominator(whole_mask, mode, 2.0))
    got = aggregate(split, split_mask, mode, denominator(split_mask, mode, 2.0, episodes), torch.tensor([3.0, 3.0, 1.0]))
    by_hand = {"token_mean": 11 / 4, "seq_mean_token_mean": (2 + 5) / 2, "seq_mean_token_sum_norm": 11 / 4}
    assert float(want) == float(got) == by_hand[mode]


# -- poison -------------------------------------------------------------------------------------------------------------------------


def forked(sample: int, reward: float) -> Trajectory:
    """Two turns, the second in a row of its own that repeats the first reply as context."""
    draw = torch.Generator().manual_seed(sample)
    first, second = (torch.randint(0, VOCAB, (n,), generator=draw).tolist() for n in (3, 2))
    rows = [TokenRow(), TokenRow()]
    rows[0].append_context([1, 2], -1)
    rows[0].append_action(first, [-3.0] * 3, 0)
    rows[1].append_context([4, *first, 5], -1)
    rows[1].append_action(second, [-3.0] * 2, 1)
    turns = [Turn("o", "r", "a", 0.0, row=0, start=2, end=5), Turn("p", "r", "a", reward, row=1, start=5, end=7)]
    return Trajectory(EpisodeSpec("babyai", "babyai_0", sample=sample), rows, turns, StopReason.MAX_ROUNDS)


def update(batch: Batch, **algorithm: Any) -> tuple[dict[str, float], dict[str, torch.Tensor]]:
    model = copy.deepcopy(tiny_model(0))
    config = GRPOConfig(kl_coef=0.0, **algorithm)
    updater = PolicyUpdater(model, config, OptimConfig(lr=1e-2, micro_batch_tokens=8), temperature=1.0, seed=0)
    return updater.update(batch, step=1), model.state_dict()


@pytest.mark.parametrize("aggregation", ["token_mean", "seq_mean_token_mean"])
def test_a_reply_that_a_row_repeats_as_context_does_not_train(aggregation: str) -> None:
    batch = Batch.from_trajectories([forked(0, 1.0), forked(1, 0.0)])
    assert batch.samples.returns.tolist() == [1.0, 0.0]
    assert batch.mask.sum(-1).tolist() == [3.0, 2.0, 3.0, 2.0]
    off = batch.mask == 0
    dirty = replace(
        batch,
        targets=torch.where(off, (batch.targets + 7) % VOCAB, batch.targets),
        engine_logprobs=batch.engine_logprobs.masked_fill(off, math.nan),
    )
    (metrics, weights), (dirty_metrics, dirty_weights) = update(batch, aggregation=aggregation), update(dirty, aggregation=aggregation)
    assert metrics == dirty_metrics
    assert metrics["tokens/trained"] == 10.0
    assert all(torch.equal(w, dirty_weights[name]) for name, w in weights.items())
    assert any(not torch.equal(w, tiny_model(0).state_dict()[name]) for name, w in weights.items())


def test_both_rows_of_an_episode_get_its_advantage_and_stay_in_one_minibatch() -> None:
    batch = Batch.from_trajectories([forked(i, float(i % 2)) for i in range(4)])
    updater = PolicyUpdater(tiny_model(0), GRPOConfig(minibatches=2, epochs=3), OptimConfig(), temperature=1.0, seed=0)
    prepared, _ = updater._prepare(batch)
    assert prepared.advantages is not None
    per_row = [set(a[m.bool()].tolist()) for a, m in zip(prepared.advantages, prepared.mask, strict=True)]
    assert all(len(values) == 1 for values in per_row)
    assert per_row[0::2] == per_row[1::2]
    for _, rows in updater._minibatches(batch.episodes.tolist(), step=1):
        assert sorted(batch.episodes[rows].tolist()) == sorted(2 * list(dict.fromkeys(batch.episodes[rows].tolist())))
        assert len(rows) == 4


# -- training -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("without", "agent"),
    [
        ({}, {"strategy": "plan"}),
        ({}, {"strategy": "reflect:2"}),
        ({"strategy": "plan"}, {"strategy": "plan", "memory": "window:1"}),
        ({}, {"memory": "summary:1"}),
        ({}, {"format": "backticks"}),
    ],
    ids=str,
)
def test_the_section_agent_changes_a_run(tmp_path: Path, without: dict[str, str], agent: dict[str, str]) -> None:
    def step(name: str, **sections: Any) -> dict[str, float]:
        fixed: dict[str, Any] = {
            "run": {"steps": 1},
            "rollout": {"max_length": 300},
            "algorithm": {"entropy_coef": 0.01, "zero_variance": "keep"},
        }
        config = trainer_factory.make_config(tmp_path / name, **fixed, **sections)
        trainer = Trainer(config, model=trainer_factory.make_model(), tokenizer=trainer_factory.make_tokenizer())
        return trainer.train().history[-1]

    plain, other = step("plain", agent=without), step("other", agent=agent)
    assert other["tokens/context"] != plain["tokens/context"]
    assert other["engine/logp_diff_max"] < 1e-4  # the trainer reads what the engine read, in every row
    assert other["env/echo/rounds_mean"] <= (4 if "reflect:2" in agent.values() else 2)


def test_sft_learns_the_expert_in_the_format_of_the_agent(tmp_path: Path) -> None:
    data = {"sources": [{"kind": "expert", "n": 2, "envs": [{"name": "textcraft", "tasks": ["depth_1"]}]}], "eval_share": 0}
    agent = {"format": "function_call", "strategy": "plan", "memory": "window:2"}
    folder = save_model(tmp_path / "model")
    run = {"out": str(tmp_path / "run"), "batch_size": 2}
    config = parse_config({"method": "sft", "model": {"path": str(folder)}, "agent": agent, "data": data, "run": run})
    assert isinstance(config, SFTConfig)
    SFTTrainer(config).train()
    [line, *_] = (tmp_path / "run" / "data.jsonl").read_text().splitlines()
    told = Trajectory.from_dict(json.loads(line))
    assert (told.success, told.info["agent"], told.turns[0].kind) == (True, agent, "plan")
    form = FunctionCall.for_env("textcraft")
    assert told.turns[0].reply.splitlines() == [f"{i}. {t.action}" for i, t in enumerate(told.turns[1:], 1)]
    assert all(form.parse(t.reply).action == t.action for t in told.turns[1:])


# -- evaluation and commands --------------------------------------------------------------------------------------------------------


def test_agents_are_compared_on_the_same_items(tmp_path: Path) -> None:
    suite = load_suite("lite27")
    items = tuple(next(i for i in suite.items if f"{i.env}/{i.task}" == task) for task in ("textcraft/depth_1", "babyai/goto"))
    small = replace(suite, items=items)
    players = {
        "code": make_player("expert", format="code", memory="window:2"),
        "plan": make_player("expert", strategy="plan"),
        "retry": make_player("random", strategy="reflect:3"),
    }
    found = compare_agents(players, small, tmp_path, max_rounds=4)
    assert {name: r.overall.episodes for name, r in found.items()} == {"code": 2, "plan": 2, "retry": 2}
    assert [r.overall.stop_reasons for r in (found["code"], found["plan"])] == [{"success": 2}] * 2
    assert found["plan"].overall.rounds == found["code"].overall.rounds  # a plan is no round
    settings = json.loads((tmp_path / "retry" / "settings.json").read_text())
    assert settings["strategy"] == "reflect:3"
    for line in (tmp_path / "retry" / "trajectories.jsonl").read_text().splitlines():
        t = Trajectory.from_dict(json.loads(line))
        assert t.attempts == 3 or t.success
        assert t.rounds <= 12


def test_a_model_plays_in_a_scaffold(tmp_path: Path) -> None:
    player = make_player(str(save_model(tmp_path)), strategy="reflect:2", memory="window:1", max_new_tokens=4, max_length=4000)
    episodes: list[Trajectory] = []
    player.play([EpisodeSpec("babyai", environment_class("babyai").items("eval")[0])], 2, episodes.append)
    [t] = episodes
    assert [(u.kind, u.attempt) for u in t.turns] == [("act", 0), ("act", 0), ("reflection", 0), ("act", 1), ("act", 1)]
    assert len(t.rows) == 3  # the window drops a turn before the reflection; the next attempt begins anew
    assert t.info["agent"] == make_scaffold("react", "reflect:2", "window:1").settings


def test_rollouts_of_a_command_are_data_in_that_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*extra: str) -> object:
        monkeypatch.setattr(sys, "argv", ["agl", "rollout", "--env", "textcraft", "-n", "2", "--out", str(tmp_path), *extra])
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code

    assert run("--format", "code", "--strategy", "plan") == 0
    told = [Trajectory.from_dict(json.loads(line)) for line in (tmp_path / "trajectories.jsonl").read_text().splitlines()]
    assert [t.info["agent"] for t in told] == [{"format": "code", "strategy": "plan"}] * 2
    assert all(t.success and t.turns[0].kind == "plan" for t in told)
    assert run("--format", "xml") == 1
    assert "format: expected react, function_call" in capsys.readouterr().err
