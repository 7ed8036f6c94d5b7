"""The SciWorld environment (ScienceWorld, Wang et al. 2022): elementary-school science experiments in a house of ten places."""

from __future__ import annotations

import math
import re
from typing import Any, ClassVar

from agentgym_envs.core import Environment, Observation, Split, StepResult, UnknownItem
from agentgym_envs.sciworld import tasks
from agentgym_envs.sciworld.jvm import JvmPool, shared_pool
from agentgym_envs.sciworld.picture import picture
from agentgym_envs.sciworld.simulator import Simulator

#: The episode ends after more moves than this, like in the package.
MAX_MOVES = 100
_MAX_ACTION = 500  # characters
_MAX_CHOICES = 20  # choices shown of an ambiguous request; there may be thousands
_UNREAD = "No known action matches that input."
_UNKNOWN = "Unknown action."
_AMBIGUOUS = "Ambiguous request:"
_CHOICE = re.compile(r"(\d+):\t(.*)")
#: Actions on two things are too many to list; "reset task" would only throw away the progress.
_UNLISTED = re.compile(r"(?:move|pour|dunk|use|connect) .*|reset task")


class SciWorld(Environment):
    """Do the experiment of the task; the rewards of an episode add up to the best score that it reached, from 0 to 1.

    ``jvms`` Java processes with ``heap_mb`` MiB each are shared by all environments of this process with these settings; ``pool``
    takes their place. They start with the first ``reset``. Raises ``JavaNotFound`` there if there is no Java.
    """

    name: ClassVar[str] = "sciworld"
    version: ClassVar[str] = "1+1.2.3"  # rules, then the version of the package scienceworld
    instructions: ClassVar[str] = (
        "You are in a house with a kitchen, a workshop and other places, and have a science task. Reach its goal in as few steps as you "
        "can. Focus on a thing only when the task asks for it: a wrong focus ends the episode.\n"
        "Actions (OBJ stands for a thing you see or carry):\n"
        "look around; look at OBJ; look in OBJ; inventory; task; open OBJ; close OBJ; go to PLACE; pick up OBJ; put down OBJ; "
        "move OBJ to OBJ; pour OBJ into OBJ; dunk OBJ into OBJ; mix OBJ; activate OBJ; deactivate OBJ; use OBJ on OBJ; "
        "connect OBJ to OBJ; disconnect OBJ; read OBJ; eat OBJ; flush OBJ; focus on OBJ; wait1 (one moment); wait (ten moments).\n"
        "If a name fits several things, you get a numbered list: answer with a number.\n"
        "Reply with one action, in this format:\nThought: your reasoning\nAction: your action"
    )

    def __init__(self, jvms: int = 1, heap_mb: int = 1024, pool: JvmPool | None = None) -> None:
        self._simulator = Simulator(pool or shared_pool(jvms, heap_mb))
        self._task: tasks.Task | None = None
        self._description = self._last = ""
        self._choices: list[int] = []  # what the simulator calls choice 0, 1, ... of the list shown last
        self._score = self._moves = 0
        self._paid = 0.0
        self._done = False

    @classmethod
    def items(cls, split: Split) -> list[str]:
        """Item ids of a split; their numbers are those of the published data set."""
        return [f"{cls.name}_{i}" for i in (tasks.train_items() if split == "train" else tasks.eval_items())]

    @classmethod
    def task_of(cls, item_id: str | int) -> str:
        """``"measure"``, ``"test_cond"``, ``"find"``, ``"chem_mix"``, ``"lifespan"``; ``"matter"``, ``"power"``, ``"life_stages"``.

        The last three are in no table of the paper. Raises ``UnknownItem``.
        """
        return cls._locate(item_id)[0].family

    def reset(self, item_id: str | int, seed: int = 0) -> Observation:
        """Start the episode of an item; ``seed`` drives what moves by itself, such as bees.

        Raises ``UnknownItem``, ``JavaNotFound`` and ``SimulatorError``.
        """
        task, variation = self._locate(item_id)
        self._task = None
        self._description = self._simulator.load(task.name, variation, seed)
        outcome = self._simulator.act("look around")
        self._task, self._choices = task, []
        self._score, self._moves, self._paid, self._done = 0, outcome.moves, 0.0, False
        self._last = f"{self._description}\n\n{outcome.text}"
        return self._observe()

    def step(self, action: str) -> StepResult:
        """Carry out one action. Raises ``RuntimeError`` before the first ``reset`` and ``SimulatorError`` if Java fails."""
        self._require_episode()
        if self._done:
            return self._result(0.0, invalid=True)
        if len(action) > _MAX_ACTION:
            self._last = f"The action has {len(action)} characters, at most {_MAX_ACTION} are read."
            return self._result(0.0, invalid=True)
        text = " ".join("".join(c if c.isprintable() else " " for c in action).split())
        if self._choices and not text:
            self._cancel()
            self._last = "The request is cancelled."
            return self._result(0.0, invalid=False)
        return self._carry_out(self._choose(text))

    def available_actions(self) -> list[str]:
        """The numbers of an open list of choices, else the actions on one thing or none that the simulator would carry out now.

        Actions on two things (move, pour, dunk, use, connect) are thousands and are left out. Takes tens of milliseconds.
        """
        if self._task is None or self._done:
            return []
        return list(self._observe().actions) or [a for a in dict.fromkeys(self._simulator.valid_actions()) if not _UNLISTED.fullmatch(a)]

    def render(self) -> dict[str, Any]:
        """Task, score, moves, places with their doors and things, the agent's place and inventory. Raises ``RuntimeError`` before reset."""
        task = self._require_episode()
        look, inventory = self._simulator.look()
        facts = {"task": task.name, "goal": self._description, "score": self._score, "moves": self._moves, "done": self._done}
        text = f"{self._description}\n\n{look}\n\n{inventory}\n\nScore: {self._score}"
        return {"kind": self.name, "text": text, **facts, **picture(self._simulator.tree(), look)}

    def close(self) -> None:
        """Free the simulator; the Java process stays for others."""
        self._task = None
        self._simulator.close()

    @classmethod
    def _locate(cls, item_id: str | int) -> tuple[tasks.Task, int]:
        index = cls.item_index(item_id)
        try:
            return tasks.locate(index)
        except IndexError:
            raise UnknownItem(f"expected a SciWorld item from 0 to {tasks.item_count() - 1}, found {index}") from None

    def _require_episode(self) -> tasks.Task:
        if self._task is None:
            raise RuntimeError("SciWorld: call reset(item_id) before step or render")
        return self._task

    def _choose(self, text: str) -> str:
        """The simulator's own number for a number of the list shown last; any other text closes the list."""
        if not self._choices:
            return text
        if text.isascii() and text.isdecimal() and int(text) < min(len(self._choices), _MAX_CHOICES):
            chosen = str(self._choices[int(text)])
            self._choices = []
            return chosen
        self._cancel()
        return text

    def _cancel(self) -> None:
        self._choices = []
        self._simulator.act("")

    def _carry_out(self, action: str) -> StepResult:
        outcome = self._simulator.act(action)
        self._last, self._moves = outcome.text, outcome.moves
        if _AMBIGUOUS in outcome.text:
            self._last, self._choices = _sorted_choices(outcome.text)
        self._score = outcome.score
        self._done = not 0 <= self._score < 100 or self._moves > MAX_MOVES
        return self._result(self._pay(), invalid=outcome.text.startswith((_UNREAD, _UNKNOWN)))

    def _pay(self) -> float:
        """What the score has risen above its best so far, in [0, 1]; the sum of all payments never exceeds that best."""
        best = max(self._score, 0) / 100
        reward = max(best - self._paid, 0.0)
        while reward and self._paid + reward > best:  # one unit in the last place, by rounding
            reward = math.nextafter(reward, 0.0)
        self._paid += reward
        return reward

    def _observe(self) -> Observation:
        shown = min(len(self._choices), _MAX_CHOICES)
        return Observation(self._last, tuple(map(str, range(shown))), {"moves": self._moves})

    def _result(self, reward: float, invalid: bool) -> StepResult:
        info = {"success": self._score >= 100, "invalid": invalid, "score": self._score, "moves": self._moves}
        return StepResult(self._observe(), reward, self._done, info)


def _sorted_choices(text: str) -> tuple[str, list[int]]:
    """An ambiguous request with its choices sorted, and the simulator's number of each: its own order is not the same in every run."""
    lines = text.splitlines()
    choices = sorted((m[2], int(m[1])) for line in lines if (m := _CHOICE.fullmatch(line)))
    shown = [f"{i}:\t{choice}" for i, (choice, _) in enumerate(choices[:_MAX_CHOICES])]
    if len(choices) > _MAX_CHOICES:
        shown.append(f"There are {len(choices) - _MAX_CHOICES} more; name the things more exactly to reach them.")
    head = [line for line in lines if line.strip() and not _CHOICE.fullmatch(line)]
    return "\n".join([*head, *shown]), [number for _, number in choices]
