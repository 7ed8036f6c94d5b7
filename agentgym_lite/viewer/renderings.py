"""Pictures of an episode's states, found by playing it again: nothing has to be drawn while training."""

from __future__ import annotations

from dataclasses import replace

from agentgym_envs import environment_class, make
from agentgym_lite.rollout.types import Trajectory


def has_renderings(trajectory: Trajectory) -> bool:
    """Whether any state of the episode comes with its picture."""
    return "render" in trajectory.info or any("render" in turn.info for turn in trajectory.turns)


def with_renderings(trajectory: Trajectory) -> Trajectory:
    """A copy with what ``Environment.render`` says in ``info["render"]`` of every turn (the state it began in) and of the end.

    Environments are deterministic, so the same actions are played again in process. An episode of another version of the environment
    stays without, and so do the turns from the first one whose observation differs. Raises ``UnknownEnvironment`` and ``UnknownItem``.
    """
    if environment_class(trajectory.spec.env).version != trajectory.env_version:
        return trajectory
    env = make(trajectory.spec.env)
    try:
        turns, attempt = list(trajectory.turns), -1
        seen: str | None = None
        for k, turn in enumerate(turns):
            if turn.attempt != attempt:
                attempt, seen = turn.attempt, env.reset(trajectory.spec.item_id, trajectory.spec.seed).text
            if seen is not None and seen not in turn.observation:
                return replace(trajectory, turns=turns)
            turns[k] = replace(turn, info={**turn.info, "render": env.render()})
            seen = env.step(turn.action).observation.text if turn.action is not None else None
        return replace(trajectory, turns=turns, info={**trajectory.info, "render": env.render()}) if turns else trajectory
    finally:
        env.close()
