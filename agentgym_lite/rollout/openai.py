"""Replies from any OpenAI-compatible chat endpoint, to evaluate models whose tokens and log-probs nobody gives away."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Self

import httpx

from agentgym_lite.agents.chat import Message
from agentgym_lite.agents.formats import ActionFormat
from agentgym_lite.agents.scaffold import Scaffold, as_scaffold
from agentgym_lite.client import SessionPool
from agentgym_lite.rollout.driver import Driver, Live, OnEpisode, OnProgress
from agentgym_lite.rollout.types import EpisodeSpec, StopReason, Trajectory, derive_seed

DEFAULT_BASE_URL = "https://api.openai.com/v1"
#: Statuses that may pass: time-outs, conflicts, rate limits, and every fault of the server.
_PASSING = {408, 409, 425, 429}
_MAX_PAUSE_S = 60.0
#: Seconds to wait for a reply before looking whether an environment has answered.
_TICK_S = 0.05


class EndpointError(RuntimeError):
    """The endpoint cannot be used, or does not answer in spite of retries; the message says what to do."""


class ContextFullError(EndpointError):
    """The conversation is longer than the model's context."""


@dataclass(frozen=True)
class Completion:
    """One reply. ``truncated`` means that it was cut by the limit on new tokens; ``usage`` is the endpoint's own count."""

    text: str
    truncated: bool
    usage: Mapping[str, int]


class ChatEndpoint:
    """A model behind ``POST {base_url}/chat/completions``. Safe to use from many threads.

    ``base_url`` and ``api_key`` come from ``OPENAI_BASE_URL`` and ``OPENAI_API_KEY`` if they are not given; servers of one's own often
    need no key. A request that fails in a way that may pass is repeated up to ``retries`` times, after the pause that the server asks
    for or one that doubles. ``timeout_s`` bounds one attempt.

    Raises ``EndpointError`` if the default endpoint is meant and there is no key.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        temperature: float = 1.0,
        max_new_tokens: int = 512,
        timeout_s: float = 120.0,
        retries: int = 6,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.model = model
        self.base_url = (base_url or os.environ.get("OPENAI_BASE_URL") or DEFAULT_BASE_URL).rstrip("/")
        key = api_key or os.environ.get("OPENAI_API_KEY")
        if key is None and self.base_url == DEFAULT_BASE_URL:
            raise EndpointError(
                f"expected an API key for {DEFAULT_BASE_URL}, found none; set OPENAI_API_KEY, or name another server with --base-url or "
                "OPENAI_BASE_URL"
            )
        self._settings: dict[str, Any] = {"model": model, "temperature": temperature, "max_tokens": max_new_tokens}
        self._retries, self._sleep = retries, sleep
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.Client(headers=headers, timeout=timeout_s, limits=httpx.Limits(max_connections=None))

    def complete(self, messages: Sequence[Message], seed: int) -> Completion:
        """The model's reply to a conversation. Raises ``EndpointError``; ``ContextFullError`` if the conversation is too long."""
        problem = ""
        for attempt in range(self._retries + 1):
            body = {**self._settings, "messages": list(messages), "seed": seed & 0x7FFFFFFF}
            pause = min(0.5 * 2**attempt, _MAX_PAUSE_S) * random.uniform(0.5, 1.0)  # spread out, or all episodes come back at once
            try:
                response = self._http.post(f"{self.base_url}/chat/completions", json=body)
                if response.status_code == 200:
                    return _read(response)
                self._judge(response)
                problem = f"status {response.status_code}: {_message(response)}"
                pause = _asked_pause(response, pause)
            except (httpx.TransportError, ValueError, KeyError, IndexError, TypeError, AttributeError) as e:
                problem = f"{type(e).__name__}: {e!s:.200}"
            if attempt < self._retries:
                self._sleep(pause)
        raise EndpointError(
            f"expected a reply of {self.model} from {self.base_url}, found none in {self._retries + 1} attempts (last: {problem}); see "
            "that the server is up and the key's limits allow the --concurrency, then run the command again: finished episodes are kept"
        )

    def _judge(self, response: httpx.Response) -> None:
        """Raise for what no retry mends; adapt to a server that wants the newer name of the token limit."""
        if response.status_code >= 500 or (response.status_code in _PASSING and "insufficient_quota" not in response.text):
            return
        text = _message(response)
        if response.status_code == 400 and "max_completion_tokens" in text and "max_tokens" in self._settings:
            self._settings = {**self._settings, "max_completion_tokens": self._settings["max_tokens"]}
            del self._settings["max_tokens"]
            return
        if response.status_code in (400, 413) and ("context_length" in response.text or "context length" in text.lower()):
            raise ContextFullError(text)
        hint = {401: "check OPENAI_API_KEY", 403: "check what the key may use", 404: "check the model's name and --base-url"}
        advice = hint.get(response.status_code, "change the settings that it names")
        raise EndpointError(f"{self.base_url} refused a request for {self.model} with status {response.status_code} ({text}); {advice}")

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def play_chat(
    endpoint: ChatEndpoint,
    specs: Sequence[EpisodeSpec],
    pools: Mapping[str, SessionPool],
    max_rounds: int | Mapping[str, int],
    *,
    run_seed: int = 0,
    concurrency: int = 16,
    scaffold: Scaffold | ActionFormat | None = None,
    on_progress: OnProgress | None = None,
    on_episode: OnEpisode | None = None,
) -> list[Trajectory]:
    """Play ``specs`` with the model behind ``endpoint``, ``concurrency`` episodes at a time; trajectories in the same order.

    ``scaffold`` (default ReAct, plain) says how the agent acts, plans and remembers.
    Trajectories have turns but no token rows; ``info["usage"]`` sums what the endpoint counted. An episode whose conversation outgrows
    the model's context ends as ``CONTEXT_FULL``. Raises ``EndpointError`` if the endpoint fails; other errors are those of
    :meth:`Collector.collect <agentgym_lite.rollout.collector.Collector.collect>`.
    """
    speaker = _ChatSpeaker(endpoint, run_seed, concurrency)
    try:
        return Driver(speaker, specs, pools, max_rounds, concurrency, None, on_progress, on_episode, as_scaffold(scaffold)).run()
    finally:
        speaker.shutdown()


