"""Token view, replay, drawings: what is shown equals the data, and no text of an agent can act on the page."""

from __future__ import annotations

import math
import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from viewer_factory import WordTokenizer, play

from agentgym_envs.agents import expert
from agentgym_lite.rollout.types import EpisodeSpec, StopReason, TokenRow, Trajectory, Turn
from agentgym_lite.viewer import compare_html, replay_html, tokens_ansi, tokens_html, with_renderings
from agentgym_lite.viewer.html import clean, duration
from agentgym_lite.viewer.replay import picture
from agentgym_lite.viewer.svg import UnsafeSvgError, plain_svg
from agentgym_lite.viewer.tokens import PROBABILITY_STEPS, token_cells, token_decoder

TEXTS = ["<|im_start|>", "user\n", "go", " left", "<|im_end|>", "\n", "\ta"]
HOSTILE = "<script>window.hacked = 1</script>\"'><img src=x onerror=alert(1)>&lt;\x1b[31m\u202egnp.exe"


def small_row() -> TokenRow:
    row = TokenRow()
    row.append_context([0, 1], -1)
    row.append_action([2, 3, 4], [math.log(0.95), math.log(0.3), math.log(0.01)], 0)
    row.append_context([5, 6], 1)
    return row


def trajectory(text: str) -> Trajectory:
    """An episode in which every text is ``text``."""
    turn = Turn(text, text, text, 1.0, info={"render": {"text": text}})
    end = {"render": {"inventory": {text: text}, "goal": text}}
    return Trajectory(EpisodeSpec("babyai", text), [], [turn], StopReason.SUCCESS, text, "1", 5, text, end)


def spans(page: str) -> list[tuple[str, str, str]]:
    """(classes, note, visible text) of each token, legend left out."""
    found = re.findall(r'<span class="([sc][^"]*)" title="([^"]*)">(.*?)</span>', page, re.DOTALL)
    return [(c, t, unescape(re.sub(r"<[^>]+>", "", text))) for c, t, text in found]


def test_each_token_shows_its_mask_probability_and_text():
    assert spans(tokens_html(small_row(), TEXTS.__getitem__).body) == [
        ("c x", "id 0 · context", "<|im_start|>"),
        ("c", "id 1 · context", "user⏎\n"),
        ("s p4", "id 2 · sampled with p 0.950 (log-prob -0.051)", "go"),
        ("s p2", "id 3 · sampled with p 0.300 (log-prob -1.204)", "·left"),
        ("s p0 x", "id 4 · sampled with p 0.010 (log-prob -4.605)", "<|im_end|>"),
        ("c", "id 5 · context", "⏎\n"),
        ("c", "id 6 · context", "⇥a"),
    ]


def test_tokens_are_grouped_by_turn_and_counted():
    body = tokens_html(small_row(), TEXTS.__getitem__).body
    assert re.findall(r'<span class="tag">([^<]*)</span>', body) == ["opening", "turn 1", "turn 2"]
    assert "7 tokens, 3 of them sampled" in body


def test_probability_classes_change_exactly_at_their_bounds():
    row = TokenRow()
    row.append_action([0] * 4, [math.log(p) for p in PROBABILITY_STEPS], 0)
    at = [c.probability_class for c in token_cells(row, lambda _: "x")]
    row = TokenRow()
    row.append_action([0] * 4, [math.log(p * 0.999) for p in PROBABILITY_STEPS], 0)
    below = [c.probability_class for c in token_cells(row, lambda _: "x")]
    assert (below, at) == ([0, 1, 2, 3], [1, 2, 3, 4])


@given(st.lists(st.tuples(st.booleans(), st.text(max_size=6), st.floats(-20, 0)), max_size=30))
def test_any_row_keeps_its_mask_and_order(columns):
    row = TokenRow()
    for k, (sampled, _, logprob) in enumerate(columns):
        if sampled:
            row.append_action([k], [logprob], 0)
        else:
            row.append_context([k], 0)
    shown = spans(tokens_html(row, lambda k: columns[k][1]).body)
    assert [c.startswith("s") for c, _, _ in shown] == [sampled for sampled, _, _ in columns]
    assert [t.split()[1] for _, t, _ in shown] == [str(k) for k in range(len(columns))]


def test_terminal_view_colours_by_mask_and_disarms_escape_codes():
    row = small_row()
    texts = [*TEXTS[:2], "\x1b[2J", *TEXTS[3:]]
    out = tokens_ansi(row, texts.__getitem__)
    assert "\x1b[38;5;75m␛[2J\x1b[0m" in out  # sure and sampled
    assert "\x1b[38;5;208m\x1b[4m<|im_end|>\x1b[0m" in out  # surprising, special
    assert out.count("\x1b[38;5;245m") == row.action_mask.count(0)
    assert "\x1b[2J" not in out


def test_hostile_text_is_shown_and_never_runs():
    row = TokenRow()
    row.append_context([0], 0)
    row.append_action([0], [-1.0], 0)
    page = tokens_html(row, lambda _: HOSTILE).page(HOSTILE) + replay_html(trajectory(HOSTILE), label=HOSTILE).page(HOSTILE)
    assert page.count("<script>") == 2  # our own, one for each page
    assert "<img" not in page
    assert "&lt;script&gt;" in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "\\u{202e}" in page


