"""The web application: every environment under ``/{env}/``, single and batched calls, errors that say what to do; and the facades."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

import anyio
from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

import agentgym_envs
from agentgym_envs.batch import run_batch
from agentgym_envs.facades import add_facades
from agentgym_envs.facades.service import json_body, lookup
from agentgym_envs.guard import Guard, error_response
from agentgym_envs.sessions import ServiceError, SessionManager
from agentgym_envs.wire import dumps

MAX_BODY_BYTES = 4 * 1024 * 1024
#: Most entries of a batch, and most seconds that it may be told to wait.
MAX_ENTRIES, MAX_WAIT_S = 4096, 86_400
#: Threads per environment: one environment that hangs cannot take those of another.
THREADS = 128

#: Environment names, or names with the options of their constructors.
Envs = Iterable[str] | Mapping[str, Mapping[str, Any]]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


SessionId = Annotated[str, Field(min_length=1, max_length=128)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


class CreateEntry(_Entry):
    """A new session; with ``item_id``, its first episode too. An ``id`` chosen by the caller makes the request safe to repeat."""

    id: SessionId | None = None
    item_id: str | int | None = None
    seed: Seed = 0


class ResetEntry(_Entry):
    """A new episode in an open session."""

    id: SessionId
    item_id: str | int
    seed: Seed = 0


class StepEntry(_Entry):
    """One action; ``turn`` counts from 0 after each reset and makes the request safe to repeat."""

    id: SessionId
    action: str
    turn: Annotated[int, Field(ge=0)] | None = None


class CloseEntry(_Entry):
    """The end of a session."""

    id: SessionId


class _Service:
    """Carries out requests for one environment in its own threads."""

    def __init__(self, manager: SessionManager) -> None:
        self.manager = manager
        self.limiter = anyio.CapacityLimiter(THREADS)
        self._calls: dict[str, tuple[type[_Entry], Callable[[Any], dict[str, Any]]]] = {
            "create": (CreateEntry, lambda e: manager.create(e.id, e.item_id, e.seed)),
            "reset": (ResetEntry, lambda e: manager.reset(e.id, e.item_id, e.seed)),
            "step": (StepEntry, lambda e: manager.step(e.id, e.action, e.turn)),
            "close": (CloseEntry, lambda e: manager.close(e.id)),
        }

    async def post(self, endpoint: str, body: dict[str, Any]) -> Response:
        """A single call, or the batch ``{endpoint + "s": [...], "wait_s": seconds}``."""
        plural = endpoint + "s"
        if plural not in body:
            return await self.answer(lambda: self._entry(endpoint, body))
        entries, wait_s = body[plural], body.get("wait_s")
        timed = wait_s is None or (isinstance(wait_s, int | float) and not isinstance(wait_s, bool) and 0 <= wait_s <= MAX_WAIT_S)
        if not isinstance(entries, list) or not timed or body.keys() - {plural, "wait_s"}:
            expected = f'{{"{plural}": [...]}} with an optional "wait_s" (seconds, at most {MAX_WAIT_S})'
            raise ServiceError(422, "invalid_request", f"expected the body {expected}, found the fields {sorted(body)!r:.200}")
        if len(entries) > MAX_ENTRIES:
            raise ServiceError(413, "batch_too_large", f"expected at most {MAX_ENTRIES} entries, found {len(entries)}; send fewer at once")
        jobs = [self._job(endpoint, entry) for entry in entries]
        results = await run_batch(jobs, wait_s, self.limiter)
        return _json(200, b'{"results":[' + b",".join(results) + b"]}")

    async def answer(self, call: Callable[[], dict[str, Any]]) -> Response:
        """Run one call in a thread and encode its answer there."""
        content = await anyio.to_thread.run_sync(lambda: self._encode(call()), limiter=self.limiter, abandon_on_cancel=True)
        return _json(200, content)

    def _entry(self, endpoint: str, data: Any) -> dict[str, Any]:
        model, call = self._calls[endpoint]
        try:
            entry = model.model_validate(data)
        except ValidationError as e:
            raise ServiceError(422, "invalid_request", f"{_explain(e.errors())}; the fields of {endpoint} are {_fields(model)}") from None
        return call(entry)

    def _job(self, endpoint: str, data: Any) -> Callable[[], bytes]:
        def job() -> bytes:
            try:
                return self._encode(self._entry(endpoint, data))
            except ServiceError as e:
                return dumps(e.body())

        return job

    def _encode(self, answer: dict[str, Any]) -> bytes:
        try:
            return dumps(answer)
        except (TypeError, ValueError, RecursionError) as e:
            raise self.manager.discard(answer.get("id", ""), e) from e


def create_app(
    envs: Envs,
    *,
    token: str | None = None,
    max_sessions: int = 1024,
    ttl_s: float = 1800.0,
    max_body_bytes: int = MAX_BODY_BYTES,
) -> FastAPI:
    """The ASGI application that serves ``envs``; limits hold per environment.

    Raises ``UnknownEnvironment`` for a name that is not registered and ``ImportError`` if an environment's packages are missing.
    """
    options = dict(envs) if isinstance(envs, Mapping) else {name: {} for name in envs}
    services = {
        name: _Service(SessionManager(name, options=opts, max_sessions=max_sessions, ttl_s=ttl_s)) for name, opts in options.items()
    }
    app = FastAPI(title="agentgym-envs", version=agentgym_envs.__version__, lifespan=lambda _: _lifespan(services, ttl_s))
    app.state.managers = {name: service.manager for name, service in services.items()}
    app.add_middleware(Guard, token=token, max_body_bytes=max_body_bytes)
    _add_errors(app)
    _add_routes(app, services)
    add_facades(app, services)
    return app


@contextlib.asynccontextmanager
async def _lifespan(services: Mapping[str, _Service], ttl_s: float) -> AsyncIterator[None]:
    async def reap() -> None:
        while True:
            await asyncio.sleep(min(max(ttl_s / 4, 0.05), 30.0))
            for service in services.values():
                await anyio.to_thread.run_sync(service.manager.reap, limiter=service.limiter, abandon_on_cancel=True)

    task = asyncio.create_task(reap())
    try:
        yield
    finally:
        task.cancel()
        for service in services.values():
            service.manager.close_all()


def _add_routes(app: FastAPI, services: Mapping[str, _Service]) -> None:
    @app.get("/")
    @app.get("/health")
    async def health() -> Response:
        """The environments that are served here."""
        counts = {name: len(service.manager) for name, service in services.items()}
        return _json(200, dumps({"status": "ok", "version": agentgym_envs.__version__, "envs": list(services), "sessions": counts}))

    def add_post(endpoint: str, summary: str) -> None:
        async def post(env: str, request: Request) -> Response:
            return await lookup(services, env).post(endpoint, await json_body(request, empty_ok=endpoint == "create"))

        app.post(f"/{{env}}/{endpoint}", summary=summary, name=endpoint)(post)

    add_post("create", "{id?, item_id?, seed?} opens a session; with item_id it also starts an episode. Batch: {creates: [...]}")
    add_post("reset", "{id, item_id, seed?} starts an episode. Batch: {resets: [...]}")
    add_post("step", "{id, action, turn?} carries out an action. Batch: {steps: [...], wait_s?}")
    add_post("close", "{id} ends a session. Batch: {closes: [...]}")

    def add_get(endpoint: str, call: Callable[[SessionManager, str], dict[str, Any]], summary: str) -> None:
        async def get(env: str, session_id: Annotated[str, Query(alias="id", min_length=1, max_length=128)]) -> Response:
            service = lookup(services, env)
            return await service.answer(lambda: call(service.manager, session_id))

        app.get(f"/{{env}}/{endpoint}", summary=summary, name=endpoint)(get)

    add_get("observation", SessionManager.observation, "The latest observation and the number of the next turn")
    add_get("available_actions", SessionManager.available_actions, "Actions that would be accepted now")
    add_get("render", SessionManager.render, "Picture of the full state, for viewers and experts")

    @app.get("/{env}/health")
    async def env_health(env: str) -> Response:
        """Open sessions, limits and counts."""
        return _json(200, dumps(lookup(services, env).manager.health()))

    @app.get("/{env}/metadata")
    async def metadata(env: str) -> Response:
        """Name, version, instructions, items and tasks of each split."""
        service = lookup(services, env)
        return await service.answer(service.manager.metadata)


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(ServiceError)
    async def service_error(_: Request, e: ServiceError) -> Response:
        return error_response(e)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, e: RequestValidationError) -> Response:
        return error_response(ServiceError(422, "invalid_request", _explain(e.errors())))

    @app.exception_handler(HTTPException)
    async def http(request: Request, e: HTTPException) -> Response:
        code = {404: "not_found", 405: "method_not_allowed"}.get(e.status_code, "http_error")
        message = f"expected an endpoint of this server, found {request.method} {request.url.path!r:.120}; GET /docs lists them"
        return error_response(ServiceError(e.status_code, code, message))

    @app.exception_handler(Exception)
    async def internal(_: Request, e: Exception) -> Response:
        message = f"the server failed with {type(e).__name__}: {e!s:.200}; this is a fault of the server: see its log"
        return error_response(ServiceError(500, "internal_error", message))


def _json(status: int, content: bytes) -> Response:
    return Response(content, status, media_type="application/json")


def _explain(errors: Sequence[Any]) -> str:
    return "; ".join(f"{'.'.join(map(str, e['loc'])) or 'body'}: {e['msg']}, found {e['input']!r:.80}" for e in errors[:5])


def _fields(model: type[BaseModel]) -> str:
    return ", ".join(name if field.is_required() else f"{name}?" for name, field in model.model_fields.items())
