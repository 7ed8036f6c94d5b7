"""The road graph: shortest paths by travel time (Dijkstra 1959) for drivers, cyclists and walkers."""

from __future__ import annotations

import heapq
import math
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

#: Speeds in km/h by mode and kind of way; a kind that is missing is closed to the mode.
SPEEDS: Mapping[str, Mapping[str, float]] = {
    "driving": {"street": 30, "road": 70, "motorway": 110},
    "cycling": {"street": 15, "road": 18, "path": 14},
    "walking": {"street": 5, "road": 5, "path": 5},
}
MODES = tuple(SPEEDS)
_EARTH = 6_371_000.0  # metres
_KEPT_GRAPHS = 4


class Way(NamedTuple):
    """One direction of an edge: where it leads, its length, its name and its kind."""

    to: int
    metres: int
    name: str
    kind: str


@dataclass(frozen=True)
class Route:
    """The fastest way: metres, seconds, and (name, metres, bearing in, bearing out) of each stretch of one name."""

    metres: int
    seconds: float
    nodes: tuple[int, ...]
    stretches: tuple[tuple[str, int, float, float], ...]

    @property
    def distance(self) -> str:
        """The length as the pages show it."""
        return show_metres(self.metres)

    @property
    def minutes(self) -> int:
        """The travel time in whole minutes, at least one unless start and goal coincide."""
        return max(1, round(self.seconds / 60)) if self.metres else 0

    @property
    def duration(self) -> str:
        """The travel time as the pages show it."""
        hours, minutes = divmod(self.minutes, 60)
        return f"{hours} h {minutes} min" if hours else f"{minutes} min"

    def steps(self) -> list[str]:
        """Directions in words, one sentence for each stretch."""
        lines = []
        before: float | None = None
        for name, metres, first, last in self.stretches:
            verb = "Start on" if before is None else f"{_turn(before, first)} onto"
            lines.append(f"{verb} {name} and go {show_metres(metres)}")
            before = last
        return [*lines, "You have arrived"]


class RoadGraph:
    """Nodes with (latitude, longitude) and two-way edges ``(a, b, metres, name, kind)``."""

    def __init__(self, nodes: Mapping[int, tuple[float, float]], edges: Iterable[tuple[int, int, int, str, str]]) -> None:
        self.nodes = dict(nodes)
        self.ways: dict[int, list[Way]] = {node: [] for node in self.nodes}
        for a, b, metres, name, kind in edges:
            self.ways[a].append(Way(b, metres, name, kind))
            self.ways[b].append(Way(a, metres, name, kind))
        self.route = lru_cache(maxsize=4096)(self._route)

    def _route(self, start: int, goal: int, mode: str) -> Route | None:
        """The fastest route, or ``None`` if there is none; equal times go to the node with the smaller number."""
        speeds = {kind: speed / 3.6 for kind, speed in SPEEDS[mode].items()}
        best = {start: 0.0}
        came: dict[int, tuple[int, Way]] = {}
        queue = [(0.0, start)]
        while queue:
            seconds, node = heapq.heappop(queue)
            if node == goal:
                return self._unwind(start, goal, seconds, came)
            if seconds > best[node]:
                continue
            for way in self.ways[node]:
                if way.kind not in speeds:
                    continue
                arrival = seconds + way.metres / speeds[way.kind]
                if arrival < best.get(way.to, math.inf):
                    best[way.to] = arrival
                    came[way.to] = (node, way)
                    heapq.heappush(queue, (arrival, way.to))
        return None

    def _unwind(self, start: int, goal: int, seconds: float, came: Mapping[int, tuple[int, Way]]) -> Route:
        legs: list[tuple[int, Way]] = []
        node = goal
        while node != start:
            legs.append(came[node])
            node = came[node][0]
        legs.reverse()
        stretches = []
        for name, group in groupby(legs, key=lambda leg: leg[1].name):
            part = list(group)
            bearings = [_bearing(self.nodes[a], self.nodes[way.to]) for a, way in (part[0], part[-1])]
            stretches.append((name, sum(way.metres for _, way in part), bearings[0], bearings[1]))
        nodes = (start, *(way.to for _, way in legs))
        return Route(sum(way.metres for _, way in legs), seconds, nodes, tuple(stretches))


_graphs: dict[str, RoadGraph] = {}


def road_graph(connection: sqlite3.Connection) -> RoadGraph:
    """The graph of a database; databases with the same content share one, for no page changes it."""
    fingerprint: str = connection.execute("SELECT fingerprint FROM map_region").fetchone()[0]
    graph = _graphs.get(fingerprint)
    if graph is None:
        nodes = {row[0]: (row[1], row[2]) for row in connection.execute("SELECT id, lat, lon FROM map_nodes")}
        graph = RoadGraph(nodes, map(tuple, connection.execute("SELECT a, b, metres, name, kind FROM map_edges ORDER BY id")))
        while len(_graphs) >= _KEPT_GRAPHS:
            _graphs.pop(next(iter(_graphs)), None)
        _graphs[fingerprint] = graph
    return graph


def metres_between(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Great-circle distance of two (latitude, longitude) points, by the haversine formula."""
    lat_a, lat_b = math.radians(a[0]), math.radians(b[0])
    half = math.sin((lat_b - lat_a) / 2) ** 2 + math.cos(lat_a) * math.cos(lat_b) * math.sin(math.radians(b[1] - a[1]) / 2) ** 2
    return 2 * _EARTH * math.asin(math.sqrt(half))


def show_metres(metres: float) -> str:
    """A length as the pages show it: metres below one kilometre, else kilometres with one decimal."""
    return f"{round(metres)} m" if round(metres) < 1000 else f"{metres / 1000:.1f} km"


def _bearing(a: tuple[float, float], b: tuple[float, float]) -> float:
    east = (b[1] - a[1]) * math.cos(math.radians(a[0]))
    return math.degrees(math.atan2(east, b[0] - a[0]))


def _turn(before: float, after: float) -> str:
    angle = (after - before + 180) % 360 - 180
    if abs(angle) < 30:
        return "Continue"
    return "Turn right" if angle > 0 else "Turn left"
