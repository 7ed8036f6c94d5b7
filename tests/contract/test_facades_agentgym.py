"""AgentGym's dialects: what its client classes send, and what they need to find in the answers, for each of the five environments."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import facade_envs
import httpx
import pytest

from agentgym_envs import core
from agentgym_envs.facades.agentgym import DIALECTS
from agentgym_envs.server import background_server

#: Requests recorded from AgentGym's own client classes, with the fields and types that they got; see docs/protocols.md.
RECORDED: dict[str, list[dict[str, Any]]] = json.loads((Path(__file__).parents[1] / "data" / "agentgym_exchanges.json").read_text())


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    with pytest.MonkeyPatch.context() as patch:
        for name, target in facade_envs.STAND_INS.items():
            patch.setitem(core._REGISTRY, name, target)
        served = ["textcraft", "babyai", "counter", "trouble", *facade_envs.STAND_INS]
        with background_server(served, max_sessions=30) as url, httpx.Client(base_url=f"{url}/agentgym", timeout=10) as client:
            yield client


def shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: shape(v) for k, v in value.items()}
    names = {bool: "bool", int: "number", float: "number", str: "str", type(None): "null", list: "list"}
    return names[type(value)]


def test_every_dialect_is_recorded() -> None:
    assert RECORDED.keys() == DIALECTS.keys()


@pytest.mark.parametrize("env", sorted(RECORDED))
def test_recorded_requests_get_answers_of_the_same_form(http: httpx.Client, env: str) -> None:
    handle = "env_idx" if env in ("searchqa", "webarena") else "id"
    number: int | None = None
    for exchange in RECORDED[env]:
        body = exchange["json"]
        if number is not None:
            body = {**body, handle: number}
        answer = http.request(exchange["method"], f"/{env}/{exchange['path']}", json=body)
        assert (answer.status_code, shape(answer.json())) == (exchange["status"], exchange["answer"]), exchange
        if exchange["path"] == "create":
            created = answer.json()
            number = created if isinstance(created, int) else created[handle]


def test_textcraft_by_hand(http: httpx.Client) -> None:
    created = http.post("/textcraft/create", json={"minecraft_dir": "x", "commands": None, "goal": None}).json()
    assert created.keys() == {"id", "observation", "done", "reward"}
    n = created["id"]
    reset = http.post("/textcraft/reset", json={"id": n, "data_idx": 31}).json()
    assert (reset["id"], reset["done"], reset["reward"]) == (n, False, 0)
    assert reset["observation"].startswith("Crafting commands:\n")
    step = http.post("/textcraft/step", json={"id": n, "action": "inventory"}).json()
    assert step == {"observation": "Inventory: empty", "reward": 0, "done": False}
    assert http.get("/textcraft/observation", params={"id": n}).json() == "Inventory: empty"
    assert http.get("/textcraft/detail", params={"id": n}).json()["deleted"] is False
    assert http.post("/textcraft/close", json={"id": n}).json() is True


def test_textcraft_sessions_start_on_one_item_after_another(http: httpx.Client) -> None:
    first, second = (http.post("/textcraft/create", json={}).json() for _ in range(2))
    assert second["id"] == first["id"] + 1
    assert first["observation"] != second["observation"]
    for n in (first["id"], second["id"]):
        http.post("/textcraft/close", json={"id": n})
    answer = http.post("/textcraft/create", json={"commands": "craft 1 x using 1 y", "goal": "x"})
    assert answer.status_code == 422


def babyai(http: httpx.Client, item: int = 1) -> tuple[int, dict[str, Any]]:
    n = http.post("/babyai/create").json()["id"]
    return n, http.post("/babyai/reset", json={"id": n, "data_idx": item}).json()


def test_babyai_lists_actions_and_repeats_the_goal_on_request(http: httpx.Client) -> None:
    n, reset = babyai(http)
    assert {k: v for k, v in reset.items() if k != "observation"} == {"reward": 0, "score": 0, "deleted": False, "done": False}
    goal, *_, actions = reset["observation"].split("\n")
    assert goal.startswith("Your goal: ")
    assert json.loads(actions.removeprefix("Available actions: "))[0] == "turn left"
    step = http.post("/babyai/step", json={"id": n, "action": "turn left"}).json()
    assert step.keys() == {"observation", "reward", "score", "done"}
    assert not step["observation"].startswith("Your goal")
    observed = http.get("/babyai/observation", params={"id": n}).json()
    assert observed["observation"] == f"{goal}\n{step['observation']}"
    assert http.post("/babyai/render", json={"id": n}).json().startswith("data:image/svg+xml;base64,")
    http.post("/babyai/close", json={"id": n})


def test_babyai_pays_a_success_once_and_ends(http: httpx.Client) -> None:
    """The reference's score grows with every action after a slow success."""
    n, _ = babyai(http, 0)  # go to the red ball, alone in its room
    done: dict[str, Any] = {}
    for action in ["go to red ball 1", "turn left", "go to red ball 1", "turn left", "go to red ball 1", "turn left", "go to red ball 1"]:
        done = http.post("/babyai/step", json={"id": n, "action": action}).json()
        if done["done"]:
            break
    assert done["done"]
    assert 0 < done["score"] == done["reward"] <= 1
    again = http.post("/babyai/step", json={"id": n, "action": "turn left"})
    assert (again.status_code, again.json().keys()) == (200, {"error"})
    assert "finished" in again.json()["error"]
    http.post("/babyai/close", json={"id": n})


