"""The HTTP protocol: every answer, every error, limits and start-up, against a real server."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fake_envs import Counter
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentgym_envs.server import ServeError, background_server, main, serve

LIMIT = 2_000_000


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    with (
        background_server(["counter", "trouble", "sleepy"], max_sessions=200, max_body_bytes=LIMIT) as url,
        httpx.Client(base_url=url, timeout=10) as client,
    ):
        yield client


def new(http: httpx.Client, env: str = "counter", item: int = 5) -> str:
    return str(http.post(f"/{env}/create", json={"item_id": item}).json()["id"])


def assert_error(response: httpx.Response, status: int, code: str, *words: str) -> None:
    body = response.json()
    assert (response.status_code, body["error"]) == (status, code), body
    assert body["status"] == status
    for word in words:
        assert word in body["message"]


def test_an_episode_by_hand(http: httpx.Client) -> None:
    session = http.post("/counter/create").json()["id"]
    opening = http.post("/counter/reset", json={"id": session, "item_id": "counter_1", "seed": 4}).json()
    assert opening == {
        "id": session,
        "turn": 0,
        "observation": "Reach 2. Count 0, seed 4.",
        "actions": ["up", "down"],
        "observation_info": {"count": 0},
    }
    assert http.get("/counter/available_actions", params={"id": session}).json()["actions"] == ["up", "down"]
    step = http.post("/counter/step", json={"id": session, "action": "up", "turn": 0}).json()
    assert (step["observation"], step["reward"], step["done"], step["turn"]) == ("Move 1. Count 1, seed 4.", 0.0, False, 0)
    assert step["info"] == {"success": False, "invalid": False, "score": 1}
    assert http.get("/counter/observation", params={"id": session}).json()["turn"] == 1
    last = http.post("/counter/step", json={"id": session, "action": "up", "turn": 1}).json()
    assert (last["reward"], last["done"], last["info"]["success"]) == (1.0, True, True)
    assert http.get("/counter/render", params={"id": session}).json()["render"]["kind"] == "counter"
    assert http.post("/counter/close", json={"id": session}).json() == {"id": session, "closed": True}
    assert_error(http.post("/counter/close", json={"id": session}), 404, "unknown_session", session)


def test_what_is_served(http: httpx.Client) -> None:
    for path in ("/", "/health"):
        answer = http.get(path).json()
        assert (answer["status"], answer["envs"]) == ("ok", ["counter", "trouble", "sleepy"])
    health = http.get("/counter/health").json()
    assert (health["env"], health["max_sessions"], health["ttl_s"]) == ("counter", 200, 1800.0)
    metadata = http.get("/counter/metadata").json()
    assert metadata["item_counts"] == {"train": 8, "eval": 4}
    assert metadata["tasks"]["train"] == {"even": 4, "odd": 4}
    assert metadata["items"]["eval"][0] == "counter_8"
    assert "/{env}/step" in http.get("/openapi.json").json()["paths"]


def test_batches_answer_in_order_with_errors_inside(http: httpx.Client) -> None:
    a, b = new(http), new(http)
    entries: list[Any] = [
        {"id": a, "action": "up", "turn": 0},
        {"id": "nobody", "action": "up", "turn": 0},
        {"id": b, "action": "down", "turn": 0},
        {"id": b, "action": "down", "turn": 9},
        {"id": b, "action": 3, "turn": 1},
        {"id": b, "turn": 1},
        "rubbish",
        {"id": b, "action": "down", "turn": 1},
    ]
    results = http.post("/counter/step", json={"steps": entries}).json()["results"]
    codes = [r.get("error") for r in results]
    assert codes == [None, "unknown_session", None, "wrong_turn", "invalid_request", "invalid_request", "invalid_request", None]
    assert [r["info"]["score"] for r in results if "info" in r] == [1, -1, -2]
    assert "action" in results[5]["message"]
    assert results[1]["status"] == 404


def test_batched_create_reset_close(http: httpx.Client) -> None:
    creates = [{"id": f"batch-{i}", "item_id": i, "seed": i} for i in (0, 1, 99)]
    results = http.post("/counter/create", json={"creates": creates}).json()["results"]
    assert [r.get("observation", r.get("error")) for r in results] == [
        "Reach 1. Count 0, seed 0.",
        "Reach 2. Count 0, seed 1.",
        "unknown_item",
    ]
    resets = [{"id": "batch-0", "item_id": 3}, {"id": "batch-2", "item_id": 3}]
    results = http.post("/counter/reset", json={"resets": resets}).json()["results"]
    assert [r.get("observation", r.get("error")) for r in results] == ["Reach 4. Count 0, seed 0.", "unknown_session"]
    results = http.post("/counter/close", json={"closes": [{"id": "batch-0"}, {"id": "batch-1"}, {"id": "batch-2"}]}).json()["results"]
    assert [r.get("closed", r.get("error")) for r in results] == [True, True, "unknown_session"]
    assert http.post("/counter/step", json={"steps": []}).json() == {"results": []}


def test_one_failure_in_a_batch_is_alone(http: httpx.Client) -> None:
    sessions = [new(http, "trouble") for _ in range(5)]
    actions = ["up", "raise", "json", "nan", "up"]
    entries = [{"id": s, "action": a, "turn": 0} for s, a in zip(sessions, actions, strict=True)]
    results = http.post("/trouble/step", json={"steps": entries}).json()["results"]
    assert [r.get("error") for r in results] == [None, *["environment_failed"] * 3, None]
    assert "found object" in results[2]["message"]
    assert http.get("/trouble/health").json()["failed"] == 3
    assert_error(http.post("/trouble/step", json=entries[1]), 404, "unknown_session")
    assert http.post("/trouble/step", json={"id": sessions[0], "action": "up", "turn": 1}).json()["info"]["score"] == 2
    session = new(http, "trouble")
    assert_error(http.post("/trouble/step", json={"id": session, "action": "raise"}), 500, "environment_failed", "the world fell apart")


@pytest.mark.parametrize(
    ("method", "path", "status", "code", "word"),
    [
        ("POST", "/nosuch/create", 404, "unknown_environment", "counter, sleepy, trouble"),
        ("GET", "/nosuch/health", 404, "unknown_environment", "'nosuch'"),
        ("GET", "/counter/nosuch", 404, "not_found", "/docs"),
        ("GET", "/counter/step", 405, "method_not_allowed", "found GET '/counter/step'"),
        ("GET", "/counter/observation", 422, "invalid_request", "id"),
        ("GET", "/counter/observation?id=nobody", 404, "unknown_session", "create a new one"),
        ("GET", "/counter/available_actions?id=nobody", 404, "unknown_session", "nobody"),
        ("GET", "/counter/render?id=nobody", 404, "unknown_session", "nobody"),
        ("GET", "/counter/render?id=" + "x" * 200, 422, "invalid_request", "128"),
    ],
)
def test_wrong_addresses(http: httpx.Client, method: str, path: str, status: int, code: str, word: str) -> None:
    assert_error(http.request(method, path), status, code, word)


@pytest.mark.parametrize(
    ("body", "status", "code", "word"),
    [
        (b"", 400, "malformed_json", "JSON object"),
        (b'{"id": "a", ', 400, "malformed_json", '{"id": "a", '),
        (b"\xff\xfe\x00", 400, "malformed_json", "JSON object"),
        (b"[" * 100_000, 400, "malformed_json", "JSON object"),
        (b'{"id": ' + b"9" * 5000 + b"}", 400, "malformed_json", "JSON object"),
        (b"[1, 2]", 422, "invalid_request", "found list"),
        (b"null", 422, "invalid_request", "found NoneType"),
        (b'{"id": "a", "action": "up", "trun": 0}', 422, "invalid_request", "trun"),
        (b'{"id": "a", "turn": 0}', 422, "invalid_request", "action"),
        (b'{"id": 5, "action": "up"}', 422, "invalid_request", "found 5"),
        (b'{"id": "a", "action": "up", "turn": "0"}', 422, "invalid_request", "turn"),
        (b'{"id": "a", "action": "up", "turn": -1}', 422, "invalid_request", "turn"),
        (b'{"steps": {}}', 422, "invalid_request", "steps"),
        (b'{"steps": [], "wait_s": "long"}', 422, "invalid_request", "wait_s"),
        (b'{"steps": [], "wait_s": NaN}', 422, "invalid_request", "wait_s"),
        (b'{"steps": [], "id": "a"}', 422, "invalid_request", "steps"),
        (b'{"id": "nobody", "action": "up"}', 404, "unknown_session", "create a new one"),
    ],
)
def test_wrong_bodies(http: httpx.Client, body: bytes, status: int, code: str, word: str) -> None:
    response = http.post("/counter/step", content=body, headers={"Content-Type": "application/json"})
    assert_error(response, status, code, word)


def test_wrong_items_and_seeds(http: httpx.Client) -> None:
    session = new(http)
    for item in (99, "counter_99", "other_1", -1):
        assert_error(http.post("/counter/reset", json={"id": session, "item_id": item}), 404, "unknown_item", "metadata lists the items")
    for extra in ({"item_id": 1.5}, {"item_id": True}, {"item_id": 1, "seed": -1}, {"item_id": 1, "seed": 2**63}, {}):
        assert_error(http.post("/counter/reset", json={"id": session, **extra}), 422, "invalid_request")
    assert http.post("/counter/step", json={"id": session, "action": "up", "turn": 0}).json()["info"]["score"] == 1


def test_wrong_turn(http: httpx.Client) -> None:
    session, steps = new(http), Counter.steps
    first = http.post("/counter/step", json={"id": session, "action": "up", "turn": 0})
    assert http.post("/counter/step", json={"id": session, "action": "up", "turn": 0}).content == first.content
    assert_error(http.post("/counter/step", json={"id": session, "action": "up", "turn": 5}), 409, "wrong_turn", "expected turn 1, found 5")
    assert Counter.steps == steps + 1


def test_action_of_a_megabyte_is_answered(http: httpx.Client) -> None:
    session = new(http)
    step = http.post("/counter/step", json={"id": session, "action": "x" * 1_000_000, "turn": 0}).json()
    assert step["info"]["invalid"] is True
    assert http.post("/counter/step", json={"id": session, "action": "up", "turn": 1}).json()["info"]["score"] == 1


def test_body_over_the_limit(http: httpx.Client) -> None:
    session = new(http)
    body = json.dumps({"id": session, "action": "x" * (LIMIT + 1), "turn": 0}).encode()

    def pieces() -> Iterator[bytes]:  # sent without a length
        for i in range(0, len(body), 50_000):
            yield body[i : i + 50_000]

    for content in (body, pieces()):
        response = http.post("/counter/step", content=content, headers={"Content-Type": "application/json"})
        assert_error(response, 413, "body_too_large", str(LIMIT))
    assert http.post("/counter/step", json={"id": session, "action": "up", "turn": 0}).json()["info"]["score"] == 1


def test_capacity_and_expiry_over_http() -> None:
    with background_server(["counter"], max_sessions=2, ttl_s=0.3) as url, httpx.Client(base_url=url) as http:
        live = Counter.live
        first, _ = new(http), new(http)
        assert_error(http.post("/counter/create"), 503, "capacity", "--max-sessions")
        http.post("/counter/close", json={"id": first})
        new(http)
        deadline = time.monotonic() + 5
        while http.get("/counter/health").json()["sessions"] and time.monotonic() < deadline:
            time.sleep(0.05)
        assert http.get("/counter/health").json()["expired"] == 2
        assert Counter.live == live


def test_stopping_closes_every_session() -> None:
    live = Counter.live
    with background_server(["counter"]) as url, httpx.Client(base_url=url) as http:
        new(http), new(http)
        assert Counter.live == live + 2
    assert Counter.live == live


def test_token() -> None:
    with background_server(["counter"], token="sesame") as url, httpx.Client(base_url=url) as http:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "sesame"}, {"Authorization": "Bearer sesam\u00e9"}):
            response = http.post("/counter/create", headers={k: v.encode("latin-1") for k, v in headers.items()}, json={})
            assert_error(response, 401, "unauthorized", "Authorization: Bearer TOKEN")
            assert response.headers["WWW-Authenticate"] == "Bearer"
        assert http.get("/").status_code == 401
        assert http.get("/docs").status_code == 401
        assert http.get("/health").status_code == 200
        assert http.post("/counter/create", headers={"Authorization": "Bearer sesame"}).status_code == 200


def test_slow_session_does_not_hold_up_others(http: httpx.Client) -> None:
    slow, fast = new(http, "sleepy"), [new(http, "sleepy") for _ in range(20)]
    entries = [{"id": slow, "action": "sleep 1", "turn": 0}, *({"id": s, "action": "up", "turn": 0} for s in fast)]
    began = time.perf_counter()
    results = http.post("/sleepy/step", json={"steps": entries, "wait_s": 0.1}).json()["results"]
    assert time.perf_counter() - began < 0.8
    assert [r.get("error") for r in results] == ["pending"] + [None] * 20
    assert http.post("/sleepy/step", json={"id": fast[0], "action": "up", "turn": 1}).json()["info"]["score"] == 2
    while (again := http.post("/sleepy/step", json=entries[0])).status_code == 503:
        assert again.json()["error"] == "session_busy"
    assert again.json()["info"]["score"] == 1
    assert http.post("/sleepy/step", json={"id": slow, "action": "up", "turn": 1}).json()["info"]["score"] == 2, "carried out once"


def test_slow_batch_runs_in_parallel(http: httpx.Client) -> None:
    sessions = [new(http, "sleepy") for _ in range(20)]
    began = time.perf_counter()
    entries = [{"id": s, "action": "sleep 0.2", "turn": 0} for s in sessions]
    results = http.post("/sleepy/step", json={"steps": entries}).json()["results"]
    assert all(r["info"]["score"] == 1 for r in results)
    assert time.perf_counter() - began < 2.0, "one after the other takes 4 s"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.sampled_from(["id", "action", "turn", "steps", "x"]), children),
    max_leaves=12,
)
BATCHES = st.lists(JSON).map(lambda v: json.dumps({"steps": v}).encode())
BODIES = st.binary(max_size=60) | JSON.map(lambda v: json.dumps(v).encode()) | BATCHES


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(endpoint=st.sampled_from(["create", "reset", "step", "close"]), body=BODIES)
def test_no_body_breaks_the_server(http: httpx.Client, endpoint: str, body: bytes) -> None:
    response = http.post(f"/trouble/{endpoint}", content=body)
    answer = response.json()
    if response.status_code == 200:
        assert "results" in answer or "id" in answer
        if endpoint == "create":
            http.post("/trouble/close", json={"id": answer["id"]})
    else:
        assert 400 <= response.status_code < 500
        assert answer["error"]
        assert answer["message"]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(action=st.text(max_size=200), item=st.integers(-20, 20) | st.text(max_size=20))
def test_any_text_is_an_action_and_any_item_is_answered(http: httpx.Client, action: str, item: int | str) -> None:
    session = new(http)
    answer = http.post("/counter/step", json={"id": session, "action": action, "turn": 0}).json()
    assert answer["info"]["invalid"] == (action not in ("up", "down"))
    assert http.post("/counter/reset", json={"id": session, "item_id": item}).status_code in (200, 404)
    assert http.post("/counter/close", json={"id": session}).status_code == 200


# -- start-up -----------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        yield sock.getsockname()[1]


def test_port_in_use_is_one_clear_line(taken_port: int) -> None:
    command = [sys.executable, "-m", "agentgym_envs.server", "textcraft", "--port", str(taken_port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"port {taken_port} on 127.0.0.1 is in use" in done.stderr
    assert "--port" in done.stderr


def test_other_addresses_need_a_token(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("AGENTGYM_TOKEN", raising=False)
    for host in ("0.0.0.0", "::", "example.com", "192.168.0.7", ""):
        with pytest.raises(ServeError, match="expected a token"):
            serve(["counter"], host=host, port=0)
    assert main(["counter", "--host", "0.0.0.0", "--port", "0"]) == 1
    assert "--token" in capsys.readouterr().err


@pytest.mark.parametrize("port", [-1, 70_000])
def test_impossible_port(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["counter", "--port", str(port)]) == 1
    assert "cannot listen" in capsys.readouterr().err


def test_unknown_environment_is_not_served(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nosuch"]) == 1
    error = capsys.readouterr().err
    assert "nosuch" in error
    assert "textcraft" in error
