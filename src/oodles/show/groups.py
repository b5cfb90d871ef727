"""Which rows of a result belong to a group, and what the group is called."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from oodles.errors import DataError
from oodles.stats.longtable import as_names
from oodles.stats.series import NO_NAME
from oodles.stats.stability import read_size

Group = Mapping[str, Any]


def columns_before(frame: pd.DataFrame, column: str) -> list[str]:
    """The columns that name a group: whatever stands before a result's own first column."""
    names = [str(c) for c in frame.columns]
    return names[: names.index(column)] if column in names else []


def label_of(group: Group) -> str:
    """A group in words: `opt-125m, trained on mnli`."""
    before = {"model": "", "train_set": "trained on "}
    return ", ".join(f"{before.get(k, k.replace('_', ' ') + ' ')}{v}" for k, v in group.items())


def size_of(group: Group) -> float:
    """Parameters of a group's model, where a name tells them."""
    return next((s for s in map(read_size, map(str, group.values())) if math.isfinite(s)), math.nan)


def by_size(group: Group) -> float:
    """Orders groups by the size of their model; those of no known size come first, as they were."""
    size = size_of(group)
    return size if math.isfinite(size) else 0.0


def heads_of(every: Sequence[Group]) -> list[str]:
    """What tells each group from the others: `opt-125m` where all are trained on one set.

    >>> heads_of([{"model": "a", "train_set": "mnli"}, {"model": "b", "train_set": "mnli"}])
    ['a', 'b']
    """
    varied = [c for c in (every[0] if every else ()) if len({group[c] for group in every}) > 1]
    return [", ".join(str(group[c]) for c in varied) or label_of(group) or "all runs" for group in every]


def of_group(frame: pd.DataFrame, group: Group | None) -> pd.DataFrame:
    """The rows of a group; all of them if there is none. Names are compared as the analysis writes them."""
    if not group:
        return frame
    for column in group:
        if column not in frame:
            raise DataError(f"group names the column '{column}', which the table lacks")
    inside = np.ones(len(frame), dtype=bool)
    for column, value in group.items():
        inside &= (as_names(frame[column], NO_NAME) == str(value)).to_numpy()
    return frame[inside]


def one_group(frame: pd.DataFrame, group: Group | None, by: Iterable[str] = ("model", "train_set")) -> pd.DataFrame:
    """The rows of the group; a mean over several models says nothing, so it is never drawn unasked."""
    if group is None:
        several = [c for c in by if c in frame and frame[c].nunique(dropna=False) > 1]
        if several:
            choose = f"group={{{several[0]!r}: ...}}"
            raise DataError(f"the table holds several groups ({', '.join(several)}); pass {choose}")
    return of_group(frame, group)
