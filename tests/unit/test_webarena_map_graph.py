"""Shortest paths on the map's road graph: by hand, and against Floyd and Warshall's all-pairs recursion."""

from __future__ import annotations

import math
import random
import sqlite3
from itertools import product

import pytest

from agentgym_envs.webarena.database import pristine
from agentgym_envs.webarena.sites.map import SITE
from agentgym_envs.webarena.sites.map.graph import MODES, SPEEDS, RoadGraph, metres_between, road_graph, show_metres

NODES = {1: (47.0, 11.0), 2: (47.0, 11.01), 3: (47.01, 11.01), 4: (47.01, 11.0)}
EDGES = [
    (1, 2, 500, "Mill Street", "street"),  # driving: 60 s
    (2, 3, 500, "Oak Lane", "street"),  # driving: 60 s
    (1, 3, 600, "Old Footpath", "path"),
    (1, 4, 1100, "Motorway M1", "motorway"),  # 36 s
    (4, 3, 1100, "Motorway M1", "motorway"),  # 36 s
]


@pytest.fixture
def graph() -> RoadGraph:
    return RoadGraph(NODES, EDGES)


def test_each_mode_takes_its_own_way(graph: RoadGraph) -> None:
    driving, walking, cycling = (graph.route(1, 3, mode) for mode in ("driving", "walking", "cycling"))
    assert driving is not None
    assert walking is not None
    assert cycling is not None
    assert (driving.metres, driving.nodes) == (2200, (1, 4, 3))
    assert driving.seconds == pytest.approx(72)
    assert (walking.metres, walking.nodes, walking.duration) == (600, (1, 3), "7 min")  # 600 m at 5 km/h: 432 s
    assert (cycling.metres, cycling.distance) == (600, "600 m")  # 154 s on the path, 240 s on the streets
    assert driving.steps() == ["Start on Motorway M1 and go 2.2 km", "You have arrived"]


def test_steps_name_the_turns() -> None:
    way = RoadGraph(NODES, EDGES[:2]).route(1, 3, "walking")
    assert way is not None
    assert way.steps() == ["Start on Mill Street and go 500 m", "Turn left onto Oak Lane and go 500 m", "You have arrived"]
    back = RoadGraph(NODES, EDGES[:2]).route(3, 1, "walking")
    assert back is not None
    assert back.steps()[1] == "Turn right onto Mill Street and go 500 m"


def test_start_and_goal_may_coincide_or_be_apart_for_good(graph: RoadGraph) -> None:
    here = graph.route(2, 2, "driving")
    assert here is not None
    assert (here.metres, here.duration) == (0, "0 min")
    assert RoadGraph(NODES, EDGES[3:]).route(1, 3, "walking") is None


def _all_pairs(nodes: list[int], edges: list[tuple[int, int, int, str, str]], mode: str) -> dict[tuple[int, int], float]:
    best = {(a, b): 0.0 if a == b else math.inf for a, b in product(nodes, nodes)}
    for a, b, metres, _, kind in edges:
        if kind in SPEEDS[mode]:
            best[a, b] = best[b, a] = min(best[a, b], metres / (SPEEDS[mode][kind] / 3.6))
    for k, i, j in product(nodes, nodes, nodes):
        best[i, j] = min(best[i, j], best[i, k] + best[k, j])
    return best


@pytest.mark.parametrize("mode", MODES)
def test_agrees_with_floyd_and_warshall(mode: str) -> None:
    rng = random.Random(mode)
    nodes = list(range(1, 19))
    pairs = [tuple(rng.sample(nodes, 2)) for _ in range(34)]
    edges = [
        (a, b, rng.randint(50, 3000), f"Way {i}", rng.choice(("street", "road", "motorway", "path"))) for i, (a, b) in enumerate(pairs)
    ]
    graph = RoadGraph({node: (47 + rng.random(), 11 + rng.random()) for node in nodes}, edges)
    expected = _all_pairs(nodes, edges, mode)
    for a, b in product(nodes, nodes):
        route = graph.route(a, b, mode)
        assert (math.inf if route is None else route.seconds) == pytest.approx(expected[a, b])
        if route is not None:
            assert (route.nodes[0], route.nodes[-1]) == (a, b)


def test_every_place_can_be_reached_from_every_other_by_every_mode() -> None:
    connection = pristine(SITE).connection
    graph = road_graph(connection)
    nodes = [row[0] for row in connection.execute("SELECT node_id FROM map_places ORDER BY id")]
    for mode in MODES:
        assert all(graph.route(nodes[0], node, mode) for node in nodes)


def test_no_edge_is_shorter_than_the_straight_line() -> None:
    connection = pristine(SITE).connection
    graph = road_graph(connection)
    for a, b, metres in connection.execute("SELECT a, b, metres FROM map_edges"):
        assert metres >= metres_between(graph.nodes[a], graph.nodes[b]) - 1


def test_databases_with_equal_content_share_a_graph() -> None:
    first, second = pristine(SITE).copy(), pristine(SITE).copy()
    assert road_graph(first) is road_graph(second)


def test_another_region_has_a_graph_of_its_own() -> None:
    connection = sqlite3.connect(":memory:")
    connection.executescript(SITE.schema)
    SITE.seed(connection, random.Random(1))
    assert road_graph(connection) is not road_graph(pristine(SITE).connection)


def test_distances_by_hand() -> None:
    assert metres_between((0, 0), (0, 1)) == pytest.approx(111_195, rel=1e-4)  # a degree of the equator: 2 pi 6371 km / 360
    assert [show_metres(m) for m in (0, 999.4, 999.6, 1000, 1250, 12_345)] == ["0 m", "999 m", "1.0 km", "1.0 km", "1.2 km", "12.3 km"]
