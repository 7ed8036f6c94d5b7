"""The forty BabyAI levels, the paper's eighteen among them, and how an item index names a level and a layout."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import gymnasium
import minigrid  # noqa: F401 - importing it registers the BabyAI levels
from minigrid.core.roomgrid import RoomGrid
from minigrid.envs.babyai.core.roomgrid_level import RejectSampling, RoomGridLevel

# fmt: off
#: Level n of the table is ``LEVELS[n - 1]``. Level 4 was published as ``GoToObjS6`` when that name meant a room of size 4.
LEVELS = (
    "GoToRedBallGrey", "GoToRedBall", "GoToRedBallNoDists", "GoToObjS4", "GoToLocalS8N7",  # 1-5
    "GoToObjMazeS7", "GoToImpUnlock", "GoToSeqS5R2", "GoToRedBlueBall", "GoToDoor",  # 6-10
    "GoToObjDoor", "Open", "OpenRedDoor", "OpenDoorLoc", "OpenRedBlueDoorsDebug",  # 11-15
    "OpenDoorsOrderN4Debug", "Pickup", "UnblockPickup", "PickupLoc", "PickupDistDebug",  # 16-20
    "PickupAbove", "PutNextLocalS6N4", "PutNextS7N4Carrying", "Unlock", "UnlockLocalDist",  # 21-25
    "KeyInBox", "UnlockPickupDist", "BlockedUnlockPickup", "UnlockToUnlock", "ActionObjDoor",  # 26-30
    "FindObjS7", "KeyCorridorS6R3", "OneRoomS20", "MoveTwoAcrossS8N9", "SynthS5R2",  # 31-35
    "SynthLoc", "SynthSeq", "MiniBossLevel", "BossLevel", "BossLevelNoUnlock",  # 36-40
)
# fmt: on

#: Sub-task of each level that the paper uses; the others are playable but belong to no split.
TASKS = {
    **dict.fromkeys(range(1, 12), "goto"),
    **dict.fromkeys((19, 20, 21), "pickup"),
    30: "action_obj_door",
    31: "find_obj",
    33: "one_room",
    36: "synth_loc",
}

TRAIN_LAYOUTS = range(45)
EVAL_LAYOUTS = range(45, 50)

_SEED_STRIDE = 1_000_003  # far beyond every layout number in use, so that another episode seed never meets another item's layout
_SEED_LIMIT = 2**31


def level_number(index: int) -> int:
    """Level (1 to 40) of an item index."""
    return index % len(LEVELS) + 1


def layout_seed(index: int, seed: int) -> int:
    """Seed given to minigrid: ``index // 40`` for episode seed 0, and a far-away one for every other episode seed."""
    return (index // len(LEVELS) + seed * _SEED_STRIDE) % _SEED_LIMIT


class _Bare:
    """Mixed into a level: same draws and rules, but no prints on rejected samples and no image observation, which nobody reads."""

    def _gen_grid(self: Any, width: int, height: int) -> None:
        while True:
            try:
                RoomGrid._gen_grid(self, width, height)
                self.gen_mission()
                self.validate_instrs(self.instrs)
            except (RejectSampling, RecursionError):
                continue
            break
        self.surface = self.mission = self.instrs.surface(self)

    def gen_obs(self) -> dict[str, Any]:
        return {}


@cache
def _level_class(name: str) -> tuple[type[RoomGridLevel], dict[str, Any]]:
    spec = gymnasium.spec(f"BabyAI-{name}-v0")
    module, _, attribute = str(spec.entry_point).partition(":")
    level = getattr(importlib.import_module(module), attribute)
    return type(level.__name__, (_Bare, level), {}), dict(spec.kwargs)


def make_level(number: int) -> RoomGridLevel:
    """A new minigrid level object; ``reset(seed=...)`` gives the layout that ``gymnasium.make`` gives for the same seed."""
    level, options = _level_class(LEVELS[number - 1])
    return level(**options)
