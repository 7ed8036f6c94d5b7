"""All algorithms through the one trainer: degenerate groups, splits, resumption, and a walk over every setting of each."""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import torch
import trainer_factory as toy
from safetensors.torch import load_file
from test_credit import episode
from test_trainer_resume import assert_same_run, config_for, train
from trainer_factory import make_config, make_model, make_tokenizer

from agentgym_lite.algorithms import ALGORITHMS
from agentgym_lite.config import ALGORITHM_CONFIGS, ConfigError, OptimConfig, parse_config
from agentgym_lite.rollout.types import Trajectory
from agentgym_lite.training import Trainer
from agentgym_lite.training.batch import Batch
from agentgym_lite.training.checkpoint import CheckpointStore, latest_checkpoint
from agentgym_lite.training.critic import Critic
from agentgym_lite.training.update import PolicyUpdater

NAMES = sorted(ALGORITHM_CONFIGS)
CRITICS = ["head", "detached_head", "separate"]
VARIANTS: list[dict[str, Any]] = [
    {"name": "grpo", "aggregation": "seq_mean_token_sum_norm", "aggregation_norm": 8.0, "normalize_std": False},
    {"name": "grpo", "loss": "gspo", "aggregation": "seq_mean_token_mean", "epochs": 2},
    {"name": "grpo", "loss": "cispo", "epochs": 2, "tis": "sequence"},
    {"name": "grpo", "dual_clip": 3.0, "kl_in": "reward", "kl_estimator": "k1"},
    *({"name": n} for n in NAMES if n != "ppo"),
    *({"name": "ppo", "critic": c, "critic_lr": 1e-2, "gamma": 0.9, "lam": 0.8} for c in CRITICS),
    {"name": "ppo", "credit": "turn", "critic_lr": 1e-2, "minibatches": 2},
]


def _label(variant: dict[str, Any]) -> str:
    return "-".join(str(v) for v in variant.values())


@pytest.fixture(autouse=True)
def _toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_envs.core._REGISTRY", {})
    toy.register()


def test_every_configured_algorithm_exists() -> None:
    assert set(ALGORITHMS) == set(ALGORITHM_CONFIGS)
    assert {n for n, a in ALGORITHMS.items() if a.needs_values} == {"ppo"}


# -- T6, T8, T10 on the updater ---------------------------------------------------------------------------------------------------------


def played() -> list[Trajectory]:
    """One group of unequal episodes, one of them in two rows."""
    rewards = [[0.0, 1.0], [0.5], [0.0, 0.0, 0.25], [0.0, 0.0]]
    return [episode(r, sample=i, forked=i == 2) for i, r in enumerate(rewards)]


def updated(variant: dict[str, Any], batch: Batch | None = None, **optim: Any) -> tuple[dict[str, float], dict[str, torch.Tensor]]:
    """Metrics of one step on :func:`played`, and the weights after it."""
    model = make_model()
    algorithm = ALGORITHM_CONFIGS[variant["name"]](**{"kl_coef": 0.05, **variant})
    settings = OptimConfig(**{"lr": 1e-2, "grad_clip": 1e9, **optim})
    reference = make_model(5).requires_grad_(False)
    updater = PolicyUpdater(model, algorithm, settings, temperature=1.0, seed=0, reference=reference)
    if updater.critic is not None:
        torch.nn.init.constant_(updater.critic.head.weight, 0.05)  # values that differ, so that what reads them shows
    metrics = updater.update(Batch.from_trajectories(played()) if batch is None else batch, 1)
    return metrics, {n: p.detach().clone() for n, p in updater.parameters.items()}


@pytest.mark.parametrize("variant", VARIANTS, ids=_label)
def test_micro_batches_do_not_change_the_update(variant: dict[str, Any]) -> None:
    whole = updated(variant)
    assert whole[0]["optim/updates"] >= 1
    for tokens in (1, 25):
        metrics, weights = updated(variant, micro_batch_tokens=tokens)
        assert metrics == pytest.approx(whole[0], abs=2e-5, rel=1e-4)
        for name, w in whole[1].items():
            torch.testing.assert_close(weights[name], w, atol=3e-4, rtol=1e-2)  # Adam divides tiny gradients by themselves


