"""Which exceptions are a user's mistake or a machine's state, to be told in one paragraph, and which are faults of the kit."""

from __future__ import annotations

import sys

#: Errors whose message says what was expected, what was found and what to do. Named, not imported: an error can only have been raised
#: by a module that is loaded already, and the command line must start fast.
_EXPLAINED = (
    ("agentgym_lite.cli.errors", "UserError"),
    ("agentgym_lite.config", "ConfigError"),
    ("agentgym_lite.models", "ModelError"),
    ("agentgym_lite.evaluation.players", "AgentError"),
    ("agentgym_lite.evaluation.suite", "SuiteError"),
    ("agentgym_lite.evaluation.results", "ResultsError"),
    ("agentgym_lite.evaluation.paper", "TablesError"),
    ("agentgym_lite.client.errors", "EnvironmentFailure"),
    ("agentgym_lite.rollout.openai", "EndpointError"),
    ("agentgym_lite.rollout.vllm.errors", "VllmError"),
    ("agentgym_lite.evaluation.published", "PublishedError"),
    ("agentgym_lite.training.checkpoint", "CheckpointError"),
    ("agentgym_lite.training.errors", "TrainingError"),
    ("agentgym_lite.plan.model", "PlanError"),
    ("agentgym_lite.training.data", "DataError"),
    ("agentgym_lite.viewer.report_data", "RunFolderError"),
    ("agentgym_lite.viewer.store", "StoreError"),
    ("agentgym_lite.viewer.server", "ViewerError"),
    ("agentgym_lite.course.cells", "CourseError"),
    ("agentgym_envs.server", "ServeError"),
    ("agentgym_envs.core", "UnknownEnvironment"),
    ("agentgym_envs.core", "UnknownItem"),
)


class UserError(Exception):
    """A mistake on the command line that only the command can see."""


def explain(error: Exception) -> str | None:
    """The paragraph to print for ``error``, or ``None`` if it deserves a traceback."""
    if any((module := sys.modules.get(name)) and isinstance(error, getattr(module, attribute)) for name, attribute in _EXPLAINED):
        return " ".join(str(error).split())
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.strerror}: '{error.filename}'"
    return None
