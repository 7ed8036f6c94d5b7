"""``agl plan``: parameters, memory and work against numbers made by hand, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_factory import save_model
from typer.testing import CliRunner

from agentgym_lite.cli.app import app
from agentgym_lite.config import Config, LoraConfig, ModelConfig, parse_config
from agentgym_lite.plan import Machine, ModelFacts, PlanError, Throughput, make_plan, measured, model_facts, plan_memory, plan_work
from agentgym_lite.plan.memory import activation_bytes, pass_tokens
from agentgym_lite.plan.work import Usage

ROOT = Path(__file__).resolve().parents[2]
#: Small enough to count on paper: 100 parameters in each of 2 layers, 60 outside them.
TOY = ModelFacts(
    "toy", parameters=260, trainable=260, layer_parameters=100, hidden=4, intermediate=8, layers=2, heads=2, kv_heads=1, head_dim=2,
    vocab=10, positions=64, tied=True,
)  # fmt: skip


def config(**sections: Any) -> Config:
    data: dict[str, Any] = {
        "envs": [{"name": "textcraft", "rounds": {"rounds": 5}}],
        "algorithm": {"group_size": 4, "kl_coef": 0.0},
        "rollout": {"max_length": 32, "max_new_tokens": 4, "max_sessions": 3},
        "optim": {"micro_batch_tokens": 64},
        "run": {"groups_per_step": 2, "steps": 10},
    }
    for name, change in sections.items():
        data[name] = change if isinstance(change, list) else data.get(name, {}) | change
    parsed = parse_config(data)
    assert isinstance(parsed, Config)
    return parsed


def held(c: Config, model: ModelFacts = TOY, devices: int = 1) -> dict[tuple[str, str], float]:
    items = plan_memory(c, model, Machine("cpu", 1e9, devices)).items
    return {(i.name, i.when): i.bytes for i in items}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("Qwen/Qwen2.5-0.5B", 494_032_768), ("Qwen/Qwen2.5-3B-Instruct", 3_085_938_688), ("Qwen/Qwen2.5-7B-Instruct", 7_615_616_512)],
)
def test_hub_models_are_known_without_a_download(name: str, parameters: int) -> None:
    facts = model_facts(ModelConfig(path=name))
    assert facts.parameters == facts.trainable == parameters
    assert facts.outer_parameters == facts.vocab * facts.hidden * (1 if facts.tied else 2) + facts.hidden


def test_adapters_are_counted() -> None:
    facts = model_facts(ModelConfig(path="tiny", lora=LoraConfig(r=2, alpha=4, targets=("q_proj",))))
    assert facts.trainable == facts.layers * 2 * (facts.hidden + facts.heads * facts.head_dim)
    assert facts.trainable < facts.parameters


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(PlanError, match=r"nothing is known here about the model 'no/such-model'"):
        model_facts(ModelConfig(path="no/such-model"))


def test_memory_of_one_process_by_hand() -> None:
    found = held(config())
    assert found["weights", "always"] == found["engine weights", "always"] == 260 * 4
    assert found["optimizer moments", "always"] == 2 * 260 * 4
    assert found["gradients", "update"] == 260 * 4
    # 3 sessions of 32 tokens; keys and values of 2 layers, 1 head of 2 numbers; 16 bytes of the engine's own for each token.
    assert found["engine cache", "always"] == 3 * 32 * (2 * 2 * 1 * 2 * 4 + 16)
    assert ("reference weights", "always") not in found
    assert held(config(algorithm={"kl_coef": 0.1}))["reference weights", "always"] == 260 * 4


def test_sharding_divides_weights_and_leaves_the_engine_whole() -> None:
    one, four = held(config()), held(config(), devices=4)
    for name in ("weights", "optimizer moments"):
        assert four[name, "always"] == one[name, "always"] / 4
    assert four["engine weights", "always"] == one["engine weights", "always"]
    assert four["gathered weights", "update"] == (60 + 2 * 100) * 4


def test_lora_pays_for_adapters_alone() -> None:
    small = dataclasses.replace(TOY, trainable=26)
    found = held(config(model={"lora": {"r": 2}, "dtype": "bfloat16"}, algorithm={"kl_coef": 0.1}), small)
    assert found["weights", "always"] == 260 * 2
    assert found["gradients", "update"] == 26 * 4  # adapters over bfloat16 weights are float32
    assert ("reference weights", "always") not in found


def test_recomputed_layers_keep_their_input_alone() -> None:
    tokens = pass_tokens(config(), Machine("cpu", 1e9))
    assert tokens == 64  # two rows of 32
    layer = activation_bytes(TOY, "float32")
    assert layer == 4 * (6 * 4 + (2 * 4 + 2 * 2) + 4 * 8)
    stream = tokens * 4 * 4  # the residual stream: 4 numbers of 4 bytes
    assert held(config())["activations", "update"] == 2 * tokens * layer + 2 * stream
    again = held(config(model={"gradient_checkpointing": True}))
    assert again["activations", "update"] == (2 + 2) * stream
    assert again["a layer computed again, or the logits", "update"] == max(tokens * layer, 5 * tokens * 10 * 4)


def test_a_row_longer_than_a_pass_has_one_of_its_own() -> None:
    assert pass_tokens(config(optim={"micro_batch_tokens": 1}), Machine("cpu", 1e9)) == 32
    assert pass_tokens(config(optim={"micro_batch_tokens": 10**6}), Machine("cpu", 1e9)) == 8 * 32  # all rows of the step
    assert pass_tokens(config(optim={"micro_batch_tokens": 10**6}), Machine("cpu", 1e9, devices=4)) == 2 * 32


def test_vllm_takes_the_share_it_was_given() -> None:
    vllm = {"engine": "vllm", "vllm": {"gpu_memory": 0.5}}
    found = held(config(rollout=vllm))
    assert found["vLLM's share (rollout.vllm.gpu_memory)", "sampling"] == 0.5e9  # it sleeps during the update
    assert ("engine weights", "always") not in found
    assert not any("vLLM" in name or "engine" in name for name, _ in held(config(rollout={"engine": "vllm", "vllm": {"url": "http://x"}})))
    small = make_plan(config(model={"path": "tiny"}, rollout={"engine": "vllm", "vllm": {"gpu_memory": 0.001}}), gpu_memory=2)
    assert any("vLLM needs" in p for p in small.problems)


def test_work_follows_the_schedule() -> None:
    envs = [{"name": "textcraft", "rounds": {"type": "scaling_inter", "rounds": [1, 2, 20], "steps_scaling_inter": 4}}]
    work = plan_work(config(envs=envs), 2, Usage(sampled=3, context=5), Throughput(sampled=6, trained=16))
    assert [(s.rounds["textcraft"], s.steps) for s in work.stages] == [(1, 4), (2, 4), (20, 2)]
    assert [s.sampled for s in work.stages] == [8 * 3, 8 * 6, 8 * 32]  # an episode never holds more than 32 tokens
    assert [s.tokens for s in work.stages] == [8 * 8, 8 * 16, 8 * 32]
    assert work.stages[0].seconds == pytest.approx((24 / 6 + 64 / 16) / 2)
    assert work.hours == pytest.approx(sum(s.steps * (s.seconds or 0) for s in work.stages) / 3600)
    assert plan_work(config(envs=envs), 1).hours is None
    assert plan_work(config(envs=envs), 1).stages[1].sampled == 8 * 2 * 4  # at most: 2 rounds of 4 tokens


def test_usage_is_read_from_a_run(tmp_path: Path) -> None:
    step = {
        "optim/updates": 1, "tokens/sampled": 60, "tokens/context": 240, "time/rollout": 2.0, "time/update": 3.0,
        "env/textcraft/rounds_mean": 3.0, "episodes/total": 11, "episodes/env_error": 1,
    }  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(step) + "\n" for _ in range(3)))
    assert measured(tmp_path) == (Usage(2.0, 8.0), Throughput(30.0, 100.0))
    with pytest.raises(PlanError, match=r"expected a run's folder with metrics\.jsonl"):
        measured(tmp_path / "nowhere")


def test_impossible_runs_are_told_with_a_remedy() -> None:
    small = make_plan(config(model={"path": "tiny"}), gpus=1, gpu_memory=0.5)
    assert len(small.problems) == 1
    assert "the run needs" in small.problems[0]
    long = make_plan(config(model={"path": "tiny"}, rollout={"max_length": 8192}), gpu_memory=80)
    assert long.problems == ["rollout.max_length is 8192, but the model was made for 4096 positions; lower it"]
    with pytest.raises(PlanError, match="expected a config of method 'rl', found 'sft'"):
        make_plan(parse_config({"method": "sft", "data": {"sources": [{"kind": "trajectories", "path": "x"}]}}))


def test_the_command_prints_a_plan_and_fails_for_an_impossible_run(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(
        f"model: {{path: {save_model(tmp_path / 'model')}}}\nenvs: [{{name: textcraft}}]\nrollout: {{max_length: 256, max_sessions: 2}}\n"
    )
    runner = CliRunner()
    fits = runner.invoke(app, ["plan", str(path), "--gpu-memory", "8", "--gpus", "2", "--json"])
    assert fits.exit_code == 0, fits.output
    plan = json.loads(fits.stdout)
    assert plan["possible"]
    assert plan["machine"]["devices"] == 2
    assert plan["memory"]["peak"] == pytest.approx(
        sum(i["bytes"] for i in plan["memory"]["items"] if i["when"] in ("always", plan["memory"]["moment"]))
    )
    fails = runner.invoke(app, ["plan", str(path), "rollout.max_length=4000000", "--gpu-memory", "8"])
    assert fails.exit_code == 1


@pytest.mark.slow
def test_the_plan_is_within_15_percent_of_measured_memory(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "plan_memory.py"), "--only", "tiny", "90m", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(abs(case["error"]) < 0.15 for case in json.loads(out.read_text())["cases"].values())
