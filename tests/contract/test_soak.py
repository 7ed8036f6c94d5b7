"""Memory over many episodes: the short version of ``benchmarks/env_soak.py``, and that it would find a leak."""

from __future__ import annotations

from typing import ClassVar

import pytest
from benchmark import env_soak
from fake_envs import Counter

from agentgym_envs.core import Observation, register

GROWTH = env_soak.GROWTH


class Hoarder(Counter):
    """A counter that keeps a MiB of every episode."""

    name: ClassVar[str] = "hoarder"
    kept: ClassVar[list[bytes]] = []

    def reset(self, item_id: str | int, seed: int = 0) -> Observation:
        self.kept.append(bytes([seed % 255 + 1]) * (1 << 20))
        return super().reset(item_id, seed)


class Up:
    """The agent of counters."""

    def reset(self, *_: object) -> None:
        pass

    def act(self, _: object) -> Up:
        return self

    action = "up"


register(Hoarder.name, f"{__name__}:{Hoarder.__name__}")


@pytest.mark.parametrize(
    ("kib", "expected"),
    [
        ([100] * 20, 1.0),
        ([50, 60, 80, 90, 100, 100, *[100] * 12, 106, 106], 1.06),  # warm-up is over after 4 of 20: samples 5, 6 and 19, 20 count
        ([900, 900, 900, 900, 100, 100, *[500] * 12, 99, 99], 0.99),
    ],
)
def test_growth_by_hand(kib: list[int], expected: float) -> None:
    assert env_soak.growth([(50 * (i + 1), k) for i, k in enumerate(kib)]) == pytest.approx(expected)


def test_a_leak_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env_soak, "expert", lambda _: Up())
    monkeypatch.setattr(env_soak, "random_agent", lambda _, seed: Up())
    before = Hoarder.live  # other tests count in the same number
    try:
        done = env_soak.soak(Hoarder.name, 200)
    finally:
        Hoarder.kept.clear()
    assert done["growth"] > GROWTH
    assert Hoarder.live == before, "every episode's object was closed"


@pytest.mark.parametrize(("env", "episodes"), [("textcraft", 400), ("babyai", 200)])
def test_memory_stays_flat(env: str, episodes: int) -> None:
    done = env_soak.in_own_process(env, episodes)
    assert done["episodes"] == episodes
    assert done["steps"] > 2 * episodes
    assert done["growth"] < GROWTH
