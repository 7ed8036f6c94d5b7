"""Invented people, projects and their history on the code host."""

from __future__ import annotations

import hashlib
import random
import sqlite3
from datetime import timedelta

from agentgym_envs.webarena.sites.base import NOW

TITLE = "Codeyard"
USER = "rowan.hale"
ROLES = ("Guest", "Reporter", "Developer", "Maintainer", "Owner")
MAIN = "main"
_FIRST = (
    *("Ada", "Bruno", "Clara", "Dimitri", "Elif", "Felix", "Greta", "Hugo", "Ines", "Jonas", "Keiko", "Lena", "Marit", "Nils", "Oona"),
    *("Pavel", "Quentin", "Rosa", "Stellan", "Tobias", "Uma", "Viktor", "Wanda", "Yusuf", "Zelda", "Anton", "Bella"),
)
_LAST = (
    *(
        "Ashdown",
        "Brandt",
        "Castell",
        "Dahl",
        "Eriksen",
        "Fontaine",
        "Gruber",
        "Holloway",
        "Ibsen",
        "Jansen",
        "Kowal",
        "Lindgren",
        "Moreau",
    ),
    *("Novak", "Okafor", "Petrov", "Quist", "Ravn", "Sorel", "Tanaka", "Ueda", "Varga", "Wexler", "Yilmaz", "Zorn", "Abel", "Corvi"),
)
#: slug, description, language of the files
_PROJECTS = (
    ("tide-tables", "Predicts tides for small harbours", "python"),
    ("lantern-ui", "Widgets for reading in the dark", "javascript"),
    ("seed-vault", "Catalogue of garden seeds with reminders", "python"),
    ("packet-loom", "Weaves packet captures into timelines", "rust"),
    ("recipe-scaler", "Scales recipes to any number of guests", "python"),
    ("moss-db", "A key-value store that forgets nothing", "rust"),
    ("birdsong", "Names birds by their song", "python"),
    ("ledger-lite", "Plain-text bookkeeping for clubs", "python"),
    ("kite-router", "Routes requests by wind direction and path", "javascript"),
    ("slow-feed", "A news reader that shows ten items a day", "javascript"),
    ("grid-painter", "Pixel art on squared paper", "javascript"),
    ("night-train", "Timetables of sleeper trains", "python"),
    ("cask", "Packages command line tools into one file", "rust"),
    ("orbit-notes", "Linked notes with a sky chart", "javascript"),
    ("tiny-solver", "Linear programmes on a pocket calculator", "rust"),
    ("honeycomb", "Hexagonal maps for board games", "python"),
    ("paperclip", "Collects attachments from mail archives", "python"),
    ("weather-vane", "Forecasts from a roof-top sensor", "rust"),
    ("glossary-bot", "Explains abbreviations in chats", "python"),
    ("stone-age", "Dates stones by their layers", "python"),
    ("fog-lights", "Alerts for drivers in poor sight", "javascript"),
    ("quiet-ci", "A build server that mails only failures", "rust"),
    ("map-folder", "Folds paper maps correctly", "python"),
    ("dotfiles", "Settings for shell and editor", "shell"),
)
_OWNED = {"seed-vault", "quiet-ci", "dotfiles", "recipe-scaler", "orbit-notes"}  # by the logged-in user
_LABELS = ("bug", "feature", "documentation", "performance", "security", "question", "design", "tests")
_MILESTONES = ("v1.0", "v1.1", "v2.0")
_VERBS = ("Fix", "Add", "Remove", "Speed up", "Document", "Rename", "Test", "Simplify", "Rework", "Handle")
_THINGS = (
    *(
        "date parsing",
        "the search box",
        "error messages",
        "the settings page",
        "empty input",
        "log rotation",
        "the export",
        "keyboard shortcuts",
    ),
    *("the cache", "time zones", "the import wizard", "retries", "dark colours", "the start page", "Unicode names", "the installer"),
    *(
        "file locking",
        "table sorting",
        "the licence header",
        "slow queries",
        "the help text",
        "memory use",
        "mobile layout",
        "the progress bar",
    ),
)
_WHERE = (
    "on first start",
    "in the command line",
    "after an update",
    "in the web view",
    "for large files",
    "when offline",
    "in the nightly build",
    "on old systems",
)
_TALK = (
    *("I can reproduce this.", "Could you add a test?", "Works for me on the current release.", "Let us discuss this on Monday."),
    *("I will look into it.", "This also happens on my machine.", "Nice find!", "Thanks, that helped.", "Please rebase first."),
)
_ACTIONS = ("assigned you", "mentioned you", "requested your review")
_LICENSES = ("MIT", "Apache-2.0", "GPL-3.0", "BSD-3-Clause", "MPL-2.0")


