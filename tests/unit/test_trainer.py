"""The trainer on a toy environment: updates, degenerate groups, environment errors, metrics, settings."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import trainer_factory as toy
from trainer_factory import Echo, make_config, make_model, make_tokenizer

from agentgym_lite.client import EnvironmentFailure
from agentgym_lite.config import (
    Config,
    ConfigError,
    EnvConfig,
    GRPOConfig,
    OptimConfig,
    RolloutConfig,
    RunConfig,
)
from agentgym_lite.rollout.types import EpisodeSpec, StopReason, TokenRow, Trajectory
from agentgym_lite.training import Trainer, TrainingError, TrainResult
from agentgym_lite.training.batch import Batch
from agentgym_lite.training.items import ItemSampler
from agentgym_lite.training.update import PolicyUpdater, lr_at

METRICS_DOC = Path(__file__).parents[2] / "docs" / "algorithms" / "metrics.md"


@pytest.fixture(autouse=True)
def _toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_envs.core._REGISTRY", {})
    toy.register()


def run(config: Config, **options: Any) -> tuple[TrainResult, Any]:
    model = options.pop("model", None) or make_model()
    return Trainer(config, model=model, tokenizer=make_tokenizer(), **options).train(), model


def weights(model: Any) -> str:
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(x) for x in path.read_text().splitlines()]


def untimed(metrics: dict[str, float]) -> dict[str, float]:
    return {k: v for k, v in metrics.items() if not k.startswith("time/")}


# -- a plain run --------------------------------------------------------------------------------------------------------


def test_a_run_makes_its_steps_and_leaves_its_files(tmp_path: Path) -> None:
    seen: list[int] = []
    config = make_config(tmp_path / "r", run={"steps": 3})
    result, model = run(config, on_step=lambda m: seen.append(int(m["step"])), reward_fn=lambda t: float(t.spec.sample))
    assert (result.step, result.stopped_by, seen) == (3, "steps", [1, 2, 3])
    assert [m["optim/updates"] for m in result.history] == [1.0, 1.0, 1.0]
    assert weights(model) != weights(make_model())
    assert result.checkpoint == tmp_path / "r" / "checkpoints" / "step_000003"
    assert [m["step"] for m in lines(tmp_path / "r" / "metrics.jsonl")] == [1, 2, 3]
    written = lines(tmp_path / "r" / "trajectories.jsonl")
    assert len(written) == 3 * 4
    assert {len(t["rows"]) for t in written} == {1}


def test_equal_runs_are_bitwise_equal(tmp_path: Path) -> None:
    (a, model_a), (b, model_b) = (run(make_config(tmp_path / name)) for name in "ab")
    assert [untimed(m) for m in a.history] == [untimed(m) for m in b.history]
    assert weights(model_a) == weights(model_b)


def test_every_metric_is_finite_and_documented(tmp_path: Path) -> None:
    envs = [{"name": n, "rounds": {"type": "fixed", "rounds": 2}} for n in ("echo", "other")]
    settings: list[dict[str, Any]] = [{"tis": "token"}, {"name": "ppo", "critic": "head", "epochs": 2}]
    history = []
    for i, algorithm in enumerate(settings):
        config = make_config(tmp_path / str(i), envs=envs, algorithm=algorithm)
        history += run(config, reward_fn=lambda t: float(t.spec.sample))[0].history
    section = METRICS_DOC.read_text().partition("## Supervised methods")[0]
    documented = re.findall(r"^\| (`[^|]+`) \|", section, re.MULTILINE)
    names = [n for cell in documented for n in re.findall(r"`([^`]+)`", cell)]
    patterns = [re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(n)) + "$") for n in names]
    found = {k for m in history for k in m}
    for metrics in history:
        assert all(math.isfinite(v) for v in metrics.values())
    assert [k for k in found if not any(p.match(k) for p in patterns)] == []
    assert [n for n, p in zip(names, patterns, strict=True) if not any(p.match(k) for k in found)] == []


def test_metrics_are_those_of_the_episodes(tmp_path: Path) -> None:
    config = make_config(tmp_path, run={"steps": 1, "groups_per_step": 6, "log_trajectories": 24})
    result, _ = run(config)
    (m,) = result.history
    played = [
        Trajectory.from_dict({k: v for k, v in t.items() if k not in ("step", "reward")}) for t in lines(tmp_path / "trajectories.jsonl")
    ]
    assert len(played) == m["episodes/total"] == 24
    assert m["reward/mean"] == pytest.approx(sum(t.reward for t in played) / 24)
    assert m["tokens/sampled"] == sum(sum(t.rows[0].action_mask) for t in played)
    assert m["tokens/context"] == sum(len(t.rows[0]) for t in played) - m["tokens/sampled"]
    turns = [turn for t in played for turn in t.turns]
    assert m["rate/invalid_action"] == pytest.approx(sum(t.invalid for t in turns) / len(turns))
    assert m["rate/truncated_turn"] == pytest.approx(sum(t.truncated for t in turns) / len(turns))
    assert sum(m[f"stop/{r.value}"] for r in StopReason) == pytest.approx(1.0)
    groups = {t.spec.group: [u.reward for u in played if u.spec.group == t.spec.group] for t in played}
    assert {len(g) for g in groups.values()} == {4}
    assert m["groups/zero_variance"] == sum(len(set(g)) == 1 for g in groups.values()) / 6


def test_the_reward_function_replaces_the_environments(tmp_path: Path) -> None:
    result, _ = run(make_config(tmp_path), reward_fn=lambda t: 3.0 + t.spec.sample)
    assert {m["reward/mean"] for m in result.history} == {4.5}
    assert {m["groups/zero_variance"] for m in result.history} == {0.0}
    with pytest.raises(TrainingError, match="must return a finite number"):
        run(make_config(tmp_path / "nan"), reward_fn=lambda t: math.nan)


def test_schedulers_set_the_rounds_of_each_step(tmp_path: Path) -> None:
    scaling = {"type": "scaling_inter", "rounds": [1, 2], "steps_scaling_inter": 2}
    envs = [{"name": "echo", "rounds": scaling}, {"name": "other", "rounds": {"type": "fixed", "rounds": 5}}]
    result, _ = run(make_config(tmp_path, envs=envs, run={"steps": 4}), schedulers={"other": lambda step: step})
    assert [m["env/echo/max_rounds"] for m in result.history] == [1, 1, 2, 2]
    assert [m["env/other/max_rounds"] for m in result.history] == [1, 2, 3, 4]
    assert [m["env/echo/rounds_mean"] for m in result.history][:2] == [1.0, 1.0]
    with pytest.raises(ConfigError, match="given for nowhere, but the environments are echo"):
        Trainer(make_config(tmp_path), model=make_model(), tokenizer=make_tokenizer(), schedulers={"nowhere": lambda step: 1})


def test_the_time_limit_stops_with_a_checkpoint(tmp_path: Path) -> None:
    result, _ = run(make_config(tmp_path, run={"steps": 1000, "time_limit_s": 1e-6}))
    assert (result.step, result.stopped_by) == (1, "time_limit")
    assert result.checkpoint.is_dir()


# -- T5: groups without variance ----------------------------------------------------------------------------------------


def test_nothing_to_train_on_changes_nothing(tmp_path: Path) -> None:
    algorithm = {"kl_coef": 0.1, "entropy_coef": 0.1}
    result, model = run(make_config(tmp_path, algorithm=algorithm, optim={"weight_decay": 0.5}), reward_fn=lambda t: 0.3)
    assert weights(model) == weights(make_model())
    assert [m["optim/skipped_steps"] for m in result.history] == [1, 2, 3]
    assert {(m["groups/zero_variance"], m["optim/updates"], m["tokens/trained"]) for m in result.history} == {(1.0, 0.0, 0.0)}
    assert all(math.isfinite(v) for m in result.history for v in m.values())


def test_kept_groups_are_trained_by_kl_and_entropy_only(tmp_path: Path) -> None:
    algorithm = {"zero_variance": "keep", "kl_coef": 0.0, "entropy_coef": 0.0}
    result, model = run(make_config(tmp_path / "a", algorithm=algorithm), reward_fn=lambda t: 0.3)
    assert result.history[-1]["optim/skipped_steps"] == 3
    assert weights(model) == weights(make_model())
    result, model = run(make_config(tmp_path / "b", algorithm=algorithm | {"entropy_coef": 0.1}), reward_fn=lambda t: 0.3)
    assert result.history[-1]["optim/skipped_steps"] == 0
    assert result.history[-1]["policy/entropy"] > result.history[0]["policy/entropy"]


def test_only_groups_with_variance_are_trained_on(tmp_path: Path) -> None:
    def reward(t: Trajectory) -> float:
        return float(t.spec.sample == 0) if t.task == "red" else 0.0

    config = make_config(tmp_path, run={"steps": 1, "groups_per_step": 6, "log_trajectories": 24})
    result, _ = run(config, reward_fn=reward)
    sampled = sum(sum(t["rows"][0]["action_mask"]) for t in lines(tmp_path / "trajectories.jsonl") if t["task"] == "red")
    assert result.history[0]["groups/zero_variance"] == pytest.approx(4 / 6)
    assert result.history[0]["tokens/trained"] == sampled


def test_resampling_draws_other_groups_and_is_bounded(tmp_path: Path) -> None:
    config = make_config(tmp_path / "a", algorithm={"zero_variance": "resample"}, run={"steps": 1})
    result, _ = run(config, reward_fn=lambda t: 0.0)
    assert result.history[0]["groups/total"] == 3 * (1 + 3)
    calls = 0

    def flat_at_first(t: Trajectory) -> float:
        nonlocal calls
        calls += 1
        return 0.0 if calls <= 12 else float(t.spec.sample)

    config = make_config(tmp_path / "b", algorithm={"zero_variance": "resample"}, run={"steps": 1, "log_trajectories": 100})
    result, _ = run(config, reward_fn=flat_at_first)
    assert result.history[0]["groups/total"] == 6
    assert result.history[0]["groups/zero_variance"] == 0.5
    assert len({(t["spec"]["item_id"], t["spec"]["seed"]) for t in lines(tmp_path / "b" / "trajectories.jsonl")}) == 6


# -- environment errors -------------------------------------------------------------------------------------------------


def test_environment_errors_are_counted_and_left_out(tmp_path: Path) -> None:
    envs = [{"name": "broken", "rounds": {"type": "fixed", "rounds": 2}}]
    config = make_config(tmp_path, envs=envs, run={"steps": 1, "groups_per_step": 6, "log_trajectories": 24})
    rewarded: list[str] = []

    def reward(t: Trajectory) -> float:
        rewarded.append(t.task)
        return float(t.spec.sample)

    result, _ = run(config, reward_fn=reward)
    (m,) = result.history
    assert m["episodes/env_error"] == 8
    assert m["stop/env_error"] == pytest.approx(8 / 24)
    assert m["reward/mean"] == 1.5
    assert m["groups/zero_variance"] == pytest.approx(2 / 6)
    assert "task/broken/red/success" not in m
    assert set(rewarded) == {"green", "blue"}
    trained = [t for t in lines(tmp_path / "trajectories.jsonl") if t["task"] != "red"]
    assert m["tokens/trained"] == sum(sum(t["rows"][0]["action_mask"]) for t in trained)


def test_a_dead_environment_ends_the_run_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(metrics: dict[str, float]) -> None:
        if metrics["step"] == 2:
            monkeypatch.setattr(Echo, "reset", lambda self, item_id, seed=0: (_ for _ in ()).throw(RuntimeError("gone")))

    with pytest.raises((TrainingError, EnvironmentFailure)):
        run(make_config(tmp_path, run={"steps": 9}), on_step=die)
    assert (tmp_path / "checkpoints" / "step_000002").is_dir()


def test_all_episodes_failing_is_a_clear_error(tmp_path: Path) -> None:
    envs = [{"name": "broken", "tasks": ["red"], "rounds": {"type": "fixed", "rounds": 2}}]
    with pytest.raises(TrainingError, match=r"all 12 episodes of step 1 ended with an environment error; .*\(local\)"):
        run(make_config(tmp_path, envs=envs))


# -- updates ------------------------------------------------------------------------------------------------------------


def scored_batch(model: Any, temperature: float = 1.0) -> Batch:
    """Three rows of different length with advantages; engine log-probs are the model's own."""
    trajectories = []
    for n in (3, 7, 5):
        row = TokenRow()
        row.append_context(list(range(4, 4 + n)), -1)
        row.append_action([9 + n % 3, 10], [0.0, 0.0], 0)
        row.append_context([5], 1)
        row.append_action([12], [0.0], 1)
        trajectories.append(Trajectory(EpisodeSpec("echo", "echo_0"), rows=[row], stop_reason=StopReason.SUCCESS))
    return Batch.from_trajectories(trajectories, [1.0, -0.5, 0.25])


