"""Episodes as scripts of actions: recording them with agents, and playing them again here, in another process or through a pool.

``python replaying.py < SCRIPTS`` plays scripts of any environments, the last one first, and prints what was answered, as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agentgym_envs.agents import expert, random_agent
from agentgym_envs.core import Environment, Observation, StepResult, make
from agentgym_envs.wire import dumps, observation_to_wire, step_to_wire

Answers = list[dict[str, Any]]


@dataclass(frozen=True)
class Script:
    """One episode: what starts it and what is done in it."""

    env: str
    item: str
    seed: int
    actions: tuple[str, ...]


def answer(value: Observation | StepResult) -> dict[str, Any]:
    """An answer as it goes over the wire, so that a tuple equals a list."""
    wire: dict[str, Any] = json.loads(dumps(observation_to_wire(value) if isinstance(value, Observation) else step_to_wire(value)))
    return wire


def record(env: Environment, item: str, seed: int, kind: str, limit: int) -> Script:
    """The actions of an agent (``"expert"`` or ``"random"``), and one that nobody can read, until the episode ends."""
    agent = expert(env.name) if kind == "expert" else random_agent(env.name, seed)
    observation, actions = env.reset(item, seed), list[str]()
    agent.reset(observation, env.render)
    while len(actions) < limit:
        actions.append("dance wildly" if len(actions) == 2 else agent.act(observation).action)
        result = env.step(actions[-1])
        observation = observation if len(actions) == 3 else result.observation
        if result.done:
            break
    return Script(env.name, item, seed, tuple(actions))


def replay(env: Environment, script: Script) -> Answers:
    """The answers to a script: the first observation, each step, and what is listed and shown in the end."""
    answers = [answer(env.reset(script.item, script.seed)), *(answer(env.step(action)) for action in script.actions)]
    return [*answers, {"listed": env.available_actions(), "render": json.loads(dumps(env.render()))}]


def replay_all(scripts: Sequence[Script]) -> list[Answers]:
    """Each in an environment of its own, all open at the same time, the last script first."""
    envs = [make(script.env) for script in scripts]
    try:
        return [replay(env, script) for env, script in list(zip(envs, scripts, strict=True))[::-1]][::-1]
    finally:
        for env in envs:
            env.close()


def to_json(scripts: Sequence[Script]) -> str:
    return json.dumps([asdict(script) for script in scripts])


def from_json(text: str) -> list[Script]:
    return [Script(d["env"], d["item"], d["seed"], tuple(d["actions"])) for d in json.loads(text)]


if __name__ == "__main__":
    json.dump(replay_all(from_json(sys.stdin.read())), sys.stdout)