def seed(connection: sqlite3.Connection, rng: random.Random) -> None:
    """Fill the tables of the code host."""
    me = _users(connection, rng)
    owners = [user for user in range(1, len(_FIRST) + 2) if user != me]
    stars = rng.sample(range(2, len(owners) + 1), len(_PROJECTS))
    for project, (slug, description, language) in enumerate(_PROJECTS, 1):
        owner = me if slug in _OWNED else rng.choice(owners)
        created = _moment(rng, 900, 700)
        name = slug.replace("-", " ").capitalize()
        row = (project, owner, slug, name, description, "public", created)
        connection.execute(
            "INSERT INTO lab_projects (id, owner_id, slug, name, description, visibility, created) VALUES (?, ?, ?, ?, ?, ?, ?)", row
        )
        connection.executemany(
            "INSERT INTO lab_stars VALUES (?, ?)", [(project, user) for user in sorted(rng.sample(owners, stars[project - 1]))]
        )
        team = [owner, *rng.sample([user for user in owners if user != owner], rng.randint(4, 6))]
        if owner != me and project % 3 == 0:
            team.append(me)
        _members(connection, project, team, rng)
        _files(connection, project, slug, language, rng)
        _commits(connection, project, team, rng)
        _issues(connection, project, team, rng)
        _merge_requests(connection, project, team, rng)
    _todos(connection, me, rng)


def _users(connection: sqlite3.Connection, rng: random.Random) -> int:
    """Insert the users and return the id of the one who is logged in."""
    names = [f"{first} {last}" for first, last in zip(_FIRST, rng.sample(_LAST, len(_LAST)), strict=True)]
    for name in sorted((*names, "Rowan Hale"), key=lambda name: name.split()[::-1]):
        bio = rng.choice(("", "Likes small tools.", "Mostly documentation.", "Builds things on weekends.", "Ask me about parsers."))
        row = (name.lower().replace(" ", "."), name, bio)
        connection.execute("INSERT INTO lab_users (username, name, bio) VALUES (?, ?, ?)", row)
    return int(connection.execute("SELECT id FROM lab_users WHERE username = ?", (USER,)).fetchone()[0])


def _moment(rng: random.Random, oldest: int, newest: int = 0) -> str:
    """A point in time between so many days ago and so many days ago."""
    return (NOW - timedelta(minutes=rng.randint(newest * 1440 + 60, oldest * 1440))).strftime("%Y-%m-%d %H:%M")


def _members(connection: sqlite3.Connection, project: int, team: list[int], rng: random.Random) -> None:
    roles = ["Owner", *(rng.choice(ROLES[:4]) for _ in team[1:])]
    connection.executemany(
        "INSERT INTO lab_members VALUES (?, ?, ?)", [(project, user, role) for user, role in zip(team, roles, strict=True)]
    )


def _files(connection: sqlite3.Connection, project: int, slug: str, language: str, rng: random.Random) -> None:
    version = f"{rng.randint(0, 4)}.{rng.randint(0, 12)}.{rng.randint(0, 9)}"
    port, license_name = rng.randint(3000, 9000), rng.choice(_LICENSES)
    module = slug.replace("-", "_")
    suffix = {"python": "py", "javascript": "js", "rust": "rs", "shell": "sh"}[language]
    comment = {"python": "#", "shell": "#"}.get(language, "//")
    files = {
        "README.md": f"{slug}\nInstall it, then run {module} --help.\nQuestions belong into the issues.",
        "LICENSE": f"{license_name} licence\nThe full text is at the publisher's site.",
        "VERSION": version,
        "docs/configuration.md": f"Configuration\nThe server listens on port {port}.\nLogs rotate after {rng.randint(2, 30)} days.",
        "docs/contributing.md": f"Contributing\nBranch from {MAIN}, one topic for each merge request.",
        f"src/{module}.{suffix}": f"{comment} Entry point of {slug}\n{comment} Reads its settings and starts.",
        f"src/limits.{suffix}": f"{comment} Limits\nMAX_ITEMS = {rng.randint(10, 900)}\nTIMEOUT_SECONDS = {rng.randint(5, 90)}",
        f"tests/test_{module}.{suffix}": f"{comment} Tests of {slug}",
    }
    connection.executemany("INSERT INTO lab_files VALUES (?, ?, ?)", [(project, path, content) for path, content in files.items()])


def _commits(connection: sqlite3.Connection, project: int, team: list[int], rng: random.Random) -> None:
    weights = [rng.randint(1, 9) for _ in team]
    moments = sorted(_moment(rng, 400) for _ in range(rng.randint(28, 44)))
    for number, moment in enumerate(moments):
        sha = hashlib.sha1(f"{project}/{number}/{moment}".encode()).hexdigest()[:8]
        row = (project, rng.choices(team, weights)[0], sha, f"{rng.choice(_VERBS)} {rng.choice(_THINGS)}", moment)
        connection.execute("INSERT INTO lab_commits (project_id, author_id, sha, message, created) VALUES (?, ?, ?, ?, ?)", row)


