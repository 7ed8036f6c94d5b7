"""Results of an evaluation: a folder of finished episodes that a later run can continue, and the tables made from it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym_lite.evaluation.metrics import Summary, summarize
from agentgym_lite.evaluation.suite import Suite
from agentgym_lite.rollout.types import EpisodeSpec, StopReason, Trajectory

EPISODES = "trajectories.jsonl"
SETTINGS = "settings.json"
RESULTS = "results.json"


class ResultsError(ValueError):
    """A results folder cannot be continued with what was asked."""


def episode_key(spec: EpisodeSpec) -> str:
    """Name of an episode that is unique over all environments: ``env/item_id/seed/sample``."""
    return f"{spec.env}/{spec.item_id}/{spec.seed}/{spec.sample}"


class ResultsFolder:
    """Finished episodes of one evaluation, appended as they end, so that a killed run loses at most the episode being written.

    ``settings`` are all that decides a result. Raises ``ResultsError`` if the folder holds episodes made with others.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        self.episodes: dict[str, Trajectory] = {}
        path.mkdir(parents=True, exist_ok=True)
        settings_file = path / SETTINGS
        if (path / EPISODES).exists():
            self._check(settings_file, settings)
            self._load()
        settings_file.write_text(json.dumps(dict(settings), indent=2) + "\n", encoding="utf-8")

    def _check(self, file: Path, settings: Mapping[str, Any]) -> None:
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            found = {}
        different = sorted(k for k in {*found, *settings} if found.get(k) != settings.get(k))
        if different:
            changes = "; ".join(f"{k}: {found.get(k)!r} there, {settings.get(k)!r} now" for k in different)
            raise ResultsError(f"'{self.path}' holds episodes of another evaluation ({changes}); choose another --out or delete the folder")

    def _load(self) -> None:
        file = self.path / EPISODES
        data = file.read_bytes()
        whole = data.rfind(b"\n") + 1  # a kill can leave half a line at the end
        if whole < len(data):
            with file.open("r+b") as f:
                f.truncate(whole)
        for number, line in enumerate(data[:whole].splitlines(), 1):
            try:
                episode = Trajectory.from_dict(json.loads(line))
            except (ValueError, KeyError, TypeError) as e:
                raise ResultsError(
                    f"line {number} of '{file}' is not an episode ({type(e).__name__}); delete the line, or choose another --out"
                ) from None
            self.episodes[episode_key(episode.spec)] = episode

    def done(self, spec: EpisodeSpec) -> bool:
        """Whether the episode has been played; one that the environment broke is to be played again."""
        episode = self.episodes.get(episode_key(spec))
        return episode is not None and episode.stop_reason is not StopReason.ENV_ERROR

    def of(self, specs: Iterable[EpisodeSpec]) -> list[Trajectory]:
        """Those of ``specs`` that have been played, in that order: figures must not depend on which episode happened to end first."""
        return [self.episodes[key] for spec in specs if (key := episode_key(spec)) in self.episodes]

    def add(self, episode: Trajectory) -> None:
        """Append a finished episode to the file at once."""
        with (self.path / EPISODES).open("a", encoding="utf-8") as f:
            f.write(json.dumps(episode.to_dict()) + "\n")
        self.episodes[episode_key(episode.spec)] = episode


@dataclass(frozen=True)
class Results:
    """Summaries of an evaluation: one per task (keys ``env/task``, in suite order), one per environment, and the whole."""

    agent: str
    suite: Suite
    tasks: dict[str, Summary]
    environments: dict[str, Summary]
    overall: Summary

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form, as written to ``results.json``."""
        return {
            "agent": self.agent,
            "suite": self.suite.name,
            "title": self.suite.title,
            "suite_hash": self.suite.hash,
            "tasks": {k: s.to_dict() for k, s in self.tasks.items()},
            "environments": {k: s.to_dict() for k, s in self.environments.items()},
            "overall": self.overall.to_dict(),
        }


def tabulate(agent: str, suite: Suite, episodes: Iterable[Trajectory]) -> Results:
    """Group episodes of the suite's items into its rows; episodes of other items are ignored."""
    rows = {(i.env, i.item_id, i.seed): (i.env, f"{i.env}/{i.task}") for i in suite.items}
    by_env: dict[str, list[Trajectory]] = defaultdict(list, {env: [] for env, _ in rows.values()})
    by_task: dict[str, list[Trajectory]] = defaultdict(list, {task: [] for _, task in rows.values()})
    every: list[Trajectory] = []
    for e in episodes:
        if e.spec.group in rows:
            env, task = rows[e.spec.group]
            by_env[env].append(e)
            by_task[task].append(e)
            every.append(e)
    return Results(
        agent,
        suite,
        {k: summarize(v) for k, v in by_task.items()},
        {k: summarize(v) for k, v in by_env.items()},
        summarize(every),
    )
