"""The `genre` set of the embedded suite: letters, recipes, dialogue, signs, rules and other kinds of text.

Try it::

    python -m oodles.suite.mini genre
"""

from random import Random

from oodles.suite.generated import Item
from oodles.suite.mini.words import COLOURS, DAYS, NAMES, NUMBERS, item, named, twin, two

PRESENTS = ("scarf", "hat", "jacket", "sweater", "ring", "shirt", "coat", "belt")
VEGETABLES = ("onions", "carrots", "beans", "potatoes", "mushrooms", "tomatoes", "peppers", "peas", "leeks")
DISHES = ("soup", "pie", "pudding", "tart", "cake", "pasta", "pizza")
TOWNS = ("Rome", "Paris", "London", "Berlin", "Madrid", "Boston", "Dublin", "Oxford", "York", "Vienna")
PLANS = (
    ("drive", "walk"),
    ("cook here", "eat out"),
    ("play chess", "dance"),
    ("swim", "climb"),
    ("visit Grandma", "stay here"),
    ("have tea", "have soup"),
    ("go home", "stay here"),
    ("plant beans", "plant roses"),
)
DUTIES = ("water the plants", "feed the cat", "pay the milkman", "clean the stove", "make the beds", "wash the car")
DONE = ("watered the plants", "fed the cat", "paid the milkman", "cleaned the stove", "made the beds", "washed the car")
MACHINES = ("machine", "pump", "lift", "printer", "fan", "oven", "dryer", "heater")
BANNED = ("cameras", "bags", "dogs", "coats", "phones", "drinks", "bikes", "balls")
SITES = ("castle", "museum", "garden", "library", "zoo", "palace", "gallery", "theatre")
FOR_SALE = ("bicycle", "piano", "sofa", "table", "camera", "radio", "tent", "boat", "guitar")
HEROES = ("king", "queen", "miller", "knight", "giant", "princess", "fisherman", "witch")
DIARY = (
    (
        ("I missed the bus and came late to school", "was late"),
        ("I caught the early bus and was first at school", "was early"),
    ),
    (
        ("it rained all day and I stayed in my room", "stayed in"),
        ("it was sunny and I played outside all day", "went out"),
    ),
    (("I passed the maths test, hooray", "did well"), ("I failed the maths test, what a shame", "did badly")),
    (("I could not sleep because of the storm", "lay awake"), ("I slept like a stone all night", "slept well")),
    (("Papa and I had a bad quarrel", "argued"), ("Papa and I laughed and joked all day", "had fun")),
    (("my fever was gone and I felt fine", "was healthy"), ("I had a fever and my head hurt", "was ill")),
    (("I spent my last coin on sweets", "spent money"), ("I earned ten dollars in the shop", "earned money")),
    (("I found my lost ring under the bed", "found something"), ("I lost my new ring at the beach", "lost something")),
)


def letter(rng: Random) -> Item:
    """A present fits or does not."""
    name, thing = rng.choice(NAMES), rng.choice(PRESENTS)
    one = (f"Dear {name}, thank you for the {thing}, it fits me perfectly", f"the {thing} is the right size")
    size = rng.choice(("small", "big"))
    other = (f"Dear {name}, I am sorry, but the {thing} is much too {size}", f"the {thing} is the wrong size")
    return twin(rng, one, other)


def recipe(rng: Random) -> Item:
    """What goes into the pan first."""
    a, b = two(rng, VEGETABLES)
    time = rng.choice(NUMBERS[1:])
    premise = rng.choice(
        (
            f"fry the {a}, and after {time} minutes add the {b}",
            f"add the {b} once the {a} have cooked for {time} minutes",
        )
    )
    when = rng.choice(("first", "last"))
    if when == "last":
        a, b = b, a
    return item(premise, f"the {a} go into the pan {when}", f"the {b} go into the pan {when}")


