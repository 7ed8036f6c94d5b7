"""Task families of the map."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Generator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from agentgym_envs.webarena.sites.base import Instance, Script, TaskTemplate
from agentgym_envs.webarena.sites.map.graph import MODES, Route, road_graph, show_metres
from agentgym_envs.webarena.sites.map.seed import CATEGORIES, USER
from agentgym_envs.webarena.sites.map.views import within

if TYPE_CHECKING:
    from agentgym_envs.webarena.page import Page

ORIGIN = "http://map.test"
_PLACES = "SELECT p.*, t.name AS town FROM map_places p JOIN map_towns t ON t.id = p.town_id ORDER BY p.id"
_PER_FAMILY = 14
_VERBS = {"driving": "drive", "cycling": "cycle", "walking": "walk"}
_NOTES = (
    *("Meet here at six", "Ask for Ines at the desk", "Good coffee, slow service", "Use the side entrance", "Bring cash"),
    *("Closed for works until July", "Step-free access at the back", "Book a week ahead", "Quiet in the morning"),
    *("Best seats upstairs", "Dogs are welcome", "Ticket machine is broken", "Bike stands round the corner", "No signal inside"),
)
_PROBLEMS = (
    *("The opening hours are wrong", "This place has closed for good", "The phone number is wrong", "It has moved to another street"),
    *("The name has changed", "The entrance is on the other side", "There are two entries for it"),
)

Walk = Generator[str, "Page", "Page"]
Row = sqlite3.Row


# ---- instances: read from the pristine database ----


def _sample(connection: sqlite3.Connection, family: str, count: int) -> list[Row]:
    """Distinct places in an order that depends on the family's name alone."""
    return random.Random(family).sample(connection.execute(_PLACES).fetchall(), count)


def _route(connection: sqlite3.Connection, a: Row, b: Row, mode: str) -> Route:
    route = road_graph(connection).route(a["node_id"], b["node_id"], mode)
    if route is None:
        raise ValueError(f"expected a connected road graph, found no way from {a['name']} to {b['name']}")
    return route


def _exact(answer: str) -> dict[str, Any]:
    return {"eval_types": ["string_match"], "reference_answers": {"exact_match": answer}}


def _trips(connection: sqlite3.Connection, family: str) -> list[tuple[Row, Row, str]]:
    """Pairs of places with a mode each; walks stay within one town."""
    rng = random.Random(family)
    places = connection.execute(_PLACES).fetchall()
    trips: list[tuple[Row, Row, str]] = []
    while len(trips) < _PER_FAMILY:
        mode = MODES[len(trips) % len(MODES)]
        a = rng.choice(places)
        b = rng.choice(
            [place for place in places if place["node_id"] != a["node_id"] and (mode != "walking" or place["town"] == a["town"])]
        )
        trips.append((a, b, mode))
    return trips


def _trip_instances(family: str, answer: Callable[[Route], str]) -> Callable[[sqlite3.Connection], list[Instance]]:
    def instances(connection: sqlite3.Connection) -> list[Instance]:
        return [
            Instance({"a": a["name"], "b": b["name"], "mode": mode, "verb": _VERBS[mode]}, _exact(answer(_route(connection, a, b, mode))))
            for a, b, mode in _trips(connection, family)
        ]

    return instances


def _shown_routes(connection: sqlite3.Connection) -> list[Instance]:
    found = []
    for a, b, mode in _trips(connection, "route"):
        url = f"{ORIGIN}/route/{a['id']}/{b['id']}/{mode}"
        evaluation = {"eval_types": ["url_match"], "reference_url": url}
        found.append(Instance({"a": a["name"], "b": b["name"], "mode": mode}, evaluation))
    return found


def _nearest(connection: sqlite3.Connection) -> list[Instance]:
    found = []
    for i, place in enumerate(_sample(connection, "nearest", 40)):
        category = CATEGORIES[i % len(CATEGORIES)]
        first, second = within(connection, place, category, 20_000)[:2]
        if show_metres(first[0]) != show_metres(second[0]):
            found.append(Instance({"category": category, "place": place["name"]}, _exact(first[1]["name"])))
    return found[:_PER_FAMILY]


