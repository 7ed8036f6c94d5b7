"""``configs/paper``: every config loads with every preset, says what the scripts say, plans, and makes a step with the tiny model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentgym_lite.config import Config, ConfigError, load_config
from agentgym_lite.plan import make_plan
from agentgym_lite.rollout.schedulers import make_scheduler
from agentgym_lite.training import Trainer

PAPER = Path(__file__).resolve().parents[2] / "configs" / "paper"
ENVS = ("babyai", "sciworld", "searchqa", "textcraft", "webarena")
KINDS = ("fixed", "scaling_inter", "appendix")
ALL = [f"{env}_{kind}" for env in ENVS for kind in KINDS]
#: The published scripts: rounds, steps per stage, group size, queries, updates per step, prompt + response, tokens per turn.
SCRIPTS = {
    "babyai_fixed": (20, None, 8, 16, 2, 1024 + 4096, 200),
    "babyai_scaling_inter": ([6, 13, 20], 100, 4, 32, 4, 512 + 8192, 512),
    "sciworld_fixed": (20, None, 8, 16, 2, 1024 + 4096, 200),
    "sciworld_scaling_inter": ([10, 20, 30], 100, 8, 16, 2, 1024 + 8192, 200),
    "searchqa_fixed": (5, None, 4, 32, 4, 1024 + 8192, 512),
    "searchqa_scaling_inter": ([5, 8, 10], 100, 4, 32, 4, 1024 + 8192, 512),
    "textcraft_fixed": (30, None, 8, 32, 4, 512 + 10240, 512),
    "textcraft_scaling_inter": ([10, 20, 30], 100, 8, 32, 4, 512 + 10240, 512),
    "webarena_fixed": (15, None, 4, 32, 8, 750 + 14098, 512),
    "webarena_scaling_inter": ([8, 12, 15], 80, 4, 32, 8, 750 + 14098, 512),
}


def load(name: str, *overrides: str, presets: tuple[str, ...] = ()) -> Config:
    config = load_config(PAPER / f"{name}.yaml", overrides, presets)
    assert isinstance(config, Config)
    return config


def test_no_config_is_missing_or_unknown() -> None:
    assert sorted(p.stem for p in PAPER.glob("*.yaml")) == sorted([*ALL, "base"])


@pytest.mark.parametrize("name", SCRIPTS)
def test_settings_are_those_of_the_scripts(name: str) -> None:
    c = load(name)
    (env,) = c.envs
    found = (env.rounds.rounds, env.rounds.steps_scaling_inter, c.algorithm.group_size, c.run.groups_per_step)
    assert (*found, c.algorithm.minibatches, c.rollout.max_length, c.rollout.max_new_tokens) == SCRIPTS[name]
    assert (env.name, str(c.run.out)) == (name.partition("_")[0], f"runs/paper/{name}")
    a = c.algorithm
    assert (a.name, a.epochs, a.kl_coef, a.kl_estimator, a.kl_in, a.clip_low, a.clip_high) == ("grpo", 1, 0.001, "k3", "loss", 0.2, 0.2)
    assert (c.optim.lr, c.rollout.temperature, c.rollout.top_p, c.run.save_every) == (1e-6, 1.0, 1.0, 25)


def test_the_appendix_differs_where_the_paper_says_so() -> None:
    found = {env: load(f"{env}_appendix") for env in ENVS}
    assert {e: c.envs[0].rounds.rounds for e, c in found.items()} == {
        "webarena": 15, "searchqa": 4, "textcraft": 20, "babyai": 20, "sciworld": 20,
    }  # fmt: skip
    assert {e: c.algorithm.group_size for e, c in found.items()} == {
        "webarena": 4, "searchqa": 8, "textcraft": 8, "babyai": 8, "sciworld": 8,
    }  # fmt: skip
    assert {e: c.optim.lr for e, c in found.items()} == {e: 5e-7 if e == "webarena" else 1e-6 for e in ENVS}


@pytest.mark.parametrize("name", ALL)
def test_only_a_preset_changes(name: str) -> None:
    """Presets say on what a run is made; environments, rounds, groups and the algorithm stay as they are."""
    plain = load(name)
    for presets in (("7b", "full"), ("3b", "full"), ("7b", "lora"), ("3b", "lora")):
        c = load(name, presets=presets)
        assert (c.envs, c.algorithm, c.run) == (plain.envs, plain.algorithm, plain.run)
        assert c.model.path == f"Qwen/Qwen2.5-{presets[0].upper()}-Instruct"
        assert (c.model.lora is not None) == (presets[1] == "lora")
    assert load(name, presets=("lora", "tiny")).model.lora is None


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("presets", "gpus"), [(("3b", "lora"), 1), (("7b", "lora"), 1), (("3b", "full"), 8), (("7b", "full"), 8)])
def test_every_config_fits_the_gpus_it_is_meant_for(name: str, presets: tuple[str, str], gpus: int) -> None:
    plan = make_plan(load(name, presets=presets), gpus=gpus, gpu_memory=80)
    assert plan.problems == []
    assert [s.rounds for s in plan.work.stages] == [
        {name.partition("_")[0]: r} for r in dict.fromkeys(make_scheduler(load(name).envs[0].rounds).rounds_at(s) for s in (1, 150, 10**4))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", [f"{env}_{kind}" for env in ENVS for kind in ("fixed", "scaling_inter")])
def test_every_config_makes_a_step_with_the_tiny_model(name: str, tmp_path: Path) -> None:
    kept = load(name).envs[0].rounds
    rounds = "{type: fixed, rounds: 2}" if kept.type == "fixed" else "{type: scaling_inter, rounds: [2, 3], steps_scaling_inter: 1}"
    config = load(name, f"envs.0.rounds={rounds}", f"run.out={tmp_path}", presets=("tiny",))
    result = Trainer(config).train()
    assert result.step == 1
    (metrics,) = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert metrics["episodes/total"] == 2
    assert metrics["episodes/env_error"] == 0
    assert metrics["optim/updates"] == 1


# -- how files are put together --------------------------------------------------------------------------------------------------------


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)


def test_what_is_read_later_wins(tmp_path: Path) -> None:
    write(
        tmp_path,
        a="optim: {lr: 1.0e-3, grad_clip: 2.0}\nenvs: [{name: textcraft}]\nrun: {steps: 1}",
        b="optim: {lr: 2.0e-3}\nrun: {steps: 2}",
        c="extends: [a.yaml, b.yaml]\nrun: {seed: 7}\nenvs: [{name: babyai}]",
        preset="run: {steps: 4}",
    )
    c = load_config(tmp_path / "c.yaml", ["run.seed=8"], [str(tmp_path / "preset.yaml")])
    assert isinstance(c, Config)
    assert (c.optim.lr, c.optim.grad_clip, c.run.steps, c.run.seed) == (2e-3, 2.0, 4, 8)
    assert [e.name for e in c.envs] == ["babyai"]  # lists are replaced, not joined


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extends: b.yaml", r"'.*b.yaml' extends itself, by way of b.yaml|extends itself"),
        ("extends: nowhere.yaml", "expected a config file at '.*nowhere.yaml', found none"),
        ("extends: {a: 1}", "'extends' takes a file name or a list of them"),
        ("envs: [{name: textcraft}]\nextend: b.yaml", "unknown setting 'extend'"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path, b=text)
    with pytest.raises(ConfigError, match=message):
        load_config(tmp_path / "b.yaml")


def test_an_unknown_key_below_is_still_an_error_and_a_preset_is_looked_up(tmp_path: Path) -> None:
    write(tmp_path, a="run: {stepz: 1}", b="extends: a.yaml\nenvs: [{name: textcraft}]")
    with pytest.raises(ConfigError, match=r"unknown setting 'run.stepz'"):
        load_config(tmp_path / "b.yaml")
    with pytest.raises(ConfigError, match=r"expected a preset of '.*presets' \(3b, 7b, full, lora, tiny\) or a YAML file, found 'huge'"):
        load("textcraft_fixed", presets=("huge",))


def test_options_reach_a_local_environment_and_no_server() -> None:
    with pytest.raises(ConfigError, match="'options' has an effect only with url: local"):
        load("searchqa_fixed", "envs.0.options={topk: 2}", "envs.0.url=http://127.0.0.1:1")
    assert load("searchqa_fixed", "envs.0.options={topk: 2}").envs[0].options == {"topk": 2}