def updater(model: Any, algorithm: dict[str, Any] | None = None, temperature: float = 1.0, **optim: Any) -> PolicyUpdater:
    settings = GRPOConfig(**{"kl_coef": 0.0, "entropy_coef": 0.0, **(algorithm or {})})
    reference = make_model(5).requires_grad_(False) if settings.kl_coef else None
    return PolicyUpdater(model, settings, OptimConfig(**{"lr": 1e-2, **optim}), temperature=temperature, seed=0, reference=reference)


@pytest.mark.parametrize("aggregation", ["token_mean", "seq_mean_token_mean"])
@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_the_gradient_is_that_of_the_formula(aggregation: str, temperature: float) -> None:
    """Policy loss, KL and entropy written out on full logits, against what the updater leaves in ``grad``."""
    model, algorithm = make_model(), {"aggregation": aggregation, "kl_coef": 0.3, "entropy_coef": 0.2, "kl_estimator": "k3"}
    batch = scored_batch(model)
    total, counts = torch.zeros(()), batch.mask.sum(1)
    for i in range(3):
        n = int(batch.lengths[i])
        ids, targets, mask = batch.input_ids[i, :n], batch.targets[i, :n], batch.mask[i, :n]
        logp_all = (model(input_ids=ids[None]).logits[0] / temperature).log_softmax(-1)
        logp = logp_all.gather(-1, targets[:, None])[:, 0]
        with torch.no_grad():
            ref = (make_model(5)(input_ids=ids[None]).logits[0] / temperature).log_softmax(-1).gather(-1, targets[:, None])[:, 0]
        kl = (ref - logp).exp() - 1 - (ref - logp)
        entropy = -(logp_all.exp() * logp_all).sum(-1)
        per_token = -batch.advantages[i, :n] * (logp - logp.detach()).exp() + 0.3 * kl - 0.2 * entropy
        weight = 1 / counts.sum() if aggregation == "token_mean" else 1 / (3 * counts[i])
        total = total + (per_token * mask).sum() * weight
    parameters = list(model.parameters())
    want = torch.autograd.grad(total, parameters)

    up = updater(model, algorithm, temperature, grad_clip=1e9, micro_batch_tokens=8)
    metrics = up.update(batch, 1)
    assert metrics["loss/total"] == pytest.approx(total.item(), abs=1e-5)
    for p, g in zip(parameters, want, strict=True):
        torch.testing.assert_close(p.grad, g, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("aggregation", ["token_mean", "seq_mean_token_mean"])
def test_micro_batches_do_not_change_the_gradient(aggregation: str) -> None:
    """T6 through the whole updater."""
    results = []
    for tokens in (1, 20, 10**6):
        model = make_model()
        up = updater(model, {"aggregation": aggregation, "kl_coef": 0.1, "entropy_coef": 0.1}, micro_batch_tokens=tokens)
        metrics = up.update(scored_batch(model), 1)
        results.append((metrics, torch.cat([p.grad.flatten() for p in model.parameters()])))
    for metrics, gradient in results[1:]:
        torch.testing.assert_close(gradient, results[0][1], atol=1e-6, rtol=1e-4)
        assert metrics == pytest.approx(results[0][0], abs=1e-5)


def test_epochs_times_minibatches_updates_really_run() -> None:
    for epochs, minibatches, want in ((1, 1, 1), (2, 1, 2), (1, 3, 3), (3, 2, 6), (1, 50, 3)):
        model = make_model()
        up = updater(model, {"epochs": epochs, "minibatches": minibatches})
        metrics = up.update(scored_batch(model), 1)
        assert metrics["optim/updates"] == want
        steps = {int(s["step"]) for s in up.optimizer.state_dict()["state"].values()}
        assert steps == {want}


def test_minibatches_cover_the_batch_in_every_epoch() -> None:
    up = updater(make_model(), {"epochs": 2, "minibatches": 3})
    seen = list(up._minibatches(range(7), step=4))
    for epoch in (0, 1):
        assert sorted(i for e, rows in seen if e == epoch for i in rows) == list(range(7))
    assert seen == list(up._minibatches(range(7), step=4))
    assert seen != list(up._minibatches(range(7), step=5))


@pytest.mark.parametrize("temperature", [0.7, 1.0])
@pytest.mark.parametrize("epochs", [1, 2])
def test_the_ratio_is_one_at_the_first_update(tmp_path: Path, temperature: float, epochs: int) -> None:
    """T8: sampled by the engine, scored by the trainer; a rate too small to move a weight keeps later updates at the first policy."""
    config = make_config(
        tmp_path, rollout={"temperature": temperature}, algorithm={"epochs": epochs}, optim={"lr": 1e-30}, run={"steps": 1}
    )
    result, _ = run(config, reward_fn=lambda t: float(t.spec.sample))
    (m,) = result.history
    assert m["optim/updates"] == epochs
    assert m["policy/old_kl"] == pytest.approx(0.0, abs=1e-10)
    assert m["policy/clip_fraction"] == 0.0
    assert m["engine/logp_diff_max"] < 1e-5


def test_the_temperature_of_the_trainer_is_that_of_the_engine(tmp_path: Path) -> None:
    """The check above would catch it: scored at another temperature, the log-probs differ plainly."""
    config = make_config(tmp_path, rollout={"temperature": 0.7}, run={"steps": 1})
    trainer = Trainer(config, model=make_model(), tokenizer=make_tokenizer(), reward_fn=lambda t: float(t.spec.sample))
    trainer._updater._temperature = 1.0
    assert trainer.train().history[0]["engine/logp_diff_max"] > 0.05


def test_nucleus_sampling_shows_as_kept_mass(tmp_path: Path) -> None:
    """The engine renormalises over the nucleus, the trainer does not: they differ by -log of the kept mass, 0 to -log(top_p)."""
    config = make_config(tmp_path, rollout={"top_p": 0.6}, run={"steps": 1})
    (m,) = run(config, reward_fn=lambda t: float(t.spec.sample))[0].history
    assert 0.05 < m["engine/logp_diff_mean"] <= m["engine/logp_diff_max"] <= -math.log(0.6) + 1e-5
    assert m["policy/old_kl"] == 0.0


def test_engine_difference_is_measured_on_sampled_tokens() -> None:
    model = make_model()
    batch = scored_batch(model)  # engine log-probs are all 0, so the difference is -log p
    with torch.no_grad():
        logp = model(input_ids=batch.input_ids).logits.log_softmax(-1).gather(-1, batch.targets[..., None])[..., 0]
    want = -logp[batch.mask.bool()]
    metrics = updater(model).update(batch, 1)
    assert metrics["engine/logp_diff_max"] == pytest.approx(float(want.max()), rel=1e-5)
    assert metrics["engine/logp_diff_mean"] == pytest.approx(float(want.mean()), rel=1e-5)


def test_clip_fraction_and_old_kl_grow_with_stale_data() -> None:
    model = make_model()
    metrics = updater(model, {"epochs": 8}, lr=0.05).update(scored_batch(model), 1)
    assert 0.0 < metrics["policy/clip_fraction"] < 1.0
    assert metrics["policy/old_kl"] > 0.01


def test_the_reference_stays_and_kl_starts_at_zero(tmp_path: Path) -> None:
    config = make_config(tmp_path, algorithm={"kl_coef": 0.1}, run={"steps": 3})
    trainer = Trainer(config, model=make_model(), tokenizer=make_tokenizer(), reward_fn=lambda t: float(t.spec.sample))
    history = trainer.train().history
    assert history[0]["policy/kl"] == pytest.approx(0.0, abs=1e-10)
    assert history[2]["policy/kl"] > 1e-4
    assert weights(trainer._updater.reference) == weights(make_model())


def test_no_reference_is_made_without_kl(tmp_path: Path) -> None:
    config = make_config(tmp_path, algorithm={"kl_coef": 0.0})
    trainer = Trainer(config, model=make_model(), tokenizer=make_tokenizer())
    assert trainer._updater.reference is None
    assert "policy/kl" not in trainer.train().history[0]


@pytest.mark.parametrize(("warmup", "want"), [(0, [1.0, 1.0, 1.0]), (1, [1.0, 1.0, 1.0]), (4, [0.25, 0.5, 0.75]), (2, [0.5, 1.0, 1.0])])
def test_warm_up_never_starts_at_zero(warmup: int, want: list[float]) -> None:
    assert [lr_at(s, OptimConfig(lr=2.0, warmup_steps=warmup)) / 2.0 for s in (1, 2, 3)] == want


def test_gradient_clipping_bounds_the_norm() -> None:
    model = make_model()
    metrics = updater(model, grad_clip=0.01).update(scored_batch(model), 1)
    assert metrics["optim/grad_norm"] > 0.1
    assert math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters())) == pytest.approx(0.01, rel=1e-3)


