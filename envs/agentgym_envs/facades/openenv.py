"""OpenEnv's protocol: one WebSocket connection at ``/{env}/ws`` is one session, with ``/schema`` and the Task API beside it.

An action is ``{"text": "..."}``, the action itself or a model's whole reply; an observation is ``{"text": "...", "actions": [...]}``.
``GenericEnvClient(base_url="http://host:port/{env}")`` of the ``openenv`` package plays it. The wire format is OpenEnv 0.10's.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal

import anyio
from fastapi import FastAPI, WebSocket
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from starlette.websockets import WebSocketDisconnect

from agentgym_envs.facades.replies import action_in
from agentgym_envs.facades.service import Service, in_thread, lookup
from agentgym_envs.guard import error_response
from agentgym_envs.sessions import ServiceError, SessionManager
from agentgym_envs.wire import SPLITS, dumps


class Action(BaseModel):
    """What the agent says: an action, or a whole reply that holds one."""

    model_config = ConfigDict(extra="forbid")
    text: str
    metadata: dict[str, Any] = Field(default_factory=dict)


class EnvObservation(BaseModel):
    """What the agent sees."""

    text: str
    actions: list[str] = Field(default_factory=list, description="Actions that would be accepted now, as far as they can be listed")
    done: bool = False
    reward: float | None = Field(None, description="In [0, 1]; null at reset")
    metadata: dict[str, Any] = Field(default_factory=dict, description="success, invalid, score and what else the environment tells")


class State(BaseModel):
    """The running episode."""

    episode_id: str | None = None
    step_count: int = 0
    item_id: str | int | None = None
    seed: int = 0


class ResetData(BaseModel):
    """Which episode to start: an item by id, or by split and index; else one that ``seed`` chooses (none: by chance)."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    episode_id: Annotated[str, Field(max_length=255)] | None = None
    item_id: str | int | None = None
    split: Literal["train", "eval"] = "train"
    index: Annotated[int, Field(ge=0)] | None = None


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Reset(_Message):
    type: Literal["reset"]
    data: ResetData = ResetData()


class _Step(_Message):
    type: Literal["step"]
    data: Action


class _State(_Message):
    type: Literal["state"]


class _Close(_Message):
    type: Literal["close"]


_MESSAGE: TypeAdapter[_Reset | _Step | _State | _Close] = TypeAdapter(
    Annotated[_Reset | _Step | _State | _Close, Field(discriminator="type")]
)


class _Split(BaseModel):
    split: Literal["train", "eval"]


class _Index(_Split):
    index: Annotated[int, Field(ge=0)]


class _Range(_Split):
    start: int | None = None
    stop: int | None = None


class Connection:
    """One client's session. ``reset`` opens another if the last one was lost with a failed environment."""

    def __init__(self, manager: SessionManager) -> None:
        self._manager = manager
        self._session: str = manager.create()["id"]
        self._state = State()

    def handle(self, raw: str) -> bytes | None:
        """The answer to one message; ``None`` if it says goodbye."""
        try:
            message = _MESSAGE.validate_python(json.loads(raw))
        except (ValueError, RecursionError) as e:
            return _bad_message(e)
        try:
            match message:
                case _Close():
                    return None
                case _State():
                    return dumps({"type": "state", "data": self._state.model_dump()})
                case _Reset():
                    return self._reset(message.data)
                case _Step():
                    return self._step(message.data.text)
        except ServiceError as e:
            code = "VALIDATION_ERROR" if e.code in ("unknown_item", "invalid_request") else "EXECUTION_ERROR"
            return _error(code, e.message)

    def _reset(self, wanted: ResetData) -> bytes:
        item, seed = self._item(wanted), wanted.seed or 0
        try:
            opening = self._manager.reset(self._session, item, seed)
        except ServiceError as e:
            if e.code != "unknown_session":
                raise
            self._session = self._manager.create()["id"]
            opening = self._manager.reset(self._session, item, seed)
        self._state = State(episode_id=wanted.episode_id or f"{item}/{seed}", item_id=item, seed=seed)
        return self._observation(opening, None, False, opening["observation_info"])

    def _step(self, text: str) -> bytes:
        answer = self._manager.step(self._session, action_in(self._manager.name, text))
        self._state.step_count += 1
        return self._observation(answer, answer["reward"], answer["done"], answer["info"])

    def _observation(self, answer: Mapping[str, Any], reward: float | None, done: bool, info: Mapping[str, Any]) -> bytes:
        observation = {"text": answer["observation"], "actions": answer["actions"]}
        data = {"observation": observation, "reward": reward, "done": done, "metadata": info}
        try:
            return dumps({"type": "observation", "data": data})
        except (TypeError, ValueError, RecursionError) as e:
            raise self._manager.discard(self._session, e) from e

    def _item(self, wanted: ResetData) -> str | int:
        if wanted.item_id is not None:
            return wanted.item_id
        items = self._manager.metadata()["items"][wanted.split]
        index = random.Random(wanted.seed).randrange(len(items)) if wanted.index is None else wanted.index
        return _at(items, index)

    def close(self) -> None:
        """End the session."""
        with contextlib.suppress(ServiceError):  # it may be gone already
            self._manager.close(self._session)


