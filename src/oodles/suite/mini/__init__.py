"""The embedded suite: one in-domain set and seven shifted test sets, generated, so that everything runs offline.

Every premise has one hypothesis per label. Every hypothesis could also have had the other label, so only the comparison
with the premise reveals the answer. Rows depend only on the set, the split and the seed.

Try it::

    python -m oodles.suite.mini              # the sets and what they shift
    python -m oodles.suite.mini negation     # eight rows of one
"""

from collections.abc import Mapping
from random import Random

from oodles.suite.generated import GeneratedSet, Item, Template, draw_items, known_set, normalise
from oodles.suite.mini.coreference import COREFERENCE
from oodles.suite.mini.daily import DAILY
from oodles.suite.mini.genre import GENRE
from oodles.suite.mini.negation import NEGATION
from oodles.suite.mini.news import NEWS
from oodles.suite.mini.overlap import OVERLAP
from oodles.suite.mini.science import SCIENCE
from oodles.suite.mini.word_order import WORD_ORDER

VERSION = 1  # part of every seed; raise it when templates change, to distinguish results of different versions
THREE = ("entailment", "neutral", "contradiction")
TWO = ("entailment", "not_entailment")
__all__ = ["PREMISES", "SETS", "generate", "judgement_sample", "normalise"]
PREMISES = {"train": 1200, "test": 600}


def _shifted(name: str, shift: str, templates: Mapping[str, Template]) -> GeneratedSet:
    return GeneratedSet(name=name, shift=shift, labels=TWO, splits=("test",), templates=templates)


SETS: dict[str, GeneratedSet] = {
    spec.name: spec
    for spec in (
        GeneratedSet(
            name="daily",
            shift="none: everyday scenes, the in-domain set",
            labels=THREE,
            splits=("train", "test"),
            templates=DAILY,
        ),
        _shifted("genre", "another genre: letters, recipes, dialogue, signs, rules of a game", GENRE),
        _shifted("science", "another topic: simple true facts about nature", SCIENCE),
        _shifted("coreference", "whom or what a pronoun stands for", COREFERENCE),
        _shifted("overlap", "both hypotheses reuse the premise's words, one of them wrongly", OVERLAP),
        _shifted("word_order", "the same words in another order, with or without the same meaning", WORD_ORDER),
        _shifted("news", "longer premises: news reports with many details", NEWS),
        _shifted("negation", "negation, numbers and quantifiers", NEGATION),
    )
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
        Rows with ``id``, ``premise``, ``hypothesis``, ``label`` and ``template`` in a shuffled order.

    Notes
    -----
    No premise of ``train`` occurs in ``test``, whatever the two seeds: a checksum of the premise decides its split.

    Examples
    --------
    >>> rows = generate("overlap")
    >>> len(rows), sorted(rows[0])
    (1200, ['hypothesis', 'id', 'label', 'premise', 'template'])
    """
    spec = known_set("mini", SETS, name, split)
    rng = Random(f"oodles mini {VERSION} {name} {split} {seed}")
    rows = [
        row for template, item in draw_items(spec, split, PREMISES[split], rng) for row in _rows(spec, template, item)
    ]
    rng.shuffle(rows)  # also keeps the label out of the id
    return [{"id": f"{name}-{split}-{i:05d}", **row} for i, row in enumerate(rows)]


def judgement_sample(seed: int = 0, per_set: int = 50) -> list[dict[str, str]]:
    """Draw examples for a blind reader: set, id, premise and hypothesis without the label, shuffled over all sets."""
    rng = Random(f"oodles mini judgement {seed}")
    sample: list[dict[str, str]] = []
    for name in SETS:
        rows = [row for row in generate(name) if row["label"] != "neutral"]
        keys = ("id", "premise", "hypothesis")
        sample += [{"set": name, **{key: row[key] for key in keys}} for row in rng.sample(rows, per_set)]
    rng.shuffle(sample)
    return sample


def _rows(spec: GeneratedSet, template: str, item: Item) -> list[dict[str, str]]:
    hypotheses = (item.yes, item.neutral, item.no) if spec.labels == THREE else (item.yes, item.no)
    return [
        {"premise": item.premise, "hypothesis": hypothesis, "label": label, "template": template}
        for label, hypothesis in zip(spec.labels, hypotheses, strict=True)
    ]
