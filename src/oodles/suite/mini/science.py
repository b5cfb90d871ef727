"""The `science` set of the embedded suite: simple facts about nature, all of them true.

Try it::

    python -m oodles.suite.mini science
"""

from collections.abc import Sequence
from random import Random

from oodles.suite.generated import Item
from oodles.suite.mini.words import item, listed, named, two

CLASSES = {
    "mammals": "feed their young with milk",
    "birds": "have feathers",
    "fish": "breathe with gills",
    "insects": "have six legs",
}
MEMBERS = {
    "mammals": listed("otters, wolves, foxes, rabbits, horses, goats, seals, dolphins, bears, hamsters, beavers"),
    "birds": listed("robins, ducks, geese, eagles, hawks, parrots, swans, sparrows, turkeys, crows, gulls, storks"),
    "fish": listed("trout, salmon, sharks, tuna, cod, carp, eels, herring, perch, sardines, goldfish, seahorses"),
    "insects": listed("ants, bees, wasps, beetles, flies, moths, crickets, butterflies, grasshoppers, fleas, termites"),
}
HABITATS = {
    "desert": (
        "a dry place",
        (
            ("camels", "hot deserts"),
            ("desert foxes", "sandy deserts"),
            ("desert tortoises", "hot deserts"),
            ("rattlesnakes", "dry deserts"),
            ("sand cats", "sandy deserts"),
            ("meerkats", "dry deserts"),
        ),
    ),
    "sea": (
        "salt water",
        (
            ("sharks", "the ocean"),
            ("sea turtles", "warm seas"),
            ("whales", "the open ocean"),
            ("jellyfish", "the sea"),
            ("starfish", "the sea"),
            ("tuna", "the ocean"),
            ("squid", "the deep sea"),
        ),
    ),
    "jungle": (
        "the trees",
        (
            ("spider monkeys", "tall rainforest trees"),
            ("sloths", "the treetops of rainforests"),
            ("toucans", "rainforest trees"),
            ("orangutans", "rainforest trees"),
            ("tree frogs", "jungle trees"),
        ),
    ),
}
HERBIVORES = (
    ("cows", "grass and hay"),
    ("rabbits", "grass and leaves"),
    ("deer", "leaves and bark"),
    ("horses", "grass and hay"),
    ("sheep", "grass and clover"),
    ("pandas", "bamboo"),
    ("koalas", "the leaves of gum trees"),
    ("giraffes", "leaves from tall trees"),
    ("zebras", "grass"),
    ("elephants", "grass, leaves and bark"),
    ("caterpillars", "green leaves"),
    ("hippos", "grass"),
)
CARNIVORES = (
    ("lions", "zebras and antelopes"),
    ("wolves", "deer and elk"),
    ("tigers", "deer and wild pigs"),
    ("owls", "mice and small birds"),
    ("seals", "fish and squid"),
    ("herons", "fish and frogs"),
    ("sharks", "fish and seals"),
    ("spiders", "flies and moths"),
    ("eagles", "rabbits and fish"),
    ("otters", "fish and crabs"),
    ("crocodiles", "fish and antelopes"),
    ("cheetahs", "gazelles"),
)
AT_NIGHT = ("owls", "bats", "hedgehogs", "badgers", "moths", "raccoons", "wombats", "kiwis")
BY_DAY = ("eagles", "hawks", "squirrels", "butterflies", "bees", "robins", "meerkats", "gorillas")
# Each list is in rising order with clear steps. First what the premise says, high before low, then the two words.
SCALES: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    (
        "{} weigh much more than {}",
        "are heavier",
        "are lighter",
        ("ants", "mice", "rats", "cats", "sheep", "lions", "horses", "rhinos", "elephants", "blue whales"),
    ),
    (
        "{} usually live longer than {}",
        "have longer lives",
        "have shorter lives",
        ("mice", "rabbits", "cats", "horses", "elephants", "giant tortoises"),
    ),
    (
        "{} reach a higher top speed than {}",
        "are faster",
        "are slower",
        ("snails", "tortoises", "chickens", "elephants", "cats", "horses", "cheetahs"),
    ),
)
PLANETS = ("Mercury", "Venus", "Earth", "Mars", "Jupiter", "Saturn", "Uranus", "Neptune")
BY_SIZE = ("Mercury", "Mars", "Venus", "Earth", "Neptune", "Uranus", "Saturn", "Jupiter")
MELTING = ("ice", "wax", "tin", "lead", "aluminium", "silver", "gold", "copper", "iron", "tungsten")
DENSITY = ("cork", "ice", "water", "aluminium", "iron", "silver", "lead", "mercury", "gold")
HARDNESS = ("wax", "chalk", "copper", "iron", "glass", "quartz", "topaz", "diamond")
LEGS = {
    "two": ("a hen", "a duck", "a swan", "an eagle"),
    "four": ("a horse", "a frog", "a cat", "a lizard"),
    "six": ("an ant", "a bee", "a beetle", "a moth"),
    "eight": ("a spider", "a tick"),
    "ten": ("a crab", "a lobster"),
}
ORGANS = (
    ("the heart", "pumps blood to all organs"),
    ("the stomach", "makes a strong acid"),
    ("the brain", "stores memories"),
    ("the eye", "turns light into signals"),
    ("the ear", "picks up sounds"),
    ("the tongue", "senses sweet and salty tastes"),
    ("the skull", "protects the brain"),
    ("the liver", "makes bile"),
    ("the lung", "takes oxygen from the air"),
    ("the kidney", "makes urine"),
    ("the thigh bone", "supports the leg"),
)
BODY_FRAMES = (
    "in the human body, {} {}",
    "in a healthy person, {} {}",
    "doctors know that {} {}",
    "{} {}, as we learn at school",
)
LEAVES = (
    listed("oaks, maples, birches, beeches, elms, willows, apple trees, cherry trees, ash trees, poplars"),
    listed("pines, firs, cypresses, holly trees, spruces, cedars, olive trees, yews, ivy plants, juniper trees"),
)
MATTER = {
    "a solid": ("iron", "gold", "copper", "steel", "marble", "silver", "granite", "chalk"),
    "a liquid": ("water", "alcohol", "mercury", "olive oil", "vinegar", "petrol", "milk"),
    "a gas": ("oxygen", "nitrogen", "helium", "hydrogen", "carbon dioxide", "methane", "neon", "argon"),
}
CROPS = (
    ("carrots", "potatoes", "turnips", "radishes", "beets", "parsnips", "peanuts"),
    ("apples", "pears", "cherries", "plums", "oranges", "lemons", "peaches"),
)
ATTRACTED = ("iron", "steel", "nickel", "cobalt")
IGNORED = ("copper", "wood", "plastic", "glass", "gold", "silver", "rubber", "aluminium")
CONDUCTORS = ("copper", "silver", "gold", "aluminium", "iron", "brass", "steel", "zinc")
INSULATORS = ("rubber", "glass", "plastic", "dry wood", "wool", "wax", "paper", "porcelain")


