"""Starting environment servers: in the foreground, in a background thread, from a shell.

``python -m agentgym_envs.server textcraft babyai --port 36001`` starts one.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import ipaddress
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

import uvicorn
from fastapi import FastAPI

from agentgym_envs.app import MAX_BODY_BYTES, Envs, create_app
from agentgym_envs.core import UnknownEnvironment, names

__all__ = ["DEFAULT_PORT", "TOKEN_VARIABLE", "Envs", "ServeError", "background_server", "create_app", "main", "serve"]

DEFAULT_PORT = 36001
TOKEN_VARIABLE = "AGENTGYM_TOKEN"
#: Seconds that a stopping server gives to requests that are under way.
STOP_S = 3


class ServeError(RuntimeError):
    """The server cannot start as asked; the message says why and what to do."""


def serve(
    envs: Envs,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    token: str | None = None,
    *,
    max_sessions: int = 1024,
    ttl_s: float = 1800.0,
    max_body_bytes: int = MAX_BODY_BYTES,
    on_ready: Callable[[str], None] = lambda url: print(f"environments ready at {url} (Ctrl-C stops)", flush=True),
) -> None:
    """Serve ``envs`` until interrupted; ``on_ready`` is told the address. Port 0 takes any free one.

    Only this machine can reach the server unless ``host`` is another address, which needs a ``token``. Raises ``ServeError``.
    """
    app = _app(envs, token, max_sessions, ttl_s, max_body_bytes)
    with _bind(host, port, token) as sock:
        server = uvicorn.Server(_config(app, max_body_bytes))
        on_ready(_url(sock))  # the socket listens already: early requests wait until the application is up
        with contextlib.suppress(KeyboardInterrupt):
            server.run(sockets=[sock])


@contextlib.contextmanager
def background_server(
    envs: Envs,
    *,
    token: str | None = None,
    port: int = 0,
    max_sessions: int = 1024,
    ttl_s: float = 1800.0,
    max_body_bytes: int = MAX_BODY_BYTES,
) -> Iterator[str]:
    """A server on this machine in a thread of this process, for notebooks and tests; gives its address. Raises ``ServeError``."""
    app = _app(envs, token, max_sessions, ttl_s, max_body_bytes)
    with _bind("127.0.0.1", port, token) as sock:
        server = uvicorn.Server(_config(app, max_body_bytes))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, name="agentgym-server", daemon=True)
        thread.start()
        try:
            yield _url(sock)
        finally:
            server.should_exit = True
            thread.join()


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    args = _parser().parse_args(argv)
    try:
        token = args.token or os.environ.get(TOKEN_VARIABLE)
        serve(args.envs, args.host, args.port, token, max_sessions=args.max_sessions, ttl_s=args.ttl)
    except ServeError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m agentgym_envs.server", description="Serve environments over HTTP.")
    parser.add_argument("envs", nargs="+", metavar="ENV", help=f"environments to serve: {', '.join(names())}")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; any but this machine's own needs a token")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help=f"port, 0 for any free one (default {DEFAULT_PORT})")
    parser.add_argument("--token", help=f"shared token that clients must send (default: the variable {TOKEN_VARIABLE})")
    parser.add_argument("--max-sessions", type=int, default=1024, help="open sessions per environment (default 1024)")
    parser.add_argument("--ttl", type=float, default=1800.0, help="seconds after which an unused session is closed (default 1800)")
    return parser


def _app(envs: Envs, token: str | None, max_sessions: int, ttl_s: float, max_body_bytes: int) -> FastAPI:
    try:
        return create_app(envs, token=token, max_sessions=max_sessions, ttl_s=ttl_s, max_body_bytes=max_body_bytes)
    except UnknownEnvironment as e:
        raise ServeError(str(e)) from None
    except ImportError as e:
        listed = ", ".join(envs) if isinstance(envs, Mapping) else ", ".join(list(envs))
        raise ServeError(
            f"an environment of {listed} needs a package that is not installed ({e}); install it or leave the environment out"
        ) from e


def _bind(host: str, port: int, token: str | None) -> socket.socket:
    if not _is_loopback(host) and not token:
        raise ServeError(
            f"expected a token for the address {host}, which other machines can reach, found none; "
            f"pass --token, set {TOKEN_VARIABLE}, or listen on 127.0.0.1"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches Nagle's algorithm off only on sockets that name their protocol; with it on, every answer takes 40 ms more.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(1024)
    except (OSError, OverflowError) as e:
        sock.close()
        raise ServeError(_bind_message(host, port, e)) from None
    return sock


def _bind_message(host: str, port: int, error: OSError | OverflowError) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use; stop the program that holds it or choose another one with --port (0 takes any free one)"
    return f"cannot listen on {host}, port {port}: {error}; choose another --host or a --port from 1024 to 65535"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _url(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _config(app: FastAPI, max_message_bytes: int) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        # Clients keep connections open between training steps; the default of 5 s would make them reconnect all the time.
        timeout_keep_alive=120,
        timeout_graceful_shutdown=STOP_S,
        ws_max_size=max_message_bytes,
    )


if __name__ == "__main__":
    sys.exit(main())
