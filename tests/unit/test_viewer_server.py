"""The viewer's pages and JSON API, and the live game behind them."""

from __future__ import annotations

import json
import re

import pytest
from fastapi.testclient import TestClient
from viewer_factory import WordTokenizer, play

from agentgym_envs.agents import expert
from agentgym_lite.agents import ExpertPolicy
from agentgym_lite.client import SessionPool
from agentgym_lite.rollout.types import Generation, SamplingParams
from agentgym_lite.viewer import TrajectoryStore
from agentgym_lite.viewer.live import LiveError, LiveGame, ModelAgent, PolicyAgent
from agentgym_lite.viewer.server import ViewerError, create_live_app, create_replay_app, serve_viewer


@pytest.fixture
def replay(tmp_path):
    episodes = [play("textcraft", item, expert("textcraft"), WordTokenizer()) for item in ("textcraft_29", "textcraft_30")]
    (tmp_path / "trajectories.jsonl").write_text("".join(json.dumps({"step": i, **e.to_dict()}) + "\n" for i, e in enumerate(episodes)))
    return client(create_replay_app(TrajectoryStore(tmp_path)))


@pytest.fixture
def game():
    with SessionPool("textcraft", "local") as pool:
        played = LiveGame("textcraft", PolicyAgent("expert", ExpertPolicy("textcraft")), item="textcraft_29", max_rounds=3, pool=pool)
        yield played
        played.close()


def client(app) -> TestClient:
    return TestClient(app, base_url="http://127.0.0.1")


def token(c: TestClient) -> dict[str, str]:
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', c.get("/").text).group(1))
    return {"X-AGL-Token": data["server"]["token"]}


def whole_index(c: TestClient) -> list[list]:
    found: list[list] = []
    for _ in range(1000):
        answer = c.get("/api/index", params={"start": len(found)}).json()
        found += answer["rows"]
        if answer["done"]:
            return found
    raise AssertionError("the index never ended")


def test_the_api_answers_list_body_search_and_export(replay):
    assert [row[4] for row in whole_index(replay)] == ["textcraft_29", "textcraft_30"]
    body = replay.get("/api/body", params={"id": 1}).json()
    assert (body["item"], body["step"], body["turns"][0]["render"]["kind"]) == ("textcraft_30", 1, "textcraft")
    assert replay.get("/api/search", params={"text": "TEXTCRAFT_30"}).json() == {"ids": [1]}
    page = replay.post("/api/export", json={"ids": [1]}, headers=token(replay))
    assert (page.status_code, "textcraft_30" in page.text, "textcraft_29" in page.text) == (200, True, False)


def test_errors_say_what_to_do(replay):
    whole_index(replay)
    assert replay.get("/api/body", params={"id": 9}).status_code == 400
    assert "reload the page" in replay.get("/api/body", params={"id": 9}).json()["detail"]
    empty = replay.post("/api/export", json={"ids": []}, headers=token(replay))
    assert (empty.status_code, "at least one trajectory" in empty.json()["detail"]) == (400, True)


def test_other_sites_are_kept_out(replay, game):
    assert replay.post("/api/export", json={"ids": [0]}).status_code == 403
    assert TestClient(replay.app, base_url="http://evil.example").get("/api/index").status_code == 400
    live = client(create_live_app(game))
    assert [live.post(f"/api/live/{move}", json={"text": "x"}).status_code for move in ("state", "begin", "act", "advance")] == [403] * 4
    page = live.get("/")
    assert "connect-src &#39;self&#39;" in page.text
    assert page.headers["cache-control"] == "no-store"


def test_human_and_agent_play_in_turns(game):
    live = client(create_live_app(game))
    key = token(live)
    state = live.post("/api/live/state", headers=key).json()
    assert (state["agent"], state["finished"], state["body"]["item"], state["body"]["stop"]) == ("expert", False, "textcraft_29", "playing")
    assert "get 1 diamond" in state["actions"]
    state = live.post("/api/live/advance", headers=key).json()
    assert [(t["action"], t["by"]) for t in state["body"]["turns"]] == [("get 4 diamond", "expert")]
    assert state["body"]["end"]["render"]["inventory"] == {"diamond": 4}
    state = live.post("/api/live/act", json={"text": "craft 1 diamond boots using 4 diamond"}, headers=key).json()
    assert (state["finished"], state["body"]["success"], state["body"]["reward"], state["actions"]) == (True, True, 1.0, [])
    assert state["body"]["turns"][1]["reply"] == "Action: craft 1 diamond boots using 4 diamond"
    assert state["body"]["turns"][1]["render"]["inventory"] == {"diamond": 4}
    over = live.post("/api/live/advance", headers=key)
    assert (over.status_code, over.json()["detail"]) == (400, "the episode is over; begin a new one")
    state = live.post("/api/live/begin", json={"item": "textcraft_30", "seed": 1}, headers=key).json()
    assert (state["body"]["item"], state["body"]["seed"], state["body"]["turns"]) == ("textcraft_30", 1, [])


