"""BabyAI as a text environment: minigrid's levels, read as short descriptions and played with macro actions."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, ClassVar

from minigrid.core.actions import Actions
from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel

from agentgym_envs.babyai import levels, macros
from agentgym_envs.babyai.picture import draw
from agentgym_envs.babyai.text import describe
from agentgym_envs.babyai.world import World, cell_of, from_level, is_passable, pose_of
from agentgym_envs.core import Environment, Observation, Split, StepResult, UnknownItem


class BabyAI(Environment):
    """Instruction following in a grid world that the agent sees seven cells deep.

    Item ``i`` is level ``i % 40 + 1`` with layout ``i // 40``. The reward is minigrid's ``1 - 0.9 * steps / max_steps`` (in primitive
    steps), paid once on success. ``list_actions`` adds the list of available actions to every observation text.
    """

    name: ClassVar[str] = "babyai"
    version: ClassVar[str] = "2"
    instructions: ClassVar[str] = (
        "Reach the goal in a grid world. Ahead, left and right count steps from where you face. Reply with exactly one action:\n"
        "Thought: a short reason\n"
        "Action: the action\n"
        "Actions: turn left, turn right, move forward, go to OBJECT, pick up OBJECT, drop, toggle, go through DOOR, "
        "toggle and go through DOOR, check available actions. Name objects like red ball 1."
    )

    def __init__(self, list_actions: bool = False) -> None:
        self._list_actions = list_actions
        self._levels: dict[int, RoomGridLevel] = {}
        self._level: RoomGridLevel | None = None

    @classmethod
    def items(cls, split: Split) -> list[str]:
        """810 train items (layouts 0 to 44) and 90 eval items (layouts 45 to 49) of the paper's eighteen levels."""
        layouts = {"train": levels.TRAIN_LAYOUTS, "eval": levels.EVAL_LAYOUTS}[split]
        return [f"{cls.name}_{layout * len(levels.LEVELS) + level - 1}" for layout in layouts for level in levels.TASKS]

    @classmethod
    def task_of(cls, item_id: str | int) -> str:
        """The paper's sub-task, or ``"other"`` for the levels that the paper leaves out. Raises ``UnknownItem``."""
        return levels.TASKS.get(cls.level_of(item_id)[0], "other")

    @classmethod
    def level_of(cls, item_id: str | int) -> tuple[int, str]:
        """Number (1 to 40) and minigrid name of an item's level. Raises ``UnknownItem``."""
        index = cls.item_index(item_id)
        if index < 0:
            raise UnknownItem(f"expected an item index of 0 or more, found {index}")
        number = levels.level_number(index)
        return number, levels.LEVELS[number - 1]

    @classmethod
    def coinciding_items(cls, items: Iterable[str | int], others: Iterable[str | int]) -> dict[str | int, list[str | int]]:
        """Those of ``items`` that start exactly like some of ``others`` (same level, mission, grid and pose), with these others.

        Levels with few possible layouts cannot keep held-out layouts apart from training ones by their seed alone.
        """
        env, starts = cls(), dict[Hashable, list[str | int]]()
        for other in others:
            starts.setdefault(env.start(other), []).append(other)
        return {item: starts[start] for item in items if (start := env.start(item)) in starts}

    def start(self, item_id: str | int) -> Hashable:
        """Reset to an item and tell its beginning as a value: equal for items that start exactly alike. Raises ``UnknownItem``."""
        level, world = self._load(item_id, 0), self._world
        return self._number, level.mission, world.pose, world.carrying, tuple(world.cells)

    def reset(self, item_id: str | int, seed: int = 0) -> Observation:
        """Start an episode; another ``seed`` gives another layout of the same level. Raises ``UnknownItem``."""
        level = self._load(item_id, seed)
        placed = [thing for thing in (*level.grid.grid, level.carrying) if thing is not None and thing.type != "wall"]
        self._things = placed + [thing.contains for thing in placed if thing.contains is not None]
        self._success = self._done = False
        self._score = 0.0
        self._last = self._observe(f"Your goal: {level.mission}")
        return self._last

    def _load(self, item_id: str | int, seed: int) -> RoomGridLevel:
        number, _ = self.level_of(item_id)
        if number not in self._levels:
            self._levels[number] = levels.make_level(number)
        level = self._levels[number]
        level.reset(seed=levels.layout_seed(self.item_index(item_id), seed))
        self._level, self._number, self._world = level, number, from_level(level)
        return level

    def step(self, action: str) -> StepResult:
        """Carry out one macro action; what cannot be done costs one primitive step of time and is explained in the first line."""
        level = self._require_level()
        if self._done:
            return self._result(self._last, 0.0, invalid=True)
        note, invalid, reward = "", False, 0.0
        try:
            command = macros.parse(action)
            primitives = macros.plan(self._world, command)
        except macros.ActionError as error:
            note, invalid = str(error), True
            level.step_count += 1  # else a policy could try nonsense for free, and nothing would teach it not to
            self._done = level.step_count >= level.max_steps
        else:
            reward = self._execute(level, primitives)
            if command.verb == macros.CHECK and not self._list_actions:
                note = _action_line(self.available_actions())
        if self._done:
            note = "Goal reached." if self._success else "Out of steps." if level.step_count >= level.max_steps else "The goal is lost."
        self._last = self._observe(note)
        return self._result(self._last, reward, invalid)

    def available_actions(self) -> list[str]:
        """Actions that would be carried out now; none once the episode has ended."""
        self._require_level()
        return [] if self._done else macros.available(self._world)

    def render(self) -> dict[str, Any]:
        """The full state: cells by row as ``[type, color, state]`` or null, what is visible and known, objects with lasting ids, an SVG."""
        level, world = self._require_level(), self._world
        rows = range(world.height)
        visible = [[0] * world.width for _ in rows]
        for _, _, x, y in world.view():
            if 0 <= x < world.width and 0 <= y < world.height:
                visible[y][x] = 1
        x, y, direction = world.pose
        return {
            "kind": self.name,
            "text": self._last.text,
            "level": levels.LEVELS[self._number - 1],
            "mission": level.mission,
            "width": world.width,
            "height": world.height,
            "room_size": level.room_size,
            "cells": [[list(cell) if (cell := world.at(x, y)) else None for x in range(world.width)] for y in rows],
            "visible": visible,
            "known": [[int(world.is_known(x, y)) for x in range(world.width)] for y in rows],
            "agent": {"x": x, "y": y, "dir": direction},
            "carrying": self._object(level.carrying) if level.carrying else None,
            "objects": [
                {**self._object(thing), "x": n % world.width, "y": n // world.width}
                for n, thing in enumerate(level.grid.grid)
                if thing is not None and thing.type != "wall"
            ],
            "steps": level.step_count,
            "max_steps": level.max_steps,
            "svg": draw(world),
        }

    def close(self) -> None:
        """Forget the episode and the level objects."""
        self._level = None
        self._levels.clear()

    def _require_level(self) -> RoomGridLevel:
        if self._level is None:
            raise RuntimeError("expected an episode, found none: call reset(item_id) first")
        return self._level

    def _object(self, thing: Any) -> dict[str, Any]:
        kind, color, state = cell_of(thing) or ("", "", "")
        number = next(n for n, known in enumerate(self._things) if known is thing)
        return {"id": number, "type": kind, "color": color, "state": state}

    def _execute(self, level: RoomGridLevel, primitives: list[Actions]) -> float:
        """Take primitive steps until they are done, the way is blocked or the episode ends. Returns the reward earned."""
        world = self._world
        for primitive in primitives:
            if primitive == Actions.forward and not is_passable(world.at(*world.front())):
                break  # an object stands right behind the door: stay in the doorway
            _, reward, terminated, truncated, _ = level.step(primitive)
            self._sync(world, level)
            if terminated or truncated:
                self._done, self._success = True, terminated and reward > 0
                self._score = float(reward) if self._success else 0.0
                return self._score
        return 0.0

    @staticmethod
    def _sync(world: World, level: RoomGridLevel) -> None:
        """Bring the picture of the world up to date; a primitive step changes nothing but the agent and the cell it faces."""
        world.pose = pose_of(level)
        world.carrying = cell_of(level.carrying)
        x, y = world.front()
        if 0 <= x < world.width and 0 <= y < world.height:
            world.cells[y * world.width + x] = cell_of(level.grid.get(x, y))
        world.look()

    def _observe(self, first_line: str) -> Observation:
        lines = [first_line] if first_line else []
        actions = self.available_actions()
        lines.append(describe(self._world))
        if self._list_actions and actions:
            lines.append(_action_line(actions))
        return Observation("\n".join(lines), tuple(actions))

    def _result(self, observation: Observation, reward: float, invalid: bool) -> StepResult:
        level = self._require_level()
        info = {
            "success": self._success,
            "invalid": invalid,
            "score": self._score,
            "steps": level.step_count,
            "max_steps": level.max_steps,
        }
        return StepResult(observation, reward, self._done, info)


def _action_line(actions: list[str]) -> str:
    return f"Available actions: {', '.join(actions)}."
