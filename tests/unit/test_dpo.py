"""Multi-turn DPO: the loss by hand, which pairs are made, whole runs, resumption, settings."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import supervised_factory as world
import torch
from hypothesis import given
from hypothesis import settings as fast
from hypothesis import strategies as st
from supervised_factory import DEFAULTS, assert_same_run, env, episode, experts, lines, logprob, outcome, settings, train
from test_sft import broken_at, killed, write
from trainer_factory import make_model, make_tokenizer

from agentgym_lite.algorithms.preference import dpo_loss
from agentgym_lite.config import AnyConfig, ConfigError, DPOSection, parse_config
from agentgym_lite.rollout.types import StopReason, Trajectory
from agentgym_lite.training import DataError, make_trainer
from agentgym_lite.training.dpo import DPOTrainer, Pair, make_pairs
from agentgym_lite.training.supervised import TokenSums


@pytest.fixture(autouse=True)
def _toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_envs.core._REGISTRY", {})
    world.register()


# -- the loss -----------------------------------------------------------------------------------------------------------


def test_the_loss_by_hand() -> None:
    """Two pairs with beta 0.5: implicit rewards 0.5 * (2, -1) and 0.5 * (-3, 1)."""
    chosen, rejected = torch.tensor([-3.0, -6.0]), torch.tensor([-8.0, -4.0])
    loss = dpo_loss(chosen, rejected, torch.tensor([-5.0, -5.0]), torch.tensor([-5.0, -5.0]), beta=0.5)
    assert loss.chosen_reward.tolist() == [1.0, -0.5]
    assert loss.rejected_reward.tolist() == [-1.5, 0.5]
    assert loss.loss.tolist() == pytest.approx([math.log(1 + math.exp(-2.5)), math.log(1 + math.exp(1.0))])


@given(st.lists(st.floats(-50, 50), min_size=4, max_size=4), st.floats(0.01, 2))
@fast(max_examples=50, deadline=None)
def test_the_gradient_is_the_published_one(values: list[float], beta: float) -> None:
    """Eq. 7 of arXiv 2305.18290: -beta * sigmoid(r- - r+) on the chosen side, the opposite on the rejected one."""
    chosen, rejected, ref_chosen, ref_rejected = (torch.tensor([v], dtype=torch.float64, requires_grad=True) for v in values)
    dpo_loss(chosen, rejected, ref_chosen.detach(), ref_rejected.detach(), beta).loss.sum().backward()
    want = beta / (1 + math.exp(beta * ((values[0] - values[2]) - (values[1] - values[3]))))
    assert chosen.grad.item() == pytest.approx(-want, rel=1e-6, abs=1e-12)
    assert rejected.grad.item() == pytest.approx(want, rel=1e-6, abs=1e-12)


def pairs() -> list[Pair]:
    """Three pairs whose sides differ in length and in turns."""
    return [
        Pair(episode(0, ["red", "green"]), episode(0, ["blue"])),
        Pair(episode(1, ["green", "blue"]), episode(1, ["green", "red"])),
        Pair(episode(2, ["blue"]), episode(2, ["red", "red"])),
    ]


def trainer_for(out: Path, model: Any, tokens: int = 16384, **dpo: Any) -> DPOTrainer:
    config = settings("dpo", out, optim={"micro_batch_tokens": tokens}, dpo=dpo)
    return DPOTrainer(config, model=model, tokenizer=make_tokenizer())


@pytest.mark.parametrize("tokens", [1, 40, 10**6])
def test_the_trainers_loss_and_gradient_are_the_formulas(tmp_path: Path, tokens: int) -> None:
    """Policy and reference differ; the formula as TRL writes it, on full logits, summed over all reply tokens of an episode."""
    model, reference, beta = make_model(0), make_model(5), 0.3
    deltas = []
    for p in pairs():
        with torch.no_grad():
            ref = logprob(reference, p.chosen) - logprob(reference, p.rejected)
        deltas.append(logprob(model, p.chosen) - logprob(model, p.rejected) - ref)
    want = -torch.nn.functional.logsigmoid(beta * torch.stack(deltas)).mean()
    parameters = list(model.parameters())
    gradient = torch.autograd.grad(want, parameters)

    trainer = trainer_for(tmp_path, model, tokens, beta=beta)
    trainer._reference = reference
    metrics: dict[str, float] = dict.fromkeys([f"dpo/{n}" for n in NAMES], 0.0)
    parts = list(trainer._losses(pairs(), TokenSums(), metrics))
    assert len(parts) == {1: 3, 40: 3, 10**6: 1}[tokens]
    assert sum(parts).item() == pytest.approx(want.item(), abs=1e-5)
    for got, expected in zip(torch.autograd.grad(sum(parts), parameters), gradient, strict=True):
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-3)
    assert metrics["dpo/margin"] == pytest.approx(beta * sum(d.item() for d in deltas) / 3, abs=1e-4)
    assert metrics["dpo/margin"] == pytest.approx(metrics["dpo/chosen_reward"] - metrics["dpo/rejected_reward"], abs=1e-5)
    assert metrics["dpo/accuracy"] == pytest.approx(sum(d.item() > 0 for d in deltas) / 3)
    assert metrics["dpo/chosen_logprob"] == pytest.approx(sum(logprob(model, p.chosen).item() for p in pairs()) / 3, abs=1e-4)


NAMES = ("chosen_reward", "rejected_reward", "margin", "accuracy", "chosen_logprob", "rejected_logprob")


@pytest.mark.parametrize("lora", [None, {"r": 2}])
def test_the_first_loss_is_ln_2_exactly(tmp_path: Path, lora: Any) -> None:
    result, _ = train(settings("dpo", tmp_path, model={"lora": lora}, run={"time_limit_s": 1e-6}))
    first = result.history[0]
    assert first["loss/total"] == pytest.approx(math.log(2), abs=1e-6)
    assert first["dpo/margin"] == 0.0


# -- pairs --------------------------------------------------------------------------------------------------------------


def scored(reward: float, sample: int = 0, item: int = 0, said: str = "red") -> Trajectory:
    t = episode(item, [said], sample=sample)
    t.turns[0].reward = reward
    return t


def test_pairs_follow_the_published_rule() -> None:
    """Gap at least 0.01, better one at least 0.7; whichever is better is chosen."""
    rule = DPOSection()
    for expert, own, chosen in [(1.0, 0.0, "expert"), (0.7, 0.0, "expert"), (0.69, 0.0, None), (0.5, 0.9, "own"), (1.0, 0.995, None)]:
        found, counts = make_pairs([scored(expert)], [scored(own, sample=1)], rule)
        assert [("expert" if p.chosen.spec.sample == 0 else "own") for p in found] == ([chosen] if chosen else [])
        assert sum(counts.values()) == (chosen is None)
    assert make_pairs([scored(0.69)], [scored(0.0)], rule)[1] == {"low_chosen": 1}
    assert make_pairs([scored(1.0)], [scored(0.995)], rule)[1] == {"small_gap": 1}
    assert len(make_pairs([scored(0.69)], [scored(0.0)], DPOSection(min_chosen=0.6))[0]) == 1
    assert len(make_pairs([scored(1.0)], [scored(0.995)], DPOSection(min_gap=0.001))[0]) == 1


def test_pairs_share_their_start() -> None:
    found, _ = make_pairs([scored(1.0, item=i) for i in (0, 1, 2)], [scored(0.0, item=i) for i in (2, 0, 5)], DPOSection())
    assert [(p.chosen.spec.item_id, p.rejected.spec.item_id) for p in found] == [("echo_0", "echo_0"), ("echo_2", "echo_2")]
    assert make_pairs([scored(1.0)], [episode(0, ["blue"], seed=3)], DPOSection())[0] == []
    assert make_pairs([scored(1.0)], [episode(0, ["blue"], env_name="other")], DPOSection())[0] == []


def test_pairs_from_different_openings_are_left_out() -> None:
    own = scored(0.0)
    own.rows[0].token_ids[2] += 1
    assert make_pairs([scored(1.0)], [own], DPOSection()) == ([], {"other_opening": 1})


def test_every_own_episode_is_paired_with_the_experts_first() -> None:
    own = [scored(0.0, sample=k) for k in range(3)]
    expert = [scored(1.0), scored(0.9)]
    found, _ = make_pairs(expert, own, DPOSection())
    assert [(p.chosen, p.rejected) for p in found] == [(expert[0], o) for o in own]


# -- whole runs ---------------------------------------------------------------------------------------------------------


def test_a_run_learns_to_prefer(tmp_path: Path) -> None:
    result, _ = train(settings("dpo", tmp_path))
    first, last = result.history[0], result.history[-1]
    assert last["dpo/margin"] > first["dpo/margin"]
    assert (last["dpo/accuracy"], last["eval/accuracy"]) == (1.0, 1.0)
    assert last["loss/total"] < first["loss/total"]
    assert all(math.isfinite(v) for m in result.history for v in m.values())
    sets = [t["set"] for t in lines(tmp_path / "data.jsonl")]
    assert (sets.count("expert"), sets.count("own")) == (12, 24)
    own = [t for t in lines(tmp_path / "data.jsonl") if t["set"] == "own"]
    assert {t["stop_reason"] for t in own} <= {r.value for r in StopReason}
    expert = {(t["spec"]["item_id"], t["spec"]["seed"]) for t in lines(tmp_path / "data.jsonl") if t["set"] == "expert"}
    assert {(t["spec"]["item_id"], t["spec"]["seed"]) for t in own} == expert


def test_dpo_teaches_the_toy_task(tmp_path: Path) -> None:
    """From a policy that knows the words, not which one is right."""
    model = make_model()
    speak = {"data": {"sources": [experts(6)]}, "run": {"epochs": 4}}
    train(settings("sft", tmp_path / "sft", **speak), model=model)
    before = world.success_of(model)
    train(settings("dpo", tmp_path / "dpo", run={"epochs": 12}, data={"own": OWN}), model=model)
    assert before < 0.5
    assert world.success_of(model) >= before + 0.3


OWN = [{"kind": "policy", "envs": [env()], "samples": 4}]


def from_files(out: Path, expert: list[Trajectory], own: list[Trajectory]) -> AnyConfig:
    out.mkdir()
    paths = {"expert": write(out / "a.jsonl", expert), "own": write(out / "b.jsonl", own)}
    sources = {side: [{"kind": "trajectories", "path": str(path)}] for side, path in paths.items()}
    data = DEFAULTS["dpo"] | {"method": "dpo", "data": sources | {"eval_share": 0.0}}
    data["run"] = data["run"] | {"out": str(out / "run")}
    return parse_config({k: v for k, v in data.items() if k != "rollout"})


def test_pairs_from_files(tmp_path: Path) -> None:
    good, bad = ([episode(i, said) for i in (0, 3)] for said in (["red", "green"], ["blue", "blue"]))
    result, _ = train(from_files(tmp_path / "r", good, bad))
    assert result.history[0]["data/train"] == 2.0
    assert "eval/loss" not in result.history[-1]


def test_no_pairs_say_why(tmp_path: Path) -> None:
    good, short = [episode(i, ["red", "green"]) for i in (0, 3)], [episode(0, ["red"])]
    with pytest.raises(DataError, match=r"found none: 2 and 2 episodes of at most 4096 tokens \(2 small gap\)"):
        train(from_files(tmp_path / "a", good, good))
    with pytest.raises(DataError, match=r"\(1 low chosen\); see data.expert, data.own, dpo.min_gap and dpo.min_chosen"):
        train(from_files(tmp_path / "b", short, [episode(0, ["blue"])]))
    with pytest.raises(DataError, match=r"\(no start in common\)"):
        train(from_files(tmp_path / "c", good, [episode(1, ["red"])]))


# -- resuming -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lora", [None, {"r": 2}])
def test_resumed_equals_straight(tmp_path: Path, lora: Any) -> None:
    sections = {"model": {"lora": lora}, "optim": {"schedule": "linear"}}
    result, _ = train(settings("dpo", tmp_path / "a", **sections))
    for k in (1, result.step // 2):
        broken_at(k, tmp_path / str(k), "dpo", **sections)
        train(settings("dpo", tmp_path / str(k), **sections), resume=True)
        assert_same_run(tmp_path / "a", tmp_path / str(k))


def test_a_killed_run_can_be_resumed(tmp_path: Path) -> None:
    step = killed("dpo", tmp_path / "a", run={"epochs": 400, "save_every": 1})
    train(settings("dpo", tmp_path / "a", run={"epochs": 400, "save_every": 1, "time_limit_s": 1e-6}), resume=True)

    def until(metrics: dict[str, float]) -> None:
        if metrics["step"] > step + 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(settings("dpo", tmp_path / "b", run={"epochs": 400, "save_every": step + 1}), on_step=until)
    metrics = tmp_path / "b" / "metrics.jsonl"
    metrics.write_text("".join(line + "\n" for line in metrics.read_text().splitlines()[: step + 1]))
    assert_same_run(tmp_path / "a", tmp_path / "b")


# -- settings -----------------------------------------------------------------------------------------------------------

CHANGES: list[dict[str, Any]] = [
    {"model": {"lora": {"r": 2}}},
    {"data": {"expert": [experts(11)]}},
    {"data": {"own": [{"kind": "policy", "envs": [env()], "samples": 3}]}},
    {"data": {"own": [{"kind": "policy", "envs": [env(rounds={"type": "fixed", "rounds": 1})], "samples": 2}]}},
    {"data": {"eval_share": 0.5}},
    {"data": {"max_length": 22}},
    {"dpo": {"beta": 0.1}},
    {"dpo": {"min_gap": 0.9}},
    {"rollout": {"temperature": 0.3}},
    {"rollout": {"top_p": 0.5}},
    {"rollout": {"max_new_tokens": 1}},
    {"optim": {"lr": 1e-4}},
    {"optim": {"schedule": "cosine"}},
    {"run": {"epochs": 1}},
    {"run": {"batch_size": 3}},
    {"run": {"seed": 1}},
    {"run": {"eval_every": 1}},
]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, float]]:
    with pytest.MonkeyPatch.context() as m:
        m.setattr("agentgym_envs.core._REGISTRY", {})
        world.register()
        return outcome(train(settings("dpo", tmp_path_factory.mktemp("base")))[0])


@pytest.mark.parametrize("change", CHANGES, ids=lambda c: json.dumps(c)[:60])
def test_every_setting_changes_the_run(tmp_path: Path, base: list[dict[str, float]], change: dict[str, Any]) -> None:
    assert outcome(train(settings("dpo", tmp_path, **change))[0]) != base


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"dpo": {"beta": 0}}, "setting 'dpo.beta'"),
        ({"dpo": {"min_gap": 0}}, "setting 'dpo.min_gap'"),
        ({"dpo": {"loss": "ipo"}}, "unknown setting 'dpo.loss'; allowed there: beta, min_gap"),
        ({"data": {"expert": [OWN[0]]}}, "setting 'data.expert.0'.*'policy'"),
        ({"data": {"own": [experts()]}}, "setting 'data.own.0'.*'expert'"),
        ({"data": {"own": [OWN[0] | {"sample": 2}]}}, "unknown setting 'data.own.0.sample'; allowed there: envs, kind, samples"),
        ({"data": {"own": [{"kind": "trajectories", "path": "x"}]}}, "'rollout' says how a source of kind 'policy' samples"),
    ],
)
def test_unknown_and_contradictory_settings_are_named(tmp_path: Path, sections: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings("dpo", tmp_path, **sections)


def test_the_trainer_is_chosen_by_the_method(tmp_path: Path) -> None:
    trainer = make_trainer(settings("dpo", tmp_path), model=make_model(), tokenizer=make_tokenizer())
    assert isinstance(trainer, DPOTrainer)