def test_sciworld_scores_are_raw_and_rewards_are_their_changes(http: httpx.Client) -> None:
    n = http.post("/sciworld/create").json()["id"]
    reset = http.post("/sciworld/reset", json={"id": n, "data_idx": 3}).json()
    assert (reset["task_name"], reset["var_num"], reset["task_description"]) == ("boil", 3, "Your task is to count.")
    assert reset["observation"] == "Reach 4. Count 0, seed 0."
    assert http.get("/sciworld/task_description", params={"id": n}).json() == {"task_description": "Your task is to count."}
    steps = [http.post("/sciworld/step", json={"id": n, "action": a}).json() for a in ("up", "up", "down", "up", "up", "up")]
    assert [s["score"] for s in steps] == [25, 50, 25, 50, 75, 100]
    assert [s["reward"] for s in steps] == [25, 25, -25, 25, 25, 25]
    assert [s["done"] for s in steps] == [False] * 5 + [True]
    assert "finished" in http.post("/sciworld/step", json={"id": n, "action": "up"}).json()["error"]
    http.post("/sciworld/close", json={"id": n})


def test_searchqa_answers_bare_values_and_reads_whole_replies(http: httpx.Client) -> None:
    n = http.post("/searchqa/create", json={"id": 0}).json()
    assert isinstance(n, int)
    assert http.get("/searchqa/observation", params={"env_idx": n}).json() == "Reach 1. Count 0, seed 0."
    assert http.post("/searchqa/reset", json={"env_idx": n, "id": 2}).json() == "Reach 3. Count 0, seed 0."
    reply = "<think>first <i>up</i></think><search>up</search> then <answer>down</answer>"
    step = http.post("/searchqa/step", json={"env_idx": n, "action": reply}).json()
    assert step == {"observation": "Move 1. Count 1, seed 0.", "reward": 0.0, "done": False, "info": None}
    assert http.post("/searchqa/reset", json={"env_idx": n, "id": None}).status_code == 422
    assert http.post("/searchqa/step", json={"env_idx": n + 1, "action": "x"}).status_code == 500
    assert http.post("/searchqa/close", json={"env_idx": n}).json() is True


def test_webarena_reads_the_first_block_and_ends_with_terminated(http: httpx.Client) -> None:
    n = http.post("/webarena/create").json()["env_idx"]
    reset = http.post("/webarena/reset", json={"env_idx": n, "seed": 0, "idx": 1}).json()
    assert (reset["sites"], reset["object"]) == (["odd"], "count up")
    reply = "I will count. In summary, the next action I will perform is ```up``` and later ```down```"
    first, last = (http.post("/webarena/step", json={"env_idx": n, "action": reply}).json() for _ in range(2))
    assert (first["reward"], first["terminated"], first["truncated"]) == (0.0, False, False)
    assert (last["reward"], last["terminated"], last["info"]["success"]) == (1.0, True, True)
    assert http.post("/webarena/close", json={"env_idx": n}).json() == {"closed": "closed"}
    lost = http.post("/webarena/step", json={"env_idx": n, "action": reply})
    assert (lost.status_code, lost.json()["terminated"]) == (200, False)
    assert http.post("/webarena/reset", json={"env_idx": n, "seed": 0, "idx": 1}).json()["observation"] == "TimeoutError"


@pytest.mark.parametrize(
    ("path", "body", "status", "found"),
    [
        ("/counter/step", {"id": 999, "action": "up"}, 200, "error"),  # what AgentGym's clients take for a lost session
        ("/counter/reset", {"id": 999, "data_idx": 0}, 200, "error"),
        ("/counter/step", {"id": "0", "action": "up"}, 422, "message"),
        ("/counter/step", {"action": "up"}, 422, "message"),
        ("/counter/step", {"id": 0, "action": None}, 422, "message"),
        ("/nowhere/create", {}, 404, "message"),
        ("/counter/fly", {}, 404, "message"),
        ("/counter/render", {"id": 0}, 404, "message"),
    ],
)
def test_errors_have_the_status_that_clients_expect(http: httpx.Client, path: str, body: Any, status: int, found: str) -> None:
    answer = http.post(path, json=body)
    assert (answer.status_code, found in answer.json()) == (status, True), answer.text


def test_an_environment_without_an_entry_speaks_the_common_dialect(http: httpx.Client) -> None:
    n = http.post("/counter/create").json()["id"]
    assert "reset" in http.post("/counter/step", json={"id": n, "action": "up"}).json()["error"]
    assert http.post("/counter/reset", json={"id": n, "data_idx": 0}).json() == {
        "id": n,
        "observation": "Reach 1. Count 0, seed 0.",
        "done": False,
        "reward": 0,
    }
    assert http.post("/counter/step", json={"id": n, "action": "up"}).json()["done"] is True
    assert http.post("/counter/close", json={"id": n}).json() is True
    assert http.get("/counter/").json() == "This is environment counter."


def test_a_failing_environment_is_told_and_costs_only_its_session(http: httpx.Client) -> None:
    n = http.post("/trouble/create").json()["id"]
    http.post("/trouble/reset", json={"id": n, "data_idx": 3})
    assert "ZeroDivisionError" in http.post("/trouble/step", json={"id": n, "action": "raise"}).json()["error"]
    assert "error" in http.post("/trouble/step", json={"id": n, "action": "up"}).json()


def test_a_full_server_refuses_create_with_its_own_status(http: httpx.Client) -> None:
    opened = []
    while (answer := http.post("/counter/create")).status_code == 200:
        opened.append(answer.json()["id"])
        assert len(opened) <= 30
    assert (answer.status_code, answer.json()["error"]) == (503, "capacity")
    for n in opened:
        http.post("/counter/close", json={"id": n})
