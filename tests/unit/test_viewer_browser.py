"""The front end in headless Chromium: what is drawn, pressed and typed, over HTTP, from a file, and with hostile text."""

from __future__ import annotations

import contextlib
import json
import math
import re
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from viewer_factory import WordTokenizer, play, write_run

from agentgym_envs.agents import expert, random_agent
from agentgym_lite.agents import ExpertPolicy
from agentgym_lite.client import SessionPool
from agentgym_lite.rollout.types import EpisodeSpec, StopReason, TokenRow, Trajectory, Turn
from agentgym_lite.viewer import (
    TrajectoryStore,
    browse_html,
    compare_html,
    export_html,
    replay_html,
    tokens_html,
    with_renderings,
    write_report,
)
from agentgym_lite.viewer.component import script
from agentgym_lite.viewer.live import LiveGame, PolicyAgent
from agentgym_lite.viewer.server import create_live_app, create_replay_app

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
sync_api = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install playwright")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium found; on Debian or Ubuntu: apt-get install chromium"),
]
HOSTILE = "</script><script>window.hacked=1</script>\"'><img src=x onerror=window.hacked=1>\u202e\x1b[31m<!--<script>"


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-background-networking"])
        yield started
        started.close()


@pytest.fixture
def page(browser):
    """A page on which no script may fail."""
    opened = browser.new_page(viewport={"width": 1300, "height": 900})
    errors: list[str] = []
    opened.on("pageerror", lambda e: errors.append(str(e)))
    yield opened
    opened.close()
    assert errors == []


@contextlib.contextmanager
def served(app) -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def show(page, view, tmp_path: Path, query: str = "") -> None:
    page.goto(f"file://{view.save(tmp_path / 'page.html')}{query}")
    page.wait_for_selector("[data-agl][data-ready]")


def small(k: int, env: str = "babyai", task: str = "goto", success: bool = False, said: str = "go", rounds: int = 2) -> Trajectory:
    turns = [Turn(f"seen {n}", f"{said} {n}", f"act {n}") for n in range(rounds)]
    reason = StopReason.SUCCESS if success else StopReason.MAX_ROUNDS
    return Trajectory(EpisodeSpec(env, f"{env}_{k}"), [], turns, reason, task, "other", 5, "the end")


def write(folder: Path, lines) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "trajectories.jsonl").open("w") as f:
        f.writelines(json.dumps({"step": step, **t.to_dict()}) + "\n" for step, t in lines)
    return folder


@pytest.fixture
def runs(tmp_path):
    """24 trajectories of two runs; item babyai_0 at steps 1, 2 and 3 of training, with success at last."""
    write(tmp_path / "train", [(s, small(0, success=s == 3, said=f"step{s}", rounds=s)) for s in (3, 1, 2)] + [(1, small(1))])
    write(tmp_path / "other", [(None, small(k, "textcraft", f"depth_{k % 4 + 1}", k % 2 == 0, f"word{k}", 1 + k % 3)) for k in range(20)])
    return tmp_path


def items(page) -> list[str]:
    return page.eval_on_selector_all(".grid .row", "rows => rows.map(r => r.querySelector('.item').textContent)")


def wait_count(page, text: str) -> None:
    page.wait_for_function("t => document.querySelector('.count').textContent.startsWith(t)", arg=text)


def where(page) -> list[str]:
    """Turn that each trajectory shows."""
    return page.eval_on_selector_all(".pane", "panes => panes.map(p => p.dataset.turn)")


# -- the player ------------------------------------------------------------------------------------------------------------------------