def _ranked(rng: Random, scale: Sequence[str]) -> tuple[str, str]:
    """Draw a lower and a higher entry of a scale."""
    low, high = sorted(rng.sample(range(len(scale)), 2))
    return scale[low], scale[high]


def _compared(rng: Random, premise: str, low: str, high: str, hypothesis: tuple[str, str]) -> Item:
    """Ask about two ranked things: `hypothesis` holds the pattern for the higher and for the lower one."""
    more, less = hypothesis
    if rng.random() < 0.5:
        return item(premise, more.format(high, low), less.format(high, low))
    return item(premise, less.format(low, high), more.format(low, high))


def animal_class(rng: Random) -> Item:
    """A member has what its class has."""
    kind, other = two(rng, tuple(CLASSES))
    animal = rng.choice(MEMBERS[kind])
    premise = rng.choice(("{a} are {k}, and all {k} {f}", "all {k} {f}, and {a} are {k}"))
    text = premise.format(a=animal, k=kind, f=CLASSES[kind])
    return item(text, f"{animal} {CLASSES[kind]}", f"{animal} {CLASSES[other]}")


def habitat(rng: Random) -> Item:
    """Where an animal lives."""
    kind, other = two(rng, tuple(HABITATS))
    animal, home = rng.choice(HABITATS[kind][1])
    premise = rng.choice(("{} live in {}", "{} make their home in {}", "the natural home of {} is in {}")).format(
        animal, home
    )
    return item(premise, f"{animal} live in {HABITATS[kind][0]}", f"{animal} live in {HABITATS[other][0]}")


def diet(rng: Random) -> Item:
    """Plants or other animals."""
    plants, meat = "feed on plants", "feed on other animals"
    if rng.random() < 0.5:
        animal, food = rng.choice(HERBIVORES)
        verb = rng.choice(("live mainly on", "spend their time eating"))
        return item(f"{animal} {verb} {food}", f"{animal} {plants}", f"{animal} {meat}")
    animal, food = rng.choice(CARNIVORES)
    verb = rng.choice(("hunt and eat", "catch and eat"))
    return item(f"{animal} {verb} {food}", f"{animal} {meat}", f"{animal} {plants}")


def day_night(rng: Random) -> Item:
    """Awake by day or by night."""
    night = rng.random() < 0.5
    animal = rng.choice(AT_NIGHT if night else BY_DAY)
    active, resting = ("at night", "during the day") if night else ("during the day", "at night")
    premise = rng.choice(("{} sleep {} and look for food {}", "{} sleep {} and feed {}")).format(
        animal, resting, active
    )
    if rng.random() < 0.5:
        return item(premise, f"{animal} are active {active}", f"{animal} are active {resting}")
    return item(premise, f"{animal} are asleep {resting}", f"{animal} are asleep {active}")


def animal_scale(rng: Random) -> Item:
    """Weight, length of life and speed of animals."""
    text, more, less, scale = rng.choice(SCALES)
    low, high = _ranked(rng, scale)
    return _compared(rng, text.format(high, low), low, high, (f"{{}} {more} than {{}}", f"{{}} {less} than {{}}"))