def test_a_loss_that_is_not_finite_stops_before_the_update() -> None:
    model = make_model()
    with torch.no_grad():
        model.model.norm.weight[0] = math.nan
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(TrainingError, match="loss of step 3 is not finite"):
        updater(model).update(scored_batch(model), 3)
    assert all(torch.equal(v, before[k]) or v.isnan().any() for k, v in model.state_dict().items())


def test_engine_gets_the_new_weights(tmp_path: Path) -> None:
    """T9: were the engine a step behind, its log-probs would differ from the trainer's at step 2."""
    history = run(make_config(tmp_path, optim={"lr": 0.05}), reward_fn=lambda t: float(t.spec.sample))[0].history
    assert max(m["engine/logp_diff_max"] for m in history) < 1e-5


def test_global_settings_and_generators_are_left_alone(tmp_path: Path) -> None:
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    run(make_config(tmp_path))
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


# -- items --------------------------------------------------------------------------------------------------------------


def sampler(groups: int = 4, seed: int = 0, **weights_: float) -> ItemSampler:
    return ItemSampler([EnvConfig(name=n, weight=w) for n, w in (weights_ or {"echo": 1.0}).items()], groups, seed)


def test_items_are_a_pure_function_of_seed_and_step() -> None:
    a, b = sampler(), sampler()
    want = [a.groups_at(s) for s in range(1, 20)]
    assert [b.groups_at(s) for s in reversed(range(1, 20))][::-1] == want
    assert [sampler(seed=1).groups_at(s) for s in range(1, 20)] != want


