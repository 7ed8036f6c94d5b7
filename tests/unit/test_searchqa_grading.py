"""SearchQA: grading by hand, and reading actions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_envs.searchqa import exact_match, f1_score, normalize_answer
from agentgym_envs.searchqa.actions import MAX_TEXT, Action, UnreadableAction, parse_action
from agentgym_envs.searchqa.grading import fold


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Beatles!", "beatles"),
        ("a man, an apple and the theatre", "man apple and theatre"),
        ("U.S.A.", "usa"),
        ("6,893 m", "6893 m"),
        ("Côte d'Ivoire", "côte divoire"),
        ("the", ""),
    ],
)
def test_normalisation_by_hand(text, normal):
    assert normalize_answer(text) == normal


def test_exact_match_takes_any_alias():
    golds = ["United Kingdom", "UK"]
    assert exact_match("the united kingdom.", golds) == 1.0
    assert exact_match("U.K.", golds) == 1.0
    assert exact_match("Kingdom", golds) == 0.0
    assert exact_match("UK", []) == 0.0


def test_an_answer_without_content_never_matches():
    assert exact_match("the", ["The"]) == 0.0
    assert f1_score("!", ["?"]) == 0.0


def test_f1_by_hand():
    # words {nevado, ojos} of 2 given and 4 wanted: P = 1, R = 1/2, F1 = 2/3
    assert f1_score("Nevado Ojos", ["Nevado Ojos del Salado"]) == pytest.approx(2 / 3)
    # "san" counts twice only if it stands twice: shared 1, P = 1/2, R = 1/2
    assert f1_score("san san", ["san jose"]) == pytest.approx(0.5)
    assert f1_score("wrong", ["right", "so wrong"]) == pytest.approx(2 / 3)  # the best alias counts
    assert f1_score("yes", ["yes it is"]) == 0.0  # as in HotpotQA's grader


@given(st.text(max_size=40), st.lists(st.text(max_size=40), max_size=3))
def test_f1_lies_between_exact_match_and_one(prediction, golds):
    assert exact_match(prediction, golds) <= f1_score(prediction, golds) <= 1.0


@given(st.text(max_size=60))
def test_normalising_twice_changes_nothing_more_for_plain_words(text):
    words = " ".join(w for w in normalize_answer(text).split())
    assert words == normalize_answer(text)
    assert fold(fold(text)) == fold(text)


@pytest.mark.parametrize(
    ("reply", "kind", "text"),
    [
        ("<search>capital of Chile</search>", "search", "capital of Chile"),
        ("<think>hm</think>\n<search> a\n b </search> <answer>no</answer>", "search", "a b"),
        ("I know. <ANSWER>Santiago</ANSWER>", "answer", "Santiago"),
        ("<answer>x <search> y</answer>", "answer", "x <search> y"),
        ("search[Chile Capital]", "search", "Chile Capital"),
        ("Finish[Santiago].", "answer", "Santiago"),
    ],
)
def test_actions_by_hand(reply, kind, text):
    assert parse_action(reply) == Action(kind, text)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("", "empty"),
        ("Santiago", "No action"),
        ("<search>capital", "not closed"),
        ("<search>a</answer>", "not closed"),
        ("<answer> \n</answer>", "answer is empty"),
        (f"<search>{'x' * (MAX_TEXT + 1)}</search>", "characters"),
        ("x" * 30_000, "characters"),
    ],
)
def test_what_cannot_be_read_is_explained(reply, said):
    with pytest.raises(UnreadableAction, match=said):
        parse_action(reply)


_PIECES = ["<search>", "</search>", "<answer>", "</answer>", "search[", "finish[", "]", "Chile", " ", "\n", "\x00", "<", "é", "<search"]


@given(st.one_of(st.text(max_size=200), st.lists(st.sampled_from(_PIECES), max_size=12).map("".join)))
def test_any_reply_is_read_or_refused(reply):
    try:
        action = parse_action(reply)
    except UnreadableAction:
        return
    assert action.kind in ("search", "answer")
    assert 0 < len(action.text) <= MAX_TEXT
    assert action.text.isprintable()
