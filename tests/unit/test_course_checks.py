"""Checks: the right answer passes, each known mistake gets its own message, and what no catalogue knows is still told apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from agentgym_lite.course import checks
from agentgym_lite.course.checks import Case, Check, CheckResult, Mistake

CATALOGUE = checks.catalogue()
MISTAKES = [(name, i) for name, check in CATALOGUE.items() for i in range(len(check.mistakes))]


def test_every_check_is_exported_under_its_name():
    assert CATALOGUE
    assert {name: check.name for name, check in CATALOGUE.items()} == {name: name for name in CATALOGUE}
    assert set(CATALOGUE) <= set(checks.__all__)


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_right_answer_passes(name):
    result = CATALOGUE[name](CATALOGUE[name].right)
    assert result.passed, result
    assert result.message == f"right on all {len(CATALOGUE[name].cases)} cases"


@pytest.mark.parametrize(("name", "i"), MISTAKES)
def test_each_mistake_is_named(name, i):
    check = CATALOGUE[name]
    result = check(check.mistakes[i].wrong)
    assert (result.status, result.message) == ("wrong", check.mistakes[i].says)


@pytest.mark.parametrize(("name", "i"), MISTAKES)
def test_a_mistake_answers_on_some_case(name, i):
    """A variant that raises everywhere would stand for every function that raises."""
    check = CATALOGUE[name]

    def answers(case: Case) -> bool:
        try:
            check.mistakes[i].wrong(*case.args)
        except RuntimeError:
            return False
        return True

    assert any(answers(case) for case in check.cases)


@pytest.mark.parametrize("name", CATALOGUE)
def test_messages_differ_and_say_something(name):
    says = [m.says for m in CATALOGUE[name].mistakes]
    assert len(set(says)) == len(says) >= 3
    assert all(len(s) >= 15 and not s.endswith(".") for s in says), says


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_stub_is_not_yet_solved(name):
    def stub(*args: Any) -> Any:
        raise NotImplementedError("not yet solved")

    result = CATALOGUE[name](stub)
    assert result.status == "unsolved"
    assert result.message.startswith("not yet solved")


# -- a check by hand ---------------------------------------------------------------------------------------------------


def double(x: Tensor) -> Tensor:
    return 2 * x


CHECK = Check(
    "double",
    double,
    (Case("two numbers", (torch.tensor([1.0, 2.0]),)), Case("a negative one", (torch.tensor([-1.0]),))),
    (Mistake("you squared it", lambda x: x * x), Mistake("an empty one fails", lambda x: x / 0 if len(x) > 1 else _raise())),
)
WITH_GRADIENT = Check("double", double, CHECK.cases, (), grad=(0,))


def _raise() -> Tensor:
    raise IndexError("empty")


def in_place(x: Tensor) -> Tensor:
    x *= 2
    return x


@pytest.mark.parametrize(
    ("function", "status", "message"),
    [
        (double, "passed", "right on all 2 cases"),
        (lambda x: [2 * float(v) for v in x], "passed", "right on all 2 cases"),
        (lambda x: x * x, "wrong", "you squared it"),
        (lambda x: x / 0 if len(x) > 1 else _raise(), "wrong", "an empty one fails"),
        (in_place, "wrong", "changed in place, on two numbers"),
        (lambda x: -2 * x, "wrong", "sign is turned around everywhere"),
        (lambda x: None, "wrong", "returned nothing on two numbers"),
        (lambda x: 2 * x[:1], "wrong", "expected the shape [2], found [1], on two numbers"),
        (lambda x: 2 * x / (x + 1), "wrong", "found [1, 1.333]"),
        (lambda x: x / 0, "wrong", "not finite"),
        (lambda x: "two", "wrong", "found 'two'"),
        (lambda x: x[5], "error", "raised IndexError: "),
        (lambda x: 2 * x if len(x) > 1 else _raise(), "error", "raised IndexError: empty, on a negative one"),
        (3, "error", "expected the function itself, found int: write `checks.double(f)`"),
    ],
)
def test_what_a_check_says(function: Callable[..., Any], status: str, message: str):
    result = CHECK(function)
    assert result.status == status
    assert message in result.message


def test_no_message_shows_the_right_numbers():
    """On an answer that nobody knows, only what was found is shown."""
    assert "4" not in CHECK(lambda x: x + 0.123).message.replace("0.123", "")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: 2 * x.detach(), "there is none"),
        (lambda x: x + x.detach(), "it is another one"),
        (lambda x: [2 * float(v.detach()) for v in x], "there is none"),
    ],
)
def test_a_lost_gradient_is_told(function: Callable[..., Any], message: str):
    result = WITH_GRADIENT(function)
    assert result.status == "wrong"
    assert "the values are right, but not the gradient" in result.message
    assert message in result.message
    assert WITH_GRADIENT(double).passed


def test_read_makes_objects_comparable():
    class Pair:
        def __init__(self, a: int, b: str) -> None:
            self.a, self.b = a, b

    check = Check("pair", lambda: Pair(1, "x"), (Case("nothing", ()),), (), read=lambda p: {"a": p.a, "b": [p.b]})
    assert check(lambda: Pair(1, "x")).passed
    assert not check(lambda: Pair(1, "y")).passed
    assert not check(lambda: Pair(2, "x")).passed


def test_a_learner_gets_copies():
    CHECK(in_place)
    assert CHECK.cases[0].args[0].tolist() == [1.0, 2.0]


def test_an_interrupt_comes_through():
    def hang(x: Tensor) -> Tensor:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        CHECK(hang)


def test_the_result_shows_itself():
    result = CheckResult("f", "wrong", "use `a < b`")
    assert repr(result) == "✗ f: use `a < b`"
    bundle = result._repr_mimebundle_()
    assert "<code>a &lt; b</code>" in bundle["text/html"]
    assert bundle["application/vnd.agentgym-lite.check+json"] == {"name": "f", "status": "wrong", "message": "use `a < b`"}
    assert not result.passed
