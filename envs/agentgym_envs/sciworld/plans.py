"""How the expert does each kind of task: it reads the task, walks, acts, and reads the answers, like a person who knows the house."""

from __future__ import annotations

import re
from collections.abc import Callable

from agentgym_envs.sciworld.moves import Plan, Walker

#: Melting points in degrees Celsius of the known substances that the task asks for.
_MELTING_POINT = {"water": 0, "orange juice": -2, "chocolate": 34, "mercury": -39, "gallium": 30, "tin": 232, "lead": 327}
#: Animals of the life span tasks, from the longest life to the shortest; of each third an episode has one.
_LIVES = (
    *("giant tortoise", "parrot", "elephant", "crocodile", "brown bear"),
    *("beaver", "wolf", "chipmunk", "toad", "rabbit"),
    *("hedgehog", "mouse", "chameleon", "dragonfly", "ant"),
)
#: A thing without life that can be carried and is found in the place from the start.
_LIFELESS = {"kitchen": "lighter", "bathroom": "glass cup", "living room": "pillow", "bedroom": "pillow", "workshop": "battery"}
_PRIMARY = ("red", "blue", "yellow")
_MIX = {"violet": ("blue", "red"), "green": ("blue", "yellow"), "orange": ("red", "yellow")}
_STAGE = r"(?:egg|baby|hatchling|juvenile|adult|tadpole|caterpillar|pupa)"
_ANIMALS = (*_LIVES, "butterfly", "moth", "frog", "turtle", "dove", "blue jay")


def _measure_temperature(task: re.Match[str], walker: Walker) -> Plan[None]:
    thing, place, limit, above, below, boxes = task.groups()
    yield from _fetch_thermometer(walker)
    yield from walker.go(place, f"The {thing} is there.")
    yield from walker.do(f"pick up {thing}", f"I need the {thing}.")
    yield from walker.do(f"focus on {thing} in inventory", f"Next I focus on the {thing}.", "inventory")
    yield from walker.go(boxes, "The boxes are there.")
    text = yield from walker.do(f"use thermometer in inventory on {thing} in inventory", "Now I measure.", "inventory")
    match = re.search(r"temperature of (-?\d+)", text)
    degrees = int(match[1]) if match else 0
    box, side = (above, "above") if degrees > float(limit) else (below, "below")
    yield from walker.do(f"move {thing} in inventory to {box}", f"{degrees} degrees is {side} {limit}: {box}.", "inventory")


def _melting_point(task: re.Match[str], walker: Walker) -> Plan[None]:
    thing, place, limit, above, below, boxes = task.groups()
    yield from _fetch_thermometer(walker)
    yield from walker.go(place, f"The {thing} is there.")
    if thing in ("chocolate", "orange juice"):
        yield from walker.do("open fridge", f"The {thing} is in the fridge.")
    if thing == "water":
        yield from _fetch_water(walker)
        yield from walker.do("focus on water in glass cup", "Next I focus on the water.", "inventory")
    else:
        yield from walker.do(f"focus on {thing}", f"Next I focus on the {thing}.")
    yield from walker.go(boxes, "The boxes are there.")
    melts = _MELTING_POINT[thing]
    box, side = (above, "above") if melts >= float(limit) else (below, "below")
    yield from walker.do(f"focus on {box}", f"{thing} melts at {melts} degrees, which is {side} {limit}: {box}.")


def _fetch_thermometer(walker: Walker) -> Plan[None]:
    yield from walker.go("kitchen", "The thermometer is there.")
    yield from walker.do("pick up thermometer", "I need the thermometer.")
    yield from walker.do("focus on thermometer in inventory", "First I focus on the thermometer.")


def _conductivity(task: re.Match[str], walker: Walker) -> Plan[None]:
    thing, place, conductive, insulating = task.groups()
    carried = thing
    if thing == "water":
        carried = "glass cup"
        yield from _fetch_water(walker)
        yield from walker.do("focus on water in glass cup", "I focus on the water.", "inventory")
    elif place == "workshop":
        yield from walker.go(place, f"The {thing} is there.")
        yield from walker.do(f"focus on {thing}", f"I focus on the {thing}.")
    else:
        yield from walker.go(place, f"The {thing} is there.")
        yield from walker.do(f"pick up {thing}", f"I need the {thing}.", f"{thing} (in {place}")
        yield from walker.do(f"focus on {thing} in inventory", f"I focus on the {thing}.", "inventory")
    yield from walker.go("workshop", "The battery, wires and light bulbs are there.")
    lit = yield from _lights_up(walker, thing)
    box, what = (conductive, "on, so it conducts") if lit else (insulating, "off, so it does not conduct")
    yield from walker.do(f"move {carried} to {box}", f"The light bulb is {what}: {box}.", "inventory")


