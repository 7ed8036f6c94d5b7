"""Settings that decide where and how a model is computed: recomputed layers, the device, the engine's type of numbers."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import trainer_factory as toy
from trainer_factory import make_config, make_model, make_tokenizer

from agentgym_lite.config import ModelConfig
from agentgym_lite.models import checkpoint_layers
from agentgym_lite.rollout import engines
from agentgym_lite.training import Trainer
from agentgym_lite.training.logprobs import token_stats


@pytest.fixture(autouse=True)
def _toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_envs.core._REGISTRY", {})
    toy.register()


def kept_and_gradients(model: Any) -> tuple[int, list[torch.Tensor]]:
    """Numbers that the graph of a pass keeps besides weights, and the gradients of its log-probs."""
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}

    def pack(t: torch.Tensor) -> torch.Tensor:
        storage = t.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return t

    ids = torch.arange(60).view(3, 20) % 15
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        logprobs = token_stats(model, ids, ids.flip(1), torch.ones(3, 20), temperature=1.0).logprobs
    logprobs.sum().backward()
    return sum(kept.values()), [p.grad for p in model.parameters()]


def test_recomputed_layers_keep_less_and_give_the_same_gradients() -> None:
    plain = make_model().eval()
    saving = copy.deepcopy(plain)
    checkpoint_layers(saving)
    checkpoint_layers(saving)  # twice is once
    (many, expected), (few, found) = kept_and_gradients(plain), kept_and_gradients(saving)
    assert few < many / 2
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


def test_a_copy_of_a_recomputing_model_computes_with_its_own_weights() -> None:
    model = make_model().eval()
    checkpoint_layers(model)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for p in other.model.layers.parameters():
            p.zero_()
    ids = torch.arange(10)[None]
    assert not torch.equal(model(ids).logits, other(ids).logits)
    assert torch.equal(model(ids).logits, copy.deepcopy(model)(ids).logits)


def test_the_settings_reach_model_and_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.dtype | None] = []
    engine = engines.NativeEngine

    def watched(*args: Any, dtype: torch.dtype | None, **kwargs: Any) -> Any:
        seen.append(dtype)
        return engine(*args, dtype=dtype, **kwargs)

    monkeypatch.setattr(engines, "NativeEngine", watched)
    changes = {"model": {"gradient_checkpointing": True}, "rollout": {"dtype": "bfloat16"}, "run": {"steps": 1}}
    for number, sections in enumerate((changes, {"run": {"steps": 1}})):
        model = make_model()
        Trainer(make_config(tmp_path / str(number), **sections), model=model, tokenizer=make_tokenizer()).train()
        assert ("forward" in vars(model.model.layers[0])) == ("model" in sections)
    assert seen == [torch.bfloat16, None]


def test_auto_is_cuda_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for available, device in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda found=available: found)
        assert ModelConfig().chosen_device() == device
        assert ModelConfig(device="cpu").chosen_device() == "cpu"


def test_options_go_to_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: toy.Echo, rounds: int = 2) -> None:
        given.append(rounds)

    given: list[int] = []
    monkeypatch.setattr(toy.Echo, "__init__", start)
    envs = [{"name": "echo", "options": {"rounds": 7}, "rounds": {"rounds": 1}}]
    Trainer(make_config(tmp_path, envs=envs, run={"steps": 1}), model=make_model(), tokenizer=make_tokenizer()).train()
    assert set(given) == {7}
