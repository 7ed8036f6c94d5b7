"""Checkpoints and run files: exact round trips, damage, and what a kill leaves behind."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from trainer_factory import make_model, make_tokenizer
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from agentgym_lite.rollout.types import EpisodeSpec, Trajectory
from agentgym_lite.training import checkpoint as ckpt
from agentgym_lite.training.logging import JsonLines, RunLogger


def trained(seed: int, tied: bool = True) -> tuple[Any, torch.optim.AdamW, list[str]]:
    """A model and an optimizer that has made one update."""
    model = make_model(seed, tied)
    names = [n for n, _ in model.named_parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model(input_ids=torch.arange(10)[None]).logits.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer, names


def save(store: ckpt.CheckpointStore, step: int, state: dict[str, Any] | None = None) -> Path:
    model, optimizer, names = trained(step)
    return store.save(step, model, make_tokenizer(), ckpt.optimizer_tensors(optimizer, names), state or {"step": step})


@pytest.mark.parametrize("tied", [True, False])
def test_weights_and_moments_come_back_bitwise(tmp_path: Path, tied: bool) -> None:
    model, optimizer, names = trained(1, tied)
    path = ckpt.CheckpointStore(tmp_path).save(7, model, make_tokenizer(), ckpt.optimizer_tensors(optimizer, names), {"step": 7})
    other, other_optimizer, _ = trained(2, tied)
    ckpt.restore(path, other, other_optimizer, names)
    for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    a, b = optimizer.state_dict(), other_optimizer.state_dict()
    assert a["param_groups"] == b["param_groups"]
    assert a["state"].keys() == b["state"].keys()
    for i, entries in a["state"].items():
        for key, value in entries.items():
            assert torch.equal(value, b["state"][i][key])
    assert ckpt.read_state(path) == {"step": 7}


def test_an_optimizer_that_has_not_stepped_comes_back_empty(tmp_path: Path) -> None:
    model, names = make_model(), [n for n, _ in make_model().named_parameters()]
    fresh = torch.optim.AdamW(model.parameters())
    path = ckpt.CheckpointStore(tmp_path).save(1, model, make_tokenizer(), ckpt.optimizer_tensors(fresh, names), {})
    _, used, _ = trained(2)
    ckpt.restore(path, model, used, names)
    assert used.state_dict()["state"] == {}


def test_transformers_can_load_the_folder(tmp_path: Path) -> None:
    path = save(ckpt.CheckpointStore(tmp_path), 3)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(path), PreTrainedTokenizerFast.from_pretrained(path)
    for name, value in trained(3)[0].state_dict().items():
        assert torch.equal(model.state_dict()[name], value)
    assert tokenizer.encode("say red") == make_tokenizer().encode("say red")
    assert tokenizer.chat_template == make_tokenizer().chat_template


def test_only_the_last_ones_are_kept(tmp_path: Path) -> None:
    store = ckpt.CheckpointStore(tmp_path, keep=2)
    for step in (1, 5, 12):
        save(store, step)
    assert store.steps() == [5, 12]
    assert store.latest() == store.path(12) == ckpt.latest_checkpoint(tmp_path)


def killed(path: Path, target: Path) -> None:
    raise KeyboardInterrupt


def test_a_half_written_one_is_ignored_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ckpt.CheckpointStore(tmp_path)
    save(store, 1)
    with monkeypatch.context() as m:
        m.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            save(store, 2)
    assert len(list(store.folder.iterdir())) == 2
    assert store.latest() == store.path(1)
    save(store, 2)
    assert sorted(p.name for p in store.folder.iterdir()) == ["step_000001", "step_000002"]


@pytest.mark.parametrize("victim", ["model.safetensors", "optimizer.safetensors", "state.json", "config.json", "manifest.json"])
@pytest.mark.parametrize("how", ["truncate", "flip", "delete"])
def test_a_damaged_one_is_passed_over_with_a_warning(tmp_path: Path, victim: str, how: str) -> None:
    store = ckpt.CheckpointStore(tmp_path)
    save(store, 1)
    path = save(store, 2) / victim
    data = bytearray(path.read_bytes())
    if how == "delete":
        path.unlink()
    else:
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(data if how == "flip" else data[: len(data) // 2])
    with pytest.warns(UserWarning, match=r"step_000002' is damaged .* trying the one before"):
        assert store.latest() == store.path(1)


def test_newer_ones_are_discarded(tmp_path: Path) -> None:
    store = ckpt.CheckpointStore(tmp_path, keep=5)
    for step in (1, 2, 3):
        save(store, step)
    store.discard_after(1)
    assert store.steps() == [1]


def test_no_good_checkpoint_is_a_clear_error(tmp_path: Path) -> None:
    store = ckpt.CheckpointStore(tmp_path)
    with pytest.raises(ckpt.CheckpointError, match="found none"):
        store.latest()
    (save(store, 1) / "state.json").write_text("{")
    with pytest.warns(UserWarning, match="damaged"), pytest.raises(ckpt.CheckpointError, match=r"all 1 checkpoints in .* are damaged"):
        store.latest()


def test_global_generators_go_on_where_they_were() -> None:
    random.seed(3)
    np.random.seed(4)
    torch.manual_seed(5)
    random.gauss(0, 1)
    np.random.standard_normal()
    state = json.loads(json.dumps(ckpt.rng_state()))

    def draw() -> list[float]:
        return [random.random(), random.gauss(0, 1), float(np.random.standard_normal()), float(torch.rand(1)), float(torch.randn(1))]

    first = draw()
    assert draw() != first
    ckpt.set_rng_state(state)
    assert draw() == first


# -- run files -----------------------------------------------------------------------------------------------------------------------------


def test_lines_after_the_checkpoint_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"ste')
    lines = JsonLines(path, keep_until=2)
    lines.write({"step": 3, "x": "é"})
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n{"step": 3, "x": "é"}\n'  # readable before it is closed
    lines.close()
    JsonLines(path, keep_until=0).close()
    assert path.read_text() == ""


def test_a_last_line_without_its_end_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}')
    JsonLines(path, keep_until=5).close()
    assert path.read_text() == '{"step": 1}\n'


def test_nan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        JsonLines(tmp_path / "m.jsonl", 0).write({"step": 1, "x": float("nan")})


def test_logger_writes_jsonl_trajectories_and_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with RunLogger(tmp_path, 0) as logger:
        logger.log(1, {"step": 1, "reward/mean": 0.25}, [Trajectory(EpisodeSpec("echo", "echo_1"))])
        logger.log(2, {"step": 2, "reward/mean": 0.5}, [])
        logger.sync()
    assert [json.loads(x)["reward/mean"] for x in (tmp_path / "metrics.jsonl").read_text().splitlines()] == [0.25, 0.5]
    (line,) = (tmp_path / "trajectories.jsonl").read_text().splitlines()
    record = json.loads(line)
    assert record.pop("step") == 1
    assert Trajectory.from_dict(record).spec.item_id == "echo_1"
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("reward/mean")] == [(1, 0.25), (2, 0.5)]
