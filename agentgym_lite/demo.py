"""The whole story in one run: evaluate, train with ScalingInter-RL, evaluate again, write a report.

Held-out items come from the environments' evaluation splits, training items from their training splits, so no item is in both.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from agentgym_lite.config import Config, ConfigError, load_config
from agentgym_lite.evaluation import Results, evaluate, load_suite, make_player
from agentgym_lite.evaluation.results import EPISODES
from agentgym_lite.evaluation.suite import Suite
from agentgym_lite.rollout.types import Trajectory
from agentgym_lite.training import Trainer
from agentgym_lite.training.logging import TRAJECTORIES_FILE
from agentgym_lite.viewer.report import write_report
from agentgym_lite.viewer.report_data import REPORT_JSON, ReplayRef, ReportData, Score, TaskRow

CONFIG = Path(__file__).resolve().parents[1] / "configs" / "demo" / "grpo.yaml"
AGENTS = ("random", "expert", "base", "trained")


@dataclass(frozen=True)
class DemoSettings:
    """What the demo plays and for how long. ``None`` leaves the choice to the config file."""

    config: Path = CONFIG
    #: Rows of the suite ``lite27`` to evaluate on.
    tasks: tuple[str, ...] = ("textcraft/depth_1", "textcraft/depth_2", "textcraft/depth_3", "babyai/goto")
    #: Items of each row to play, evenly spread over it; ``None`` plays all.
    items_per_task: int | None = None
    steps: int | None = None
    #: Limit on the training part, in seconds.
    time_limit_s: float | None = None
    seed: int = 0


class Advance(Protocol):
    """Reports how much of a phase is done."""

    def __call__(self, done: int, total: int, text: str = "") -> None: ...


#: Opens the progress display of a phase with a title.
Phase = Callable[[str], AbstractContextManager[Advance]]


@dataclass
class DemoRun:
    """What a demo has produced: results by agent (``random, expert, base, trained``) and the seconds that each phase took."""

    config: Config
    results: dict[str, Results] = field(default_factory=dict)
    times_s: dict[str, float] = field(default_factory=dict)
    checkpoint: Path = Path()
    report: Path = Path()

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the time of a block under ``name``."""
        began = time.monotonic()
        yield
        self.times_s[name] = time.monotonic() - began


def demo_config(settings: DemoSettings, out: Path, url: str) -> Config:
    """The training config of a demo whose environments are at ``url``. Raises ``ConfigError``."""
    changes = [f"run.out={json.dumps(str(out))}", f"run.seed={settings.seed}"]
    if settings.steps is not None:
        changes.append(f"run.steps={settings.steps}")
    if settings.time_limit_s is not None:
        changes.append(f"run.time_limit_s={settings.time_limit_s}")
    count = len(load_config(settings.config).environments)
    config = load_config(settings.config, changes + [f"envs.{i}.url={url}" for i in range(count)])
    if not isinstance(config, Config):
        raise ConfigError(f"the demo trains by reinforcement learning, found method '{config.method}' in '{settings.config}'")
    return config


