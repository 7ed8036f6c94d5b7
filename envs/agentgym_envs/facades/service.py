"""What a facade needs of a served environment."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import anyio
from fastapi import Request

from agentgym_envs.sessions import ServiceError, SessionManager
from agentgym_envs.wire import dumps

T = TypeVar("T")
S = TypeVar("S")


class Service(Protocol):
    """The sessions of one environment and the threads that its calls run in."""

    @property
    def manager(self) -> SessionManager: ...
    @property
    def limiter(self) -> anyio.CapacityLimiter: ...


async def in_thread(service: Service, call: Callable[[], T]) -> T:
    """Run ``call`` in one of the environment's threads."""
    return await anyio.to_thread.run_sync(call, limiter=service.limiter, abandon_on_cancel=True)


def encode(manager: SessionManager, session_id: str, answer: Any) -> bytes:
    """JSON of an answer. One that JSON cannot hold is the environment's failure and ends the session: ``ServiceError``."""
    try:
        return dumps(answer)
    except (TypeError, ValueError, RecursionError) as e:
        raise manager.discard(session_id, e) from e


def lookup(services: Mapping[str, S], env: str) -> S:
    """The service called ``env``. Raises ``ServiceError`` (404)."""
    if env not in services:
        message = f"expected one of the environments served here ({', '.join(sorted(services))}), found {env!r:.80}"
        raise ServiceError(404, "unknown_environment", f"{message}; start it with `agl serve NAME`")
    return services[env]


async def json_body(request: Request, empty_ok: bool) -> dict[str, Any]:
    """The body as a JSON object; an empty one is ``{}`` if that is ``empty_ok``. Raises ``ServiceError`` (400, 422)."""
    raw = await request.body()
    if not raw and empty_ok:
        return {}
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as e:
        raise ServiceError(400, "malformed_json", f"expected a JSON object as the body, found {raw[:80]!r} ({e!s:.120})") from None
    if not isinstance(data, dict):
        raise ServiceError(422, "invalid_request", f"expected a JSON object as the body, found {type(data).__name__}")
    return data
