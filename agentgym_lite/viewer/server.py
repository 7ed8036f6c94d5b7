"""The viewer as a local web page: the component and a small JSON API, on this machine only."""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import uvicorn
from fastapi import Depends, FastAPI, Header, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BaseModel, Field
from starlette.middleware.trustedhost import TrustedHostMiddleware

from agentgym_lite.viewer.component import component
from agentgym_lite.viewer.export import LIMIT_MB, export_html
from agentgym_lite.viewer.live import LiveError, LiveGame
from agentgym_lite.viewer.store import StoreError, TrajectoryStore

#: Names that a browser on this machine may call the server by; any other one is a page elsewhere that points its name here.
_HOSTS = ["127.0.0.1", "localhost"]
_STOP_S = 2


class ViewerError(RuntimeError):
    """The page cannot be served; the message says why and what to do."""


class Chosen(BaseModel):
    """Trajectories to export."""

    ids: list[int] = Field(max_length=100_000)


class Begin(BaseModel):
    """An episode to begin."""

    item: str = Field("", max_length=200)
    seed: int = Field(0, ge=0)


class Act(BaseModel):
    """A human's move."""

    text: str = Field(max_length=20_000)


def create_replay_app(store: TrajectoryStore, limit_mb: float = LIMIT_MB) -> FastAPI:
    """The list and replay of a store's trajectories. The files are read in the background from now on."""
    app, allowed, token = _app()
    title = store.path.resolve().name
    data = {"view": "browse", "title": title, "linked": True, "server": {"base": "", "token": token, "canExport": True}}
    page = component(data).page(f"{title} · trajectories", kind="full", connect="'self'")
    store.scan_in_background()

    @app.get("/", response_class=HTMLResponse)
    def front() -> str:
        return page

    @app.get("/api/index")
    def index(start: Annotated[int, Query(ge=0)] = 0, refresh: bool = False) -> Response:
        return JSONResponse(store.index(start, refresh))  # plain lists: nothing for FastAPI to check row by row

    @app.get("/api/body")
    def body(id: int) -> Response:
        return JSONResponse(store.body(id))

    @app.get("/api/search")
    def search(text: Annotated[str, Query(max_length=500)]) -> Response:
        return JSONResponse({"ids": store.search(text)})

    @app.post("/api/export", response_class=HTMLResponse, dependencies=[allowed])
    def export(chosen: Chosen) -> str:
        return export_html(store, chosen.ids, title=title, limit_mb=limit_mb)

    return app


def create_live_app(game: LiveGame) -> FastAPI:
    """A page to play or watch one episode after the other."""
    app, allowed, token = _app()
    title = f"Play {game.env}"
    page = component({"view": "live", "title": title, "server": {"base": "", "token": token, "live": True}}).page(
        title, kind="full", connect="'self'"
    )

    @app.get("/", response_class=HTMLResponse)
    def front() -> str:
        return page

    @app.post("/api/live/state", dependencies=[allowed])
    def state() -> Response:
        return JSONResponse(game.state())

    @app.post("/api/live/begin", dependencies=[allowed])
    def begin(request: Begin) -> Response:
        return JSONResponse(game.begin(request.item, request.seed))

    @app.post("/api/live/act", dependencies=[allowed])
    def act(request: Act) -> Response:
        return JSONResponse(game.act(request.text))

    @app.post("/api/live/advance", dependencies=[allowed])
    def advance() -> Response:
        return JSONResponse(game.advance())

    return app


def serve_viewer(app: FastAPI, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve ``app`` on this machine until interrupted; ``on_ready`` gets the address. Port 0 takes a free one. Raises ``ViewerError``."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except (OSError, OverflowError) as e:
            raise ViewerError(f"cannot listen on port {port}: {e}; choose another one with --port (0 takes any free one)") from None
        sock.listen()  # early requests wait until the application is up
        config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=_STOP_S)
        on_ready(f"http://127.0.0.1:{sock.getsockname()[1]}")
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[sock])


def _app() -> tuple[FastAPI, Any, str]:
    """An application, the guard of what costs or changes something, and the token that the guard asks for."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=_HOSTS)
    token = secrets.token_urlsafe(16)

    def check(x_agl_token: Annotated[str, Header()] = "") -> None:
        """Only our own page knows the token: another site in the same browser can do nothing."""
        if not secrets.compare_digest(x_agl_token.encode(), token.encode()):
            raise HTTPException(403, "expected the token of this page, found another one; reload the page")

    @app.middleware("http")
    async def headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await call_next(request)
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Cache-Control"] = "no-store"
        return response

    async def explain(_: Request, error: Exception) -> Response:
        return JSONResponse({"detail": str(error)}, status_code=400)

    for kind in (StoreError, LiveError):
        app.add_exception_handler(kind, explain)
    return app, Depends(check), token
