"""Which episodes a step plays: a pure function of the run's seed and the step, so that a resumed run draws what an unbroken one would."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from agentgym_envs.core import Split, environment_class
from agentgym_lite.config import ConfigError, EnvConfig
from agentgym_lite.rollout.types import EpisodeSpec

#: Fractional part of the golden ratio: its multiples spread evenly over [0, 1).
_GOLDEN = 0.6180339887498949


class ItemSampler:
    """Draws the groups of each step.

    A step's groups are split over the environments by weight (systematic sampling: each gets its share rounded up or down, and exactly
    its share over many steps). Within an environment every training item is visited once before any is visited again, in a new random
    order each pass. Raises ``ConfigError`` for an environment listed twice or without items, or an unknown task.
    """

    def __init__(self, envs: Sequence[EnvConfig], groups_per_step: int, seed: int) -> None:
        self._names = [e.name for e in envs]
        if len(set(self._names)) < len(envs):
            raise ConfigError(
                f"each environment may be listed once in 'envs', found {', '.join(self._names)}; join their tasks in one entry"
            )
        self._items = [task_items(e) for e in envs]
        weights = np.array([e.weight for e in envs])
        self._bounds = np.concatenate([[0.0], np.cumsum(weights / weights.sum())])
        self._bounds[-1] = 1.0
        self._groups = groups_per_step
        self._seed = seed

    def groups_at(self, step: int) -> list[EpisodeSpec]:
        """One spec (``sample`` 0) for each group of ``step``, counted from 1; environments in config order."""
        counts = self._counts(step)
        specs: list[EpisodeSpec] = []
        for e, (name, items) in enumerate(zip(self._names, self._items, strict=True)):
            start, n = int(counts[:-1, e].sum()), int(counts[-1, e])
            specs += [self._spec(name, self._item(items, name, k), step, 0, k) for k in range(start, start + n)]
        return specs

    def replacements(self, specs: Sequence[EpisodeSpec], step: int, attempt: int) -> list[EpisodeSpec]:
        """Other items of the same environments, in place of ``specs``; ``attempt`` counts from 1."""
        out: list[EpisodeSpec] = []
        for k, spec in enumerate(specs):
            items = self._items[self._names.index(spec.env)]
            rng = np.random.default_rng(stable_seed(self._seed, "replace", spec.env, step, attempt, k))
            out.append(self._spec(spec.env, items[int(rng.integers(len(items)))], step, attempt, k))
        return out

    def _counts(self, step: int) -> np.ndarray:
        """Groups of each environment at steps 1 to ``step``: ``[step, envs]``."""
        offsets = (np.arange(1, step + 1) * _GOLDEN) % 1.0
        marks = np.floor(self._bounds * self._groups + offsets[:, None])
        return np.diff(marks, axis=1).astype(np.int64)

    def _item(self, items: Sequence[str], name: str, visit: int) -> str:
        order, position = divmod(visit, len(items))
        rng = np.random.default_rng(stable_seed(self._seed, "order", name, order))
        return items[int(rng.permutation(len(items))[position])]

    def _spec(self, env: str, item: str, step: int, attempt: int, index: int) -> EpisodeSpec:
        return EpisodeSpec(env, item, seed=stable_seed(self._seed, "episode", env, step, attempt, index))


def stable_seed(*parts: object) -> int:
    """A 31-bit seed from anything printable; the same on every machine and in every process."""
    text = "|".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big") >> 1


def _published(env: EnvConfig, split: Split) -> list[str]:
    from agentgym_lite.evaluation.published import PublishedError, published_items  # most runs need neither it nor `datasets`

    try:
        return published_items(env.name, split, str(env.items))
    except PublishedError as e:
        raise ConfigError(f"envs: '{env.name}': items: {e}") from None


def task_items(env: EnvConfig, split: Split = "train") -> list[str]:
    """Items of a split that belong to the tasks of ``env``.

    Raises ``ConfigError`` if a task is unknown, there are no items, or published ones (``env.items``) cannot be read.
    """
    cls = environment_class(env.name)
    items = cls.items(split) if env.items is None else _published(env, split)
    kind = {"train": "training", "eval": "evaluation"}[split]
    if env.tasks:
        tasks = {i: cls.task_of(i) for i in items}
        unknown = sorted(set(env.tasks) - set(tasks.values()))
        if unknown:
            known = ", ".join(sorted(set(tasks.values())))
            raise ConfigError(f"environment '{env.name}' has no {kind} task {', '.join(map(repr, unknown))}; known: {known}")
        items = [i for i in items if tasks[i] in env.tasks]
    if not items:
        raise ConfigError(f"environment '{env.name}' has no {kind} items")
    return items
