"""Actions between marks: tags, as search agents write them, and back-ticks, as web agents do."""

from __future__ import annotations

import re
from collections.abc import Mapping

from agentgym_lite.agents.formats import ActionFormat, ParsedAction, before_stop, one_line

#: Tags of a search agent and the action that each stands for.
SEARCH_TAGS = {"search": "<search>{}</search>", "answer": "<answer>{}</answer>"}
#: The tag for environments whose actions are neither searches nor answers.
ACTION_TAG = {"action": "{}"}
_THINK = re.compile(r"</?think>")


class SearchTags(ActionFormat):
    """``<think>...</think>``, then one ``<search>...</search>`` or ``<answer>...</answer>`` (Search-R1, Jin et al., arXiv 2503.09516).

    ``tags`` gives for each tag the action's text, with ``{}`` for what stands between the marks. Tags in the thought do not count.
    """

    def __init__(self, tags: Mapping[str, str] = SEARCH_TAGS) -> None:
        self._tags = dict(tags)
        self._mark = re.compile(rf"<(/?)({'|'.join(map(re.escape, self._tags))})>")
        forms = " or ".join(f"<{tag}>...</{tag}>" for tag in self._tags)
        self.reply_rules = f"Think between <think> and </think>, then give exactly one action as {forms}."

    @classmethod
    def for_env(cls, env: str) -> SearchTags:
        """Search and answer tags for ``searchqa``, one ``<action>`` tag for every other environment."""
        return cls(SEARCH_TAGS if env == "searchqa" else ACTION_TAG)

    def parse(self, reply: str) -> ParsedAction:
        head, closed, tail = before_stop(reply).rpartition("</think>")
        marks = list(self._mark.finditer(tail))
        thought = _THINK.sub("", head if closed else tail[: marks[0].start()] if marks else tail).strip()
        if len(marks) != 2 or marks[0][1] or not marks[1][1] or marks[0][2] != marks[1][2]:
            found = sum(not m[1] for m in marks)
            why = f"Your reply has {found} action tags; give exactly one." if found != 1 else "Your action tag is not closed."
            return ParsedAction(None, thought, f"{why} {self.reply_rules}")
        text = one_line(tail[marks[0].end() : marks[1].start()])
        if not text:
            return ParsedAction(None, thought, f"Your action tag is empty. {self.reply_rules}")
        return ParsedAction(self._tags[marks[0][2]].replace("{}", text), thought)

    def render(self, thought: str, action: str) -> str:
        for tag, template in self._tags.items():
            before, _, after = template.partition("{}")
            if action.startswith(before) and action.endswith(after) and len(action) > len(before) + len(after):
                text = action[len(before) : len(action) - len(after)]
                return f"<think>{thought}</think>\n<{tag}>{text}</{tag}>" if thought else f"<{tag}>{text}</{tag}>"
        raise ValueError(f"expected an action such as {' or '.join(self._tags.values())}, found {action!r:.80}")


class Backticks(ActionFormat):
    """Reasoning, then one action between triple back-ticks (WebArena, Zhou et al., arXiv 2307.13854)."""

    example = "<why>\nNext action: ```<one action>```"
    reply_rules = f"Reason first, then give exactly one action between triple back-ticks, in this form:\n{example}"
    _LABEL = "Next action:"

    def parse(self, reply: str) -> ParsedAction:
        before, *blocks = before_stop(reply).split("```")
        thought = before.strip().removesuffix(self._LABEL).strip()
        if len(blocks) != 2:
            why = "no action between triple back-ticks" if len(blocks) < 2 else "more than one block in triple back-ticks; give exactly one"
            return ParsedAction(None, thought, f"Your reply has {why}. Reply in this form:\n{self.example}")
        action = one_line(blocks[0])
        if not action:
            return ParsedAction(None, thought, f"Nothing stands between the back-ticks. Reply in this form:\n{self.example}")
        return ParsedAction(action, thought)

    def render(self, thought: str, action: str) -> str:
        return f"{thought}\n{self._LABEL} ```{action}```" if thought else f"{self._LABEL} ```{action}```"
