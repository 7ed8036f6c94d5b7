"""What the front end is given: rows, bodies, tokens and pictures equal the data, and no text of an agent can act on the page."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from viewer_factory import WordTokenizer, play

from agentgym_envs.agents import expert
from agentgym_lite.rollout.types import EpisodeSpec, StopReason, TokenRow, Trajectory, Turn
from agentgym_lite.viewer import browse_html, compare_html, replay_html, tokens_ansi, tokens_html, with_renderings
from agentgym_lite.viewer.component import component, script, script_json
from agentgym_lite.viewer.html import View, clean, duration
from agentgym_lite.viewer.payload import COLUMNS, Shown, body, list_row
from agentgym_lite.viewer.tokens import PROBABILITY_STEPS, row_data, token_decoder

TEXTS = ["<|im_start|>", "user\n", "go", " left", "<|im_end|>", "\n", "\ta"]
HOSTILE = "<script>window.hacked = 1</script>\"'></script><!--<script><img src=x onerror=alert(1)>&lt;\x1b[31m\u202egnp.exe\u2028"


def small_row() -> TokenRow:
    row = TokenRow()
    row.append_context([0, 1], -1)
    row.append_action([2, 3, 4], [math.log(0.95), math.log(0.3), math.log(0.01)], 0)
    row.append_context([5, 6], 1)
    return row


def trajectory(text: str) -> Trajectory:
    """An episode in which every text is ``text``."""
    turn = Turn(text, text, text, 1.0, info={"render": {"kind": text, "text": text}})
    end = {"render": {"kind": "textcraft", "inventory": {text: text}, "goal": text}}
    return Trajectory(EpisodeSpec("babyai", text), [], [turn], StopReason.SUCCESS, text, "1", 5, text, end)


def data(view: View) -> dict:
    """What a view hands to the front end."""
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', view.body, re.DOTALL).group(1))


def test_a_row_of_the_list_holds_what_it_is_filtered_by():
    t = Trajectory(EpisodeSpec("textcraft", "textcraft_7", 3, 2), stop_reason=StopReason.MAX_ROUNDS, task="depth_2", max_rounds=9)
    t.turns = [Turn("o", "r", "a", 0.25), Turn("o", "r", "a", 0.5)]
    row = dict(zip(COLUMNS, list_row(Shown(t, 11, "", "grpo", 40, "after")), strict=True))
    assert row == {
        "id": 11,
        "run": "grpo",
        "env": "textcraft",
        "task": "depth_2",
        "item": "textcraft_7",
        "seed": 3,
        "sample": 2,
        "step": 40,
        "when": "after",
        "stop": "max_rounds",
        "success": False,
        "rounds": 2,
        "max_rounds": 9,
        "reward": 0.75,
    }


def test_a_body_holds_the_turns_the_tokens_and_their_values():
    t = Trajectory(EpisodeSpec("babyai", "babyai_1"), [small_row()], [Turn("o", "r", None, 0.5, True, True, 0, 2, 5)], StopReason.FAILURE)
    shown = body(Shown(t, token_values={"advantage": [[0, 0, 1.5, 1.5, 1.5, 0, 0]]}), TEXTS.__getitem__)
    (turn,) = shown["turns"]
    assert (turn["action"], turn["reward"], turn["invalid"], turn["truncated"], turn["start"], turn["end"]) == (None, 0.5, True, True, 2, 5)
    (row,) = shown["rows"]
    assert (row["mask"], row["turn"], row["advantage"]) == ([0, 0, 1, 1, 1, 0, 0], [-1, -1, 0, 0, 0, 1, 1], [0, 0, 1.5, 1.5, 1.5, 0, 0])
    assert row["logprob"] == [0, 0, -0.05129, -1.20397, -4.60517, 0, 0]
    assert [shown["vocab"][i] for i in row["ids"]] == TEXTS
    assert "ratio" not in row


def test_without_a_tokenizer_the_text_is_all_there_is():
    t = Trajectory(EpisodeSpec("babyai", "babyai_1"), [small_row()], [Turn("o", "r", None)])
    assert (body(Shown(t))["rows"], body(Shown(t))["turns"][0]["reply"]) == ([], "r")


def test_token_values_of_another_length_are_refused():
    with pytest.raises(ValueError, match="expected 7 numbers of ratio, one per token of the row, found 2"):
        row_data(small_row(), {"ratio": [1.0, 1.0]})


def test_an_environment_error_is_told():
    t = Trajectory(EpisodeSpec("babyai", "babyai_1"), stop_reason=StopReason.ENV_ERROR, info={"env_error": "no answer"})
    assert body(Shown(t))["notes"] == ["The environment failed: no answer"]


@given(st.lists(st.tuples(st.booleans(), st.text(max_size=6), st.floats(-20, 0)), max_size=30))
def test_any_row_keeps_its_mask_and_order(columns):
    row = TokenRow()
    for k, (sampled, _, logprob) in enumerate(columns):
        if sampled:
            row.append_action([k], [logprob], 0)
        else:
            row.append_context([k], 0)
    shown = data(tokens_html(row, lambda k: columns[k][1]))
    assert shown["row"]["mask"] == [int(sampled) for sampled, _, _ in columns]
    assert shown["row"]["ids"] == list(range(len(columns)))
    assert [shown["vocab"][str(k)] for k in range(len(columns))] == [text for _, text, _ in columns]


@given(st.recursive(st.text() | st.floats(allow_nan=False, allow_infinity=False), lambda x: st.dictionaries(st.text(), x, max_size=3)))
def test_embedded_json_cannot_end_its_element_and_reads_back(value):
    text = script_json(value)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == value


def test_terminal_view_colours_by_mask_and_disarms_escape_codes():
    row = small_row()
    texts = [*TEXTS[:2], "\x1b[2J", *TEXTS[3:]]
    out = tokens_ansi(row, texts.__getitem__)
    assert "\x1b[38;5;75m␛[2J\x1b[0m" in out  # sure and sampled
    assert "\x1b[38;5;208m\x1b[4m<|im_end|>\x1b[0m" in out  # surprising, special
    assert out.count("\x1b[38;5;245m") == row.action_mask.count(0)
    assert "\x1b[2J" not in out


def test_hostile_text_ends_no_element_and_stands_there_as_text():
    row = TokenRow()
    row.append_context([0], 0)
    row.append_action([0], [-1.0], 0)
    for view in (tokens_html(row, lambda _: HOSTILE), replay_html(trajectory(HOSTILE), label=HOSTILE), browse_html([trajectory(HOSTILE)])):
        page = view.page(HOSTILE)
        assert re.findall(r"<script[^>]*>", page) == ['<script type="application/json">', '<script type="module">']
        assert page.count("</script>") == 2
        assert "<img" not in page
        assert "\x1b" not in page
        assert "\u202e" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert data(replay_html(trajectory(HOSTILE)))["bodies"][0]["turns"][0]["observation"] == HOSTILE


def test_a_page_lets_only_its_own_script_run():
    page = replay_html(trajectory("x")).page("t")
    policy = unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', page).group(1))
    module = re.search(r'<script type="module">(.*?)</script>', page, re.DOTALL).group(1)
    digest = base64.b64encode(hashlib.sha256(module.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; connect-src 'none'"


def test_the_module_is_one_piece_that_asks_for_nothing():
    assert not re.search(r"^import |^export (?!default)", script(), re.MULTILINE)
    assert script().count("export default") == 1
    assert set(re.findall(r"https?://[\w./]+", script())) == {"http://www.w3.org/2000/svg"}
    assert f"const PROBABILITY_STEPS = {list(PROBABILITY_STEPS)};" in script()
    assert not re.search(r"\.(inner|outer)HTML|insertAdjacentHTML|document\.write|\beval\(", script())


def test_a_view_in_a_notebook_brings_style_and_script_and_a_text_for_readers_without():
    t = play("textcraft", "textcraft_29", expert("textcraft"), WordTokenizer())
    out = replay_html(t, label="expert")._repr_html_()
    assert out.count("<style>") == out.count('<script type="module">') == 1
    fallback = re.search(r'<pre class="fallback">(.*?)</pre>', out, re.DOTALL).group(1)
    assert fallback.startswith("expert · textcraft_29 · depth_1 · reward 1 · success")
    assert all(unescape(fallback).count(turn.reply) for turn in t.turns)


def test_clean_keeps_every_ordinary_character():
    assert clean("Größe → 6\n\tпривет 漢字 😀") == "Größe → 6\n\tпривет 漢字 😀"
    assert clean("\x00\x7f\u200b\ufeff\x9b") == "␀␡\\u{200b}\\u{feff}\\u{9b}"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0.4 s"), (38.7, "39 s"), (288.4, "4 min 48 s"), (3600, "1 h"), (7325, "2 h 2 min 5 s")]
)
def test_durations_read_naturally(seconds, text):
    assert duration(seconds) == text


def test_renderings_are_found_by_playing_the_actions_again():
    t = play("babyai", "babyai_1805", expert("babyai"), WordTokenizer())
    rendered = with_renderings(t)
    assert all("render" not in turn.info for turn in t.turns)
    assert [turn.info["render"]["text"] in turn.observation for turn in rendered.turns] == [True] * len(t.turns)
    (shown,) = data(replay_html(rendered))["bodies"]
    agents = [turn["render"]["agent"] for turn in shown["turns"]] + [shown["end"]["render"]["agent"]]
    assert len(agents) == len(t.turns) + 1
    assert agents[0] != agents[-1]


def test_renderings_begin_again_with_every_attempt():
    t = play("textcraft", "textcraft_29", expert("textcraft"), WordTokenizer())
    again = [Turn(turn.observation, turn.reply, turn.action, attempt=1) for turn in t.turns]
    t.turns += again
    inventories = [turn.info["render"]["inventory"] for turn in with_renderings(t).turns]
    assert inventories == [{}, {"diamond": 4}] * 2


def test_renderings_stop_where_the_episode_was_another():
    t = play("babyai", "babyai_1805", expert("babyai"), WordTokenizer())
    t.turns[1].observation = "You see: nothing like this."
    assert ["render" in turn.info for turn in with_renderings(t).turns] == [True] + [False] * (len(t.turns) - 1)
    t.env_version = "0 of long ago"
    assert with_renderings(t) is t


def test_several_replays_share_one_component():
    t = play("textcraft", "textcraft_29", expert("textcraft"), WordTokenizer())
    shown = data(compare_html([("before", t), ("after", t)]))
    assert [b["label"] for b in shown["bodies"]] == ["before", "after"]
    with pytest.raises(ValueError, match="at least one trajectory"):
        compare_html([])


def test_component_keeps_the_fallback_a_text():
    assert component({"view": "x"}, "<b>").body.endswith('<pre class="fallback">&lt;b&gt;</pre></div>')


def test_token_decoder_keeps_special_tokens_and_spaces():
    class Tokenizer:
        def decode(self, ids, skip_special_tokens, clean_up_tokenization_spaces):
            return (ids, skip_special_tokens, clean_up_tokenization_spaces)

    assert token_decoder(Tokenizer())(7) == ([7], False, False)