@pytest.mark.parametrize("variant", VARIANTS, ids=_label)
def test_poison_off_the_mask_changes_nothing(variant: dict[str, Any]) -> None:
    """T2: other targets and turns where nothing was sampled, other ids in the padding, absurd engine log-probs."""
    batch = Batch.from_trajectories(played())
    off = batch.mask == 0
    padding = torch.arange(batch.mask.shape[1]) >= batch.lengths[:, None]
    poisoned = replace(
        batch,
        input_ids=torch.where(padding, 13, batch.input_ids),
        targets=torch.where(off, 14, batch.targets),
        turns=batch.turns.masked_fill(off, 77),
        anchors=batch.anchors.masked_fill(off, 77),
        engine_logprobs=batch.engine_logprobs.masked_fill(off, math.nan),
    )
    clean, got = updated(variant, batch), updated(variant, poisoned)
    assert got[0] == clean[0]
    assert all(torch.equal(got[1][n], w) for n, w in clean[1].items())


@pytest.mark.parametrize("variant", VARIANTS, ids=_label)
def test_the_first_update_is_on_policy(variant: dict[str, Any]) -> None:
    metrics, _ = updated(variant, lr=1e-30)
    assert metrics["policy/clip_fraction"] == 0.0
    assert metrics["policy/old_kl"] == pytest.approx(0.0, abs=1e-9)


def test_the_critic_reads_the_state_before_the_token() -> None:
    """Its value at a position does not depend on the token that is sampled there, nor on anything later."""
    for kind in CRITICS:
        model = make_model()
        critic = Critic(model, kind).eval()  # type: ignore[arg-type]
        torch.nn.init.normal_(critic.head.weight, generator=torch.Generator().manual_seed(0))
        batch = Batch.from_trajectories(played())

        def values(ids: torch.Tensor, model: Any = model, critic: Critic = critic) -> torch.Tensor:
            hidden: torch.Tensor = model.get_decoder()(input_ids=ids).last_hidden_state
            return critic(ids, hidden).detach()

        first = int(batch.mask[0].nonzero()[0])
        changed = batch.input_ids.clone()
        changed[0, first + 1 :] = 8
        torch.testing.assert_close(values(changed)[0, : first + 1], values(batch.input_ids)[0, : first + 1])
        assert not torch.equal(values(changed)[0], values(batch.input_ids)[0])


@pytest.mark.parametrize("kind", CRITICS)
def test_only_the_shared_head_sends_a_gradient_into_the_policy(kind: str) -> None:
    """With all advantages 0 the policy moves only if the critic's loss moves it."""
    batch = replace(Batch.from_trajectories(played()), advantages=None)
    variant = {"name": "ppo", "critic": kind, "kl_coef": 0.0, "entropy_coef": 0.0, "critic_lr": 1e-2, "value_clip": None}
    model = make_model()
    algorithm = ALGORITHM_CONFIGS["ppo"](**variant)
    updater = PolicyUpdater(model, algorithm, OptimConfig(lr=1e-2, weight_decay=0.0), temperature=1.0, seed=0)
    assert updater.critic is not None
    torch.nn.init.constant_(updater.critic.head.weight, 0.1)
    credit = updater._credit

    def no_advantage(samples: Any, config: Any) -> Any:
        return replace(credit(samples, config), advantages=torch.zeros_like(samples.mask))

    updater._credit = no_advantage
    before = {n: p.detach().clone() for n, p in updater.parameters.items()}
    losses = [updater.update(batch, step)["loss/value"] for step in range(1, 25)]
    assert losses[-1] < 0.85 * losses[0]  # the rest is noise: equal states have unequal returns
    moved = {n for n, p in updater.parameters.items() if not torch.equal(p, before[n])}
    assert "critic.head.weight" in moved
    assert any(n.startswith("model.") for n in moved) == (kind == "head")
    assert any(n.startswith("critic.backbone.") for n in moved) == (kind == "separate")


def test_importance_weights_correct_the_loss() -> None:
    """The engine's log-probs of played() are -0.5, the model's are lower: weights below 1 shrink the gradient."""
    plain, token = (updated({"name": "grpo", "kl_coef": 0.0, "entropy_coef": 0.0} | x)[0] for x in ({}, {"tis": "token"}))
    assert token["engine/weight"] < 0.5
    assert token["engine/weight_capped"] == 0.0
    assert token["optim/grad_norm"] < plain["optim/grad_norm"]


