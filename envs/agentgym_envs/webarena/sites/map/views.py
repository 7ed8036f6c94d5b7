"""Pages of the map: search, places, what is nearby, directions, favourites."""

from __future__ import annotations

import sqlite3

from flask import Flask, redirect, render_template, request, url_for
from werkzeug.exceptions import NotFound
from werkzeug.wrappers import Response

from agentgym_envs.webarena.sites.base import NOW, db, user
from agentgym_envs.webarena.sites.listing import Refused, choice, form_text, like, paginate, slice_page, with_arguments
from agentgym_envs.webarena.sites.map.graph import MODES, metres_between, road_graph, show_metres
from agentgym_envs.webarena.sites.map.seed import CATEGORIES, REGION

_MAX_RADIUS = 100.0  # km
_SORTS = {"name": "p.name", "category": "p.category, p.name", "town": "t.name, p.name"}
_PLACES = "SELECT p.*, t.name AS town FROM map_places p JOIN map_towns t ON t.id = p.town_id"


def create_app() -> Flask:
    """The application of the site."""
    app = Flask(__name__)
    app.jinja_env.globals.update(user=user, region=REGION, with_arguments=with_arguments)
    for rule, view in (
        ("/", home),
        ("/search", search),
        ("/categories", categories),
        ("/towns", towns),
        ("/place/<int:place_id>", place),
        ("/place/<int:place_id>/nearby", nearby),
        ("/directions", directions),
        ("/route/<int:start>/<int:goal>/<mode>", route),
        ("/favourites", favourites),
    ):
        app.add_url_rule(rule, view_func=view)
    for rule, post in (
        ("/place/<int:place_id>/save", save),
        ("/place/<int:place_id>/remove", remove),
        ("/place/<int:place_id>/note", note),
        ("/place/<int:place_id>/report", report),
    ):
        app.add_url_rule(rule, view_func=post, methods=["POST"])
    app.register_error_handler(Refused, lambda error: (render_template("error.html", message=str(error)), error.status))
    app.register_error_handler(404, lambda _: (render_template("error.html", message="There is no such page."), 404))
    app.register_error_handler(405, lambda _: (render_template("error.html", message="This page takes no such request."), 405))
    return app


def home() -> str:
    """The first page."""
    return render_template("home.html")


def search() -> str:
    """Places whose name, address or category holds the query, with a filter by category and town."""
    sql, values = f"{_PLACES} WHERE (p.name LIKE ? ESCAPE '\\' OR p.address LIKE ? ESCAPE '\\' OR p.category LIKE ? ESCAPE '\\')", []
    values += [like(request.args.get("q", "").strip())] * 3
    for argument, column in (("category", "p.category"), ("town", "t.name")):
        if value := request.args.get(argument, "").strip():
            sql += f" AND {column} = ? COLLATE NOCASE"
            values.append(value)
    sort = choice("sort", tuple(_SORTS))
    listing = paginate(f"{sql} ORDER BY {_SORTS[sort]}, p.id", values)
    return render_template("search.html", listing=listing, sort=sort, sorts=_SORTS, categories=CATEGORIES)


def categories() -> str:
    """All categories with the number of their places."""
    rows = db().execute("SELECT category, COUNT(*) AS places FROM map_places GROUP BY category ORDER BY category").fetchall()
    return render_template("categories.html", rows=rows)


def towns() -> str:
    """All towns."""
    rows = db().execute(
        "SELECT t.name, t.population, COUNT(p.id) AS places FROM map_towns t LEFT JOIN map_places p ON p.town_id = t.id "
        "GROUP BY t.id ORDER BY t.name"
    )
    return render_template("towns.html", rows=rows.fetchall())


def place(place_id: int) -> str:
    """One place: its facts, notes and forms."""
    found = _place(place_id)
    notes = paginate("SELECT user, body, created FROM map_notes WHERE place_id = ? ORDER BY created DESC, id DESC", (place_id,), size=5)
    saved = db().execute("SELECT 1 FROM map_favourites WHERE user = ? AND place_id = ?", (user(), place_id)).fetchone()
    return render_template("place.html", place=found, notes=notes, saved=saved is not None)


def nearby(place_id: int) -> str:
    """Places of one category within a radius (km, straight line), nearest first."""
    centre = _place(place_id)
    category, radius_text = request.args.get("category", "").strip().lower(), request.args.get("radius", "2").strip()
    try:
        radius = float(radius_text)
    except ValueError:
        radius = -1.0
    error, rows = "", []
    if category and category not in CATEGORIES:
        error = f"There is no category {category!r}. Categories are: {', '.join(CATEGORIES)}."
    elif not 0 < radius <= _MAX_RADIUS:
        error = f"The radius must be a number of kilometres between 0 and {_MAX_RADIUS:.0f}."
    else:
        rows = within(db(), centre, category, radius * 1000)
    listing = slice_page([(row, show_metres(metres)) for metres, row in rows])
    status = {"category": category, "radius": radius_text}
    return render_template("nearby.html", place=centre, listing=listing, error=error, categories=CATEGORIES, **status)


