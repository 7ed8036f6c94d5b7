"""What strangers may send: paths, methods, content types, pages of other sites, numbers and nesting without bounds, 10,000 texts."""

from __future__ import annotations

import http.client
import json
import random
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from fake_envs import Counter
from shipped import PARAMETERS

from agentgym_envs.agents import random_agent
from agentgym_envs.core import Environment, StepResult, environment_class, make
from agentgym_envs.server import background_server

LIMIT = 200_000
Reply = tuple[int, dict[str, Any]]


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    with background_server(["counter", "trouble"], max_sessions=50, max_body_bytes=LIMIT) as url:
        host, port = url.removeprefix("http://").split(":")
        yield host, int(port)


def send(address: tuple[str, int], method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
    """A request whose path goes out as it is written: httpx would tidy it up. The answer must be JSON."""
    connection = http.client.HTTPConnection(*address, timeout=20)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        assert response.headers["Content-Type"] == "application/json"
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def assert_refused(reply: Reply, status: int, code: str) -> None:
    found, body = reply
    assert (found, body["error"], body["status"]) == (status, code, status), body
    assert body["message"]


def new(address: tuple[str, int]) -> str:
    return str(send(address, "POST", "/counter/create", b'{"item_id": 5}')[1]["id"])


# -- paths and methods ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/../../etc/passwd", "not_found"),
        ("/%2e%2e/%2e%2e/etc/passwd", "not_found"),
        ("/..%2f..%2fetc%2fpasswd", "not_found"),
        ("/counter/../trouble/health", "not_found"),
        ("/counter/%2e%2e/health/", "not_found"),
        ("/counter%2fhealth/x/y", "not_found"),
        ("//counter/health", "not_found"),
        ("/counter//health", "not_found"),
        ("/./health", "unknown_environment"),
        ("/%2e%2e/health", "unknown_environment"),
        ("/COUNTER/health", "unknown_environment"),
        ("/counter%00/health", "unknown_environment"),
        ("/counter%0d%0aX-Evil:%201/health", "unknown_environment"),
        ("/%ff%fe/health", "unknown_environment"),
        ("/__class__/metadata", "unknown_environment"),
        ("/" + "a" * 20_000 + "/health", "unknown_environment"),
    ],
)
def test_paths_lead_nowhere_else(address: tuple[str, int], path: str, code: str) -> None:
    reply = send(address, "GET", path)
    assert_refused(reply, 404, code)
    assert len(reply[1]["message"]) < 500, "an error must not repeat all of a long path"


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "TRACE", "OPTIONS"])
def test_other_methods(address: tuple[str, int], method: str) -> None:
    assert_refused(send(address, method, "/counter/step"), 405, "method_not_allowed")


@pytest.mark.parametrize("session", ["../counter", "%00", "nobody", "a" * 128, "' OR 1=1 --", "<script>", "⚑"])
@pytest.mark.parametrize("endpoint", ["step", "reset", "close"])
def test_unknown_sessions(address: tuple[str, int], endpoint: str, session: str) -> None:
    extra = {"step": {"action": "up"}, "reset": {"item_id": 1}, "close": {}}[endpoint]
    assert_refused(send(address, "POST", f"/counter/{endpoint}", json.dumps({"id": session} | extra).encode()), 404, "unknown_session")


def test_sessions_of_one_environment_are_unknown_to_another(address: tuple[str, int]) -> None:
    body = json.dumps({"id": new(address), "action": "up"}).encode()
    assert_refused(send(address, "POST", "/trouble/step", body), 404, "unknown_session")


def test_what_is_not_http_is_refused_and_the_server_lives_on(address: tuple[str, int]) -> None:
    for raw in (b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"POST /counter/step HTTP/1.1\r\nContent-Length: -5\r\n\r\n"):
        with socket.create_connection(address, timeout=5) as sock:
            sock.sendall(raw + b"\r\n\r\n")
            assert b" 400 " in sock.recv(1000).partition(b"\r\n")[0]
    assert send(address, "GET", "/health")[0] == 200


