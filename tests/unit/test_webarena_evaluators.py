"""WebArena's evaluators by hand-made cases."""

from __future__ import annotations

from typing import Any

import pytest
from webarena_factory import ORIGIN, Driver, needs_chromium

from agentgym_envs.webarena.browser.chromium import ChromiumBrowser
from agentgym_envs.webarena.browser.text import TextBrowser
from agentgym_envs.webarena.evaluators import Outcome, clean, evaluate, normalised


def verdict(evaluation: dict[str, Any], answer: str = "", path: str = "/") -> bool:
    driver = Driver(TextBrowser, path)
    (value,) = evaluate(evaluation, Outcome(answer, driver.browser, driver.web.databases.reading("tiny"))).values()
    return value


@pytest.mark.parametrize(
    ("reference", "answer", "verdict_"),
    [
        ({"exact_match": "Red Lamp"}, ' "red lamp" ', True),
        ({"exact_match": "Red Lamp"}, "red lamps", False),
        ({"exact_match": "5"}, "", False),
        ({"must_include": ["Ann", "Bob"]}, "bob and ANN", True),
        ({"must_include": ["Ann", "Bob"]}, "Ann", False),
        ({"must_include": ["5"]}, "it is 5.", True),
        ({"must_include": ["5"]}, "15", False),
        ({"must_include": ["12"]}, "0123", True),  # WebArena's rule: a substring, if longer than one character
        ({"fuzzy_match": ["the lamp is red"]}, "Lamp is RED!", True),
        ({"fuzzy_match": ["red", "blue"]}, "red", False),
        ({"fuzzy_match": "$12.50"}, "It costs $12.50, I think", True),
        ({"fuzzy_match": "2.5"}, "12.5", False),
        ({"fuzzy_match": "N/A"}, "n/a", True),
        ({"fuzzy_match": "N/A"}, "none", False),
        ({"must_include": ["Ann"], "fuzzy_match": ["Bob"]}, "Ann", False),
    ],
)
def test_string_match(reference: dict[str, Any], answer: str, verdict_: bool) -> None:
    assert verdict({"eval_types": ["string_match"], "reference_answers": reference}, answer) is verdict_


def test_cleaning() -> None:
    assert clean(" 'It' ") == "it"
    assert clean("'") == "'"
    assert normalised("The lamp, 1,200.50 (a bargain)!") == "lamp 1,200.50 bargain"


@pytest.mark.parametrize(
    ("gold", "path", "verdict_"),
    [
        (f"{ORIGIN}/note/1", "/note/1", True),
        (f"{ORIGIN}/note/1/", "/note/1", True),
        (f"{ORIGIN}/note", "/note/1", True),  # part of the place
        (f"{ORIGIN}/note/2", "/note/1", False),
        (f"{ORIGIN}/note/2 |OR| {ORIGIN}/note/1", "/note/1", True),
        (f"{ORIGIN}/?q=a", "/?q=a&sort=x", True),
        (f"{ORIGIN}/?q=a", "/?q=b", False),
        (f"{ORIGIN}/?q=a", "/", False),
        (f"{ORIGIN}/?q=a |OR| {ORIGIN}/?q=b", "/?q=b", True),
    ],
)
def test_url_match(gold: str, path: str, verdict_: bool) -> None:
    assert verdict({"eval_types": ["url_match"], "reference_url": gold, "url_note": "GOLD in PRED"}, path=path) is verdict_


@pytest.mark.parametrize(
    ("url", "required", "verdict_"),
    [
        ("last", {"must_include": ["Buy milk"]}, True),
        ("last", {"must_include": ["Buy milk", "Call Ann"]}, False),
        ("last", {"must_include": ["Call Bob |OR| Buy milk"]}, True),
        (f"{ORIGIN}/note/2", {"must_include": ["Call Ann"]}, True),
        ("last", {"exact_match": "Buy milk"}, False),
    ],
)
def test_program_html_over_whole_pages(url: str, required: dict[str, Any], verdict_: bool) -> None:
    target = {"url": url, "locator": "", "required_contents": required}
    assert verdict({"eval_types": ["program_html"], "program_html": [target]}, path="/note/1") is verdict_


def test_state_check() -> None:
    check = {"query": "SELECT text, tag FROM notes WHERE id < 3 ORDER BY id", "equals": [["Buy milk", "home"], ["Call Ann", "work"]]}
    assert verdict({"eval_types": ["state_check"], "state": [check]})
    assert not verdict({"eval_types": ["state_check"], "state": [check, {"query": "SELECT count(*) FROM notes", "equals": [[4]]}]})


def test_every_type_has_to_hold() -> None:
    driver = Driver(TextBrowser)
    evaluation = {"eval_types": ["string_match", "url_match"], "reference_answers": {"exact_match": "3"}, "reference_url": f"{ORIGIN}/x"}
    assert evaluate(evaluation, Outcome("3", driver.browser)) == {"string_match": True, "url_match": False}


@pytest.mark.parametrize(
    "evaluation",
    [
        {"eval_types": ["python"]},
        {"eval_types": ["string_match"], "reference_answers": {"regex": ".*"}},
        {"eval_types": ["url_match"], "reference_url": "", "url_note": "EXACT"},
        {"eval_types": ["program_html"], "program_html": [{"url": "last", "locator": "", "required_contents": {}}]},
        {"eval_types": ["program_html"], "program_html": [{"url": "last", "locator": "func:f()", "required_contents": {}}]},
    ],
)
def test_what_is_unknown_is_an_error(evaluation: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        verdict(evaluation)


TARGET = {
    "url": f"{ORIGIN}/note/2",
    "locator": "document.querySelector('dd').outerText",
    "required_contents": {"exact_match": "call ann"},
}
LOCATOR = {"eval_types": ["program_html"], "program_html": [TARGET]}


def test_scripts_need_chromium() -> None:
    with pytest.raises(NotImplementedError, match="browser='chromium'"):
        verdict(LOCATOR)


@needs_chromium
@pytest.mark.slow
def test_scripts_in_chromium() -> None:
    driver = Driver(ChromiumBrowser)
    try:
        assert evaluate(LOCATOR, Outcome("", driver.browser)) == {"program_html": True}
        assert driver.browser.evaluate("document.querySelector('nothing').outerText") == ""
        assert driver.browser.evaluate("[...document.links].length") == "6"
        assert driver.page.url == f"{ORIGIN}/"
    finally:
        driver.close()
