"""AgentGym's HTTP dialects: its client classes work unchanged with ``http://host:port/agentgym/{env}`` as their server address.

AgentGym has one server per environment, and each spells requests, answers and errors in its own way; :data:`DIALECTS` lists how. An
environment that is not in the table speaks :class:`Dialect`'s defaults. Values follow this package: a success pays its reward once,
item numbers are those of the environment's ids.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import Response

from agentgym_envs.core import UnknownItem
from agentgym_envs.facades.replies import marked_action
from agentgym_envs.facades.service import Service, encode, in_thread, json_body, lookup
from agentgym_envs.guard import error_response
from agentgym_envs.sessions import ServiceError, SessionManager
from agentgym_envs.wire import dumps

PREFIX = "/agentgym"

#: A native answer: what a ``SessionManager`` returns.
Answer = Mapping[str, Any]


@dataclass(frozen=True)
class Seen:
    """What an answer is written from: number of the session, first answer of the episode, latest one before this call, and this one's."""

    number: int
    first: Answer
    before: Answer
    now: Answer
    #: After create and reset: the item, and its sub-task if the environment's class knows it.
    item: int | str | None = None
    task: str = ""

    @property
    def text(self) -> str:
        return str(self.now["observation"])

    @property
    def score(self) -> float:
        return _score(self.now)


def _score(answer: Answer) -> float:
    score: float = answer.get("info", {}).get("score", 0)
    return score


def _started(s: Seen) -> Any:
    return {"id": s.number, "observation": s.text, "done": False, "reward": 0}


def _stepped(s: Seen) -> Any:
    return {"observation": s.text, "reward": s.now["reward"], "done": s.now["done"]}


def _stepped_score(s: Seen) -> Any:
    return {"observation": s.text, "reward": s.score - _score(s.before), "score": s.score, "done": s.now["done"]}


def _detail(s: Seen) -> Any:
    latest = {"observation": s.text, "reward": s.now.get("reward", 0), "score": s.score, "done": s.now.get("done", False)}
    return latest | {"deleted": False}


def _babyai_text(now: Answer) -> str:
    listed = ", ".join(json.dumps(action) for action in now["actions"])
    return f"{now['observation']}\nAvailable actions: [{listed}]"


def _babyai_started(s: Seen) -> Any:
    return {"observation": _babyai_text(s.now), "reward": 0, "score": 0, "deleted": False, "done": False}


def _babyai_stepped(s: Seen) -> Any:
    return _stepped_score(s) | {"observation": _babyai_text(s.now)}


def _babyai_observed(s: Seen) -> Any:
    text, goal = _babyai_text(s.now), str(s.first["observation"]).partition("\n")[0]
    return _detail(s) | {"observation": text if text.startswith(goal) else f"{goal}\n{text}"}


def _sciworld_started(s: Seen) -> Any:
    from agentgym_envs.sciworld.tasks import locate

    description, _, observation = s.text.partition("\n\n")  # the client puts them together again
    task, variation = locate(int(s.item or 0))
    about = {"task_name": task.name, "var_num": variation, "task_description": description}
    return about | {"observation": observation, "reward": 0, "score": 0, "deleted": False, "done": False}


def _webarena_started(s: Seen) -> Any:
    objective = re.search(r"^OBJECTIVE: (.*)$", s.text, re.MULTILINE)
    return {"observation": s.text, "sites": [s.task] if s.task else [], "object": objective[1] if objective else ""}


def _webarena_stepped(s: Seen) -> Any:
    return {
        "observation": s.text,
        "reward": s.now["reward"],
        "terminated": s.now["done"],
        "truncated": False,
        "info": s.now["info"],
    }


def _told(_: str, error: ServiceError) -> tuple[int, Any]:
    return 200, {"error": error.message}


def _raised(_: str, error: ServiceError) -> tuple[int, Any]:
    return 500, error.body()