def test_every_item_comes_once_per_pass_in_a_new_order() -> None:
    drawn = [g.item_id for s in range(1, 10) for g in sampler(4).groups_at(s)]
    passes = [drawn[i : i + 6] for i in range(0, 36, 6)]
    assert all(sorted(p) == Echo.items("train") for p in passes)
    assert len({tuple(p) for p in passes}) > 1


def test_visits_of_an_item_have_seeds_of_their_own() -> None:
    specs = [g for s in range(1, 50) for g in sampler(4).groups_at(s)]
    assert len({g.seed for g in specs}) == len(specs)


@pytest.mark.parametrize(("a", "b", "groups"), [(1.0, 1.0, 8), (1.0, 3.0, 8), (1.0, 2.0, 4), (1.0, 9.0, 3)])
def test_weights_set_the_shares(a: float, b: float, groups: int) -> None:
    s = sampler(groups, echo=a, other=b)
    counts = [sum(g.env == "echo" for g in s.groups_at(step)) for step in range(1, 301)]
    share = groups * a / (a + b)
    assert {len(s.groups_at(step)) for step in range(1, 20)} == {groups}
    assert set(counts) <= {math.floor(share), math.ceil(share)}
    assert sum(counts) == pytest.approx(300 * share, rel=0.02)


def test_tasks_choose_the_items() -> None:
    s = ItemSampler([EnvConfig(name="echo", tasks=["red"])], 4, 0)
    assert {g.item_id for step in range(1, 9) for g in s.groups_at(step)} == {"echo_0", "echo_3"}


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="no training task 'pink'; known: blue, green, red"):
        ItemSampler([EnvConfig(name="echo", tasks=["pink"])], 4, 0)
    with pytest.raises(ConfigError, match="listed once"):
        ItemSampler([EnvConfig(name="echo"), EnvConfig(name="echo")], 4, 0)


