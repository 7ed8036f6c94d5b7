"""Agents that can be evaluated, behind one interface: experts, random agents, models on an engine, models behind an endpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from agentgym_lite.agents import Scaffold, make_scaffold
from agentgym_lite.client import EnvClient, SessionPool
from agentgym_lite.config import RolloutConfig, VllmConfig
from agentgym_lite.evaluation.processes import SHARD, make_policy, play_in_processes
from agentgym_lite.models import TINY, model_dir
from agentgym_lite.rollout.types import Engine, EpisodeSpec, Trajectory

if TYPE_CHECKING:
    from agentgym_lite.agents import ChatRenderer
    from agentgym_lite.rollout.openai import ChatEndpoint

Urls = str | Sequence[str]
OnEpisode = Callable[[Trajectory], None]
#: What names a model behind an OpenAI-compatible endpoint.
ENDPOINT = "openai:"
#: Default limits on the tokens of a reply: of a model on an engine of this kit, and of an endpoint, whose models think aloud.
NATIVE_TOKENS, ENDPOINT_TOKENS = 64, 512


class AgentError(ValueError):
    """An agent was named that does not exist; the message says which there are."""


@dataclass(frozen=True)
class Backend:
    """What plays an environment: its version, and the options that its server, or ``"local"``, was given."""

    version: str
    options: tuple[str, ...] = ()


class Player(Protocol):
    """Plays episodes. ``settings`` are all that decides what it does, JSON-ready."""

    agent: str
    settings: Mapping[str, Any]

    def backends(self, envs: Iterable[str]) -> dict[str, Backend]:
        """What would play each environment. Raises ``EnvironmentFailure`` if a server does not answer."""

    def play(self, specs: Sequence[EpisodeSpec], max_rounds: int, on_episode: OnEpisode) -> None:
        """Play ``specs`` and pass on each episode as it ends."""


def make_player(
    agent: str,
    url: Urls = "local",
    *,
    format: str = "react",
    strategy: str = "plain",
    memory: str = "full",
    token: str | None = None,
    seed: int = 0,
    temperature: float = 1.0,
    max_new_tokens: int | None = None,
    max_length: int = 2048,
    max_sessions: int = 64,
    engine: Literal["native", "vllm"] = "native",
    engine_url: Urls = "local",
    workers: int = 1,
    base_url: str | None = None,
    api_key: str | None = None,
    timeout_s: float = 120.0,
    concurrency: int = 16,
) -> Player:
    """A player for ``agent``: ``"expert"``, ``"random"``, ``"tiny"``, the folder of a model, a name on the model hub (``org/name``), or
    ``"openai:NAME"`` for a model behind an OpenAI-compatible endpoint.

    ``format``, ``strategy`` and ``memory`` are those of :func:`~agentgym_lite.agents.make_scaffold`.
    Environments are at ``url`` (see :class:`~agentgym_lite.client.SessionPool`). An expert or a random agent with local environments may
    play in several processes (``workers``; the calling program must then be importable, as scripts with an ``if __name__ ==
    "__main__"`` are). Settings of a model: sampling ``temperature`` (0 is greedy), tokens per reply and per episode, episodes at a time
    (``max_sessions``; with an endpoint, ``concurrency``); ``engine`` samples, ``"vllm"`` in this process or on servers at ``engine_url``
    that take the weights of ``agent`` (``docs/vllm.md``). ``base_url``, ``api_key`` and ``timeout_s`` are those of
    :class:`~agentgym_lite.rollout.openai.ChatEndpoint`. Raises ``AgentError``, ``ModelError``, ``EndpointError``; when it plays,
    ``VllmError``.
    """
    scaffold = make_scaffold(format, strategy, memory)
    if agent in ("expert", "random"):
        return TextPlayer(agent, url, token, seed, workers).acting_by(scaffold)
    if agent.startswith(ENDPOINT):
        from agentgym_lite.rollout.openai import ChatEndpoint

        if not (name := agent.removeprefix(ENDPOINT)):
            raise AgentError(f"expected a model's name behind {ENDPOINT!r}, found none; write for example openai:gpt-4o-mini")
        tokens = max_new_tokens or ENDPOINT_TOKENS
        endpoint = ChatEndpoint(
            name, base_url=base_url, api_key=api_key, temperature=temperature, max_new_tokens=tokens, timeout_s=timeout_s
        )
        sampling = {"temperature": temperature, "max_new_tokens": tokens}
        return EndpointPlayer(agent, url, token, seed, endpoint, concurrency, sampling).acting_by(scaffold)
    path = Path(agent).expanduser()
    if agent != TINY and not path.is_dir() and (agent.count("/") != 1 or path.parent.exists()):
        raise AgentError(
            f"expected expert, random, tiny, the folder of a model, a hub name (org/name) or openai:NAME as agent, found {agent!r:.200}"
        )
    tokens = max_new_tokens or NATIVE_TOKENS
    if engine != "vllm" and engine_url != "local":
        raise AgentError(f"expected engine 'vllm' with an engine_url, found {engine!r}; say --engine vllm, or leave the address out")
    rollout = RolloutConfig(
        engine=engine,
        vllm=VllmConfig(url=engine_url if isinstance(engine_url, str) else list(engine_url)),
        temperature=temperature or 1.0,
        max_new_tokens=tokens,
        max_length=max_length,
        max_sessions=max_sessions,
    )
    return ModelPlayer(agent, url, token, seed, rollout, greedy=temperature == 0).acting_by(scaffold)


class _Base:
    def __init__(self, agent: str, url: Urls, token: str | None, settings: Mapping[str, Any]) -> None:
        self.agent, self.settings = agent, settings
        self._url, self._token = url, token
        self._scaffold = Scaffold()

    def acting_by(self, scaffold: Scaffold) -> Self:
        """The same player with this action format, strategy and memory, which join its settings."""
        self._scaffold = scaffold
        self.settings = {**self.settings, **scaffold.settings}
        return self

    def backends(self, envs: Iterable[str]) -> dict[str, Backend]:
        found = {}
        for env in sorted(envs):
            for address in [self._url] if isinstance(self._url, str) else self._url:
                with EnvClient(env, address, self._token, timeout=20.0, retries=1) as client:
                    metadata = client.metadata()
                    found[env] = Backend(str(metadata["version"]), tuple(metadata.get("options", ())))
        return found

    def _pools(self, specs: Sequence[EpisodeSpec], stack: ExitStack) -> dict[str, SessionPool]:
        return {env: stack.enter_context(SessionPool(env, self._url, token=self._token)) for env in sorted({s.env for s in specs})}


class TextPlayer(_Base):
    """An expert or a random agent, in this process or, with local environments, spread over ``workers`` processes."""

    def __init__(self, agent: str, url: Urls, token: str | None, seed: int, workers: int = 1) -> None:
        super().__init__(agent, url, token, {"agent": agent, "seed": seed} if agent == "random" else {"agent": agent})
        self._seed = seed
        self._workers = workers if url in ("local", ["local"], ("local",)) else 1  # a server does the work itself

    def play(self, specs: Sequence[EpisodeSpec], max_rounds: int, on_episode: OnEpisode) -> None:
        """Play ``specs`` with a new policy for each."""
        if self._workers > 1 and len(specs) > SHARD:
            play_in_processes(self.agent, self._seed, self._scaffold.settings, specs, max_rounds, on_episode, self._workers)
            return
        from agentgym_lite.rollout.play import play

        with ExitStack() as stack:
            policy = partial(make_policy, self.agent, self._seed, self._scaffold)
            play(policy, specs, self._pools(specs, stack), max_rounds, scaffold=self._scaffold, on_episode=on_episode)


class EndpointPlayer(_Base):
    """A model behind an OpenAI-compatible endpoint."""

    def __init__(
        self,
        agent: str,
        url: Urls,
        token: str | None,
        seed: int,
        endpoint: ChatEndpoint,
        concurrency: int,
        sampling: Mapping[str, Any],
    ) -> None:
        super().__init__(agent, url, token, {"agent": agent, "base_url": endpoint.base_url, "seed": seed, **sampling})
        self._seed, self._endpoint, self._concurrency = seed, endpoint, concurrency

    def play(self, specs: Sequence[EpisodeSpec], max_rounds: int, on_episode: OnEpisode) -> None:
        """Play ``specs``, several at a time. Raises ``EndpointError`` if the endpoint fails."""
        from agentgym_lite.rollout.openai import play_chat

        with ExitStack() as stack:
            pools = self._pools(specs, stack)
            play_chat(
                self._endpoint,
                specs,
                pools,
                max_rounds,
                run_seed=self._seed,
                concurrency=self._concurrency,
                scaffold=self._scaffold,
                on_episode=on_episode,
            )


class ModelPlayer(_Base):
    """A causal language model. It is loaded when it first plays."""

    def __init__(self, agent: str, url: Urls, token: str | None, seed: int, rollout: RolloutConfig, *, greedy: bool) -> None:
        self._folder = model_dir(agent)
        settings: dict[str, Any] = {"agent": agent, "weights": _weights_id(Path(self._folder)), "seed": seed}
        settings |= {"temperature": 0.0 if greedy else rollout.temperature}
        settings |= {"max_new_tokens": rollout.max_new_tokens, "max_length": rollout.max_length}
        if rollout.engine != "native":
            settings["engine"] = rollout.engine  # it draws other episodes
        super().__init__(agent, url, token, settings)
        self._seed, self._greedy, self._rollout = seed, greedy, rollout
        self._kept: tuple[Engine, ChatRenderer] | None = None

    def play(self, specs: Sequence[EpisodeSpec], max_rounds: int, on_episode: OnEpisode) -> None:
        """Play ``specs`` with the model. Raises ``ModelError`` if it cannot be loaded, ``AgentError`` if it is of the wrong kind."""
        from agentgym_lite.rollout.collector import Collector

        engine, renderer = self._kept or self._start(len(specs))
        with ExitStack() as stack:
            collector = Collector(engine, renderer, self._pools(specs, stack), self._scaffold, self._rollout)
            collector.collect(specs, max_rounds, self._seed, greedy=self._greedy, on_episode=on_episode)

    def _start(self, episodes: int) -> tuple[Engine, ChatRenderer]:
        """An engine for ``episodes``; vLLM, which is slow to start, is made for any number and kept."""
        import torch

        from agentgym_lite.agents import ChatRenderer
        from agentgym_lite.models import load_model, load_tokenizer
        from agentgym_lite.rollout.engines import make_engine

        keep = self._rollout.engine == "vllm"
        sessions = self._rollout.max_sessions if keep else min(self._rollout.max_sessions, episodes)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model = load_model(self._folder).to(device)
        try:
            renderer = ChatRenderer(load_tokenizer(self._folder))
            engine = make_engine(model, self._rollout, renderer.stop_ids, max_sessions=sessions)
        except ValueError as e:
            raise AgentError(f"the model in '{self._folder}' cannot play: {e}") from e
        self._kept = (engine, renderer) if keep else None
        return engine, renderer


def _weights_id(folder: Path) -> str:
    """Tells models apart that have been at the same place: a digest of the weight files; empty for a model on the hub."""
    digest = hashlib.blake2b(digest_size=8)
    files = sorted(folder.glob("*.safetensors"))
    for file in files:
        with file.open("rb") as f:
            while block := f.read(1 << 20):
                digest.update(block)
    return digest.hexdigest() if files else ""
