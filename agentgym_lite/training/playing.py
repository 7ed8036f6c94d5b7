"""Playing episodes for a trainer: the policy on an engine, and the environments' experts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentgym_lite.agents import ChatRenderer, make_scaffold
from agentgym_lite.client import SessionPool
from agentgym_lite.config import AgentConfig, EnvConfig, ExpertSource, PolicySource, RolloutConfig
from agentgym_lite.rollout import Collector, Engine, play
from agentgym_lite.rollout.engines import close, make_engine, rest
from agentgym_lite.rollout.play import expert_policy
from agentgym_lite.rollout.schedulers import make_scheduler
from agentgym_lite.rollout.types import EpisodeSpec, StopReason, Trajectory
from agentgym_lite.training.distributed import World
from agentgym_lite.training.errors import TrainingError
from agentgym_lite.training.items import ItemSampler, stable_seed


def make_collector(
    model: Any,
    renderer: ChatRenderer,
    pools: Mapping[str, SessionPool],
    rollout: RolloutConfig,
    agent: AgentConfig,
    world: World = World(),  # noqa: B008 - frozen
) -> tuple[Engine, Collector]:
    """The engine of ``rollout`` over ``model``, with its weights of the moment, and a collector that plays with it."""
    engine = make_engine(model, rollout, renderer.stop_ids, on_main=world.main)
    return engine, Collector(engine, renderer, pools, make_scaffold(**agent.model_dump()), rollout)


class PolicyPlayer:
    """Plays episodes with the model's weights of the moment."""

    def __init__(
        self,
        model: Any,
        renderer: ChatRenderer,
        pools: Mapping[str, SessionPool],
        rollout: RolloutConfig,
        seed: int,
        agent: AgentConfig = AgentConfig(),  # noqa: B008 - frozen
    ) -> None:
        self._engine, self._collector = make_collector(model, renderer, pools, rollout, agent)
        self._seed = seed

    def play(self, specs: Sequence[EpisodeSpec], max_rounds: Mapping[str, int], purpose: str, greedy: bool = False) -> list[Trajectory]:
        """Play ``specs``; equal weights and ``purpose`` give equal episodes. Raises ``TrainingError`` if every environment failed."""
        self._engine.sync()
        trajectories = self._collector.collect(specs, max_rounds, stable_seed(self._seed, purpose), greedy=greedy)
        rest(self._engine)
        return _played(trajectories, purpose)

    def close(self) -> None:
        """End the engine."""
        close(self._engine)


def play_experts(
    source: ExpertSource, renderer: ChatRenderer, pools: Mapping[str, SessionPool], seed: int, agent: AgentConfig
) -> list[Trajectory]:
    """The expert's episodes, told as ``agent`` would, with rows as if a policy had sampled them; a pure function of the seed."""
    specs = ItemSampler(source.envs, source.n, stable_seed(seed, "expert")).groups_at(1)
    scaffold = make_scaffold(**agent.model_dump())
    episodes = play(expert_policy(scaffold), specs, pools, rounds_at(source.envs, 1), scaffold=scaffold, renderer=renderer)
    return _played(episodes, "the expert's episodes")


def starts_of(episodes: Sequence[Trajectory], source: PolicySource) -> list[EpisodeSpec]:
    """Specs that begin as ``episodes`` do, ``source.samples`` for each start, in the environments of the source."""
    wanted = {e.name for e in source.envs}
    starts = dict.fromkeys(t.spec.group for t in episodes if t.spec.env in wanted)
    return [EpisodeSpec(*start, sample) for start in starts for sample in range(source.samples)]


def samples_of(specs: Sequence[EpisodeSpec], n: int) -> list[EpisodeSpec]:
    """``n`` episodes of each spec."""
    return [replace(spec, sample=k) for spec in specs for k in range(n)]


def rounds_at(envs: Sequence[EnvConfig], step: int) -> dict[str, int]:
    """Limit on rounds of each environment."""
    return {e.name: make_scheduler(e.rounds).rounds_at(step) for e in envs}


def _played(trajectories: list[Trajectory], purpose: str) -> list[Trajectory]:
    good = [t for t in trajectories if t.stop_reason is not StopReason.ENV_ERROR]
    if trajectories and not good:
        raise TrainingError(f"all {len(trajectories)} episodes of {purpose} ended with an environment error; see that the servers run")
    return good
