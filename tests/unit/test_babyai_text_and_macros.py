"""BabyAI's pure parts on grids drawn by hand: what is seen, how it is told, how actions are read and carried out, what missions mean."""

import random

import gymnasium
import minigrid  # noqa: F401 - registers the levels
import pytest
from minigrid.core.actions import Actions

from agentgym_envs.babyai.macros import CHECK, ActionError, Command, available, parse, plan
from agentgym_envs.babyai.missions import Clause, Description, parse_mission
from agentgym_envs.babyai.text import describe, things_in_view
from agentgym_envs.babyai.world import WALL, World, from_level

LEGEND = {
    ".": None,
    "#": WALL,
    "r": ("ball", "red", ""),
    "k": ("key", "yellow", ""),
    "x": ("box", "grey", ""),
    "C": ("door", "yellow", "closed"),
    "L": ("door", "yellow", "locked"),
    "O": ("door", "yellow", "open"),
}
LEFT, RIGHT, FORWARD = Actions.left, Actions.right, Actions.forward


def draw(*rows, carrying=None):
    """A world from rows of characters; the agent is one of > v < ^ and knows only what it sees."""
    cells = [LEGEND.get(mark) for row in rows for mark in row]
    at = next(n for n, mark in enumerate("".join(rows)) if mark in ">v<^")
    width = len(rows[0])
    pose = (at % width, at // width, ">v<^".index("".join(rows)[at]))
    world = World(width, len(rows), cells, [False] * len(cells), pose, LEGEND[carrying] if carrying else None)
    world.look()
    return world


ROOM = ("#######", "#....r#", "#..r..#", "#.....#", "#x.^..#", "#.....#", "#######")


def test_description_lists_the_nearest_first_and_numbers_equal_names():
    assert describe(draw(*ROOM)) == (
        "You see: red ball 1, 2 ahead; grey box 1, 2 left; red ball 2, 3 ahead 2 right.\nWall 4 ahead, 3 left, 3 right. You carry nothing."
    )


@pytest.mark.parametrize(
    ("facing", "where"),
    [("^", "2 ahead 1 right"), (">", "1 ahead 2 left"), ("<", None), ("v", None)],
)
def test_places_turn_with_the_agent(facing, where):
    world = draw("#####", "#...#", "#..r#", "#...#", f"#.{facing}.#", "#####")
    assert describe(world).startswith(f"You see: red ball 1, {where}." if where else "You see nothing.")


def test_what_is_carried_and_a_doors_state_are_told():
    text = describe(draw("#####", "##L##", "#.^.#", "#####", carrying="k"))
    assert text == "You see: locked yellow door 1, 1 ahead.\nWall 1 left, 1 right. You carry a yellow key.".replace(
        "1 left, 1", "2 left, 2"
    )


def test_a_shut_door_hides_what_an_open_one_shows():
    rows = ["#####", "#.r.#", "##C##", "#.^.#", "#####"]
    assert [thing.label for thing in things_in_view(draw(*rows))] == ["closed yellow door 1"]
    rows[2] = "##O##"
    assert [thing.label for thing in things_in_view(draw(*rows))] == ["open yellow door 1", "red ball 1"]


@pytest.mark.parametrize("level", ["GoToLocalS8N7", "GoToObjMazeOpen", "KeyCorridorS6R3", "OneRoomS20"])
def test_view_is_minigrids(level):
    env, rng = gymnasium.make(f"BabyAI-{level}-v0").unwrapped, random.Random(level)
    for seed in range(3):
        env.reset(seed=seed)
        for _ in range(40):
            env.step(rng.choice([Actions.left, Actions.right, Actions.forward, Actions.forward, Actions.toggle]))
            _, mask = env.gen_obs_grid()
            expected = {(6 - j, i - 3) for i in range(7) for j in range(7) if mask[i, j]}
            assert {(s.ahead, s.right) for s in from_level(env).view()} == expected


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("turn left", Command("turn left")),
        ("  Turn   LEFT. ", Command("turn left")),
        ("go to red ball 2", Command("go to", "red ball 2")),
        ("go to the red ball", Command("go to", "red ball 1")),
        ("pickup a grey box 1", Command("pick up", "grey box 1")),
        ("pick up grey box 01", Command("pick up", "grey box 1")),
        ("go through yellow open door 1", Command("go through", "yellow door 1")),
        ("toggle and go through the closed yellow door 3", Command("toggle and go through", "yellow door 3")),
        ("`check available actions`", Command(CHECK)),
    ],
)
def test_parse_accepts_small_variations(text, command):
    assert parse(text) == command


@pytest.mark.parametrize(
    "text", ["", "jump", "go to", "go to red", "go to pink ball 1", "go to red ball -1", "go to red ball 1 now", "\0", "٣"]
)
def test_parse_refuses_the_rest(text):
    with pytest.raises(ActionError, match="Unknown"):
        parse(text)


def test_parse_never_reads_or_repeats_a_huge_action():
    with pytest.raises(ActionError, match="found 1000000 characters") as caught:
        parse("go to " + "a " * 499_997)
    assert len(str(caught.value)) < 80


def test_go_to_ends_next_to_the_object_and_facing_it():
    assert plan(draw(*ROOM), parse("go to red ball 1")) == [FORWARD]
    assert plan(draw(*ROOM), parse("go to grey box 1")) == [LEFT, FORWARD]
    assert plan(draw(*ROOM), parse("go to red ball 2")) == [FORWARD, RIGHT, FORWARD, FORWARD, LEFT, FORWARD]


def test_go_to_an_object_already_faced_waits_one_step():
    assert plan(draw("####", "#.r#", "#.^#", "####"), parse("go to red ball 1")) == [Actions.done]