def _lights_up(walker: Walker, thing: str) -> Plan[bool]:
    """Connect battery, light bulb and ``thing`` in a ring of three wires and see whether the light bulb is on."""
    seen = yield from walker.look("I look for the parts of a circuit.")
    first, second, third = re.findall(r"(\w+ wire)", seen)[:3]
    bulb = re.findall(r"(\w+ light bulb)", seen)[0]
    item = f"{thing} in glass cup" if thing == "water" else thing
    links = (
        (f"battery anode to {first} terminal 1", "from the battery's anode"),
        (f"battery cathode to {second} terminal 1", "from the battery's cathode"),
        (f"{first} terminal 2 to cathode in {bulb}", "to the light bulb"),
        (f"{third} terminal 2 to anode in {bulb}", "to the light bulb's other side"),
        (f"{thing} terminal 1 to {second} terminal 2", f"to the {item}"),
        (f"{thing} terminal 2 to {third} terminal 1", "to close the ring"),
    )
    for link, words in links:
        yield from walker.do(f"connect {link}", f"I connect a wire {words}.", "glass cup" if thing == "water" else "")
    yield from walker.do("wait1", "I let the current flow.")
    text = yield from walker.do(f"look at {bulb}", "Is the light bulb on?")
    return "which is on" in text


def _fetch_water(walker: Walker) -> Plan[None]:
    yield from walker.go("kitchen", "There is a cup and a sink.")
    yield from walker.do("move glass cup to sink", "I put the cup into the sink.")
    yield from walker.do("activate sink", "I let the water run.")
    yield from walker.do("deactivate sink", "The cup is full.")
    yield from walker.do("pick up glass cup", "I take the cup of water.")


def _find(task: re.Match[str], walker: Walker) -> Plan[None]:
    kind, box, place = task.groups()
    if kind == "non-living thing":
        thing = _LIFELESS[place]
        yield from walker.go(place, f"The {box} is there, and a {thing} does not live.")
        yield from walker.do(f"focus on {thing}", f"I focus on the {thing}.")
        yield from walker.do(f"move {thing} to {box}", f"I move the {thing} to the {box}.")
        return
    if kind == "plant":
        yield from walker.go("greenhouse", "Plants grow there.")
        seen = yield from walker.look("I look for a plant.")
        pot, thing = re.findall(r"(flower pot \d) \(containing an? ([^,)]*?)(?: in the|,|\))", seen)[0]
    else:
        yield from walker.go("outside", "Animals live there.")
        seen = yield from walker.look("I look for an animal.")
        thing = pot = _animals_in(seen)[0]
    yield from walker.do(f"focus on {thing}", f"I focus on the {thing}.")
    yield from walker.do(f"pick up {pot}", f"I take the {pot}.")
    yield from walker.go(place, f"The {box} is there.")
    yield from walker.do(f"move {pot} in inventory to {box}", f"I move the {pot} to the {box}.", "inventory")


def _animals_in(seen: str) -> list[str]:
    return [animal for animal in _ANIMALS if re.search(rf"^\tan? (?:{_STAGE} )*{animal}\b", seen, re.MULTILINE)]


def _life_span(task: re.Match[str], walker: Walker) -> Plan[None]:
    yield from walker.go("outside", "The animals are there.")
    seen = yield from walker.look("I look for the animals.")
    animals = [animal for animal in _LIVES if animal in _animals_in(seen)]
    chosen = {"longest": animals[0], "shortest": animals[-1]}
    for which in re.findall(r"longest|shortest", task[1]):
        yield from walker.do(f"focus on {chosen[which]}", f"Of these, the {chosen[which]} has the {which} life span.")


