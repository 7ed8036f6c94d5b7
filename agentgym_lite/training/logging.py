"""Files of a run: ``metrics.jsonl``, ``trajectories.jsonl`` and TensorBoard events."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agentgym_lite.rollout.types import Trajectory

METRICS_FILE = "metrics.jsonl"
TRAJECTORIES_FILE = "trajectories.jsonl"
TENSORBOARD_DIR = "tensorboard"


class JsonLines:
    """A file of one JSON object per line, each with its ``step``.

    Opening it keeps the lines up to ``keep_until`` and drops the rest: what a killed run wrote after its last checkpoint, half a line
    included, will be written again. Every line reaches the operating system as soon as it is complete.
    """

    def __init__(self, path: Path, keep_until: int) -> None:
        good = _length_until(path, keep_until) if path.exists() else 0
        with path.open("ab") as f:
            f.truncate(good)
        self._file = path.open("a", buffering=1, encoding="utf-8")

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one record. Raises ``ValueError`` for NaN and infinities, which JSON does not know."""
        self._file.write(json.dumps(record, allow_nan=False, ensure_ascii=False) + "\n")

    def sync(self) -> None:
        """Wait until all lines are on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class RunLogger:
    """Writes what a run reports into its folder; ``last_step`` is the step it continues from, 0 for a new run."""

    def __init__(self, out: Path, last_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # slow to import; only a training run needs it

        out.mkdir(parents=True, exist_ok=True)
        self._metrics = JsonLines(out / METRICS_FILE, last_step)
        self._trajectories = JsonLines(out / TRAJECTORIES_FILE, last_step)
        self._board = SummaryWriter(str(out / TENSORBOARD_DIR), purge_step=last_step + 1)

    def log(self, step: int, metrics: Mapping[str, float], trajectories: Sequence[Trajectory]) -> None:
        """Write one step."""
        self._metrics.write(metrics)
        for t in trajectories:
            self._trajectories.write({"step": step, **t.to_dict()})
        for name, value in metrics.items():
            if name != "step":
                self._board.add_scalar(name, value, step)

    def sync(self) -> None:
        """Wait until all that was logged is on the disk."""
        self._metrics.sync()
        self._trajectories.sync()
        self._board.flush()

    def close(self) -> None:
        self._metrics.close()
        self._trajectories.close()
        self._board.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _length_until(path: Path, step: int) -> int:
    """Bytes of the leading lines that are whole and belong to ``step`` or before."""
    length = 0
    with path.open("rb") as f:
        for line in f:
            try:
                if not line.endswith(b"\n") or json.loads(line)["step"] > step:
                    break
            except (ValueError, KeyError, TypeError):
                break
            length += len(line)
    return length
