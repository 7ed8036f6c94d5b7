"""See what happened: list, filter and replay trajectories, tokens coloured by mask, learning curves, and the report of a run.

:class:`TrajectoryViewer` is the notebook widget, imported when it is asked for since it needs ``anywidget``.
"""

from typing import TYPE_CHECKING, Any

from agentgym_lite.viewer.export import export_html
from agentgym_lite.viewer.html import View
from agentgym_lite.viewer.plots import curves_html
from agentgym_lite.viewer.renderings import with_renderings
from agentgym_lite.viewer.replay import browse_html, compare_html, replay_html, tokens_html
from agentgym_lite.viewer.report import write_report
from agentgym_lite.viewer.report_data import ReplayRef, ReportData, RunFolderError, Score, TaskRow, load_report_data
from agentgym_lite.viewer.store import StoreError, TrajectoryStore
from agentgym_lite.viewer.tokens import token_decoder, tokens_ansi

if TYPE_CHECKING:
    from agentgym_lite.viewer.widget import TrajectoryViewer

__all__ = [
    "ReplayRef",
    "ReportData",
    "RunFolderError",
    "Score",
    "StoreError",
    "TaskRow",
    "TrajectoryStore",
    "TrajectoryViewer",
    "View",
    "browse_html",
    "compare_html",
    "curves_html",
    "export_html",
    "load_report_data",
    "replay_html",
    "token_decoder",
    "tokens_ansi",
    "tokens_html",
    "with_renderings",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name != "TrajectoryViewer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from agentgym_lite.viewer.widget import TrajectoryViewer
    except ModuleNotFoundError as e:
        raise ImportError(f"the notebook widget needs {e.name}: pip install anywidget; or use browse_html(trajectories)") from e
    return TrajectoryViewer
