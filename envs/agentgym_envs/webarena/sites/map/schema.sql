CREATE TABLE map_region (name TEXT NOT NULL, fingerprint TEXT NOT NULL);
CREATE TABLE map_towns (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, lat REAL NOT NULL, lon REAL NOT NULL, population INTEGER NOT NULL);
CREATE TABLE map_nodes (id INTEGER PRIMARY KEY, lat REAL NOT NULL, lon REAL NOT NULL);
CREATE TABLE map_edges (
    id INTEGER PRIMARY KEY,
    a INTEGER NOT NULL REFERENCES map_nodes (id),
    b INTEGER NOT NULL REFERENCES map_nodes (id),
    metres INTEGER NOT NULL,
    name TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('street', 'road', 'motorway', 'path'))
);
CREATE TABLE map_places (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE COLLATE NOCASE,
    category TEXT NOT NULL,
    town_id INTEGER NOT NULL REFERENCES map_towns (id),
    node_id INTEGER NOT NULL REFERENCES map_nodes (id),
    address TEXT NOT NULL,
    lat REAL NOT NULL,
    lon REAL NOT NULL,
    phone TEXT,
    weekdays TEXT NOT NULL,
    saturday TEXT NOT NULL,
    sunday TEXT NOT NULL
);
CREATE INDEX map_places_category ON map_places (category, town_id);
CREATE INDEX map_places_town ON map_places (town_id);
CREATE TABLE map_favourites (user TEXT NOT NULL, place_id INTEGER NOT NULL REFERENCES map_places (id), PRIMARY KEY (user, place_id)) WITHOUT ROWID;
CREATE TABLE map_notes (
    id INTEGER PRIMARY KEY,
    user TEXT NOT NULL,
    place_id INTEGER NOT NULL REFERENCES map_places (id),
    body TEXT NOT NULL,
    created TEXT NOT NULL
);
CREATE INDEX map_notes_place ON map_notes (place_id);
CREATE TABLE map_reports (
    id INTEGER PRIMARY KEY,
    user TEXT NOT NULL,
    place_id INTEGER NOT NULL REFERENCES map_places (id),
    problem TEXT NOT NULL,
    created TEXT NOT NULL
);
