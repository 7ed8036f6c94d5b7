"""The relations that questions ask for: how each is read from a passage, searched for and put into words.

A relation belongs to one kind of passage, whose title names its subject. :meth:`Relation.read` takes the answer out of the passage's text
by a pattern, so that facts, and an agent that knows the patterns, come from the very text that is retrieved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agentgym_envs.searchqa.readers import (
    Reading,
    amount,
    date,
    days,
    first_partner,
    former_rule,
    largest_city,
    longest_border,
    measure,
    only_neighbour,
    pattern,
)


@dataclass(frozen=True)
class Relation:
    """One relation; ``{s}`` in wordings stands for the subject, ``{v}`` for the value.

    ``asks``: questions for the value. ``clues``: noun phrases for the country with that value, and ``inverse``: questions for it.
    ``follows``: noun phrases for the value, where that is a country. ``compare``: questions which of ``{a}`` and ``{b}`` has more, for
    values that ``number`` turns into a number.
    """

    name: str
    field: str
    search: str
    read: Callable[[str], Reading]
    asks: tuple[str, ...]
    clues: tuple[str, ...] = ()
    inverse: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()
    compare: tuple[str, ...] = ()
    number: Callable[[str], float] | None = None

    def title(self, subject: str) -> str:
        """Title of the passage that tells this of a subject."""
        return f"{subject} (city)" if self.field == "city" else f"{subject}: {self.field}"

    def subject(self, title: str) -> str | None:
        """Inverse of :meth:`title`: of whom a passage tells this, None if its title is of another kind."""
        suffix = self.title("")
        return title.removesuffix(suffix) if title.endswith(suffix) else None


RELATIONS: dict[str, Relation] = {
    r.name: r
    for r in (
        Relation(
            "capital",
            "Capital",
            "{s} Capital name geographic coordinates time difference etymology",
            pattern(r"^name: (?P<a>[^;(|,]+?)(?: \||$)", "capital|none"),
            (
                "What is the capital of {s}?",
                "Which city is the capital of {s}?",
                "what's the capital city of {s}?",
                "Name the capital of {s}.",
            ),
            (
                "the country whose capital is {v}",
                "the nation that has {v} as its capital city",
                "the country governed from its capital {v}",
            ),
            ("Which country has {v} as its capital?", "{v} is the capital of which country or territory?"),
        ),
        Relation(
            "highest_point",
            "Elevation",
            "{s} Elevation highest point lowest point mean elevation",
            pattern(r"highest point: (?P<a>[^\d;(|,]+?) (?:\([^)]*\) )?[\d,.]+ m\b", "unnamed|location|km"),
            (
                "What is the highest point of {s}?",
                "Which peak or place is the highest point in {s}?",
                "What is the highest elevation of {s} called?",
            ),
            (
                "the country whose highest point is {v}",
                "the country in which {v} is the highest point",
                "the land that rises highest at {v}",
            ),
            ("{v} is the highest point of which country or territory?", "Which country's highest point is {v}?"),
        ),
        Relation(
            "elevation",
            "Elevation",
            "{s} Elevation highest point lowest point mean elevation",
            measure(r"highest point: [^\d;|]+ ([\d,]+) m\b(?!.*highest point:)", "m", "meters", "metres"),
            ("How high is the highest point of {s}, in meters?", "What is the elevation of the highest point in {s}?"),
            compare=(
                "Which has the higher highest point, {a} or {b}?",
                "Whose highest point is higher above the sea, that of {a} or that of {b}?",
            ),
            number=amount,
        ),
        Relation(
            "lowest_point",
            "Elevation",
            "{s} Elevation highest point lowest point mean elevation",
            pattern(r"lowest point: (?P<a>[^\d;(|,]+?) -?[\d,.]+ m\b", "unnamed|location|ocean|sea|km"),
            ("What is the lowest point of {s}?", "Where is the lowest point in {s}?"),
            ("the country whose lowest point is {v}", "the country in which {v} is the lowest point"),
            ("{v} is the lowest point of which country or territory?", "Which country's lowest point is {v}?"),
        ),
        Relation(
            "anthem",
            "National anthem(s)",
            "{s} National anthem(s) title lyrics music history",
            pattern(r"^title: [\"“](?P<a>[^\"”()]+)[\"”](?: \((?P<b>[^);]+)\))? \|", "national anthem"),
            (
                "What is the title of the national anthem of {s}?",
                "What is the national anthem of {s} called?",
                "Which song is the national anthem of {s}?",
            ),
            (
                'the country whose national anthem is "{v}"',
                'the nation that sings "{v}" as its anthem',
                'the country with the anthem "{v}"',
            ),
            ('"{v}" is the national anthem of which country or territory?', 'Which country has the national anthem "{v}"?'),
        ),
        Relation(
            "anthem_music",
            "National anthem(s)",
            "{s} National anthem(s) title lyrics music history",
            pattern(r"lyrics/music: [^/|;,()]+/(?P<a>[^/|;,()]+?) \|", "unknown|traditional|collectiv|none|disputed|folk|arranged| and "),
            (
                "Who composed the music of the national anthem of {s}?",
                "Who wrote the music for the anthem of {s}?",
                "The anthem of {s} was set to music by whom?",
            ),
            ("the country whose anthem has music by {v}", "the nation for which {v} composed the anthem"),
            ("For which country did {v} compose the national anthem?", "{v} wrote the music of which country's anthem?"),
        ),
        Relation(
            "anthem_lyrics",
            "National anthem(s)",
            "{s} National anthem(s) title lyrics music history",
            pattern(r"lyrics/music: (?P<a>[^/|;,()]+)/[^/|;,()]+? \|", "unknown|traditional|collectiv|none|no lyrics|disputed|folk| and "),
            ("Who wrote the lyrics of the national anthem of {s}?", "Who is the author of the words of the anthem of {s}?"),
            ("the country whose anthem has words by {v}", "the nation for which {v} wrote the anthem's lyrics"),
            ("For which country did {v} write the words of the national anthem?", "{v} wrote the lyrics of which country's anthem?"),
        ),
        Relation(
            "independence",
            "Independence",
            "{s} Independence from",
            date(r"^(?P<a>\d{1,2} [A-Z][a-z]+ \d{4}) \([^)]*\)$"),
            ("On what date did {s} become independent?", "When did {s} gain independence?", "What is the date of the independence of {s}?"),
            compare=("Which gained independence later, {a} or {b}?", "Which country became independent more recently, {a} or {b}?"),
            number=days,
        ),
        Relation(
            "independence_from",
            "Independence",
            "{s} Independence from",
            former_rule,
            ("From which country or union did {s} gain independence?", "Whose rule did {s} leave when it became independent?"),
        ),
        Relation(
            "holiday",
            "National holiday",
            "{s} National holiday Day",
            date(r"^[^,;|]+, (?P<a>\d{1,2} [A-Z][a-z]+)(?: \(\d{4}\))?$"),
            ("On which day of the year is the national holiday of {s}?", "When is the national holiday of {s} celebrated?"),
        ),
        Relation(
            "domain",
            "Internet country code",
            "{s} Internet country code",
            pattern(r"^(?P<a>\.[a-z]{2})$"),
            ("What is the internet country code of {s}?", "Which top-level domain belongs to {s}?"),
            ("the country with the internet domain {v}", "the country whose web addresses end in {v}"),
            ("Which country uses the internet country code {v}?", "The internet domain {v} belongs to which country or territory?"),
        ),
        Relation(
            "adjective",
            "Nationality",
            "{s} Nationality noun adjective",
            pattern(r"adjective: (?P<a>[A-Z][A-Za-z' -]+)$", " or "),
            ("What is the adjective for people from {s}?", "Which adjective of nationality goes with {s}?"),
        ),
        Relation(
            "currency_code",
            "Exchange rates",
            "{s} Exchange rates Currency per US dollar",
            pattern(r"^Currency: [^()|]+\((?P<a>[A-Z]{3})\) per US dollar"),
            ("What is the three-letter code of the currency of {s}?", "Which currency code is used for the money of {s}?"),
        ),
        Relation(
            "legislature",
            "Legislative branch",
            "{s} Legislative branch legislature name structure",
            pattern(r"^legislature name: (?P<a>[^(|;,]+?)(?: \((?P<b>[^);]+)\))? \|"),
            (
                "What is the legislature of {s} called?",
                "What is the name of the legislature of {s}?",
                "Which body makes the laws as the legislature of {s}?",
            ),
            ("the country whose legislature is called {v}", "the nation with a legislature named {v}"),
            ("Which country's legislature is called {v}?", "{v} is the legislature of which country or territory?"),
        ),
        Relation(
            "seats",
            "Legislative branch - lower chamber",
            "{s} Legislative branch - lower chamber number of seats chamber name",
            pattern(r"number of seats: (?P<a>\d+) \("),
            (
                "How many seats does the lower chamber of the legislature of {s} have?",
                "What is the number of seats in the lower house of {s}?",
            ),
        ),
        Relation(
            "area",
            "Area",
            "{s} Area total land water sq km",
            measure(r"^total: ([\d,.]+) sq km", "sq km", "square kilometers", "square kilometres", "km2"),
            ("What is the total area of {s}?", "How large is the total area of {s} in square kilometers?"),
            compare=("Which has the larger total area, {a} or {b}?", "Is {a} or {b} the larger one by area?"),
            number=amount,
        ),
        Relation(
            "coastline",
            "Coastline",
            "{s} Coastline km",
            measure(r"^([\d,.]+) km$", "km", "kilometers", "kilometres"),
            ("How long is the coastline of {s}?", "What is the length of the coast of {s} in kilometers?"),
            compare=("Which has the longer coastline, {a} or {b}?", "Whose coast is longer, that of {a} or that of {b}?"),
            number=amount,
        ),
        Relation(
            "life_expectancy",
            "Life expectancy at birth",
            "{s} Life expectancy at birth total population male female years",
            measure(r"^total population: ([\d.]+) years", "years"),
            ("What is the life expectancy at birth in {s}?", "How many years can a newborn in {s} expect to live?"),
            compare=(
                "Where is life expectancy higher, in {a} or in {b}?",
                "In which country do people live longer on average, {a} or {b}?",
            ),
            number=amount,
        ),
        Relation(
            "median_age",
            "Median age",
            "{s} Median age total male female years",
            measure(r"^total: ([\d.]+) years", "years"),
            ("What is the median age in {s}?", "How old is the median person in {s}?"),
            compare=(
                "Which country has the higher median age, {a} or {b}?",
                "Which population is older by median age, that of {a} or that of {b}?",
            ),
            number=amount,
        ),
        Relation(
            "symbol",
            "National symbol(s)",
            "{s} National symbol(s)",
            pattern(r"^(?P<a>[^,;(|\d]+)$"),
            ("What is the national symbol of {s}?", "Which animal, plant or thing is the national symbol of {s}?"),
            ("the country whose national symbol is the {v}", "the nation that has the {v} as its national symbol"),
            (
                "Which country or territory has the {v} as its national symbol?",
                "The {v} is the national symbol of which country or territory?",
            ),
        ),
        Relation(
            "aircraft",
            "Civil aircraft registration country code prefix",
            "{s} Civil aircraft registration country code prefix",
            pattern(r"^(?P<a>[A-Z0-9]{1,3})$"),
            (
                "What is the registration prefix of civil aircraft from {s}?",
                "With which country code prefix are aircraft of {s} registered?",
            ),
            ("the country whose civil aircraft carry the prefix {v}", "the country that registers aircraft under the prefix {v}"),
            (
                "Civil aircraft with the registration prefix {v} come from which country?",
                "Which country registers its aircraft with the prefix {v}?",
            ),
        ),
        Relation(
            "crop",
            "Agricultural products",
            "{s} Agricultural products top ten based on tonnage",
            pattern(r"^(?P<a>[^,(|]+), .*tonnage"),
            ("Which agricultural product does {s} produce most of by tonnage?", "By weight, what is the main farm product of {s}?"),
        ),
        Relation(
            "export_good",
            "Exports - commodities",
            "{s} Exports - commodities top five export commodities based on value in dollars",
            pattern(r"^(?P<a>[^,(|]+), .*based on value"),
            ("What is the most valuable export commodity of {s}?", "Which good earns {s} the most in exports?"),
        ),
        Relation(
            "largest_city",
            "Major urban areas - population",
            "{s} Major urban areas - population million capital",
            largest_city,
            ("What is the most populous city of {s}?", "Which urban area of {s} has the most inhabitants?"),
            ("the country whose most populous city is {v}", "the country with {v} as its largest urban area"),
        ),
        Relation(
            "border_length",
            "Land boundaries",
            "{s} Land boundaries total border countries",
            measure(r"^total: ([\d,.]*[1-9][\d,.]*) km", "km", "kilometers", "kilometres"),
            ("How long are the land boundaries of {s} in total?", "What is the total length of the land borders of {s}?"),
        ),
        Relation(
            "longest_border",
            "Land boundaries",
            "{s} Land boundaries total border countries",
            longest_border,
            ("With which country does {s} share its longest land border?", "Which neighbor has the longest land boundary with {s}?"),
            follows=("the neighbor with the longest land border to {s}", "the country that shares the longest land boundary with {s}"),
        ),
        Relation(
            "only_neighbour",
            "Land boundaries",
            "{s} Land boundaries total border countries",
            only_neighbour,
            ("What is the only country that {s} borders by land?", "Which country is the sole land neighbor of {s}?"),
            follows=("the only land neighbor of {s}", "the single country that borders {s} by land"),
        ),
        Relation(
            "export_partner",
            "Exports - partners",
            "{s} Exports - partners top five export partners based on percentage share of exports",
            first_partner,
            ("Which country buys the largest share of the exports of {s}?", "What is the main export partner of {s}?"),
            follows=("the main export partner of {s}", "the country that buys the largest share of exports from {s}"),
        ),
        Relation(
            "import_partner",
            "Imports - partners",
            "{s} Imports - partners top five import partners based on percentage share of imports",
            first_partner,
            ("Which country supplies the largest share of the imports of {s}?", "What is the main import partner of {s}?"),
            follows=("the main import partner of {s}", "the country that supplies the largest share of imports to {s}"),
        ),
        Relation(
            "city_country",
            "city",
            "{s} city in Population Time zone",
            pattern(r"^.+? is a city in (?P<a>.+?) \("),
            ("In which country is the city of {s}?", "Which country is {s} a city in?", "To which country does the town of {s} belong?"),
            follows=(
                "the country where the city of {s} lies",
                "the country to which the city of {s} belongs",
                "the nation in which {s} is a city",
            ),
        ),
        Relation(
            "city_timezone",
            "city",
            "{s} city in Population Time zone",
            pattern(r"Time zone: (?P<a>[A-Za-z_/-]+)\."),
            ("What is the time zone of the city of {s}?", "Which tz database time zone is used in the city of {s}?"),
        ),
        Relation(
            "city_population",
            "city",
            "{s} city in Population Time zone",
            pattern(r"Population: (?P<a>[\d,]+)\."),
            ("What is the population of the city of {s}?", "How many people live in the city of {s}?"),
        ),
    )
}
