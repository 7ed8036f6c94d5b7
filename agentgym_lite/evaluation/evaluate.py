"""Play a suite with an agent and tabulate the results; a run that was stopped goes on where it was."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from agentgym_lite.evaluation.players import Backend, Player
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
    max_rounds: int | None = None,
    on_episode: OnEpisode | None = None,
) -> Results:
    """Play ``samples`` episodes of every item of ``suite`` (or of the tasks in ``only``) and write ``results.json`` to ``out``.

    Episodes are appended to ``out`` as they end; episodes that are there already are not played again, those that the environment broke
    are. ``max_rounds`` replaces the suite's limits on rounds, for studies of the horizon.

    Raises ``SuiteError`` for an unknown name in ``only`` or environments of another version than the suite's, ``ResultsError`` if ``out``
    holds another evaluation, ``EnvironmentFailure`` if a server does not answer, and what the player's ``play`` raises.
    """
    chosen = suite.select(only)
    check_backends(chosen, player.backends({i.env for i in chosen.items}))
    settings = {"suite": suite.name, "suite_hash": suite.hash, **player.settings}
    folder = ResultsFolder(out, settings if max_rounds is None else {**settings, "max_rounds": max_rounds})
    episodes = [(item.spec(s), max_rounds or item.max_rounds) for item in chosen.items for s in range(samples)]
    play_missing(player, episodes, folder, on_episode)
    results = tabulate(player.agent, chosen, folder.of(spec for spec, _ in episodes))
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


def check_backends(suite: Suite, found: Mapping[str, Backend]) -> None:
    """Raise ``SuiteError`` unless the environments have the versions, and play the item sets, that the suite was made for."""
    for env, backend in found.items():
        if missing := sorted(set(suite.needs.get(env, ())) - set(backend.options)):
            ready = sorted({i.env for i in suite.items} - set(suite.needs))
            others = f"; without it: --only {' --only '.join(ready)}" if ready else ""
            why = suite.notes.get(env, "see docs/evaluation.md")
            raise SuiteError(
                f"suite {suite.name} numbers other items of '{env}' than the shipped ones ({why}); it needs a server started with the "
                f"options {', '.join(missing)} (agl serve {env} --set {env}.{missing[0]}=...) and its --url{others}"
            )
        if backend.version != suite.versions[env]:
            raise SuiteError(
                f"suite {suite.name} was made for version {suite.versions[env]} of '{env}', found version {backend.version}; "
                "use the release that the suite came with, or make it again with scripts/build_suites.py"
            )