def within(connection: sqlite3.Connection, centre: sqlite3.Row, category: str, metres: float) -> list[tuple[float, sqlite3.Row]]:
    """(distance in metres, place) of the other places of a category (``""``: of any) within a straight-line distance, nearest first."""
    sql, values = f"{_PLACES} WHERE p.id != ?", [centre["id"]]
    if category:
        sql, values = f"{sql} AND p.category = ?", [*values, category]
    here = (centre["lat"], centre["lon"])
    found = [(metres_between(here, (row["lat"], row["lon"])), row) for row in connection.execute(sql, values)]
    return sorted(((far, row) for far, row in found if far <= metres), key=lambda pair: (pair[0], pair[1]["id"]))


def directions() -> str | Response:
    """The form for a route; with both ends given it leads to the route."""
    names = {key: request.args.get(key, "").strip() for key in ("from", "to")}
    mode, error = choice("mode", MODES), ""
    if any(names.values()):
        try:
            start, goal = (_resolve(names[key], label) for key, label in (("from", "From"), ("to", "To")))
            return redirect(url_for("route", start=start, goal=goal, mode=mode), 303)
        except Refused as refused:
            error = str(refused)
    return render_template("directions.html", names=names, mode=mode, modes=MODES, error=error)


def route(start: int, goal: int, mode: str) -> str:
    """The fastest route between two places."""
    if mode not in MODES:
        raise NotFound
    ends = _place(start), _place(goal)
    way = road_graph(db()).route(ends[0]["node_id"], ends[1]["node_id"], mode)
    listing = slice_page(way.steps() if way else [])
    return render_template("route.html", start=ends[0], goal=ends[1], mode=mode, modes=MODES, way=way, listing=listing)


def favourites() -> str:
    """The places that the user has saved."""
    sql = f"{_PLACES} JOIN map_favourites f ON f.place_id = p.id WHERE f.user = ? ORDER BY p.name"
    return render_template("favourites.html", listing=paginate(sql, (user(),)))


def save(place_id: int) -> Response:
    """Add a place to the favourites."""
    _change(place_id, "INSERT OR IGNORE INTO map_favourites (user, place_id) VALUES (?, ?)", _user(), place_id)
    return redirect(url_for("place", place_id=place_id), 303)


def remove(place_id: int) -> Response:
    """Take a place out of the favourites."""
    _change(place_id, "DELETE FROM map_favourites WHERE user = ? AND place_id = ?", _user(), place_id)
    return redirect(url_for("favourites"), 303)


def note(place_id: int) -> Response:
    """Add a note to a place."""
    values = (_user(), place_id, form_text("body", "The note", 300), NOW.strftime("%Y-%m-%d %H:%M"))
    _change(place_id, "INSERT INTO map_notes (user, place_id, body, created) VALUES (?, ?, ?, ?)", *values)
    return redirect(url_for("place", place_id=place_id), 303)


def report(place_id: int) -> Response:
    """Report a problem with a place to the map's editors."""
    values = (_user(), place_id, form_text("problem", "The problem", 300), NOW.strftime("%Y-%m-%d %H:%M"))
    _change(place_id, "INSERT INTO map_reports (user, place_id, problem, created) VALUES (?, ?, ?, ?)", *values)
    return redirect(url_for("place", place_id=place_id, reported=1), 303)


def _change(place_id: int, sql: str, *values: object) -> None:
    _place(place_id)
    with db():
        db().execute(sql, values)


def _user() -> str:
    if not user():
        raise Refused("You are not logged in.", 403)
    return user()


def _place(place_id: int) -> sqlite3.Row:
    row: sqlite3.Row | None = None
    if place_id < 2**63:  # what SQLite can hold
        row = db().execute(f"{_PLACES} WHERE p.id = ?", (place_id,)).fetchone()
    if row is None:
        raise NotFound
    return row


def _resolve(name: str, label: str) -> int:
    """Id of the place with that name, or of the only one whose name holds it."""
    if not name:
        raise Refused(f"{label}: enter the name of a place.")
    exact = db().execute("SELECT id FROM map_places WHERE name = ?", (name,)).fetchone()
    if exact:
        return int(exact["id"])
    found = db().execute("SELECT id, name FROM map_places WHERE name LIKE ? ESCAPE '\\' ORDER BY name LIMIT 6", (like(name),)).fetchall()
    if len(found) == 1:
        return int(found[0]["id"])
    if not found:
        raise Refused(f"{label}: no place is called {name!r}.")
    raise Refused(f"{label}: {name!r} can be {', '.join(row['name'] for row in found[:5])}{' and others' if len(found) > 5 else ''}.")