# -- bodies -----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "json", ""])
def test_other_content_types(address: tuple[str, int], kind: str) -> None:
    assert_refused(send(address, "POST", "/counter/create", b"{}", Content_Type=kind), 415, "unsupported_media_type")


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8"])
def test_json_content_types(address: tuple[str, int], kind: str) -> None:
    assert send(address, "POST", "/counter/create", b"{}", Content_Type=kind)[0] == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1", "file://"])
def test_pages_of_other_sites(address: tuple[str, int], origin: str) -> None:
    before = send(address, "GET", "/counter/health")[1]["sessions"]
    assert_refused(send(address, "POST", "/counter/create", b"{}", Origin=origin), 403, "foreign_origin")
    assert send(address, "GET", "/counter/health")[1]["sessions"] == before
    own = f"http://{address[0]}:{address[1]}"
    assert send(address, "POST", "/counter/create", b"{}", Origin=own)[0] == 200, "the server's own pages, such as /docs, may"


HUGE = str(10**400)
NUMBERS = ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1e400", HUGE, "-" + HUGE, "0.5", "1.0", "null", '"7"', "[]", "true"]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda n: n[:12])
def test_numbers_that_are_none(address: tuple[str, int], number: str) -> None:
    session, raw = new(address), number.encode()
    head = f'{{"id": "{session}", '.encode()
    for endpoint, field in (("reset", b'"item_id": 1, "seed": '), ("step", b'"action": "up", "turn": ')):
        if (endpoint, number) != ("step", "null"):  # a turn may be left out
            status, body = send(address, "POST", f"/counter/{endpoint}", head + field + raw + b"}")
            assert (status, body["error"]) in [(422, "invalid_request"), (409, "wrong_turn")], body
    status, body = send(address, "POST", "/counter/reset", head + b'"item_id": ' + raw + b"}")
    assert (status, body["error"]) in [(422, "invalid_request"), (404, "unknown_item")], body
    if number != "null":  # wait without end is the default
        timed = b'{"steps": [], "wait_s": ' + raw + b"}"
        status, body = send(address, "POST", "/counter/step", timed)
        assert status == (200 if number in ("0.5", "1.0") else 422), body
    assert send(address, "POST", "/counter/step", head + b'"action": "up", "turn": 0}')[1]["info"]["score"] == 1, "nothing has changed"


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 50_000 + b"]" * 50_000,
        b'{"a":' * 30_000 + b"1" + b"}" * 30_000,
        b'{"id": ' + b"[" * 900 + b"]" * 900 + b', "action": "up"}',
        b'{"steps": [' + b"[" * 900 + b"]" * 900 + b"]}",
        b'{"id": "a", "action": "up", "turn": ' + b"9" * 100_000 + b"}",
        b'{"id": "a", "id": "b", "action": "\\ud800"}',
    ],
    ids=["lists", "objects", "deep id", "deep entry", "long number", "surrogate"],
)
def test_nesting_and_length_without_bounds(address: tuple[str, int], body: bytes) -> None:
    status, answer = send(address, "POST", "/counter/step", body)
    if status == 200:
        assert answer["results"][0]["error"] == "invalid_request"
    else:
        assert status in (400, 404, 422)
        assert len(answer["message"]) < 1000
    assert send(address, "GET", "/health")[0] == 200


def test_a_lone_surrogate_is_an_action(address: tuple[str, int]) -> None:
    body = f'{{"id": "{new(address)}", "action": "\\ud800", "turn": 0}}'.encode()
    status, answer = send(address, "POST", "/counter/step", body)
    assert (status, answer["info"]["invalid"]) == (200, True)


def test_a_batch_of_very_many_entries_is_refused(address: tuple[str, int]) -> None:
    def batch(n: int) -> bytes:
        return b'{"steps": [' + b",".join([b"{}"] * n) + b"]}"

    assert_refused(send(address, "POST", "/counter/step", batch(4097)), 413, "batch_too_large")
    status, answer = send(address, "POST", "/counter/step", batch(4096))
    assert (status, len(answer["results"]), {r["error"] for r in answer["results"]}) == (200, 4096, {"invalid_request"})


