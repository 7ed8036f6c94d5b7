"""Sessions on environment servers: one background thread, calls that wait together sent in one request, safe repeats.

A step carries its turn number and a session its own id, so that a request whose reply was lost can be sent again: the server gives
the first answer and never steps twice.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import threading
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import httpx

from agentgym_envs.core import Observation, StepResult, UnknownItem
from agentgym_envs.wire import observation_from_wire, step_from_wire
from agentgym_lite.client.errors import EnvironmentFailure

#: Most entries, and most characters, in one request.
BATCH_ENTRIES, BATCH_CHARS = 256, 500_000
#: Seconds that a batch waits for its slowest entries, so that they do not hold up the others, and pause before they are asked for again.
BATCH_WAIT_S, POLL_S = 0.05, 0.02
#: Requests for one session each that run at once: httpx's connection pool slows down with the square of their number.
SINGLE_REQUESTS = 8
#: Pause before the first repeat, doubled each time; how long new sessions avoid a server that did not answer or was full.
BACKOFF_S, AVOID_S = 0.1, 5.0
CONNECT_TIMEOUT_S = 5.0
SHUTDOWN_S = 5.0
NOT_A_SERVER = "check that the url is that of an environment server"

_PLURAL = {"create": "creates", "reset": "resets", "step": "steps", "close": "closes"}
_Decode = Callable[[dict[str, Any]], Any]
_LOOPBACK = ("all://127.0.0.1", "all://localhost", "all://[::1]")


@dataclass(eq=False)
class Server:
    """One address: what waits to be sent to it and how many sessions it holds for this pool.

    There is a queue for each kind of call, and a second one for those that were sent and are not finished yet.
    """

    url: str
    queues: defaultdict[tuple[str, bool], deque[_Call]] = field(default_factory=lambda: defaultdict(deque))
    pumping: set[tuple[str, bool]] = field(default_factory=set)
    sessions: int = 0
    avoid_until: float = 0.0


@dataclass(eq=False)
class HttpSession:
    """Handle of one episode on a server. ``turn`` is the number of the next step."""

    item_id: str | int
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    server: Server | None = None
    turn: int = 0
    closed: bool = False


@dataclass(eq=False)
class _Call:
    kind: str
    params: dict[str, Any]
    body: str  # params as JSON, encoded once
    decode: _Decode
    session: HttpSession | None
    future: Future[Any] = field(default_factory=Future)
    server: Server | None = None
    attempts: int = 0
    deadline: float = 0.0


class _Problem(Exception):
    def __init__(self, code: str, message: str, *, retry: bool = False, remedy: str = "start the episode again on a new session") -> None:
        super().__init__(message)
        self.code, self.message, self.retry, self.remedy = code, message, retry, remedy


class HttpBackend:
    """What a :class:`~agentgym_lite.client.SessionPool` does when its url is one or several addresses."""

    def __init__(self, env: str, urls: Sequence[str], *, token: str | None, timeout: float, retries: int) -> None:
        for url in urls:
            if not url.startswith(("http://", "https://")):
                raise ValueError(f"expected 'local' or an address such as http://127.0.0.1:36001, found {url!r:.80}")
        self._env, self._timeout, self._retries = env, timeout, retries
        self._servers = [Server(url.rstrip("/")) for url in urls]
        token = token or os.environ.get("AGENTGYM_TOKEN")
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._inbox: deque[_Call] = deque()
        self._calls: set[_Call] = set()  # not answered yet
        self._sessions: set[HttpSession] = set()  # open on a server
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself holds tasks only weakly
        self._lock = threading.Lock()
        self._stopped = False
        # A proxy set for the outside world must not get requests for this machine.
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(self._timeout, connect=min(CONNECT_TIMEOUT_S, self._timeout), pool=None),
            headers=headers,
            mounts=dict.fromkeys(_LOOPBACK),
        )
        self._singles = asyncio.Semaphore(SINGLE_REQUESTS)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"agentgym-client-{env}", daemon=True)
        self._thread.start()

    # -- calls, from the caller's thread -------------------------------------------------------------------------------------------

    def start(self, item_id: str | int, seed: int) -> Future[tuple[HttpSession, Observation]]:
        session = HttpSession(item_id)
        params = {"id": session.id, "item_id": item_id, "seed": seed}
        return self._submit("create", params, lambda d: (session, observation_from_wire(d)), session)

    def reset(self, session: HttpSession, item_id: str | int, seed: int) -> Future[Observation]:
        def decode(answer: dict[str, Any]) -> Observation:
            session.turn, session.item_id = 0, item_id  # only now: an unknown item leaves the old episode running
            return observation_from_wire(answer)

        return self._submit("reset", {"id": session.id, "item_id": item_id, "seed": seed}, decode, session)

    def step(self, session: HttpSession, action: str) -> Future[StepResult]:
        params = {"id": session.id, "action": action, "turn": session.turn}
        session.turn += 1
        return self._submit("step", params, step_from_wire, session)

    def observe(self, session: HttpSession) -> Future[Observation]:
        return self._submit("observation", {"id": session.id}, observation_from_wire, session)

    def available_actions(self, session: HttpSession) -> Future[list[str]]:
        return self._submit("available_actions", {"id": session.id}, lambda d: list(d["actions"]), session)

    def render(self, session: HttpSession) -> Future[dict[str, Any]]:
        return self._submit("render", {"id": session.id}, lambda d: dict(d["render"]), session)

    def metadata(self) -> Future[dict[str, Any]]:
        return self._submit("metadata", {}, dict, None)

    def close(self, session: HttpSession) -> Future[None]:
        if session.closed or self._stopped:
            done: Future[None] = Future()
            done.set_result(None)
            return done
        return self._submit("close", {"id": session.id}, lambda _: None, session)

    def shutdown(self) -> None:
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
        asyncio.run_coroutine_threadsafe(self._shutdown(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _submit(self, kind: str, params: dict[str, Any], decode: _Decode, session: HttpSession | None) -> Future[Any]:
        call = _Call(kind, params, json.dumps(params), decode, session, server=session.server if session else None)
        call.future.set_running_or_notify_cancel()  # a request on its way cannot be taken back
        with self._lock:
            if self._stopped or (session is not None and session.closed):
                what = "the pool is shut down" if self._stopped else "the session is closed"
                call.future.set_exception(self._failure(call, _Problem("closed", what)))
                return call.future
            wake = not self._inbox
            self._inbox.append(call)
            if wake:  # one wake-up serves all calls that are queued before the loop gets to run
                self._loop.call_soon_threadsafe(self._drain)
        return call.future

    # -- everything below runs on the loop's thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def _drain(self) -> None:
        with self._lock:
            calls, self._inbox = self._inbox, deque()
        self._calls.update(calls)
        for call in calls:
            call.deadline = self._loop.time() + self._timeout
            self._route(call)

    def _route(self, call: _Call) -> None:
        if call.future.done():  # failed by a shutdown while it waited for its next attempt
            return
        if call.server is None:
            call.server = min(self._servers, key=self._load)
            if call.kind == "create" and call.session is not None:
                call.session.server = call.server
                call.server.sessions += 1
                self._sessions.add(call.session)
        if call.kind in _PLURAL:
            self._enqueue(call.server, call, again=False)
        else:
            self._spawn(self._send_alone(call.server, call))

    def _enqueue(self, server: Server, call: _Call, again: bool) -> None:
        lane = (call.kind, again)
        server.queues[lane].append(call)
        if lane not in server.pumping:
            server.pumping.add(lane)
            self._spawn(self._pump(server, lane))

    def _load(self, server: Server) -> tuple[bool, int]:
        return (server.avoid_until > self._loop.time(), server.sessions)

    async def _pump(self, server: Server, lane: tuple[str, bool]) -> None:
        """Send what is queued, one request at a time: what arrives meanwhile makes up the next one."""
        queue, (kind, again) = server.queues[lane], lane
        try:
            while queue:
                if again:
                    await asyncio.sleep(POLL_S)
                calls = [queue.popleft()]
                chars = len(calls[0].body)
                while queue and len(calls) < BATCH_ENTRIES and (chars := chars + len(queue[0].body)) < BATCH_CHARS:
                    calls.append(queue.popleft())
                await self._send_batch(server, kind, calls)
        finally:
            server.pumping.discard(lane)

    async def _send_batch(self, server: Server, kind: str, calls: list[_Call]) -> None:
        body = f'{{"{_PLURAL[kind]}":[{",".join(c.body for c in calls)}],"wait_s":{BATCH_WAIT_S}}}'
        try:
            results = (await self._request(server, kind, body=body)).get("results")
            if not isinstance(results, list) or len(results) != len(calls) or not all(isinstance(r, dict) for r in results):
                raise _Problem("bad_reply", f"expected {len(calls)} results, found {results!r:.80}", remedy=NOT_A_SERVER)
        except _Problem as problem:
            for call in calls:
                self._failed(call, problem)
            return
        for call, result in zip(calls, results, strict=True):
            if "error" in result:
                self._failed(call, _problem(result.get("status"), result))
            else:
                self._succeeded(call, result)

    async def _send_alone(self, server: Server, call: _Call) -> None:
        try:
            async with self._singles:
                answer = await self._request(server, call.kind, params=call.params)
        except _Problem as problem:
            self._failed(call, problem)
        else:
            self._succeeded(call, answer)

    async def _request(self, server: Server, endpoint: str, *, body: str | None = None, params: Any = None) -> dict[str, Any]:
        """POST if there is a body, else GET. Raises ``_Problem`` for everything but an answer."""
        url = f"{server.url}/{self._env}/{endpoint}"
        start = f"start one with `agl serve {self._env}` or correct the url"
        try:
            response = await self._client.request("GET" if body is None else "POST", url, content=body, params=params)
        except (httpx.ConnectError, httpx.ConnectTimeout) as e:
            raise _Problem("unreachable", f"no server answers ({e!s:.200})", retry=True, remedy=start) from None
        except httpx.TimeoutException:
            raise self._timed_out() from None
        except (httpx.RequestError, httpx.InvalidURL) as e:
            what = f"the connection broke ({type(e).__name__}: {e!s:.200})"
            raise _Problem("broken", what, retry=True, remedy=f"check that the server is alive, or {start}") from None
        try:
            answer = json.loads(response.content)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            what = f"expected a JSON object, found {response.text!r:.80} (status {response.status_code})"
            raise _Problem("bad_reply", what, retry=response.status_code >= 500, remedy=NOT_A_SERVER)
        if response.status_code >= 400:
            raise _problem(response.status_code, answer)
        return answer

    def _succeeded(self, call: _Call, answer: dict[str, Any]) -> None:
        try:
            value = call.decode(answer)
        except (KeyError, TypeError, ValueError) as e:
            found = f"an answer that this client cannot read ({type(e).__name__}: {e})"
            self._failed(call, _Problem("bad_reply", found, remedy="use the same version of agentgym-envs on server and client"))
            return
        if call.kind == "close":
            self._forget(call.session)
        self._finish(call)
        call.future.set_result(value)

    def _failed(self, call: _Call, problem: _Problem) -> None:
        if call.future.done():
            return
        unfinished = problem.code in ("pending", "session_busy") and call.kind in _PLURAL
        if unfinished and call.server is not None and self._loop.time() < call.deadline:
            self._enqueue(call.server, call, again=True)
        elif problem.retry and call.attempts < self._retries and not unfinished and not _is_gone(call, problem):
            self._retry(call, problem)
        elif call.kind == "close":
            self._forget(call.session)
            self._finish(call)
            call.future.set_result(None)
        else:
            self._finish(call)
            lost = call.kind == "create" or problem.code in ("unknown_session", "environment_failed")
            if lost:
                self._forget(call.session)
            if call.kind == "create" and (problem.retry or unfinished) and call.server is not None:  # it may have been made all the same
                self._close_now(call.params["id"], None, call.server)
            if problem.code == "unknown_item":
                call.future.set_exception(UnknownItem(problem.message))
            else:
                call.future.set_exception(self._failure(call, self._timed_out() if unfinished else problem))

    def _retry(self, call: _Call, problem: _Problem) -> None:
        pause = BACKOFF_S * 2**call.attempts * random.uniform(0.75, 1.25)  # spread, so that a server is not hit by all at once
        call.attempts += 1
        if problem.code in ("unreachable", "capacity") and call.server is not None:
            call.server.avoid_until = self._loop.time() + AVOID_S
            if call.kind == "create":  # nothing was made there: try the next server
                self._forget(call.session, closed=False)
                call.server = None
        self._loop.call_later(pause, self._route, call)

    def _finish(self, call: _Call) -> None:
        self._calls.discard(call)

    def _forget(self, session: HttpSession | None, closed: bool = True) -> None:
        if session in self._sessions and session is not None and session.server is not None:
            self._sessions.remove(session)
            session.server.sessions -= 1
            session.closed = closed

    def _close_now(self, session_id: str, session: HttpSession | None, server: Server) -> None:
        call = _Call("close", {}, json.dumps({"id": session_id}), lambda _: None, session, server=server)
        call.deadline = self._loop.time() + self._timeout
        self._calls.add(call)
        self._route(call)

    def _timed_out(self) -> _Problem:
        what = f"no answer within {self._timeout:g} s"
        return _Problem("timeout", what, retry=True, remedy="raise timeout, or look at the server's log")

    def _failure(self, call: _Call, problem: _Problem) -> EnvironmentFailure:
        server = call.server or (call.session.server if call.session else None)
        url = server.url if server else ", ".join(s.url for s in self._servers)
        tried = f" ({call.attempts + 1} attempts)" if call.attempts else ""
        item = call.session.item_id if call.session else None
        return EnvironmentFailure(problem.message + tried, env=self._env, url=url, item_id=item, remedy=problem.remedy)

    def _spawn(self, coroutine: Any) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _shutdown(self) -> None:
        self._drain()
        for call in list(self._calls):
            if call.kind != "close":
                self._finish(call)
                call.future.set_exception(self._failure(call, _Problem("closed", "the pool was shut down before the answer came")))
        for session in list(self._sessions):
            assert session.server is not None  # it is open
            self._close_now(session.id, session, session.server)
        deadline = self._loop.time() + SHUTDOWN_S
        while self._calls and self._loop.time() < deadline:
            await asyncio.sleep(0.005)
        for call in list(self._calls):
            call.future.set_result(None)
        self._calls.clear()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.aclose()


def _is_gone(call: _Call, problem: _Problem) -> bool:
    """Whether the session to be closed has gone with its server."""
    return call.kind == "close" and problem.code == "unreachable"


def _problem(status: Any, body: dict[str, Any]) -> _Problem:
    code, message = str(body.get("error", "bad_reply")), str(body.get("message", body))[:1000]
    if code == "unauthorized":
        return _Problem(code, message, remedy="pass token=... or set AGENTGYM_TOKEN to the token that the server was started with")
    return _Problem(code, message, retry=isinstance(status, int) and status >= 500 and code != "environment_failed")
