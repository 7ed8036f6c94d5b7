"""The rollout engine on vLLM: sessions, and weights that are pushed and then checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from agentgym_lite.config import RolloutConfig
from agentgym_lite.lora import base_model, is_adapted
from agentgym_lite.rollout.types import Generation, SamplingParams
from agentgym_lite.rollout.vllm import parity
from agentgym_lite.rollout.vllm.backend import Backend, Reply, Request
from agentgym_lite.rollout.vllm.errors import VllmError, WeightSyncError

#: Runs something in the main process of a run alone and gives its result to all.
OnMain = Callable[[Callable[[], Any]], Any]


@dataclass
class _Session:
    ids: list[int] = field(default_factory=list)
    request: int | None = None


class VllmEngine:
    """Continuous batching by vLLM (an :class:`~agentgym_lite.rollout.types.Engine`).

    A turn sends the whole conversation as token ids; vLLM's prefix cache knows all but the new ones. Sampling, log-probs, stop tokens and
    limits mean what they mean in :class:`~agentgym_lite.rollout.native.NativeEngine`; with the same seed other tokens are drawn. A
    reply depends on its seed alone up to rounding, which in vLLM varies with the batch.

    The weights are the model's after :meth:`sync`, which :class:`VllmEngine` calls when it is made. ``tolerance`` bounds the mean
    difference of log-probs, in nats, that a sync may leave. Raises ``VllmError``.
    """

    def __init__(
        self,
        model: Any,
        backend: Backend,
        *,
        max_sessions: int,
        max_length: int,
        stop_ids: Iterable[int],
        tolerance: float,
    ) -> None:
        self.max_sessions, self.max_length = max_sessions, max_length
        self._model, self._backend, self._tolerance = model, backend, tolerance
        self._vocab: int = base_model(model).config.vocab_size
        self._stop = tuple(sorted(set(stop_ids)))
        self._prompts = parity.prompts(self._vocab, max_sessions, max_length)
        self._sessions: dict[int, _Session] = {}
        self._asked: dict[int, int] = {}  # request -> session
        self._next_session = self._next_request = 0
        self._asleep = False
        if is_adapted(model):
            with parity.visible_adapter(model):
                self.sync()
        self.sync()

    def open(self) -> int:
        """Begin a session. Raises ``RuntimeError`` when ``max_sessions`` are open, or when the engine sleeps."""
        if self._asleep:
            raise RuntimeError("the engine sleeps; call sync before the next session")
        if len(self._sessions) >= self.max_sessions:
            raise RuntimeError(f"all {self.max_sessions} sessions of the engine are open; release one or raise max_sessions")
        number = self._next_session
        self._next_session += 1
        self._sessions[number] = _Session()
        return number

    def submit(self, session: int, new_ids: Sequence[int], sampling: SamplingParams, seed: int) -> None:
        """Append ``new_ids`` to the session and ask for one reply. Raises as :meth:`NativeEngine.submit` does."""
        self._submit(session, new_ids, sampling, seed, self._stop)

    def _submit(self, session: int, new_ids: Sequence[int], sampling: SamplingParams, seed: int, stop_ids: tuple[int, ...]) -> None:
        s = self._get(session)
        if s.request is not None:
            raise RuntimeError(f"session {session} is still sampling; wait for its reply before the next submit")
        if not new_ids or min(new_ids) < 0 or max(new_ids) >= self._vocab:
            raise ValueError(f"expected at least one new token id from 0 to {self._vocab - 1}, found {list(new_ids)[:8]}")
        context = len(s.ids) + len(new_ids)
        if context >= self.max_length:
            raise ValueError(f"session {session} would hold {context} tokens and no reply; max_length is {self.max_length}")
        s.ids.extend(new_ids)
        s.request = self._next_request
        self._next_request += 1
        self._asked[s.request] = session
        limit = min(sampling.max_new_tokens, self.max_length - context)
        self._backend.add(Request(s.request, session, tuple(s.ids), sampling, limit, seed, stop_ids))

    def step(self) -> list[Generation]:
        """Let vLLM go on with all pending requests; return the replies that finished, by session.

        Raises ``FloatingPointError`` if the policy's logits are not finite, ``VllmError`` if a server fails.
        """
        if not self._asked:
            return []
        replies = [r for r in self._backend.poll() if r.number in self._asked]
        return sorted((self._finish(r) for r in replies), key=lambda g: g.session)

    def _finish(self, reply: Reply) -> Generation:
        if not all(map(math.isfinite, reply.logprobs)):
            raise FloatingPointError("the policy's logits are not finite: its weights have diverged; go back to an earlier checkpoint")
        session = self._asked.pop(reply.number)
        s = self._sessions[session]
        s.request = None
        s.ids.extend(reply.token_ids)
        return Generation(session, reply.token_ids, reply.logprobs, reply.stopped)

    def release(self, session: int) -> None:
        """End a session, also in the middle of a reply. Raises ``RuntimeError`` if it is not open."""
        s = self._get(session)
        del self._sessions[session]
        if s.request is not None:
            del self._asked[s.request]
            self._backend.cancel(s.request)

    def sync(self) -> None:
        """Take over the model's current weights, clear the prefix cache, and see that the policy answers with these weights.

        With sharded weights all processes must call it together. Raises ``RuntimeError`` while a session is open, whose context would be
        of two policies, and ``WeightSyncError`` if the log-probs of the engine are not those of the model.
        """
        if self._sessions:
            raise RuntimeError(f"sync needs all sessions released, found {len(self._sessions)} open")
        self._backend.push(self._model)
        self._asleep = False
        self._verify()

    def sleep(self) -> None:
        """Give the device's memory back until the next :meth:`sync`. Raises ``RuntimeError`` while a session is open."""
        if self._sessions:
            raise RuntimeError(f"sleep needs all sessions released, found {len(self._sessions)} open")
        if not self._asleep:
            self._backend.sleep()
            self._asleep = True

    def close(self) -> None:
        """End vLLM, if it runs in this process, and free what it holds."""
        self._backend.close()

    def _get(self, session: int) -> _Session:
        if session not in self._sessions:
            raise RuntimeError(f"session {session} is not open")
        return self._sessions[session]

    def _verify(self) -> None:
        sessions = [self.open() for _ in self._prompts]
        replies: dict[int, Generation] = {}
        try:
            for seed, (session, ids) in enumerate(zip(sessions, self._prompts, strict=True)):
                self._submit(session, ids, parity.SAMPLING, seed, stop_ids=())
            while len(replies) < len(sessions):
                replies |= {reply.session: reply for reply in self.step()}
            rows = [self._sessions[session].ids for session in sessions]
        finally:
            for session in sessions:
                self.release(session)
        found = torch.tensor([replies[session].logprobs for session in sessions])
        gaps = (found - parity.expected_logprobs(self._model, rows)).abs()
        if not float(gaps.mean()) <= self._tolerance:  # also if it is not a number
            raise WeightSyncError(
                f"expected the engine's log-probs to be the policy's within {self._tolerance:g} nats on average after a sync, found "
                f"{float(gaps.mean()):.3g} (at most {float(gaps.max()):.3g}): vLLM does not sample with the weights that were sent to it, "
                "or a server computes in another type (--dtype). See docs/vllm.md; rollout.engine=native works without it"
            )


