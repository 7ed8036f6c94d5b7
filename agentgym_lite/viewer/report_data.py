"""What a run folder says about itself: the schema of ``report.json``, read by :func:`agentgym_lite.viewer.report.write_report`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, computed_field, model_validator

from agentgym_lite.evaluation.intervals import wilson

#: Names inside a run folder.
REPORT_JSON = "report.json"
METRICS_JSONL = "metrics.jsonl"
TRAJECTORIES_JSONL = "trajectories.jsonl"
REPORT_HTML = "report.html"


class RunFolderError(ValueError):
    """A run folder that cannot be shown; the message says what was expected, what was found and what to do."""


class Score(BaseModel):
    """Successes out of ``n`` evaluation episodes, each on an item of its own.

    ``rate``, ``low`` and ``high`` (95 % Wilson interval) are written for readers and recomputed on loading.
    """

    model_config = ConfigDict(frozen=True)

    n: int = Field(ge=1)
    successes: int = Field(ge=0)

    @model_validator(mode="after")
    def _possible(self) -> Score:
        if self.successes > self.n:
            raise ValueError(f"{self.successes} successes out of {self.n} episodes")
        return self

    @computed_field  # type: ignore[prop-decorator]
    @property
    def rate(self) -> float:
        return self.successes / self.n

    @computed_field  # type: ignore[prop-decorator]
    @property
    def low(self) -> float:
        return wilson(self.successes, self.n).low

    @computed_field  # type: ignore[prop-decorator]
    @property
    def high(self) -> float:
        return wilson(self.successes, self.n).high

    def __add__(self, other: Score) -> Score:
        """Pooled over both sets of episodes."""
        return Score(n=self.n + other.n, successes=self.successes + other.successes)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TaskRow(_Strict):
    """One sub-task on held-out items: the policy before (``base``) and after training (``trained``), with its two yardsticks."""

    env: str
    #: Sub-task as named by ``Environment.task_of``.
    task: str
    base: Score
    trained: Score
    random: Score | None = None
    expert: Score | None = None


class ReplayRef(_Strict):
    """One trajectory to show."""

    when: Literal["before", "after"]
    #: JSON-lines file of ``Trajectory.to_dict``, relative to the run folder.
    file: str = TRAJECTORIES_JSONL
    #: Line in that file, counted from 0.
    line: int = Field(ge=0)


class ReportData(_Strict):
    """``report.json``: all of a run that is not a curve or a trajectory."""

    title: str
    #: Command that made the run, as typed.
    command: str
    #: Commands that lead from a fresh clone to the same run; the first one is usually ``command``'s install step.
    reproduce: list[str] = []
    #: Held-out results, in the order to show.
    results: list[TaskRow]
    #: The same held-out item before and after training; at most one of each.
    replays: list[ReplayRef] = []
    #: The run's configuration, ``Config.model_dump(mode="json")``.
    settings: dict[str, Any] = {}
    #: Software: ``{"python": "3.11.2", "torch": "2.13.0", ...}``.
    versions: dict[str, str] = {}
    #: Wall time of each phase in seconds, in order: ``{"evaluate base": 21.4, "train": 288.0, ...}``.
    times_s: dict[str, float] = {}
    #: One line, e.g. ``"2 CPU cores, 3.8 GiB memory"``.
    hardware: str = ""
    #: Folder with the trained model and tokenizer, relative to the run folder.
    checkpoint: str = ""
    #: What a reader must know to judge the result fairly, one sentence each.
    notes: list[str] = []


def load_report_data(run_dir: Path) -> ReportData:
    """Read ``report.json`` of a run folder. Raises ``RunFolderError``."""
    path = run_dir / REPORT_JSON
    try:
        return ReportData.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise RunFolderError(f"expected a run folder with {REPORT_JSON}, found none in '{run_dir}'; `agl demo` writes one") from None
    except ValidationError as e:
        first = e.errors()[0]
        where = ".".join(str(p) for p in first["loc"]) or "the file"
        raise RunFolderError(f"'{path}' is not a run report: {where}: {first['msg']}; write it with ReportData.model_dump_json") from None
