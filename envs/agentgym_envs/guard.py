"""What every request must pass before it reaches an endpoint: the shared token, the limit on its size, and that no other site sent it."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.responses import Response

from agentgym_envs.sessions import ServiceError
from agentgym_envs.wire import dumps

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: Rest of a refused body that is read and thrown away, as a multiple of the limit, and seconds spent on it: a client that is cut off
#: while it is still sending never gets to see the answer.
DRAIN_FACTOR, DRAIN_S = 16, 5.0
JSON = b"application/json"


def error_response(error: ServiceError) -> Response:
    """The error as JSON with its status."""
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else None
    return Response(dumps(error.body()), error.status, headers, media_type="application/json")


def _foreign_page(headers: dict[bytes, bytes]) -> ServiceError | None:
    """Browsers let any web page send requests to this machine: only pages that came from this server may."""
    origin = headers.get(b"origin")
    if origin is None or origin.partition(b"://")[2] == headers.get(b"host"):
        return None
    return ServiceError(403, "foreign_origin", f"expected no page of another site to connect, found the origin {origin[:80]!r}")


def _not_json(headers: dict[bytes, bytes]) -> ServiceError | None:
    given = headers.get(b"content-type", JSON)
    if given.partition(b";")[0].strip().lower() == JSON:
        return None
    message = f"expected a body of JSON and the header 'Content-Type: application/json', or none, found {given[:80]!r}"
    return ServiceError(415, "unsupported_media_type", message)


class Guard:
    """ASGI middleware. ``token``: required as ``Authorization: Bearer TOKEN``, but for ``/health``; ``None`` lets everybody in."""

    def __init__(self, app: App, *, token: str | None, max_body_bytes: int) -> None:
        self._app, self._limit = app, max_body_bytes
        self._expected = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers, is_http = dict(scope["headers"]), scope["type"] == "http"
        refusal = self._refusal(scope["path"], headers) or _foreign_page(headers) or _not_json(headers)
        if refusal is not None:
            if is_http:
                await self._drain(receive)
            await error_response(refusal)(scope, receive, send)  # a handshake is refused with the same answer
            return
        await self._app(scope, self._counted(receive) if is_http else receive, send)

    def _refusal(self, path: str, headers: dict[bytes, bytes]) -> ServiceError | None:
        given = headers.get(b"authorization", b"")
        if self._expected is not None and path != "/health" and not hmac.compare_digest(given, self._expected):
            found = "another" if given else "none"
            message = f"expected the header 'Authorization: Bearer TOKEN' with this server's token, found {found}"
            return ServiceError(401, "unauthorized", message)
        length = headers.get(b"content-length", b"0")
        return self._too_large(int(length)) if length.isdigit() and int(length) > self._limit else None

    def _too_large(self, size: int) -> ServiceError:
        message = f"expected a body of at most {self._limit} bytes, found {size} or more; send less, or fewer entries at a time"
        return ServiceError(413, "body_too_large", message)

    def _counted(self, receive: Receive) -> Receive:
        """``receive`` that also counts, for bodies that do not say, or lie about, how long they are."""
        size = 0

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self._limit:
                if message.get("more_body"):
                    await self._drain(receive)
                raise self._too_large(size)
            return message

        return counted

    async def _drain(self, receive: Receive) -> None:
        size = 0
        try:
            async with asyncio.timeout(DRAIN_S):
                while size < DRAIN_FACTOR * self._limit:
                    message = await receive()
                    size += len(message.get("body", b""))
                    if not message.get("more_body"):
                        return
        except TimeoutError:
            return