def test_without_the_token_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with background_server(["counter"], token="sesame", max_body_bytes=LIMIT) as url:
        host, port = url.removeprefix("http://").split(":")
        for path in (
            "/",
            "/docs",
            "/openapi.json",
            "/counter/health",
            "/counter/metadata",
            "/health/../counter/health",
            "/agentgym/counter/",
        ):
            assert_refused(send((host, int(port)), "GET", path), 401, "unauthorized")
        steps = Counter.steps
        for path in ("/counter/create", "/agentgym/counter/create", "/counter/step"):
            assert_refused(send((host, int(port)), "POST", path, b"x" * (LIMIT + 1)), 401, "unauthorized")
        assert Counter.steps == steps
        assert send((host, int(port)), "GET", "/health")[0] == 200


# -- actions ----------------------------------------------------------------------------------------------------------------------------

PIECES = [
    *(
        "get",
        "craft",
        "using",
        "go to",
        "pickup",
        "focus on",
        "click [1]",
        "type [3] [x] [1]",
        "goto [http://a.b]",
        "<search>",
        "</search>",
    ),
    *(
        "<answer>",
        "Action:",
        "Thought:",
        "```",
        "```python",
        '{"action": ',
        "[[",
        "]]",
        "{",
        "}",
        "(",
        "*",
        "\\",
        "'",
        '"',
        "%s",
        "{0}",
        "$(id)",
    ),
    *(
        "__import__('os')",
        "1; DROP TABLE x",
        "../../etc",
        "\x00",
        "\r\n",
        "\t",
        "\u202e",
        "\ufeff",
        "\ud800",
        "🙂",
        "ÄÖ",
        "木",
        "٣",
        "½",
        "١٢",
    ),
    *(
        "0",
        "-1",
        "1e309",
        "NaN",
        "9" * 30,
        "9" * 5000,
        " ",
        "  ",
        "a",
        "the",
        "of",
        "tab_focus [99]",
        "scroll [down]",
        "press [Enter]",
        "stop [x]",
    ),
]


def texts(env: Environment, listed: list[str], n: int) -> Iterator[str]:
    """Rubbish that looks like actions: pieces of grammars put together, real actions cut, doubled, reversed and with a letter changed."""
    rng = random.Random(env.name)
    for _ in range(n):
        action = rng.choice(listed)
        at = rng.randrange(len(action) + 1)
        yield rng.choice(
            [
                " ".join(rng.choices(PIECES, k=rng.randint(1, 6))),
                action[:at],
                action[:at] + rng.choice(PIECES) + action[at:],
                action[:at] + chr(rng.randrange(0x2000)) + action[at + 1 :],
                f"{action}\n{rng.choice(listed)}",
                action.upper(),
                action[::-1],
                action,
            ]
        )


#: Environments in which 10,000 steps take minutes.
SLOW_STEPS = {"sciworld", "searchqa"}


@pytest.mark.parametrize("name", PARAMETERS)
def test_no_text_breaks_an_environment(name: str) -> None:
    env, agent, item = make(name), random_agent(name), environment_class(name).items("train")[0]
    observation = env.reset(item)
    agent.reset(observation, env.render)
    listed = [*env.available_actions(), *(agent.act(observation).action for _ in range(20))]
    total = valid = 0
    for text in texts(env, listed, 500 if name in SLOW_STEPS else 10_000):
        result = env.step(text)
        assert_sound(result)
        valid += not result.info["invalid"]
        total += 1
        if result.done:
            env.reset(item)
    env.close()
    assert 0.02 < valid / total < 0.9, "the texts should reach beyond the parser, and not always"


def assert_sound(result: StepResult) -> None:
    assert isinstance(result.observation.text, str)
    assert result.observation.text
    assert 0.0 <= result.reward <= 1.0
    assert isinstance(result.info["invalid"], bool)
    assert not (result.info["invalid"] and result.reward)
