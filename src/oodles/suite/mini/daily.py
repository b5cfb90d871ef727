"""The in-domain set of the embedded suite: everyday scenes with people, places, actions and objects.

Each template also gives a neutral hypothesis, something the scene leaves open. Try it::

    python -m oodles.suite.mini daily
"""

from random import Random

from oodles.suite.generated import Item
from oodles.suite.mini.words import ADULTS, CHILDREN, COLOURS, article, listed, named, someone, twin, two

# Any two of these exclude each other: what one does, how else one can say it, where it happens.
ACTIVITIES = (
    ("sleeping", "asleep", ("on a bench in the park", "on the sofa", "in a chair by the window", "in a tent")),
    ("jogging", "running", ("along the river", "through the park", "around the lake", "down the street")),
    ("cooking soup", "making food", ("in the kitchen", "over a small fire", "for six guests", "in a busy restaurant")),
    ("riding a bicycle", "on a bike", ("along the river", "through the town", "to work", "down the hill")),
    ("swimming", "in the water", ("in the lake", "in the pool", "in the sea", "across the river")),
    ("playing the violin", "making music", ("on the stage", "in the park", "at a wedding", "in the living room")),
    ("sweeping the floor", "cleaning", ("in the kitchen", "of the old shop", "in the classroom", "of the barn")),
    ("painting a picture", "making art", ("in the studio", "by the lake", "of a sunset", "in the garden")),
    (
        "writing a letter",
        "writing to someone",
        ("to an old friend", "at the kitchen table", "in a quiet cafe", "at a desk"),
    ),
    ("climbing a ladder", "on a ladder", ("in the barn", "next to the house", "in the garden", "to the roof")),
    ("driving a car", "behind the wheel", ("through the town", "down a long road", "to the airport", "in the rain")),
    ("reading a novel", "looking at a book", ("in the library", "on the train", "under a tree", "on the sofa")),
    ("digging a hole", "moving some earth", ("in the garden", "in the field", "next to the barn", "for a new tree")),
    ("ironing a shirt", "pressing clothes", ("in the bedroom", "by the window", "before work", "for a wedding")),
)
ANYWHERE = listed(
    """
    reading a newspaper, eating an apple, talking to a friend, drinking coffee, looking at a map,
    writing in a notebook, drawing a bird, playing cards with friends, telling a funny story
    """
)
PLACES = (
    "in the library",
    "on the beach",
    "at the airport",
    "at the train station",
    "in the forest",
    "in a church",
    "at the market",
    "in a hospital room",
    "in the kitchen",
    "on a mountain top",
)
KINDS = {
    "a tool": ("hammer", "saw", "drill", "shovel"),
    "a musical instrument": ("violin", "trumpet", "flute", "guitar"),
    "a flower": ("rose", "tulip", "daisy", "lily"),
    "a piece of fruit": ("pear", "banana", "peach", "lemon"),
    "a piece of clothing": ("scarf", "jacket", "shirt", "coat"),
    "a piece of furniture": ("chair", "desk", "sofa", "bookcase"),
    "an animal": ("horse", "rabbit", "parrot", "goat"),
}
HANDLED = ("drawing {}", "painting {}", "looking at {}")
WHERE = ("in the garden", "after lunch", "in the morning", "once again", "before dinner", "at home")
CLOTHES = ("jacket", "coat", "shirt", "hat", "scarf", "sweater")
WAITING = listed(
    """
    waiting at the bus stop, standing by the door, walking to school, buying some bread, feeding the ducks,
    sitting on a bench
    """
)
# Two opposite states of one thing: what happened, what is now the case.
STATES = (
    (("filled the bucket with water", "bucket is full"), ("emptied the bucket", "bucket has nothing in it")),
    (("opened all the windows", "windows are open"), ("shut all the windows", "windows are closed")),
    (("washed the car until it shines", "car is clean"), ("splashed mud all over the car", "car is dirty")),
    (("switched on the lamp", "lamp is on"), ("switched off the lamp", "lamp is off")),
    (("left the shirt out in the rain", "shirt is wet"), ("dried the shirt in the hot sun", "shirt is dry")),
    (("taken the cake out of the oven", "cake is warm"), ("taken the cake out of the freezer", "cake is cold")),
    (("dropped and broken the vase", "vase is in pieces"), ("put the vase safely on the shelf", "vase is whole")),
    (("locked the front door with a key", "door is locked"), ("left the front door wide open", "door is open")),
    (("eaten every cookie on the plate", "plate is empty"), ("put ten cookies on the plate", "plate has food on it")),
    (("sharpened the pencil", "pencil is sharp"), ("broken the tip of the pencil", "pencil is blunt")),
)
TRAVEL = ("by train", "by bus", "by plane", "on foot", "on a bicycle", "in a taxi", "by boat")
TRIPS = ("to the coast", "to a big city", "to a wedding", "to a music festival", "to see an old friend", "to a party")
GLAD = listed(
    """
    laughing at a funny clown, smiling over a birthday present, jumping for joy after the match,
    cheering because the team has won, laughing and clapping at the show, smiling from ear to ear,
    laughing out loud at a joke, dancing for joy in the yard, beaming after the good news,
    laughing with a friend, cheering at the end of the race, smiling at a cute puppy
    """
)
SAD = listed(
    """
    crying over a lost ring, in tears after losing the match, weeping beside an empty cage,
    crying because the holiday is over, sobbing on the stairs, crying over a broken watch,
    weeping at the grave of a friend, in tears after the bad news, crying in a corner of the room,
    sobbing over a sad letter, weeping with a sick friend, in tears after a bitter quarrel
    """
)
# Two skies that exclude each other.
WEATHER = (
    ("it is raining hard", "the sun is shining"),
    ("thick snow is falling", "the summer heat is terrible"),
    ("a strong wind is blowing", "the air is perfectly still"),
    ("the sky is clear and blue", "dark clouds cover the sky"),
    ("the bright moon is shining", "the sun is just coming up"),
)
CROWDS = listed(
    """
    two women are walking through the town, some children are going to school, a farmer is crossing a field,
    three men are waiting for a bus, a family is standing by the lake, a girl is looking out of the window,
    a postman is bringing letters, some people are sitting in a train, two boys are climbing a hill,
    a woman is closing her shop, an old man is going home, some tourists are visiting a castle
    """
)
# What pets do, and where: any two exclude each other.
PETS = (
    ("chasing a ball", ("across the grass", "down the street", "along the beach")),
    ("jumping over a fence", ("in the field", "behind the school", "near the farm")),
    ("sleeping", ("by the fire", "on a soft rug", "in the shade", "on the front step")),
    ("drinking milk", ("in the kitchen", "from a blue bowl", "by the back door")),
    ("digging a hole", ("in the garden", "on the beach", "next to the wall")),
)
JOBS = listed(
    """
    a baker is taking bread from the oven, a gardener is planting roses,
    a nurse is caring for a patient, a teacher is writing sums on the board,
    a farmer is milking the cows, a barber is cutting hair,
    a mechanic is repairing a truck, a waiter is bringing soup to a table,
    a tailor is sewing buttons on a coat, a carpenter is building a cupboard, a singer is rehearsing a song,
    a fisherman is mending a net, a firefighter is climbing a ladder
    """
)
HOURS = listed(
    """
    early in the day, late in the day, as usual, in the morning, in the afternoon, with great care, once again,
    after lunch, before lunch, at this moment, in a hurry, without a break
    """
)
# Always open: nothing in any scene speaks for or against these.
OPEN = listed(
    """
    has two sisters, was born in the spring, likes playing chess, speaks good French, has a birthday tomorrow,
    comes from a big family, owns a black cat, had eggs for breakfast, went to bed very late, likes green tea
    """
)
OPEN_SCENE = ("it is a Tuesday", "a church bell is ringing", "the shops close at six", "a car is parked nearby")


