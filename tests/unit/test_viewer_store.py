"""Trajectories on disk: found, indexed piece by piece, read on demand, searched, exported; broken and growing files are survived."""

from __future__ import annotations

import json
import re

import pytest
from viewer_factory import WordTokenizer, play

from agentgym_envs.agents import expert
from agentgym_lite.rollout.types import EpisodeSpec, StopReason, TokenRow, Trajectory, Turn
from agentgym_lite.viewer import StoreError, TrajectoryStore, export_html
from agentgym_lite.viewer.decoding import decoder, run_decoder
from agentgym_lite.viewer.store import PAGE, TrajectoryList


def episode(item: int = 0, said: str = "go", success: bool = False, tokens: int = 3) -> Trajectory:
    row = TokenRow()
    row.append_action([1] * tokens, [-0.5] * tokens, 0)
    reason = StopReason.SUCCESS if success else StopReason.FAILURE
    return Trajectory(
        EpisodeSpec("babyai", f"babyai_{item}"), [row], [Turn("you see", said, "a", row=0, end=tokens)], reason, "goto", "0", 5, "end"
    )


def write(path, *episodes, **extra):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as f:
        f.writelines(json.dumps({**e.to_dict(), **extra}) + "\n" for e in episodes)
    return path


def scanned(path, **options) -> TrajectoryStore:
    store = TrajectoryStore(path, **options)
    store.scan()
    return store


def rows(store) -> list[dict]:
    answer = store.index()
    return [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]


def test_a_file_a_run_and_a_folder_of_runs_can_be_opened(tmp_path):
    file = write(tmp_path / "a" / "trajectories.jsonl", episode(1), step=7, when="after")
    write(tmp_path / "b" / "eval" / "base" / "trajectories.jsonl", episode(2), episode(3))
    assert [(r["run"], r["item"], r["step"], r["when"]) for r in rows(scanned(file))] == [("", "babyai_1", 7, "after")]
    assert [r["run"] for r in rows(scanned(tmp_path / "a"))] == [""]
    assert [(r["id"], r["run"], r["item"]) for r in rows(scanned(tmp_path))] == [
        (0, "a", "babyai_1"),
        (1, "b/eval/base", "babyai_2"),
        (2, "b/eval/base", "babyai_3"),
    ]


@pytest.mark.parametrize(("name", "found"), [("none", "no such file or folder"), (".", "a folder without one")])
def test_nothing_to_show_is_told(tmp_path, name, found):
    with pytest.raises(StoreError, match=f"found {found}; `agl rollout`"):
        TrajectoryStore(tmp_path / name)


def test_bodies_are_those_of_their_lines(tmp_path):
    store = scanned(write(tmp_path / "trajectories.jsonl", *(episode(i, f"reply {i}") for i in range(5))))
    assert [store.body(i)["turns"][0]["reply"] for i in (3, 0, 4)] == ["reply 3", "reply 0", "reply 4"]
    with pytest.raises(StoreError, match="from 0 to 4, found 5; reload"):
        store.body(5)


def test_half_a_line_waits_and_a_broken_one_is_named(tmp_path):
    file = write(tmp_path / "trajectories.jsonl", episode(1))
    with file.open("a") as f:
        f.write('{"spec": 3}\nnot json\n[1]\n')
    half = json.dumps(episode(2).to_dict())
    with file.open("a") as f:
        f.write(half[:50])
    store = scanned(file)
    assert [len(store), [re.sub(r"\d+", "N", p) for p in store.problems]] == [
        1,
        [f"trajectories.jsonl, byte N ({e})" for e in ("TypeError", "JSONDecodeError", "TypeError")],
    ]
    with file.open("a") as f:
        f.write(half[50:] + "\n")
    store.scan()
    assert [r["item"] for r in rows(store)] == ["babyai_1", "babyai_2"]


def test_a_file_that_was_cut_is_read_anew(tmp_path):
    file = write(tmp_path / "trajectories.jsonl", episode(1), episode(2), episode(3))
    store = scanned(file)
    store.body(0)
    file.write_text("")
    write(file, episode(8))
    with pytest.raises(StoreError, match="has changed since it was indexed"):
        store.body(2)
    first = store.index(start=3, refresh=True)
    store.scan()
    assert first["restarted"]
    assert [r["item"] for r in rows(store)] == ["babyai_8"]
    assert store.body(0)["item"] == "babyai_8"


def test_the_index_comes_in_pages(tmp_path):
    store = scanned(write(tmp_path / "trajectories.jsonl", *[episode(0, tokens=1)] * (PAGE + 3)))
    first, second = store.index(0), store.index(PAGE)
    assert (len(first["rows"]), first["done"]) == (PAGE, False)
    assert (len(second["rows"]), second["done"], second["total"]) == (3, True, PAGE + 3)
    assert store.index(PAGE + 3)["rows"] == []


