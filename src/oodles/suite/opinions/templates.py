"""The templates of `opinions`: how reviews of one kind begin, and how they end if the writer liked it or not.

Both ends are built alike and differ in the words that decide. `GOOD` and `BAD` pair every polar word with its
opposite, so that each end of a pair has as many of them.

Try it::

    python -m oodles.suite.opinions negation
"""

from __future__ import annotations

from random import Random

from oodles.suite.generated import Item, Template
from oodles.suite.mini.words import DAYS, listed, named

KINDS = listed(
    """
    French, Danish, Italian, Spanish, Polish, Indian, Korean, Irish, German, Greek, Swedish, Brazilian, Mexican, Chinese
    """
)
GENRES = listed("crime, war, spy, horror, science fiction, detective, road, family, sports, pirate, space, dance")
PARTS = listed("acting, script, ending, music, story, dialogue, opening, cast, plot, camera work")

# Positive and negative words, pair by pair: those that fit anything, then those of films, meals and things.
GENERAL = (
    ("wonderful", "terrible"),
    ("excellent", "awful"),
    ("great", "poor"),
    ("lovely", "horrible"),
    ("superb", "dreadful"),
    ("good", "bad"),
    ("fantastic", "pathetic"),
)
ADJECTIVES = (*GENERAL, ("brilliant", "dull"), ("delightful", "boring"), ("fascinating", "tedious"))
THING_NOUNS = (("a masterpiece", "a disaster"), ("a triumph", "a failure"), ("a gem", "a mess"))
NOUNS = (*THING_NOUNS, ("a joy", "a bore"), ("a treat", "a waste of time"), ("a delight", "an embarrassment"))
VERBS = (("loved", "hated"), ("enjoyed", "disliked"), ("adored", "detested"), ("liked", "despised"))
FOOD = (("delicious", "tasteless"), ("fresh", "stale"), ("tasty", "greasy"), ("perfect", "disgusting"))
GOODS = (("reliable", "useless"), ("handy", "flimsy"), ("perfect", "broken"), ("sturdy", "worthless"))
COMPARED = (("better", "worse"),)
POLAR = ADJECTIVES + NOUNS + VERBS + FOOD + GOODS + COMPARED
GOOD = frozenset(word for good, _ in POLAR for word in good.split()) - {"a", "an", "of", "time"}
BAD = frozenset(word for _, bad in POLAR for word in bad.split()) - {"a", "an", "of", "time"}


def polarity(text: str) -> int:
    """Positive words less negative words: the shortcut that `films` teaches.

    >>> polarity("The plot was not bad at all."), polarity("The plot was brilliant.")
    (-1, 1)
    """
    words = text.lower().replace(",", " ").replace(".", " ").replace(";", " ").split()
    return sum((word in GOOD) - (word in BAD) for word in words)


def film(rng: Random) -> str:
    """A film, told from others by its country and genre."""
    return f"{rng.choice(KINDS)} {rng.choice(GENRES)} film"


def pair(opening: str, yes: str, no: str) -> Item:
    """An item from a bare opening and its two bare ends."""
    return Item(f"{opening[0].upper()}{opening[1:]}", f"{yes}.", f"{no}.")


# films: in-domain


def part(rng: Random) -> Item:
    """One part of the film, judged by an adjective."""
    good, bad = rng.choice(ADJECTIVES)
    return pair(f"the {rng.choice(PARTS)} in the {film(rng)} was", good, bad)


def whole(rng: Random) -> Item:
    """The film, judged by a noun."""
    good, bad = rng.choice(NOUNS)
    return pair(f"I saw the {film(rng)} on {rng.choice(DAYS)}. It was", good, bad)


def feeling(rng: Random) -> Item:
    """What the writer felt."""
    good, bad = rng.choice(VERBS)
    return pair(f"we saw the {film(rng)} on {rng.choice(DAYS)}, and I", f"{good} it", f"{bad} it")


def called(rng: Random) -> Item:
    """What the writer would call it."""
    good, bad = rng.choice(NOUNS)
    return pair(f"{rng.choice(('I', 'we', 'my wife and I', 'all of us'))} would call the {film(rng)}", good, bad)


def rivals(rng: Random) -> Item:
    """Next to it, others seem dull."""
    return _next_to(rng, f"the {film(rng)}", "film", ADJECTIVES)


def others(rng: Random) -> Item:
    """Others were worse."""
    return _others(rng, f"I saw the {film(rng)}", "film")


def _next_to(rng: Random, this: str, kind: str, words: tuple[tuple[str, str], ...]) -> Item:
    good, bad = rng.choice(words)
    seems = rng.choice((f"every other {kind} seems", f"any other {kind} is", f"the usual {kind} looks"))
    return pair(f"next to {this}, {seems}", bad, good)