def make_vllm_engine(
    model: Any, rollout: RolloutConfig, stop_ids: Iterable[int], max_sessions: int | None = None, on_main: OnMain = lambda work: work()
) -> VllmEngine:
    """An engine as ``rollout`` asks, in this process or on its servers, with the weights of ``model``.

    ``on_main`` is how the processes of a run let one of them do something. Raises ``VllmError`` if vLLM is not there or a server is not
    what it must be, ``ValueError`` for a model or limits that do not fit.
    """
    dtype = model.dtype if rollout.dtype is None else getattr(torch, rollout.dtype)
    settings, sessions = rollout.vllm, max_sessions or rollout.max_sessions
    adapter = is_adapted(model) and settings.lora == "adapter"
    backend: Backend
    if settings.url == "local":
        from agentgym_lite.rollout.vllm.local import LocalBackend

        backend = LocalBackend(
            model,
            max_sessions=sessions,
            max_length=rollout.max_length,
            dtype=dtype,
            adapter=adapter,
            gpu_memory=settings.gpu_memory,
            sleep=settings.sleep,
        )
    else:
        from agentgym_lite.rollout.vllm.remote import RemoteBackend

        urls = [settings.url] if isinstance(settings.url, str) else settings.url
        backend = RemoteBackend(
            urls, max_sessions=sessions, max_length=rollout.max_length, adapter=adapter, folder=settings.sync_dir, on_main=on_main
        )
    tolerance = parity.TOLERANCE[dtype] if settings.sync_tolerance is None else settings.sync_tolerance
    try:
        return VllmEngine(model, backend, max_sessions=sessions, max_length=rollout.max_length, stop_ids=stop_ids, tolerance=tolerance)
    except BaseException:
        backend.close()
        raise


__all__ = ["VllmEngine", "VllmError", "WeightSyncError", "make_vllm_engine"]