def test_the_kl_in_the_reward_reaches_the_advantages_and_not_the_loss() -> None:
    metrics, _ = updated({"name": "rloo", "kl_coef": 0.5})
    assert "loss/kl" not in metrics
    assert metrics["policy/kl"] != 0.0
    free, _ = updated({"name": "rloo", "kl_coef": 1e-9})
    assert metrics["policy/advantage_abs"] != pytest.approx(free["policy/advantage_abs"], rel=1e-3)


def test_a_reward_penalty_is_taken_off_token_by_token() -> None:
    """With gamma 1 and V = 0 the first token's target is the reward less the coefficient times the sum of k1 over the episode."""
    batch = Batch.from_trajectories([episode([0.0, 1.0])])
    updater = PolicyUpdater(
        make_model(),
        ALGORITHM_CONFIGS["ppo"](kl_coef=0.3),
        OptimConfig(),
        temperature=1.0,
        seed=0,
        reference=make_model(5),
    )
    prepared, metrics = updater._prepare(batch)
    assert prepared.returns is not None
    first = int(batch.mask[0].nonzero()[0])
    assert float(prepared.returns[0, first]) == pytest.approx(1.0 - 0.3 * 4 * metrics["policy/kl"], abs=1e-5)


# -- T5 ---------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [0.0, 0.3])
def test_equal_rewards_train_no_policy(tmp_path: Path, name: str, value: float) -> None:
    """Whatever the baseline: no policy gradient, finite numbers, and no step unless a critic has something to learn."""
    config = make_config(tmp_path, algorithm={"name": name, "kl_coef": 0.0, "entropy_coef": 0.0}, run={"steps": 2})
    history = Trainer(config, model=make_model(), tokenizer=make_tokenizer(), reward_fn=lambda t: value).train().history
    for m in history:
        assert all(math.isfinite(v) for v in m.values())
        assert m["groups/zero_variance"] == 1.0
    assert history[0].get("policy/advantage_abs", 0.0) == 0.0
    assert [m["optim/updates"] for m in history] == ([1.0, 1.0] if name == "ppo" else [0.0, 0.0])


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("ppo", "reinforce_pp")])
def test_groups_of_one_are_refused_where_the_group_is_the_baseline(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"algorithm.group_size"):
        make_config(tmp_path, algorithm={"name": name, "group_size": 1})


@pytest.mark.parametrize("name", ["ppo", "reinforce_pp"])
def test_others_take_groups_of_one(tmp_path: Path, name: str) -> None:
    config = make_config(tmp_path, algorithm={"name": name, "group_size": 1}, run={"steps": 1, "groups_per_step": 6})
    (m,) = Trainer(config, model=make_model(), tokenizer=make_tokenizer(), reward_fn=shaped).train().history
    assert m["optim/updates"] == 1.0
    assert m["policy/advantage_abs"] > 0.1


# -- T14 --------------------------------------------------------------------------------------------------------------------------------

RESUMED: list[dict[str, Any]] = [
    {"name": "ppo", "critic": "head", "critic_lr": 1e-2, "value_coef": 0.5},
    {"name": "ppo", "critic": "separate", "critic_lr": 1e-2, "credit": "turn", "gamma": 0.9},
    {"name": "reinforce_pp", "kl_coef": 0.1, "kl_target": 0.05, "kl_horizon": 20},
    {"name": "gigpo", "kl_coef": 0.1, "kl_target": 0.05, "kl_horizon": 20},
]


@pytest.mark.parametrize("variant", RESUMED, ids=_label)
def test_a_resumed_run_equals_an_unbroken_one(tmp_path: Path, variant: dict[str, Any]) -> None:
    """Critic, its optimizer state and the coefficient of the KL included."""
    train(config_for(tmp_path / "a", steps=4, algorithm=variant))
    train(config_for(tmp_path / "b", steps=3, algorithm=variant))
    train(config_for(tmp_path / "b", steps=4, algorithm=variant), resume=True)
    assert_same_run(tmp_path / "a", tmp_path / "b", step=4)
    left, right = (CheckpointStore(tmp_path / x).path(4) for x in "ab")
    if variant["name"] == "ppo":
        critics = [load_file(p / "critic.safetensors") for p in (left, right)]
        assert critics[0].keys() == critics[1].keys()
        assert all(torch.equal(critics[0][k], critics[1][k]) for k in critics[0])
        assert critics[0]["critic.head.weight"].abs().sum() > 0
        moments = load_file(left / "optimizer.safetensors")
        assert "critic.head.weight|exp_avg_sq" in moments
    else:
        assert not (left / "critic.safetensors").exists()
        assert json.loads((left / "state.json").read_text())["updater"]["kl_coef"] != 0.1


