"""The agents of docs/agents.md do what the page says."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from agents_factory import Said, Sums, texts

from agentgym_envs import core
from agentgym_lite.agents import ParsedAction, make_scaffold

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "agents.md").read_text(encoding="utf-8")


@pytest.fixture
def _mine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(core._REGISTRY, "sums", f"{Sums.__module__}:Sums")
    module = ModuleType("my_agents")
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(code, "docs/agents.md", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, "my_agents", module)


@pytest.mark.usefixtures("_mine")
def test_the_strategy_and_the_format_of_the_page_play() -> None:
    scaffold = make_scaffold("my_agents:arrow", "my_agents:Replan", "window:1")
    t = Said(["ones", "a -> add 1", "b -> add 1", "c -> add 1", "the last one", "d -> add 1"]).play(scaffold, item=4, max_rounds=4)
    assert [u.kind for u in t.turns] == ["plan", "act", "act", "act", "plan", "act"]
    assert t.success
    assert "Your plan:\nones" in texts(t)[-2]
    assert t.info["agent"]["strategy"] == "my_agents:Replan"
    form = scaffold.formats("sums")
    assert form.parse(form.render("why", "add 1")) == ParsedAction("add 1", "why")
    assert "There is no action" in str(form.parse("add 1").error)


def test_the_page_names_every_format_strategy_and_memory() -> None:
    from agentgym_lite.agents.scaffold import FORMATS, MEMORIES, STRATEGIES

    for name in (*FORMATS, *STRATEGIES, *MEMORIES):
        assert re.search(rf"^\| `{name}\b", PAGE, re.MULTILINE), name
