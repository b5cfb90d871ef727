"""The `negation` set of the embedded suite: negation, numbers and quantifiers.

Try it::

    python -m oodles.suite.mini negation
"""

from random import Random

from oodles.suite.generated import Item
from oodles.suite.mini.word_order import CITIES
from oodles.suite.mini.words import NAMES, NUMBERS, WOMEN, item, named, twin, two

COUNTED = ("apples", "cups", "pears", "coins", "spoons", "books", "eggs", "plates", "keys", "pens")
SPOTS = ("in the box", "on the table", "in the bag", "on the shelf", "in the drawer")
OWNED = ("books", "cousins", "hens", "stamps", "bikes", "coats", "plants", "cups")
GROUPS = (
    ("window", "windows", "open", "closed"),
    ("door", "doors", "locked", "unlocked"),
    ("cup", "cups", "full", "empty"),
    ("lamp", "lamps", "on", "off"),
    ("seat", "seats", "taken", "free"),
    ("shirt", "shirts", "clean", "dirty"),
    ("plate", "plates", "dirty", "clean"),
    ("shop", "shops", "open", "shut"),
    ("pupil", "pupils", "present", "absent"),
)
PARTY = ("danced", "sang", "ate cake", "drank tea", "played chess", "told jokes", "went for a swim", "wore a hat")
FOOD = ("fish", "cheese", "soup", "rice", "eggs", "cake", "tea", "milk", "honey", "onions")
TASKS = (
    ("lock the door", "locked the door"),
    ("feed the cat", "fed the cat"),
    ("close the window", "closed the window"),
    ("call the doctor", "called the doctor"),
    ("post the letter", "posted the letter"),
    ("pay the bill", "paid the bill"),
    ("water the plants", "watered the plants"),
    ("buy bread", "bought bread"),
    ("switch off the oven", "switched off the oven"),
)
BELONGINGS = ("keys", "phone", "umbrella", "gloves", "wallet", "glasses", "coat", "passport")
GOODS = ("lamp", "chair", "clock", "coat", "bag", "radio", "table", "watch", "kettle", "mirror")
PRICES = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
PEOPLE = ("children", "students", "workers", "guests", "farmers", "players", "singers", "neighbours")


def never(rng: Random) -> Item:
    """What was never done and what was often done."""
    who, (a, b) = rng.choice(NAMES), two(rng, CITIES)
    halves = [f"has never been to {a}", f"has often been to {b}"]
    rng.shuffle(halves)
    premise = f"{who} {halves[0]} but {halves[1]}"
    if rng.random() < 0.5:
        return item(premise, f"{who} has visited {b}", f"{who} has visited {a}")
    return item(premise, f"{who} has not visited {a}", f"{who} has not visited {b}")


def count(rng: Random) -> Item:
    """More or fewer than a number."""
    things, spot = rng.choice(COUNTED), rng.choice(SPOTS)
    few, bound, many = sorted(rng.sample(range(len(NUMBERS)), 3))
    one = (f"there are {NUMBERS[many]} {things} {spot}", f"there are more than {NUMBERS[bound]} {things} {spot}")
    other = (f"there are {NUMBERS[few]} {things} {spot}", f"there are fewer than {NUMBERS[bound]} {things} {spot}")
    return twin(rng, one, other)


def more_than(rng: Random) -> Item:
    """Compare two counts."""
    (a, b), things = two(rng, NAMES), rng.choice(OWNED)
    low, high = sorted(rng.sample(range(len(NUMBERS)), 2))
    rich, poor = f"{a} has {NUMBERS[high]}", f"{b} has {NUMBERS[low]}"
    premise = rng.choice((f"{rich} {things} and {poor}", f"{poor} {things} and {rich}"))
    word = rng.choice(("more", "fewer"))
    if word == "fewer":
        a, b = b, a
    return item(premise, f"{a} has {word} {things} than {b}", f"{b} has {word} {things} than {a}")


def every(rng: Random) -> Item:
    """All, none, or only some."""
    one_, many, yes, no = rng.choice(GROUPS)
    number = rng.choice(NUMBERS[3:])
    place = rng.choice(("today", "right now", "this morning", "at the moment"))
    whole = f"all {number} {many} are {yes} {place}"
    none = rng.choice((f"none of the {number} {many} is {yes} {place}", f"all {number} {many} are {no} {place}"))
    some = f"only two of the {number} {many} are {yes} {place}"
    pairs = (
        ((whole, f"every {one_} is {yes}"), (some, f"at least one {one_} is {no}")),
        ((none, f"no {one_} is {yes}"), (some, f"at least one {one_} is {yes}")),
        ((whole, f"no {one_} is {no}"), (none, f"no {one_} is {yes}")),
    )
    return twin(rng, *rng.choice(pairs))


