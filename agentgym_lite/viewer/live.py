"""An episode that is being played while one watches: by a human, by an agent, or by both in turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

from agentgym_envs.core import Observation, environment_class
from agentgym_lite.agents import ChatRenderer, ReAct, TextPolicy
from agentgym_lite.client import EnvironmentFailure, SessionPool
from agentgym_lite.rollout.episode import Episode
from agentgym_lite.rollout.openai import ChatEndpoint, EndpointError
from agentgym_lite.rollout.types import Engine, EpisodeSpec, SamplingParams, TokenRow, derive_seed
from agentgym_lite.viewer.payload import Shown, body
from agentgym_lite.viewer.tokens import Decode, token_decoder

#: Actions and items that the page lists; nobody reads more.
MAX_LISTED = 400


class LiveError(ValueError):
    """A move that cannot be made now; the message says why and what to do."""


@dataclass(frozen=True)
class Spoken:
    """One reply, with its sampled tokens if a model of this process said it."""

    text: str
    ids: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    truncated: bool = False


class LiveAgent(Protocol):
    """Whoever can be asked for the next reply. ``decode`` is None if it has no tokens to show."""

    name: str
    decode: Decode | None

    def begin(self, observation: Observation, render: Callable[[], dict[str, Any]]) -> None:
        """A new episode; ``render`` gives the full state to those that may see it."""

    def reply(self, episode: Episode) -> Spoken:
        """The reply to the episode's latest observation, whoever made the moves before. Raises ``LiveError``."""


class PolicyAgent:
    """A text policy, such as an expert."""

    decode: Decode | None = None

    def __init__(self, name: str, policy: TextPolicy) -> None:
        self.name, self._policy = name, policy

    def begin(self, observation: Observation, render: Callable[[], dict[str, Any]]) -> None:
        self._policy.reset(observation, render)

    def reply(self, episode: Episode) -> Spoken:
        try:
            return Spoken(self._policy.act(episode.observation))
        except (ValueError, LookupError, RuntimeError) as e:  # a human's moves can leave an expert without a plan
            raise LiveError(f"{self.name} cannot go on from here ({e}); make the next move yourself or begin a new episode") from e


class ModelAgent:
    """A model on an engine of this process. It reads the whole conversation anew each time, whoever had a part in it."""

    def __init__(self, name: str, engine: Engine, renderer: ChatRenderer, sampling: SamplingParams, seed: int = 0) -> None:
        self.name = name
        self.decode: Decode | None = token_decoder(renderer.tokenizer)
        self._engine, self._renderer, self._sampling, self._seed = engine, renderer, sampling, seed

    def begin(self, observation: Observation, render: Callable[[], dict[str, Any]]) -> None:
        pass

    def reply(self, episode: Episode) -> Spoken:
        prompt = self._renderer.opening(episode.messages)
        if len(prompt) + self._sampling.max_new_tokens > self._engine.max_length:
            raise LiveError(f"the conversation has {len(prompt)} tokens and leaves no room for a reply; begin a new episode")
        session = self._engine.open()
        try:
            self._engine.submit(session, prompt, self._sampling, derive_seed(self._seed, episode.spec, episode.turn))
            while not (said := self._engine.step()):
                pass
        finally:
            self._engine.release(session)
        return Spoken(self._renderer.decode(said[0].token_ids), said[0].token_ids, said[0].logprobs, not said[0].finished_by_stop)


class EndpointAgent:
    """A model behind an OpenAI-compatible endpoint."""

    decode: Decode | None = None

    def __init__(self, name: str, endpoint: ChatEndpoint, seed: int = 0) -> None:
        self.name, self._endpoint, self._seed = name, endpoint, seed

    def begin(self, observation: Observation, render: Callable[[], dict[str, Any]]) -> None:
        pass

    def reply(self, episode: Episode) -> Spoken:
        try:
            said = self._endpoint.complete(episode.messages, derive_seed(self._seed, episode.spec, episode.turn))
        except EndpointError as e:
            raise LiveError(str(e)) from e
        return Spoken(said.text, truncated=said.truncated)