def test_buttons_slider_keys_and_play_move_all_replays(page, tmp_path):
    folder, tokenizer = write_run(tmp_path)
    report = write_report(folder, tokenizer.decode)
    page.clock.install()
    page.goto(f"file://{report}?turn=2")
    page.wait_for_selector(".pane")
    log = [where(page)]

    def note(act) -> None:
        act()
        log.append(where(page))

    for name in ("Next turn", "Previous turn", "End of the episode", "First turn"):
        note(lambda name=name: page.click(f'button[aria-label="{name}"]'))
    note(lambda: page.click(".pane >> nth=0 >> .turns li >> nth=3 >> button"))
    page.focus(".player")
    for key in ("ArrowRight", "ArrowLeft", "End", "Home"):
        note(lambda key=key: page.keyboard.press(key))
    assert log == [["1", "1"], ["2", "2"], ["1", "1"], ["10", "4"], ["0", "0"], ["3", "3"], ["4", "4"], ["3", "3"], ["10", "4"], ["0", "0"]]
    page.keyboard.press("Space")
    assert page.inner_text(".play") == "Pause"
    page.clock.run_for(3000)
    assert where(page) == ["2", "2"]
    page.keyboard.press("Space")
    page.clock.run_for(3000)
    assert (where(page), page.inner_text(".play")) == (["2", "2"], "Play")
    page.select_option('[aria-label="Speed"]', "fast")
    page.click(".play")
    page.clock.run_for(10_000)
    assert (where(page), page.inner_text(".play"), page.inner_text("output")) == (["10", "4"], "Play", "end")


def test_replies_are_the_sampled_tokens_in_every_colour(page, tmp_path):
    tokenizer = WordTokenizer()
    t = play("textcraft", "textcraft_29", expert("textcraft"), tokenizer)
    show(page, replay_html(t, tokenizer.decode), tmp_path)
    row, turn = t.rows[0], t.turns[0]
    drawn = page.eval_on_selector_all(".said.agent .t", "ts => ts.map(t => [t.textContent, t.className, t.title])")
    sampled = [tokenizer.decode(i) for i in row.token_ids[turn.start : turn.end]]
    assert [text for text, _, _ in drawn] == [s.replace(" ", "·").replace("\n", "⏎\n") for s in sampled]
    classes = [sum(math.exp(p) >= step for step in (0.05, 0.2, 0.5, 0.9)) for p in row.logprobs[turn.start : turn.end]]
    assert [int(re.search(r"p(\d)", c).group(1)) for _, c, _ in drawn] == classes
    assert f"log-prob {row.logprobs[turn.start]:.3f}" in drawn[0][2]
    assert " x " in drawn[-1][1]  # the end-of-turn token is special
    assert page.eval_on_selector_all('[aria-label="Colour of tokens"] option', "os => os.map(o => [o.textContent, o.disabled])") == [
        ["log-prob", False],
        ["mask", False],
        ["advantage (not in the file)", True],
        ["ratio (not in the file)", True],
    ]
    page.click("summary")
    page.wait_for_selector(".token-block")
    assert page.locator(".token-block .t.c").count() == row.action_mask.count(0)
    assert page.locator(".token-block .t.s").count() == sum(row.action_mask)


def test_advantages_and_ratios_are_coloured_by_sign_and_size(page, tmp_path):
    row = TokenRow()
    row.append_context([0], -1)
    row.append_action([1, 2, 3], [-0.1] * 3, 0)
    t = Trajectory(EpisodeSpec("babyai", "babyai_1"), [row], [Turn("o", "abc", "a", start=1, end=4)])
    values = {"advantage": [[9, -2, 1, 2]], "ratio": [[1, 1.5, 1, 1 / 1.5]]}
    write(tmp_path, [(1, t)])
    line = json.loads((tmp_path / "trajectories.jsonl").read_text())
    (tmp_path / "trajectories.jsonl").write_text(json.dumps({**line, "token_values": values}) + "\n")
    store = TrajectoryStore(tmp_path, "tiny")
    store.scan()
    path = tmp_path / "x.html"
    path.write_text(export_html(store, [0]))
    page.goto(f"file://{path}#open=0&turn=1")
    page.wait_for_selector(".said.agent .t")

    def drawn(mode: str) -> list[list[str]]:
        page.select_option('[aria-label="Colour of tokens"]', mode)
        return page.eval_on_selector_all(
            ".said.agent .t", "ts => ts.map(t => [t.className.split(' ').at(-1), t.style.getPropertyValue('--w')])"
        )

    assert drawn("advantage") == [["neg", "75%"], ["pos", "38%"], ["pos", "75%"]]  # the context's 9 does not set the scale
    assert drawn("ratio") == [["pos", "75%"], ["pos", "0%"], ["neg", "75%"]]
    assert drawn("mask") == [["m", ""]] * 3


