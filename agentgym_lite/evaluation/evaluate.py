"""Play a suite with an agent and tabulate the results; a run that was stopped goes on where it was."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from agentgym_lite.evaluation.players import Player
from agentgym_lite.evaluation.results import RESULTS, Results, ResultsFolder, tabulate
from agentgym_lite.evaluation.suite import Suite, SuiteError
from agentgym_lite.rollout.types import EpisodeSpec, Trajectory

#: Called with each finished episode, the number played so far (earlier runs included) and the number there are to play.
OnEpisode = Callable[[Trajectory, int, int], None]


def evaluate(
    player: Player,
    suite: Suite,
    out: Path,
    *,
    only: Sequence[str] = (),
    samples: int = 1,
    on_episode: OnEpisode | None = None,
) -> Results:
    """Play ``samples`` episodes of every item of ``suite`` (or of the tasks in ``only``) and write ``results.json`` to ``out``.

    Episodes are appended to ``out`` as they end; episodes that are there already are not played again, those that the environment broke
    are. Raises ``SuiteError`` for an unknown name in ``only`` or environments of another version than the suite's,
    ``ResultsError`` if ``out`` holds another evaluation, ``EnvironmentFailure`` if a server does not answer.
    """
    chosen = suite.select(only)
    check_versions(chosen, player.versions({i.env for i in chosen.items}))
    folder = ResultsFolder(out, {"suite": suite.name, "suite_hash": suite.hash, **player.settings})
    episodes = [(item.spec(s), item.max_rounds) for item in chosen.items for s in range(samples)]
    play_missing(player, episodes, folder, on_episode)
    wanted = {spec for spec, _ in episodes}
    results = tabulate(player.agent, chosen, (e for e in folder.episodes.values() if e.spec in wanted))
    (out / RESULTS).write_text(json.dumps(results.to_dict(), indent=2) + "\n", encoding="utf-8")
    return results


def play_missing(
    player: Player, episodes: Iterable[tuple[EpisodeSpec, int]], folder: ResultsFolder, on_episode: OnEpisode | None = None
) -> None:
    """Play those of ``episodes`` (spec, round limit) that ``folder`` does not hold yet, and add each as it ends."""
    episodes = list(episodes)
    by_rounds: dict[int, list[EpisodeSpec]] = defaultdict(list)
    for spec, rounds in episodes:
        if not folder.done(spec):
            by_rounds[rounds].append(spec)
    played = len(episodes) - sum(map(len, by_rounds.values()))

    def finish(episode: Trajectory) -> None:
        nonlocal played
        played += 1
        folder.add(episode)
        if on_episode is not None:
            on_episode(episode, played, len(episodes))

    for rounds, specs in by_rounds.items():
        player.play(specs, rounds, finish)


def check_versions(suite: Suite, found: dict[str, str]) -> None:
    """Raise ``SuiteError`` unless the environments have the versions that the suite was made for."""
    for env, version in found.items():
        if version != suite.versions[env]:
            raise SuiteError(
                f"suite {suite.name} was made for version {suite.versions[env]} of '{env}', found version {version}; "
                "use the release that the suite came with, or make it again with scripts/build_suites.py"
            )
