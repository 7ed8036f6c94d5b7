"""See what happened: tokens coloured by mask, playable replays, learning curves, and the report of a run."""

from agentgym_lite.viewer.html import View
from agentgym_lite.viewer.plots import curves_html
from agentgym_lite.viewer.replay import compare_html, replay_html, with_renderings
from agentgym_lite.viewer.report import write_report
from agentgym_lite.viewer.report_data import ReplayRef, ReportData, RunFolderError, Score, TaskRow, load_report_data
from agentgym_lite.viewer.tokens import token_decoder, tokens_ansi, tokens_html

__all__ = [
    "ReplayRef",
    "ReportData",
    "RunFolderError",
    "Score",
    "TaskRow",
    "View",
    "compare_html",
    "curves_html",
    "load_report_data",
    "replay_html",
    "token_decoder",
    "tokens_ansi",
    "tokens_html",
    "with_renderings",
    "write_report",
]
