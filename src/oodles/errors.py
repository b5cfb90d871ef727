"""Errors that speak to the person who can mend them.

    OodlesError                 one line: where, what was found, what was expected, what to do
    ├── ConfigError             a study or suite file, a flag, a --set
    ├── DataError               a data file, a label, a long table
    ├── ModelError              a model folder, a tokenizer, an adapter, the answers' tokens
    ├── StoreError              a run folder
    │   └── DiskError           a disk that is full, read-only, failing or gone: no run can be kept until it is mended
    └── MissingExtraError       an optional dependency, with its install line

The command line prints these without a traceback and exits with 2. A run that failed while it
ran is not an error of this tree: it is recorded in its folder and the command exits with 1.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class OodlesError(Exception):
    """Something a user can mend; its text is one line."""


class ConfigError(OodlesError):
    """A study file, a suite file or a flag says something that cannot be used."""


class DataError(OodlesError):
    """A data file or a table does not hold what was promised."""


class ModelError(OodlesError):
    """A model, tokenizer or adapter cannot be used as asked."""


class StoreError(OodlesError):
    """A folder of runs cannot be read or written."""


class DiskError(StoreError):
    """Nothing can be written now; what is committed stays, and the same command goes on when the disk is mended."""


class MissingExtraError(OodlesError):
    """An optional dependency is needed and absent."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs packages that are not installed; run: pip install 'oodles[{extra}]'")


def nearest(word: str, known: Iterable[str]) -> str:
    """The tail of a message about an unknown name: the nearest known one, or all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1)
    return f"did you mean '{close[0]}'?" if close else f"known: {', '.join(names) or 'none'}"