def test_token_view_shows_mask_and_blocks(page, tmp_path):
    row = TokenRow()
    row.append_context([0, 1], -1)
    row.append_action([2, 3], [math.log(0.95), math.log(0.01)], 0)
    row.append_context([1], 1)
    texts = ["<|im_start|>", "user\n", "go left", "\tx"]
    show(page, tokens_html(row, texts.__getitem__), tmp_path)
    assert page.locator(".token-block .tag").all_text_contents() == ["opening", "turn 1", "turn 2"]
    assert page.locator(".token-block .t").all_text_contents() == ["<|im_start|>", "user⏎\n", "go·left", "⇥x", "user⏎\n"]
    assert page.locator(".token-block .t").evaluate_all("ts => ts.map(t => t.className)") == ["t x c", "t c", "t s p4", "t s p0", "t c"]


# -- the list --------------------------------------------------------------------------------------------------------------------------


def test_filters_search_and_sorting(page, runs):
    with served(create_replay_app(TrajectoryStore(runs))) as url:
        page.goto(url)
        wait_count(page, "24 of 24 trajectories")
        page.select_option("[name=env]", "babyai")
        wait_count(page, "4 of 24")
        page.select_option("[name=outcome]", "success")
        wait_count(page, "1 of 24 trajectories, 100 %")
        page.click("text=Clear")
        page.fill("[name=step_low]", "2")
        wait_count(page, "2 of 24")
        page.fill("[name=rounds_low]", "3")
        wait_count(page, "1 of 24")
        page.click("text=Clear")
        page.select_option("[name=task]", "depth_2")
        wait_count(page, "5 of 24")
        page.select_option("[name=stop]", "success")
        wait_count(page, "0 of 24")
        page.click("text=Clear")
        page.fill("[name=text]", "WORD13")
        wait_count(page, "1 of 24")
        assert items(page) == ["13"]
        page.fill("[name=text]", "")
        wait_count(page, "24 of 24")
        page.click(".head .rounds button")
        assert page.get_attribute(".head .rounds", "aria-sort") == "ascending"
        page.click(".head .rounds button")
        rounds = page.eval_on_selector_all(".grid .row", "rows => rows.map(r => parseInt(r.querySelector('.rounds').textContent))")
        assert (rounds == sorted(rounds, reverse=True), page.get_attribute(".head .rounds", "aria-sort")) == (True, "descending")
        page.select_option("[name=run]", "train")
        page.click(".head .step button")
        assert items(page) == ["0", "1", "0", "0"]


def test_everything_can_be_done_with_keys(page, runs):
    with served(create_replay_app(TrajectoryStore(runs))) as url:
        page.goto(url)
        wait_count(page, "24 of 24")
        page.focus(".grid")
        page.keyboard.press("/")
        page.keyboard.type("step1")
        wait_count(page, "1 of 24")
        page.keyboard.press("Escape")
        page.keyboard.press("Enter")
        page.wait_for_selector(".pane")
        assert "training step 1" in page.inner_text(".facts")
        assert page.locator(".family button").all_text_contents() == ["1 ✗", "2 ✗", "3 ✓"]  # by step, whatever the order of the file
        page.keyboard.press("]")
        page.wait_for_function("() => document.querySelector('.facts').textContent.includes('training step 2')")
        page.keyboard.press("ArrowRight")
        assert where(page) == ["1"]
        page.fill("[name=text]", "")
        wait_count(page, "24 of 24")
        page.focus(".grid")
        page.keyboard.press("Home")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("c")
        page.wait_for_function("() => document.querySelectorAll('.pane').length === 2")
        assert where(page) == ["1", "1"]
        assert re.search(r"#open=\d+,1&turn=2$", page.url)
        page.keyboard.press("x")
        page.wait_for_function("() => document.querySelectorAll('.pane').length === 1")
        page.keyboard.press("?")
        assert page.locator("dialog").is_visible()
        page.keyboard.press("Escape")
        page.focus(".grid")
        assert page.eval_on_selector(".grid", "g => getComputedStyle(g).outlineStyle") == "solid"
        cursor = page.get_attribute(".grid", "aria-activedescendant")
        assert page.locator(f"#{cursor}.cursor").get_attribute("role") == "row"


