"""Reading single facts out of passage texts, and comparing the names and numbers read."""

from __future__ import annotations

import re
from collections.abc import Callable

from agentgym_envs.searchqa.grading import fold

#: Answer first, aliases after it; empty if the passage does not say, or says several things.
Reading = tuple[str, ...]
_ABBREVIATIONS = {
    "us": "United States",
    "usa": "United States",
    "uk": "United Kingdom",
    "uae": "United Arab Emirates",
    "nz": "New Zealand",
    "drc": "Democratic Republic of the Congo",
}
_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December")


def canonical(name: str) -> str:
    """A country's full name for one of the Factbook's abbreviations, else the name itself; without a leading "the"."""
    name = name.strip().removeprefix("the ").removeprefix("The ")
    return _ABBREVIATIONS.get(name.lower(), name)


def same_name(a: str, b: str) -> bool:
    """Whether two spellings name the same entity: accents, case, abbreviations and "the" do not matter."""
    return fold(canonical(a)) == fold(canonical(b))


def amount(text: str) -> float:
    """The first number in a value such as ``6,893 m``. Raises ``ValueError`` if there is none."""
    found = re.search(r"\d[\d,]*(?:\.\d+)?", text)
    if found is None:
        raise ValueError(f"expected a number, found {text!r:.80}")
    return float(found[0].replace(",", ""))


def days(text: str) -> float:
    """A date such as ``12 July 1979`` as a number that grows with time."""
    day, month, year = text.split()
    return int(year) * 372 + _MONTHS.index(month) * 31 + int(day)


def pattern(expression: str, refuse: str = r"(?!)") -> Callable[[str], Reading]:
    """Read group ``a`` and, as an alias, group ``b``; nothing where ``refuse`` is found in the answer."""
    compiled, refused = re.compile(expression), re.compile(refuse, re.IGNORECASE)

    def read(text: str) -> Reading:
        match = compiled.search(text)
        if match is None or refused.search(match["a"]):
            return ()
        return _with_aliases(*(g for g in match.groupdict().values() if g))

    return read


def measure(expression: str, unit: str, *other_units: str) -> Callable[[str], Reading]:
    """Read a number with its unit; aliases are the number alone and the number with other names of the unit."""
    compiled = re.compile(expression)

    def read(text: str) -> Reading:
        match = compiled.search(text)
        return (f"{match[1]} {unit}", match[1], *(f"{match[1]} {other}" for other in other_units)) if match else ()

    return read


def date(expression: str) -> Callable[[str], Reading]:
    """Read group ``a``, a day and month with or without a year; the alias has the month first."""
    compiled = re.compile(expression)

    def read(text: str) -> Reading:
        match = compiled.search(text)
        if match is None or match["a"].split()[1] not in _MONTHS:
            return ()
        day, month, *year = match["a"].split()
        return (match["a"], " ".join([month, day, *year]))

    return read


def _with_aliases(answer: str, *others: str) -> Reading:
    plain = "".join(c for c in fold(answer) if c.isprintable())
    return tuple(dict.fromkeys([answer, *others, *([plain] if plain != answer.lower() else [])]))


def _neighbours(text: str) -> list[tuple[float, str]]:
    match = re.search(r"border countries: ([^|]+)", text)
    parts = [re.fullmatch(r"\s*([^\d(]+?)\s+([\d,.]+) km\s*", part) for part in re.split("[;]", match[1])] if match else []
    return [(amount(p[2]), p[1]) for p in parts if p] if all(parts) else []


def longest_border(text: str) -> Reading:
    """The neighbour with the longest land border, of several."""
    ranked = sorted(_neighbours(text), reverse=True)
    return _country(ranked[0][1]) if len(ranked) > 1 and ranked[0][0] > ranked[1][0] else ()


def only_neighbour(text: str) -> Reading:
    """The neighbour of a country that has one."""
    found = _neighbours(text)
    return _country(found[0][1]) if len(found) == 1 else ()


def first_partner(text: str) -> Reading:
    """The trade partner with the largest share."""
    match = re.match(r"([^\d%,]+) (\d+)%, [^\d%,]+ (\d+)%", text)
    return _country(match[1]) if match and int(match[2]) > int(match[3]) else ()


def _proper(name: str) -> str:
    return name.title() if name.isupper() else name  # the Factbook prints capitals of countries in capital letters


def former_rule(text: str) -> Reading:
    """The one country or union that independence was gained from."""
    match = re.fullmatch(r"\d{1,2} [A-Z][a-z]+ \d{4} \(from (?:the )?([^)\d;,]+)\)", text)
    vague = r"mandate|administ|trustee|\b(?:and|or|rule)\b"
    return _country(match[1]) if match and not re.search(vague, match[1]) else ()


def _country(name: str) -> Reading:
    full = canonical(name)
    return tuple(dict.fromkeys([*_with_aliases(full), name, *(a.upper() for a, n in _ABBREVIATIONS.items() if n == full)]))


def largest_city(text: str) -> Reading:
    """The most populous city of those named, if there are several."""
    found = re.findall(r"([\d.,]*\d)( million)? ([^\d,(|]+?)(?= \(|,|$)", text)
    ranked = sorted(((amount(n) * (1e6 if m else 1), city) for n, m, city in found), reverse=True)
    return _with_aliases(_proper(ranked[0][1])) if len(ranked) > 1 and ranked[0][0] > ranked[1][0] else ()
