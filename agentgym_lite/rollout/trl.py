"""TRL's ``GRPOTrainer`` on our rollouts: data sets of items, and a ``rollout_func`` that plays whole episodes.

::

    rollouts = TrlRollouts({"textcraft": "local"}, max_rounds=12)
    GRPOTrainer(model, reward_funcs=episode_reward, rollout_func=rollouts, train_dataset=Dataset.from_list(item_rows("textcraft")), ...)

TRL then trains on the very token ids that were sampled, with observations masked; the hooks are experimental in TRL (checked with 1.16).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from agentgym_envs.core import environment_class
from agentgym_lite.agents import ChatRenderer, ReAct
from agentgym_lite.agents.formats import without_react_form
from agentgym_lite.client import SessionPool
from agentgym_lite.config import RolloutConfig
from agentgym_lite.rollout.collector import Collector
from agentgym_lite.rollout.types import EpisodeSpec, StopReason, Trajectory

_PROMPT = re.compile(r"(\w+)/([^/]+)/(\d+)")
_TOOL_RULES = "Act by calling the tool 'act' with one action at a time, until the episode has ended."


def item_rows(env: str, items: Iterable[str] | None = None, seed: int = 0) -> list[dict[str, Any]]:
    """Rows for :class:`TrlRollouts`: the prompt names the episode, as ``env/item_id/seed``. ``items`` defaults to the training split."""
    ids = environment_class(env).items("train") if items is None else items
    return [{"prompt": [{"role": "user", "content": f"{env}/{i}/{seed}"}], "item_id": i, "seed": seed} for i in ids]


def tool_rows(env: str, items: Iterable[str] | None = None, seed: int = 0) -> list[dict[str, Any]]:
    """Rows for :func:`agentgym_lite.client.trl.environment_factory`: the instructions; ``reset`` adds the first observation."""
    cls = environment_class(env)
    system = f"{without_react_form(cls.instructions)}\n{_TOOL_RULES}"
    prompt = [{"role": "system", "content": system}, {"role": "user", "content": ""}]
    return [{"prompt": prompt, "item_id": i, "seed": seed} for i in (cls.items("train") if items is None else items)]


def episode_reward(completions: Sequence[Any], episode_return: Sequence[float | None], **_: Any) -> list[float | None]:
    """Reward function: the return that the environment paid; ``None``, which TRL leaves out, where the environment failed."""
    return list(episode_return)


class TrlRollouts:
    """A ``rollout_func``: plays one episode for each prompt with the trainer's model, on the native engine.

    ``urls`` gives for each environment the ``url`` of its :class:`~agentgym_lite.client.SessionPool`. Replies are sampled with the
    trainer's temperature. For one process; the model must be one that the native engine covers. Raises ``ValueError`` for a prompt that is
    not of :func:`item_rows`, and for a chat template that rewrites history: TRL takes one row per episode.
    """

    def __init__(
        self,
        urls: Mapping[str, str | Sequence[str]],
        max_rounds: int | Mapping[str, int],
        rollout: RolloutConfig | None = None,
        seed: int = 0,
    ) -> None:
        self._urls, self._max_rounds, self._seed = dict(urls), max_rounds, seed
        self._rollout = rollout or RolloutConfig()
        self._calls = 0
        #: Episodes of the last call.
        self.trajectories: list[Trajectory] = []

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        """TRL's contract: ``prompt_ids, completion_ids, logprobs, env_mask``, and ``episode_return`` for the reward function."""
        specs = _specs(prompts)
        tokenizer = trainer.processing_class
        renderer = ChatRenderer(tokenizer)
        self._calls += 1
        with ExitStack() as stack:
            pools = {env: stack.enter_context(SessionPool(env, self._urls[env])) for env in {s.env for s in specs}}
            collector = Collector(self._engine(trainer, renderer, len(specs)), renderer, pools, ReAct(), self._settings(trainer))
            self.trajectories = collector.collect(specs, self._max_rounds, self._seed * 1_000_003 + self._calls)
        rows = [_row(t, renderer.end_of_turn) for t in self.trajectories]
        return {key: [row[key] for row in rows] for key in rows[0]}

    def _settings(self, trainer: Any) -> RolloutConfig:
        return self._rollout.model_copy(update={"temperature": trainer.temperature, "top_p": trainer.top_p})

    def _engine(self, trainer: Any, renderer: ChatRenderer, episodes: int) -> Any:
        from agentgym_lite.rollout.native import NativeEngine

        model = trainer.accelerator.unwrap_model(trainer.model)
        return NativeEngine(
            model,
            max_sessions=min(self._rollout.max_sessions, episodes),
            max_length=self._rollout.max_length,
            stop_ids=renderer.stop_ids,
            device=model.device,
        )


def _specs(prompts: Sequence[Any]) -> list[EpisodeSpec]:
    """One spec for each prompt; equal prompts are samples of one group."""
    seen: Counter[str] = Counter()
    specs = []
    for prompt in prompts:
        text = prompt if isinstance(prompt, str) else prompt[-1]["content"]
        match = _PROMPT.fullmatch(text)
        if match is None:
            raise ValueError(f"expected a prompt that names an episode as item_rows writes it (env/item_id/seed), found {text!r:.80}")
        specs.append(EpisodeSpec(match[1], match[2], int(match[3]), seen[text]))
        seen[text] += 1
    return specs


def _row(trajectory: Trajectory, end_of_turn: int) -> dict[str, Any]:
    if len(trajectory.rows) > 1:
        raise ValueError("expected a chat template that only appends, found one that rewrites history; TRL takes one row per episode")
    failed = trajectory.stop_reason is StopReason.ENV_ERROR
    row = trajectory.rows[0] if trajectory.rows else None
    start = row.action_mask.index(1) if row is not None and any(row.action_mask) else 0
    if row is None or not start:  # the environment failed before the first reply: a row that nothing is learned from
        empty = {"prompt_ids": [end_of_turn], "completion_ids": [end_of_turn], "logprobs": [0.0], "env_mask": [0]}
        return {**empty, "episode_return": None}
    return {
        "prompt_ids": row.token_ids[:start],
        "completion_ids": row.token_ids[start:],
        "logprobs": row.logprobs[start:],
        "env_mask": row.action_mask[start:],
        "episode_return": None if failed else trajectory.reward,
    }