def add_routes(app: FastAPI, services: Mapping[str, Service]) -> None:
    """Serve ``/{env}/ws``, ``/{env}/schema`` and the Task API."""

    @app.websocket("/{env}/ws")
    async def play(socket: WebSocket, env: str) -> None:
        try:
            service = lookup(services, env)
        except ServiceError as e:
            await socket.send_denial_response(error_response(e))
            return
        await socket.accept()
        with contextlib.suppress(WebSocketDisconnect):
            await _serve(socket, service)
            await socket.close()

    @app.get("/{env}/schema", name="schema")
    async def schema(env: str) -> dict[str, Any]:
        """JSON schemas of OpenEnv's action, observation and state."""
        lookup(services, env)
        return {"action": Action.model_json_schema(), "observation": EnvObservation.model_json_schema(), "state": State.model_json_schema()}

    @app.get("/list_environments", name="list_environments")
    async def list_environments() -> list[str]:
        """The environments that are served here."""
        return list(services)

    @app.get("/{env}/splits", name="splits")
    async def splits(env: str) -> list[dict[str, str]]:
        """The splits of an environment's items."""
        lookup(services, env)
        return [{"name": name, "type": {"eval": "test"}.get(name, name)} for name in SPLITS]

    @app.post("/{env}/tasks", name="tasks")
    async def tasks(env: str, body: _Split) -> dict[str, Any]:
        """Every item of a split; an entry's ``split`` and ``index`` are what ``reset`` takes."""
        return {"tasks": await _tasks(services, env, body.split), "env_name": env}

    @app.post("/{env}/num_tasks", name="num_tasks")
    async def num_tasks(env: str, body: _Split) -> dict[str, int]:
        """Number of items of a split."""
        return {"num_tasks": len(await _tasks(services, env, body.split))}

    @app.post("/{env}/task", name="task")
    async def task(env: str, body: _Index) -> dict[str, Any]:
        """One item of a split."""
        return {"task": _at(await _tasks(services, env, body.split), body.index)}

    @app.post("/{env}/task_range", name="task_range")
    async def task_range(env: str, body: _Range) -> dict[str, Any]:
        """Items ``start`` (inclusive) to ``stop`` (exclusive) of a split."""
        return {"tasks": (await _tasks(services, env, body.split))[body.start : body.stop]}


async def _serve(socket: WebSocket, service: Service) -> None:
    """Answer the client's messages until it leaves; the session ends with the connection, however that ends."""
    try:
        connection = await in_thread(service, lambda: Connection(service.manager))
    except ServiceError as e:
        counts = {"active_sessions": len(service.manager), "max_sessions": service.manager.max_sessions}
        full = e.code == "capacity"
        await _send(socket, _error("CAPACITY_REACHED", e.message, **counts) if full else _error("FACTORY_ERROR", e.message))
        return
    try:
        while True:
            raw = await socket.receive_text()
            answer = await in_thread(service, partial(connection.handle, raw))
            if answer is None:
                return
            await _send(socket, answer)
    finally:
        with anyio.CancelScope(shield=True):
            await in_thread(service, connection.close)


async def _send(socket: WebSocket, message: bytes) -> None:
    await socket.send_text(message.decode("ascii"))


async def _tasks(services: Mapping[str, Service], env: str, split: str) -> list[dict[str, Any]]:
    service = lookup(services, env)
    manager = service.manager

    def call() -> list[dict[str, Any]]:
        items = manager.metadata()["items"][split]
        return [{"item_id": i, "task": manager.environment.task_of(i), "split": split, "index": n} for n, i in enumerate(items)]

    return await in_thread(service, call)


def _at(items: list[Any], index: int) -> Any:
    if index >= len(items):
        raise ServiceError(400, "invalid_request", f"expected a task index below {len(items)}, found {index}")
    return items[index]


def _bad_message(error: Exception) -> bytes:
    if not isinstance(error, ValidationError):
        return _error("INVALID_JSON", f"expected a JSON message, found something else ({error!s:.120})")
    details = error.errors(include_url=False, include_input=False, include_context=False)
    if details[0]["type"] == "union_tag_invalid":
        return _error("UNKNOWN_TYPE", "expected a message of type reset, step, state or close, found another")
    problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'message'}: {e['msg']}" for e in details[:5])
    return _error("VALIDATION_ERROR", f"invalid message: {problems}", errors=details)


def _error(code: str, message: str, **more: Any) -> bytes:
    return dumps({"type": "error", "data": {"message": message, "code": code, **more}})
