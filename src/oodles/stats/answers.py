"""What is asked beyond correlations has an answer of one form: sentences, and the tables that are their evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Answer:
    """The answer to one question."""

    name: str  # claim, sensitivity, ...
    sentences: tuple[str, ...]
    tables: Mapping[str, pd.DataFrame]  # by name, of numbers and text
    caveats: tuple[str, ...] = ()
    settings: Mapping[str, object] = field(default_factory=dict)
    brief: tuple[str, ...] = ()  # the sentences without their lists of pairs, where they have such


def counted(number: int, what: str) -> str:
    """A number with its noun.

    >>> counted(1, "pair"), counted(3, "pair"), counted(2, "train set")
    ('1 pair', '3 pairs', '2 train sets')
    """
    return f"1 {what}" if number == 1 else f"{number} {plural(what)}"


def plural(what: str) -> str:
    """More than one of a noun; in "value of shots" the first noun changes.

    >>> plural("train set"), plural("family"), plural("value of shots")
    ('train sets', 'families', 'values of shots')
    """
    head, of, rest = what.partition(" of ")
    many = f"{head[:-1]}ies" if head.endswith("y") and head[-2:-1] not in "aeiou" else f"{head}s"
    return f"{many}{of}{rest}"


def several(names: list[str], most: int = 4) -> str:
    """A few names and how many more.

    >>> several(["a", "b"]), several(list("abcdef"))
    ('a, b', 'a, b, c, d and 2 more')
    """
    return ", ".join(names) if len(names) <= most else f"{', '.join(names[:most])} and {len(names) - most} more"