class _ChatSpeaker:
    """One request at a time for each episode, all episodes in parallel threads."""

    def __init__(self, endpoint: ChatEndpoint, run_seed: int, concurrency: int) -> None:
        self._endpoint, self._run_seed = endpoint, run_seed
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="chat")
        self._asked: dict[Future[Completion], Live] = {}

    def ask(self, live: Live) -> None:
        seed = derive_seed(self._run_seed, live.episode.spec, live.episode.turn)
        self._asked[self._threads.submit(self._endpoint.complete, list(live.episode.messages), seed)] = live

    def advance(self) -> list[Live]:
        done, _ = wait(self._asked, timeout=_TICK_S, return_when=FIRST_COMPLETED)
        spoke = []
        for future in done:
            live = self._asked.pop(future)
            try:
                self._record(live, future.result())
            except ContextFullError:
                live.episode.stop(StopReason.CONTEXT_FULL)
            spoke.append(live)
        return spoke

    def _record(self, live: Live, reply: Completion) -> None:
        live.episode.add_reply(reply.text, truncated=reply.truncated)
        total = live.episode.trajectory.info.setdefault("usage", {"requests": 0})
        total["requests"] += 1
        for name, count in reply.usage.items():
            total[name] = total.get(name, 0) + count

    def drop(self, live: Live) -> None:
        self._asked = {future: other for future, other in self._asked.items() if other is not live}

    def shutdown(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _read(response: httpx.Response) -> Completion:
    data = response.json()
    choice = data["choices"][0]
    usage = data.get("usage") or {}
    counts = {name: int(usage[name]) for name in ("prompt_tokens", "completion_tokens") if usage.get(name) is not None}
    return Completion(choice["message"].get("content") or "", choice.get("finish_reason") == "length", counts)


def _message(response: httpx.Response) -> str:
    try:
        error = response.json()["error"]
        text = str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError):
        text = response.text
    return " ".join(text.split())[:300]


def _asked_pause(response: httpx.Response, pause: float) -> float:
    """Seconds that ``Retry-After`` names, within bounds; else ``pause``."""
    try:
        return min(max(float(response.headers.get("retry-after", "")), 0.0), _MAX_PAUSE_S)
    except ValueError:
        return pause
