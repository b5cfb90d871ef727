"""The embedded suite: one in-domain set and seven shifted test sets, generated, so that everything runs offline.

Every premise has one hypothesis per label. Every hypothesis could also have had the other label, so only the comparison
with the premise reveals the answer. Rows depend only on the set, the split and the seed.

Try it::

    python -m oodles.suite.mini              # the sets and what they shift
    python -m oodles.suite.mini negation     # eight rows of one
"""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle
from random import Random

from oodles.suite.mini.coreference import COREFERENCE
from oodles.suite.mini.daily import DAILY
from oodles.suite.mini.genre import GENRE
from oodles.suite.mini.negation import NEGATION
from oodles.suite.mini.news import NEWS
from oodles.suite.mini.overlap import OVERLAP
from oodles.suite.mini.science import SCIENCE
from oodles.suite.mini.word_order import WORD_ORDER
from oodles.suite.mini.words import Item, Template

VERSION = 1  # part of every seed; raise it when templates change, to distinguish results of different versions
THREE = ("entailment", "neutral", "contradiction")
TWO = ("entailment", "not_entailment")
PREMISES = {"train": 1200, "test": 600}
TRIES = 400  # consecutive draws without a new premise before a template counts as exhausted


@dataclass(frozen=True, slots=True, kw_only=True)
class MiniSet:
    """A set of the embedded suite."""

    name: str
    shift: str  # how it differs from the in-domain set
    labels: tuple[str, ...]
    splits: tuple[str, ...]
    templates: Mapping[str, Template]


def _shifted(name: str, shift: str, templates: Mapping[str, Template]) -> MiniSet:
    return MiniSet(name=name, shift=shift, labels=TWO, splits=("test",), templates=templates)


SETS: dict[str, MiniSet] = {
    spec.name: spec
    for spec in (
        MiniSet(
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
    spec = _known(name, split)
    rng = Random(f"oodles mini {VERSION} {name} {split} {seed}")
    rows = [row for template, item in _draw(spec, split, rng) for row in _rows(spec, template, item)]
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


def normalise(text: str) -> str:
    """Lower the case and collapse spaces, to compare texts."""
    return " ".join(text.lower().split())


def _known(name: str, split: str) -> MiniSet:
    if name not in SETS:
        raise ValueError(f"mini: unknown set {name!r}; known: {', '.join(SETS)}")
    spec = SETS[name]
    if split not in spec.splits:
        raise ValueError(f"mini: set {name!r} has no split {split!r}; known: {', '.join(spec.splits)}")
    return spec


def _draw(spec: MiniSet, split: str, rng: Random) -> Iterator[tuple[str, Item]]:
    """Draw items with new premises, taking the templates in turn."""
    seen: set[str] = set()
    left = dict(spec.templates)
    for template in cycle(spec.templates):
        if len(seen) == PREMISES[split]:
            return
        if template not in left:
            continue
        item = _fresh(left[template], spec, split, seen, rng)
        if item is None:
            del left[template]
            assert left, f"mini: all templates of {spec.name} are used up"
            continue
        seen.add(normalise(item.premise))
        yield template, item


def _fresh(template: Template, spec: MiniSet, split: str, seen: set[str], rng: Random) -> Item | None:
    """Draw until the premise is new and belongs to the split."""
    for _ in range(TRIES):
        item = template(rng)
        premise = normalise(item.premise)
        if premise not in seen and (len(spec.splits) == 1 or _split_of(premise) == split):
            return item
    return None


def _split_of(premise: str) -> str:
    """Assign a premise to a split permanently; the built-in hash would change from process to process."""
    return "test" if zlib.crc32(premise.encode()) % 3 == 0 else "train"


def _rows(spec: MiniSet, template: str, item: Item) -> list[dict[str, str]]:
    hypotheses = (item.yes, item.neutral, item.no) if spec.labels == THREE else (item.yes, item.no)
    return [
        {"premise": item.premise, "hypothesis": hypothesis, "label": label, "template": template}
        for label, hypothesis in zip(spec.labels, hypotheses, strict=True)
    ]