def test_a_link_opens_what_it_names(page, runs):
    with served(create_replay_app(TrajectoryStore(runs))) as url:
        page.goto(f"{url}#open=20,22&turn=2")
        page.wait_for_function("() => document.querySelectorAll('.pane').length === 2")
        page.wait_for_function("() => document.querySelector('.player').dataset.turn === '1'")


def test_marked_trajectories_are_exported_to_a_file_that_works_alone(page, runs, tmp_path):
    with served(create_replay_app(TrajectoryStore(runs))) as url:
        page.goto(url)
        wait_count(page, "24 of 24")
        page.focus(".grid")
        for key in ("m", "ArrowDown", "ArrowDown", "m"):
            page.keyboard.press(key)
        with page.expect_download() as download:
            page.click("text=Export")
        download.value.save_as(tmp_path / "chosen.html")
    page.goto(f"file://{tmp_path / 'chosen.html'}")
    wait_count(page, "2 of 2")
    page.fill("[name=text]", "word2")
    wait_count(page, "1 of 2")
    page.click(".row")
    page.wait_for_selector(".pane")
    assert page.inner_text(".said.env .text") == "seen 0"


def test_what_is_too_large_to_export_is_told(page, runs):
    with served(create_replay_app(TrajectoryStore(runs), limit_mb=0.001)) as url:
        page.goto(url)
        wait_count(page, "24 of 24")
        page.click("text=Export")
        page.wait_for_selector("text=more than the limit of 0.001 MB")


def test_lines_added_later_come_with_reload(page, runs):
    with served(create_replay_app(TrajectoryStore(runs))) as url:
        page.goto(url)
        wait_count(page, "24 of 24")
        with (runs / "train" / "trajectories.jsonl").open("a") as f:
            f.write(json.dumps({"step": 4, **small(0).to_dict()}) + "\nbroken\n")
        page.click("text=Reload")
        wait_count(page, "25 of 25")
        page.wait_for_selector("text=1 lines could not be read")


def test_ten_thousand_trajectories_appear_fast_and_few_are_in_the_page(page, tmp_path):
    lines = [json.dumps({"step": k, **small(k, said="x" * 2000).to_dict()}) + "\n" for k in range(100)]
    with (tmp_path / "trajectories.jsonl").open("w") as f:
        for _ in range(100):
            f.writelines(lines)
    with served(create_replay_app(TrajectoryStore(tmp_path))) as url:
        page.goto(url)
        began = time.monotonic()
        page.wait_for_selector(".row")
        first = time.monotonic() - began
        wait_count(page, "10000 of 10000")
        assert first < 5  # seconds, on a busy machine
        assert page.locator(".row").count() < 80
        page.focus(".grid")
        page.keyboard.press("End")
        page.wait_for_selector('.row[data-id="9999"].cursor')
        assert page.locator(".row").count() < 80
        for _ in range(5):
            page.keyboard.press("PageUp")
        began = time.monotonic()
        page.select_option("[name=outcome]", "success")
        wait_count(page, "0 of 10000")
        page.click("text=Clear")
        wait_count(page, "10000 of 10000")
        page.click(".head .step button")
        page.wait_for_selector('.row[data-id="100"]')  # next to number 0, both of step 0
        assert time.monotonic() - began < 5
        heap = page.evaluate("performance.memory ? performance.memory.usedJSHeapSize : 0")
        assert heap < 60e6


