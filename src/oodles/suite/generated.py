"""What the generated suites share: sets made of templates, drawn from a seed without repeats.

A template writes an `Item`: one opening and one continuation per label. For `mini` these are a premise and its
hypotheses, for `opinions` the beginning of a review and its possible ends.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle
from random import Random

TRIES = 400  # draws in a row without a new opening after which a template counts as used up


@dataclass(frozen=True, slots=True)
class Item:
    """One premise with one hypothesis per label."""

    premise: str
    yes: str
    no: str
    neutral: str = ""  # only the in-domain set of `mini` has one


Template = Callable[[Random], Item]


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedSet:
    """One set of a generated suite."""

    name: str
    shift: str  # how it differs from the in-domain set
    labels: tuple[str, ...]
    splits: tuple[str, ...]
    templates: Mapping[str, Template]


def normalise(text: str) -> str:
    """Lower the case and collapse spaces, to compare texts."""
    return " ".join(text.lower().split())


def known_set(suite: str, sets: Mapping[str, GeneratedSet], name: str, split: str) -> GeneratedSet:
    """The set of that name, if it has that split."""
    if name not in sets:
        raise ValueError(f"{suite}: unknown set {name!r}; known: {', '.join(sets)}")
    spec = sets[name]
    if split not in spec.splits:
        raise ValueError(f"{suite}: set {name!r} has no split {split!r}; known: {', '.join(spec.splits)}")
    return spec


def show(sets: Mapping[str, GeneratedSet], generate: Callable[[str], list[dict[str, str]]], row: str) -> None:
    """Print the sets, or a few rows of the set that the command line names, as `row` formats them."""
    if len(sys.argv) == 1:
        wide = max(map(len, sets))
        for spec in sets.values():
            print(f"{spec.name:{wide}}  {spec.shift}")
        return
    try:
        rows = generate(sys.argv[1])
    except ValueError as error:
        sys.exit(str(error))
    for each in rows[:8]:
        print(row.format(**each))


def draw_items(spec: GeneratedSet, split: str, count: int, rng: Random) -> Iterator[tuple[str, Item]]:
    """Draw items with new premises, taking the templates in turn."""
    seen: set[str] = set()
    left = dict(spec.templates)
    for template in cycle(spec.templates):
        if len(seen) == count:
            return
        if template not in left:
            continue
        item = _fresh(left[template], spec, split, seen, rng)
        if item is None:
            del left[template]
            assert left, f"all templates of {spec.name} are used up"
            continue
        seen.add(normalise(item.premise))
        yield template, item


def _fresh(template: Template, spec: GeneratedSet, split: str, seen: set[str], rng: Random) -> Item | None:
    """Draw until the premise is new and belongs to the split."""
    for _ in range(TRIES):
        item = template(rng)
        premise = normalise(item.premise)
        if premise not in seen and (len(spec.splits) == 1 or _split_of(premise) == split):
            return item
    return None


def _split_of(premise: str) -> str:
    """Assign a premise to a split for good; the built-in hash would change from process to process."""
    return "test" if zlib.crc32(premise.encode()) % 3 == 0 else "train"
