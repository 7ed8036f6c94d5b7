"""OpenEnv's protocol on a raw WebSocket, without a server process and without the ``openenv`` package."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import fake_envs
import pytest
from fastapi.testclient import TestClient
from starlette.testclient import WebSocketDenialResponse, WebSocketTestSession

from agentgym_envs.app import create_app


@pytest.fixture
def client() -> Iterator[TestClient]:
    with TestClient(create_app(["counter", "trouble"], max_sessions=2)) as client:
        yield client


def say(socket: WebSocketTestSession, kind: str, **data: Any) -> dict[str, Any]:
    socket.send_json({"type": kind, "data": data} if kind in ("reset", "step") else {"type": kind})
    answer: dict[str, Any] = socket.receive_json()
    return answer


def code(answer: dict[str, Any]) -> str:
    assert answer["type"] == "error", answer
    return str(answer["data"]["code"])


def test_an_episode_by_hand(client: TestClient) -> None:
    with client.websocket_connect("/counter/ws") as socket:
        opening = say(socket, "reset", item_id="counter_1", seed=4)
        assert opening == {
            "type": "observation",
            "data": {
                "observation": {"text": "Reach 2. Count 0, seed 4.", "actions": ["up", "down"]},
                "reward": None,
                "done": False,
                "metadata": {"count": 0},
            },
        }
        assert say(socket, "step", text="up")["data"]["reward"] == 0.0
        last = say(socket, "step", text="Thought: one more\nAction: up")["data"]
        assert (last["reward"], last["done"], last["metadata"]["success"]) == (1.0, True, True)
        state = {"episode_id": "counter_1/4", "step_count": 2, "item_id": "counter_1", "seed": 4}
        assert say(socket, "state") == {"type": "state", "data": state}


@pytest.mark.parametrize("goodbye", ["close message", "disconnect"])
def test_the_session_ends_with_the_connection(client: TestClient, goodbye: str) -> None:
    before = fake_envs.Counter.live
    with client.websocket_connect("/counter/ws") as socket:
        say(socket, "reset", item_id="counter_1")
        assert fake_envs.Counter.live == before + 1
        if goodbye == "close message":
            socket.send_json({"type": "close"})
            assert socket.receive()["type"] == "websocket.close"
    assert client.get("/counter/health").json()["sessions"] == 0
    assert fake_envs.Counter.live == before


def test_two_connections_are_two_sessions(client: TestClient) -> None:
    with client.websocket_connect("/counter/ws") as a, client.websocket_connect("/counter/ws") as b:
        say(a, "reset", item_id="counter_3")
        say(b, "reset", item_id="counter_0")
        assert say(b, "step", text="up")["data"]["done"] is True
        assert say(a, "step", text="up")["data"]["done"] is False


def test_a_full_server_says_so_and_hangs_up(client: TestClient) -> None:
    with client.websocket_connect("/counter/ws") as a, client.websocket_connect("/counter/ws") as b:
        say(a, "reset")
        say(b, "reset")
        with client.websocket_connect("/counter/ws") as third:
            answer = third.receive_json()
            assert (code(answer), answer["data"]["active_sessions"], answer["data"]["max_sessions"]) == ("CAPACITY_REACHED", 2, 2)
            assert third.receive()["type"] == "websocket.close"
    with client.websocket_connect("/counter/ws") as socket:
        assert say(socket, "reset")["type"] == "observation"


def test_reset_chooses_by_split_and_index_or_by_seed(client: TestClient) -> None:
    with client.websocket_connect("/counter/ws") as socket:
        assert say(socket, "reset", split="eval", index=1)["data"]["observation"]["text"].startswith("Reach 10.")
        drawn = {say(socket, "reset", seed=s)["data"]["observation"]["text"] for s in range(20)}
        assert len(drawn) == 20
        items = set()
        for s in range(20):
            say(socket, "reset", seed=s)
            items.add(say(socket, "state")["data"]["item_id"])
        assert 3 < len(items) <= 8  # of the eight training items
        twice = [say(socket, "reset", seed=7)["data"] for _ in range(2)]
        assert twice[0] == twice[1]
        say(socket, "reset", episode_id="mine", item_id=2)
        assert say(socket, "state")["data"]["episode_id"] == "mine"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("{", "INVALID_JSON"),
        ("[]", "VALIDATION_ERROR"),
        ("3", "VALIDATION_ERROR"),
        ("{}", "VALIDATION_ERROR"),
        ('{"type": "fly"}', "UNKNOWN_TYPE"),
        ('{"type": "step"}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {}}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"text": 3}}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"text": "up", "speed": 1}}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"text": "up"}}', "EXECUTION_ERROR"),  # before any reset
        ('{"type": "reset", "data": {"item_id": "counter_99"}}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {"split": "eval", "index": 4}}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {"split": "test", "index": 0}}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {"seed": -1}}', "VALIDATION_ERROR"),
        ("[" * 100_000, "INVALID_JSON"),
    ],
)
def test_bad_messages_get_a_code_and_leave_the_connection_open(client: TestClient, raw: str, expected: str) -> None:
    with client.websocket_connect("/counter/ws") as socket:
        socket.send_text(raw)
        assert code(socket.receive_json()) == expected
        assert say(socket, "reset", item_id="counter_0")["type"] == "observation"


def test_unknown_reset_fields_are_dropped_as_in_openenv(client: TestClient) -> None:
    with client.websocket_connect("/counter/ws") as socket:
        assert say(socket, "reset", item_id="counter_0", difficulty="hard")["type"] == "observation"


@pytest.mark.parametrize("action", ["raise", "reward", "json", "nan"])
def test_after_a_failure_of_the_environment_reset_goes_on(client: TestClient, action: str) -> None:
    with client.websocket_connect("/trouble/ws") as socket:
        say(socket, "reset", item_id="trouble_3")
        assert code(say(socket, "step", text=action)) == "EXECUTION_ERROR"
        assert code(say(socket, "step", text="up")) == "EXECUTION_ERROR"
        assert say(socket, "reset", item_id="trouble_0")["type"] == "observation"
        assert say(socket, "step", text="up")["data"]["done"] is True
    assert client.get("/trouble/health").json()["sessions"] == 0


def test_schema_describes_what_is_sent(client: TestClient) -> None:
    schema = client.get("/counter/schema").json()
    assert schema["action"]["required"] == ["text"]  # exactly one: generic clients put a model's raw reply there
    assert {"text", "actions"} <= schema["observation"]["properties"].keys()
    assert {"episode_id", "step_count"} <= schema["state"]["properties"].keys()
    assert client.get("/nowhere/schema").status_code == 404
    health, metadata = client.get("/counter/health").json(), client.get("/counter/metadata").json()
    assert health["status"] == "healthy"
    assert metadata["description"].startswith("Count up")


def test_task_api(client: TestClient) -> None:
    assert client.get("/list_environments").json() == ["counter", "trouble"]
    assert client.get("/counter/splits").json() == [{"name": "train", "type": "train"}, {"name": "eval", "type": "test"}]
    ninth = {"item_id": "counter_9", "task": "odd", "split": "eval", "index": 1}
    tasks = client.post("/counter/tasks", json={"split": "eval"}).json()
    assert (tasks["env_name"], len(tasks["tasks"]), tasks["tasks"][1]) == ("counter", 4, ninth)
    assert client.post("/counter/num_tasks", json={"split": "train"}).json() == {"num_tasks": 8}
    assert client.post("/counter/task", json={"split": "eval", "index": 1}).json() == {"task": ninth}
    assert client.post("/counter/task_range", json={"split": "eval", "start": 1, "stop": 2}).json() == {"tasks": [ninth]}
    assert client.post("/counter/task", json={"split": "eval", "index": 4}).status_code == 400
    assert client.post("/counter/tasks", json={"split": "test"}).status_code == 422
    assert client.post("/nowhere/tasks", json={"split": "eval"}).status_code == 404


def test_unknown_environments_missing_tokens_and_foreign_pages_are_refused() -> None:
    with TestClient(create_app(["counter"], token="secret")) as client:
        good = {"Authorization": "Bearer secret"}
        refusals = {
            ("/counter/ws", ()): 401,
            ("/counter/ws", (("Authorization", "Bearer wrong"),)): 401,
            ("/nowhere/ws", tuple(good.items())): 404,
            ("/counter/ws", (*good.items(), ("Origin", "https://evil.example"))): 403,
        }
        for (path, headers), status in refusals.items():
            with pytest.raises(WebSocketDenialResponse) as refused, client.websocket_connect(path, headers=dict(headers)):
                pass
            assert refused.value.status_code == status
            assert refused.value.json()["status"] == status
        for headers in (good, {**good, "Origin": "http://testserver"}):
            with client.websocket_connect("/counter/ws", headers=headers) as socket:
                assert say(socket, "reset")["type"] == "observation"


def test_answers_are_plain_json(client: TestClient) -> None:
    with client.websocket_connect("/counter/ws") as socket:
        socket.send_text(json.dumps({"type": "reset"}))
        assert json.loads(socket.receive_text())["type"] == "observation"
