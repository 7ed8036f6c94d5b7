"""The map: its content, its pages and its tasks."""

from __future__ import annotations

import pytest
from webarena_pages_factory import NASTY, Session, hash_in_another_process

from agentgym_envs.webarena.database import pristine
from agentgym_envs.webarena.sites.map import SITE
from agentgym_envs.webarena.testing import check_site

SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def session() -> Session:
    return Session(SITE)


def _place(session: Session, name: str) -> int:
    return int(session.rows("SELECT id FROM map_places WHERE name = ?", name)[0][0])


def test_holds_enough_content(session: Session) -> None:
    counts = {table: session.rows(f"SELECT COUNT(*) FROM map_{table}")[0][0] for table in ("towns", "places", "nodes", "edges")}
    assert counts["towns"] >= 12
    assert counts["places"] >= 300
    assert counts["nodes"] >= 400
    assert counts["edges"] > counts["nodes"]  # not a tree: there are alternatives
    assert len(pristine(SITE).image) < 1_000_000


def test_content_is_the_same_in_every_process() -> None:
    assert hash_in_another_process("map") == pristine(SITE).dump_hash


def test_the_site_keeps_to_the_contract() -> None:
    check_site(SITE, pages=60, instances=2)


@pytest.mark.slow
def test_every_task_is_solved_by_its_expert() -> None:
    check_site(SITE, pages=400, instances=None)


def test_tasks_are_many_and_distinct() -> None:
    listed = {template.id: list(template.instances(pristine(SITE).connection)) for template in SITE.templates}
    assert len(listed) == len(SITE.templates) >= 16
    assert all(len(instances) >= 12 for instances in listed.values())
    intents = [t.intent.format(**i.params) for t in SITE.templates for i in listed[t.id]]
    assert len(set(intents)) == len(intents) >= 200


def test_search_finds_by_name_address_and_category(session: Session) -> None:
    name, address = session.rows("SELECT name, address FROM map_places WHERE id = 1")[0]
    assert name in session.text("/search", q=name.upper())
    assert name in session.text("/search", q=address)
    museums = session.rows("SELECT COUNT(*) FROM map_places WHERE category = 'museum'")[0][0]
    assert f"{museums} places found" in session.text("/search", category="museum")
    assert "0 places found" in session.text("/search", q="100%_sure")


def test_pages_of_a_list_hold_every_row_once(session: Session) -> None:
    total = session.rows("SELECT COUNT(*) FROM map_places WHERE category = 'cafe'")[0][0]
    seen = [
        name
        for page in range(1, -(-total // 10) + 1)
        for (name,) in session.rows("SELECT name FROM map_places WHERE category = 'cafe'")
        if name in session.text("/search", category="cafe", page=str(page))
    ]
    assert len(seen) == len(set(seen)) == total


def test_directions_lead_to_the_route_of_the_two_places(session: Session) -> None:
    names = [row[0] for row in session.rows("SELECT name FROM map_places WHERE id IN (3, 200) ORDER BY id")]
    response = session.get("/directions", **{"from": names[0], "to": names[1].lower(), "mode": "cycling"})
    assert (response.status, response.header("Location")) == (303, "/route/3/200/cycling")
    assert f"From {names[0]} to {names[1]}" in session.text("/route/3/200/cycling")
    assert "0 min" in session.text("/route/3/3/walking")


def test_directions_say_what_is_wrong(session: Session) -> None:
    name = session.rows("SELECT name FROM map_places WHERE id = 3")[0][0]
    assert "From: enter the name of a place." in session.text("/directions", to=name)
    assert "To: no place is called 'Atlantis'." in session.text("/directions", **{"from": name, "to": "Atlantis"})
    assert "and others" in session.text("/directions", **{"from": "Hotel", "to": name})


def test_nearby_says_what_is_wrong(session: Session) -> None:
    for radius in ("0", "-3", "nan", "inf", "101", "two", ""):
        assert "The radius must be a number of kilometres" in session.text("/place/1/nearby", radius=radius)
    assert "There is no category 'volcano'" in session.text("/place/1/nearby", category="volcano")


def test_favourites_are_saved_and_removed(session: Session) -> None:
    name = "Aldermere Library"
    place = _place(session, name)
    assert name not in session.text("/favourites")
    assert session.change(f"/place/{place}/save") == f"/place/{place}"
    assert session.change(f"/place/{place}/save") == f"/place/{place}"  # again: no error, no second row
    assert session.rows("SELECT user FROM map_favourites WHERE place_id = ?", place) == [("rowan",)]
    assert name in session.text("/favourites")
    session.change(f"/place/{place}/remove")
    assert session.rows("SELECT * FROM map_favourites WHERE place_id = ?", place) == []


def test_notes_and_reports_are_stored_and_shown_as_text(session: Session) -> None:
    assert session.change("/place/5/note", body=f"  {SCRIPT}  ") == "/place/5"
    assert session.rows("SELECT user, body, created FROM map_notes WHERE body LIKE '<%'") == [("rowan", SCRIPT, "2023-06-15 12:00")]
    assert b"<script>" not in session.get("/place/5").body
    assert SCRIPT in session.text("/place/5")
    session.change("/place/5/report", problem="Closed")
    assert session.rows("SELECT place_id, problem FROM map_reports") == [(5, "Closed")]


def test_refused_forms_change_nothing(session: Session) -> None:
    assert "The note cannot be blank." in session.refusal("/place/5/note", body="  ")
    assert "too long" in session.refusal("/place/5/note", body="x" * 301)
    assert "There is no such page." in session.refusal("/place/9999/save", 404)
    assert "not logged in" in Session(SITE, logged_in=False).refusal("/place/5/save", 403)


@pytest.mark.parametrize(
    "path",
    ["/nothing", "/place/0", "/place/99999999999999999999", "/route/1/2/flying", "/route/1/9999/driving", "/place/x", "/place/1/save/x"],
)
def test_unknown_addresses_are_404(session: Session, path: str) -> None:
    assert session.get(path).status == 404


def test_a_change_needs_a_post(session: Session) -> None:
    assert session.get("/place/5/save").status == 405


@pytest.mark.parametrize("value", NASTY)
def test_no_value_makes_a_page_fail(session: Session, value: str) -> None:
    for path in ("/search", "/directions", "/place/5/nearby", "/favourites", "/route/3/200/driving", "/towns"):
        query = dict.fromkeys(("q", "category", "town", "sort", "page", "from", "to", "mode", "radius"), value)
        assert session.get(path, **query).status in (200, 303)
    for path, field in (("/place/5/note", "body"), ("/place/5/report", "problem")):
        assert session.post(path, **{field: value}).status in (303, 400)
