"""The agent: chat rendering to token ids, action formats, and policies that need no model."""

from agentgym_lite.agents.chat import ChatRenderer, TurnDelta
from agentgym_lite.agents.formats import ActionFormat, ParsedAction, ReAct
from agentgym_lite.agents.policies import AgentPolicy, ExpertPolicy, RandomPolicy, TextPolicy, opening_messages

__all__ = [
    "ActionFormat",
    "AgentPolicy",
    "ChatRenderer",
    "ExpertPolicy",
    "ParsedAction",
    "RandomPolicy",
    "ReAct",
    "TextPolicy",
    "TurnDelta",
    "opening_messages",
]
