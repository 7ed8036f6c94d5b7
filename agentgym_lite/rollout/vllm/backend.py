"""What the vLLM engine asks of a vLLM, wherever it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from agentgym_lite.rollout.types import SamplingParams


@dataclass(frozen=True)
class Request:
    """One reply to draw. ``session`` stays with an episode, so that its turns go where their prefix is cached."""

    number: int
    session: int
    prompt: tuple[int, ...]
    sampling: SamplingParams
    limit: int  #: tokens of the reply
    seed: int
    stop_ids: tuple[int, ...]


@dataclass(frozen=True)
class Reply:
    """What came of a request: ids with the stop token, if one was sampled, and log-probs of the distribution sampled from."""

    number: int
    token_ids: list[int]
    logprobs: list[float]
    stopped: bool


class Backend(Protocol):
    """A vLLM that samples with a policy's weights."""

    def add(self, request: Request) -> None:
        """Begin to sample."""

    def poll(self) -> list[Reply]:
        """Go on sampling; the replies that are complete, each once."""

    def cancel(self, number: int) -> None:
        """Forget a request whose reply nobody waits for."""

    def push(self, model: Any) -> None:
        """Take over the weights of ``model`` and forget all that was computed with others. There are no requests then."""

    def sleep(self) -> None:
        """Give memory back until the next :meth:`push`."""

    def close(self) -> None:
        """End it."""
