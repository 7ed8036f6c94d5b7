"""An invented region: towns with streets, the roads between them, and the places in them."""

from __future__ import annotations

import hashlib
import math
import random
import sqlite3
from dataclasses import dataclass, field
from itertools import combinations, pairwise

from agentgym_envs.webarena.sites.map.graph import metres_between

REGION = "Velmark"
TOWNS = (
    *("Aldermere", "Brackwell", "Corvale", "Dunsholt", "Eastmarch", "Fennick", "Greywater"),
    *("Hollowby", "Ironbridge Cross", "Kestrelford", "Lindmoor", "Marrowgate", "Northam Quay", "Oxbarrow"),
)
USER = "rowan"
_ORIGIN = (47.2, 11.0)  # latitude and longitude of the south-west corner
_KM_LAT = 1 / 111.2
_KM_LON = _KM_LAT / math.cos(math.radians(_ORIGIN[0]))
_WIDTH, _HEIGHT, _APART = 64.0, 46.0, 10.0  # km
_BLOCK = 0.24  # km
_STREETS = (
    *("Mill", "Bridge", "Chapel", "Station", "Orchard", "Harbour", "Quarry", "Tanner", "Weaver", "Linden", "Juniper", "Falcon"),
    *("Copper", "Garden", "Meadow", "Abbey", "Foundry", "Willow", "Market", "Castle", "Salt", "Beacon", "Cooper", "Thistle"),
)
_FIRST = (
    *("Copper", "Velvet", "Amber", "Crooked", "Silver", "Painted", "Quiet", "Merry", "Golden", "Rusty", "Blue", "Hidden", "Lucky"),
    *("Wandering", "Little", "Old", "Scarlet", "Sleepy", "Salted", "Brass"),
)
_SECOND = (
    *("Kettle", "Heron", "Lantern", "Badger", "Anchor", "Thimble", "Fiddle", "Sparrow", "Barrel", "Otter", "Compass", "Pear", "Walnut"),
    *("Fox", "Wheel", "Magpie", "Candle", "Plough"),
)
_SURNAMES = (
    "Arkwright",
    "Bellamy",
    "Corrigan",
    "Dunmore",
    "Ellery",
    "Fairfax",
    "Garrick",
    "Hartnell",
    "Inskip",
    "Jessop",
    "Kimber",
    "Lovell",
)
_TOPICS = ("Glass", "Railways", "Clocks", "Fishing", "Textiles", "Minerals", "Printing", "Bees", "Bridges", "Toys", "Maps", "Salt")
_NAMES = {
    "cafe": "{first} {second} Cafe",
    "restaurant": "{first} {second} Restaurant",
    "bakery": "{surname} Bakery {town}",
    "bank": "{surname} Bank {town}",
    "bookshop": "{first} {second} Books",
    "cinema": "{second} Cinema {town}",
    "hotel": "Hotel {first} {second}",
    "museum": "{town} Museum of {topic}",
    "park": "{surname} Park {town}",
    "pharmacy": "{surname} Pharmacy {town}",
    "school": "{surname} School {town}",
    "supermarket": "{second} Supermarket {town}",
    "petrol station": "{surname} Petrol {town}",
}
_ONCE = {"station": "{town} Station", "library": "{town} Library", "hospital": "{town} Hospital", "town hall": "{town} Town Hall"}
CATEGORIES = tuple(sorted((*_NAMES, *_ONCE)))
_ALWAYS = {"station", "hospital", "park"}
_CLOSED_SUNDAY = {"bank", "library", "town hall", "school", "bookshop", "pharmacy"}
_NO_PHONE = 0.12  # share of the places that have none

Point = tuple[float, float]


@dataclass
class _Roads:
    nodes: list[Point] = field(default_factory=list)
    edges: list[tuple[int, int, int, str, str]] = field(default_factory=list)

    def node(self, x: float, y: float) -> int:
        """Add a node, x km east and y km north of the corner; its number counts from 1."""
        self.nodes.append((round(_ORIGIN[0] + y * _KM_LAT, 5), round(_ORIGIN[1] + x * _KM_LON, 5)))
        return len(self.nodes)

    def edge(self, a: int, b: int, name: str, kind: str, bend: float = 1.0) -> None:
        metres = max(1, round(metres_between(self.nodes[a - 1], self.nodes[b - 1]) * bend))
        self.edges.append((a, b, metres, name, kind))