def test_clean_keeps_every_ordinary_character():
    assert clean("Größe → 6\n\tпривет 漢字 😀") == "Größe → 6\n\tпривет 漢字 😀"
    assert clean("\x00\x7f\u200b\ufeff\x9b") == "␀␡\\u{200b}\\u{feff}\\u{9b}"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0.4 s"), (38.7, "39 s"), (288.4, "4 min 48 s"), (3600, "1 h"), (7325, "2 h 2 min 5 s")]
)
def test_durations_read_naturally(seconds, text):
    assert duration(seconds) == text


def test_replay_has_a_frame_for_each_turn_and_the_end():
    tokenizer = WordTokenizer()
    t = play("textcraft", "textcraft_29", expert("textcraft"), tokenizer)
    body = replay_html(with_renderings(t), tokenizer.decode).body
    assert re.findall(r'<article class="frame" data-turn="(\d+)">', body) == [str(k) for k in range(len(t.turns) + 1)]
    assert f'data-last="{len(t.turns)}"' in body
    assert "goal reached" in body
    assert f"{len(t.turns)} of at most 10 rounds · reward 1" in body


def test_replies_in_the_replay_are_the_sampled_tokens():
    tokenizer = WordTokenizer()
    t = play("textcraft", "textcraft_29", expert("textcraft"), tokenizer)
    body = replay_html(t, tokenizer.decode).body.split("<details>")[0]
    sampled = [tokenizer.decode(i) for i, m in zip(t.rows[0].token_ids, t.rows[0].action_mask, strict=True) if m]
    assert "".join(text for _, _, text in spans(body)) == "".join(sampled).replace(" ", "·").replace("\n", "⏎\n")


def test_renderings_are_found_by_playing_the_actions_again():
    t = play("babyai", "babyai_1805", expert("babyai"), WordTokenizer())
    rendered = with_renderings(t)
    assert all("render" not in turn.info for turn in t.turns)
    assert [turn.info["render"]["text"] in turn.observation for turn in rendered.turns] == [True] * len(t.turns)
    pictures = [turn.info["render"]["svg"] for turn in rendered.turns] + [rendered.info["render"]["svg"]]
    assert replay_html(rendered).body.count("<svg") == len(pictures)
    assert pictures[0] != pictures[-1]


def test_renderings_stop_where_the_episode_was_another():
    t = play("babyai", "babyai_1805", expert("babyai"), WordTokenizer())
    t.turns[1].observation = "You see: nothing like this."
    assert ["render" in turn.info for turn in with_renderings(t).turns] == [True] + [False] * (len(t.turns) - 1)
    t.env_version = "0 of long ago"
    assert with_renderings(t) is t


def test_two_replays_share_one_set_of_controls():
    tokenizer = WordTokenizer()
    t = play("textcraft", "textcraft_29", expert("textcraft"), tokenizer)
    body = compare_html([("before", t), ("after", t)]).body
    assert (body.count('class="controls"'), body.count('class="pane"')) == (1, 2)
    with pytest.raises(ValueError, match="at least one trajectory"):
        compare_html([])


def test_a_drawing_of_plain_shapes_is_kept():
    source = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><g transform="translate(1 2)"><path d="M0 0L9 9" fill="#d33"/></g></svg>'
    )
    assert plain_svg(source) == source.replace(' xmlns="http://www.w3.org/2000/svg"', "").replace("/>", " />")


@pytest.mark.parametrize(
    "inner",
    [
        "<script>alert(1)</script>",
        '<rect onload="alert(1)"/>',
        '<a href="javascript:alert(1)"><rect/></a>',
        '<image href="http://example.org/x.png"/>',
        "<foreignObject><body/></foreignObject>",
        '<rect fill="url(http://example.org/x)"/>',
        '<rect style="background:url(x)"/>',
        '<g xmlns="http://www.w3.org/1999/xhtml"/>',
        "<rect>",
    ],
)
def test_a_drawing_of_anything_else_is_refused(inner):
    source = f'<svg xmlns="http://www.w3.org/2000/svg">{inner}</svg>'
    with pytest.raises(UnsafeSvgError):
        plain_svg(source)
    shown = picture({"svg": source, "text": "a <room>"})
    assert shown is not None
    assert shown.body == '<pre class="picture">a &lt;room&gt;</pre>'


def test_a_drawing_with_entities_is_refused():
    with pytest.raises(UnsafeSvgError, match="declarations"):
        plain_svg('<!DOCTYPE svg [<!ENTITY a "b">]><svg>&a;</svg>')


def test_token_decoder_keeps_special_tokens_and_spaces():
    class Tokenizer:
        def decode(self, ids, skip_special_tokens, clean_up_tokenization_spaces):
            return (ids, skip_special_tokens, clean_up_tokenization_spaces)

    assert token_decoder(Tokenizer())(7) == ([7], False, False)
