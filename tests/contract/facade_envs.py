"""Stand-ins for environments that need Java, an index or sites: a counter under their names, with what their dialects read."""

from __future__ import annotations

from typing import ClassVar

from fake_envs import Counter

from agentgym_envs.core import Observation, StepResult


class SciWorldStandIn(Counter):
    """Description, blank line, view; raw scores from -100 to 100."""

    name: ClassVar[str] = "sciworld"

    def _observe(self, text: str) -> Observation:
        seen = super()._observe(text)
        return Observation(f"Your task is to count.\n\n{seen.text}" if self.moves == 0 else seen.text, seen.actions, {"moves": self.moves})

    def _result(self, observation: Observation, reward: float, *, invalid: bool) -> StepResult:
        result = super()._result(observation, reward, invalid=invalid)
        return StepResult(observation, reward, result.done, {**result.info, "score": 100 * self.count // self.goal})


class SearchQAStandIn(Counter):
    """Actions in tags."""

    name: ClassVar[str] = "searchqa"

    def step(self, action: str) -> StepResult:
        return super().step({"<search>up</search>": "up", "<answer>down</answer>": "down"}.get(action, action))


class WebArenaStandIn(Counter):
    """Observations with the lines that the dialect reads."""

    name: ClassVar[str] = "webarena"

    def _observe(self, text: str) -> Observation:
        seen = super()._observe(text)
        return Observation(f"OBSERVATION:\n{seen.text}\nOBJECTIVE: count up\nPREVIOUS ACTION: None", seen.actions, {"url": "u"})


STAND_INS = {cls.name: f"{__name__}:{cls.__name__}" for cls in (SciWorldStandIn, SearchQAStandIn, WebArenaStandIn)}
