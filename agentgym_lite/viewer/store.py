"""Trajectories on disk: an index that is read once, and bodies that are read when they are looked at.

Only the index stays in memory (about 1 kB per trajectory), so that tens of thousands of long episodes can be browsed.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from agentgym_lite.rollout.types import Trajectory
from agentgym_lite.viewer.decoding import decoder, run_decoder
from agentgym_lite.viewer.payload import COLUMNS, Shown, body, list_row
from agentgym_lite.viewer.renderings import has_renderings, with_renderings
from agentgym_lite.viewer.tokens import Decode

TRAJECTORIES = "trajectories.jsonl"
#: Rows of one answer of :meth:`TrajectoryStore.index`.
PAGE = 2000


class StoreError(ValueError):
    """Trajectories that cannot be shown; the message says what was expected, what was found and what to do."""


class Source(Protocol):
    """What the front end asks. ``index`` answers ``{columns, rows, total, done, restarted, problems}``."""

    def index(self, start: int = 0, refresh: bool = False) -> dict[str, Any]:
        """Rows from number ``start``, and how far the reading is."""

    def body(self, number: int) -> dict[str, Any]:
        """One trajectory. Raises ``StoreError`` if there is none of that number."""

    def search(self, text: str) -> list[int]:
        """Numbers of the trajectories in which the text occurs."""


class TrajectoryList:
    """Trajectories in memory as a source; ``decode`` gives the text of their tokens."""

    def __init__(self, trajectories: Sequence[Trajectory], decode: Decode | None = None) -> None:
        self._shown = [Shown(t, number) for number, t in enumerate(trajectories)]
        self._decode = decode

    def __len__(self) -> int:
        return len(self._shown)

    def index(self, start: int = 0, refresh: bool = False) -> dict[str, Any]:
        rows = [list_row(s) for s in self._shown[start:]]
        return {"columns": COLUMNS, "rows": rows, "total": len(self), "done": True, "restarted": False, "problems": []}

    def body(self, number: int) -> dict[str, Any]:
        if not 0 <= number < len(self):
            raise StoreError(_no_such(number, len(self)))
        return body(self._shown[number], self._decode)

    def search(self, text: str) -> list[int]:
        return [s.number for s in self._shown if _says(s.trajectory, text.lower())]


@dataclass
class _File:
    path: Path
    run: str
    #: Bytes that have been read, up to the end of a line.
    read: int = 0


@dataclass(frozen=True, slots=True)
class _Place:
    file: _File
    offset: int
    length: int


class TrajectoryStore:
    """The trajectories under ``path``: a ``.jsonl`` file, a run folder, or a folder of runs.

    ``tokenizer`` (a model's name or folder) replaces the one that the run names. Raises ``StoreError`` if there is nothing to read.
    """

    def __init__(self, path: str | Path, tokenizer: str | None = None) -> None:
        self.path = Path(path).expanduser()
        self._root = self.path if self.path.is_dir() else self.path.parent
        self._decode = decoder(tokenizer) if tokenizer else None
        if tokenizer and self._decode is None:
            raise StoreError(f"expected a model with a tokenizer.json, found none for '{tokenizer}'; give 'tiny' or a model's folder")
        self._decoders: dict[Path, Decode | None] = {}
        self._files: dict[Path, _File] = {}
        self._clear()
        self._scanning = threading.Lock()
        self._cached_body = lru_cache(maxsize=16)(self._load_body)
        self._discover()

    def __len__(self) -> int:
        return len(self.rows)

    def scan(self) -> None:
        """Read the lines that are new since the last time; half a line at the end of a file is left for later."""
        with self._scanning:
            for file in self._discover():
                for offset, line in _whole_lines(file.path, file.read):
                    self._add(file, offset, line)
                    file.read = offset + len(line)

    def index(self, start: int = 0, refresh: bool = False) -> dict[str, Any]:
        """Up to :data:`PAGE` rows from number ``start`` and how far the reading is; with ``refresh``, begin to read what is new."""
        restarted = start > len(self.rows)
        if refresh and not self._scanning.locked():
            restarted = restarted or self._forget_rewritten()
            self.scan_in_background()
        done = not self._scanning.locked()  # before the rows: none may come in between
        rows = self.rows[0 if restarted else start :][:PAGE]
        at_end = (0 if restarted else start) + len(rows) >= len(self.rows)
        state = {"total": self._estimate(), "done": done and at_end, "restarted": restarted, "problems": self.problems[:20]}
        return {"columns": COLUMNS, "rows": rows, **state}

    def scan_in_background(self) -> None:
        """:meth:`scan` in a thread."""
        thread = threading.Thread(target=self.scan, name="trajectory-index", daemon=True)
        thread.start()
        while thread.is_alive() and not self._scanning.locked():
            thread.join(0.001)

    def body(self, number: int) -> dict[str, Any]:
        """One trajectory with everything that is shown of it. Raises ``StoreError`` if there is none of that number."""
        if not 0 <= number < len(self._places):
            raise StoreError(_no_such(number, len(self._places)))
        return self._cached_body(number)

    def search(self, text: str) -> list[int]:
        """Numbers of the trajectories in whose observations, replies or item the text occurs; the case of ASCII letters is ignored."""
        wanted = text.lower()
        # The line is compared as bytes first: parsing every line would take a hundred times as long.
        needles = {json.dumps(wanted, ensure_ascii=ascii_only)[1:-1].lower().encode() for ascii_only in (True, False)}
        found = []
        for number, line in self._lines():
            lower = line.lower()
            if any(n in lower for n in needles) and _says(_shown(line, number, "").trajectory, wanted):
                found.append(number)
        return found

    # -- reading ---------------------------------------------------------------------------------------------------------------------

    def _clear(self) -> None:
        self.rows: list[list[Any]] = []
        self.problems: list[str] = []
        self._places: list[_Place] = []

    def _discover(self) -> Iterable[_File]:
        paths = sorted(self.path.rglob(TRAJECTORIES)) if self.path.is_dir() else [self.path]
        if not paths or not paths[0].is_file():
            found = "a folder without one" if self.path.is_dir() else "no such file or folder"
            raise StoreError(
                f"expected a {TRAJECTORIES}, a run folder or a folder of runs at '{self.path}', found {found}; "
                "`agl rollout`, `agl eval` and `agl train` write them"
            )
        for path in paths:
            name = path.parent.relative_to(self._root).as_posix()
            self._files.setdefault(path, _File(path, "" if name == "." else name))
        return list(self._files.values())

    def _forget_rewritten(self) -> bool:
        """Begin anew if a file has become shorter than what was read of it, as when a run is resumed from an earlier step."""
        if all(f.path.is_file() and f.path.stat().st_size >= f.read for f in self._files.values()):
            return False
        self._files.clear()
        self._clear()
        self._cached_body.cache_clear()
        return True

    def _add(self, file: _File, offset: int, line: bytes) -> None:
        try:
            shown = _shown(line, len(self.rows), file.run)
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            self.problems.append(f"{file.path.name}, byte {offset} ({type(e).__name__})" + (f" of {file.run}" if file.run else ""))
            return
        self._places.append(_Place(file, offset, len(line)))
        self.rows.append(list_row(shown))

    def _estimate(self) -> int:
        read, size = sum(f.read for f in self._files.values()), sum(f.path.stat().st_size for f in self._files.values() if f.path.exists())
        return max(len(self.rows), round(len(self.rows) * size / read)) if read else len(self.rows)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        opened: dict[Path, Any] = {}
        try:
            for number, place in enumerate(list(self._places)):
                if place.file.path not in opened:
                    opened[place.file.path] = place.file.path.open("rb")
                stream = opened[place.file.path]
                stream.seek(place.offset)
                yield number, stream.read(place.length)
        finally:
            for stream in opened.values():
                stream.close()

    def _load_body(self, number: int) -> dict[str, Any]:
        place = self._places[number]
        try:
            with place.file.path.open("rb") as f:
                f.seek(place.offset)
                shown = _shown(f.read(place.length), number, place.file.run)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
            raise StoreError(f"'{place.file.path}' has changed since it was indexed ({type(e).__name__}); reload the page") from None
        notes: list[str] = []
        decode = self._decoder_of(place.file.path.parent) if shown.trajectory.rows else None
        if shown.trajectory.rows and decode is None:
            notes.append("No tokenizer of this run was found, so tokens are not shown; name its model with --tokenizer.")
        return body(_illustrated(shown, notes), decode, notes)

    def _decoder_of(self, folder: Path) -> Decode | None:
        if self._decode is not None:
            return self._decode
        if folder not in self._decoders:
            self._decoders[folder] = run_decoder(folder, self._root)
        return self._decoders[folder]


def _whole_lines(path: Path, start: int) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as f:
        f.seek(start)
        for line in f:
            if not line.endswith(b"\n"):
                return
            yield start, line
            start += len(line)


def _shown(line: bytes, number: int, run: str) -> Shown:
    record = json.loads(line, parse_constant=lambda _: 0.0)  # NaN and infinities are no JSON
    trajectory = Trajectory.from_dict(record)
    return Shown(trajectory, number, "", run, record.get("step"), record.get("when", ""), record.get("token_values", {}))


def _says(t: Trajectory, wanted: str) -> bool:
    said = [t.spec.item_id, t.final_observation, *(x for turn in t.turns for x in (turn.observation, turn.reply))]
    return any(wanted in text.lower() for text in said)


def _no_such(number: int, size: int) -> str:
    return f"expected the number of a trajectory from 0 to {size - 1}, found {number}; reload the page"


def _illustrated(shown: Shown, notes: list[str]) -> Shown:
    """With pictures of the states, where they were recorded or can be found again."""
    if has_renderings(shown.trajectory):
        return shown
    try:
        found = with_renderings(shown.trajectory)
    except Exception as e:  # whatever keeps an environment from starting here (no Java, a removed item): the text says the same
        notes.append(f"No pictures of the environment: {' '.join(str(e).split()):.300}")
        return shown
    if not has_renderings(found):
        notes.append("No pictures of the environment: the episode was played with another version of it.")
    return replace(shown, trajectory=found)
