"""The `word_order` set of the embedded suite: the same words in another order.

Try it::

    python -m oodles.suite.mini word_order
"""

from random import Random

from oodles.suite.generated import Item
from oodles.suite.mini.overlap import DID, DID_TO, ROLES, some_roles
from oodles.suite.mini.words import DAYS, NAMES, item, named, two

CITIES = ("Rome", "Paris", "London", "Berlin", "Madrid", "Vienna", "Moscow", "Boston", "Chicago", "Tokyo", "Dublin")
TIMES = ("in the morning", "at noon", "last week", "after lunch", "on Sunday", "in the evening")
GIFTS = ("book", "key", "letter", "ring", "photo", "ticket", "map", "coin")
QUALITIES = (
    (("bread", "milk", "fish", "cheese"), ("fresh", "cold", "cheap", "good")),
    (("room", "kitchen", "garden", "hall"), ("big", "quiet", "clean", "bright")),
    (("road", "bridge", "path", "street"), ("long", "narrow", "old", "steep")),
    (("coat", "shirt", "hat", "scarf"), ("warm", "soft", "new", "expensive")),
    (("cat", "dog", "horse", "goat"), ("hungry", "young", "brown", "calm")),
)
CAUSES = (
    ("the road was closed", "the bridge was full"),
    ("the team was late", "the coach was angry"),
    ("the children were loud", "the dog was nervous"),
    ("the house was cold", "the family was unhappy"),
    ("the boss was ill", "the workers were worried"),
    ("the singer was famous", "the hall was full"),
    ("the shop was empty", "the owner was sad"),
    ("the baby was awake", "the mother was tired"),
    ("the match was long", "the players were hungry"),
    ("the village was poor", "the people were angry"),
    ("the guests were bored", "the cook was upset"),
    ("the pupils were happy", "the teacher was proud"),
    ("the dog was hungry", "the cat was nervous"),
    ("the king was cruel", "the people were afraid"),
    ("the train was late", "the station was crowded"),
    ("the team was weak", "the coach was sad"),
    ("the town was quiet", "the streets were empty"),
    ("the girl was shy", "her friends were silent"),
)
WEATHERS = ("rained", "snowed", "hailed", "cleared up", "got warm", "got windy")


def active_passive(rng: Random) -> Item:
    """Active and passive with a moved adverb."""
    a, b = some_roles(rng, 2)
    verb, when = rng.choice([v for v in DID_TO if v != "saw"]), rng.choice(TIMES)
    return item(f"{a} {verb} {b} {when}", f"{when} {b} was {verb} by {a}", f"{when} {a} was {verb} by {b}")


def gift(rng: Random) -> Item:
    """Giver and receiver."""
    a, b = two(rng, NAMES)
    thing, when = rng.choice(GIFTS), rng.choice(TIMES)
    premise = f"{when} {a} gave the {thing} to {b}"
    return item(premise, f"the {thing} was given to {b} by {a} {when}", f"the {thing} was given to {a} by {b} {when}")


def moved_adverb(rng: Random) -> Item:
    """An adverb moves; subject and object stay or change places."""
    a, b = two(rng, NAMES)
    verb, when = rng.choice(DID_TO), rng.choice(TIMES)
    place = rng.choice(("in the street", "at the station", "in the park", "at school"))
    return item(f"{when} {a} {verb} {b} {place}", f"{a} {verb} {b} {place} {when}", f"{b} {verb} {a} {place} {when}")


def conjuncts(rng: Random) -> Item:
    """Two clauses change places whole, or only their subjects do."""
    things, traits = rng.choice(QUALITIES)
    (a, b), (x, y) = two(rng, things), two(rng, traits)
    premise = f"the {a} was {x} and the {b} was {y}"
    return item(premise, f"the {b} was {y} and the {a} was {x}", f"the {b} was {x} and the {a} was {y}")


def journey(rng: Random) -> Item:
    """From here to there."""
    who, (a, b), day = rng.choice(NAMES), two(rng, CITIES), rng.choice(DAYS)
    verb = rng.choice(("drove", "travelled", "flew", "moved"))
    return item(
        f"{who} {verb} from {a} to {b} on {day}",
        f"on {day} {who} {verb} from {a} to {b}",
        f"on {day} {who} {verb} from {b} to {a}",
    )


def before_after(rng: Random) -> Item:
    """The clause with "before" or "after" moves, or takes the other event."""
    a, b = some_roles(rng, 2)
    (x, y), word = two(rng, DID), rng.choice(("before", "after"))
    return item(f"{a} {x} {word} {b} {y}", f"{word} {b} {y}, {a} {x}", f"{word} {a} {x}, {b} {y}")


def colour_pair(rng: Random) -> Item:
    """Two things with a colour each."""
    (a, b), (x, y) = (
        two(rng, ("cat", "dog", "horse", "hen", "goat", "cow")),
        two(rng, ("white", "black", "brown", "grey")),
    )
    near = rng.choice(("next to", "close to", "beside"))
    return item(
        f"there was a {x} {a} {near} a {y} {b}",
        f"there was a {y} {b} {near} a {x} {a}",
        f"there was a {y} {a} {near} a {x} {b}",
    )


def titles(rng: Random) -> Item:
    """Two people with a profession each."""
    (a, b), (x, y) = two(rng, NAMES), two(rng, [f"the {role}" for role in ROLES if role != "king"])
    verb = rng.choice(("met", "danced with", "played chess with", "had lunch with", "talked with"))
    return item(f"{a} {x} {verb} {b} {y}", f"{b} {y} {verb} {a} {x}", f"{b} {x} {verb} {a} {y}")


def days(rng: Random) -> Item:
    """Two days with a weather each."""
    (a, b), (x, y) = two(rng, DAYS), two(rng, WEATHERS)
    return item(
        f"on {a} it {x} and on {b} it {y}",
        f"it {y} on {b} and it {x} on {a}",
        f"it {y} on {a} and it {x} on {b}",
    )


def cause(rng: Random) -> Item:
    """Cause and effect; either clause may be the cause."""
    a, b = two(rng, rng.choice(CAUSES))
    return item(f"{a} because {b}", f"because {b}, {a}", f"because {a}, {b}")


WORD_ORDER = named(
    active_passive, gift, moved_adverb, conjuncts, journey, before_after, colour_pair, titles, days, cause
)