def _open(rng: Random, subject: str) -> str:
    return f"{subject} {rng.choice(OPEN)}"


def _activity(rng: Random, subject: str, form: int) -> Item:
    """Two activities of one person; `form` 0 repeats the premise's verb, 1 uses other words."""
    who = someone(rng, ADULTS)
    tellings = [
        (f"{who.full} is {row[0]} {rng.choice(row[2])}", f"{subject or who.plain} is {row[form]}")
        for row in rng.sample(ACTIVITIES, 2)
    ]
    return twin(rng, tellings[0], tellings[1], _open(rng, who.the))


def activity(rng: Random) -> Item:
    """Drop modifier and place."""
    return _activity(rng, "", 0)


def activity_reworded(rng: Random) -> Item:
    """Say the verb in other words."""
    return _activity(rng, "", 1)


def activity_person(rng: Random) -> Item:
    """Replace the subject by a wider word."""
    return _activity(rng, "a person", 0)


def place(rng: Random) -> Item:
    """Drop what is done and keep where."""
    who, does = someone(rng, ADULTS), rng.choice(ANYWHERE)
    one, other = ((f"{who.full} is {does} {spot}", f"{who.plain} is {spot}") for spot in two(rng, PLACES))
    return twin(rng, one, other, _open(rng, who.the))