def _around(connection: sqlite3.Connection, family: str, most: int) -> list[tuple[Row, str, str, list[str]]]:
    """(place, category, radius in km, names of what is within); places on the rim are left out."""
    found = []
    for i, place in enumerate(_sample(connection, family, 150)):
        category, radius = CATEGORIES[(3 * i) % len(CATEGORIES)], ("0.5", "1", "12", "15")[i % 4]
        names = [row["name"] for _, row in within(connection, place, category, float(radius) * 1000)]
        rim = [row for _, row in within(connection, place, category, float(radius) * 1000 + 20)]
        if 2 <= len(names) <= most and len(rim) == len(names):
            found.append((place, category, radius, names))
    return found[:_PER_FAMILY]


def _counted(connection: sqlite3.Connection) -> list[Instance]:
    around = _around(connection, "count", 20)
    return [Instance({"category": c, "radius": r, "place": p["name"]}, _exact(str(len(names)))) for p, c, r, names in around]


def _listed(connection: sqlite3.Connection) -> list[Instance]:
    found = []
    for place, category, radius, names in _around(connection, "list", 5):
        evaluation = {"eval_types": ["string_match"], "reference_answers": {"must_include": names}}
        found.append(Instance({"category": category, "radius": radius, "place": place["name"]}, evaluation))
    return found


def _fact_instances(family: str, fact: Callable[[Row], str | None]) -> Callable[[sqlite3.Connection], list[Instance]]:
    """Instances that ask a fact of one place; where the map does not know it, the answer is N/A."""

    def instances(connection: sqlite3.Connection) -> list[Instance]:
        found = []
        for place in _sample(connection, family, _PER_FAMILY + 4):
            value = fact(place)
            unknown = {"eval_types": ["string_match"], "reference_answers": {"fuzzy_match": "N/A"}}
            found.append(Instance({"place": place["name"]}, unknown if value is None else _exact(value)))
        return found

    return instances


def _compared(connection: sqlite3.Connection) -> list[Instance]:
    found = []
    for i, (a, b, c) in enumerate(zip(*[iter(_sample(connection, "compare", 90))] * 3, strict=True)):
        mode = MODES[i % 2]
        to_b, to_c = _route(connection, a, b, mode), _route(connection, a, c, mode)
        if abs(to_b.minutes - to_c.minutes) >= 2:
            params = {"a": a["name"], "b": b["name"], "c": c["name"], "mode": mode, "verb": _VERBS[mode]}
            found.append(Instance(params, _exact((b if to_b.minutes < to_c.minutes else c)["name"])))
    return found[:_PER_FAMILY]


def _two_legs(connection: sqlite3.Connection) -> list[Instance]:
    found = []
    for stops in zip(*[iter(_sample(connection, "stops", 3 * _PER_FAMILY))] * 3, strict=True):
        minutes = sum(_route(connection, a, b, "driving").minutes for a, b in pairwise(stops))
        found.append(Instance(dict(zip("abc", (stop["name"] for stop in stops), strict=True)), _exact(str(minutes))))
    return found


def _less_than(connection: sqlite3.Connection) -> list[Instance]:
    found = []
    for i, (a, b) in enumerate(zip(*[iter(_sample(connection, "less", 4 * _PER_FAMILY))] * 2, strict=True)):
        minutes = _route(connection, a, b, "driving").minutes
        limit = minutes // 5 * 5 + (5 if i % 2 else 0)
        if minutes > 5 and limit != minutes:
            params = {"a": a["name"], "b": b["name"], "limit": str(limit)}
            found.append(Instance(params, _exact("yes" if minutes < limit else "no")))
    return found[:_PER_FAMILY]


def _in_town(connection: sqlite3.Connection) -> list[Instance]:
    sql = (
        "SELECT t.name, p.category, COUNT(*) FROM map_places p JOIN map_towns t ON t.id = p.town_id "
        "GROUP BY t.id, p.category HAVING COUNT(*) >= 2 ORDER BY t.id, p.category"
    )
    rows = random.Random("town").sample(connection.execute(sql).fetchall(), _PER_FAMILY)
    return [Instance({"town": town, "category": category}, _exact(str(count))) for town, category, count in rows]


def _saved(connection: sqlite3.Connection) -> list[int]:
    return [row[0] for row in connection.execute("SELECT place_id FROM map_favourites WHERE user = ? ORDER BY place_id", (USER,))]


def _state(query: str, equals: Sequence[Sequence[object]]) -> dict[str, Any]:
    return {"eval_types": ["state_check"], "state": [{"query": query, "equals": [list(row) for row in equals]}]}


def _favourites_become(places: set[int]) -> dict[str, Any]:
    query = f"SELECT place_id FROM map_favourites WHERE user = '{USER}' ORDER BY place_id"
    return _state(query, [(place,) for place in sorted(places)])