@dataclass(frozen=True)
class _Town:
    name: str
    x: float
    y: float
    grid: list[list[int]]
    streets: dict[int, str]  # the street that a node's houses belong to

    def gate(self, roads: _Roads, other: Point) -> int:
        """The node nearest to a point given in km."""
        target = (_ORIGIN[0] + other[1] * _KM_LAT, _ORIGIN[1] + other[0] * _KM_LON)
        return min((node for row in self.grid for node in row), key=lambda node: metres_between(roads.nodes[node - 1], target))


def seed(connection: sqlite3.Connection, rng: random.Random) -> None:
    """Fill the tables of the map."""
    roads = _Roads()
    towns = [_town(name, x, y, roads, rng) for name, (x, y) in zip(TOWNS, _sites(rng), strict=True)]
    _country_roads(towns, roads, rng)
    _motorways(towns, roads)
    fingerprint = hashlib.sha256(repr((roads.nodes, roads.edges)).encode()).hexdigest()[:16]
    connection.execute("INSERT INTO map_region VALUES (?, ?)", (REGION, fingerprint))
    connection.executemany("INSERT INTO map_nodes VALUES (?, ?, ?)", [(i, *point) for i, point in enumerate(roads.nodes, 1)])
    connection.executemany("INSERT INTO map_edges VALUES (?, ?, ?, ?, ?, ?)", [(i, *edge) for i, edge in enumerate(roads.edges, 1)])
    for i, town in enumerate(towns, 1):
        lat, lon = roads.nodes[town.grid[len(town.grid) // 2][len(town.grid[0]) // 2] - 1]
        connection.execute("INSERT INTO map_towns VALUES (?, ?, ?, ?, ?)", (i, town.name, lat, lon, 100 * rng.randint(31, 480)))
    _places(connection, towns, roads, rng)


def _sites(rng: random.Random) -> list[Point]:
    sites: list[Point] = []
    while len(sites) < len(TOWNS):
        point = (rng.uniform(2, _WIDTH - 2), rng.uniform(2, _HEIGHT - 2))
        if all(math.dist(point, other) >= _APART for other in sites):
            sites.append(point)
    return sites


def _town(name: str, x: float, y: float, roads: _Roads, rng: random.Random) -> _Town:
    """A jittered grid of streets (rows) and lanes (columns), with footpaths across some blocks."""
    rows, columns = rng.randint(4, 6), rng.randint(5, 6)
    names = rng.sample(_STREETS, rows + columns)
    street, lane = [f"{word} Street" for word in names[:rows]], [f"{word} Lane" for word in names[rows:]]

    def jitter() -> float:
        return rng.uniform(-0.12, 0.12)

    grid = [[roads.node(x + (j + jitter()) * _BLOCK, y + (i + jitter()) * _BLOCK) for j in range(columns)] for i in range(rows)]
    of_node: dict[int, str] = {}
    for i in range(rows):
        for j in range(columns):
            of_node[grid[i][j]] = rng.choice((street[i], lane[j]))
            if j + 1 < columns:
                roads.edge(grid[i][j], grid[i][j + 1], street[i], "street", 1.02)
            if i + 1 < rows:
                roads.edge(grid[i][j], grid[i + 1][j], lane[j], "street", 1.02)
            if i + 1 < rows and j + 1 < columns and rng.random() < 0.15:
                roads.edge(grid[i][j], grid[i + 1][j + 1], f"{names[i]} Footpath", "path", 1.05)
    return _Town(name, x, y, grid, of_node)


def _chain(a: _Town, b: _Town, roads: _Roads, name: str, kind: str, bends: list[Point]) -> None:
    """A way from town to town over one node for each of the bends (offsets in km from the straight line)."""
    nodes = [a.gate(roads, (b.x, b.y))]
    for i, (dx, dy) in enumerate(bends, 1):
        share = i / (len(bends) + 1)
        nodes.append(roads.node(a.x + (b.x - a.x) * share + dx, a.y + (b.y - a.y) * share + dy))
    nodes.append(b.gate(roads, (a.x, a.y)))
    for start, end in pairwise(nodes):
        roads.edge(start, end, name, kind, 1.06)


def _country_roads(towns: list[_Town], roads: _Roads, rng: random.Random) -> None:
    """A minimum spanning tree, so that every town can be reached, and a road to each town's two nearest neighbours."""

    def apart(pair: tuple[int, int]) -> float:
        a, b = towns[pair[0]], towns[pair[1]]
        return math.dist((a.x, a.y), (b.x, b.y))

    pairs = sorted(combinations(range(len(towns)), 2), key=apart)
    chosen: set[tuple[int, int]] = set()
    for town in range(len(towns)):
        chosen.update([pair for pair in pairs if town in pair][:2])
    group = list(range(len(towns)))  # Kruskal: towns of one group are connected
    for a, b in pairs:
        if group[a] != group[b]:
            chosen.add((a, b))
            group = [group[a] if g == group[b] else g for g in group]
    for a, b in sorted(chosen):
        bends = [(rng.uniform(-0.5, 0.5), rng.uniform(-0.5, 0.5)) for _ in range(max(2, int(apart((a, b)) / 2.5)))]
        _chain(towns[a], towns[b], roads, f"{towns[a].name}-{towns[b].name} Road", "road", bends)


def _motorways(towns: list[_Town], roads: _Roads) -> None:
    west_to_east = sorted(towns, key=lambda town: town.x)[1::4]
    south_to_north = sorted(towns, key=lambda town: town.y)[::4]
    for name, stops in (("Motorway M1", west_to_east), ("Motorway M2", south_to_north)):
        for a, b in pairwise(stops):
            _chain(a, b, roads, name, "motorway", [(0.3, 0.3)])


def _places(connection: sqlite3.Connection, towns: list[_Town], roads: _Roads, rng: random.Random) -> None:
    used: set[str] = set()
    phones = rng.sample(range(10_000, 100_000), 1000)
    house = 0
    for town_id, town in enumerate(towns, 1):
        nodes = rng.sample([node for row in town.grid for node in row], min(22 + rng.randint(0, 6), sum(map(len, town.grid))))
        kinds = [*_ONCE, *rng.sample([*_NAMES, *_NAMES, *_NAMES], len(nodes) - len(_ONCE))]
        for node, kind in zip(nodes, kinds, strict=True):
            name = _name(kind, town.name, used, rng)
            house = house + rng.randint(1, 9) if house < 90 else rng.randint(1, 9)
            lat, lon = (round(value + rng.uniform(-0.0003, 0.0003), 5) for value in roads.nodes[node - 1])
            phone = None if rng.random() < _NO_PHONE else f"0{town_id + 20} {phones.pop()}"
            row = (name, kind, town_id, node, f"{house} {town.streets[node]}, {town.name}", lat, lon, phone, *_hours(kind, rng))
            connection.execute(
                "INSERT INTO map_places (name, category, town_id, node_id, address, lat, lon, phone, weekdays, saturday, sunday) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            )
    places = connection.execute("SELECT id FROM map_places ORDER BY id").fetchall()
    for (place,) in sorted(map(tuple, rng.sample(places, 14))):
        connection.execute("INSERT INTO map_favourites VALUES (?, ?)", (USER, place))
    for (place,) in map(tuple, rng.sample(places, 40)):
        body = rng.choice(
            ("Worth a visit.", "Parking is behind the building.", "Crowded at noon.", "Friendly staff.", "Ring the bell twice.")
        )
        writer, day = rng.choice(("ines", "tobias", "marit")), rng.randint(1, 28)
        created = f"2023-{rng.randint(1, 5):02}-{day:02} {rng.randint(8, 20):02}:15"
        connection.execute("INSERT INTO map_notes (user, place_id, body, created) VALUES (?, ?, ?, ?)", (writer, place, body, created))


def _name(kind: str, town: str, used: set[str], rng: random.Random) -> str:
    pattern = {**_NAMES, **_ONCE}[kind]
    while True:
        words = {"first": rng.choice(_FIRST), "second": rng.choice(_SECOND), "surname": rng.choice(_SURNAMES), "topic": rng.choice(_TOPICS)}
        name = pattern.format(town=town, **words)
        if name not in used:
            used.add(name)
            return name


def _hours(kind: str, rng: random.Random) -> tuple[str, str, str]:
    """Opening hours on weekdays, on Saturday and on Sunday."""
    if kind in _ALWAYS:
        return ("open 24 hours",) * 3
    opens, closes = rng.choice((7, 8, 9, 10)), rng.choice((17, 18, 19, 20, 22))
    half = rng.choice(("00", "30"))
    weekdays, saturday = f"{opens:02}:{half}-{closes}:00", f"{opens + 1:02}:{half}-{closes - 2}:00"
    sunday = "closed" if kind in _CLOSED_SUNDAY or rng.random() < 0.25 else f"{opens + 2:02}:{half}-{closes - 3}:30"
    return weekdays, saturday, sunday
