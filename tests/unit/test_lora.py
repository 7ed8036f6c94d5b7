"""LoRA: the policy starts as the base, the reference is the base, the engine plays merged weights, checkpoints hold both."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import supervised_factory as world
import torch
from safetensors.torch import load_file
from supervised_factory import assert_same_run, episode, experts, logprob, settings, success_of
from test_sft import broken_at
from trainer_factory import make_config, make_model, make_tokenizer
from transformers import AutoModelForCausalLM

from agentgym_lite.config import Config, ConfigError, LoraConfig
from agentgym_lite.lora import AdapterOff, base_model, frozen_reference, is_adapted, merged_state, merged_weight, with_lora
from agentgym_lite.rollout import NativeEngine
from agentgym_lite.rollout.types import SamplingParams, Trajectory
from agentgym_lite.training import Trainer, make_trainer
from agentgym_lite.training.batch import Batch
from agentgym_lite.training.checkpoint import CheckpointStore, latest_checkpoint
from agentgym_lite.training.dpo import Pair
from agentgym_lite.training.logprobs import token_stats
from agentgym_lite.training.supervised import TokenSums

SMALL = LoraConfig(r=2, alpha=4)


@pytest.fixture(autouse=True)
def _toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_envs.core._REGISTRY", {})
    world.register()


def adapted(config: LoraConfig = SMALL, tied: bool = True, moved: bool = True) -> Any:
    """A model in adapters that do something."""
    model = with_lora(make_model(tied=tied), config, seed=0).eval()
    if moved:
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for name, p in model.named_parameters():
                if "lora_B" in name:
                    p.copy_(torch.randn(p.shape, generator=generator) * 0.3)
    return model


IDS = torch.tensor([[9, 1, 4, 10, 9, 2, 6, 10, 9, 3]])


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=IDS).logits


def scores(model: Any) -> torch.Tensor:
    batch = Batch.from_trajectories([episode(0, ["red", "green"]), episode(1, ["blue"])])
    with torch.no_grad():
        return token_stats(model, batch.input_ids, batch.targets, batch.mask, temperature=1.0).logprobs


# -- wrapping -----------------------------------------------------------------------------------------------------------


def test_no_settings_leave_the_model_alone() -> None:
    model = make_model()
    assert with_lora(model, None, 0) is model
    assert not is_adapted(model)
    assert base_model(model) is model


def test_the_policy_starts_as_the_base_and_only_adapters_train() -> None:
    model = adapted(moved=False)
    assert torch.equal(logits(model), logits(make_model()))
    trained = [n for n, p in model.named_parameters() if p.requires_grad]
    assert trained
    assert all("lora_" in n for n in trained)
    assert {n.rpartition(".lora_")[0].rpartition(".")[2] for n in trained} == set(LINEAR)
    assert {p.shape[0] for n, p in model.named_parameters() if "lora_A" in n} == {2}


LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def test_settings_and_seed_decide_the_adapter() -> None:
    def numbers(config: LoraConfig, seed: int = 0) -> dict[str, torch.Tensor]:
        return {n: p for n, p in with_lora(make_model(), config, seed).named_parameters() if p.requires_grad}

    first, again, other = numbers(SMALL), numbers(SMALL), numbers(SMALL, seed=1)
    assert all(torch.equal(first[n], again[n]) for n in first)
    assert not all(torch.equal(first[n], other[n]) for n in first)
    assert {n.rpartition(".lora_")[0].rpartition(".")[2] for n in numbers(LoraConfig(r=2, targets=("q_proj", "v_proj")))} == {
        "q_proj",
        "v_proj",
    }


def test_the_global_generator_stays_as_it_was() -> None:
    model = make_model()
    before = torch.get_rng_state()
    with_lora(model, SMALL, 0)
    assert torch.equal(before, torch.get_rng_state())


def test_the_merged_weight_is_the_formula() -> None:
    layer = base_model(adapted()).model.layers[0].self_attn.q_proj
    a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    torch.testing.assert_close(merged_weight(layer), layer.base_layer.weight + (4 / 2) * b @ a)
    plain = make_model().model.layers[0].self_attn.q_proj
    assert merged_weight(plain) is plain.weight


def test_bad_targets_are_named() -> None:
    for targets in (("q_prj",), ("lm_head",), ()):
        with pytest.raises(ConfigError, match=r"'model.lora.targets': expected names .*q_proj.* or 'all-linear', found"):
            with_lora(make_model(), LoraConfig(targets=targets), 0)
    with pytest.raises(ConfigError, match="expected a model without adapters"):
        with_lora(adapted(), SMALL, 0)


# -- the reference ------------------------------------------------------------------------------------------------------


def test_the_reference_is_the_base_and_the_adapter_comes_back() -> None:
    model = adapted()
    with_adapter = logits(model)
    reference = frozen_reference(model)
    assert isinstance(reference, AdapterOff)
    assert torch.equal(scores(reference), scores(make_model()))
    assert not torch.allclose(scores(model), scores(make_model()), atol=1e-3)
    assert torch.equal(logits(model), with_adapter)
    assert [n for n, p in model.named_parameters() if p.requires_grad] == [n for n, _ in model.named_parameters() if "lora_" in n]


def test_without_adapters_the_reference_is_a_frozen_copy() -> None:
    model = make_model()
    reference = frozen_reference(model)
    with torch.no_grad():
        model.lm_head.weight.zero_()
    assert torch.equal(scores(reference), scores(make_model()))
    assert not any(p.requires_grad for p in reference.parameters())


# -- merged weights -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False])
def test_a_merged_model_round_trip(tmp_path: Path, tied: bool) -> None:
    """Adapter on == merged in memory == saved and loaded; the model itself is bitwise as before."""
    model = adapted(tied=tied)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    plain = make_model(seed=7, tied=tied)
    plain.load_state_dict(merged_state(model))
    torch.testing.assert_close(logits(plain), logits(model), atol=1e-5, rtol=1e-4)

    store = CheckpointStore(tmp_path)
    path = store.save(1, model, make_tokenizer(), {}, {})
    assert store.latest() == path
    loaded = AutoModelForCausalLM.from_pretrained(path)
    assert all(torch.equal(a, b) for a, b in zip(loaded.state_dict().values(), plain.state_dict().values(), strict=True))
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert set(load_file(path / "adapter" / "adapter_model.safetensors"))


def test_peft_can_load_the_adapter(tmp_path: Path) -> None:
    from peft import PeftModel

    model = adapted()
    path = CheckpointStore(tmp_path).save(1, model, make_tokenizer(), {}, {})
    again = PeftModel.from_pretrained(make_model(), path / "adapter")
    assert torch.equal(logits(again), logits(model))


def test_a_damaged_adapter_is_noticed(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    path = store.save(1, adapted(), make_tokenizer(), {}, {})
    store.save(2, adapted(), make_tokenizer(), {}, {})
    (store.path(2) / "adapter" / "adapter_model.safetensors").write_bytes(b"")
    with pytest.warns(UserWarning, match="step_000002' is damaged"):
        assert store.latest() == path


@pytest.mark.parametrize("tied", [True, False])
def test_the_engine_plays_merged_weights_and_touches_nothing(tied: bool) -> None:
    model = adapted(tied=tied, moved=False)
    engine = NativeEngine(model, max_sessions=2, max_length=32, stop_ids=[10])
    moved = adapted(tied=tied)
    model.load_state_dict(moved.state_dict())
    before = {k: v.clone() for k, v in model.state_dict().items()}
    engine.sync()
    plain = make_model(tied=tied)
    plain.load_state_dict(merged_state(moved))
    expected = NativeEngine(plain, max_sessions=2, max_length=32, stop_ids=[10])
    replies = []
    for e in (engine, expected):
        session = e.open()
        e.submit(session, IDS[0].tolist(), SamplingParams(max_new_tokens=6), seed=3)
        done: list[Any] = []
        while not done:
            done = e.step()
        replies.append((done[0].token_ids, done[0].logprobs))
    assert replies[0] == replies[1]
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


# -- training -----------------------------------------------------------------------------------------------------------


def rl_config(out: Path, **sections: Any) -> Config:
    """Reinforcement learning with adapters and a KL that shows where the reference is."""
    sections = {"model": {"lora": {"r": 2, "alpha": 4}}, "algorithm": {"kl_coef": 0.1}} | sections
    return make_config(out, **sections)


def reward(t: Trajectory) -> float:
    return (sum(t.rows[0].token_ids) % 7 + t.spec.sample) / 10


def rl(config: Config, resume: bool = False, **options: Any) -> tuple[Any, Any]:
    trainer = Trainer(config, model=make_model(), tokenizer=make_tokenizer(), reward_fn=reward, **options)
    return trainer.train(resume=resume), trainer.model


def test_rl_starts_at_kl_0_and_moves_only_the_adapter(tmp_path: Path) -> None:
    result, model = rl(rl_config(tmp_path))
    kl = [m["policy/kl"] for m in result.history]
    assert kl[0] == 0.0
    assert kl[-1] > 0
    assert max(m["engine/logp_diff_max"] for m in result.history) < 1e-4
    for name, value in make_model().state_dict().items():
        assert torch.equal(model.get_base_model().state_dict()[_inside(model, name)], value)


def _inside(model: Any, name: str) -> str:
    """Where a plain model's weight stands in the adapted one."""
    layer, _, leaf = name.rpartition(".")
    inner = f"{layer}.base_layer.{leaf}"
    return inner if inner in model.get_base_model().state_dict() else name


