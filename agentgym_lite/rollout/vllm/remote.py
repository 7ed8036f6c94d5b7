"""vLLM servers, which ``python -m agentgym_lite.rollout.vllm.serve`` starts: token ids in and out over the OpenAI-compatible API."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from agentgym_lite.rollout.vllm.backend import Reply, Request
from agentgym_lite.rollout.vllm.errors import VllmError, WeightSyncError
from agentgym_lite.rollout.vllm.weights import save_adapter, save_weights

#: Seconds for one reply, for one sync, and to wait for a reply before looking whether an environment has answered.
_REPLY_S, _SYNC_S, _TICK_S = 600.0, 1800.0, 0.05
#: Attempts at a request whose connection fails or whose server is overloaded; a reply depends on its seed, so none is lost or doubled.
_ATTEMPTS = 4
_START = "start it with: python -m agentgym_lite.rollout.vllm.serve MODEL (docs/vllm.md)"


class RemoteBackend:
    """Servers with the policy's architecture, which share the sessions; an episode stays with one, where its prefix is cached.

    Weights go to them through ``folder``, which they must see under the same path. With ``adapter`` a server's own weights are those
    below the adapters, and only these are sent. In a run of several processes the main one sends (``on_main``) and each samples. The key
    in the environment variable ``VLLM_API_KEY`` is sent along. Raises ``VllmError`` if a server cannot be reached or takes less than
    ``max_length`` tokens.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        max_sessions: int,
        max_length: int,
        adapter: bool,
        folder: Path | None,
        on_main: Callable[[Callable[[], Any]], Any] = lambda work: work(),
    ) -> None:
        self._urls = [url.rstrip("/").removesuffix("/v1") for url in urls]
        self._adapter, self._on_main = adapter, on_main
        self._temporary = None if folder else tempfile.TemporaryDirectory(prefix="agl-vllm-")
        self._folder = folder or Path(on_main(lambda: self._temporary and self._temporary.name))
        key = os.environ.get("VLLM_API_KEY")
        limits = httpx.Limits(max_connections=None)
        self._http = httpx.Client(headers={"Authorization": f"Bearer {key}"} if key else {}, timeout=_REPLY_S, limits=limits)
        self._threads = ThreadPoolExecutor(max_sessions, thread_name_prefix="vllm")
        self._running: dict[Future[Reply], int] = {}
        self._version = 0
        self._models = [self._served(url, max_length) for url in self._urls]

    def add(self, request: Request) -> None:
        """Ask the session's server."""
        self._running[self._threads.submit(self._complete, request)] = request.number

    def poll(self) -> list[Reply]:
        """Wait for a short time; the replies that have come."""
        done, _ = wait(self._running, timeout=_TICK_S, return_when=FIRST_COMPLETED)
        for future in done:
            del self._running[future]
        return [future.result() for future in done if not future.cancelled()]

    def cancel(self, number: int) -> None:
        """Drop a request that waits; one that a server works on ends there, and its reply is passed over."""
        for future, running in self._running.items():
            if running == number:
                future.cancel()

    def push(self, model: Any) -> None:
        """Send the weights and clear the caches. Raises ``WeightSyncError`` if a server does not take them."""
        wait(self._running)
        self._running.clear()
        self._version += 1
        name = f"policy-{self._version}"
        folder = self._folder / name
        me = uuid4()
        main = self._on_main(lambda: me) == me
        if main:
            shutil.rmtree(folder, ignore_errors=True)  # of a run before this one
        (save_adapter if self._adapter else save_weights)(model, folder, write=main)
        self._on_main(lambda: self._send(folder))
        if self._adapter:
            self._models = [name] * len(self._urls)

    def _send(self, folder: Path) -> None:
        for url in self._urls:
            if self._adapter:
                self._load_adapter(url, folder)
            else:
                self._load_weights(url, folder)
            if not self._post(url, "/reset_prefix_cache").get("success", True):
                raise WeightSyncError(f"the server at {url} does not clear its prefix cache: it works for others; give each run its own")
        shutil.rmtree(self._folder / f"policy-{self._version - 1}", ignore_errors=True)  # a server may read the present one again

    def _load_weights(self, url: str, folder: Path) -> None:
        results = self._post(url, "/collective_rpc", {"method": "load_policy", "args": [str(folder.resolve())]})["results"]
        missing = results[0]["missing"]
        if missing:
            raise WeightSyncError(f"the server at {url} has {len(missing)} weights that the policy lacks, the first is '{missing[0]}'")

    def _load_adapter(self, url: str, folder: Path) -> None:
        self._post(url, "/v1/load_lora_adapter", {"lora_name": folder.name, "lora_path": str(folder.resolve()), "load_inplace": True})
        old = f"policy-{self._version - 1}"
        if self._version > 1:
            self._post(url, "/v1/unload_lora_adapter", {"lora_name": old})

    def sleep(self) -> None:
        """Servers keep their memory."""

    def close(self) -> None:
        """Close the connections; the servers run on."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._http.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    # -- requests --------------------------------------------------------------------------------------------------------------------------

    def _served(self, url: str, max_length: int) -> str:
        try:
            response = self._http.get(f"{url}/v1/models", timeout=30.0)
            served = response.json()["data"][0]
            name, length = str(served["id"]), int(served["max_model_len"])
        except (httpx.HTTPError, ValueError, KeyError, IndexError, TypeError) as e:
            found = (
                f"status {response.status_code}" if isinstance(e, KeyError | IndexError | TypeError) else f"{type(e).__name__}: {e!s:.200}"
            )
            raise VllmError(f"expected a vLLM server at {url} (rollout.vllm.url), found {found}; {_START}") from e
        if length < max_length:
            raise VllmError(
                f"the server at {url} takes {length} tokens, rollout.max_length is {max_length}; start it with --max-model-len {max_length}"
            )
        return name

    def _complete(self, request: Request) -> Reply:
        place = request.session % len(self._urls)
        s = request.sampling
        body = {
            "model": self._models[place],
            "prompt": list(request.prompt),
            "add_special_tokens": False,
            "max_tokens": request.limit,
            "temperature": s.temperature,
            "top_p": s.top_p,
            # Not given, these come from the model's generation_config.json.
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "seed": request.seed,
            "stop_token_ids": list(request.stop_ids),
            "ignore_eos": True,
            "logprobs": 1,
            "return_token_ids": True,
        }
        choice = self._post(self._urls[place], "/v1/completions", body)["choices"][0]
        ids, logprobs = choice.get("token_ids"), (choice.get("logprobs") or {}).get("token_logprobs")
        if not ids or logprobs is None or len(ids) != len(logprobs):
            raise VllmError(f"expected token ids and log-probs from {self._urls[place]}, found none; {_START}")
        stopped = choice["finish_reason"] == "stop"
        if stopped and ids[-1] not in request.stop_ids:
            raise VllmError(
                f"the server at {self._urls[place]} ends replies at token {ids[-1]}, which is not a stop token of the run; start it with "
                "--generation-config vllm"
            )
        return Reply(request.number, list(ids), [float(x) for x in logprobs], stopped)

    def _post(self, url: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        timeout = _REPLY_S if path == "/v1/completions" else _SYNC_S
        problem = ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(2.0**attempt)
            try:
                response = self._http.post(f"{url}{path}", json=body, timeout=timeout)
            except httpx.TransportError as e:
                problem = f"{type(e).__name__}: {e}"
                continue
            if response.status_code == 200:
                return _json(response)
            problem = f"status {response.status_code}: {' '.join(response.text.split())[:300]}"
            if response.status_code not in (429, 503):
                break
        raise VllmError(f"the vLLM server at {url} does not do {path} ({problem}); {_START}")


def _json(response: httpx.Response) -> dict[str, Any]:
    """The answer; that to a loaded adapter is a sentence."""
    try:
        answer = response.json()
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}
