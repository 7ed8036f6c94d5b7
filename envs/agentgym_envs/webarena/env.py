"""The WebArena environment (Zhou et al. 2024): reach an objective on a web site by clicking, typing and reading its accessibility tree."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from agentgym_envs.core import Environment, Observation, Split, StepResult, UnknownItem
from agentgym_envs.webarena import tasks as miniature
from agentgym_envs.webarena.actions import ActionError, extract, parse
from agentgym_envs.webarena.browser.base import VIEWPORT, Browser
from agentgym_envs.webarena.browser.text import TextBrowser
from agentgym_envs.webarena.evaluators import Outcome, evaluate
from agentgym_envs.webarena.official import Official, OfficialWeb
from agentgym_envs.webarena.tasks import Task
from agentgym_envs.webarena.web import SiteWeb

_CLICKED = frozenset(("link", "button", "checkbox", "radio", "option"))


class WebArena(Environment):
    """Five small sites in the form of WebArena's, or the official sites; reward 1 at ``stop`` if every evaluator is content, else 0.

    ``browser`` is ``"text"`` (in process, thousands of steps a second) or ``"chromium"`` (the same observations, drawn, with scripts).
    ``viewport`` is the number of tree lines shown at a time. ``official`` maps ``shopping``, ``shopping_admin``, ``reddit``, ``gitlab``,
    ``map``, ``wikipedia`` to base URLs (or is an :class:`Official`): items are then the published task ids, played on those sites.
    """

    name: ClassVar[str] = "webarena"
    version: ClassVar[str] = "1+f79327a0fa25"  # rules, then tasks.content_hash()
    instructions: ClassVar[str] = (
        "Reach the objective on the web site. You see the page as a tree of elements with their ids. Actions: click [id]; "
        "type [id] [text] [1] to replace the content of a field and press Enter, or [0] to leave out Enter; hover [id]; press [key]; "
        "scroll [down] or scroll [up]; goto [url]; new_tab; tab_focus [number]; close_tab; go_back; go_forward; stop [answer] when the "
        "objective is reached. Click an option to choose it. If the objective asks for something, stop with just the answer; "
        "if it cannot be reached, with N/A.\nReply with one action, in this format:\nThought: your reasoning\nAction: your command"
    )

    def __init__(
        self,
        browser: Literal["text", "chromium"] = "text",
        viewport: int = VIEWPORT,
        official: Mapping[str, str] | Official | None = None,
    ) -> None:
        if browser not in ("text", "chromium"):
            raise ValueError(f"expected browser 'text' or 'chromium', found {browser!r:.40}")
        if viewport < 1:
            raise ValueError(f"expected a viewport of at least one line, found {viewport}")
        self._kind, self._viewport = browser, viewport
        self._official = official if official is None or isinstance(official, Official) else Official(official)
        self._task: Task | None = None
        self._web: SiteWeb | OfficialWeb | None = None
        self._browser: Browser | None = None
        self._last = ""
        self._previous = "None"
        self._verdicts: dict[str, bool] | None = None

    @classmethod
    def items(cls, split: Split) -> list[str]:
        """Item ids of the miniature, site by site: shopping, cms, map, gitlab, reddit."""
        return [f"{cls.name}_{n}" for n in miniature.split(split)]

    @classmethod
    def task_of(cls, item_id: str | int) -> str:
        """``"shopping"``, ``"cms"``, ``"map"``, ``"gitlab"`` or ``"reddit"``. Raises ``UnknownItem``."""
        return cls._miniature_task(item_id).row

    @classmethod
    def _miniature_task(cls, item_id: str | int) -> Task:
        number = cls.item_index(item_id)
        if not 0 <= number < len(miniature.tasks()):
            raise UnknownItem(f"expected a WebArena item from 0 to {len(miniature.tasks()) - 1}, found {number}")
        return miniature.tasks()[number]

    def reset(self, item_id: str | int, seed: int = 0) -> Observation:
        """Start an item on fresh content, logged in. Everything is fixed: ``seed`` changes nothing. Raises ``UnknownItem``."""
        task = self._official.task(self.item_index(item_id)) if self._official else self._miniature_task(item_id)
        self.close()
        self._task, self._verdicts, self._previous = task, None, "None"
        self._web = self._official.web(task) if self._official else SiteWeb(miniature.sites())
        self._browser = self._new_browser(self._web)
        if self._official:
            self._official.log_in(self._browser, task)
        self._browser.open(task.start_urls[0])
        for url in task.start_urls[1:]:
            self._browser.act(parse("new_tab"))
            self._browser.open(url)
        if len(task.start_urls) > 1:
            self._browser.act(parse("tab_focus [0]"))
        return self._observe("")

    def _new_browser(self, web: SiteWeb | OfficialWeb) -> Browser:
        if self._kind == "text":
            return TextBrowser(web, self._viewport)
        from agentgym_envs.webarena.browser.chromium import ChromiumBrowser  # the only part that needs Playwright

        return ChromiumBrowser(web, self._viewport, self._official.settle if self._official else 0.0)

    def step(self, action: str) -> StepResult:
        """Carry out one action: text in triple back-ticks, else the bare action. Raises ``RuntimeError`` before ``reset``."""
        task, browser = self._episode()
        if self._verdicts is not None:
            return self._result(Observation(self._last), 0.0, invalid=True)
        text = extract(action)
        problem = ""
        try:
            parsed = parse(text)
            if parsed.verb == "stop":
                self._verdicts = evaluate(task.evaluation, self._outcome(parsed.text))
            else:
                browser.act(parsed)
        except ActionError as error:
            problem = str(error)
        self._previous = " ".join("".join(c if c.isprintable() else " " for c in text).split())[:200] or "None"
        success = self._verdicts is not None and all(self._verdicts.values())
        return self._result(self._observe(problem), float(success), invalid=bool(problem))

    def _outcome(self, answer: str) -> Outcome:
        task, browser = self._episode()
        if isinstance(self._web, SiteWeb):
            return Outcome(answer, browser, self._web.databases.reading(task.site))
        assert self._official is not None
        return Outcome(answer, browser, None, self._official.functions(browser))

    def available_actions(self) -> list[str]:
        """Clicks on what is shown, ``scroll`` where there is more, and the actions without arguments. Text and answers cannot be listed."""
        if self._browser is None or self._verdicts is not None:
            return []
        view = self._browser.view()
        clicks = [f"click [{line.id}]" for line in view.window if line.node.role in _CLICKED and not line.node.properties.get("disabled")]
        more = len(view.lines) - 1 - view.offset > view.size
        return [*clicks, *(["scroll [down]"] * more), *(["scroll [up]"] * (view.offset > 0)), "new_tab", "stop []"]

    def render(self) -> dict[str, Any]:
        """Objective, URL, tabs, tree, verdicts after ``stop``; with Chromium a PNG in base64. Raises ``RuntimeError`` before ``reset``."""
        task, browser = self._episode()
        view = browser.view()
        image = browser.screenshot()
        return {
            "kind": self.name,
            "text": self._last,
            "objective": task.objective,
            "site": task.site,
            "url": view.url,
            "tabs": list(view.titles),
            "current_tab": view.current,
            "tree": [str(line) for line in view.window],
            "evaluation": self._verdicts,
            "done": self._verdicts is not None,
            "screenshot": base64.b64encode(image).decode() if image else None,
        }

    def close(self) -> None:
        """Free the browser and the databases."""
        if self._browser is not None:
            self._browser.close()
        if self._web is not None:
            self._web.close()
        self._browser = self._web = None

    def _episode(self) -> tuple[Task, Browser]:
        if self._task is None or self._browser is None:
            raise RuntimeError("WebArena: call reset(item_id) before step or render")
        return self._task, self._browser

    def _observe(self, problem: str) -> Observation:
        task, browser = self._episode()
        view = browser.view()
        lines = ["OBSERVATION:", view.text, f"URL: {view.url}", f"OBJECTIVE: {task.objective}", f"PREVIOUS ACTION: {self._previous}"]
        self._last = "\n".join([*lines, *([f"ERROR: {problem}."] if problem else [])])
        return Observation(self._last, tuple(self.available_actions()), {"url": view.url})

    def _result(self, observation: Observation, reward: float, invalid: bool) -> StepResult:
        done = self._verdicts is not None
        success = done and all((self._verdicts or {}).values())
        info = {"success": success, "invalid": invalid, "score": float(success)}
        return StepResult(observation, reward, done, info | ({"evaluation": dict(self._verdicts)} if self._verdicts is not None else {}))
