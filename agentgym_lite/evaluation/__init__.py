"""Evaluation: suites, agents that play them, metrics with confidence intervals."""

from agentgym_lite.evaluation.compare import compare_agents
from agentgym_lite.evaluation.evaluate import evaluate, play_missing
from agentgym_lite.evaluation.intervals import Interval, bootstrap_mean, wilson
from agentgym_lite.evaluation.metrics import Summary, pass_at_k, summarize
from agentgym_lite.evaluation.players import AgentError, Player, make_player
from agentgym_lite.evaluation.results import Results, ResultsError, ResultsFolder, tabulate
from agentgym_lite.evaluation.suite import Suite, SuiteError, SuiteItem, load_suite

__all__ = [
    "AgentError",
    "Interval",
    "Player",
    "Results",
    "ResultsError",
    "ResultsFolder",
    "Suite",
    "SuiteError",
    "SuiteItem",
    "Summary",
    "bootstrap_mean",
    "compare_agents",
    "evaluate",
    "load_suite",
    "make_player",
    "pass_at_k",
    "play_missing",
    "summarize",
    "tabulate",
    "wilson",
]
