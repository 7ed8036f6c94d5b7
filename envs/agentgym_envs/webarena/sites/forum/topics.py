"""What the forums are about: their names, the things that people write of, and questions that belong in one of them only."""

from __future__ import annotations

from typing import NamedTuple


class Topic(NamedTuple):
    """A forum: name, title, description, the things its posts are about, and questions that fit it and no other forum."""

    name: str
    title: str
    description: str
    things: tuple[str, ...]
    questions: tuple[str, ...]


def _topic(name: str, description: str, things: str, *questions: str) -> Topic:
    return Topic(name, name.capitalize(), description, tuple(things.split(", ")), questions)


TOPICS = (
    _topic(
        "books",
        "Novels, short stories and where to find them",
        "travel novel, ghost story, poetry collection, crime series, library card, reading lamp",
        "Which novel should I read on a long winter evening",
    ),
    _topic(
        "gardening",
        "Vegetables, flowers and the soil below",
        "raised bed, compost heap, tomato plant, rose bush, watering can, greenhouse",
        "Why do the leaves of my tomatoes turn yellow",
    ),
    _topic(
        "cycling",
        "Bicycles on roads and tracks",
        "touring bike, chain guard, saddle, bell, cargo trailer, puncture kit",
        "How often should I oil the chain of my bicycle",
    ),
    _topic(
        "astronomy",
        "Stars, planets and telescopes",
        "telescope, star atlas, comet photo, lunar map, eyepiece, red torch",
        "Can I see the rings of Saturn with a small telescope",
    ),
    _topic(
        "cooking",
        "Recipes and kitchen craft",
        "cast iron pan, onion soup, sourdough loaf, pepper mill, pickle jar, lentil stew",
        "How long should I simmer a lentil soup",
    ),
    _topic(
        "boardgames",
        "Games on tables, with dice, cards and friends",
        "dice tower, card sleeve, deduction game, hex map, cooperative game, score pad",
        "Which dice game works for six players",
    ),
    _topic(
        "photography",
        "Cameras, lenses and pictures",
        "film camera, tripod, portrait lens, light meter, dark room, camera bag",
        "Which aperture should I use for portraits",
    ),
    _topic(
        "hiking",
        "Trails, huts and boots",
        "ridge trail, mountain hut, rain jacket, walking pole, day pack, trail map",
        "How do I stop blisters on a three-day trail",
    ),
    _topic(
        "woodworking",
        "Benches, joints and chisels",
        "dovetail joint, hand plane, workbench, oak board, chisel set, bar clamp",
        "Which glue holds oak joints best",
    ),
    _topic(
        "aquariums",
        "Fish, shrimp and water plants",
        "shrimp tank, filter pump, moss ball, guppy, gravel cleaner, heater",
        "How many guppies fit into a sixty litre tank",
    ),
    _topic(
        "trains",
        "Railways, stations and timetables",
        "night train, signal box, dining car, branch line, steam engine, ticket punch",
        "Which railway line has the oldest steam engine",
    ),
    _topic(
        "chess",
        "Openings, endings and blunders",
        "gambit, rook ending, chess clock, puzzle book, club tournament, travel set",
        "How do I win a rook ending with one extra pawn",
    ),
    _topic(
        "knitting",
        "Yarn, needles and patience",
        "wool sock, cable pattern, circular needle, stitch marker, lace shawl, yarn bowl",
        "Which yarn is best for warm socks",
    ),
    _topic(
        "software",
        "Free programs and the people who write them",
        "text editor, backup script, spreadsheet, window manager, terminal font, package manager",
        "How do I undo the last commit in git",
    ),
    _topic(
        "guitars",
        "Strings, chords and amplifiers",
        "nylon string, chord chart, practice amp, capo, slide, tuning peg",
        "How often should I change the strings of my guitar",
    ),
    _topic(
        "languages",
        "Grammar, words and accents",
        "phrase book, verb table, flash card, exchange partner, dialect atlas, grammar",
        "How do I remember irregular verbs in Spanish",
    ),
    _topic(
        "birds",
        "Watching and feeding birds",
        "nest box, bird feeder, field guide, pair of binoculars, owl call, swallow nest",
        "What do robins eat in winter",
    ),
    _topic(
        "coffee",
        "Beans, grinders and cups",
        "hand grinder, paper filter, espresso cup, milk jug, roast, water kettle",
        "How fine should I grind beans for espresso",
    ),
)
ADJECTIVES = ("cheap", "second-hand", "home-made", "antique", "tiny", "sturdy", "borrowed", "unusual")
TITLES = (
    *("What makes a good {thing}?", "Is a {adjective} {thing} worth it?", "My first {thing}", "How I repaired a {adjective} {thing}"),
    *("Looking for a {adjective} {thing}", "The {thing} that changed my mind", "Three years with the same {thing}", "Show me your {thing}"),
    *("Stop buying a {adjective} {thing}", "Found a {adjective} {thing} at a flea market", "Questions about my {thing}"),
)
BODIES = (
    *("I have tried a few and cannot decide.", "It took me a whole weekend.", "Please tell me what you think.", "Pictures will follow."),
    *(
        "I am new here, so be kind.",
        "A neighbour gave me the idea.",
        "It was cheaper than I thought.",
        "Nobody in my town knows the answer.",
    ),
)
COMMENTS = (
    *("I had the same problem last year.", "This is the best advice here.", "I would not do that.", "Have you asked in a shop?"),
    *(
        "Mine broke after a month.",
        "Thanks, this helped me a lot.",
        "Could you post a picture?",
        "You will not regret it.",
        "Too expensive for me.",
    ),
    *("Try it on a small scale first.", "My grandmother did it that way.", "That is a common mistake.", "I disagree with most of this."),
    *(
        "Keep us posted.",
        "It depends on the weather.",
        "There was a thread about this in spring.",
        "Wonderful, well done!",
        "Is this still true?",
    ),
)
WORDS_A = (
    "quiet",
    "rapid",
    "mossy",
    "copper",
    "lunar",
    "gentle",
    "stormy",
    "velvet",
    "dusty",
    "amber",
    "clever",
    "frosty",
    "hollow",
    "witty",
)
WORDS_B = ("otter", "lantern", "pebble", "falcon", "thistle", "harbor", "willow", "badger", "comet", "teapot", "raven", "maple")