def _titles(rng: random.Random, count: int) -> list[str]:
    return [f"{rng.choice(_VERBS)} {thing} {rng.choice(_WHERE)}" for thing in rng.sample(_THINGS, count)]


def _issues(connection: sqlite3.Connection, project: int, team: list[int], rng: random.Random) -> None:
    labels = rng.sample(_LABELS, 5)
    connection.executemany("INSERT INTO lab_labels VALUES (?, ?)", [(project, label) for label in labels])
    connection.executemany("INSERT INTO lab_milestones VALUES (?, ?)", [(project, title) for title in _MILESTONES])
    count = rng.randint(13, 20)
    moments = sorted(_moment(rng, 300) for _ in range(count))
    for iid, (title, moment) in enumerate(zip(_titles(rng, count), moments, strict=True), 1):
        assignee = rng.choice(team) if rng.random() < 0.7 else None
        state = "open" if rng.random() < 0.65 else "closed"
        milestone = rng.choice((*_MILESTONES, None))
        description = f"Seen {rng.choice(_WHERE)}, version {rng.randint(0, 3)}.{rng.randint(0, 9)}. {rng.choice(_TALK)}"
        issue = connection.execute(
            "INSERT INTO lab_issues (project_id, iid, title, description, state, author_id, assignee_id, milestone, created) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (project, iid, title, description, state, rng.choice(team), assignee, milestone, moment),
        ).lastrowid
        chosen = sorted(rng.sample(labels, rng.randint(0, 2)))
        connection.executemany("INSERT INTO lab_issue_labels VALUES (?, ?)", [(issue, label) for label in chosen])
        _comments(connection, "issue_id", issue, moment, team, rng)


def _comments(connection: sqlite3.Connection, column: str, target: int | None, since: str, team: list[int], rng: random.Random) -> None:
    for moment in sorted(max(since, _moment(rng, 20)) for _ in range(rng.randint(0, 3))):
        row = (target, rng.choice(team), rng.choice(_TALK), moment)
        connection.execute(f"INSERT INTO lab_comments ({column}, author_id, body, created) VALUES (?, ?, ?, ?)", row)


def _merge_requests(connection: sqlite3.Connection, project: int, team: list[int], rng: random.Random) -> None:
    count = rng.randint(4, 7)
    moments = sorted(_moment(rng, 120) for _ in range(count))
    branches = []
    for iid, (title, moment) in enumerate(zip(_titles(rng, count), moments, strict=True), 1):
        branches.append("-".join(title.lower().split()[:4]))
        author = rng.choice(team)
        reviewer = rng.choice([user for user in team if user != author])
        state = rng.choice(("open", "open", "merged", "closed"))
        row = (project, iid, title, f"{rng.choice(_TALK)} See {MAIN}.", branches[-1], MAIN, state, author, reviewer, moment)
        merge_request = connection.execute(
            "INSERT INTO lab_merge_requests "
            "(project_id, iid, title, description, source_branch, target_branch, state, author_id, reviewer_id, created) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            row,
        ).lastrowid
        _comments(connection, "merge_request_id", merge_request, moment, team, rng)
    extra = rng.choice(("spike/new-parser", "release-candidate", "hotfix", "experiment"))  # a branch without a merge request
    names = sorted({MAIN, extra, *branches})
    connection.executemany("INSERT INTO lab_branches VALUES (?, ?)", [(project, name) for name in names])


def _todos(connection: sqlite3.Connection, me: int, rng: random.Random) -> None:
    """One to-do for each open issue assigned to the user and each open review, and some mentions."""
    rows: list[tuple[str, int | None, int | None, int]] = []
    for issue, author in connection.execute(
        "SELECT id, author_id FROM lab_issues WHERE assignee_id = ? AND state = 'open' ORDER BY id", (me,)
    ):
        rows.append((_ACTIONS[0], issue, None, author))
    for issue, author in connection.execute("SELECT id, author_id FROM lab_issues WHERE id % 29 = 7 AND author_id != ? ORDER BY id", (me,)):
        rows.append((_ACTIONS[1], issue, None, author))
    sql = "SELECT id, author_id FROM lab_merge_requests WHERE reviewer_id = ? AND state = 'open' ORDER BY id"
    for merge_request, author in connection.execute(sql, (me,)):
        rows.append((_ACTIONS[2], None, merge_request, author))
    for moment, (action, issue, merge_request, author) in zip(
        sorted(_moment(rng, 30) for _ in rows), rng.sample(rows, len(rows)), strict=True
    ):
        connection.execute(
            "INSERT INTO lab_todos (user_id, author_id, action, issue_id, merge_request_id, created) VALUES (?, ?, ?, ?, ?, ?)",
            (me, author, action, issue, merge_request, moment),
        )
