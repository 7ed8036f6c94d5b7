"""Actions as function calls: in JSON, or as one line of Python. Both are read with a parser of literals; nothing is ever run."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from string import Formatter
from typing import Any, NoReturn

from agentgym_lite.agents.formats import ActionFormat, ParsedAction, before_stop, one_line

#: Characters of Python that are worth parsing: the longest call of an expert has about 200.
_MAX_CODE = 4000


class CallError(ValueError):
    """A call that is no action; the message is for the agent."""


@dataclass(frozen=True)
class Function:
    """A function that stands for a kind of action. ``template`` is the action's text, with ``{name}`` for strings and ``{name:d}`` for
    whole numbers, which are the parameters in order."""

    name: str
    template: str
    about: str

    @cached_property
    def parameters(self) -> dict[str, type[str] | type[int]]:
        """Type of each parameter."""
        return {field: int if spec == "d" else str for _, field, spec, _ in Formatter().parse(self.template) if field}

    @property
    def signature(self) -> str:
        return f"{self.name}({', '.join(f'{name}: {kind.__name__}' for name, kind in self.parameters.items())})"

    def action(self, arguments: Mapping[str, Any]) -> str:
        """The text of a call. Raises ``CallError``."""
        if set(arguments) != set(self.parameters):
            raise CallError(f"Wrong arguments. Call it as {self.signature}.")
        for name, kind in self.parameters.items():
            value = arguments[name]
            if not isinstance(value, kind) or isinstance(value, bool) or (isinstance(value, str) and not value.strip()):
                raise CallError(f"Argument '{name}' must be {'a whole number' if kind is int else 'text'}. Call it as {self.signature}.")
        try:
            return one_line(self.template.format(**arguments))
        except ValueError:  # a number with thousands of digits
            raise CallError("That number is too long.") from None

    def arguments(self, action: str) -> dict[str, Any] | None:
        """Arguments whose call is exactly ``action``; None if there are none."""
        match = self._pattern.fullmatch(action)
        if match is None:
            return None
        found = {name: self.parameters[name](text) for name, text in match.groupdict().items()}
        return found if self.template.format(**found) == action else None

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        parts = []
        for literal, field, spec, _ in Formatter().parse(self.template):
            parts.append(re.escape(literal))
            if field:
                parts.append(f"(?P<{field}>{'[0-9]{1,9}' if spec == 'd' else '.+?'})")
        return re.compile("".join(parts))


#: Stands for any action that has no function of its own.
ACT = Function("act", "{action}", "any action, in the words above")

#: Functions of environments whose actions have a fixed grammar. Every environment has ``act`` besides.
FUNCTIONS: dict[str, tuple[Function, ...]] = {
    "textcraft": (
        Function("get", "get {count:d} {item}", "get a raw item"),
        Function("craft", "craft {count:d} {item} using {ingredients}", "craft an item, ingredients as 'N item, N item'"),
        Function("inventory", "inventory", "list what you carry"),
    ),
    "babyai": (
        Function("turn_left", "turn left", "turn left"),
        Function("turn_right", "turn right", "turn right"),
        Function("move_forward", "move forward", "one step ahead"),
        Function("go_to", "go to {object}", "walk to an object or door"),
        Function("pick_up", "pick up {object}", "walk to an object and take it"),
        Function("drop", "drop", "put down what you carry"),
        Function("toggle", "toggle", "open or close what is ahead"),
        Function("go_through", "go through {door}", "walk through an open door"),
        Function("toggle_and_go_through", "toggle and go through {door}", "open a door and walk through"),
        Function("check_available_actions", "check available actions", "list possible actions"),
    ),
    "searchqa": (
        Function("search", "<search>{query}</search>", "search for passages"),
        Function("answer", "<answer>{text}</answer>", "give the final answer"),
    ),
    "webarena": (
        Function("click", "click [{id:d}]", "click an element"),
        Function("type", "type [{id:d}] [{text}] [{press_enter:d}]", "fill a field; press_enter is 1 or 0"),
        Function("hover", "hover [{id:d}]", "point at an element"),
        Function("press", "press [{key}]", "press a key"),
        Function("scroll", "scroll [{direction}]", "'up' or 'down'"),
        Function("goto", "goto [{url}]", "open an address"),
        Function("new_tab", "new_tab", "open a tab"),
        Function("tab_focus", "tab_focus [{number:d}]", "go to a tab"),
        Function("close_tab", "close_tab", "close this tab"),
        Function("go_back", "go_back", "the page before"),
        Function("go_forward", "go_forward", "the page after"),
        Function("stop", "stop [{answer}]", "end, with the answer or N/A"),
    ),
}


class _Calls(ActionFormat):
    """What both ways of writing a call share."""

    example: str
    _intro: str

    def __init__(self, functions: Iterable[Function] = ()) -> None:
        self._functions = {f.name: f for f in (*functions, ACT)}
        listed = "\n".join(f"{f.signature} - {f.about}" for f in self._functions.values())
        self.reply_rules = f"{self._intro}\n{self.example}\nFunctions:\n{listed}"

    @classmethod
    def for_env(cls, env: str) -> _Calls:
        """The format with the functions of an environment."""
        return cls(FUNCTIONS.get(env, ()))

    def _function(self, name: object) -> Function:
        if not isinstance(name, str) or name not in self._functions:
            raise CallError(f"There is no such function. Functions: {', '.join(self._functions)}.")
        return self._functions[name]

    def _call_for(self, action: str) -> tuple[str, dict[str, Any]]:
        for function in self._functions.values():
            if (arguments := function.arguments(action)) is not None:
                return function.name, arguments
        raise ValueError(f"expected an action of one line, found {action!r:.80}")

    def _wrong(self, why: object, thought: str = "") -> ParsedAction:
        return ParsedAction(None, thought, f"{why} Reply in this form:\n{self.example}")


class FunctionCall(_Calls):
    """``{"thought": ..., "name": ..., "arguments": {...}}``: one JSON object, alone or in a code fence or with text around it."""

    example = '{"thought": "<why>", "name": "<function>", "arguments": {"<name>": <value>}}'
    _intro = "Reply with one function call as a JSON object, in this form:"

    def parse(self, reply: str) -> ParsedAction:
        text = before_stop(reply)
        start = text.find("{")
        if start < 0:
            return self._wrong("Your reply has no JSON object.")
        try:
            call, end = _JSON.raw_decode(text, start)
        except (ValueError, RecursionError):
            return self._wrong("Your reply is not valid JSON.")
        if "{" in text[end:]:
            return self._wrong("Your reply has more than one JSON object; give exactly one.")
        thought, arguments = call.get("thought", ""), call.get("arguments", {})
        if not isinstance(thought, str) or not isinstance(arguments, dict):
            return self._wrong("'thought' must be text and 'arguments' an object.")
        try:
            return ParsedAction(self._function(call.get("name")).action(arguments), thought.strip())
        except CallError as e:
            return self._wrong(e, thought.strip())

    def render(self, thought: str, action: str) -> str:
        name, arguments = self._call_for(action)
        return json.dumps({"thought": thought, "name": name, "arguments": arguments}, ensure_ascii=False)


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_JSON = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse)


class CodeAction(_Calls):
    """One Python call of a function with literal arguments, under comments that hold the thought; alone or in one code fence.

    The call is taken apart with ``ast``. It is never run: an expression, an attribute or a second statement is an error to the agent.
    """

    example = '# <why>\nfunction(name="value")'
    _intro = "Reply with one Python call of a function, with literal arguments, under a comment that says why, in this form:"

    def parse(self, reply: str) -> ParsedAction:
        before, *blocks = before_stop(reply).split("```")
        if len(blocks) > 2:
            return self._wrong("Your reply has more than one block of code; give exactly one.")
        said, code = (before, blocks[0].removeprefix("python").strip()) if blocks else ("", before)
        comments = [line.lstrip()[1:].strip() for line in code.split("\n") if line.lstrip().startswith("#")]
        thought = "\n".join([said.strip(), *comments]).strip()
        try:
            function, arguments = self._read(code)
            return ParsedAction(function.action(arguments), thought)
        except CallError as e:
            return self._wrong(e, thought)

    def _read(self, code: str) -> tuple[Function, dict[str, Any]]:
        call = _only_call(code)
        function = self._function(call.func.id if isinstance(call.func, ast.Name) else None)
        names = [*list(function.parameters)[: len(call.args)], *(k.arg for k in call.keywords)]
        nodes = [*call.args, *(k.value for k in call.keywords)]
        if len(names) != len(nodes) or len(set(names)) != len(names):
            raise CallError(f"Wrong arguments. Call it as {function.signature}.")
        try:
            return function, {str(name): ast.literal_eval(node) for name, node in zip(names, nodes, strict=True)}
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            raise CallError("Arguments must be literal text or whole numbers.") from None

    def render(self, thought: str, action: str) -> str:
        name, arguments = self._call_for(action)
        comments = [f"# {line}\n" for line in thought.split("\n")] if thought else []
        return f"{''.join(comments)}{name}({', '.join(f'{k}={v!r}' for k, v in arguments.items())})"


def _only_call(code: str) -> ast.Call:
    if len(code) > _MAX_CODE:
        raise CallError("Your code is too long.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes in the agent's strings
            body = ast.parse(code).body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise CallError("Your reply is not valid Python.") from None
    if len(body) != 1 or not isinstance(body[0], ast.Expr) or not isinstance(body[0].value, ast.Call):
        raise CallError(f"Expected exactly one call, found {len(body)} statements." if len(body) != 1 else "Expected a call.")
    return body[0].value
