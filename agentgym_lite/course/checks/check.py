"""What a check is: the right answer, inputs that tell answers apart, and the mistakes that it knows by name."""

from __future__ import annotations

import html
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from agentgym_lite.course.cells import RESULT_MIME

#: ``unsolved``: the stub is still there; ``error``: the function raised; ``wrong``: it answered, but not rightly.
Status = Literal["passed", "wrong", "error", "unsolved"]

_MARKS: dict[Status, tuple[str, str]] = {
    "passed": ("✓", "#2e9d58"),
    "wrong": ("✗", "#d0453a"),
    "error": ("!", "#d0453a"),
    "unsolved": ("…", "#8a8f98"),
}


@dataclass(frozen=True)
class CheckResult:
    """Outcome of one check, which notebooks show as a coloured line."""

    name: str
    status: Status
    message: str

    @property
    def passed(self) -> bool:
        return self.status == "passed"

    def to_dict(self) -> dict[str, str]:
        """JSON-ready form."""
        return asdict(self)

    def __repr__(self) -> str:
        return f"{_MARKS[self.status][0]} {self.name}: {self.message}"

    def _repr_html_(self) -> str:
        mark, colour = _MARKS[self.status]
        text = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(self.message))
        return (
            f'<div style="border-left:4px solid {colour};padding:.4em .8em;margin:.3em 0">'
            f'<b style="color:{colour}">{mark} {html.escape(self.name)}</b><br>{text}</div>'
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {"text/plain": repr(self), "text/html": self._repr_html_(), RESULT_MIME: self.to_dict()}


@dataclass(frozen=True)
class Case:
    """Arguments to call the function with; ``why`` ends the sentence "wrong on ..."."""

    why: str
    args: tuple[Any, ...]


@dataclass(frozen=True)
class Mistake:
    """A wrong variant that learners write, and the sentence that names what is wrong with it."""

    says: str
    wrong: Callable[..., Any]


@dataclass(frozen=True)
class Check:
    """Compares a function with ``right`` on ``cases``; where they differ, looks for a mistake that gives the same wrong answers everywhere.

    The inputs must tell each mistake from ``right`` and from every other mistake (tested for all checks). ``grad`` numbers the arguments
    that the gradient of the summed answer is taken by: it must agree too. ``read`` makes an answer comparable: numbers, tensors, strings,
    and lists, tuples or mappings of them.
    """

    name: str
    right: Callable[..., Any]
    cases: tuple[Case, ...]
    mistakes: tuple[Mistake, ...]
    grad: tuple[int, ...] = ()
    read: Callable[[Any], Any] = lambda answer: answer
    atol: float = 1e-5

    def __call__(self, function: Callable[..., Any]) -> CheckResult:
        """Check ``function``; it gets copies of the inputs. Nothing that it raises (but an interrupt) comes through."""
        if not callable(function):
            return self._result("error", f"expected the function itself, found {type(function).__name__}: write `checks.{self.name}(f)`")
        found = []
        for case in self.cases:
            try:
                found.append(self._run(function, case))
            except NotImplementedError:
                return self._result("unsolved", "not yet solved: replace the line that raises NotImplementedError")
        wanted = [self._run(self.right, case) for case in self.cases]
        if _same(found, wanted, self.atol):
            if changed := [c.why for c, f in zip(self.cases, found, strict=True) if f.mutated]:
                return self._result("wrong", f"right, but an argument was changed in place, on {changed[0]}: work on a copy")
            return self._result("passed", f"right on all {len(self.cases)} cases")
        for mistake in self.mistakes:
            if _same(found, [self._run(mistake.wrong, case) for case in self.cases], self.atol):
                return self._result("wrong", mistake.says)
        return self._result(*_diagnose(self.cases, found, wanted, self.atol))

    def _result(self, status: Status, message: str) -> CheckResult:
        return CheckResult(self.name, status, message)

    def _run(self, function: Callable[..., Any], case: Case) -> _Outcome:
        args = deepcopy(case.args)
        for i in self.grad:
            args[i].requires_grad_()
        try:
            with warnings.catch_warnings(action="ignore"):  # such as torch's about the std of one number, which the message explains better
                answer = self.read(function(*args))
        except NotImplementedError:
            raise
        except Exception as e:
            return _Outcome(None, None, error=f"{type(e).__name__}: {e}" if str(e) else type(e).__name__)
        mutated = not _alike(_plain(args), _plain(case.args), 0.0)
        return _Outcome(_plain(answer), _gradients(answer, [args[i] for i in self.grad]), mutated)


@dataclass(frozen=True)
class _Outcome:
    """What a call came to: the plain answer, its gradients (None if it has none), or the error."""

    answer: Any
    gradients: Any
    mutated: bool = False
    error: str = ""


def _gradients(answer: Any, inputs: list[Tensor]) -> Any:
    if not inputs or not isinstance(answer, Tensor) or not answer.requires_grad:
        return None
    got = torch.autograd.grad(answer.sum(), inputs, allow_unused=True)
    return _plain([torch.zeros_like(x) if g is None else g for x, g in zip(inputs, got, strict=True)])


def _plain(x: Any) -> Any:
    """Numbers, arrays and lists of numbers as float64 tensors, containers of anything else item by item."""
    if isinstance(x, Tensor):
        return x.detach().double()
    if isinstance(x, Mapping):
        return {k: _plain(v) for k, v in x.items()}
    if isinstance(x, str | bytes | None):
        return x
    items = [v.detach() if isinstance(v, Tensor) else v for v in x] if isinstance(x, Sequence) else x
    try:
        return torch.as_tensor(items, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        return [_plain(v) for v in items] if isinstance(items, list) else x


def _alike(a: Any, b: Any, atol: float) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and torch.allclose(a, b, rtol=0.0, atol=atol, equal_nan=True)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_alike(x, y, atol) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_alike(v, b[k], atol) for k, v in a.items())
    return type(a) is type(b) and bool(a == b)


def _same(found: Sequence[_Outcome], others: Sequence[_Outcome], atol: float) -> bool:
    return all(_equal(f, o, atol) for f, o in zip(found, others, strict=True))


def _equal(f: _Outcome, o: _Outcome, atol: float) -> bool:
    same_error = f.error.partition(":")[0] == o.error.partition(":")[0]
    return same_error and _alike(f.answer, o.answer, atol) and _alike(f.gradients, o.gradients, atol)


def _diagnose(cases: Sequence[Case], found: Sequence[_Outcome], wanted: Sequence[_Outcome], atol: float) -> tuple[Status, str]:
    """What can be said of an answer that no known mistake explains."""
    case, f, w = next((c, f, w) for c, f, w in zip(cases, found, wanted, strict=True) if not _equal(f, w, atol))
    if f.error:
        return "error", f"raised {f.error}, on {case.why}"
    if f.answer is None:
        return "wrong", f"returned nothing on {case.why}: does the function end with `return`?"
    if all(_alike(x.answer, y.answer, atol) for x, y in zip(found, wanted, strict=True)):
        lost = "there is none" if f.gradients is None else "it is another one"
        return "wrong", f"the values are right, but not the gradient: {lost}, on {case.why}. Look for detach(), item() or a missing one"
    if _negative(found, wanted, atol):
        return "wrong", "the sign is turned around everywhere"
    if isinstance(f.answer, Tensor) and isinstance(w.answer, Tensor):
        if f.answer.shape != w.answer.shape:
            return "wrong", f"expected the shape {list(w.answer.shape)}, found {list(f.answer.shape)}, on {case.why}"
        if not f.answer.isfinite().all():
            return "wrong", f"found {_show(f.answer)}, on {case.why}: a number there is not finite"
    return "wrong", f"wrong on {case.why}: found {_show(f.answer)}. Work this case out by hand and compare"


def _negative(found: Sequence[_Outcome], wanted: Sequence[_Outcome], atol: float) -> bool:
    pairs = [(f.answer, w.answer) for f, w in zip(found, wanted, strict=True)]
    return all(isinstance(f, Tensor) and isinstance(w, Tensor) and _alike(f, -w, atol) for f, w in pairs)


def _show(x: Any, limit: int = 120) -> str:
    text = str([_show(v) for v in x]) if isinstance(x, list) else _numbers(x) if isinstance(x, Tensor) else repr(x)
    return text if len(text) <= limit else text[: limit - 4] + " ..."


def _numbers(x: Tensor) -> str:
    if x.ndim == 0:
        return _number(float(x))
    return "[" + ", ".join(_numbers(v) for v in x) + "]"


def _number(x: float) -> str:
    return str(int(x)) if math.isfinite(x) and x == int(x) else f"{x:.4g}"
