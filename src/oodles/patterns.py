"""Pattern + Example -> Prompt, and the fixed sample that `limit` asks for."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from oodles.errors import DataError, nearest
from oodles.records import Example, Pattern, Prompt, PromptSet
from oodles.suite import pattern_fields

K = TypeVar("K", bound=Hashable)


def render(pattern: Pattern, examples: Sequence[Example], name: str, limit: int | None = None) -> PromptSet:
    """Render a set with a pattern.

    Examples
    --------
    >>> pattern = Pattern(name="q", text="{premise} Question: {hypothesis} Yes or No?", answers=(" Yes", " No"))
    >>> one = Example(id="1", fields={"premise": "It rains.", "hypothesis": "It is wet."}, label="e", answer=0)
    >>> render(pattern, [one], "toy").prompts[0].text
    'It rains. Question: It is wet. Yes or No?'
    """
    names = pattern_fields(pattern)
    if limit is not None:
        examples = sample(examples, limit, pattern.truncate or names[0])
    prompts = tuple(_prompt(pattern, names, example, name) for example in examples)
    return PromptSet(name=name, answers=pattern.answers, prompts=prompts, limit=limit)


def _prompt(pattern: Pattern, names: Sequence[str], example: Example, where: str) -> Prompt:
    for field in names:
        if field not in example.fields:
            known = nearest(field, example.fields)
            raise DataError(
                f"{where}: example {example.id} has no field '{field}' of pattern '{pattern.name}'; {known}"
            )
    return Prompt(id=example.id, text=pattern.text.format_map(dict(example.fields)), gold=example.answer)


def sample(examples: Sequence[Example], limit: int, shared_field: str) -> tuple[Example, ...]:
    """A fixed sample in proportion to label x slice; a larger limit contains every smaller one.

    Rows are ranked by a hash of `shared_field`, so that the examples of one premise have the same rank in
    their strata and tend to be drawn together: their common prefix is then computed once.
    """
    if limit >= len(examples):
        return tuple(examples)
    by_label: dict[str, dict[tuple[str, ...], list[int]]] = defaultdict(lambda: defaultdict(list))
    for index, example in sorted(enumerate(examples), key=lambda pair: _rank(pair[1], shared_field)):
        by_label[example.label][tuple(example.slices.values())].append(index)
    # labels first, then slices within each label: rounding many small strata at once would tilt the labels
    of_label = _apportion({label: sum(map(len, slices.values())) for label, slices in by_label.items()}, limit)
    chosen: list[int] = []
    for label, slices in by_label.items():
        seats = _apportion({key: len(rows) for key, rows in slices.items()}, of_label[label])
        chosen += [index for key, rows in slices.items() for index in rows[: seats[key]]]
    return tuple(examples[i] for i in sorted(chosen))


def _rank(example: Example, shared_field: str) -> tuple[str, str]:
    text = example.fields.get(shared_field, example.id)
    return hashlib.sha256(f"oodles sample\n{text}".encode()).hexdigest(), example.id


def _apportion(sizes: Mapping[K, int], seats: int) -> dict[K, int]:
    """Seats in proportion to size (Sainte-Laguë): no stratum loses when there are more seats, so samples are nested."""
    given = dict.fromkeys(sizes, 0)
    for _ in range(seats):
        open_ = [key for key in sizes if given[key] < sizes[key]]
        key = max(open_, key=lambda k: (sizes[k] / (2 * given[k] + 1), str(k)))
        given[key] += 1
    return given
