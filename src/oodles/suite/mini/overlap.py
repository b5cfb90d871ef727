"""The `overlap` set of the embedded suite: the wrong hypothesis also reuses the words of the premise.

Try it::

    python -m oodles.suite.mini overlap
"""

from random import Random

from oodles.suite.generated import Item
from oodles.suite.mini.words import item, listed, named, two

ROLES = listed(
    """
    doctor, actor, judge, lawyer, king, guard, nurse, artist, student, teacher, singer, farmer, manager, writer,
    pilot, driver
    """
)
DID = ("slept", "danced", "left", "smiled", "waited", "laughed", "shouted", "arrived", "ran", "cried")
STAYING = ("slept", "danced", "smiled", "waited", "laughed", "shouted", "cried")  # what one can do in a room
DID_TO = ("called", "paid", "saw", "thanked", "helped", "followed", "greeted", "visited", "stopped", "advised")


def some_roles(rng: Random, count: int) -> list[str]:
    """Draw different roles, each with its article."""
    return [f"the {role}" for role in rng.sample(ROLES, count)]


def near_noun(rng: Random) -> Item:
    """The noun next to the verb is not its subject."""
    a, b = some_roles(rng, 2)
    verb, near = rng.choice(STAYING), rng.choice(("next to", "behind", "in front of", "near"))
    return item(f"{a} {near} {b} {verb} in the hall", f"{a} {verb} in the hall", f"{b} {verb} in the hall")


def relative_subject(rng: Random) -> Item:
    """A relative clause stands between subject and verb."""
    a, b, c = some_roles(rng, 3)
    inner, outer = rng.sample(DID_TO, 2)
    return item(f"{a} who {inner} {b} {outer} {c}", f"{a} {outer} {c}", f"{b} {outer} {c}")


def relative_object(rng: Random) -> Item:
    """The object of a relative clause comes first."""
    a, b, c = some_roles(rng, 3)
    inner, outer = rng.sample(DID_TO, 2)
    return item(f"{a} that {b} {inner} {outer} {c}", f"{b} {inner} {a}", f"{a} {inner} {b}")


def passive(rng: Random) -> Item:
    """Who is named last in a passive is the one who acts."""
    a, b = some_roles(rng, 2)
    verb, when = rng.choice([v for v in DID_TO if v != "saw"]), rng.choice(("today", "yesterday", "again"))
    return item(f"{a} was {verb} by {b} {when}", f"{a} was {verb} {when}", f"{b} was {verb} {when}")


def conjoined_subjects(rng: Random) -> Item:
    """Both subjects act on the object, not on each other."""
    a, b, c = some_roles(rng, 3)
    verb, place = rng.choice(DID_TO), rng.choice(("at the door", "in the town", "on the stairs", "after the show"))
    return item(f"{a} and {b} {verb} {c} {place}", f"{b} {verb} {c} {place}", f"{a} {verb} {b} {place}")


def conjoined_objects(rng: Random) -> Item:
    """Both objects suffer the action of the subject."""
    a, b, c = some_roles(rng, 3)
    verb, place = rng.choice(DID_TO), rng.choice(("at the door", "in the town", "on the stairs", "after the show"))
    return item(f"{a} {verb} {b} and {c} {place}", f"{a} {verb} {c} {place}", f"{b} {verb} {c} {place}")


def known_or_hoped(rng: Random) -> Item:
    """What is known is so; what is hoped need not be."""
    a, b, c = some_roles(rng, 3)
    did, hoped = two(rng, ("left", "arrived", "slept", "waited", "smiled", "stayed"))
    fact = rng.choice(("knew", "saw", "noticed", "realised"))
    guess = rng.choice(("hoped", "feared", "dreamed"))
    halves = [f"{fact} that {b} {did}", f"{guess} that {c} {hoped}"]
    rng.shuffle(halves)
    return item(f"{a} {halves[0]} and {halves[1]}", f"{b} {did}", f"{c} {hoped}")


def condition(rng: Random) -> Item:
    """A clause after "if" or "then" is not claimed."""
    a, b, c = some_roles(rng, 3)
    did, might, would = rng.sample(DID, 3)
    claimed, unclaimed = f"{a} {did}", f"if {b} {might}, then {c} {would}"
    premise = rng.choice((f"{claimed}, and {unclaimed}", f"{unclaimed}, and in any case {claimed}"))
    return item(premise, f"{a} {did}", rng.choice((f"{b} {might}", f"{c} {would}")))


def of_phrase(rng: Random) -> Item:
    """The doctor of the king acts, not the king."""
    a, b = two(rng, ("doctor", "lawyer", "nurse", "teacher", "guard", "driver", "cook", "manager"))
    verb, place = rng.choice(STAYING), rng.choice(("in the garden", "in the office", "in the shop"))
    return item(f"the {a} of the {b} {verb} {place}", f"the {a} {verb} {place}", f"the {b} {verb} {place}")


def not_the_other(rng: Random) -> Item:
    """The name next to the verb is the one ruled out."""
    a, b = some_roles(rng, 2)
    thing = rng.choice(("wrote the letter", "opened the door", "found the ring", "won the game", "stole the map"))
    return item(f"{a}, not {b}, {thing}", f"{a} {thing}", f"{b} {thing}")


OVERLAP = named(
    near_noun,
    relative_subject,
    relative_object,
    passive,
    conjoined_subjects,
    conjoined_objects,
    known_or_hoped,
    condition,
    of_phrase,
    not_the_other,
)