def _chemistry(task: re.Match[str], walker: Walker) -> Plan[None]:
    product, place = task.groups()
    yield from walker.go("kitchen", "There is an empty cup.")
    yield from walker.do("pick up glass cup", "I need a cup to mix in.")
    yield from walker.go(place, "The recipe is there.")
    text = yield from walker.do("read recipe", "I read the recipe.")
    match = re.search(r"need to mix (.+?)\.", text)
    parts = match[1].split(", ") if match else []
    for part in sorted(parts, key=lambda p: (p == "water", p.endswith("paint"))):
        if part == "water":
            yield from walker.go("kitchen", "There is a sink.")
            yield from walker.do("move glass cup to sink", "I put the cup into the sink.", "inventory")
            yield from walker.do("activate sink", "I add water.")
            yield from walker.do("deactivate sink", "That is enough water.")
        elif part.endswith("paint"):
            yield from walker.go("art studio", "There is paint.")
            yield from walker.do(f"pour cup containing {part} into glass cup in inventory", f"I add the {part}.", "inventory")
        else:
            if part == "sodium chloride" and place == "kitchen":
                yield from walker.do("open glass jar", f"The {part} is in the jar.")
            yield from walker.do(f"move {part} to glass cup in inventory", f"I add the {part}.")
    cup = "glass cup in sink" if "water" in parts else "glass cup in inventory"
    yield from walker.do(f"mix {cup}", f"All of {', '.join(parts)} is in the cup: I mix.")
    yield from walker.do(f"focus on {product}", f"The {product} is done: I focus on it.")


def _paint(task: re.Match[str], walker: Walker) -> Plan[None]:
    colours = task[1].split("-")
    middle = next((c for c in colours if c in _MIX), "")
    first, second = _MIX[middle]
    yield from walker.go("art studio", "The paints are there.")
    yield from walker.do(f"pour cup containing {first} paint into cup containing {second} paint", f"{first} and {second} make {middle}.")
    yield from walker.do(f"mix cup containing {first} paint and {second} paint", "I mix.")
    yield from walker.do(f"focus on {middle} paint", f"The {middle} paint is done: I focus on it.")
    if len(colours) == 1:
        return
    more = next(c for c in colours if c in _PRIMARY)
    yield from walker.do("open large cupboard", f"I need more {more} paint.")
    yield from walker.do(f"pour cup containing {more} paint into cup containing {middle} paint", f"I add {more} to the {middle}.")
    names = " and ".join(f"{c} paint" for c in sorted((more, middle)))
    yield from walker.do(f"mix cup containing {names}", "I mix.")
    yield from walker.do(f"focus on {task[1]} paint", f"The {task[1]} paint is done: I focus on it.")


_WHERE = r"which is located around the ([a-z ]+)\..*? is above ([-\d.]+) degrees celsius, "
_BOXES = r"{verb} the (\w+ box)\. If .*? celsius, {verb} the (\w+ box)\. The boxes are located around the ([a-z ]+)\."
#: What a task description looks like, and how it is done.
_PATTERNS: tuple[tuple[str, Callable[[re.Match[str], Walker], Plan[None]]], ...] = (
    (r"measure the temperature of (.+?), " + _WHERE + _BOXES.format(verb="place it in"), _measure_temperature),
    (r"measure the melting point of (.+?), " + _WHERE + _BOXES.format(verb="focus on"), _melting_point),
    (r"determine if (.+?) is electrically conductive\..*?around the ([a-z ]+)\..*?in the (\w+ box).*?in the (\w+ box)", _conductivity),
    (r"find a\(n\) (.+?)\. First.*?to the (\w+ box) in the ([a-z ]+)\.", _find),
    (r"find the animal with the (longest life span(?:, then the shortest)?|shortest life span)", _life_span),
    (r"create the substance '(.+?)'\..*?found near the ([a-z ]+)\.", _chemistry),
    (r"create ([a-z-]+) paint\.", _paint),
)


def plan_for(first_text: str) -> Plan[None]:
    """The plan for the task in a first observation. Raises ``ValueError`` if the expert does not know such a task."""
    for pattern, plan in _PATTERNS:
        if match := re.search(pattern, first_text, re.DOTALL):
            return plan(match, Walker(first_text))
    raise ValueError(f"the SciWorld expert knows no plan for this task: {first_text!r:.300}")