def test_an_rl_run_resumes_bitwise(tmp_path: Path) -> None:
    rl(rl_config(tmp_path / "a", run={"steps": 4}))
    rl(rl_config(tmp_path / "b", run={"steps": 2}))
    rl(rl_config(tmp_path / "b", run={"steps": 4}), resume=True)
    assert_same_run(tmp_path / "a", tmp_path / "b")


def test_a_checkpoint_plays_like_the_trained_policy(tmp_path: Path) -> None:
    config = settings("sft", tmp_path, model={"lora": {"r": 4, "alpha": 16}}, run={"epochs": 60})
    _, model = world.train(config)
    assert success_of(make_model()) == 0.0
    assert success_of(model) == success_of(AutoModelForCausalLM.from_pretrained(latest_checkpoint(tmp_path))) == 1.0


@pytest.mark.parametrize("method", ["sft", "agentevol"])
def test_the_other_methods_resume_bitwise(tmp_path: Path, method: str) -> None:
    sections: dict[str, Any] = {"model": {"lora": {"r": 2}}}
    world.train(settings(method, tmp_path / "a", **sections))
    broken_at(4, tmp_path / "b", method, **sections)
    world.train(settings(method, tmp_path / "b", **sections), resume=True)
    assert_same_run(tmp_path / "a", tmp_path / "b")


