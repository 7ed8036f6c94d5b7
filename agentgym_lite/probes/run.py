"""Train on a probe and say what is wrong, if anything."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from agentgym_lite.agents import ChatRenderer, opening_messages
from agentgym_lite.config import Config, PPOConfig, parse_config
from agentgym_lite.probes.env import ACTIONS, PROBES, Probe
from agentgym_lite.probes.policy import probe_model, probe_tokenizer, reply
from agentgym_lite.training import Trainer

#: Tokens of a reply: the action and the end of the turn.
REPLY_TOKENS = 2


@dataclass(frozen=True)
class ProbeRun:
    """What came of training on a probe: ``left`` is the probability of ``left`` rather than ``right`` at each observation, ``values`` the
    critic's value there (empty without one), ``history`` the metrics of every step."""

    probe: str
    left: dict[str, float]
    values: dict[str, float]
    history: list[dict[str, float]]
    config: Config = field(repr=False)

    def complaints(self, *, least: float = 0.9, tolerance: float = 0.1) -> list[str]:
        """What has not been learned: actions preferred with less than ``least``, values off by more than ``tolerance``. Empty: passed."""
        cls = PROBES[self.probe]
        out = []
        for word, action in cls.preferred.items():
            p = self.left[word] if action == "left" else 1.0 - self.left[word]
            if p < least:
                out.append(f"{self.probe}: expected '{action}' at '{word}' with at least {least}, found {p:.2f}; look at {cls.isolates}")
        for word, wanted in self._worth().items():
            if self.values and abs(self.values[word] - wanted) > tolerance:
                out.append(f"{self.probe}: expected value {wanted:.2f} at '{word}', found {self.values[word]:.2f}; look at {cls.isolates}")
        return out

    def _worth(self) -> dict[str, float]:
        """The true value at each observation: discounted per turn, or per token that the policy still samples."""
        algorithm = self.config.algorithm
        if not isinstance(algorithm, PPOConfig):
            return {}
        by_token = algorithm.credit == "token"
        steps = {word: REPLY_TOKENS * (turns + 1) - 1 if by_token else turns for word, (_, turns) in PROBES[self.probe].worth.items()}
        return {word: pay * algorithm.gamma ** steps[word] for word, (pay, _) in PROBES[self.probe].worth.items()}


def run_probe(
    probe: str,
    algorithm: Mapping[str, Any],
    *,
    steps: int = 30,
    seed: int = 0,
    lr: float = 3e-3,
    groups: int = 8,
    **trainer_options: Any,
) -> ProbeRun:
    """Train a fresh :func:`probe_model` on ``probe`` (see :func:`register_probes`) with the settings of ``algorithm``.

    KL and entropy are off unless set. ``trainer_options`` go to :class:`~agentgym_lite.training.Trainer`. Raises ``ConfigError``.
    """
    with tempfile.TemporaryDirectory() as folder:
        config = parse_config(
            {
                "envs": [{"name": probe, "rounds": {"type": "fixed", "rounds": PROBES[probe].ROUNDS}}],
                "algorithm": {"kl_coef": 0.0, "entropy_coef": 0.0, **algorithm},
                "rollout": {"max_new_tokens": REPLY_TOKENS, "max_length": 96, "max_sessions": 64},
                "optim": {"lr": lr},
                "run": {"steps": steps, "groups_per_step": groups, "out": folder, "seed": seed, "save_every": steps, "log_trajectories": 0},
            }
        )
        assert isinstance(config, Config)
        trainer = Trainer(config, model=probe_model(seed), tokenizer=probe_tokenizer(), **trainer_options)
        history = trainer.train().history
    left, values = read_policy(PROBES[probe], trainer.model, trainer.critic)
    return ProbeRun(probe, left, values, history, config)


@torch.no_grad()
def read_policy(probe: type[Probe], model: Any, critic: Any = None) -> tuple[dict[str, float], dict[str, float]]:
    """Probability of ``left`` and value at every observation that the probe can show before an action."""
    tokenizer = probe_tokenizer()
    actions = [tokenizer.convert_tokens_to_ids(reply(a)) for a in ACTIONS]
    left, values = {}, {}
    for word, prompt in prompts(probe).items():
        ids = torch.tensor([prompt])
        hidden = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
        logits = model.get_output_embeddings()(hidden[0, -1])[actions]
        left[word] = float(logits.softmax(-1)[0])
        if critic is not None:
            values[word] = float(critic(ids, hidden)[0, -1])
    return left, values


def prompts(probe: type[Probe]) -> dict[str, list[int]]:
    """For every observation, the ids that the policy reads before it answers the first such one."""
    renderer, env = ChatRenderer(probe_tokenizer()), probe()
    out: dict[str, list[int]] = {}
    for item in (0, 1):
        for always in ACTIONS:
            observation = env.reset(item)
            messages = opening_messages(probe, observation)
            done = False
            while not done:
                out.setdefault(observation.text, renderer.opening(messages))
                result = env.step(always)
                observation, done = result.observation, result.done
                messages += [{"role": "assistant", "content": reply(always)}, {"role": "user", "content": observation.text}]
    return out