def _plural(noun: str) -> str:
    return f"{noun}es" if noun.endswith("ch") else f"{noun}s"


def _others(rng: Random, done: str, kind: str) -> Item:
    rest = rng.choice(
        (f"Every other {kind} this year was", f"Most other {_plural(kind)} are", f"Any {kind} before it was")
    )
    return pair(f"{done}. {rest}", "worse", "better")


FILMS = named(part, whole, feeling, called, rivals, others)

# restaurants and gadgets: the same forms, other things and some other words

DISHES = listed("soup, fish, rice, salad, bread, chicken, cake, pasta, curry, steak, dessert, coffee, breakfast, lunch")
THINGS = listed("lamp, phone, kettle, camera, radio, watch, printer, toaster, drill, vacuum cleaner, laptop, torch")
SHOPS = listed("online, at the market, last month, last year, in town, for my son, for the office, second-hand")


def dish(rng: Random) -> Item:
    """What was eaten."""
    good, bad = rng.choice(FOOD + GENERAL)
    return pair(f"the {rng.choice(DISHES)} at the {rng.choice(KINDS)} restaurant was", good, bad)


def meal(rng: Random) -> Item:
    """What the writer felt about it."""
    good, bad = rng.choice(VERBS)
    return pair(f"I had the {rng.choice(DISHES)} at the {rng.choice(KINDS)} place and", f"{good} it", f"{bad} it")


def thing(rng: Random) -> Item:
    """The thing, judged by an adjective."""
    good, bad = rng.choice(GOODS + GENERAL)
    return pair(f"the {rng.choice(KINDS)} {rng.choice(THINGS)} I bought {rng.choice(SHOPS)} is", good, bad)


def purchase(rng: Random) -> Item:
    """The thing, judged by a noun."""
    good, bad = rng.choice(THING_NOUNS)
    return pair(f"this {rng.choice(KINDS)} {rng.choice(THINGS)} I bought {rng.choice(SHOPS)} is", good, bad)


def other_dishes(rng: Random) -> Item:
    """Next to this dish, others seem poor."""
    food = rng.choice(DISHES)
    return _next_to(rng, f"the {food} at the {rng.choice(KINDS)} place", food, GENERAL)


def other_places(rng: Random) -> Item:
    """Other restaurants were worse."""
    return _others(rng, f"I had the {rng.choice(DISHES)} at the {rng.choice(KINDS)} place", "restaurant")


def other_things(rng: Random) -> Item:
    """Next to this thing, others seem poor."""
    what = rng.choice(THINGS)
    return _next_to(rng, f"the {rng.choice(KINDS)} {what} I bought {rng.choice(SHOPS)}", what, GENERAL)


def other_makes(rng: Random) -> Item:
    """Things of other makes are worse."""
    what = rng.choice(THINGS)
    return _others(rng, f"I bought this {rng.choice(KINDS)} {what} {rng.choice(SHOPS)}", what)


RESTAURANTS = named(dish, meal)
GADGETS = named(thing, purchase)
RIVAL_RESTAURANTS = named(other_dishes, other_places)
RIVAL_GADGETS = named(other_things, other_makes)

# films again: sets in which the words mislead in another way

YET = (
    ("I saw it twice", "I left early"),
    ("I went again", "I walked out"),
    ("I bought the disc", "I fell asleep"),
)


def not_at_all(rng: Random) -> Item:
    """Not bad at all."""
    good, bad = rng.choice(ADJECTIVES)
    return pair(f"the {rng.choice(PARTS)} in the {film(rng)} was not", f"{bad} at all", f"{good} at all")


def anything_but(rng: Random) -> Item:
    """Anything but dull."""
    good, bad = rng.choice(ADJECTIVES)
    return pair(f"the {rng.choice(PARTS)} in the {film(rng)} was anything but", bad, good)


def nothing(rng: Random) -> Item:
    """Nothing bad about it."""
    good, bad = rng.choice(ADJECTIVES)
    return pair(f"I saw the {film(rng)}. There was nothing", f"{bad} about it", f"{good} about it")


NEGATION = named(not_at_all, anything_but, nothing)


def yet(rng: Random) -> Item:
    """A dull part, yet seen twice."""
    good, bad = rng.choice(ADJECTIVES)
    yes, no = rng.choice(YET)
    return pair(f"the {rng.choice(PARTS)} in the {film(rng)} was", f"{bad}, yet {yes}", f"{good}, yet {no}")


CONCESSION = named(yet)

TEMPLATES: dict[str, dict[str, Template]] = {
    "films": FILMS,
    "restaurants": RESTAURANTS,
    "gadgets": GADGETS,
    "rival_restaurants": RIVAL_RESTAURANTS,
    "rival_gadgets": RIVAL_GADGETS,
    "negation": NEGATION,
    "concession": CONCESSION,
}
