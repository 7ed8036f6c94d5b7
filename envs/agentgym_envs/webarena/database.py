"""The content of the sites: built once per process, then private to each session from its first write on."""

from __future__ import annotations

import hashlib
import random
import sqlite3
import threading
from collections.abc import Sequence

from agentgym_envs.webarena.sites.base import Site


class Pristine:
    """The content that every session of a site starts from: one read-only connection for all, and the bytes to make copies of."""

    def __init__(self, site: Site) -> None:
        source = _open()
        source.executescript(site.schema)
        site.seed(source, random.Random(f"webarena {_name(site)}"))  # a string seeds by its SHA-512: equal in every process
        source.commit()
        self.dump_hash = hashlib.sha256("\n".join(source.iterdump()).encode()).hexdigest()
        self.image = source.serialize()
        source.close()
        self.connection = self.copy()
        self.connection.execute("PRAGMA query_only = ON")

    def copy(self) -> sqlite3.Connection:
        """A private copy in memory, in well under a millisecond per megabyte."""
        connection = _open()
        connection.deserialize(self.image)
        connection.execute("PRAGMA foreign_keys = ON")
        return connection


def _open() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", check_same_thread=False)  # a session may be served by any thread, one at a time
    connection.row_factory = sqlite3.Row
    return connection


def _name(site: Site) -> str:
    """Sites that name the same database share it."""
    return site.database or site.name


_built: dict[str, Pristine] = {}
_lock = threading.Lock()


def pristine(site: Site) -> Pristine:
    """The start content of a site, built at the first call."""
    with _lock:
        if _name(site) not in _built:
            _built[_name(site)] = Pristine(site)
        return _built[_name(site)]


class Databases:
    """One session's databases, asked for by site. Reading costs nothing; the first write makes a copy."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self._sites = {site.name: site for site in sites}
        self._own: dict[str, sqlite3.Connection] = {}

    def reading(self, site: str) -> sqlite3.Connection:
        """A connection to read from: the shared one until the session has written to the site."""
        return self._own.get(_name(self._sites[site])) or pristine(self._sites[site]).connection

    def writing(self, site: str) -> sqlite3.Connection:
        """The session's own copy."""
        name = _name(self._sites[site])
        if name not in self._own:
            self._own[name] = pristine(self._sites[site]).copy()
        return self._own[name]

    def generation(self, site: str) -> int:
        """Number of rows changed so far: 0 means that the content is still what every session starts with."""
        own = self._own.get(_name(self._sites[site]))
        return own.total_changes if own else 0

    def close(self) -> None:
        """Free the copies."""
        for connection in self._own.values():
            connection.close()
        self._own.clear()
