"""Words and small helpers that the templates of the embedded suite share.

A template is a function from a random generator to an `Item`: one premise, a hypothesis that follows from it and one
that does not. Most templates write two versions of a scene, and `twin` picks one at random. The hypothesis of the other
version is then false, so a hypothesis alone says nothing about its label.

Try it::

    python -c "from random import Random; from oodles.suite.mini.daily import DAILY; print(DAILY['weather'](Random(0)))"
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from oodles.suite.generated import Item, Template


@dataclass(frozen=True, slots=True)
class Someone:
    """A person in a template."""

    full: str  # "an old man"
    plain: str  # "a man"
    the: str  # "the man"
    himself: str


Telling = tuple[str, str]  # a premise and the hypothesis that follows from it, but not from the other telling


def listed(text: str) -> tuple[str, ...]:
    """Split a comma-separated list; long lists are easier to read this way."""
    return tuple(" ".join(entry.split()) for entry in text.split(","))


WOMEN = listed(
    """
    Anna, Mary, Emma, Sarah, Laura, Julia, Lucy, Alice, Jane, Kate, Maria, Rachel, Susan, Helen, Ruth, Clara, Eva
    """
)
MEN = listed(
    """
    Tom, Ben, Paul, Peter, David, James, John, Daniel, Simon, Henry, Adam, Martin, Jack, Leo, George, Robert, Eric
    """
)
NAMES = WOMEN + MEN
COLOURS = ("red", "blue", "green", "yellow", "white", "black", "brown")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")

ADULTS = {"man": ("tall", "young", "old", "short", "bearded"), "woman": ("tall", "young", "old", "short", "slim")}
CHILDREN = {
    "boy": ("tall", "young", "little", "small", "friendly"),
    "girl": ("tall", "young", "little", "small", "friendly"),
}
EVERYONE = ADULTS | CHILDREN


def sentence(text: str) -> str:
    """Capitalise the first letter and close with a period."""
    return f"{text[0].upper()}{text[1:]}."


def article(noun: str) -> str:
    """Put "a" or "an" before a noun phrase; for the words used here, the first letter decides."""
    return f"{'an' if noun[0] in 'aeio' else 'a'} {noun}"


def someone(rng: Random, people: Mapping[str, Sequence[str]] = EVERYONE) -> Someone:
    """Draw a person with one modifier."""
    noun = rng.choice(tuple(people))
    himself = "himself" if noun in ("man", "boy") else "herself"
    modifier = rng.choice(people[noun])
    return Someone(article(f"{modifier} {noun}"), f"a {noun}", f"the {noun}", himself)


def namesakes(rng: Random) -> tuple[str, str, str]:
    """Draw two names of one gender and the pronoun that fits both."""
    pronoun, names = rng.choice((("she", WOMEN), ("he", MEN)))
    first, second = rng.sample(names, 2)
    return first, second, pronoun


def two(rng: Random, values: Sequence[str]) -> tuple[str, str]:
    """Draw two different values in random order."""
    first, second = rng.sample(values, 2)
    return first, second


def twin(rng: Random, one: Telling, other: Telling, neutral: str = "") -> Item:
    """Pick one of two versions at random; the hypothesis of the other does not follow."""
    told, untold = (one, other) if rng.random() < 0.5 else (other, one)
    return item(told[0], told[1], untold[1], neutral)


def item(premise: str, yes: str, no: str, neutral: str = "") -> Item:
    """Build an item from bare clauses."""
    return Item(sentence(premise), sentence(yes), sentence(no), sentence(neutral) if neutral else "")


def named(*templates: Template) -> dict[str, Template]:
    """Index templates by function name, which is also the name of their slice."""
    return {template.__name__.strip("_"): template for template in templates}