def planet_order(rng: Random) -> Item:
    """Distance from the Sun."""
    near, far = _ranked(rng, PLANETS)
    if rng.random() < 0.5:
        premise = f"the path of {near} around the Sun lies inside the path of {far}"
        return _compared(
            rng, premise, near, far, ("{} is farther from the Sun than {}", "{} is closer to the Sun than {}")
        )
    premise = f"one trip around the Sun takes {far} longer than {near}"
    return _compared(rng, premise, near, far, ("{} has a longer year than {}", "{} has a shorter year than {}"))


def planet_size(rng: Random) -> Item:
    """Size of planets."""
    small, large = _ranked(rng, BY_SIZE)
    premise = f"the planet {large} has a greater diameter than the planet {small}"
    return _compared(rng, premise, small, large, ("{} is bigger than {}", "{} is smaller than {}"))


def material_scale(rng: Random) -> Item:
    """Melting point, density and hardness of materials."""
    text, more, less, scale = rng.choice(
        (
            (
                "{} melts at a higher temperature than {}",
                "has a higher melting point",
                "has a lower melting point",
                MELTING,
            ),
            ("a litre of {} has more mass than a litre of {}", "is denser", "is less dense", DENSITY),
            ("a piece of {} can scratch a piece of {}", "is harder", "is softer", HARDNESS),
        )
    )
    low, high = _ranked(rng, scale)
    return _compared(rng, text.format(high, low), low, high, (f"{{}} {more} than {{}}", f"{{}} {less} than {{}}"))


def legs(rng: Random) -> Item:
    """Count legs."""
    few, many = _ranked(rng, tuple(LEGS))
    low, high = rng.choice(LEGS[few]), rng.choice(LEGS[many])
    premise = rng.choice(
        (f"{low} has {few} legs, while {high} has {many}", f"{high} has {many} legs, while {low} has {few}")
    )
    return _compared(rng, premise, low, high, ("{} has more legs than {}", "{} has fewer legs than {}"))


def organ(rng: Random) -> Item:
    """What a part of the body does."""
    (part, work), (_, other) = rng.sample(ORGANS, 2)
    premise = rng.choice(BODY_FRAMES).format(part, work)
    return item(premise, f"{part} {work}", f"{part} {other}")


def tree_leaves(rng: Random) -> Item:
    """Bare or green in winter."""
    bare, green = "lose all their leaves in autumn", "stay green all through the year"
    kind = rng.randrange(2)
    tree, sight = rng.choice(LEAVES[kind]), (bare, green)[kind]
    seen = ("are bare in winter", "are green in winter")
    where = rng.choice(("in cool climates ", "in northern gardens ", "in cold countries "))
    return item(f"{where}{tree} {sight}", f"{tree} {seen[kind]}", f"{tree} {seen[1 - kind]}")


def matter(rng: Random) -> Item:
    """Solid, liquid or gas."""
    state, other = two(rng, tuple(MATTER))
    stuff = rng.choice(MATTER[state])
    at = rng.choice(("at room temperature", "on a mild day", "in a warm room"))
    form = {"a solid": "keeps its own shape", "a liquid": "can be poured into a cup", "a gas": "spreads out like air"}
    return item(f"{at} {stuff} {form[state]}", f"{stuff} is {state} {at}", f"{stuff} is {other} {at}")


def crops(rng: Random) -> Item:
    """Under the ground or on trees."""
    kind = rng.randrange(2)
    crop = rng.choice(CROPS[kind])
    texts = (
        ("{} are dug out of the soil at harvest", "{} form under the soil"),
        ("{} are picked from branches", "{} hang from the branches of trees"),
    )
    where = ("grow below the ground", "grow on trees")
    return item(rng.choice(texts[kind]).format(crop), f"{crop} {where[kind]}", f"{crop} {where[1 - kind]}")


def magnet(rng: Random) -> Item:
    """What a magnet attracts."""
    near, far = rng.choice(ATTRACTED), rng.choice(IGNORED)
    premise = f"a magnet pulls a ball of {near} but not a ball of {far}"
    if rng.random() < 0.5:
        return item(premise, f"magnets attract {near}", f"magnets attract {far}")
    return item(premise, f"magnets do not attract {far}", f"magnets do not attract {near}")


def current(rng: Random) -> Item:
    """What electricity flows through."""
    good, bad = rng.choice(CONDUCTORS), rng.choice(INSULATORS)
    premise = f"electricity flows easily through {good} but hardly at all through {bad}"
    if rng.random() < 0.5:
        return item(premise, f"{good} is a good conductor", f"{bad} is a good conductor")
    return item(premise, f"{bad} is a good insulator", f"{good} is a good insulator")


SCIENCE = named(
    animal_class,
    habitat,
    diet,
    day_night,
    animal_scale,
    planet_order,
    planet_size,
    material_scale,
    legs,
    organ,
    tree_leaves,
    matter,
    crops,
    magnet,
    current,
)
