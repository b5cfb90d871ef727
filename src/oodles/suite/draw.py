"""Draw the shots of a run from a seed, balanced by label. The draw is stored with the run, not repeated."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence

from oodles.contracts import Draw, Example
from oodles.errors import ConfigError

ANY = "any"  # the group of examples that need no balance


def draw(examples: Sequence[Example], train_set: str, shots: int, data_seed: int, *, nested: bool = False) -> Draw:
    """Draw `shots` examples in total, the same number of each label.

    Draws of different sizes are independent: 32 shots are not the first half of 64. With `nested`, the larger draw
    contains the smaller.

    Examples
    --------
    >>> rows = [Example(id=str(i), fields={}, label="ab"[i % 2], answer=i % 2) for i in range(10)]
    >>> [e.label for e in draw(rows, "toy", 4, 0).examples].count("a")
    2
    """
    return draw_from(group(examples), train_set, shots, data_seed, nested=nested)


def group(examples: Sequence[Example]) -> dict[str, list[Example]]:
    """Group a train set by label, sorted by id, so that the draw does not depend on the order of the file.

    If examples have different choices, labels are positions of the right one, which need no balance: one group.
    """
    differ = len({example.choices for example in examples}) > 1
    by_label: dict[str, list[Example]] = defaultdict(list)
    for example in sorted(examples, key=lambda e: e.id):
        by_label[ANY if differ else example.label].append(example)
    return dict(by_label)


def draw_from(
    by_label: Mapping[str, list[Example]], train_set: str, shots: int, data_seed: int, *, nested: bool = False
) -> Draw:
    """Draw from a grouped set; a grid draws from the same set many times."""
    labels = sorted(by_label)
    if shots % len(labels):
        raise ConfigError(
            f"shots is {shots}, not divisible by the {len(labels)} labels of '{train_set}' ({', '.join(labels)})"
        )
    each = shots // len(labels)
    smallest = min(labels, key=lambda name: len(by_label[name]))
    if each > len(by_label[smallest]):
        raise ConfigError(
            f"shots is {shots}, {each} per label, but train set '{train_set}' has only"
            f" {len(by_label[smallest])} examples labelled '{smallest}'; lower shots"
        )
    if nested:
        chosen = _first_of_each(by_label, each, f"oodles draw {train_set} nested {data_seed}")
    else:
        rng = random.Random(f"oodles draw {train_set} {shots} {data_seed}")
        chosen = [example for label in labels for example in rng.sample(by_label[label], each)]
        rng.shuffle(chosen)
    return Draw(train_set=train_set, shots=shots, data_seed=data_seed, examples=tuple(chosen))


def _first_of_each(by_label: Mapping[str, list[Example]], each: int, key: str) -> list[Example]:
    """Take the first examples of every label from one shuffled order, which is the same for all sizes."""
    queues = []
    for label in sorted(by_label):
        queue = list(by_label[label])
        random.Random(f"{key} {label}").shuffle(queue)
        queues.append(queue[:each])
    return [example for rank in zip(*queues, strict=True) for example in rank]
