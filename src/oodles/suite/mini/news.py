"""The `news` set of the embedded suite: short reports of invented events, and a question about one detail.

Try it::

    python -m oodles.suite.mini news
"""

from random import Random

from oodles.suite.generated import Item
from oodles.suite.mini.words import DAYS, NAMES, NUMBERS, item, listed, named, two

# A detail: a pattern, the value that the report gives, and one of the same kind that it does not give there.
Detail = tuple[str, tuple[str, str]]

TOWNS = listed("Milford, Oakland, Ashford, Kingston, Newport, Burton, Clifton, Westfield, Bradford, Hampton")
SURNAMES = ("Parker", "Walker", "Morgan", "Hughes", "Collins", "Bennett", "Foster", "Palmer", "Turner", "Carter")
MONTHS = ("March", "April", "May", "June", "July", "August", "September", "October", "November")
MILLIONS = ("two", "three", "four", "five", "six", "seven", "eight", "nine")
DOZENS = ("thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def asked(rng: Random, premise: str, *details: Detail) -> Item:
    """Ask about one detail of a report; the false value comes from the same list as the true one."""
    pattern, (value, other) = rng.choice(details)
    return item(premise, pattern.format(value), pattern.format(other))


def council(rng: Random) -> Item:
    """A town closes something for repairs."""
    town, day, months, cost = two(rng, TOWNS), two(rng, DAYS), two(rng, NUMBERS), two(rng, MILLIONS)
    what = two(rng, ("bridge", "library", "swimming pool", "theatre", "museum", "market hall"))
    premise = (
        f"The town council of {town[0]} decided on {day[0]} to close the old {what[0]} for {months[0]} months. "
        f"The repairs will cost {cost[0]} million dollars, and the {what[1]} will stay open during the work"
    )
    return asked(
        rng,
        premise,
        ("the council made its decision on {}", day),
        ("the repairs will cost {} million dollars", cost),
        (f"the {{}} in {town[0]} will be closed", what),
        (f"the {what[0]} will be closed for {{}} months", months),
    )


def football(rng: Random) -> Item:
    """A match is won and lost."""
    team, day, name = two(rng, TOWNS), two(rng, DAYS), two(rng, SURNAMES)
    crowd = two(rng, DOZENS)
    half = two(rng, ("first", "second"))
    premise = (
        f"{team[0]} beat {team[1]} by two goals to one in the cup final on {day[0]}. "
        f"In front of {crowd[0]} thousand fans, "
        f"captain {name[0]} scored late in the {half[0]} half, while {name[1]} hit the post"
    )
    return asked(
        rng,
        premise,
        ("{} won the cup final", team),
        ("{} lost the cup final", team[::-1]),
        ("the captain's name is {}", name),
        ("{} hit the post", name[::-1]),
        ("the match was played on {}", day),
        ("{} thousand fans watched the match", crowd),
    )


def storm(rng: Random) -> Item:
    """A storm and its damage."""
    town, day, count = two(rng, TOWNS), two(rng, DAYS), two(rng, DOZENS)
    shelter = two(rng, ("school", "church", "sports hall", "town hall", "hospital"))
    coast = two(rng, ("north", "south", "east", "west"))
    premise = (
        f"A heavy storm hit the {coast[0]} coast on {day[0]} and damaged {count[0]} houses in {town[0]}. "
        f"Families spent the night in the local {shelter[0]}, "
        f"and nobody was hurt. The nearby town of {town[1]} was spared"
    )
    return asked(
        rng,
        premise,
        ("the storm damaged houses in {}", town),
        ("the town of {} was spared by the storm", town[::-1]),
        ("families spent the night in the {}", shelter),
        ("the storm damaged {} houses", count),
        ("the storm hit the {} coast", coast),
    )


def factory(rng: Random) -> Item:
    """A firm opens one factory and closes another."""
    town, month, jobs = two(rng, TOWNS), two(rng, MONTHS), two(rng, DOZENS)
    goods = two(rng, ("bicycles", "shoes", "furniture", "toys", "batteries", "windows", "kitchens"))
    premise = (
        f"A company that makes {goods[0]} will open a new factory in {town[0]} in {month[0]}, its director said. "
        f"The plant will offer {jobs[0]} jobs. The older factory in {town[1]} will close at the same time"
    )
    return asked(
        rng,
        premise,
        ("a new factory will open in {}", town),
        ("the factory in {} will close", town[::-1]),
        ("the company makes {}", goods),
        ("the new factory will open in {}", month),
        ("the new plant will offer {} jobs", jobs),
    )


def rescue(rng: Random) -> Item:
    """Walkers are lost and found."""
    count, day, finder = (
        two(rng, NUMBERS),
        two(rng, DAYS),
        two(rng, ("a farmer", "a pilot", "a hunter", "a fisherman", "a shepherd")),
    )
    place = two(rng, ("forest", "valley", "cave", "desert", "swamp"))
    nights = two(rng, NUMBERS)
    premise = (
        f"Rescue teams said on {day[0]} that {count[0]} missing walkers "
        f"had been found alive after {nights[0]} nights in a {place[0]}. "
        f"They were cold and hungry but unhurt. It was {finder[0]} who first saw them"
    )
    return asked(
        rng,
        premise,
        ("there were {} missing walkers", count),
        ("the walkers were found in a {}", place),
        ("{} was the first to see the walkers", finder),
        ("the walkers were missing for {} nights", nights),
    )


def election(rng: Random) -> Item:
    """A mayor is elected."""
    town, name, share, day = two(rng, TOWNS), two(rng, SURNAMES), two(rng, DOZENS), two(rng, DAYS)
    job = two(rng, ("teacher", "lawyer", "doctor", "farmer", "nurse", "banker"))
    premise = (
        f"The people of {town[0]} elected {name[0]}, a former {job[0]}, as their new mayor on {day[0]}. "
        f"The winner got {share[0]} percent of the votes "
        f"and promised to build a school. {name[1]}, a {job[1]}, came second"
    )
    return asked(
        rng,
        premise,
        ("{} is the new mayor", name),
        ("{} lost the election", name[::-1]),
        ("the new mayor used to be a {}", job),
        ("the election took place on {}", day),
        ("the winner got {} percent of the votes", share),
    )


def exhibition(rng: Random) -> Item:
    """A museum shows something."""
    town, month, price = two(rng, TOWNS), two(rng, MONTHS), two(rng, NUMBERS)
    thing = two(rng, ("coins", "paintings", "clocks", "maps", "masks", "toys", "photographs"))
    lender = two(rng, ("a king", "a bank", "a sailor", "a film star", "a bishop"))
    premise = (
        f"The museum in {town[0]} is showing a large collection of old {thing[0]} that once belonged to {lender[0]}. "
        f"The show runs until the end of {month[0]}, "
        f"and tickets cost {price[0]} dollars for adults. Children get in free"
    )
    return asked(
        rng,
        premise,
        ("the museum is showing a collection of {}", thing),
        ("the collection once belonged to {}", lender),
        ("the show ends in {}", month),
        ("an adult pays {} dollars for a ticket", price),
        ("the museum is in {}", town),
    )


def railway(rng: Random) -> Item:
    """A new line shortens a journey."""
    town, month = two(rng, TOWNS), two(rng, MONTHS)
    minutes = two(rng, DOZENS)
    power = two(rng, ("diesel", "electric", "steam"))
    premise = (
        f"A new railway line between {town[0]} and the capital will open in {month[0]} after years of delay. "
        f"The journey on the {power[0]} trains will take {minutes[0]} minutes. "
        f"A planned stop in {town[1]} was never built"
    )
    return asked(
        rng,
        premise,
        ("the new line links {} with the capital", town),
        ("the stop in {} was never built", town[::-1]),
        ("the new line will open in {}", month),
        ("the journey will take {} minutes", minutes),
        ("the trains on the new line are {}", power),
    )


def fire(rng: Random) -> Item:
    """A fire and its cause."""
    town, day = two(rng, TOWNS), two(rng, DAYS)
    building = two(rng, ("bakery", "hotel", "school", "warehouse", "restaurant", "cinema"))
    cause = two(rng, ("a candle", "a cigarette", "lightning", "a faulty heater", "an old cable"))
    count = two(rng, DOZENS)
    premise = (
        f"Fire destroyed a {building[0]} in the centre of {town[0]} early on {day[0]}. "
        f"It took {count[0]} firefighters three hours "
        f"to put out the flames, but they saved the {building[1]} next door. "
        f"The fire was started by {cause[0]}, police said"
    )
    return asked(
        rng,
        premise,
        ("the fire destroyed a {}", building),
        ("the firefighters saved a {}", building[::-1]),
        ("police said that {} started the fire", cause),
        ("the fire broke out on {}", day),
        ("{} firefighters fought the flames", count),
    )


def strike(rng: Random) -> Item:
    """Workers stop and start again."""
    town, day, pay = two(rng, TOWNS), two(rng, DAYS), two(rng, NUMBERS)
    who = two(rng, ("bus drivers", "nurses", "postal workers", "teachers", "train drivers", "bakers"))
    weeks = two(rng, NUMBERS)
    premise = (
        f"The {who[0]} of {town[0]} went back to work on {day[0]} after a strike of {weeks[0]} weeks. "
        f"Their union accepted an offer of {pay[0]} percent more pay. The {who[1]}, however, are still on strike"
    )
    return asked(
        rng,
        premise,
        ("the {} have ended their strike", who),
        ("the {} have not ended their strike", who[::-1]),
        (f"the {who[0]} went back to work on {{}}", day),
        ("the union accepted {} percent more pay", pay),
        (f"the strike of the {who[0]} lasted {{}} weeks", weeks),
    )


def prize(rng: Random) -> Item:
    """A writer wins a prize."""
    name, month, first = two(rng, SURNAMES), two(rng, MONTHS), rng.choice(NAMES)
    topic = two(
        rng, ("a lighthouse", "two sisters", "a lost dog", "a sea voyage", "a village doctor", "a bank robbery")
    )
    sum_ = two(rng, DOZENS)
    premise = (
        f"The writer {first} {name[0]} has won this year's national book prize for a novel about {topic[0]}. "
        f"The prize of {sum_[0]} thousand dollars will be handed over in {month[0]}. "
        f"Last year it went to a novel about {topic[1]}"
    )
    return asked(
        rng,
        premise,
        ("this year's prize went to a novel about {}", topic),
        ("last year's prize went to a novel about {}", topic[::-1]),
        ("the winner will receive {} thousand dollars", sum_),
        ("the prize will be handed over in {}", month),
        (f"the name of the winner is {first} {{}}", name),
    )


NEWS = named(council, football, storm, factory, rescue, election, exhibition, railway, fire, strike, prize)
