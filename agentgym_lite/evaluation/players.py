"""Agents that can be evaluated, behind one interface: experts, random agents, and models on the native engine."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from agentgym_lite.agents import ExpertPolicy, RandomPolicy, ReAct, TextPolicy
from agentgym_lite.client import EnvClient, SessionPool
from agentgym_lite.config import RolloutConfig
from agentgym_lite.models import TINY, model_dir
from agentgym_lite.rollout.types import EpisodeSpec, Trajectory, derive_seed

Urls = str | Sequence[str]
OnEpisode = Callable[[Trajectory], None]


class AgentError(ValueError):
    """An agent was named that does not exist; the message says which there are."""


class Player(Protocol):
    """Plays episodes. ``settings`` are all that decides what it does, JSON-ready."""

    agent: str
    settings: Mapping[str, Any]

    def versions(self, envs: Iterable[str]) -> dict[str, str]:
        """Version of each environment that would be played. Raises ``EnvironmentFailure`` if a server does not answer."""

    def play(self, specs: Sequence[EpisodeSpec], max_rounds: int, on_episode: OnEpisode) -> None:
        """Play ``specs`` and pass on each episode as it ends."""


def make_player(
    agent: str,
    url: Urls = "local",
    *,
    token: str | None = None,
    seed: int = 0,
    temperature: float = 1.0,
    max_new_tokens: int = 64,
    max_length: int = 2048,
    max_sessions: int = 64,
) -> Player:
    """A player for ``agent``: ``"expert"``, ``"random"``, ``"tiny"``, the folder of a model or a name on the model hub (``org/name``).

    Environments are at ``url`` (see :class:`~agentgym_lite.client.SessionPool`). The other settings are a model's: sampling
    ``temperature`` (0 is greedy), tokens per reply and per episode, episodes at a time. Raises ``AgentError`` and ``ModelError``.
    """
    if agent in ("expert", "random"):
        return TextPlayer(agent, url, token, seed)
    path = Path(agent).expanduser()
    if agent != TINY and not path.is_dir() and (agent.count("/") != 1 or path.parent.exists()):
        raise AgentError(f"expected expert, random, tiny, the folder of a model or a hub name (org/name) as agent, found {agent!r:.200}")
    return ModelPlayer(agent, url, token, seed, temperature, max_new_tokens, max_length, max_sessions)


class _Base:
    def __init__(self, agent: str, url: Urls, token: str | None, settings: Mapping[str, Any]) -> None:
        self.agent, self.settings = agent, settings
        self._url, self._token = url, token

    def versions(self, envs: Iterable[str]) -> dict[str, str]:
        found = {}
        for env in sorted(envs):
            for address in [self._url] if isinstance(self._url, str) else self._url:
                with EnvClient(env, address, self._token, timeout=20.0, retries=1) as client:
                    found[env] = str(client.metadata()["version"])
        return found

    def _pools(self, specs: Sequence[EpisodeSpec], stack: ExitStack) -> dict[str, SessionPool]:
        return {env: stack.enter_context(SessionPool(env, self._url, token=self._token)) for env in sorted({s.env for s in specs})}


class TextPlayer(_Base):
    """An expert or a random agent."""

    def __init__(self, agent: str, url: Urls, token: str | None, seed: int) -> None:
        super().__init__(agent, url, token, {"agent": agent, "seed": seed} if agent == "random" else {"agent": agent})
        self._seed = seed

    def play(self, specs: Sequence[EpisodeSpec], max_rounds: int, on_episode: OnEpisode) -> None:
        """Play ``specs`` with a new policy for each."""
        from agentgym_lite.rollout.play import play

        with ExitStack() as stack:
            play(self._policy, specs, self._pools(specs, stack), max_rounds, on_episode=on_episode)

    def _policy(self, spec: EpisodeSpec) -> TextPolicy:
        return ExpertPolicy(spec.env) if self.agent == "expert" else RandomPolicy(spec.env, derive_seed(self._seed, spec, 0))


class ModelPlayer(_Base):
    """A causal language model that speaks ReAct. It is loaded when it first plays."""

    def __init__(
        self,
        agent: str,
        url: Urls,
        token: str | None,
        seed: int,
        temperature: float,
        max_new_tokens: int,
        max_length: int,
        max_sessions: int,
    ) -> None:
        self._folder = model_dir(agent)
        settings = {"agent": agent, "weights": _weights_id(Path(self._folder)), "seed": seed, "temperature": temperature}
        super().__init__(agent, url, token, {**settings, "max_new_tokens": max_new_tokens, "max_length": max_length})
        self._seed, self._greedy = seed, temperature == 0
        self._rollout = RolloutConfig(
            temperature=temperature or 1.0, max_new_tokens=max_new_tokens, max_length=max_length, max_sessions=max_sessions
        )

    def play(self, specs: Sequence[EpisodeSpec], max_rounds: int, on_episode: OnEpisode) -> None:
        """Play ``specs`` with the model. Raises ``ModelError`` if it cannot be loaded, ``AgentError`` if it is of the wrong kind."""
        import torch

        from agentgym_lite.agents import ChatRenderer
        from agentgym_lite.models import load_model, load_tokenizer
        from agentgym_lite.rollout.collector import Collector
        from agentgym_lite.rollout.native import NativeEngine

        device = "cuda" if torch.cuda.is_available() else "cpu"
        model = load_model(self._folder).to(device)
        try:
            renderer = ChatRenderer(load_tokenizer(self._folder))
            engine = NativeEngine(
                model,
                max_sessions=min(self._rollout.max_sessions, len(specs)),
                max_length=self._rollout.max_length,
                stop_ids=renderer.stop_ids,
                device=device,
            )
        except ValueError as e:
            raise AgentError(f"the model in '{self._folder}' cannot play: {e}") from e
        with ExitStack() as stack:
            collector = Collector(engine, renderer, self._pools(specs, stack), ReAct(), self._rollout)
            collector.collect(specs, max_rounds, self._seed, greedy=self._greedy, on_episode=on_episode)


def _weights_id(folder: Path) -> str:
    """Tells models apart that have been at the same place: a digest of the weight files; empty for a model on the hub."""
    digest = hashlib.blake2b(digest_size=8)
    files = sorted(folder.glob("*.safetensors"))
    for file in files:
        with file.open("rb") as f:
            while block := f.read(1 << 20):
                digest.update(block)
    return digest.hexdigest() if files else ""
