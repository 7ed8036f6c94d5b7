"""What stands between a policy and an environment: an action format, a strategy and a memory, chosen by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentgym_lite.agents.dialogue import Dialogue
from agentgym_lite.agents.formats import ActionFormat, ReAct
from agentgym_lite.agents.functions import CodeAction, FunctionCall
from agentgym_lite.agents.marks import Backticks, SearchTags
from agentgym_lite.agents.strategies import Memory, PlanFirst, Reflect, Strategy, SummaryMemory, WindowMemory
from agentgym_lite.config.base import ConfigError, load_callable

#: Name -> function from an environment's name to the format in which its agents act.
FORMATS: dict[str, Callable[[str], ActionFormat]] = {
    "react": lambda env: ReAct(),
    "function_call": FunctionCall.for_env,
    "code": CodeAction.for_env,
    "search_tags": SearchTags.for_env,
    "backticks": lambda env: Backticks(),
}
#: Name -> function from the number behind it, if there is one: ``reflect:3``.
STRATEGIES: dict[str, Callable[..., Strategy]] = {"plain": Strategy, "plan": PlanFirst, "reflect": Reflect}
MEMORIES: dict[str, Callable[..., Memory]] = {"full": Memory, "window": WindowMemory, "summary": SummaryMemory}

_DEFAULTS = {"format": "react", "strategy": "plain", "memory": "full"}


@dataclass(frozen=True)
class Scaffold:
    """An agent without its policy. ``settings`` are those arguments of :func:`make_scaffold` that are not its defaults."""

    formats: Callable[[str], ActionFormat] = FORMATS["react"]
    strategy: Strategy = field(default_factory=Strategy)
    memory: Memory = field(default_factory=Memory)
    settings: Mapping[str, str] = field(default_factory=dict)

    def dialogue(self, env: str, instructions: str) -> Dialogue:
        """A new episode's dialogue in environment ``env``."""
        form = self.formats(env)
        return Dialogue(form.system_prompt(instructions), form, self.strategy, self.memory)


def make_scaffold(format: str = "react", strategy: str = "plain", memory: str = "full") -> Scaffold:
    """The scaffold of these names.

    ``format``: ``react, function_call, code, search_tags, backticks``; ``strategy``: ``plain, plan, reflect:N`` (N attempts);
    ``memory``: ``full, window:K`` (turns), ``summary:K`` (rounds). Each may also be ``package.module:name`` of your own: a function from
    an environment's name to an ``ActionFormat``, or one without arguments that makes a ``Strategy`` or a ``Memory``. Raises
    ``ConfigError``.
    """
    given = {"format": format, "strategy": strategy, "memory": memory}
    formats = FORMATS[format] if format in FORMATS else _own(format, "format", FORMATS)
    return Scaffold(
        formats,
        _build(strategy, "strategy", STRATEGIES),
        _build(memory, "memory", MEMORIES),
        {k: v for k, v in given.items() if v != _DEFAULTS[k]},
    )


def as_scaffold(given: Scaffold | ActionFormat | None) -> Scaffold:
    """A scaffold, or the plain one with full memory that acts in the format given (default ReAct)."""
    if isinstance(given, Scaffold):
        return given
    form = given or ReAct()
    return Scaffold(lambda env: form)


def _build(text: str, what: str, known: Mapping[str, Callable[..., Any]]) -> Any:
    name, colon, number = text.partition(":")
    if name not in known:
        return _own(text, what, known)()
    if colon and not (number.isascii() and number.isdecimal() and len(number) < 6):
        raise ConfigError(f"{what}: expected a whole number behind '{name}:', found {text!r:.80}")
    try:
        return known[name](*([int(number)] if colon else []))
    except (TypeError, ValueError) as e:
        why = f"'{name}' {'takes no' if colon else 'needs a'} number, as in '{name}:4'" if isinstance(e, TypeError) else str(e)
        raise ConfigError(f"{what}: {why}; found {text!r:.80}") from None


def _own(text: str, what: str, known: Mapping[str, Any]) -> Callable[..., Any]:
    if ":" not in text:
        raise ConfigError(f"{what}: expected {', '.join(known)} or package.module:name, found {text!r:.80}")
    return load_callable(text, f"agent.{what}")
