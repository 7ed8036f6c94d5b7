"""Models behind an OpenAI-compatible endpoint, with a small endpoint of our own that says and fails as it is told."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from agentgym_envs.agents import expert
from agentgym_envs.core import Observation
from agentgym_lite.client import SessionPool
from agentgym_lite.evaluation import AgentError, evaluate, load_suite, make_player, summarize
from agentgym_lite.rollout.openai import ChatEndpoint, Completion, ContextFullError, EndpointError, play_chat
from agentgym_lite.rollout.types import EpisodeSpec, StopReason

#: From (number of the request, its body, its headers) to status, answer and headers.
Script = Callable[[int, dict[str, Any], dict[str, str]], tuple[int, Any, dict[str, str]]]


class Endpoint:
    """Requests that came in, and the most that were under way at the same time."""

    def __init__(self, script: Script) -> None:
        self.script, self.requests, self.most, self.busy, self.url = script, [], 0, 0, ""
        self.lock = threading.Lock()


@contextmanager
def serving(script: Script) -> Iterator[Endpoint]:
    endpoint = Endpoint(script)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with endpoint.lock:
                number = len(endpoint.requests)
                endpoint.requests.append({"path": self.path, "body": body, "headers": dict(self.headers)})
                endpoint.busy += 1
                endpoint.most = max(endpoint.most, endpoint.busy)
            status, answer, headers = endpoint.script(number, body, dict(self.headers))
            with endpoint.lock:
                endpoint.busy -= 1
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    endpoint.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield endpoint
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def says(text: str | None, finish: str = "stop", **usage: int) -> tuple[int, Any, dict[str, str]]:
    return 200, {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": finish}], "usage": usage}, {}


def fails(status: int, message: str = "no", **headers: str) -> tuple[int, Any, dict[str, str]]:
    return status, {"error": {"message": message}}, headers


def client(endpoint: Endpoint, **options: Any) -> tuple[ChatEndpoint, list[float]]:
    pauses: list[float] = []
    return ChatEndpoint("m", base_url=endpoint.url, api_key="k", sleep=pauses.append, **{"timeout_s": 5.0, **options}), pauses


HELLO = [{"role": "user", "content": "hello"}]


def test_a_request_holds_what_the_protocol_asks_for() -> None:
    with serving(lambda *_: says("hi", prompt_tokens=5, completion_tokens=2)) as endpoint:
        chat, _ = client(endpoint, temperature=0.3, max_new_tokens=99)
        assert chat.complete(HELLO, seed=2**40 + 7) == Completion("hi", False, {"prompt_tokens": 5, "completion_tokens": 2})
    request = endpoint.requests[0]
    assert request["path"] == "/v1/chat/completions"
    assert request["headers"]["Authorization"] == "Bearer k"
    assert request["body"] == {"model": "m", "temperature": 0.3, "max_tokens": 99, "messages": HELLO, "seed": 7}


def test_a_cut_reply_and_an_empty_one() -> None:
    with serving(lambda n, *_: says("half a", "length") if n == 0 else says(None)) as endpoint:
        chat, _ = client(endpoint)
        assert chat.complete(HELLO, 0).truncated
        assert chat.complete(HELLO, 0).text == ""


def test_passing_failures_are_retried_with_growing_pauses() -> None:
    script = [fails(500), fails(503), (200, b"<html>", {}), fails(429, **{"Retry-After": "7"}), fails(408), says("at last")]
    with serving(lambda n, *_: script[n]) as endpoint:
        chat, pauses = client(endpoint)
        assert chat.complete(HELLO, 0).text == "at last"
    assert len(pauses) == 5
    assert pauses[3] == 7.0
    for attempt in (0, 1, 2, 4):
        assert 0.25 * 2**attempt <= pauses[attempt] <= 0.5 * 2**attempt


def test_in_the_end_the_message_says_what_to_do() -> None:
    with serving(lambda *_: fails(500, "out of cheese")) as endpoint:
        chat, pauses = client(endpoint, retries=2)
        with pytest.raises(EndpointError, match=r"in 3 attempts \(last: status 500: out of cheese\).*run the command again"):
            chat.complete(HELLO, 0)
    assert len(pauses) == 2


def test_an_endpoint_that_is_not_there_or_hangs() -> None:
    with serving(lambda *_: says("x")) as endpoint:
        pass
    chat, _ = client(endpoint, retries=1)
    with pytest.raises(EndpointError, match="ConnectError"):
        chat.complete(HELLO, 0)
    release = threading.Event()

    def hang(*_: Any) -> tuple[int, Any, dict[str, str]]:
        release.wait(5)
        return says("late")

    with serving(hang) as endpoint:
        chat, _ = client(endpoint, retries=0, timeout_s=0.1)
        with pytest.raises(EndpointError, match="ReadTimeout"):
            chat.complete(HELLO, 0)
        release.set()


@pytest.mark.parametrize(
    ("status", "message", "advice"),
    [(401, "bad key", "OPENAI_API_KEY"), (404, "no model m", "model's name"), (400, "temperature must be 1", "temperature must be 1")],
)
def test_what_no_retry_mends_is_told_at_once(status: int, message: str, advice: str) -> None:
    with serving(lambda *_: fails(status, message)) as endpoint:
        chat, pauses = client(endpoint)
        with pytest.raises(EndpointError, match=advice):
            chat.complete(HELLO, 0)
    assert pauses == []


def test_an_empty_account_is_not_a_rate_limit() -> None:
    answer = (429, {"error": {"message": "quota", "code": "insufficient_quota"}}, {})
    with serving(lambda *_: answer) as endpoint:
        chat, pauses = client(endpoint)
        with pytest.raises(EndpointError, match="429"):
            chat.complete(HELLO, 0)
    assert pauses == []


def test_the_newer_name_of_the_token_limit_is_learned_once() -> None:
    def script(_: int, body: dict[str, Any], __: Any) -> tuple[int, Any, dict[str, str]]:
        return fails(400, "Use 'max_completion_tokens' instead.") if "max_tokens" in body else says(str(body["max_completion_tokens"]))

    with serving(script) as endpoint:
        chat, _ = client(endpoint, max_new_tokens=33)
        assert [chat.complete(HELLO, 0).text for _ in range(2)] == ["33", "33"]
    assert len(endpoint.requests) == 3


def test_a_conversation_that_is_too_long_has_its_own_error() -> None:
    answer = (400, {"error": {"message": "too many tokens", "code": "context_length_exceeded"}}, {})
    with serving(lambda *_: answer) as endpoint, pytest.raises(ContextFullError):
        client(endpoint)[0].complete(HELLO, 0)


def test_addresses_and_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(EndpointError, match=r"expected an API key for https://api\.openai\.com/v1.*OPENAI_API_KEY"):
        make_player("openai:gpt-x")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1/")
    assert make_player("openai:gpt-x").settings["base_url"] == "http://127.0.0.1:9/v1"
    with pytest.raises(AgentError, match="model's name"):
        make_player("openai:")


def crafting(_: int, body: dict[str, Any], __: Any) -> tuple[int, Any, dict[str, str]]:
    """A model that plays TextCraft as its expert does, from the conversation alone."""
    seen = [m["content"] for m in body["messages"] if m["role"] == "user"]
    agent = expert("textcraft")
    agent.reset(Observation(seen[0]), dict)
    for text in seen:
        decision = agent.act(Observation(text))
    return says(f"Thought: {decision.thought}\nAction: {decision.action}", prompt_tokens=10, completion_tokens=4)


def test_episodes_run_side_by_side_within_the_limit() -> None:
    specs = [EpisodeSpec("textcraft", f"textcraft_{i}") for i in range(12)]

    def slowly(*request: Any) -> tuple[int, Any, dict[str, str]]:
        time.sleep(0.02)  # long enough for the other requests to come in
        return crafting(*request)

    with serving(slowly) as endpoint, SessionPool("textcraft") as pool:
        chat, _ = client(endpoint)
        episodes = play_chat(chat, specs, {"textcraft": pool}, 20, concurrency=4)
    assert [e.spec for e in episodes] == specs
    assert all(e.success for e in episodes)
    assert 1 < endpoint.most <= 4
    assert sum(len(e.turns) for e in episodes) == len(endpoint.requests)
    roles = [m["role"] for m in max(endpoint.requests, key=lambda r: len(r["body"]["messages"]))["body"]["messages"]]
    assert roles[:2] == ["system", "user"]
    assert roles[2:] == ["assistant", "user"] * ((len(roles) - 2) // 2)
    assert episodes[0].info["usage"] == {
        "requests": len(episodes[0].turns),
        "prompt_tokens": 10 * len(episodes[0].turns),
        "completion_tokens": 4 * len(episodes[0].turns),
    }
    summary = summarize(episodes)
    assert summary.usage["requests"] == len(endpoint.requests)
    assert summary.reply_tokens == pytest.approx(4 * len(endpoint.requests) / 12)


def test_replies_without_an_action_and_full_contexts_end_episodes() -> None:
    def script(_: int, body: dict[str, Any], __: Any) -> tuple[int, Any, dict[str, str]]:
        if len(body["messages"]) > 4:
            return 400, {"error": {"message": "m", "code": "context_length_exceeded"}}, {}
        return says("I do not know.")

    spec = EpisodeSpec("textcraft", "textcraft_0")
    with serving(script) as endpoint, SessionPool("textcraft") as pool:
        chat, _ = client(endpoint)
        (short,) = play_chat(chat, [spec], {"textcraft": pool}, 2)
        (long,) = play_chat(chat, [spec], {"textcraft": pool}, 9)
    assert (short.stop_reason, len(short.turns)) == (StopReason.MAX_ROUNDS, 2)
    assert (long.stop_reason, len(long.turns)) == (StopReason.CONTEXT_FULL, 2)
    assert all(t.invalid and t.action is None for t in long.turns)


def test_an_evaluation_that_the_endpoint_broke_goes_on_where_it_was(tmp_path: Any) -> None:
    down = threading.Event()

    def script(number: int, body: dict[str, Any], headers: Any) -> tuple[int, Any, dict[str, str]]:
        if number > 30:
            down.set()
        return fails(401) if down.is_set() and number < 1000 else crafting(number, body, headers)

    suite = load_suite("lite27")
    only = ["textcraft/depth_1"]
    with serving(script) as endpoint:
        options = {"base_url": endpoint.url, "api_key": "k", "concurrency": 2}
        with pytest.raises(EndpointError):
            evaluate(make_player("openai:m", **options), suite, tmp_path, only=only)
        kept = (tmp_path / "trajectories.jsonl").read_text()
        assert 0 < kept.count("\n") < 31
        endpoint.script = crafting
        results = evaluate(make_player("openai:m", **options), suite, tmp_path, only=only)
    assert (tmp_path / "trajectories.jsonl").read_text().startswith(kept)
    assert results.overall.success is not None
    assert (results.overall.episodes, results.overall.success.value) == (31, 1.0)
    assert "k" not in json.loads((tmp_path / "settings.json").read_text()).values()  # a key is no setting


def test_the_command_line_plays_an_endpoint(monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Any) -> None:
    from agentgym_lite.cli import main

    with serving(crafting) as endpoint:
        args = [
            "--only",
            "textcraft/depth_4",
            "--base-url",
            endpoint.url,
            "--concurrency",
            "3",
            "--max-new-tokens",
            "77",
            "--out",
            tmp_path,
        ]
        monkeypatch.setattr(sys, "argv", ["agl", "eval", "--agent", "openai:m", "--json", *map(str, args)])
        with pytest.raises(SystemExit) as exit_:
            main()
    assert exit_.value.code == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tasks"]["textcraft/depth_4"]["success"]["value"] == 1.0
    assert {r["body"]["max_tokens"] for r in endpoint.requests} == {77}