def test_pick_up_and_doors_add_their_primitives():
    assert plan(draw(*ROOM), parse("pick up red ball 1")) == [FORWARD, Actions.pickup]
    door = ["#####", "#...#", "##C##", "#...#", "#.^.#", "#####"]
    assert plan(draw(*door), parse("toggle and go through yellow door 1")) == [FORWARD, Actions.toggle, FORWARD, FORWARD]
    door[2] = "##O##"
    assert plan(draw(*door), parse("go through yellow door 1")) == [FORWARD, FORWARD, FORWARD]


@pytest.mark.parametrize(
    ("rows", "carrying", "action", "reason"),
    [
        (ROOM, None, "go to red ball 3", "You cannot go to red ball 3: not in view."),
        (ROOM, "k", "pick up grey box 1", "You cannot pick up grey box 1: you carry a yellow key."),
        (ROOM, None, "go through grey box 1", "You cannot go through grey box 1: it is no door."),
        (("#####", "#.r.#", "#.xk#", "#.^x#", "#####"), None, "go to yellow key 1", "You cannot go to yellow key 1: no path."),
        (("###", "#C#", "#^#", "###"), None, "move forward", "You cannot move forward: yellow door ahead."),
        (("###", "#^#", "###"), None, "move forward", "You cannot move forward: wall ahead."),
        (("###", "#C#", "#^#", "###"), None, "go through yellow door 1", "You cannot go through yellow door 1: it is closed."),
        (("###", "#O#", "#^#", "###"), None, "toggle and go through yellow door 1", "it is open already."),
        (("###", "#L#", "#^#", "###"), None, "toggle and go through yellow door 1", "it is locked and you have no yellow key."),
        (("###", "#L#", "#^#", "###"), None, "toggle", "You cannot toggle: the yellow door is locked."),
        (("###", "#C#", "#^#", "###"), None, "pick up yellow door 1", "it is a door."),
        (("###", "#r#", "#^#", "###"), None, "toggle", "You cannot toggle: no door or box ahead."),
        (("###", "#.#", "#^#", "###"), None, "drop", "You cannot drop: you carry nothing."),
        (("###", "#r#", "#^#", "###"), "k", "drop", "You cannot drop: red ball ahead."),
    ],
)
def test_refusals_name_the_reason(rows, carrying, action, reason):
    with pytest.raises(ActionError) as caught:
        plan(draw(*rows, carrying=carrying), parse(action))
    assert str(caught.value).endswith(reason)


def test_a_key_in_hand_opens_the_locked_door():
    world = draw("###", "#L#", "#^#", "###", carrying="k")
    assert plan(world, parse("toggle")) == [Actions.toggle]
    assert "toggle and go through yellow door 1" in available(world)


def test_paths_cross_remembered_cells_but_never_unseen_ones():
    world = draw("######", "#.xr.#", "#....#", "#.^#.#", "#....#", "######")
    world.known = [cell is not None for cell in world.cells]  # what lies on free cells was never seen
    with pytest.raises(ActionError, match="no path"):
        plan(world, parse("go to red ball 1"))
    world.known[2 * 6 + 2] = world.known[2 * 6 + 3] = True
    assert plan(world, parse("go to red ball 1")) == [FORWARD, RIGHT, FORWARD, LEFT]


def test_available_actions_in_order():
    assert available(draw("#####", "##C##", "#.^.#", "#.r.#", "#####")) == [
        "turn left",
        "turn right",
        "toggle",
        "go to yellow door 1",
        "toggle and go through yellow door 1",
        CHECK,
    ]


def thing(kind, color="", place=""):
    return Description(kind, color, place)


@pytest.mark.parametrize("level", ["GoToObjMazeOpen", "KeyCorridorS6R3", "Unlock"])
def test_exactly_the_actions_that_plan_accepts_are_listed(level):
    env, rng = gymnasium.make(f"BabyAI-{level}-v0").unwrapped, random.Random(level)
    verbs = ("go to", "pick up", "go through", "toggle and go through")
    for seed in range(4):
        env.reset(seed=seed)
        for _ in range(15):
            env.step(rng.choice([Actions.left, Actions.forward, Actions.forward, Actions.toggle, Actions.pickup]))
            world = from_level(env)
            asked = [f"{verb} {thing.name}" for thing in things_in_view(world) for verb in verbs]
            assert [action for action in asked if is_planned(world, action)] == [a for a in available(world) if a.startswith(verbs)]


def is_planned(world, action):
    try:
        plan(world, parse(action))
    except ActionError:
        return False
    return True


@pytest.mark.parametrize(
    ("mission", "stages"),
    [
        ("go to the red ball", [[Clause("go to", thing("ball", "red"))]]),
        ("pick up an object", None),
        ("pick up the object behind you", [[Clause("pick up", thing("", "", "behind"))]]),
        (
            "put the red ball next to a door on your left",
            [[Clause("put", thing("ball", "red"), thing("door", "", "left"))]],
        ),
        ("go to a key, then open the door", [[Clause("go to", thing("key"))], [Clause("open", thing("door"))]]),
        ("go to a key after you open the door", [[Clause("open", thing("door"))], [Clause("go to", thing("key"))]]),
        (
            "go to a key and go to a box, then go to a ball",
            [[Clause("go to", thing("key")), Clause("go to", thing("box"))], [Clause("go to", thing("ball"))]],
        ),
        ("dance", None),
    ],
)
def test_missions_are_read_in_the_order_they_must_be_done(mission, stages):
    if stages is None:
        with pytest.raises(ValueError, match="expected a"):
            parse_mission(mission)
    else:
        assert parse_mission(mission) == stages