class LiveGame:
    """One environment session and the episode in it. All work is done on one thread, whichever thread asks.

    ``agent`` may be None: then a human plays alone. A human's text counts as the action, unless it is a whole reply with an ``Action:``.
    """

    def __init__(self, env: str, agent: LiveAgent | None, *, item: str, seed: int = 0, max_rounds: int = 30, pool: SessionPool) -> None:
        self.env, self._agent, self._max_rounds, self._pool = env, agent, max_rounds, pool
        self._thread = ThreadPoolExecutor(1, "live-game")
        self._handle: Any = None
        self._start = (item, seed)
        self._episode: Episode | None = None
        self._render: dict[str, Any] | None = None

    def state(self) -> dict[str, Any]:
        """What the page shows now; begins the first episode if none is running. Raises ``LiveError``, as all of the methods below."""
        return self._do(lambda: self._begin(*self._start) if self._episode is None else None)

    def begin(self, item: str, seed: int) -> dict[str, Any]:
        """A new episode; an empty ``item`` takes the first one."""
        return self._do(lambda: self._begin(item, seed))

    def act(self, text: str) -> dict[str, Any]:
        """A human's move."""
        return self._do(lambda: self._human(text))

    def advance(self) -> dict[str, Any]:
        """One move of the agent."""
        return self._do(self._agent_move)

    def close(self) -> None:
        """End the session. The pool stays its owner's."""
        self._thread.submit(self._leave).result()
        self._thread.shutdown()

    def _do(self, move: Callable[[], None]) -> dict[str, Any]:
        def work() -> dict[str, Any]:
            try:
                move()
                return self._state()
            except EnvironmentFailure as e:
                self._episode = None
                raise LiveError(f"the environment failed ({e}); begin a new episode") from e
            except KeyError as e:  # UnknownItem: what the page sent is no item
                raise LiveError(str(e)) from e

        return self._thread.submit(work).result()

    # -- on the game's thread --------------------------------------------------------------------------------------------------------

    def _leave(self) -> None:
        if self._handle is not None:
            self._pool.close(self._handle).result()
            self._handle = None

    def _begin(self, item: str, seed: int) -> None:
        cls = environment_class(self.env)
        item = item or cls.items("eval")[0]
        task = cls.task_of(item)
        self._leave()
        self._handle, observation = self._pool.start(item, seed).result()
        spec = EpisodeSpec(self.env, item, seed)
        self._episode = Episode(spec, self._max_rounds, instructions=cls.instructions, task=task, env_version=cls.version)
        self._episode.begin(observation)
        self._look()
        if self._agent is not None:
            self._agent.begin(observation, lambda: self._pool.render(self._handle).result())

    def _human(self, text: str) -> None:
        self._running()
        reply = text if ReAct().parse(text).action is not None else ReAct().render("", text.strip())
        self._say(Spoken(reply), "human")

    def _agent_move(self) -> None:
        episode = self._running()
        if self._agent is None:
            raise LiveError("no agent was named for this page; type an action, or start `agl play` with --agent")
        self._say(self._agent.reply(episode), self._agent.name)

    def _say(self, said: Spoken, by: str) -> None:
        episode = self._running()
        if said.ids:
            episode.trajectory.rows.append(TokenRow())  # a row of the reply alone: the conversation is shown anyway
        episode.add_reply(said.text, said.ids, said.logprobs, said.truncated)
        turn, before = episode.trajectory.turns[-1], self._render
        if turn.action is not None:
            episode.add_result(self._pool.step(self._handle, turn.action).result())
        self._look()
        turn.info = {**turn.info, "render": before, "by": by}

    def _running(self) -> Episode:
        if self._episode is None or self._episode.finished:
            raise LiveError("the episode is over; begin a new one")
        return self._episode

    def _look(self) -> None:
        self._render = self._pool.render(self._handle).result()

    def _state(self) -> dict[str, Any]:
        assert self._episode is not None
        episode, finished = self._episode, self._episode.finished
        trajectory = replace(episode.trajectory, info={"render": self._render})
        shown = body(Shown(trajectory), self._agent.decode if self._agent else None)
        if not finished:
            shown["stop"], shown["success"] = "playing", False
        actions = [] if finished else self._pool.available_actions(self._handle).result()
        return {
            "body": {**shown, "live": True},
            "finished": finished,
            "actions": actions[:MAX_LISTED],
            "agent": self._agent.name if self._agent else None,
            "instructions": environment_class(self.env).instructions,
            "items": environment_class(self.env).items("eval")[:MAX_LISTED],
        }