# -- hostile text ----------------------------------------------------------------------------------------------------------------------


def test_hostile_text_is_shown_and_never_runs(page, tmp_path):
    row = TokenRow()
    row.append_action([0], [-1.0], 0)
    kinds = ["babyai", "textcraft", "sciworld", "searchqa", "webarena", HOSTILE]
    rooms = [{"name": HOSTILE, "things": [{"name": HOSTILE, "contents": []}]}, {"name": "b", "things": []}]
    house = {"task": HOSTILE, "place": HOSTILE, "places": rooms, "doors": [{"between": [HOSTILE, "b"]}], "inventory": []}
    passage = {"title": HOSTILE, "text": HOSTILE, "score": 1.0}
    renders = [
        {"kind": "textcraft", "goal": HOSTILE, "inventory": {HOSTILE: 1}, "tree": {"item": HOSTILE}},
        {"kind": "sciworld", **house},
        {"kind": "searchqa", "question": HOSTILE, "steps": [{"search": HOSTILE, "passages": [passage]}, {"answer": HOSTILE, "em": 0}]},
        {"kind": "webarena", "url": f"javascript:{HOSTILE}", "tree": [HOSTILE], "screenshot": '"><script>', "tabs": [HOSTILE, HOSTILE]},
        *({"kind": kind, "cells": HOSTILE, "text": HOSTILE} for kind in kinds),
    ]
    turns = [Turn(HOSTILE, HOSTILE, HOSTILE, invalid=True, end=1, info={"render": r}) for r in renders]
    t = Trajectory(EpisodeSpec(HOSTILE, HOSTILE), [row], turns, StopReason.FAILURE, HOSTILE, HOSTILE, 9, HOSTILE)
    store_view = browse_html([t], lambda _: HOSTILE, title=HOSTILE)
    show(page, store_view, tmp_path)
    page.click(".row")
    page.wait_for_selector(".pane")
    page.click("summary >> text=All tokens")
    page.focus(".player")
    for _ in renders:
        assert "</script><script>window.hacked=1</script>" in page.inner_text(".said.env .text")
        assert "\u202e" not in page.inner_text(".player")
        page.keyboard.press("ArrowRight")
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.querySelectorAll('script').length") == 1
    assert page.locator("img").count() == 0


def test_an_injected_script_is_stopped_by_the_policy(page, tmp_path):
    view = compare_html([("a", small(1))])
    path = tmp_path / "page.html"
    path.write_text(view.page("t").replace("</body>", "<script>window.hacked = 1</script></body>"))
    page.goto(f"file://{path}")
    page.wait_for_selector(".pane")
    assert page.evaluate("window.hacked") is None


# -- pictures --------------------------------------------------------------------------------------------------------------------------


def drawn(page, tmp_path, render) -> None:
    t = Trajectory(EpisodeSpec("babyai", "babyai_1"), [], [Turn("seen", "r", "a", info={"render": render})])
    show(page, replay_html(t), tmp_path)


def test_a_grid_is_drawn_with_every_object_where_it_is(page, tmp_path):
    t = with_renderings(play("babyai", "babyai_1805", random_agent("babyai", 1), WordTokenizer(), max_rounds=2))
    show(page, replay_html(t), tmp_path)
    render = t.turns[0].info["render"]
    things = page.eval_on_selector_all(".babyai .thing", "gs => gs.map(g => [g.textContent, g.getAttribute('transform')])")
    expected = [
        [" ".join(filter(None, (cell[2], cell[1], cell[0]))), f"translate({x * 16} {y * 16})"]
        for y, row in enumerate(render["cells"])
        for x, cell in enumerate(row)
        if cell and cell[0] != "wall"
    ]
    assert things == expected
    walls = sum(bool(cell and cell[0] == "wall") for row in render["cells"] for cell in row)
    assert page.locator(".babyai .wall").count() == walls
    agent = render["agent"]
    pose = f"translate({agent['x'] * 16 + 8} {agent['y'] * 16 + 8})rotate({90 * agent['dir']})"
    assert page.get_attribute(".babyai .agent", "transform") == pose
    assert "facing" in page.get_attribute(".babyai svg", "aria-label")


