"""SQLite files of trackers: recognised by what they say of their tables, read from a copy, never opened in place."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from oodles.errors import DataError, first_line

MARK = b"SQLite format 3\0"
SUFFIXES = (".db", ".sqlite", ".sqlite3")
HEAD = 1 << 20  # bytes in which the tables are described


def mentions(file: Path, *words: bytes) -> bool:
    """Whether a database, or what is not yet merged into it, speaks of all of these words."""
    if file.suffix not in SUFFIXES:
        return False
    try:
        with file.open("rb") as handle:
            head = handle.read(HEAD)
        pending = file.with_name(f"{file.name}-wal")
        if pending.is_file():
            with pending.open("rb") as handle:
                head += handle.read(HEAD)
    except OSError:
        return False
    return head.startswith(MARK) and all(word in head for word in words)


@contextmanager
def opened(file: Path) -> Iterator[sqlite3.Connection]:
    """A copy of a database: opening the file itself may write beside it."""
    try:
        with tempfile.TemporaryDirectory(prefix="oodles-") as scratch:
            copy = Path(scratch) / "copy.db"
            shutil.copyfile(file, copy)
            pending = file.with_name(f"{file.name}-wal")
            if pending.is_file():
                shutil.copyfile(pending, copy.with_name(f"{copy.name}-wal"))
            with closing(sqlite3.connect(copy)) as connection:
                yield connection
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter: of what it says is wrong with its tables
        raise DataError(f"{file}: cannot be read as a database ({first_line(error)})") from None
    except OSError as error:
        raise DataError(f"{file}: cannot be copied to be read ({error.strerror or error})") from None
