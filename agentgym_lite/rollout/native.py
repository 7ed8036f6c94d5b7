"""Rollout engine in plain torch: a session keeps its key-value cache for the whole episode.

A turn computes only its new tokens; new turns and running replies share one forward pass per step; a released slot is free at once.
There is no barrier between the turns of different episodes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agentgym_lite.rollout.decoder import CachedDecoder, Prompt
from agentgym_lite.rollout.types import Generation, SamplingParams

#: Prompt tokens per forward pass; bounds the memory of activations. A longer prompt runs alone.
PROMPT_TOKENS = 8192


@dataclass
class _Session:
    """One open session: its slot, and the ids that were asked for but are not in the cache yet."""

    id: int
    slot: int
    waiting: list[int] = field(default_factory=list)  #: the last sampled token, then what the caller added
    busy: bool = False


class NativeEngine:
    """Continuous batching over the weights of a Qwen2 or Llama model (an :class:`~agentgym_lite.rollout.types.Engine`).

    Sampling is by inverse CDF with uniforms from a counter-based generator (numpy's Philox) keyed by the request's seed, so a reply
    does not depend on its neighbours. Log-probs are those of the distribution that was sampled from: softmax(logits / temperature),
    and with ``top_p`` < 1 its most probable tokens up to that mass, renormalised. Greedy replies (temperature 0) report softmax(logits).
    A reply also ends, not ``finished_by_stop``, where the session reaches ``max_length`` tokens.

    ``stop_ids`` end a reply and belong to it. Weights are a snapshot: call :meth:`sync` after changing the model. ``dtype`` defaults to
    the model's. Raises ``ValueError`` for a model that is not covered.
    """

    def __init__(
        self,
        model: Any,
        *,
        max_sessions: int,
        max_length: int,
        stop_ids: Iterable[int],
        device: str | torch.device = "cpu",
        dtype: torch.dtype | None = None,
    ) -> None:
        if max_sessions < 1 or max_length < 2:
            raise ValueError(f"expected max_sessions >= 1 and max_length >= 2, found {max_sessions} and {max_length}")
        self.max_sessions, self.max_length = max_sessions, max_length
        self._device = torch.device(device)
        self._decoder = CachedDecoder(model, max_sessions, max_length, self._device, dtype or model.dtype)
        self._vocab: int = model.config.vocab_size
        self._stop = torch.tensor(sorted(set(stop_ids)), dtype=torch.int64, device=self._device)
        self._sessions: dict[int, _Session] = {}
        self._by_slot: dict[int, _Session] = {}
        self._next_id = 0
        self._free = list(range(max_sessions))
        self._queue: list[_Session] = []
        self._decoding = np.empty(0, dtype=np.int64)  # slots in ascending order
        # Host state per slot: tokens in the cache, tokens sampled in this reply and their limit.
        self._length, self._count, self._limit = (np.zeros(max_sessions, dtype=np.int64) for _ in range(3))
        self._temperature = np.ones(max_sessions, dtype=np.float32)
        self._top_p = np.ones(max_sessions, dtype=np.float32)
        # Device state per slot: this reply's tokens, log-probs and uniforms.
        size = (max_sessions, max_length)
        self._tokens = torch.zeros(size, dtype=torch.int64, device=self._device)
        self._logprobs, self._uniforms = (torch.zeros(size, device=self._device) for _ in range(2))

    @property
    def cache_bytes(self) -> int:
        """Size of the key-value cache."""
        return self._decoder.cache.nbytes

    def open(self) -> int:
        """Begin a session. Raises ``RuntimeError`` when ``max_sessions`` are open."""
        if not self._free:
            raise RuntimeError(f"all {self.max_sessions} sessions of the engine are open; release one or raise max_sessions")
        session = _Session(self._next_id, heapq.heappop(self._free))
        self._next_id += 1
        self._length[session.slot] = 0
        self._sessions[session.id] = self._by_slot[session.slot] = session
        return session.id

    def submit(self, session: int, new_ids: Sequence[int], sampling: SamplingParams, seed: int) -> None:
        """Append ``new_ids`` to the session and ask for one reply.

        Raises ``ValueError`` if there are none, if an id is outside the vocabulary or if they leave no room for a reply, and
        ``RuntimeError`` if the session is not open or its last reply is still running. The session is unchanged then.
        """
        s = self._get(session)
        if s.busy:
            raise RuntimeError(f"session {session} is still sampling; wait for its reply before the next submit")
        if not new_ids or min(new_ids) < 0 or max(new_ids) >= self._vocab:
            raise ValueError(f"expected at least one new token id from 0 to {self._vocab - 1}, found {list(new_ids)[:8]}")
        context = int(self._length[s.slot]) + len(s.waiting) + len(new_ids)
        if context >= self.max_length:
            raise ValueError(f"session {session} would hold {context} tokens and no reply; max_length is {self.max_length}")
        s.waiting.extend(new_ids)
        s.busy = True
        limit = min(sampling.max_new_tokens, self.max_length - context)
        self._count[s.slot], self._limit[s.slot] = 0, limit
        self._temperature[s.slot], self._top_p[s.slot] = sampling.temperature, sampling.top_p
        draws = np.random.Generator(np.random.Philox(key=seed)).random(limit, dtype=np.float32)
        self._uniforms[s.slot, :limit] = torch.from_numpy(draws).to(self._device)
        self._queue.append(s)

    def step(self) -> list[Generation]:
        """Sample one token for every pending request; return the replies that finished, by slot.

        Raises ``FloatingPointError`` if the policy's logits are not finite.
        """
        if not self._queue and not len(self._decoding):
            return []
        single, queue, self._queue = self._decoding, self._queue, []
        done: list[Generation] = []
        for prompts in _batches(queue):
            done += self._advance(single, prompts)
            single = single[:0]
        return done

    def release(self, session: int) -> None:
        """End a session, also in the middle of a reply, and free its cache. Raises ``RuntimeError`` if it is not open."""
        s = self._get(session)
        del self._sessions[session], self._by_slot[s.slot]
        self._queue = [other for other in self._queue if other is not s]
        self._decoding = self._decoding[self._decoding != s.slot]
        heapq.heappush(self._free, s.slot)

    def sync(self) -> None:
        """Take over the model's current weights. Raises ``RuntimeError`` while a session is open, whose cache would be stale."""
        if self._sessions:
            raise RuntimeError(f"sync needs all sessions released, found {len(self._sessions)} open")
        self._decoder.load()

    def _get(self, session: int) -> _Session:
        if session not in self._sessions:
            raise RuntimeError(f"session {session} is not open")
        return self._sessions[session]

    @torch.inference_mode()
    def _advance(self, single: np.ndarray, new: Sequence[_Session]) -> list[Generation]:
        """One forward pass: a token for each slot in ``single``, the waiting tokens of ``new``; then one sampled token for each."""
        leaders, followers = self._share(new)
        prompts = [Prompt(s.slot, int(self._length[s.slot]), len(s.waiting)) for s in leaders]
        ids = torch.tensor([t for s in leaders for t in s.waiting], dtype=torch.int64, device=self._device)
        at = torch.from_numpy(single).to(self._device)
        tokens = torch.cat([self._tokens[at, torch.from_numpy(self._count[single] - 1).to(self._device)], ids])
        ends = dict(zip((s.slot for s in leaders), len(single) - 1 + np.cumsum([p.count for p in prompts]), strict=True))
        read = np.concatenate([np.arange(len(single)), [ends[followers.get(s.slot, s.slot)] for s in new]]).astype(np.int64)
        logits = self._decoder.forward(tokens, single, self._length[single], prompts, torch.from_numpy(read).to(self._device))

        for leader in leaders:
            copies = [slot for slot, source in followers.items() if source == leader.slot]
            if copies:
                self._decoder.copy_prefix(leader.slot, copies, len(leader.waiting))
        self._length[single] += 1
        for s in new:
            self._length[s.slot] += len(s.waiting)
            s.waiting = []
        return self._sample(np.concatenate([single, np.array([s.slot for s in new], dtype=np.int64)]), logits)

    def _share(self, new: Sequence[_Session]) -> tuple[list[_Session], dict[int, int]]:
        """Sessions that begin with the same prompt (a group) compute it once: the first of each, and slot -> slot for the others."""
        first: dict[tuple[int, ...], _Session] = {}
        leaders: list[_Session] = []
        followers: dict[int, int] = {}
        for s in new:
            leader = first.setdefault(tuple(s.waiting), s) if not self._length[s.slot] else s
            if leader is s:
                leaders.append(s)
            else:
                followers[s.slot] = leader.slot
        return leaders, followers

    def _sample(self, slots: np.ndarray, logits: Tensor) -> list[Generation]:
        at, count = torch.from_numpy(slots).to(self._device), torch.from_numpy(self._count[slots]).to(self._device)
        token, logprob = sample(logits, self._uniforms[at, count], self._temperature[slots], self._top_p[slots])
        self._tokens[at, count] = token
        self._logprobs[at, count] = logprob
        flags = torch.stack([(token[:, None] == self._stop).any(1), logprob.isnan()])
        stopped, broken = flags.cpu().numpy()  # the one wait for the device in a step
        if broken.any():
            raise FloatingPointError("the policy's logits are not finite: its weights have diverged; go back to an earlier checkpoint")
        self._count[slots] += 1
        finished = stopped | (self._count[slots] >= self._limit[slots])
        self._decoding = np.setdiff1d(np.union1d(self._decoding, slots), slots[finished])
        return [self._finish(int(slot), bool(stop)) for slot, stop in zip(slots[finished], stopped[finished], strict=True)]

    def _finish(self, slot: int, stopped: bool) -> Generation:
        s, n = self._by_slot[slot], int(self._count[slot])
        ids: list[int] = self._tokens[slot, :n].tolist()
        s.busy = False
        s.waiting = ids[-1:]  # enters the cache with the next turn, so that cache and training row hold the same tokens
        return Generation(s.id, ids, self._logprobs[slot, :n].tolist(), stopped)


def _batches(queue: Sequence[_Session]) -> Iterator[list[_Session]]:
    """Split the queue, in order, into lists of at most ``PROMPT_TOKENS`` waiting tokens; one list, maybe empty, at least."""
    batch: list[_Session] = []
    size = 0
    for s in queue:
        if batch and size + len(s.waiting) > PROMPT_TOKENS:
            yield batch
            batch, size = [], 0
        batch.append(s)
        size += len(s.waiting)
    yield batch


def sample(logits: Tensor, uniforms: Tensor, temperature: np.ndarray, top_p: np.ndarray) -> tuple[Tensor, Tensor]:
    """Draw one token per row by inverse CDF: tokens [B] and their log-probs [B].

    ``logits`` [B, V] float32; ``uniforms`` [B] in [0, 1); ``temperature`` and ``top_p`` [B]. See :class:`NativeEngine` for which
    distribution the log-probs belong to.
    """
    greedy = temperature <= 0
    scale = torch.from_numpy(1.0 / np.where(greedy, 1.0, temperature).astype(np.float32)).to(logits.device)
    z = logits * scale[:, None]
    z = z - z.amax(-1, keepdim=True)
    weights = z.exp()
    top_p = np.where(greedy, np.float32(1), top_p)
    if (top_p < 1).any():
        weights = _nucleus(weights, torch.from_numpy(top_p).to(logits.device))
    cdf = weights.cumsum(-1)
    total = cdf[:, -1:]
    # Strictly below the total, so that the token found has probability above zero even if the product rounds up.
    target = torch.minimum(uniforms[:, None] * total, torch.nextafter(total, torch.zeros_like(total)))
    token = torch.searchsorted(cdf, target, right=True).clamp_(max=z.shape[-1] - 1)  # past the end only if a logit is NaN
    if greedy.any():
        token = torch.where(torch.from_numpy(greedy).to(logits.device)[:, None], logits.argmax(-1, keepdim=True), token)
    return token[:, 0], (z.gather(1, token) - total.log())[:, 0]


def _nucleus(weights: Tensor, top_p: Tensor) -> Tensor:
    """Zero all but the most probable tokens that together hold ``top_p`` of the mass (the one that crosses it is kept)."""
    ordered, index = weights.sort(stable=True, dim=-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    dropped = (before >= top_p[:, None] * ordered.sum(-1, keepdim=True)) & (top_p[:, None] < 1)
    dropped[:, 0] = False
    return weights.masked_fill(torch.zeros_like(dropped).scatter_(1, index, dropped), 0.0)