def test_agentevol_goes_back_to_the_first_adapter(tmp_path: Path) -> None:
    """With nothing kept, an iteration from the base repeats the first one, but for the order of the examples."""
    config = settings(
        "agentevol",
        tmp_path,
        model={"lora": {"r": 2}},
        data={"sources": [experts(3)]},
        explore={"min_reward": 1.0, "samples": 1, "items": 1},
        evol={"eval_items": 0},
        run={"epochs": 2},
    )
    result, _ = world.train(config)
    starts = [m["loss/total"] for m in result.history if m["data/epoch"] == 1.0]
    assert starts == pytest.approx([starts[0]] * 3)


def test_the_gradient_of_dpo_is_that_of_its_formula(tmp_path: Path) -> None:
    """Switching the adapter off for the reference, between forward and backward pass, must not lose the policy's gradient."""
    trainer = make_trainer(settings("dpo", tmp_path, model={"lora": {"r": 2}}), model=make_model(), tokenizer=make_tokenizer())
    assert isinstance(trainer._reference, AdapterOff)
    trainer.model.load_state_dict(adapted().state_dict())
    pair = Pair(episode(0, ["red", "green"]), episode(0, ["blue"]))
    parameters = [p for p in trainer.model.parameters() if p.requires_grad]
    base, policy = make_model(), [logprob(trainer.model, t) for t in (pair.chosen, pair.rejected)]
    with torch.no_grad():
        reference = [logprob(base, t) for t in (pair.chosen, pair.rejected)]
    want = -torch.nn.functional.logsigmoid(0.5 * (policy[0] - policy[1] - reference[0] + reference[1]))
    gradient = torch.autograd.grad(want, parameters)
    (got,) = trainer._losses([pair], TokenSums(), defaultdict(float))
    assert got.item() == pytest.approx(want.item(), abs=1e-5)
    for a, b in zip(torch.autograd.grad(got, parameters), gradient, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("critic", ["head", "separate"])
def test_ppo_trains_a_critic_besides(tmp_path: Path, critic: str) -> None:
    algorithm = {"name": "ppo", "critic": critic, "kl_coef": 0.1}
    result, _ = rl(rl_config(tmp_path / "a", run={"steps": 4}, algorithm=algorithm))
    assert result.history[0]["policy/kl"] == 0.0
    rl(rl_config(tmp_path / "b", run={"steps": 2}, algorithm=algorithm))
    rl(rl_config(tmp_path / "b", run={"steps": 4}, algorithm=algorithm), resume=True)
    assert_same_run(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize("change", [{"r": 3}, {"alpha": 8}, {"targets": ["q_proj"]}])
def test_every_setting_changes_the_run(tmp_path: Path, change: dict[str, Any]) -> None:
    a, _ = rl(rl_config(tmp_path / "a"))
    b, _ = rl(rl_config(tmp_path / "b", model={"lora": {"r": 2, "alpha": 4} | change}))
    assert [world.untimed(m) for m in a.history] != [world.untimed(m) for m in b.history]


def test_unknown_settings_are_named(tmp_path: Path) -> None:
    for lora, message in (
        ({"rank": 3}, "unknown setting 'model.lora.rank'; allowed there: r, alpha, targets"),
        ({"r": 0}, "setting 'model.lora.r'"),
        ({"targets": "some"}, "setting 'model.lora.targets'"),
    ):
        with pytest.raises(ConfigError, match=message):
            rl_config(tmp_path, model={"lora": lora})


def test_another_lora_is_refused_on_resume(tmp_path: Path) -> None:
    rl(rl_config(tmp_path, run={"steps": 1}))
    with pytest.raises(ConfigError, match=r"setting 'model.lora.r' is 3, but the run to resume was made with 2"):
        rl(rl_config(tmp_path, model={"lora": {"r": 3, "alpha": 4}}), resume=True)