def _webarena_failed(endpoint: str, error: ServiceError) -> tuple[int, Any]:
    if endpoint == "step":
        return 200, {"observation": error.message, "reward": 0, "terminated": False, "truncated": False, "info": {}}
    if endpoint == "reset":
        return 200, {"observation": "TimeoutError", "sites": "Error", "object": "Error"}
    return 500, error.body()


Write = Callable[[Seen], Any]


@dataclass(frozen=True)
class Dialect:
    """How the AgentGym server of one environment spells requests and answers."""

    #: Fields of requests that hold the session's number and the item's.
    handle: str = "id"
    item: str = "data_idx"
    #: Which episode ``create`` starts: that of an item named in the body, one for each session in turn, or none.
    create_item: str | None = None
    create_next: bool = False
    created: Write = lambda s: {"id": s.number}
    started: Write = _started
    stepped: Write = _stepped
    observed: Write = lambda s: s.text
    closed: Any = True
    #: Status and body for an error of a well-formed request.
    failed: Callable[[str, ServiceError], tuple[int, Any]] = _told
    #: Whether a step after the end of an episode is an error.
    final: bool = False
    #: Whether ``step`` gets the whole reply of the model.
    whole_replies: bool = False
    #: Other endpoints: ``GET ?id=`` of these, answered from the session by name.
    extras: tuple[str, ...] = field(default=())


DIALECTS: Mapping[str, Dialect] = {
    "babyai": Dialect(started=_babyai_started, stepped=_babyai_stepped, observed=_babyai_observed, final=True, extras=("render",)),
    "textcraft": Dialect(create_next=True, created=_started, extras=("detail",)),
    "sciworld": Dialect(started=_sciworld_started, stepped=_stepped_score, final=True, extras=("detail", "task_description")),
    "searchqa": Dialect(
        handle="env_idx",
        item="id",
        create_item="id",
        created=lambda s: s.number,
        started=lambda s: s.text,
        stepped=lambda s: _stepped(s) | {"info": None},
        failed=_raised,
        whole_replies=True,
    ),
    "webarena": Dialect(
        handle="env_idx",
        item="idx",
        created=lambda s: {"env_idx": s.number},
        started=_webarena_started,
        stepped=_webarena_stepped,
        closed={"closed": "closed"},
        failed=_webarena_failed,
        whole_replies=True,
    ),
}


