"""vLLM in this process, on a CPU: replies against the native engine, weights and adapters that arrive, and syncs that must not pass."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("vllm", reason="needs vLLM: `make test-vllm` installs it on a CPU, into an environment of its own")

import torch
from test_engine import STOP, Talk, largest_gap, make_talks, run_talks
from trainer_factory import make_config, make_tokenizer, register
from vllm_factory import CLOSE, assert_from_nucleus, assert_same_as_native, change, lora_model, policy, small_model

from agentgym_lite.config import RolloutConfig
from agentgym_lite.lora import is_adapted
from agentgym_lite.models import load_model
from agentgym_lite.rollout import SamplingParams
from agentgym_lite.rollout.vllm import VllmEngine, VllmError, WeightSyncError, make_vllm_engine
from agentgym_lite.training import Trainer

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def make_engine(model: Any, max_length: int = 256, **vllm: Any) -> VllmEngine:
    return make_vllm_engine(model, RolloutConfig(engine="vllm", vllm=vllm, max_length=max_length, max_sessions=5), STOP)


@pytest.fixture(scope="module")
def full() -> Iterator[tuple[VllmEngine, Any]]:
    model = small_model()
    engine = make_engine(model)
    yield engine, model
    engine.close()


@pytest.fixture(scope="module")
def adapted() -> Iterator[tuple[VllmEngine, Any]]:
    model = lora_model()
    engine = make_engine(model)
    yield engine, model
    engine.close()


def test_greedy_replies_equal_the_native_engine(full: tuple[VllmEngine, Any]) -> None:
    assert_same_as_native(*full)


def test_sampled_logprobs_are_those_of_the_distribution_that_was_sampled_from(full: tuple[VllmEngine, Any]) -> None:
    engine, model = full
    assert max(largest_gap(model, t) for t in run_talks(engine, make_talks(8, temperature=0.7))) < CLOSE
    for talk in run_talks(engine, make_talks(5, temperature=0.7, top_p=0.6)):
        assert_from_nucleus(model, talk)


def test_replies_follow_from_their_seeds_and_leave_global_generators_alone(full: tuple[VllmEngine, Any]) -> None:
    engine, _ = full
    expected = {t.seed: t.row for t in run_talks(engine, make_talks(5))}
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    shuffled = make_talks(5)[::-1]
    assert {t.seed: t.row for t in run_talks(engine, shuffled)} == expected
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]
    same = [Talk([[5] * 9], SamplingParams(max_new_tokens=9), seed) for seed in range(4)]
    assert len({tuple(t.row) for t in run_talks(engine, same)}) == 4


def test_max_length_ends_a_reply(full: tuple[VllmEngine, Any]) -> None:
    engine, _ = full
    talk = run_talks(engine, [Talk([[5] * 250], SamplingParams(0.0, max_new_tokens=50), 0)])[0]
    assert len(talk.row) == 256 or talk.replies[0].finished_by_stop
    session = engine.open()
    with pytest.raises(ValueError, match="256 tokens and no reply; max_length is 256"):
        engine.submit(session, [5] * 256, SamplingParams(), seed=0)
    engine.release(session)


def test_a_released_session_leaves_the_others_alone(full: tuple[VllmEngine, Any]) -> None:
    engine, _ = full
    expected = [t.row for t in run_talks(engine, make_talks(2, temperature=0.0))]
    doomed = engine.open()
    engine.submit(doomed, [9] * 30, SamplingParams(max_new_tokens=50), seed=77)
    engine.step()
    engine.release(doomed)
    assert [t.row for t in run_talks(engine, make_talks(2, temperature=0.0))] == expected


def test_turns_are_found_in_the_prefix_cache(full: tuple[VllmEngine, Any]) -> None:
    engine, _ = full
    cached: list[int] = []
    vllm = engine._backend._engine  # type: ignore[attr-defined]
    step = vllm.step
    vllm.step = lambda: [cached.append(o.num_cached_tokens) or o for o in step()]  # type: ignore[func-returns-value]
    try:
        run_talks(engine, [Talk([[3] * 100, [4] * 10], SamplingParams(0.0, max_new_tokens=2), 0)])
    finally:
        vllm.step = step
    assert max(cached) >= 96  # whole blocks of the first turn


def test_new_weights_arrive(full: tuple[VllmEngine, Any]) -> None:
    engine, model = full
    before = [t.row for t in run_talks(engine, make_talks(5, temperature=0.0))]
    change(model)
    engine.sync()
    assert_same_as_native(engine, model)
    assert [t.row for t in run_talks(engine, make_talks(5, temperature=0.0))] != before


@pytest.mark.parametrize("fault", ["nothing is loaded", "a layer is left out", "the cache is kept"])
def test_a_wrong_sync_does_not_pass(full: tuple[VllmEngine, Any], monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    engine, model = full
    backend: Any = engine._backend
    load = backend._load
    if fault == "nothing is loaded":
        monkeypatch.setattr(backend, "_load", lambda weights: None)
    elif fault == "a layer is left out":
        kept = model.model.layers[1].mlp.down_proj.weight.clone()
        monkeypatch.setattr(
            backend, "_load", lambda weights: load((n, kept if n.endswith("1.mlp.down_proj.weight") else w) for n, w in weights)
        )
    else:
        monkeypatch.setattr(backend._engine, "reset_prefix_cache", lambda: True)
    change(model)
    with pytest.raises(WeightSyncError, match="does not sample with the weights"):
        engine.sync()
    monkeypatch.undo()
    engine.sync()
    assert_same_as_native(engine, model)


def test_weights_that_vllm_would_miss_are_named(full: tuple[VllmEngine, Any]) -> None:
    engine, model = full
    backend: Any = engine._backend
    with pytest.raises(WeightSyncError, match=r"1 weights that the policy lacks, the first is 'model\.norm\.weight'"):
        backend._load((n, w) for n, w in model.state_dict().items() if n not in ("model.norm.weight", "lm_head.weight"))
    engine.sync()


def test_sync_needs_all_sessions_released_and_sleep_ends_with_it(full: tuple[VllmEngine, Any]) -> None:
    engine, model = full
    session = engine.open()
    with pytest.raises(RuntimeError, match="found 1 open"):
        engine.sync()
    engine.release(session)
    engine.sleep()
    with pytest.raises(RuntimeError, match="call sync"):
        engine.open()
    engine.sync()
    assert_same_as_native(engine, model)


def test_new_adapters_arrive_and_leave_the_policy_as_it_was(adapted: tuple[VllmEngine, Any]) -> None:
    engine, model = adapted
    assert all(not p.any() for name, p in model.named_parameters() if ".lora_B." in name)  # the first check made them visible
    assert_same_as_native(engine, model)
    for _ in range(2):
        change(model, "lora_")
        engine.sync()
        assert_same_as_native(engine, model)


def test_a_wrong_adapter_does_not_pass(adapted: tuple[VllmEngine, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    engine, model = adapted
    monkeypatch.setattr(engine._backend, "_load_adapter", lambda model: None)
    change(model, "lora_B")
    with pytest.raises(WeightSyncError, match="does not sample with the weights"):
        engine.sync()
    monkeypatch.undo()
    engine.sync()
    assert_same_as_native(engine, model)


def test_adapters_merged_into_the_weights_arrive(full: tuple[VllmEngine, Any]) -> None:
    engine, _ = full
    model = lora_model(seed=4)
    change(model, "lora_")
    engine._backend.push(model)
    assert_same_as_native(engine, model)


def test_models_that_vllm_does_not_run_on_a_cpu_are_refused() -> None:
    with pytest.raises(VllmError, match=r"heads of 32, 64, .* found 48; use rollout\.engine=native"):
        make_engine(load_model("tiny"))


@pytest.mark.parametrize("lora", [None, {"r": 2, "alpha": 4}], ids=["weights", "adapters"])
def test_grpo_trains_on_it(tmp_path: Path, lora: dict[str, int] | None) -> None:
    register()
    config = make_config(
        tmp_path,
        model={"lora": lora},
        rollout={"engine": "vllm"},
        run={"steps": 2},
        algorithm={"zero_variance": "keep"},
        optim={"lr": 1e-2},
    )
    trainer = Trainer(config, model=policy(), tokenizer=make_tokenizer())
    before = {n: p.detach().clone() for n, p in trainer.model.named_parameters()}
    history = trainer.train().history
    assert [m["optim/updates"] for m in history] == [1, 1]
    assert max(m["engine/logp_diff_max"] for m in history) < CLOSE
    assert is_adapted(trainer.model) == (lora is not None)
    assert any(not torch.equal(before[n], p) for n, p in trainer.model.named_parameters())


def test_two_processes_train_with_a_vllm_in_each(tmp_path: Path) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    worker = [sys.executable, str(Path(__file__).with_name("train_worker.py")), str(tmp_path / "run")]
    run = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    processes = [
        subprocess.Popen(worker, stdout=subprocess.PIPE, text=True, env=os.environ | run | {"RANK": rank, "LOCAL_RANK": rank})
        for rank in ("0", "1")
    ]
    outputs = [p.communicate(timeout=900)[0] for p in processes]
    assert [p.returncode for p in processes] == [0, 0]
    first, second = (json.loads(text.splitlines()[-1]) for text in outputs)
    assert first == second
    assert [m["optim/updates"] for m in first] == [1, 1]
    assert max(m["engine/logp_diff_max"] for m in first) < CLOSE