def test_a_human_may_write_a_whole_reply_and_rounds_end(game):
    game.state()
    game.act("Thought: I wonder.\nAction: inventory")
    game.act("nonsense")
    state = game.act("inventory")
    assert [(t["reply"], t["invalid"]) for t in state["body"]["turns"]] == [
        ("Thought: I wonder.\nAction: inventory", False),
        ("Action: nonsense", True),
        ("Action: inventory", False),
    ]
    assert (state["finished"], state["body"]["stop"]) == (True, "max_rounds")


def test_a_wrong_item_and_a_missing_agent_are_told():
    with SessionPool("textcraft", "local") as pool:
        alone = LiveGame("textcraft", None, item="", pool=pool)
        assert alone.state()["agent"] is None
        with pytest.raises(LiveError, match="no agent was named"):
            alone.advance()
        with pytest.raises(LiveError, match="expected an item id such as 'textcraft_0'"):
            alone.begin("nope", 0)
        assert alone.state()["body"]["stop"] == "playing"  # the episode before goes on
        alone.close()


def test_a_stuck_agent_is_told_and_the_human_goes_on():
    class Stuck:
        def reset(self, observation, render): ...

        def act(self, observation):
            raise ValueError("no plan")

    with SessionPool("textcraft", "local") as pool:
        game = LiveGame("textcraft", PolicyAgent("expert", Stuck()), item="textcraft_29", pool=pool)
        game.state()
        with pytest.raises(LiveError, match=r"expert cannot go on from here \(no plan\)"):
            game.advance()
        assert len(game.act("inventory")["body"]["turns"]) == 1
        game.close()


def test_a_model_reads_the_whole_conversation_and_its_tokens_are_shown():
    class Tokenizer:
        def decode(self, ids, **_):
            return {1: "Action:", 2: " inventory", 3: "<|im_end|>"}[ids[0]]

    class Renderer:
        tokenizer = Tokenizer()

        def __init__(self):
            self.read = []

        def opening(self, messages):
            self.read.append([m["role"] for m in messages])
            return [0] * len(messages)

        def decode(self, ids):
            return "Action: inventory"

    class Engine:
        max_length, max_sessions = 50, 1
        open_sessions = 0

        def open(self):
            self.open_sessions += 1
            return 5

        def submit(self, session, ids, sampling, seed):
            self.answers = [[], [Generation(session, [1, 2, 3], [-0.1, -0.2, -0.3], True)]]

        def step(self):
            return self.answers.pop(0)

        def release(self, session):
            self.open_sessions -= 1

    engine, renderer = Engine(), Renderer()
    with SessionPool("textcraft", "local") as pool:
        game = LiveGame("textcraft", ModelAgent("tiny", engine, renderer, SamplingParams(max_new_tokens=8)), item="textcraft_29", pool=pool)
        game.state()
        game.act("get 1 diamond")
        body = game.advance()["body"]
        engine.max_length = 10
        with pytest.raises(LiveError, match="leaves no room for a reply"):
            game.advance()
        game.close()
    assert renderer.read[0] == ["system", "user", "assistant", "user"]
    assert engine.open_sessions == 0
    assert (body["turns"][1]["start"], body["turns"][1]["end"], body["rows"][0]["logprob"]) == (0, 3, [-0.1, -0.2, -0.3])
    assert body["vocab"] == {1: "Action:", 2: " inventory", 3: "<|im_end|>"}


def test_a_port_in_use_is_told(replay):
    import socket

    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ViewerError, match=r"choose another one with --port \(0 takes any free one\)"):
            serve_viewer(replay.app, other.getsockname()[1], print)