# -- every setting changes something ------------------------------------------------------------------------------------

#: Setting -> (base, changed), and changes to the base run that the setting needs to show.
SETTINGS: dict[str, tuple[Any, Any, dict[str, dict[str, Any]]]] = {
    "rollout.temperature": (1.0, 0.5, {}),
    "rollout.top_p": (1.0, 0.5, {}),
    "rollout.max_new_tokens": (2, 3, {}),
    "rollout.max_length": (64, 24, {}),
    "rollout.dtype": (None, "bfloat16", {}),
    "rollout.max_sessions": (8, 2, {}),
    "rollout.env_lag": (2, 5, {}),
    "optim.lr": (1e-2, 2e-2, {}),
    "optim.betas": ((0.9, 0.999), (0.5, 0.999), {}),
    "optim.weight_decay": (0.01, 0.5, {}),
    "optim.grad_clip": (1.0, 1e-9, {}),
    "optim.warmup_steps": (0, 5, {}),
    "optim.micro_batch_tokens": (16384, 1, {}),
    "run.steps": (3, 2, {}),
    "run.groups_per_step": (3, 4, {}),
    "run.seed": (0, 1, {}),
    "run.out": ("a", "b", {}),
    "run.save_every": (100, 1, {}),
    "run.keep": (2, 1, {"run": {"save_every": 1}}),
    "run.time_limit_s": (None, 1e-6, {}),
    "run.log_trajectories": (4, 5, {}),
}


