"""An embedded suite of opinions: short film reviews in-domain, and sets in which the same words mislead.

Every review has a twin with the same beginning and the other label. In two thirds of `films`, counting
positive and negative words gives the right answer; in the rest, and in the rival sets, the words are about others. Rows
depend only on the set, the split and the seed.

Try it::

    python -m oodles.suite.opinions              # the sets and what they shift
    python -m oodles.suite.opinions negation     # eight rows of one
"""

from random import Random

from oodles.suite.generated import GeneratedSet, draw_items, known_set
from oodles.suite.opinions.templates import TEMPLATES

VERSION = 1  # part of every seed: raise it when templates change, so that results of two versions are told apart
LABELS = ("liked", "disliked")
OPENINGS = {"train": 400, "test": 60}

_SHIFTS = {
    "films": "none: film reviews, the in-domain set",
    "restaurants": "another topic: meals",
    "gadgets": "another topic: things bought",
    "rival_restaurants": "meals, and the words are about others",
    "rival_gadgets": "things bought, and the words are about others",
    "negation": "films, and the decisive word is negated",
    "concession": "films: a part is judged by words, the whole by what the writer did",
}
SETS: dict[str, GeneratedSet] = {
    name: GeneratedSet(
        name=name,
        shift=shift,
        labels=LABELS,
        splits=("train", "test") if name == "films" else ("test",),
        templates=TEMPLATES[name],
    )
    for name, shift in _SHIFTS.items()
}


def generate(name: str, split: str = "test", seed: int = 0) -> list[dict[str, str]]:
    """Generate one split of one set.

    Parameters
    ----------
    name : str
        A key of `SETS`.
    split : str
        ``"test"``, or ``"train"`` for the in-domain set.
    seed : int
        Another seed gives other rows with the same guarantees.

    Returns
    -------
    list of dict
        Rows with ``id``, ``opening``, ``ending``, ``label`` and ``template`` in a shuffled order.

    Notes
    -----
    No opening of ``train`` occurs in ``test``, whatever the two seeds: a checksum of the opening decides its split.

    Examples
    --------
    >>> rows = generate("negation")
    >>> len(rows), sorted(rows[0])
    (120, ['ending', 'id', 'label', 'opening', 'template'])
    """
    spec = known_set("opinions", SETS, name, split)
    rng = Random(f"oodles opinions {VERSION} {name} {split} {seed}")
    rows = [
        {"opening": item.premise, "ending": ending, "label": label, "template": template}
        for template, item in draw_items(spec, split, OPENINGS[split], rng)
        for label, ending in zip(LABELS, (item.yes, item.no), strict=True)
    ]
    rng.shuffle(rows)  # also keeps the label out of the id
    return [{"id": f"{name}-{split}-{i:05d}", **row} for i, row in enumerate(rows)]


def judgement_sample(seed: int = 0, per_set: int = 50) -> list[dict[str, str]]:
    """Draw reviews for a blind reader: set, id and text without the label, shuffled over all sets."""
    rng = Random(f"oodles opinions judgement {seed}")
    sample = [
        {"set": name, "id": row["id"], "text": f"{row['opening']} {row['ending']}"}
        for name in SETS
        for row in rng.sample(generate(name), per_set)
    ]
    rng.shuffle(sample)
    return sample
