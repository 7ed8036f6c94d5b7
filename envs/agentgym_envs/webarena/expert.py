"""Agents for WebArena that need no model: an expert that knows the sites' ways, and a random one."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import cache
from typing import Any

from agentgym_envs.agents import Decision
from agentgym_envs.core import Observation
from agentgym_envs.webarena.actions import USAGE, parse
from agentgym_envs.webarena.page import Page
from agentgym_envs.webarena.sites.base import Script
from agentgym_envs.webarena.tasks import Task, tasks

_FIELDS = ("textbox", "searchbox", "spinbutton")


@cache
def _by_objective() -> dict[str, Task]:
    return {task.objective: task for task in tasks()}


def objective_of(text: str) -> str:
    """The objective in an observation. Raises ``ValueError`` if there is none."""
    for line in reversed(text.split("\n")):
        if line.startswith("OBJECTIVE: "):
            return line.removeprefix("OBJECTIVE: ")
    raise ValueError(f"expected an observation with 'OBJECTIVE: ', found {text!r:.200}")


class Expert:
    """Recognises the task by its objective and then follows that task family's script, which sees pages only."""

    def reset(self, observation: Observation, render: Callable[[], dict[str, Any]]) -> None:
        """Find the script. Raises ``ValueError`` for an objective that is not among the miniature's tasks."""
        objective = objective_of(observation.text)
        task = _by_objective().get(objective)
        if task is None or task.template is None or task.instance is None:
            raise ValueError(f"expected the objective of a miniature task, found {objective!r:.200}")
        self._script: Script = task.template.solve(Page.parse(observation.text), **task.instance.params)
        self._has_begun = False

    def act(self, observation: Observation) -> Decision:
        """The script's next action."""
        page = Page.parse(observation.text)
        action = self._script.send(page) if self._has_begun else next(self._script)
        self._has_begun = True
        return Decision(action, _thought(action, page))


def _thought(action: str, page: Page) -> str:
    """Why, in a few words taken from the page, for a model to learn."""
    parsed = parse(action)
    if parsed.verb == "stop":
        return f"the answer is {parsed.text}." if parsed.text else "the objective is reached."
    if parsed.verb in ("click", "type"):
        node = page.node(parsed.target)
        name = node.name or node.role
        if parsed.verb == "type":
            return f"write {parsed.text} as {name}." if parsed.text else f"clear {name}."
        verb = {"link": "open", "button": "press", "option": "choose"}.get(node.role, "click")
        return f"{verb} {name}."
    return {"scroll": f"look further {parsed.text}.", "goto": f"go to {parsed.text}.", "go_back": "go back."}.get(
        parsed.verb, f"{parsed.verb}."
    )


class RandomAgent:
    """Draws from the action grammar with ids that are shown and words of the page; equal seeds give equal actions."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def reset(self, observation: Observation, render: Callable[[], dict[str, Any]]) -> None:
        """Nothing to remember between episodes; the stream of draws goes on."""

    def act(self, observation: Observation) -> Decision:
        """A random action."""
        page = Page.parse(observation.text)
        verb = self._random.choice([*USAGE, "click", "click", "click", "type"])
        node = self._random.choice(page.nodes)
        words = re.findall(r"\w+", self._random.choice(page.nodes).name) or ["a"]
        word = self._random.choice(words)
        if verb == "type":
            fields = [n for n in page.nodes if n.role in _FIELDS] or [node]
            return Decision(Page.type_into(self._random.choice(fields).id, word, self._random.random() < 0.5))
        argument = {
            "click": f" [{node.id}]",
            "hover": f" [{node.id}]",
            "press": f" [{self._random.choice(('enter', 'tab', 'escape'))}]",
            "scroll": f" [{self._random.choice(('up', 'down'))}]",
            "goto": f" [{page.url}]",
            "tab_focus": f" [{self._random.randrange(len(page.tabs) or 1)}]",
            "stop": f" [{word}]",
        }
        return Decision(verb + argument.get(verb, ""))
