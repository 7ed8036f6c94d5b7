"""One trainer for all policy-gradient algorithms: collect episodes, compute advantages, update, log, save."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from agentgym_lite.agents import ChatRenderer
from agentgym_lite.algorithms import grpo_advantages, upstream
from agentgym_lite.client import SessionPool
from agentgym_lite.config import Config, ConfigError, GiGPOConfig, GroupConfig
from agentgym_lite.config.base import load_callable
from agentgym_lite.lora import frozen_reference
from agentgym_lite.rollout.engines import close, rest
from agentgym_lite.rollout.schedulers import RoundScheduler, StepRoundsScheduler, as_scheduler, make_scheduler
from agentgym_lite.rollout.types import EpisodeSpec, StopReason, Trajectory
from agentgym_lite.training.batch import Batch
from agentgym_lite.training.critic import Critic
from agentgym_lite.training.distributed import World
from agentgym_lite.training.episodes import Episodes, RewardFn, as_published, is_overlong, turn_rewards
from agentgym_lite.training.errors import TrainingError
from agentgym_lite.training.items import ItemSampler
from agentgym_lite.training.loop import Counters, OnStep, StepReport, TrainLoop, TrainResult
from agentgym_lite.training.metrics import rollout_metrics
from agentgym_lite.training.playing import make_collector
from agentgym_lite.training.update import PolicyUpdater

__all__ = ["RewardFn", "Scheduler", "TrainResult", "Trainer"]

#: How often a group without variance is replaced in one step when ``zero_variance`` is ``resample``.
MAX_RESAMPLES = 3

Scheduler = RoundScheduler | Callable[[int], int]


@dataclass
class _Counters(Counters):
    skipped_steps: int = 0
    sampled_tokens: int = 0


class Trainer(TrainLoop[Config, Episodes]):
    """Trains ``config.model`` on ``config.envs`` with ``config.algorithm``.

    ``model`` and ``tokenizer`` replace ``config.model``; ``reward_fn`` replaces the environment's reward by a function of the whole
    trajectory; ``schedulers`` maps an environment's name to a scheduler (or a function step -> rounds) in place of its config's;
    ``on_step`` is called with the metrics of every step. In several processes (``world``) each plays its share of a step's episodes; all
    learn from all of them.

    A step is a pure function of the weights, the optimizer and ``(seed, step)``, so a resumed run equals an unbroken one. Raises
    ``ConfigError`` for settings that do not fit the environments.
    """

    def __init__(
        self,
        config: Config,
        *,
        model: Any = None,
        tokenizer: Any = None,
        reward_fn: RewardFn | None = None,
        schedulers: Mapping[str, Scheduler] | None = None,
        on_step: OnStep | None = None,
        world: World | None = None,
    ) -> None:
        super().__init__(config, model=model, tokenizer=tokenizer, on_step=on_step, world=world)
        self._reward_fn = reward_fn or (None if config.reward is None else load_callable(config.reward, "reward"))
        self._schedulers = _schedulers(config, schedulers or {})
        self._sampler = ItemSampler(config.envs, config.run.groups_per_step, config.run.seed)
        reference = frozen_reference(self.model) if config.algorithm.kl_coef > 0 else None
        self._updater = PolicyUpdater(
            self.model,
            config.algorithm,
            config.optim,
            temperature=config.rollout.temperature,
            seed=config.run.seed,
            reference=reference,
            world=self.world,
        )
        self.optimizer, self.parameters = self._updater.optimizer, self._updater.parameters
        self._counters: _Counters = _Counters()

    distributed = True

    @property
    def critic(self) -> Critic | None:
        """Where values come from; None for algorithms without them."""
        return self._updater.critic

    @property
    def total_steps(self) -> int:
        return self.config.run.steps

    def _start(self, step: int, pools: Mapping[str, SessionPool], stack: ExitStack) -> None:
        self._renderer = ChatRenderer(self.tokenizer)
        self._engine, self._collector = make_collector(
            self.model, self._renderer, pools, self.config.rollout, self.config.agent, self.world
        )
        stack.callback(close, self._engine)
        if self.config.algorithm.upstream_compat and step:
            self._schedulers = {name: _resumed_as_published(s, step) for name, s in self._schedulers.items()}

    def _extra_state(self) -> dict[str, Any]:
        return {"updater": self._updater.state()}

    def _restore_extra(self, state: Mapping[str, Any]) -> None:
        self._updater.load_state(state["updater"])

    def _extra_tensors(self) -> dict[str, Tensor]:
        return self._updater.critic_tensors()

    def _restore_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        self._updater.load_critic(tensors)

    # -- one step ------------------------------------------------------------------------------------------------------------------

    def _collect(self, step: int) -> Episodes:
        """Play and score the groups of ``step``, replacing groups without variance if the config says so."""
        began = time.monotonic()
        max_rounds = {name: s.rounds_at(step) for name, s in self._schedulers.items()}
        episodes = Episodes()
        wanted = self._sampler.groups_at(step)
        for attempt in range(MAX_RESAMPLES + 1):
            self._play(wanted, max_rounds, episodes)
            wanted = [spec for spec in wanted if episodes.degenerate[spec]]
            if self._zero_variance != "resample" or not wanted or attempt == MAX_RESAMPLES:
                break
            wanted = self._sampler.replacements(wanted, step, attempt + 1)
        if all(t.stop_reason is StopReason.ENV_ERROR for t in episodes.trajectories):
            raise TrainingError(
                f"all {len(episodes.trajectories)} episodes of step {step} ended with an environment error; see that the servers run "
                f"({', '.join(str(e.url) for e in self.config.envs)}) and resume"
            )
        episodes.seconds = time.monotonic() - began
        return episodes

    def _play(self, groups: Sequence[EpisodeSpec], max_rounds: Mapping[str, int], into: Episodes) -> None:
        size = self.config.algorithm.group_size
        specs = [EpisodeSpec(g.env, g.item_id, g.seed, sample) for g in groups for sample in range(size)]

        def play_share() -> list[tuple[Trajectory, list[float]]]:
            played = self._collector.collect(specs[self.world.slice_of(len(specs))], max_rounds, self.config.run.seed)
            return [(t, turn_rewards(t, self._reward_fn)) for t in played]

        judged = [pair for share in self.world.each(play_share) for pair in share]
        trajectories, rewards = [t for t, _ in judged], [r for _, r in judged]
        learned = trajectories
        if self.config.algorithm.upstream_compat:
            learned = [as_published(t, self._renderer) for t in trajectories]
        number = {g.group: i for i, g in enumerate(groups)}
        usable = [i for i, t in enumerate(learned) if t.trainable]
        flat = grpo_advantages(
            torch.tensor([self._discounted(rewards[i]) for i in usable]),
            torch.tensor([number[learned[i].spec.group] for i in usable], dtype=torch.long),
        ).zero_variance
        into.degenerate |= dict.fromkeys(groups, True)
        into.degenerate |= {groups[number[learned[i].spec.group]]: f for i, f in zip(usable, flat.tolist(), strict=True)}
        into.trajectories += trajectories
        into.learned += learned
        into.turn_rewards += rewards

    def _discounted(self, rewards: Sequence[float]) -> float:
        """What makes the members of a group differ: the return, for GiGPO the discounted one, as its turns are compared by that."""
        gamma = self.config.algorithm.gamma if isinstance(self.config.algorithm, GiGPOConfig) else 1.0
        return sum(gamma**k * r for k, r in enumerate(rewards))

    def _learn(self, step: int, episodes: Episodes) -> StepReport:
        """Update on the step's episodes; all metrics of the step."""
        began = time.monotonic()
        rested = rest(self._engine)
        with self._arithmetic():
            update = self._updater.update(self._batch(episodes), step)
        if update["optim/updates"] or rested:
            self._engine.sync()
        if not update["optim/updates"]:
            self._counters.skipped_steps += 1
        update_s = time.monotonic() - began
        max_rounds = {name: s.rounds_at(step) for name, s in self._schedulers.items()}
        rollout = rollout_metrics(episodes.trajectories, episodes.rewards, max_rounds)
        self._counters.sampled_tokens += int(rollout["tokens/sampled"])
        self._counters.elapsed_s += episodes.seconds + update_s
        flat = list(episodes.degenerate.values())
        metrics = {
            "step": step,
            **rollout,
            "groups/total": float(len(flat)),
            "groups/zero_variance": sum(flat) / len(flat),
            **update,
            "optim/skipped_steps": float(self._counters.skipped_steps),
            "tokens/sampled_total": float(self._counters.sampled_tokens),
            "time/rollout": episodes.seconds,
            "time/update": update_s,
            "time/total": episodes.seconds + update_s,
            "time/elapsed": self._counters.elapsed_s,
        }
        return StepReport(metrics, _spread(episodes.trajectories, self.config.run.log_trajectories))

    def _batch(self, episodes: Episodes) -> Batch:
        """The episodes that count for baselines; those that are too long may be left out of the loss."""
        flat = {spec.group for spec, is_flat in episodes.degenerate.items() if is_flat}
        keep = [i for i, t in enumerate(episodes.learned) if t.trainable and (self._zero_variance == "keep" or t.spec.group not in flat)]
        learned = [episodes.learned[i] for i in keep]
        return Batch.from_trajectories(
            learned,
            device=next(self.model.parameters()).device,
            turn_rewards=[episodes.turn_rewards[i] for i in keep],
            in_loss=[self.config.algorithm.overlong == "keep" or not is_overlong(t) for t in learned],
        )

    @property
    def _zero_variance(self) -> str:
        return self.config.algorithm.zero_variance if isinstance(self.config.algorithm, GroupConfig) else "keep"


def _resumed_as_published(scheduler: RoundScheduler, step: int) -> RoundScheduler:
    if not isinstance(scheduler, StepRoundsScheduler):
        return scheduler
    return upstream.StepRoundsScheduler(scheduler.steps_scaling_inter, scheduler.rounds, step)


def _schedulers(config: Config, given: Mapping[str, Scheduler]) -> dict[str, RoundScheduler]:
    names = [e.name for e in config.envs]
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise ConfigError(f"schedulers were given for {', '.join(unknown)}, but the environments are {', '.join(names)}")
    return {e.name: as_scheduler(given[e.name]) if e.name in given else make_scheduler(e.rounds) for e in config.envs}


def _spread(trajectories: Sequence[Trajectory], n: int) -> list[Trajectory]:
    """At most ``n`` of them at even distances, so that every environment has its share."""
    n = min(n, len(trajectories))
    return [trajectories[i * len(trajectories) // n] for i in range(n)]