class Facade:
    """One environment in its dialect. Sessions are numbered from 0 and live in the environment's ``SessionManager``."""

    def __init__(self, manager: SessionManager) -> None:
        self.dialect = DIALECTS.get(manager.name, Dialect())
        self._manager = manager
        self._numbers: Iterator[int] = itertools.count()

    def call(self, endpoint: str, body: Mapping[str, Any]) -> bytes:
        """JSON answer to one request. Raises ``ServiceError``."""
        n, answer = self._create(body) if endpoint == "create" else self._on_session(endpoint, body)
        return encode(self._manager, _session(n), answer)

    def _create(self, body: Mapping[str, Any]) -> tuple[int, Any]:
        if body.get("commands") is not None or body.get("goal") is not None:
            message = "expected no 'commands' and no 'goal': this server plays the items of its environment, by number; leave them out"
            raise ServiceError(422, "invalid_request", message)
        n = next(self._numbers)
        item: int | str | None = None
        if self.dialect.create_item is not None:
            item = _whole(body, self.dialect.create_item)
        elif self.dialect.create_next:
            items = [i for split in self._manager.metadata()["items"].values() for i in split]
            item = items[n % len(items)]
        opening = self._manager.create(_session(n), item)
        return n, self.dialect.created(Seen(n, opening, {}, opening, item))

    def _on_session(self, endpoint: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        manager, dialect = self._manager, self.dialect
        n = _whole(body, dialect.handle)
        session = _session(n)
        if endpoint == "step" and not isinstance(body.get("action"), str):
            raise ServiceError(422, "invalid_request", f"expected a text in 'action', found {body.get('action')!r:.80}")
        if endpoint == "reset":
            item = _whole(body, dialect.item, default=0 if dialect.create_next else None)
            opening = manager.reset(session, item, _whole(body, "seed", default=0))
            return n, dialect.started(Seen(n, opening, {}, opening, item, self._task(item)))
        if endpoint == "close":
            manager.close(session)
            return n, dialect.closed
        if endpoint == "render":
            svg = manager.render(session)["render"].get("svg", "")
            return n, f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
        first, before = manager.episode(session)
        if endpoint == "step":
            return n, self._step(n, body, first, before)
        seen = Seen(n, first, before, before or first)
        if endpoint == "detail":
            return n, _detail(seen)
        if endpoint == "task_description":
            return n, {"task_description": str(first["observation"]).partition("\n\n")[0]}
        return n, dialect.observed(seen)

    def _task(self, item: int) -> str:
        try:
            return self._manager.environment.task_of(item)
        except UnknownItem:  # an item set of the server's own
            return ""

    def _step(self, n: int, body: Mapping[str, Any], first: Answer, before: Answer) -> Any:
        action: str = body["action"]
        if self.dialect.final and before.get("done"):
            raise ServiceError(409, "finished", f"the episode of session {n} has finished; call reset first")
        if self.dialect.whole_replies:
            action = marked_action(self._manager.name, action) or action
        return self.dialect.stepped(Seen(n, first, before, self._manager.step(_session(n), action)))


def add_routes(app: FastAPI, services: Mapping[str, Service]) -> None:
    """Serve every environment under ``/agentgym/{env}``."""
    facades = {name: Facade(service.manager) for name, service in services.items()}

    async def answer(env: str, endpoint: str, body: Mapping[str, Any]) -> Response:
        service = lookup(services, env)
        try:
            return _json(200, await in_thread(service, lambda: facades[env].call(endpoint, body)))
        except ServiceError as e:
            # A client takes any answer to create with status 200 for a session, and 422 is what AgentGym's own servers say to bad fields.
            if endpoint == "create" or e.status == 422:
                return error_response(e)
            status, content = facades[env].dialect.failed(endpoint, e)
            return _json(status, dumps(content))

    @app.get(f"{PREFIX}/{{env}}/", name="agentgym banner")
    @app.get(f"{PREFIX}/{{env}}", include_in_schema=False)
    async def banner(env: str) -> Response:
        """A line that says which environment this is."""
        lookup(services, env)
        return _json(200, dumps(f"This is environment {env}."))

    @app.post(f"{PREFIX}/{{env}}/{{endpoint}}", name="agentgym call")
    async def post(env: str, endpoint: str, request: Request) -> Response:
        """create, reset, step and close as AgentGym's server of that environment spells them."""
        extras = {"render"} & set(facades[env].dialect.extras) if env in facades else set()
        _known(endpoint, {"create", "reset", "step", "close"} | extras)
        return await answer(env, endpoint, await json_body(request, empty_ok=True))

    @app.get(f"{PREFIX}/{{env}}/{{endpoint}}", name="agentgym query")
    async def get(env: str, endpoint: str, request: Request) -> Response:
        """The latest observation, and what else AgentGym's server of that environment tells."""
        extras = set(facades[env].dialect.extras) - {"render"} if env in facades else set()
        _known(endpoint, {"observation"} | extras)
        return await answer(env, endpoint, {k: int(v) if v.isdecimal() and v.isascii() else v for k, v in request.query_params.items()})


def _known(endpoint: str, known: set[str]) -> None:
    if endpoint not in known:
        raise ServiceError(404, "not_found", f"expected one of {', '.join(sorted(known))}, found {endpoint!r:.80}")


def _session(n: int) -> str:
    return f"agentgym-{n}"


def _whole(body: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = body.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ServiceError(422, "invalid_request", f"expected a whole number in '{name}', found {value!r:.80}")
    return value


def _json(status: int, content: bytes) -> Response:
    return Response(content, status, media_type="application/json")