def demo_suite(settings: DemoSettings) -> Suite:
    """The held-out items that a demo plays."""
    suite = load_suite("lite27").select(settings.tasks)
    if settings.items_per_task is None:
        return suite
    chosen = []
    for row in dict.fromkeys((i.env, i.task) for i in suite.items):
        items = [i for i in suite.items if (i.env, i.task) == row]
        n = min(len(items), settings.items_per_task)
        chosen += [items[k * len(items) // n] for k in range(n)]
    return replace(suite, items=tuple(chosen))


def run_demo(settings: DemoSettings, out: Path, url: str, phase: Phase, command: str = "agl demo") -> DemoRun:
    """Evaluate, train and evaluate with the environments at ``url``; ``out`` then holds ``report.html`` and all it is made from.

    Raises what :func:`~agentgym_lite.evaluation.evaluate` and :class:`~agentgym_lite.training.Trainer` raise.
    """
    run = DemoRun(demo_config(settings, out, url))
    suite = demo_suite(settings)
    for name in ("random", "expert", "base"):
        _evaluate(run, name, suite, out, url, phase, settings.seed)
    _train(run, phase)
    _evaluate(run, "trained", suite, out, url, phase, settings.seed)
    replays = _append_replays(run, out)
    _write_report_data(run, suite, replays, out, command)
    run.report = write_report(out)
    return run


def _evaluate(run: DemoRun, name: str, suite: Suite, out: Path, url: str, phase: Phase, seed: int) -> None:
    agent = {"base": run.config.model.path, "trained": str(run.checkpoint)}.get(name, name)
    rollout = run.config.rollout
    player = make_player(
        agent, url, seed=seed, temperature=rollout.temperature, max_new_tokens=rollout.max_new_tokens, max_length=rollout.max_length
    )
    title = {"base": "evaluate the base model", "trained": "evaluate the trained model"}.get(name, f"evaluate the {name} agent")
    with run.timed(title), phase(title) as advance:
        run.results[name] = evaluate(player, suite, out / "eval" / name, on_episode=lambda _, done, total: advance(done, total))


def _train(run: DemoRun, phase: Phase) -> None:
    with run.timed("train"), phase("train") as advance:

        def report(metrics: dict[str, float]) -> None:
            text = "  ".join(
                f"{e.name} {100 * metrics[key]:.0f} % in {metrics[f'env/{e.name}/max_rounds']:.0f} rounds"
                for e in run.config.envs
                if (key := f"env/{e.name}/success") in metrics
            )
            advance(int(metrics["step"]), run.config.run.steps, text)

        run.checkpoint = Trainer(run.config, on_step=report).train().checkpoint


def _append_replays(run: DemoRun, out: Path) -> list[ReplayRef]:
    """Add the most telling pair of held-out episodes to ``trajectories.jsonl`` and say on which lines it stands."""
    before, after = ({e.spec: e for e in _episodes(out / "eval" / name / EPISODES)} for name in ("base", "trained"))
    # Best: failed before, reached after, and a long way to it.
    spec = max(after, key=lambda s: (s in before and not before[s].success, after[s].success, len(after[s].turns)))
    path = out / TRAJECTORIES_FILE
    line = sum(1 for _ in path.open("rb"))
    refs: list[ReplayRef] = []
    with path.open("a", encoding="utf-8") as f:
        for when, episode in (("before", before.get(spec)), ("after", after[spec])):
            if episode is not None:
                f.write(json.dumps({"step": run.config.run.steps, "when": when, **episode.to_dict()}) + "\n")
                refs.append(ReplayRef(when=when, line=line + len(refs)))
    return refs


def _episodes(path: Path) -> list[Trajectory]:
    with path.open(encoding="utf-8") as lines:
        return [Trajectory.from_dict(json.loads(line)) for line in lines]


def _score(results: Results, task: str) -> Score:
    summary = results.tasks[task]
    rate = summary.success.value if summary.success else 0.0
    return Score(n=summary.episodes, successes=round(rate * summary.episodes))


def _write_report_data(run: DemoRun, suite: Suite, replays: list[ReplayRef], out: Path, command: str) -> None:
    rows = [
        TaskRow(env=env, task=task, **{name: _score(run.results[name], f"{env}/{task}") for name in AGENTS})
        for env, task in dict.fromkeys((i.env, i.task) for i in suite.items)
    ]
    lost = sum(r.overall.env_errors for r in run.results.values())
    data = ReportData(
        title="A tiny agent learns TextCraft and BabyAI",
        command=command,
        reproduce=["make install", f".venv/bin/{command}"],
        results=rows,
        replays=replays,
        settings=run.config.model_dump(mode="json"),
        versions={"python": platform.python_version(), **{p: version(p) for p in ("agentgym-lite", "torch", "transformers")}},
        times_s=run.times_s,
        hardware=_hardware(),
        checkpoint=os.path.relpath(run.checkpoint, out),
        notes=[
            "Every item of this table is held out: it is in no training split, and every item was played once by each agent.",
            f"Items come from the suite {suite.title}.",
            "The intervals hold for these items and one training seed; another seed gives another policy.",
            *([f"{lost} episodes were lost to environment errors and are not counted."] if lost else []),
        ],
    )
    (out / REPORT_JSON).write_text(data.model_dump_json(indent=2), encoding="utf-8")


def _hardware() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{cores} CPU cores, {memory:.1f} GiB memory"