def serving(rng: Random) -> Item:
    """Hot or cold."""
    dish, guests = rng.choice(DISHES), rng.choice(NUMBERS)
    one = (f"serve the {dish} to {guests} guests while it is very hot", f"the {dish} is eaten hot")
    other = (f"chill the {dish} in the fridge before you serve {guests} guests", f"the {dish} is eaten cold")
    return twin(rng, one, other)


def dialogue(rng: Random) -> Item:
    """One speaker turns a plan down and makes another."""
    (a, b), (x, y) = two(rng, NAMES), two(rng, rng.choice(PLANS))
    return item(f"{a}: Shall we {x}? {b}: No, let us {y}", f"{b} wants to {y}", f"{b} wants to {x}")


def diary(rng: Random) -> Item:
    """A day in the life of the writer."""
    day = rng.choice(DAYS)
    one, other = ((f"Dear diary, this {day} {text}", f"the writer {fact}") for text, fact in rng.choice(DIARY))
    return twin(rng, one, other)


def buttons(rng: Random) -> Item:
    """Which button does what."""
    (a, b), machine = two(rng, COLOURS), rng.choice(MACHINES)
    premise = f"press the {a} button to start the {machine} and the {b} one to stop it"
    if rng.random() < 0.5:
        return item(premise, f"the {a} button starts the {machine}", f"the {b} button starts the {machine}")
    return item(premise, f"the {b} button stops the {machine}", f"the {a} button stops the {machine}")


def game(rng: Random) -> Item:
    """The rules of a game."""
    a, b = two(rng, COLOURS)
    number = rng.choice(NUMBERS)
    premise = f"move {number} steps forward on a {a} square and {number} steps back on a {b} square"
    if rng.random() < 0.5:
        return item(premise, f"{a} squares help the player", f"{b} squares help the player")
    return item(premise, f"{b} squares harm the player", f"{a} squares harm the player")


def sign(rng: Random) -> Item:
    """What a sign allows."""
    (a, b), site = two(rng, BANNED), rng.choice(SITES)
    premise = f"visitors may bring {a} into the {site}, but no {b}"
    if rng.random() < 0.5:
        return item(premise, f"{a} are allowed in the {site}", f"{b} are allowed in the {site}")
    return item(premise, f"{b} are forbidden in the {site}", f"{a} are forbidden in the {site}")


def announcement(rng: Random) -> Item:
    """A train has a new platform."""
    town, (a, b) = rng.choice(TOWNS), two(rng, NUMBERS)
    premise = f"the train to {town} now leaves from platform {a} and not from platform {b}"
    return item(premise, f"the {town} train is on platform {a}", f"the {town} train is on platform {b}")


def advert(rng: Random) -> Item:
    """A thing for sale is new or old."""
    thing, colour = rng.choice(FOR_SALE), rng.choice(COLOURS)
    one = (f"for sale: {colour} {thing}, brand new and still in its box", f"the {thing} is new")
    other = (f"for sale: {colour} {thing}, forty years old and much used", f"the {thing} is old")
    return twin(rng, one, other)


def tale(rng: Random) -> Item:
    """A hero keeps the treasure or gives it away."""
    hero, gold = rng.choice(HEROES), rng.choice(("gold", "silver", "bread", "land", "treasure", "corn"))
    when = rng.choice(("once upon a time", "long ago", "in the old days"))
    one = (f"{when} a {hero} gave all the {gold} to the poor", f"the {hero} shared the {gold}")
    other = (f"{when} a {hero} hid all the {gold} from everyone else", f"the {hero} kept the {gold}")
    return twin(rng, one, other)


def note(rng: Random) -> Item:
    """What is done and what is still to do."""
    name, (x, y) = rng.choice(NAMES), rng.sample(range(len(DUTIES)), 2)
    premise = f"Hi {name}, I have already {DONE[x]}, so please {DUTIES[y]}"
    return item(premise, f"{name} should {DUTIES[y]}", f"{name} should {DUTIES[x]}")


GENRE = named(letter, recipe, serving, dialogue, diary, buttons, game, sign, announcement, advert, tale, note)