def test_a_recipe_tree_says_what_is_still_missing(page, tmp_path):
    sticks = {"item": "stick", "needed": 2, "count": 4, "ingredients": [{"item": "oak planks", "needed": 2}]}
    tree = {"item": "ladder", "count": 3, "ingredients": [sticks, {"item": "rope", "needed": 1}]}
    drawn(page, tmp_path, {"kind": "textcraft", "goal": "ladder", "inventory": {"rope": 1, "oak planks": 1}, "tree": tree})
    lines = page.locator(".tree .need").all_text_contents()
    assert lines == ["0/1 ladder craft 1×3", "0/2 stick craft 1×4", "1/2 oak planks get", "1/1 rope get"]
    assert page.locator(".tree .need").evaluate_all("ns => ns.map(n => n.className)") == ["need ", "need ", "need part", "need done"]


def test_a_house_is_drawn_with_its_doors_and_things(page, tmp_path):
    thing = {"name": "table", "contents": [{"name": "battery", "contents": []}]}
    rooms = [{"name": n, "things": [thing] if n == "kitchen" else []} for n in ("hallway", "kitchen", "bakery", "cellar")]
    ways = [(("hallway", "kitchen"), True), (("hallway", "bakery"), None), (("kitchen", "cellar"), False)]
    doors = [{"between": list(pair), "open": open_} for pair, open_ in ways]
    facts = {"task": "boil", "score": 3, "moves": 7, "inventory": [], "place": "kitchen", "places": rooms, "doors": doors}
    drawn(page, tmp_path, {"kind": "sciworld", **facts})
    assert page.locator(".sciworld .here text").text_content() == "kitchen"
    assert page.locator(".sciworld line").evaluate_all("ls => ls.map(l => l.getAttribute('class'))") == ["door open", "door", "door shut"]
    assert page.locator(".sciworld figcaption p").all_text_contents() == [
        "task boil, score 3 after 7 moves",
        "here table (battery)",
        "carries nothing",
    ]
    places = page.locator(".sciworld .room").evaluate_all("gs => gs.map(g => g.getAttribute('transform'))")
    assert len(set(places)) == 4


def test_searches_and_answers_are_listed(page, tmp_path):
    found = [
        {"id": "a", "title": "Chad", "text": "N'Djamena", "score": 7.25, "gold": True},
        {"id": "b", "title": "Mali", "text": "Bamako", "score": 1.0, "gold": False},
    ]
    steps = [{"search": "Chad", "passages": found}, {"answer": "Bamako", "em": 0.0, "f1": 0.0}]
    gold = [{"id": "a", "found": True}, {"id": "c", "found": False}]
    drawn(page, tmp_path, {"kind": "searchqa", "question": "capital?", "answers": ["N'Djamena", "Ndjamena"], "gold": gold, "steps": steps})
    assert page.locator(".searchqa .passages b").all_text_contents() == ["Chad", "Mali"]
    assert page.locator(".searchqa li.gold b").all_text_contents() == ["Chad"]
    assert page.locator(".searchqa .steps > li").last.text_content() == "answered Bamako wrong, F1 0"
    assert "accepted N'Djamena / Ndjamena" in page.locator(".searchqa").text_content()
    assert "1 of 2 found" in page.locator(".searchqa").text_content()