def thing(rng: Random) -> Item:
    """Name an object again."""
    who, does, where = someone(rng), rng.choice(HANDLED), rng.choice(WHERE)
    kinds = two(rng, tuple(KINDS))
    one, other = (
        (f"{who.full} is {does.format(named_thing)} {where}", f"{who.plain} is {does.format(named_thing)}")
        for named_thing in (article(rng.choice(KINDS[kind])) for kind in kinds)
    )
    return twin(rng, one, other, _open(rng, who.the))


def kind_of_object(rng: Random) -> Item:
    """Replace an object by its kind."""
    who, does = someone(rng), rng.choice(HANDLED)
    one, other = (
        (
            f"{who.full} is {does.format(article(rng.choice(KINDS[kind])))} {rng.choice(WHERE)}",
            f"{who.plain} is {does.format(kind)}",
        )
        for kind in two(rng, tuple(KINDS))
    )
    return twin(rng, one, other, _open(rng, who.the))


def colour(rng: Random) -> Item:
    """Read the colour of a garment."""
    who, garment, does = someone(rng, CHILDREN), rng.choice(CLOTHES), rng.choice(WAITING)
    shown = rng.choice((f"{who.the}'s {garment} is {{}}", f"{who.plain} is wearing a {{}} {garment}"))
    one, other = ((f"{who.full} in a {c} {garment} is {does}", shown.format(c)) for c in two(rng, COLOURS))
    return twin(rng, one, other, _open(rng, who.the))


def state(rng: Random) -> Item:
    """Infer the state of a thing from what was done to it."""
    who = someone(rng)
    one, other = ((f"{who.full} has just {happened}", f"the {now}") for happened, now in rng.choice(STATES))
    return twin(rng, one, other, _open(rng, who.the))


def travel(rng: Random) -> Item:
    """Drop where someone goes and keep how."""
    who, trip = someone(rng, ADULTS), rng.choice(TRIPS)
    one, other = (
        (f"{who.full} is travelling {trip} {how}", f"{who.plain} is travelling {how}") for how in two(rng, TRAVEL)
    )
    return twin(rng, one, other, _open(rng, who.the))


def mood(rng: Random) -> Item:
    """Infer the mood from what someone does."""
    who = someone(rng)
    happy, unhappy = rng.choice((("happy", "sad"), ("in a good mood", "unhappy")))
    one = (f"{who.full} is {rng.choice(GLAD)}", f"{who.plain} is {happy}")
    other = (f"{who.full} is {rng.choice(SAD)}", f"{who.plain} is {unhappy}")
    return twin(rng, one, other, _open(rng, who.the))


def weather(rng: Random) -> Item:
    """Keep the weather alone."""
    crowd = rng.choice(CROWDS)
    link = rng.choice(("{weather} and {crowd}", "{crowd} while {weather}"))
    one, other = ((link.format(weather=sky, crowd=crowd), sky) for sky in rng.choice(WEATHER))
    return twin(rng, one, other, rng.choice(OPEN_SCENE))


def animal(rng: Random) -> Item:
    """Keep what a pet does, not where."""
    pet = rng.choice(("dog", "cat"))
    look = rng.choice(("brown", "small", "black", "grey", "white", "hairy"))
    subject = rng.choice(("an animal", f"a {pet}"))
    one, other = (
        (f"a {look} {pet} is {does} {rng.choice(spots)}", f"{subject} is {does}") for does, spots in rng.sample(PETS, 2)
    )
    return twin(rng, one, other, _open_pet(rng, pet))


def _open_pet(rng: Random, pet: str) -> str:
    return f"the {pet} {rng.choice(('belongs to a doctor', 'likes cheese', 'has three brothers', 'is called Max'))}"


def job(rng: Random) -> Item:
    """Keep a piece of work, not its hour."""
    hour = rng.choice(HOURS)
    one, other = ((f"{scene} {hour}", scene) for scene in two(rng, JOBS))
    return twin(rng, one, other, rng.choice(OPEN_SCENE))


# Nine of thirteen can be answered by comparing words, four need their meaning: a small model learns the first few-shot.
DAILY = named(
    activity,
    activity_person,
    place,
    thing,
    colour,
    travel,
    weather,
    animal,
    job,
    activity_reworded,
    kind_of_object,
    state,
    mood,
)
