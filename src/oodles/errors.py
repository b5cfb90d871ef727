"""Errors that speak to the person who can mend them.

    OodlesError                 one line: where, what was found, what was expected, what to do
    ├── ConfigError             a study or suite file, a flag, a --set
    ├── DataError               a data file, a label, a long table
    ├── ModelError              a model folder, a tokenizer, an adapter, the answers' tokens
    ├── StoreError              a run folder
    │   └── DiskError           a disk that is full, read-only, failing or gone: no run can be kept until it is mended
    ├── SchedulerError          a command of SLURM's
    └── MissingExtraError       an optional dependency, with its install line

The command line prints these without a traceback and exits with 2. A run that failed while it
ran is not an error of this tree: it is recorded in its folder and the command exits with 1.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable

LONG = 80  # characters of a value that a message shows
LONGEST = 1000  # characters of a message
COMPARED = 2000  # known names among which the nearest is looked for
CONTROL = ("Cc", "Cs", "Zl", "Zp")  # Unicode's categories of what a terminal obeys or cannot show
USER_OF_URL = re.compile(r"(\b[a-zA-Z][\w+.-]*://)[^\s/@'\"]*(?:@[^\s/@'\"]*)*@")
TURNING = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # the direction of writing


class OodlesError(Exception):
    """Something a user can mend; its text is one line, not too long, and holds no password."""

    def __init__(self, text: str = "") -> None:
        text = masked(text)
        if len(text) > LONGEST:  # what was found stands first, what to do last
            text = f"{text[: LONGEST * 2 // 3]} ... {text[-LONGEST // 3 :]}"
        super().__init__(text)


class ConfigError(OodlesError):
    """A study file, a suite file or a flag says something that cannot be used."""


class DataError(OodlesError):
    """A data file or a table does not hold what was promised."""


class ModelError(OodlesError):
    """A model, tokenizer or adapter cannot be used as asked."""


class StoreError(OodlesError):
    """A folder of runs cannot be read or written."""


class DiskError(StoreError):
    """Nothing can be written now; what is committed stays, and the same command resumes when the disk is mended."""


class SchedulerError(OodlesError):
    """SLURM refuses something, or does not answer."""


class MissingExtraError(OodlesError):
    """An optional dependency is needed and absent."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs packages that are not installed; run: pip install 'oodles[{extra}]'")


def nearest(word: str, known: Iterable[str]) -> str:
    """The tail of a message about an unknown name: the nearest known one, or a few of them."""
    names = sorted(map(str, known))
    close = difflib.get_close_matches(word[:LONG], names[:COMPARED], n=1)
    return f"did you mean '{shown(close[0])}'?" if close else f"known: {some(names) or 'none'}"


def some(names: Iterable[object], most: int = 8) -> str:
    """The first few of many names."""
    listed = [shown(name) for name in names]
    return ", ".join(listed[:most]) + (f" and {len(listed) - most} more" if len(listed) > most else "")


def listed(things: Iterable[object]) -> str:
    """All of a few things.

    >>> listed([15, 8, 2]), listed([4])
    ('15, 8 and 2', '4')
    """
    *before, last = map(str, things)
    return f"{', '.join(before)} and {last}" if before else last


def shown(value: object, most: int = LONG) -> str:
    """A value as a message shows it: on one line, as text, not too long."""
    text = plain(str(value), keep="")
    return text if len(text) <= most else f"{text[: most - 3]}..."


def plain(text: str, keep: str = "\n\t") -> str:
    """Text without its powers over a terminal: control characters are spelt out, e.g. \\x1b for an escape.

    >>> plain("\\x1b[2Jred \\u202e")
    '\\\\x1b[2Jred \\\\u202e'
    """
    if text.isprintable():
        return text
    return "".join(ascii(c)[1:-1] if c not in keep and _is_control(c) else c for c in text)


def masked(text: str) -> str:
    """Text without the passwords of addresses.

    >>> masked("https://me:secret@hub.example.org/api cannot be reached")
    'https://***@hub.example.org/api cannot be reached'
    """
    return USER_OF_URL.sub(r"\1***@", text)


def _is_control(character: str) -> bool:
    return character in TURNING or unicodedata.category(character) in CONTROL


def first_line(error: BaseException) -> str:
    """What a library says of its error, on one line and not too long."""
    lines = str(error).strip().splitlines()
    return shown(lines[0] if lines else type(error).__name__, 200)