def test_a_web_page_is_shown_as_tree_and_as_picture(page, tmp_path):
    png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    facts = {
        "objective": "buy",
        "url": "http://shop/",
        "tabs": ["Shop", "Map"],
        "current_tab": 1,
        "tree": ["[1] RootWebArea", "  [2] link"],
    }
    drawn(page, tmp_path, {"kind": "webarena", **facts, "screenshot": png})
    assert page.evaluate("document.querySelector('.webarena img').naturalWidth") == 1
    assert page.locator(".tab.on").text_content() == "Map"
    drawn(page, tmp_path, {"kind": "webarena", **facts, "screenshot": None})
    assert (page.locator("img").count(), page.inner_text(".webarena pre")) == (0, "[1] RootWebArea\n  [2] link")


def test_an_unknown_state_is_shown_by_its_text(page, tmp_path):
    drawn(page, tmp_path, {"kind": "constructor", "text": "a <room>"})
    assert page.inner_text("pre.picture") == "a <room>"


# -- playing ---------------------------------------------------------------------------------------------------------------------------


def test_a_human_and_an_agent_play_live(page):
    with SessionPool("textcraft", "local") as pool:
        game = LiveGame("textcraft", PolicyAgent("expert", ExpertPolicy("textcraft")), item="textcraft_29", pool=pool)
        with served(create_live_app(game)) as url:
            page.goto(url)
            page.wait_for_selector("text=Round 1 of at most 30")
            page.click(".actions >> text=get 1 diamond")
            page.keyboard.press("Enter")
            page.wait_for_selector("text=Round 2")
            assert page.input_value("[name=action]") == ""
            page.click("text=Let it play")
            page.wait_for_selector("text=The episode is over: reward 1")
            assert page.locator(".turns button").all_text_contents()[0] == "get 1 diamond"
            assert page.locator("text=Send").is_disabled()
            page.fill("[name=item]", "nope")
            page.click("text=New episode")
            page.wait_for_selector("text=expected an item id")
            page.fill("[name=item]", "textcraft_30")
            page.click("text=New episode")
            page.wait_for_selector("text=Round 1")
        game.close()


# -- notebooks -------------------------------------------------------------------------------------------------------------------------


def test_two_views_in_one_page_are_each_started_once(page, tmp_path):
    cells = compare_html([("one", small(1))])._repr_html_() + compare_html([("two", small(2))])._repr_html_()
    path = tmp_path / "cells.html"
    path.write_text(f"<!doctype html><meta charset=utf-8><body>{cells}</body>")
    page.goto(f"file://{path}")
    page.wait_for_function("() => document.querySelectorAll('.pane').length === 2")
    assert page.locator(".player").count() == 2
    assert page.locator(".fallback").count() == 0


def test_the_widget_asks_the_kernel(page, tmp_path):
    """The default export as anywidget calls it, with a model that hands messages to the Python side and back."""
    anywidget_side = pytest.importorskip("agentgym_lite.viewer.widget")
    widget = anywidget_side.TrajectoryViewer([small(1, said="alpha"), small(2, said="beta")], title="Mine")
    answers: list[dict] = []
    widget.send = lambda content, buffers=None: answers.append(content)

    def ask(message: dict) -> dict:
        widget._answer(widget, message, [])
        return answers.pop()

    page.expose_function("askPython", ask)
    page.goto("about:blank")
    module = json.dumps(script())
    page.evaluate(
        f"""async () => {{
          const url = URL.createObjectURL(new Blob([{module}], {{type: "text/javascript"}}));
          const view = (await import(url)).default;
          let take = null;
          const model = {{ get: () => "Mine", on: (_, f) => {{ take = f; }}, off: () => {{ window.gone = true; }},
            send: async (m) => take(await window.askPython(m)) }};
          window.close_ = view.render({{ model, el: document.body }});
        }}"""
    )
    wait_count(page, "2 of 2")
    page.fill("[name=text]", "beta")
    wait_count(page, "1 of 2")
    page.click(".row")
    page.wait_for_selector(".pane")
    assert page.inner_text(".said.agent .text") == "beta 0"
    assert ask({"number": 7, "name": "body", "args": {"id": 9}})["error"].startswith("expected the number of a trajectory")
    page.evaluate("window.close_()")
    assert page.evaluate("window.gone")
