"""The `coreference` set of the embedded suite: whom or what does a pronoun stand for?

Try it::

    python -m oodles.suite.mini coreference
"""

from random import Random

from oodles.suite.generated import Item
from oodles.suite.mini.words import item, listed, named, namesakes

THINGS = ("trophy", "violin", "lamp", "statue", "doll", "clock", "vase", "bowl", "helmet", "camera", "cake", "toy")
CONTAINERS = ("box", "suitcase", "bag", "basket", "drawer", "chest", "trunk", "case")
FAULTS = listed(
    """
    broken the window, lost the key, eaten the cake, torn the map, spilled the milk, damaged the car,
    burned the soup, forgotten the tickets
    """
)
CHORES = listed(
    """
    painted the fence, repaired the roof, washed the car, cut the grass, cleaned the stairs, fixed the bike,
    carried the boxes
    """
)
PRIZES = ("won the race", "passed the exam", "won a prize", "got a new job", "won the contest", "scored three goals")


def fit(rng: Random) -> Item:
    """The thing or the container is too big; each size goes with each of them in one of the two scenes."""
    thing, container = rng.choice(THINGS), rng.choice(CONTAINERS)
    scene, big, small = rng.choice(
        (("did not fit in", thing, container), ("slid around inside", container, thing)),
    )
    size, right = rng.choice((("big", big), ("small", small)))
    wrong = container if right == thing else thing
    premise = f"the {thing} {scene} the {container} because it was too {size}"
    return item(premise, f"the {right} was too {size}", f"the {wrong} was too {size}")


def _pronoun(rng: Random, about_first: str, about_second: str, fact_first: str, fact_second: str = "") -> Item:
    """Two sentences about two people; the pronoun is the first person in one and the second in the other."""
    first, second, he = namesakes(rng)
    words = {"a": first, "b": second, "he": he}
    premise, fact, right = rng.choice(
        ((about_first, fact_first, first), (about_second, fact_second or fact_first, second)),
    )
    wrong = second if right == first else first
    return item(premise.format(**words), f"{right} {fact}", f"{wrong} {fact}")


def lift(rng: Random) -> Item:
    """Weak lifts, heavy is lifted."""
    verb = rng.choice(("lift", "carry", "pick up"))
    scene = f"{{a}} could not {verb} {{b}} because {{he}} was too "
    return _pronoun(rng, scene + "weak", scene + "heavy", "was too weak", "was too heavy")


def help_given(rng: Random) -> Item:
    """Thanks go to the helper."""
    thing = rng.choice(("help", "support", "advice"))
    scene = f"{{a}} thanked {{b}} for all the {thing} {{he}} had "
    return _pronoun(rng, scene + "received", scene + "given", f"had received {thing}", f"had given {thing}")


def race(rng: Random) -> Item:
    """The loser is slower."""
    game = rng.choice(("the race to", "the bike race to", "the ski race to", "the swimming race to"))
    scene = f"{{a}} lost {game} {{b}} because {{he}} was much "
    return _pronoun(rng, scene + "slower", scene + "faster", "was slower", "was faster")


def answer(rng: Random) -> Item:
    """One asks who does not know."""
    thing = rng.choice(("the answer", "the way", "the price", "the password", "the recipe"))
    scene = f"{{a}} asked {{b}} for {thing.replace('the way', 'directions')} because {{he}} "
    no_idea, idea = f"did not know {thing}", f"knew {thing}"
    return _pronoun(rng, scene + no_idea, scene + idea, no_idea, idea)


def money(rng: Random) -> Item:
    """The one who borrows has none."""
    thing = rng.choice(("money", "sugar", "paper", "paint", "bread", "flour"))
    scene = f"{{a}} borrowed some {thing} from {{b}} because {{he}} had "
    return _pronoun(rng, scene + "none left", scene + "plenty of it", f"had no {thing} left", f"had plenty of {thing}")


def lesson(rng: Random) -> Item:
    """The teacher can, the pupil cannot."""
    skill = rng.choice(("swim", "ski", "dance", "cook", "drive", "sing"))
    start, after = f"{{a}} taught {{b}} to {skill} because {{he}} ", f"a lesson in how to {skill}"
    return _pronoun(
        rng,
        f"{{a}} gave {{b}} {after} because {{he}} could {skill} very well",
        start + f"could not {skill} at all",
        f"could {skill} very well",
        f"could not {skill} at all",
    )


def phone(rng: Random) -> Item:
    """The caller waits, the called one does not pick up."""
    scene = rng.choice(("{a} phoned {b} at noon, but {he} ", "{a} rang {b} last night, but {he} "))
    return _pronoun(rng, scene + "got no answer", scene + "did not pick up", "got no answer", "did not pick up")


def view(rng: Random) -> Item:
    """The tall one stands in the way of the short one."""
    sight = rng.choice(("see the stage", "see the screen", "watch the game", "see the parade"))
    scene = f"{{a}} could not {sight} behind {{b}} because {{he}} was too "
    return _pronoun(rng, scene + "short", scene + "tall", "was too short", "was too tall")


def hiding(rng: Random) -> Item:
    """One hides, one seeks."""
    scene = rng.choice(("{a} could not find {b} because {he} ", "{a} did not find {b} because {he} "))
    seek, hide = "was looking in the wrong place", "was hiding very well"
    return _pronoun(rng, scene + seek, scene + hide, seek, hide)


def hospital(rng: Random) -> Item:
    """The visitor is well, the patient is ill."""
    gift, event = rng.choice(("flowers", "soup", "books", "fruit")), rng.choice(("party", "wedding", "concert", "show"))
    return _pronoun(
        rng,
        f"{{a}} could not come to {{b}}'s {event} because {{he}} was ill in bed",
        f"{{a}} brought {{b}} some {gift} because {{he}} was ill in bed",
        "was ill in bed",
    )


def wage(rng: Random) -> Item:
    """The one who works is paid."""
    chore = rng.choice(CHORES)
    scene = f"{{b}} because {{he}} had {chore}"
    return _pronoun(rng, "{a} was paid by " + scene, "{a} paid " + scene, f"had {chore}")


def fault(rng: Random) -> Item:
    """The guilty one says sorry, the other one is angry."""
    did = rng.choice(FAULTS)
    scene = f"{{b}} because {{he}} had {did}"
    angry = rng.choice(("shouted at", "was angry with", "scolded"))
    return _pronoun(rng, "{a} apologised to " + scene, f"{{a}} {angry} " + scene, f"had {did}")


def success(rng: Random) -> Item:
    """The winner boasts, the other one congratulates."""
    did = rng.choice(PRIZES)
    scene = f"{{b}} because {{he}} had {did}"
    return _pronoun(rng, "{a} boasted to " + scene, "{a} congratulated " + scene, f"had {did}")


def promise(rng: Random) -> Item:
    """A promise binds the one who gives it."""
    duty = rng.choice(("wash the car", "feed the cat", "buy the bread", "water the plants", "lock the door"))
    return _pronoun(
        rng,
        f"{{a}} promised {{b}} that {{he}} would {duty}",
        f"{{a}} made {{b}} promise that {{he}} would {duty}",
        f"was supposed to {duty}",
    )


COREFERENCE = named(
    fit, lift, help_given, race, answer, money, lesson, phone, view, hiding, hospital, wage, fault, success, promise
)