def test_the_adaptive_coefficient_follows_the_controller(tmp_path: Path) -> None:
    config = make_config(tmp_path, algorithm={"kl_coef": 0.1, "kl_target": 0.01, "kl_horizon": 100}, run={"steps": 4})
    history = Trainer(config, model=make_model(), tokenizer=make_tokenizer(), reward_fn=lambda t: t.spec.sample).train().history
    coef = 0.1
    for m in history:
        assert m["policy/kl_coef"] == pytest.approx(coef)
        coef *= 1 + min(max(m["policy/kl"] / 0.01 - 1, -0.2), 0.2) * 12 / 100
    assert history[-1]["policy/kl_coef"] != 0.1


def test_a_checkpoint_of_ppo_loads_as_a_plain_model(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    config = make_config(tmp_path, algorithm={"name": "ppo", "critic": "head", "critic_lr": 1e-2}, run={"steps": 1})
    model = make_model()
    Trainer(config, model=model, tokenizer=make_tokenizer(), reward_fn=shaped).train()
    loaded = AutoModelForCausalLM.from_pretrained(latest_checkpoint(tmp_path))
    assert all(torch.equal(loaded.state_dict()[k], v) for k, v in model.state_dict().items())


# -- every setting of every algorithm changes something ------------------------------------------------------------------------------------


def shaped(t: Trajectory) -> list[float]:
    """Rewards in every turn, different within most groups; the red task pays all alike."""
    if t.task == "red":
        return [0.0] * len(t.turns)
    return [(sum(t.rows[0].token_ids[: turn.end]) % 5 + k) / 4 for k, turn in enumerate(t.turns)]


EPOCHS = {"algorithm": {"epochs": 4}, "optim": {"lr": 0.03}}
KL = {"algorithm": {"kl_coef": 0.5}}
CUT = {"rollout": {"top_p": 0.6}}
#: Field -> (another value, what the base run needs for it to show).
CHANGES: dict[str, tuple[Any, dict[str, dict[str, Any]]]] = {
    "group_size": (5, {}),
    "loss": ("cispo", EPOCHS),
    "clip_low": (0.01, EPOCHS),
    "clip_high": (0.01, EPOCHS),
    "dual_clip": (1.001, EPOCHS),
    "tis": ("token", CUT),
    "tis_cap": (0.5, {**CUT, "algorithm": {"tis": "token"}}),
    "kl_coef": (0.5, {}),
    "kl_estimator": ({"k1": "k2", "k2": "k3", "k3": "k2"}, KL),
    "kl_in": ({"loss": "reward", "reward": "loss"}, KL),
    "kl_target": (1e-3, KL),
    "kl_horizon": (50, {"algorithm": {"kl_coef": 0.5, "kl_target": 1e-3}}),
    "entropy_coef": (0.5, {}),
    "epochs": (2, {}),
    "minibatches": (2, {}),
    "aggregation": ("seq_mean_token_mean", {}),
    "aggregation_norm": (16.0, {"algorithm": {"aggregation": "seq_mean_token_sum_norm", "aggregation_norm": 4.0}}),
    "overlong": ("drop", {}),
    "upstream_compat": (True, {"optim": {"micro_batch_tokens": 30}}),
    "zero_variance": ("resample", {"run": {"groups_per_step": 4}}),
    "normalize_std": (False, {}),
    "gamma": (0.5, {}),
    "step_weight": (0.1, {}),
    "critic": ("head", {"algorithm": {"critic_lr": 1e-2}}),
    "credit": ("turn", {}),
    "lam": (0.5, {"algorithm": {"critic_lr": 1e-2}}),
    "whiten": (False, {}),
    "value_clip": (0.001, {"algorithm": {"critic_lr": 0.05, "epochs": 3}}),
    "value_coef": (0.1, {"algorithm": {"critic_lr": 1e-2, "critic": "head"}}),
    "critic_lr": (1e-2, {}),
}


def _fields() -> Iterator[tuple[str, str]]:
    for name, cls in ALGORITHM_CONFIGS.items():
        yield from ((name, field) for field in cls.model_fields if field != "name")


def test_the_table_names_every_setting_of_every_algorithm() -> None:
    assert {field for _, field in _fields()} == set(CHANGES)


@cache
def _outcome(name: str, needs: str, change: str) -> str:
    """Digest of the weights after two steps."""
    sections: dict[str, dict[str, Any]] = json.loads(needs)
    sections["algorithm"] = {"name": name, **sections.get("algorithm", {}), **json.loads(change)}
    sections["run"] = {"steps": 2, "groups_per_step": 2, **sections.get("run", {})}
    with tempfile.TemporaryDirectory() as out:
        model = make_model()
        config = make_config(Path(out), **sections)
        Trainer(config, model=model, tokenizer=make_tokenizer(), reward_fn=shaped).train()
    return hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.state_dict().values())).hexdigest()


