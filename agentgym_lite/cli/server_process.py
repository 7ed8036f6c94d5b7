"""An environment server in a process of its own, for as long as a block of code runs.

The child ends when its standard input closes, so that it cannot outlive its parent, however that ends.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import httpx

from agentgym_lite.cli.errors import UserError


class ServerProcess:
    """Context manager: serves ``envs`` on a free loopback port; ``url`` answers while inside the block.

    Raises ``UserError`` with the server's last words if it does not come up within ``patience_s`` seconds.
    """

    def __init__(self, envs: Sequence[str], patience_s: float = 60.0) -> None:
        self._envs = list(envs)
        self._patience_s = patience_s
        self.url = ""

    def __enter__(self) -> Self:
        self._log = tempfile.TemporaryFile()
        # A process session of its own: Ctrl-C reaches the parent only, which then stops the child in order.
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, *self._envs],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + self._patience_s
            self.url = self._read_address(deadline)
            for env in self._envs:
                self._wait_until_healthy(env, deadline)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop()

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._process.pid

    def _read_address(self, deadline: float) -> str:
        stdout = self._process.stdout
        assert stdout is not None
        ready, _, _ = select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))
        line = stdout.readline().decode().strip() if ready else ""
        if not line:
            raise UserError(f"the environment server did not start: {self._last_words()}")
        return line

    def _wait_until_healthy(self, env: str, deadline: float) -> None:
        while True:
            try:
                if httpx.get(f"{self.url}/{env}/health", timeout=5.0, trust_env=False).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise UserError(f"the environment server does not answer for '{env}': {self._last_words()}")
            time.sleep(0.05)

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"no word from it within {self._patience_s:.0f} s"

    def _stop(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()


def _end_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(4.0)
    os._exit(0)  # a request that hangs must not keep the process


def _main() -> None:
    from agentgym_envs.server import serve

    threading.Thread(target=_end_with_stdin, daemon=True).start()
    serve(sys.argv[1:], port=0, on_ready=lambda url: print(url, flush=True))


if __name__ == "__main__":
    _main()
