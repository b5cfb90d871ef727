"""Hashes of every row of a suite's test sets, to detect a copy that differs and show the differing rows.

    oodles check --suite mine.toml --pin mine.rows       # write them, then say rows = "mine.rows" in the TOML

Each row takes four bytes: 28 bits of a hash of its fields and its own choices, and the number of its answer. Text and
label can be compared separately: a copy with swapped labels has the right texts and the wrong answers.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from oodles.contracts import Example, Suite
from oodles.disk import put
from oodles.errors import ConfigError
from oodles.outputs import begins_with, check_target
from oodles.suite.sources import load_examples

Pins = npt.NDArray[np.uint32]
PREFIX = "set:"  # a set may have any name, but an argument of numpy may not
ANSWER_BITS = 4  # answers above 15 share a number


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How a set differs from its pins; rows are counted from 1."""

    missing: int  # number of expected rows that are absent
    added: tuple[int, ...]  # rows that are not expected
    relabelled: tuple[int, ...]  # rows with a known text and another answer

    def __bool__(self) -> bool:
        return bool(self.missing or self.added or self.relabelled)


def pins_of(examples: Sequence[Example]) -> Pins:
    """Return the hash of every row, in order."""
    return np.array([_pin(e) for e in examples], dtype=np.uint32)


def _pin(example: Example) -> int:
    parts = [example.fields[name] for name in sorted(example.fields)]
    parts += [*example.choices, *(part for c in example.rendered for part in (c.context, c.continuation))]
    text = "\x1f".join(parts)
    hashed: int = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")
    return (hashed >> ANSWER_BITS << ANSWER_BITS) | min(example.answer, (1 << ANSWER_BITS) - 1)


def compare(examples: Sequence[Example], pins: Pins) -> Difference:
    """Find rows that are missing, added or labelled differently; order does not matter."""
    current = pins_of(examples)
    if len(current) == len(pins) and bool((current == pins).all()):
        return Difference(missing=0, added=(), relabelled=())
    spare = Counter(map(int, pins))
    odd = []
    for number, value in enumerate(map(int, current), start=1):
        if spare[value]:
            spare[value] -= 1
        else:
            odd.append((number, value))
    texts = Counter[int]()
    for value, count in spare.items():
        texts[value >> ANSWER_BITS] += count
    added, relabelled = [], []
    for number, value in odd:
        if texts[value >> ANSWER_BITS]:
            texts[value >> ANSWER_BITS] -= 1
            relabelled.append(number)
        else:
            added.append(number)
    return Difference(missing=sum(texts.values()), added=tuple(added), relabelled=tuple(relabelled))


def read_pins(suite: Suite) -> dict[str, Pins]:
    """Read the pins of a suite by test set; empty if it has no such file."""
    if not suite.rows:
        return {}
    path = Path(suite.folder) / suite.rows
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name.removeprefix(PREFIX): archive[name] for name in archive.files}
    except (OSError, ValueError, KeyError, EOFError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"suite {suite.name}: rows = '{suite.rows}' cannot be read ({reason}); write it with oodles check --pin"
        ) from None


def pin_suite(suite: Suite, path: Path) -> None:
    """Write the hashes of all test rows of a suite."""
    check_target(path, lambda file: begins_with(file, b"PK\x03\x04") and begins_with(file, PREFIX.encode()))
    write_pins({name: pins_of(load_examples(suite, data)) for name, data in suite.test_sets.items()}, path)


def write_pins(pins: Mapping[str, Pins], path: Path) -> None:
    """Write the file that `rows` names."""
    with put(path, "choose another --pin") as aside, aside.open("wb") as handle:
        np.savez_compressed(handle, **{f"{PREFIX}{name}": rows for name, rows in pins.items()})  # type: ignore[arg-type]
