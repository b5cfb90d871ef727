"""What every importer takes and gives.

An importer is a module, or any object, with `NAME`, `recognise(path)` and `read(paths, options)`; the registry lists
them, and a package adds its own with an entry point of the group `oodles.importers`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pandas as pd

NO_TEST_SETS = "columns that are no test sets"  # how a note on them begins


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a user says about the files; None and empty: what they say themselves."""

    format: str | None = None  # the importer; default: recognised
    in_domain: tuple[str, ...] = ()
    test_sets: tuple[str, ...] = ()
    maps: tuple[str, ...] = ()  # FIELD=COLUMN, or a file with a column `run` and what is known of each run
    names: str | None = None  # how runs are named, e.g. {model}_{train_set}_{seed}_{shots}
    keys: str | None = None  # how metrics are named, e.g. eval/{test_set}_{metric}
    refresh: bool = False  # ask the tracker again, though its answer is cached


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Imported:
    """What an importer found: a long table, records where the format has them, and what it had to assume."""

    format: str
    table: pd.DataFrame  # as docs/design.md says; roles only where the files tell them
    records: pd.DataFrame | None = None  # run, step, test_set, example, correct
    notes: tuple[str, ...] = ()  # what was assumed, left out or could not be told
    aliases: Mapping[str, str] = field(default_factory=dict)  # a column's or metric's own name -> its test set


class Importer(Protocol):
    """One format."""

    NAME: str

    def recognise(self, path: Path, /) -> bool:
        """Whether a file or folder is, or holds, this format; reads as little as it can, and raises nothing."""

    def read(self, paths: Sequence[Path], options: Options, /) -> Imported:
        """All runs in these files and folders; `DataError` in one line where they cannot be read."""
