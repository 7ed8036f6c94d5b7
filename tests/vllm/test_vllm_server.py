"""A real vLLM server that takes a policy's weights and adapters during a run."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("vllm", reason="needs vLLM: `make test-vllm` installs it on a CPU, into an environment of its own")

from test_engine import STOP
from trainer_factory import make_config, make_tokenizer, register
from vllm_factory import CLOSE, assert_same_as_native, change, policy

from agentgym_lite.config import LoraConfig, RolloutConfig
from agentgym_lite.lora import with_lora
from agentgym_lite.rollout.vllm import VllmEngine, WeightSyncError, make_vllm_engine
from agentgym_lite.training import Trainer

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

_START_S = 900


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server, of the toy policy's shape: the tests give it other weights."""
    folder = tmp_path_factory.mktemp("server")
    policy().save_pretrained(folder / "model")
    make_tokenizer().save_pretrained(folder / "model")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    program = [sys.executable, "-m", "agentgym_lite.rollout.vllm.serve", str(folder / "model"), "--port", str(port)]
    options = [
        "--max-model-len",
        "128",
        "--max-num-seqs",
        "8",
        "--dtype",
        "float32",
        "--enable-lora",
        "--max-lora-rank",
        "8",
        "--block-size",
        "32",
    ]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen([*program, *options], stdout=log, stderr=log, start_new_session=True)
    try:
        _wait(f"http://127.0.0.1:{port}", server, folder / "log")
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(60)


def _wait(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _START_S
    while time.monotonic() < end and server.poll() is None:
        try:
            if httpx.get(f"{url}/health").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(1)
    pytest.fail(f"the server did not start:\n{log.read_text()[-3000:]}")


def make_engine(url: str, model: Any, **vllm: Any) -> VllmEngine:
    return make_vllm_engine(model, RolloutConfig(engine="vllm", vllm={"url": url, **vllm}, max_length=128, max_sessions=4), STOP)


def test_adapters_arrive(url: str) -> None:
    """First of all, while the server has the weights that it was started with."""
    model = with_lora(policy(), LoraConfig(r=4, alpha=8), 0)
    engine = make_engine(url, model)
    change(model, "lora_")
    engine.sync()
    assert_same_as_native(engine, model)
    engine.close()


def test_weights_arrive_and_a_wrong_sync_does_not_pass(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = policy()
    change(model)
    engine = make_engine(url, model)
    assert_same_as_native(engine, model)
    change(model)
    monkeypatch.setattr(engine._backend, "_load_weights", lambda url, folder: None)
    with pytest.raises(WeightSyncError, match="does not sample with the weights"):
        engine.sync()
    monkeypatch.undo()
    engine.sync()
    assert_same_as_native(engine, model)
    engine.close()


def test_a_cache_that_is_kept_does_not_pass(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = policy()
    engine = make_engine(url, model)
    backend: Any = engine._backend
    post = backend._post
    monkeypatch.setattr(backend, "_post", lambda url, path, body=None: {} if path == "/reset_prefix_cache" else post(url, path, body))
    change(model)
    with pytest.raises(WeightSyncError, match="does not sample with the weights"):
        engine.sync()
    engine.close()


def test_grpo_trains_on_it(url: str, tmp_path: Path) -> None:
    register()
    rollout = {"engine": "vllm", "vllm": {"url": url}}
    config = make_config(tmp_path, rollout=rollout, run={"steps": 2}, algorithm={"zero_variance": "keep"})
    history = Trainer(config, model=policy(), tokenizer=make_tokenizer()).train().history
    assert [m["optim/updates"] for m in history] == [1, 1]
    assert max(m["engine/logp_diff_max"] for m in history) < CLOSE