def test_the_table_names_every_setting() -> None:
    sections = {"rollout": RolloutConfig, "optim": OptimConfig, "run": RunConfig}
    fields = {f"{name}.{field}" for name, cls in sections.items() for field in cls.model_fields}
    # Those of the algorithms: test_trainer_algorithms; those of vLLM, which only its own environment can show: tests/vllm.
    assert fields - {"rollout.engine", "rollout.vllm"} == set(SETTINGS)


def outcome(tmp_path: Path, sections: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """All that a run shows: weights, metrics, what the environment saw and when, forward passes, files."""
    out = tmp_path / str(sections.get("run", {}).pop("out", "a"))
    events: list[Any] = []
    model, passes = make_model(), [0]
    model.model.register_forward_hook(lambda *_: passes.__setitem__(0, passes[0] + 1))
    with pytest.MonkeyPatch.context() as m:
        _record(m, "reset", events)
        _record(m, "step", events)
        result, _ = run(make_config(out, **sections), model=model, reward_fn=_some_flat_groups)
    files = sorted(str(p.relative_to(tmp_path)) for p in out.rglob("*") if "tfevents" not in p.name)
    return {
        "weights": weights(model),
        "metrics": [untimed(x) for x in result.history],
        "events": events,
        "passes": passes,
        "files": files,
        "trajectories": len(lines(out / "trajectories.jsonl")),
        "stopped_by": result.stopped_by,
    }


def _some_flat_groups(t: Trajectory) -> float:
    return 0.0 if t.task == "red" else sum(t.rows[0].token_ids) % 5 / 4


def _record(m: pytest.MonkeyPatch, method: str, events: list[Any]) -> None:
    original: Callable[..., Any] = getattr(Echo, method)
    m.setattr(Echo, method, lambda self, *a: (events.append((method, *a)), original(self, *a))[1])


def test_equal_settings_give_equal_outcomes(tmp_path: Path) -> None:
    assert outcome(tmp_path / "0", {}) == outcome(tmp_path / "1", {})


@pytest.mark.parametrize("setting", sorted(SETTINGS))
def test_every_setting_changes_something(tmp_path: Path, setting: str) -> None:
    section, field = setting.split(".")
    base, changed, needs = SETTINGS[setting]
    runs = []
    for i, value in enumerate((base, changed)):
        sections = {name: dict(change) for name, change in needs.items()}
        sections.setdefault(section, {})[field] = value
        runs.append(outcome(tmp_path / str(i), sections))
    assert runs[0] != runs[1]


# -- mixed precision ----------------------------------------------------------------------------------------------------


def test_mixed_keeps_float32_weights_and_computes_updates_in_bfloat16(tmp_path: Path) -> None:
    seen: list[torch.dtype] = []
    outcomes = {}
    for dtype in ("float32", "mixed"):
        model = make_model()
        model.get_decoder().layers[0].mlp.down_proj.register_forward_hook(lambda m, i, out: seen.append(out.dtype))
        config = make_config(tmp_path / dtype, model={"dtype": dtype}, run={"steps": 2})
        result, _ = run(config, model=model, reward_fn=lambda t: float(t.spec.sample))
        outcomes[dtype] = (result.history[-1]["loss/policy"], weights(model), set(seen))
        assert {p.dtype for p in model.parameters()} == {torch.float32}
        seen.clear()
    assert outcomes["float32"][2] == {torch.float32}
    assert torch.bfloat16 in outcomes["mixed"][2]
    assert outcomes["mixed"][1] != outcomes["float32"][1]
    assert outcomes["mixed"][0] == pytest.approx(outcomes["float32"][0], abs=0.02)


@pytest.mark.parametrize("critic", ["head", "separate"])
def test_mixed_leaves_values_in_float32(critic: str, tmp_path: Path) -> None:
    config = make_config(tmp_path, model={"dtype": "mixed"}, algorithm={"name": "ppo", "critic": critic, "epochs": 2}, run={"steps": 2})
    result, _ = run(config, reward_fn=lambda t: float(t.spec.sample))
    assert all(math.isfinite(m["loss/value"]) for m in result.history)


def test_mixed_sees_the_weights_of_the_update_before(tmp_path: Path) -> None:
    """A cast that autocast keeps would hide the first update from the second pass."""
    model = make_model()
    fresh: list[bool] = []

    def compare(layer: Any, inputs: tuple[torch.Tensor], out: torch.Tensor) -> None:
        if out.dtype == torch.bfloat16:
            with torch.autocast("cpu", enabled=False):
                now = torch.nn.functional.linear(inputs[0].bfloat16(), layer.weight.bfloat16())
            fresh.append(torch.equal(out, now))

    model.get_decoder().layers[0].mlp.down_proj.register_forward_hook(compare)
    config = make_config(tmp_path, model={"dtype": "mixed"}, algorithm={"epochs": 2}, optim={"lr": 0.05}, run={"steps": 1})
    run(config, model=model, reward_fn=lambda t: float(t.spec.sample))
    assert len(fresh) >= 3  # the score before the first update, then one pass per epoch
    assert all(fresh)
