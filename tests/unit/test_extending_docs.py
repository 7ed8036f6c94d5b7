"""The code of docs/extending.md is executed as it stands there: the environment keeps its contract, the algorithm learns a probe.

Of the teacher's page, which has no code, links and commands are looked up.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from agentgym_envs import core
from agentgym_lite.algorithms import ALGORITHMS, Samples
from agentgym_lite.cli.app import app
from agentgym_lite.client import SessionPool
from agentgym_lite.probes import PROBES, probe_model, probe_tokenizer, register_probes
from agentgym_lite.probes.run import read_policy
from agentgym_lite.rollout import EpisodeSpec, play

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
#: File name in its first line -> block of code.
BLOCKS = dict(re.findall(r"```python\n# ([\w/.]+)\n(.*?)```", PAGE, re.DOTALL))


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ModuleType]]:
    """The page's files, imported."""
    folder = tmp_path_factory.mktemp("extending")
    (folder / "guess").mkdir()
    (folder / "guess" / "__init__.py").touch()
    for name, code in BLOCKS.items():
        (folder / name).write_text(code, encoding="utf-8")
    names = [name.removesuffix(".py").replace("/", ".") for name in BLOCKS]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setattr(core, "_REGISTRY", dict(core._REGISTRY))
        before = dict(ALGORITHMS)
        try:
            yield {name: importlib.import_module(name) for name in names}
        finally:
            ALGORITHMS.clear()
            ALGORITHMS.update(before)
            for name in ("guess", *names):
                sys.modules.pop(name, None)


def _lines(name: str) -> int:
    return len([line for line in BLOCKS[name].splitlines() if line.strip()])


def test_the_page_has_the_code_that_it_promises() -> None:
    assert set(BLOCKS) == {"guess/env.py", "guess/expert.py", "test_guess.py", "best_of_group.py", "train.py", "countdown.py"}
    assert _lines("guess/env.py") <= 60
    assert _lines("best_of_group.py") <= 20
    assert PAGE.count("```python") == len(BLOCKS)


@pytest.mark.parametrize("page", ["extending", "teaching"])
def test_links_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []


def test_commands_of_the_teachers_page_exist() -> None:
    commands = set(re.findall(r"\bagl ([a-z]+)", (ROOT / "docs" / "teaching.md").read_text(encoding="utf-8")))
    known = {c.name or getattr(c.callback, "__name__", "") for c in app.registered_commands} | {g.name for g in app.registered_groups}
    assert {"course", "doctor", "train"} <= commands <= known


@pytest.mark.parametrize("name", re.findall(r"^def (test_\w+)", BLOCKS["test_guess.py"], re.MULTILINE))
def test_the_environment_keeps_the_contract(modules: dict[str, ModuleType], name: str) -> None:
    getattr(modules["test_guess"], name)()


def test_an_environment_that_pays_twice_breaks_the_contract(modules: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    honest = modules["guess.env"].Guess.step

    def greedy(self: core.Environment, action: str) -> core.StepResult:
        result = honest(self, action)
        return core.StepResult(result.observation, float(result.done), result.done, result.info)

    monkeypatch.setattr(modules["guess.env"].Guess, "step", greedy)
    with pytest.raises(AssertionError):
        modules["test_guess"].test_the_expert_solves_every_held_out_item_and_is_paid_once()


def test_the_scripted_agent_plays_the_environment(modules: dict[str, ModuleType]) -> None:
    specs = [EpisodeSpec("guess", item) for item in modules["guess.env"].Guess.items("eval")[:6:2]]
    with SessionPool("guess") as pool:
        episodes = play(lambda spec: modules["countdown"].Countdown(), specs, {"guess": pool}, 10)
    assert all(e.success for e in episodes)
    assert {e.task for e in episodes} == {"up_to_10"}


def test_the_algorithm_by_hand(modules: dict[str, ModuleType]) -> None:
    rewards = torch.zeros(5, 2)
    rewards[:, 1] = torch.tensor([0.0, 1.0, 1.0, 0.5, 0.5])
    samples = Samples(
        mask=torch.tensor([[0.0, 1.0]] * 5),
        rewards=rewards,
        penalty=torch.zeros(5, 2),
        turns=torch.zeros(5, 2, dtype=torch.long),
        anchors=torch.zeros(5, 2, dtype=torch.long),
        episodes=torch.arange(5),
        groups=torch.tensor([0, 0, 0, 1, 1]),
        lengths=torch.full((5,), 2),
    )
    m = modules["best_of_group"]
    for others, expected in ((0.0, [0.0, 1.0, 1.0, 0.0, 0.0]), (-0.5, [-0.5, 1.0, 1.0, 0.0, 0.0])):
        got = m.best_of_group(samples, m.BestOfGroupConfig(others=others)).advantages
        assert got[:, 1].tolist() == expected
        assert got[:, 0].tolist() == [0.0] * 5


def test_the_algorithm_learns_a_probe(modules: dict[str, ModuleType], tmp_path: Path) -> None:
    register_probes()
    settings = {
        "envs": [{"name": "probe_action", "rounds": {"type": "fixed", "rounds": 1}}],
        "rollout": {"max_new_tokens": 2, "max_length": 96},
        "optim": {"lr": 3e-3},
        "run": {"steps": 6, "groups_per_step": 8, "out": str(tmp_path / "run"), "save_every": 6, "log_trajectories": 0},
    }
    trainer = modules["train"].make(settings, probe_model(), probe_tokenizer())
    before = read_policy(PROBES["probe_action"], trainer.model)[0]["start"]
    trainer.train()
    assert read_policy(PROBES["probe_action"], trainer.model)[0]["start"] > before + 0.2
