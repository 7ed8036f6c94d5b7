"""Stand-ins for vLLM: a backend that samples with the native engine, and a server that speaks the part of vLLM's API that is used."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Self

from safetensors.torch import load_file
from test_engine import make_model

from agentgym_lite.rollout import NativeEngine
from agentgym_lite.rollout.types import SamplingParams
from agentgym_lite.rollout.vllm.backend import Reply, Request


class NativeBackend:
    """Samples with a copy of the policy, whose weights change with :meth:`push` alone."""

    def __init__(self, model: Any, max_sessions: int = 8, max_length: int = 256) -> None:
        self.model = model
        self.engine = NativeEngine(model, max_sessions=max_sessions, max_length=max_length, stop_ids=())
        self.calls: list[str] = []
        self._running: dict[int, Request] = {}

    def add(self, request: Request) -> None:
        session = self.engine.open()
        sampling = SamplingParams(request.sampling.temperature, request.sampling.top_p, request.limit)
        self.engine.submit(session, request.prompt, sampling, request.seed)
        self._running[session] = request

    def poll(self) -> list[Reply]:
        replies = []
        for g in self.engine.step():
            request = self._running.pop(g.session)
            self.engine.release(g.session)
            stop = next((i for i, t in enumerate(g.token_ids) if t in request.stop_ids), None)
            n = len(g.token_ids) if stop is None else stop + 1
            replies.append(Reply(request.number, g.token_ids[:n], g.logprobs[:n], stop is not None))
        return replies

    def cancel(self, number: int) -> None:
        session = next(s for s, r in self._running.items() if r.number == number)
        del self._running[session]
        self.engine.release(session)

    def push(self, model: Any) -> None:
        self.calls.append("push")
        self.engine = NativeEngine(model, max_sessions=self.engine.max_sessions, max_length=self.engine.max_length, stop_ids=())

    def sleep(self) -> None:
        self.calls.append("sleep")

    def close(self) -> None:
        self.calls.append("close")


class FakeServer:
    """``edit`` may change an answer: it gets path, body and answer and returns (status, answer). ``requests`` keeps what was asked."""

    def __init__(self, model: Any | None = None, edit: Callable[[str, Any, Any], tuple[int, Any]] = lambda path, body, a: (200, a)) -> None:
        self.model = make_model(seed=9) if model is None else model
        self.adapters: dict[str, Any] = {}
        self._adapter = "base"
        self.requests: list[tuple[str, Any]] = []
        self._edit, self._lock = edit, Lock()
        self._backend: NativeBackend | None = None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(None)

            def do_POST(self) -> None:
                self._answer(json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "null"))

            def _answer(self, body: Any) -> None:
                with outer._lock:
                    outer.requests.append((self.path, body))
                    status, answer = outer._edit(self.path, body, outer._do(self.path, body))
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def _do(self, path: str, body: Any) -> Any:
        if path == "/v1/models":
            return {"data": [{"id": "base", "max_model_len": 256}]}
        if path == "/collective_rpc":
            self._backend = None
            loaded = self.model.load_state_dict(load_file(Path(body["args"][0]) / "model.safetensors"), strict=False)
            return {"results": [{"missing": [n for n in loaded.missing_keys if n != "lm_head.weight"]}]}
        if path == "/reset_prefix_cache":
            return {"success": True}
        if path == "/v1/load_lora_adapter":
            self.adapters[body["lora_name"]] = load_file(Path(body["lora_path"]) / "adapter_model.safetensors")
            return "Success"
        if path == "/v1/unload_lora_adapter":
            del self.adapters[body["lora_name"]]
            return "Success"
        return self._complete(body)

    def _complete(self, body: Any) -> Any:
        model = self.model
        if body["model"] not in ("base", self._adapter):
            self._adapter, self._backend = body["model"], None
            for name, p in model.named_parameters():
                if ".lora_" in name:
                    p.data.copy_(self.adapters[body["model"]][name.replace(".default.", ".")])
        backend = self._backend = self._backend or NativeBackend(model)
        sampling = SamplingParams(body["temperature"], body["top_p"])
        backend.add(Request(0, 0, tuple(body["prompt"]), sampling, body["max_tokens"], body["seed"], tuple(body["stop_token_ids"])))
        replies: list[Reply] = []
        while not replies:
            replies = backend.poll()
        reason = "stop" if replies[0].stopped else "length"
        return {
            "choices": [{"token_ids": replies[0].token_ids, "logprobs": {"token_logprobs": replies[0].logprobs}, "finish_reason": reason}]
        }