def _to_save(connection: sqlite3.Connection) -> list[Instance]:
    saved = set(_saved(connection))
    places = [place for place in _sample(connection, "save", _PER_FAMILY + 14) if place["id"] not in saved]
    return [Instance({"place": place["name"]}, _favourites_become({*saved, place["id"]})) for place in places[:_PER_FAMILY]]


def _to_remove(connection: sqlite3.Connection) -> list[Instance]:
    saved = set(_saved(connection))
    places = [place for place in connection.execute(_PLACES) if place["id"] in saved]
    return [Instance({"place": place["name"]}, _favourites_become(saved - {place["id"]})) for place in places]


def _to_write(table: str, column: str, texts: Sequence[str]) -> Callable[[sqlite3.Connection], list[Instance]]:
    def instances(connection: sqlite3.Connection) -> list[Instance]:
        last = connection.execute(f"SELECT COALESCE(MAX(id), 0) FROM {table}").fetchone()[0]
        query = f"SELECT user, place_id, {column} FROM {table} WHERE id > {last}"
        places = _sample(connection, table, _PER_FAMILY)
        texts_of = [texts[i % len(texts)] for i in range(len(places))]
        return [
            Instance({"place": place["name"], "text": text}, _state(query, [(USER, place["id"], text)]))
            for place, text in zip(places, texts_of, strict=True)
        ]

    return instances


# ---- experts: they see pages only ----


def _directions(page: Page, a: str, b: str, mode: str = "driving") -> Walk:
    """From any page to the route between two places."""
    page = yield page.click(page.find("link", "Directions"))
    page = yield page.type_into(page.find("textbox", "From"), a)
    page = yield page.type_into(page.find("textbox", "To"), b)
    if mode != MODES[0]:
        page = yield page.click(page.find("option", mode))
    return (yield page.click(page.find("button", "Get directions")))


def _next_route(page: Page, a: str, b: str) -> Walk:
    """From one route to another of the same mode, by the form below the steps."""
    page = yield page.type_into(page.find("textbox", "From"), a)
    return (yield page.type_into(page.find("textbox", "To"), b, enter=True))


def _minutes(page: Page) -> int:
    *hours, minutes, _ = page.value("Duration").split()
    return int(minutes) + (60 * int(hours[0]) if hours else 0)


def _open_place(page: Page, place: str) -> Walk:
    page = yield page.type_into(page.find("textbox", "Search places"), place, enter=True)
    return (yield page.click(page.find("link", place)))


def _solve_value(term: str) -> Callable[..., Script]:
    def solve(page: Page, a: str, b: str, mode: str, verb: str) -> Script:
        page = yield from _directions(page, a, b, mode)
        yield page.stop(page.value(term))

    return solve


def _solve_route(page: Page, a: str, b: str, mode: str) -> Script:
    page = yield from _directions(page, a, b, mode)
    yield page.stop()


def _solve_fact(term: str) -> Callable[..., Script]:
    def solve(page: Page, place: str) -> Script:
        page = yield from _open_place(page, place)
        value = page.value(term)
        yield page.stop("N/A" if value == "not known" else value)

    return solve


def _nearby(page: Page, place: str, category: str, radius: str) -> Walk:
    page = yield from _open_place(page, place)
    page = yield page.click(page.find("link", "What is nearby"))
    page = yield page.type_into(page.find("textbox", "Category"), category)
    return (yield page.type_into(page.find("textbox", "Radius in km"), radius, enter=True))


def _solve_nearest(page: Page, category: str, place: str) -> Script:
    page = yield from _nearby(page, place, category, "20")
    yield page.stop(page.rows("Nearest first")[0].texts[0])


def _solve_count(page: Page, category: str, radius: str, place: str) -> Script:
    page = yield from _nearby(page, place, category, radius)
    total = next(node.name for node in page.nodes if f" within {radius} km" in node.name)
    yield page.stop(total.split()[0])


def _solve_list(page: Page, category: str, radius: str, place: str) -> Script:
    page = yield from _nearby(page, place, category, radius)
    yield page.stop(", ".join(row.texts[0] for row in page.rows("Nearest first")))


def _solve_compare(page: Page, a: str, b: str, c: str, mode: str, verb: str) -> Script:
    page = yield from _directions(page, a, b, mode)
    first = _minutes(page)
    page = yield from _next_route(page, a, c)
    yield page.stop(b if first < _minutes(page) else c)


def _solve_stops(page: Page, a: str, b: str, c: str) -> Script:
    page = yield from _directions(page, a, b)
    first = _minutes(page)
    page = yield from _next_route(page, b, c)
    yield page.stop(str(first + _minutes(page)))


