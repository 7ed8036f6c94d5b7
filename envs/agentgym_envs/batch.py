"""Running the entries of a batched request: one thread while they are fast, more as soon as they are not."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

import anyio

from agentgym_envs.sessions import ServiceError
from agentgym_envs.wire import dumps

#: Seconds after which a batch that still has entries waiting gets more threads: twice as many each time.
GROW_S = 0.005

PENDING = dumps(ServiceError(202, "pending", "still at work; send this entry again, with the same numbers, to get its answer").body())


async def run_batch(jobs: Sequence[Callable[[], bytes]], wait_s: float | None, limiter: anyio.CapacityLimiter) -> list[bytes]:
    """Answers of ``jobs`` in their order. A job must not raise.

    Steps of microseconds share one hop into a thread; a slow one delays the others by ``GROW_S`` at most. After ``wait_s`` seconds
    (``None``: never) what is not finished is answered ``pending``: running jobs run on, waiting ones are not begun.
    """
    waiting = deque(enumerate(jobs))
    answers: list[bytes | None] = [None] * len(jobs)

    def work() -> None:
        while waiting:
            try:
                i, job = waiting.popleft()
            except IndexError:  # another thread took the last one
                return
            answers[i] = job()

    def hire(n: int) -> set[asyncio.Task[None]]:
        return {asyncio.create_task(anyio.to_thread.run_sync(work, limiter=limiter, abandon_on_cancel=True)) for _ in range(n)}

    loop = asyncio.get_running_loop()
    deadline = None if wait_s is None else loop.time() + wait_s
    threads = hire(1) if jobs else set()
    size = 1
    while threads:
        left = None if deadline is None else max(deadline - loop.time(), 0.0)
        pause = GROW_S if waiting else left
        done, threads = await asyncio.wait(threads, timeout=pause if left is None or pause is None else min(pause, left))
        for task in done:
            task.result()
        if deadline is not None and loop.time() >= deadline:
            break
        if waiting:
            threads |= hire(min(size, len(waiting)))
            size *= 2
    waiting.clear()
    return [PENDING if answer is None else answer for answer in answers]
