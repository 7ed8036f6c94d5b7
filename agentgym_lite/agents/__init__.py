"""The agent: chat rendering to token ids, action formats, strategies, memory, and policies that need no model."""

from agentgym_lite.agents.chat import ChatRenderer, TurnDelta
from agentgym_lite.agents.dialogue import Dialogue
from agentgym_lite.agents.formats import ActionFormat, ParsedAction, ReAct
from agentgym_lite.agents.functions import CodeAction, Function, FunctionCall
from agentgym_lite.agents.marks import Backticks, SearchTags
from agentgym_lite.agents.policies import AgentPolicy, ExpertPolicy, NotingPolicy, RandomPolicy, TextPolicy, opening_messages, rehearse
from agentgym_lite.agents.scaffold import Scaffold, as_scaffold, make_scaffold
from agentgym_lite.agents.strategies import Ask, Memory, PlanFirst, Reflect, Strategy, SummaryMemory, WindowMemory

__all__ = [
    "ActionFormat",
    "AgentPolicy",
    "Ask",
    "Backticks",
    "ChatRenderer",
    "CodeAction",
    "Dialogue",
    "ExpertPolicy",
    "Function",
    "FunctionCall",
    "Memory",
    "NotingPolicy",
    "ParsedAction",
    "PlanFirst",
    "RandomPolicy",
    "ReAct",
    "Reflect",
    "Scaffold",
    "SearchTags",
    "Strategy",
    "SummaryMemory",
    "TextPolicy",
    "TurnDelta",
    "WindowMemory",
    "as_scaffold",
    "make_scaffold",
    "opening_messages",
    "rehearse",
]