def nobody(rng: Random) -> Item:
    """Everyone against no one."""
    (a, b), event = two(rng, PARTY), rng.choice(("at the party", "at the wedding", "on the ship", "at the picnic"))
    halves = [f"no one {a}", f"everyone {b}"]
    rng.shuffle(halves)
    premise = f"{event} {halves[0]} but {halves[1]}"
    if rng.random() < 0.5:
        return item(premise, f"everybody {b}", f"everybody {a}")
    return item(premise, f"nobody {a}", f"nobody {b}")


def neither_both(rng: Random) -> Item:
    """Neither of two, or both."""
    (a, b), food = two(rng, NAMES), rng.choice(FOOD)
    who = rng.choice((a, b))
    one = (f"both {a} and {b} like {food} very much", f"{who} likes {food}")
    other = (f"neither {a} nor {b} likes {food} at all", f"{who} does not like {food}")
    return twin(rng, one, other)


def at_least(rng: Random) -> Item:
    """A bound decides a comparison."""
    people, place = rng.choice(PEOPLE), rng.choice(("the lecture", "the game", "the lesson", "the concert"))
    low, mid, high = sorted(rng.sample(range(len(NUMBERS)), 3))
    one = (f"at least {NUMBERS[high]} {people} came to {place}", f"more than {NUMBERS[mid]} {people} came")
    other = (f"at most {NUMBERS[low]} {people} came to {place}", f"fewer than {NUMBERS[mid]} {people} came")
    return twin(rng, one, other)


def without(rng: Random) -> Item:
    """With or without a thing."""
    name, thing = rng.choice(NAMES), rng.choice(BELONGINGS)
    his = "her" if name in WOMEN else "his"
    place = rng.choice(("left the house", "went to work", "came to the station", "arrived at the hotel"))
    one = (f"{name} {place} without {his} {thing}", f"{name} did not bring {his} {thing} along")
    other = (f"{name} {place} and did not forget {his} {thing}", f"{name} brought {his} {thing} along")
    return twin(rng, one, other)


def forgot(rng: Random) -> Item:
    """Verbs that deny or claim what follows them."""
    name, (task, did), when = (
        rng.choice(NAMES),
        rng.choice(TASKS),
        rng.choice(("last night", "on Friday", "this morning")),
    )
    denied = rng.choice(("forgot to", "failed to", "refused to", "did not manage to"))
    claimed = rng.choice(("remembered to", "managed to", "did not forget to", "made sure to"))
    one = (f"{name} {denied} {task} {when}", f"{name} did not {task}")
    other = (f"{name} {claimed} {task} {when}", f"{name} {did}")
    return twin(rng, one, other)


def most_few(rng: Random) -> Item:
    """Most against few."""
    people, food = rng.choice(PEOPLE), rng.choice(FOOD)
    place = rng.choice(("in this village", "in our town", "on the island", "in this valley"))
    many = rng.choice(("most of the", "almost all of the", "nearly all the"))
    few = rng.choice(("hardly any of the", "very few of the", "almost none of the"))
    one = (f"{many} {people} {place} like {food}", f"more than half of the {people} like {food}")
    other = (f"{few} {people} {place} like {food}", f"fewer than half of the {people} like {food}")
    return twin(rng, one, other)


def except_one(rng: Random) -> Item:
    """Everyone but one, or nobody but one."""
    name = rng.choice(NAMES)
    root, past = rng.choice((("come", "came"), ("sing", "sang"), ("win", "won"), ("pass", "passed"), ("swim", "swam")))
    more = {"come": "by train", "sing": "a song", "win": "a prize", "pass": "the test", "swim": "in the lake"}[root]
    but = rng.choice(("except", "but"))
    one = (f"everyone {but} {name} {past} {more}", f"{name} did not {root} {more}")
    other = (f"nobody {but} {name} {past} {more}", f"{name} {past} {more}")
    return twin(rng, one, other)


def price(rng: Random) -> Item:
    """Compare two prices."""
    a, b = two(rng, GOODS)
    low, high = sorted(rng.sample(range(len(PRICES)), 2))
    premise = f"the {a} costs {PRICES[high]} dollars and the {b} costs {PRICES[low]}"
    if rng.random() < 0.5:
        premise = f"the {b} costs {PRICES[low]} dollars and the {a} costs {PRICES[high]}"
    if rng.random() < 0.5:
        a, b, word = b, a, "cheaper"
    else:
        word = "more expensive"
    return item(premise, f"the {a} is {word} than the {b}", f"the {b} is {word} than the {a}")


NEGATION = named(
    never, count, more_than, every, nobody, neither_both, at_least, without, forgot, most_few, except_one, price
)