@pytest.mark.parametrize("ascii_only", [True, False])
def test_search_reads_what_was_said_and_nothing_else(tmp_path, ascii_only):
    said = ["Größe <b>", 'a "quoted" word', "x\ny", "gr"]
    with (tmp_path / "trajectories.jsonl").open("w") as f:
        f.writelines(json.dumps(episode(i, s).to_dict(), ensure_ascii=ascii_only) + "\n" for i, s in enumerate(said))
    store = scanned(tmp_path)
    found = {q: store.search(q) for q in ("Größe", "größE", 'A "QUOTED"', "x\ny", "gr", "babyai_2", "logprobs", "stop_reason")}
    assert found == {
        "Größe": [0],
        "größE": [0],
        'A "QUOTED"': [1],
        "x\ny": [2],
        "gr": [0, 3],
        "babyai_2": [2],
        "logprobs": [],
        "stop_reason": [],
    }
    assert TrajectoryList([episode(i, s) for i, s in enumerate(said)]).search("QUOTED") == [1]


def test_the_tokenizer_is_the_one_that_the_run_names(tmp_path):
    write(tmp_path / "run" / "eval" / "trajectories.jsonl", episode())
    assert scanned(tmp_path).body(0)["notes"][0].startswith("No tokenizer of this run was found")
    (tmp_path / "run" / "config.yaml").write_text("model: {path: tiny}\n")
    tiny = decoder("tiny")
    assert scanned(tmp_path).body(0)["vocab"] == {1: tiny(1)}
    (tmp_path / "run" / "config.yaml").unlink()
    (tmp_path / "run" / "eval" / "settings.json").write_text(json.dumps({"agent": "tiny"}))
    assert run_decoder(tmp_path / "run" / "eval", tmp_path)(1) == tiny(1)
    assert scanned(tmp_path, tokenizer="tiny").body(0)["rows"][0]["ids"] == [1, 1, 1]
    with pytest.raises(StoreError, match="none for 'expert'"):
        TrajectoryStore(tmp_path, tokenizer="expert")


def test_pictures_are_found_again_or_their_lack_is_told(tmp_path):
    played = play("textcraft", "textcraft_29", expert("textcraft"), WordTokenizer())
    other = episode()
    other.env_version = "other"
    lost = Trajectory(EpisodeSpec("nowhere", "nowhere_1"), [], [Turn("o", "r", "a")])
    store = scanned(write(tmp_path / "trajectories.jsonl", played, other, lost), tokenizer="tiny")
    first, second, third = (store.body(i) for i in range(3))
    assert [t["render"]["inventory"] for t in first["turns"]] == [{}, {"diamond": 4}]
    assert second["notes"] == ["No pictures of the environment: the episode was played with another version of it."]
    assert third["notes"][0].startswith("No pictures of the environment: no environment is called 'nowhere'")


def test_nan_in_a_file_is_shown_as_zero(tmp_path):
    bad = episode()
    bad.rows[0].logprobs[1] = float("nan")
    store = scanned(write(tmp_path / "trajectories.jsonl", bad), tokenizer="tiny")
    assert store.body(0)["rows"][0]["logprob"] == [-0.5, 0.0, -0.5]


def test_an_export_holds_what_was_chosen_and_keeps_to_its_limit(tmp_path):
    store = scanned(write(tmp_path / "trajectories.jsonl", *(episode(i, "x" * 1000) for i in range(40))))
    page = export_html(store, [5, 2], title="chosen")
    embedded = json.loads(re.search(r'<script type="application/json">(.*?)</script>', page, re.DOTALL).group(1))
    assert [b["item"] for b in embedded["bodies"]] == ["babyai_5", "babyai_2"]
    assert "connect-src &#39;none&#39;" in page
    with pytest.raises(StoreError, match=r"the first \d+ of 40 trajectories take more than the limit of 0.02 MB"):
        export_html(store, range(40), limit_mb=0.02)
    with pytest.raises(StoreError, match="expected at least one trajectory"):
        export_html(store, [])


@pytest.mark.slow
def test_ten_thousand_trajectories_take_little_memory(tmp_path):
    """Peak of Python's memory while 70 MB of trajectories are indexed and looked at."""
    import tracemalloc

    lines = [json.dumps(episode(i, f"reply {i} " + "x" * 6000, tokens=30).to_dict()) + "\n" for i in range(100)]
    with (tmp_path / "trajectories.jsonl").open("w") as f:
        for _ in range(100):
            f.writelines(lines)
    assert (tmp_path / "trajectories.jsonl").stat().st_size > 60e6
    tracemalloc.start()
    store = scanned(tmp_path)
    for number in range(0, 10_000, 200):
        store.body(number)
    found = store.search("reply 42 ")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(store), len(found)) == (10_000, 100)
    assert peak < 25e6
