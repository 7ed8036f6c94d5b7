"""The engine on vLLM with stand-ins for vLLM: sessions as in the native engine, and syncs that do not deliver the policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from test_engine import STOP, VOCAB, Talk, make_model, run_talks
from test_engine import make_engine as make_native
from test_engine import make_talks as talks
from vllm_fakes import FakeServer, NativeBackend

from agentgym_lite.config import LoraConfig, RolloutConfig
from agentgym_lite.lora import adapter_weights, with_lora
from agentgym_lite.rollout import SamplingParams
from agentgym_lite.rollout.vllm import VllmEngine, VllmError, WeightSyncError, make_vllm_engine
from agentgym_lite.rollout.vllm.backend import Reply


def make_talks(count: int, **options: float) -> list[Talk]:
    return talks(count, turns=2, new_tokens=4, **options)


def make_engine(model: Any, backend: Any = None, max_sessions: int = 8) -> VllmEngine:
    backend = backend or NativeBackend(model)
    return VllmEngine(model, backend, max_sessions=max_sessions, max_length=256, stop_ids=STOP, tolerance=1e-4)


def lora_model() -> Any:
    return with_lora(make_model(), LoraConfig(r=2, alpha=4), 0)


def change(model: Any, what: str = "") -> None:
    with torch.no_grad():
        for name, p in model.named_parameters():
            if what in name:
                p.add_(0.05 * torch.randn_like(p))


# -- sessions ----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {"temperature": 0.7, "top_p": 0.8}])
def test_conversations_equal_those_of_the_native_engine(sampling: dict[str, float]) -> None:
    model = make_model()
    found = run_talks(make_engine(model, max_sessions=3), make_talks(4, **sampling))
    expected = run_talks(make_native(model, max_sessions=3), make_talks(4, **sampling))
    assert [t.row for t in found] == [t.row for t in expected]
    assert [[r.finished_by_stop for r in t.replies] for t in found] == [[r.finished_by_stop for r in t.replies] for t in expected]
    gaps = [a - b for t, u in zip(found, expected, strict=True) for a, b in zip(t.logprobs, u.logprobs, strict=True) if a is not None]
    assert max(map(abs, gaps)) < 1e-4


def test_wrong_use_is_refused_and_changes_nothing() -> None:
    engine = make_engine(make_model(), max_sessions=1)
    session = engine.open()
    with pytest.raises(RuntimeError, match="all 1 sessions"):
        engine.open()
    for bad in ([], [VOCAB], [-1]):
        with pytest.raises(ValueError, match="at least one new token id from 0 to 60"):
            engine.submit(session, bad, SamplingParams(), seed=0)
    with pytest.raises(ValueError, match="256 tokens and no reply; max_length is 256"):
        engine.submit(session, [1] * 256, SamplingParams(), seed=0)
    engine.submit(session, [1, 2], SamplingParams(max_new_tokens=3), seed=0)
    with pytest.raises(RuntimeError, match="still sampling"):
        engine.submit(session, [1], SamplingParams(), seed=0)
    for refused in (engine.sync, engine.sleep):
        with pytest.raises(RuntimeError, match="found 1 open"):
            refused()
    engine.release(session)
    for refused in (lambda: engine.release(session), lambda: engine.submit(session, [1], SamplingParams(), seed=0)):
        with pytest.raises(RuntimeError, match="not open"):
            refused()
    assert engine.step() == []


def test_a_reply_that_nobody_waits_for_is_passed_over() -> None:
    model = make_model()
    backend = NativeBackend(model)
    backend.cancel = lambda number: None  # type: ignore[method-assign] - a server goes on with it
    engine = make_engine(model, backend)
    doomed, other = engine.open(), engine.open()
    engine.submit(doomed, [1, 2], SamplingParams(max_new_tokens=1), seed=0)
    engine.submit(other, [1, 2], SamplingParams(max_new_tokens=1), seed=0)
    engine.release(doomed)
    assert [g.session for g in engine.step()] == [other]


def test_log_probs_that_are_not_finite_are_a_diverged_policy() -> None:
    model = make_model()
    backend = NativeBackend(model)
    engine = make_engine(model, backend)
    session = engine.open()
    engine.submit(session, [1], SamplingParams(), seed=0)
    backend.poll = lambda: [Reply(engine._sessions[session].request or 0, [3], [float("nan")], False)]  # type: ignore[method-assign]
    with pytest.raises(FloatingPointError, match="diverged"):
        engine.step()


def test_a_sleeping_engine_wakes_with_sync() -> None:
    model = make_model()
    backend = NativeBackend(model)
    engine = make_engine(model, backend)
    engine.sleep()
    engine.sleep()
    with pytest.raises(RuntimeError, match="call sync"):
        engine.open()
    engine.sync()
    engine.release(engine.open())
    engine.close()
    assert backend.calls == ["push", "sleep", "push", "close"]


# -- syncs -------------------------------------------------------------------------------------------------------------------------------


def test_a_sync_that_delivers_nothing_is_caught() -> None:
    model = make_model()
    backend = NativeBackend(model)
    engine = make_engine(model, backend)
    push, backend.push = backend.push, lambda model: None  # type: ignore[method-assign]
    change(model)
    with pytest.raises(WeightSyncError, match=r"within 0\.0001 nats on average after a sync, found .* \(at most"):
        engine.sync()
    backend.push = push  # type: ignore[method-assign]
    engine.sync()
    assert [t.row for t in run_talks(engine, make_talks(3))] == [t.row for t in run_talks(make_native(model), make_talks(3))]


def test_log_probs_of_another_temperature_are_caught() -> None:
    model = make_model()
    backend = NativeBackend(model)
    poll = backend.poll
    backend.poll = lambda: [Reply(r.number, r.token_ids, [0.7 * x for x in r.logprobs], r.stopped) for r in poll()]  # type: ignore[method-assign]
    with pytest.raises(WeightSyncError):
        make_engine(model, backend)


def test_a_fresh_adapter_that_never_arrives_is_caught_and_stays_as_it_was() -> None:
    model = lora_model()
    plain = make_model()
    backend = NativeBackend(plain)
    push = backend.push
    backend.push = lambda model: push(plain)  # type: ignore[method-assign] - the same policy while B is 0
    before = {n: p.detach().clone() for n, p in adapter_weights(model).items()}
    with pytest.raises(WeightSyncError):
        make_engine(model, backend)
    assert all(torch.equal(before[n], p) for n, p in adapter_weights(model).items())
    make_engine(model)
    assert all(torch.equal(before[n], p) for n, p in adapter_weights(model).items())


def test_a_policy_that_is_not_a_number_does_not_pass() -> None:
    model = make_model()
    engine = make_engine(model, NativeBackend(make_model()))
    backend: Any = engine._backend
    backend.push = lambda model: None
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    with pytest.raises(WeightSyncError, match="found nan"):
        engine.sync()


# -- servers -----------------------------------------------------------------------------------------------------------------------------


def remote(model: Any, *servers: FakeServer, sync_dir: Path | None = None, **options: Any) -> VllmEngine:
    vllm = {"url": [s.url for s in servers], "sync_dir": sync_dir, **options}
    return make_vllm_engine(model, RolloutConfig(engine="vllm", vllm=vllm, max_length=256, max_sessions=4), STOP)


def test_servers_take_weights_and_share_the_sessions(tmp_path: Path) -> None:
    model = make_model()
    with FakeServer() as first, FakeServer() as second:
        engine = remote(model, first, second, sync_dir=tmp_path)
        change(model)
        engine.sync()
        found = run_talks(engine, make_talks(4, temperature=0.7, top_p=0.8))
        assert [t.row for t in found] == [t.row for t in run_talks(make_native(model), make_talks(4, temperature=0.7, top_p=0.8))]
        for server in (first, second):
            asked = [body for path, body in server.requests if path == "/v1/completions"]
            assert len(asked) > 4
            assert asked[-1]["ignore_eos"]
            assert (asked[-1]["top_k"], asked[-1]["min_p"], asked[-1]["repetition_penalty"]) == (0, 0.0, 1.0)
        assert [p.name for p in tmp_path.iterdir()] == ["policy-2"]
        engine.close()


def test_a_server_takes_adapters_and_forgets_the_old_ones() -> None:
    model = lora_model()
    with FakeServer(lora_model()) as server:
        engine = remote(model, server)
        change(model, "lora_")
        engine.sync()
        assert list(server.adapters) == ["policy-3"]
        assert [t.row for t in run_talks(engine, make_talks(3))] == [t.row for t in run_talks(make_native(model), make_talks(3))]
        engine.close()


def test_merged_adapters_go_as_weights() -> None:
    model = lora_model()
    change(model, "lora_")
    with FakeServer() as server:
        engine = remote(model, server, lora="merged")
        assert [t.row for t in run_talks(engine, make_talks(3))] == [t.row for t in run_talks(make_native(model), make_talks(3))]
        assert not server.adapters
        engine.close()


def test_a_server_that_reports_success_and_keeps_its_weights_is_caught() -> None:
    server = FakeServer(make_model(seed=5))
    server._do = lambda path, body, do=server._do: {"results": [{"missing": []}]} if path == "/collective_rpc" else do(path, body)  # type: ignore[method-assign]
    with server, pytest.raises(WeightSyncError, match="does not sample with the weights"):
        remote(make_model(), server)


@pytest.mark.parametrize(
    ("path", "answer", "message"),
    [
        ("/v1/models", (200, {"data": [{"id": "base", "max_model_len": 64}]}), r"takes 64 tokens, rollout\.max_length is 256"),
        ("/v1/models", (401, {"error": "no key"}), "expected a vLLM server at .* found status 401"),
        ("/collective_rpc", (404, {"detail": "Not Found"}), r"does not do /collective_rpc .*start it with: python -m agentgym_lite"),
        ("/collective_rpc", (200, {"results": [{"missing": ["model.norm.weight"]}]}), "1 weights that the policy lacks"),
        ("/reset_prefix_cache", (200, {"success": False}), "give each run its own"),
        ("/v1/completions", (200, {"choices": [{"text": "a", "finish_reason": "stop"}]}), "expected token ids and log-probs"),
        (
            "/v1/completions",
            (200, {"choices": [{"token_ids": [5], "logprobs": {"token_logprobs": [-1.0]}, "finish_reason": "stop"}]}),
            "ends replies at token 5, .* --generation-config vllm",
        ),
    ],
)
def test_servers_that_are_not_what_they_must_be(path: str, answer: tuple[int, Any], message: str) -> None:
    server = FakeServer(edit=lambda asked, body, own: answer if asked == path else (200, own))
    with server, pytest.raises(VllmError, match=message):
        remote(make_model(), server)


def test_a_server_that_is_busy_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_lite.rollout.vllm.remote.time.sleep", lambda seconds: None)
    seen: dict[str, int] = {}

    def once(path: str, body: Any, answer: Any) -> tuple[int, Any]:
        seen[path] = seen.get(path, 0) + 1
        return (503, {}) if path == "/v1/completions" and seen[path] == 1 else (200, answer)

    model = make_model()
    with FakeServer(edit=once) as server:
        assert run_talks(remote(model, server), make_talks(1))[0].row == run_talks(make_native(model), make_talks(1))[0].row


def test_a_server_that_is_not_there_is_named() -> None:
    with FakeServer() as server:
        url = server.url
    with pytest.raises(VllmError, match=f"expected a vLLM server at {url}"):
        make_vllm_engine(make_model(), RolloutConfig(engine="vllm", vllm={"url": url}), STOP)