def _solve_less(page: Page, a: str, b: str, limit: str) -> Script:
    page = yield from _directions(page, a, b)
    yield page.stop("yes" if _minutes(page) < int(limit) else "no")


def _solve_town(page: Page, town: str, category: str) -> Script:
    page = yield page.click(page.find("link", "Towns"))
    page = yield page.click(page.find("link", town))
    count = 0
    while True:
        kinds = [row.texts[1] for row in page.rows("Places")]
        count += kinds.count(category)
        if kinds[-1] > category or not page.has("link", "Next page"):
            break
        page = yield page.click(page.find("link", "Next page"))
    yield page.stop(str(count))


def _solve_button(button: str) -> Callable[..., Script]:
    def solve(page: Page, place: str) -> Script:
        page = yield from _open_place(page, place)
        page = yield page.click(page.find("button", button))
        yield page.stop()

    return solve


def _solve_write(field: str) -> Callable[..., Script]:
    def solve(page: Page, place: str, text: str) -> Script:
        page = yield from _open_place(page, place)
        page = yield page.type_into(page.find("textbox", field), text, enter=True)
        yield page.stop()

    return solve


def _template(
    name: str, intent: str, instances: Callable[..., list[Instance]], solve: Callable[..., Script], changes: bool = False
) -> TaskTemplate:
    return TaskTemplate(f"map.{name}", "map", intent, changes, instances, solve)


_AS_SHOWN = " Answer exactly as the map shows it."
TEMPLATES = (
    _template(
        "distance",
        "What is the length of the {mode} route from {a} to {b}?" + _AS_SHOWN,
        _trip_instances("distance", lambda route: route.distance),
        _solve_value("Distance"),
    ),
    _template(
        "duration",
        "How long does it take to {verb} from {a} to {b}?" + _AS_SHOWN,
        _trip_instances("duration", lambda route: route.duration),
        _solve_value("Duration"),
    ),
    _template("route", "Show me the {mode} route from {a} to {b}.", _shown_routes, _solve_route),
    _template("nearest", "Which {category} is nearest to {place}, as the crow flies? Answer with its name.", _nearest, _solve_nearest),
    _template(
        "count_within",
        "How many places of the category {category} are within {radius} km of {place}, straight line?",
        _counted,
        _solve_count,
    ),
    _template("list_within", "List every {category} within {radius} km of {place}, straight line, by name.", _listed, _solve_list),
    _template(
        "address",
        "What is the address of {place}?" + _AS_SHOWN,
        _fact_instances("address", lambda row: row["address"]),
        _solve_fact("Address"),
    ),
    _template(
        "phone",
        "What is the phone number of {place}? Answer N/A if the map does not know it.",
        _fact_instances("phone", lambda row: row["phone"]),
        _solve_fact("Phone"),
    ),
    _template(
        "coordinates",
        "What are the coordinates of {place}? Answer as LATITUDE, LONGITUDE.",
        _fact_instances("coordinates", lambda row: f"{row['lat']:.5f}, {row['lon']:.5f}"),
        _solve_fact("Coordinates"),
    ),
    _template(
        "hours",
        "When is {place} open on Sundays?" + _AS_SHOWN,
        _fact_instances("hours", lambda row: row["sunday"]),
        _solve_fact("Sunday"),
    ),
    _template("compare", "I am at {a}. Which can I reach sooner if I {verb}: {b} or {c}? Answer with its name.", _compared, _solve_compare),
    _template(
        "two_stops", "How many minutes is the drive from {a} to {b} and on to {c} in all? Answer with a number.", _two_legs, _solve_stops
    ),
    _template("less_than", "Does the drive from {a} to {b} take less than {limit} minutes? Answer yes or no.", _less_than, _solve_less),
    _template("town_count", "How many places of the category {category} does the map show in {town}?", _in_town, _solve_town),
    _template("save", "Save {place} to my favourites.", _to_save, _solve_button("Save to favourites"), True),
    _template("remove", "Take {place} out of my favourites.", _to_remove, _solve_button("Remove from favourites"), True),
    _template("note", 'Add the note "{text}" to {place}.', _to_write("map_notes", "body", _NOTES), _solve_write("Your note"), True),
    _template(
        "report",
        'Report this problem with {place}: "{text}".',
        _to_write("map_reports", "problem", _PROBLEMS),
        _solve_write("What is wrong here"),
        True,
    ),
)