@pytest.mark.parametrize(("name", "field"), list(_fields()))
def test_every_setting_changes_the_weights(name: str, field: str) -> None:
    value, needs = CHANGES[field]
    if isinstance(value, dict):
        value = value[ALGORITHM_CONFIGS[name].model_fields[field].default]
    base, changed = (_outcome(name, json.dumps(needs), json.dumps(change)) for change in ({}, {field: value}))
    assert changed != base


def test_every_choice_of_every_setting_is_accepted(tmp_path: Path) -> None:
    for name, cls in ALGORITHM_CONFIGS.items():
        for field, info in cls.model_fields.items():
            options = [a for x in (info.annotation, *get_args(info.annotation)) if get_origin(x) is Literal for a in get_args(x)]
            for option in options if field != "name" else ():
                extra = {"aggregation_norm": 8.0} if option == "seq_mean_token_sum_norm" else {}
                make_config(tmp_path, algorithm={"name": name, field: option, **extra})


# -- settings that contradict each other ---------------------------------------------------------------------------------------------------

CONTRADICTIONS: list[tuple[dict[str, Any], str]] = [
    ({"name": "best"}, "expected a mapping with 'name' one of grpo, rloo"),
    ({"name": "grpo", "gamma": 0.9}, r"unknown setting 'algorithm.gamma'; allowed there: .*normalize_std"),
    ({"name": "ppo", "normalize_std": True}, r"unknown setting 'algorithm.normalize_std'; allowed there: .*critic_lr"),
    ({"name": "ppo", "zero_variance": "drop"}, "unknown setting 'algorithm.zero_variance'"),
    ({"dual_clip": 3.0, "loss": "gspo"}, "'dual_clip' is set to 3.0, but has an effect only with loss: clip"),
    ({"tis_cap": 5.0}, "'tis_cap' is set to 5.0, but has an effect only with tis"),
    ({"kl_coef": 0.0, "kl_estimator": "k2"}, "'kl_estimator' is set to 'k2', but has an effect only with kl_coef above 0"),
    ({"kl_coef": 0.0, "kl_in": "reward"}, "'kl_in'"),
    ({"kl_coef": 0.0, "kl_target": 0.1}, "'kl_target'"),
    ({"kl_horizon": 5}, "'kl_horizon' is set to 5, but has an effect only with a kl_target"),
    ({"aggregation_norm": 5.0}, "'aggregation_norm'"),
    ({"aggregation": "seq_mean_token_sum_norm"}, "needs 'aggregation_norm'"),
    ({"aggregation": "seq_mean_token_mean", "upstream_compat": True}, "'aggregation'"),
    (
        {"name": "ppo", "credit": "turn", "upstream_compat": True},
        "'credit' is set to 'turn', but has an effect only with upstream_compat off",
    ),
    ({"clip_low": 1.5}, "algorithm.clip_low"),
]


@pytest.mark.parametrize(("algorithm", "message"), CONTRADICTIONS)
def test_settings_that_do_not_fit_are_refused_by_name(algorithm: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_config({"envs": [{"name": "echo"}], "algorithm": algorithm})


@pytest.mark.parametrize("variant", [*VARIANTS, *RESUMED], ids=_label)
def test_a_written_config_can_be_read_again(variant: dict[str, Any]) -> None:
    config = parse_config({"envs": [{"name": "echo"}], "algorithm": variant})
    assert parse_config(config.model_dump(mode="json")) == config
