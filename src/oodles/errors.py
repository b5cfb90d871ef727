"""Errors that tell the user what to fix.

    OodlesError                 one line: where, what was found, what was expected, what to do
    ├── ConfigError             a study or suite file, a flag, a --set
    ├── DataError               a data file, a label, a long table
    ├── ModelError              a model folder, a tokenizer, an adapter, the answers' tokens
    ├── StoreError              a run folder
    │   └── DiskError           a disk that is full, read-only, failing or gone: no run can be kept until it is mended
    ├── SchedulerError          a command of SLURM's
    └── MissingExtraError       an optional dependency, with its install line

The command line prints these without a traceback and exits with 2. A run that fails during training raises none of
these errors: the failure is recorded in the run's folder, and the command exits with 1.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable

LONG = 80  # characters of a value shown in a message
LONGEST = 1000  # characters of a message
COMPARED = 2000  # known names that are compared with an unknown name
CONTROL = ("Cc", "Cs", "Zl", "Zp")  # Unicode categories of characters that a terminal interprets or cannot show
USER_OF_URL = re.compile(r"(\b[a-zA-Z][\w+.-]*://)[^\s/@'\"]*(?:@[^\s/@'\"]*)*@")
TURNING = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # change the writing direction


class OodlesError(Exception):
    """An error that the user can fix. Its text is one short line without passwords."""

    def __init__(self, text: str = "") -> None:
        text = masked(text)
        if len(text) > LONGEST:  # keep both ends: the message starts with the problem and ends with the advice
            text = f"{text[: LONGEST * 2 // 3]} ... {text[-LONGEST // 3 :]}"
        super().__init__(text)


class ConfigError(OodlesError):
    """A study file, a suite file or a flag has a value that cannot be used."""


class DataError(OodlesError):
    """A data file or a table has unexpected content."""


class ModelError(OodlesError):
    """A model, tokenizer or adapter cannot be used as requested."""


class StoreError(OodlesError):
    """A folder of runs cannot be read or written."""


class DiskError(StoreError):
    """The disk cannot be written. Committed results stay, and the same command resumes when the disk is repaired."""


class SchedulerError(OodlesError):
    """SLURM refuses something, or does not answer."""


class MissingExtraError(OodlesError):
    """An optional dependency is required but not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs packages that are not installed; run: pip install 'oodles[{extra}]'")


def nearest(word: str, choices: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the nearest known name, or a few known names."""
    names = sorted(map(str, choices))
    close = _close(word[:LONG], names[:COMPARED])
    return f"did you mean '{shown(close)}'?" if close else f"known: {some(names) or 'none'}"


def _close(word: str, names: list[str]) -> str:
    """The name that differs in its case only, else the shortest that holds the word, else one spelt alike.

    >>> _close("snli", ["mnli", "SNLI (ID)"]), _close("snil", ["MNLI", "SNLI"]), _close("x", ["SNLI"])
    ('SNLI (ID)', 'SNLI', '')
    """
    asked = word.casefold()
    folded = {name: name.casefold() for name in names}
    holding = [name for name in names if folded[name] == asked or (len(asked) > 2 and asked in folded[name])]
    if holding:
        return min(holding, key=len)
    alike = difflib.get_close_matches(asked, folded.values(), n=1)
    return next((name for name in names if alike and folded[name] == alike[0]), "")


def no_test_set(where: object, name: str, known: Iterable[str], option: str = "--test-set") -> str:
    """Return the message about a test set that scores lack; `where` is the file, folder or finding that has them."""
    return f"{where}: no scores of test set '{shown(name)}'; choose another {option} ({nearest(name, known)})"


def some(names: Iterable[object], most: int = 8) -> str:
    """Join the first few of many names; a name with a comma is quoted.

    >>> some(["hans", "subsequence, entailed"])
    "hans, 'subsequence, entailed'"
    """
    listed = [quoted(name) for name in names]
    return ", ".join(listed[:most]) + (f" and {len(listed) - most} more" if len(listed) > most else "")


def quoted(name: object) -> str:
    """Return a name as part of a list: in quotes if it holds a comma."""
    return f"'{shown(name)}'" if "," in str(name) else shown(name)


def listed(things: Iterable[object], word: str = "and") -> str:
    """Join a few values with commas and "and".

    >>> listed([15, 8, 2]), listed([4]), listed(["seed", "step"], "or")
    ('15, 8 and 2', '4', 'seed or step')
    """
    *before, last = map(str, things)
    return f"{', '.join(before)} {word} {last}" if before else last


def shown(value: object, most: int = LONG) -> str:
    """Return a value as shown in a message: text on one line, shortened if it is long."""
    text = plain(str(value), keep="")
    return text if len(text) <= most else f"{text[: most - 3]}..."


def plain(text: str, keep: str = "\n\t") -> str:
    """Return text that a terminal shows and does not interpret: control characters are escaped, e.g. \\x1b.

    >>> plain("\\x1b[2Jred \\u202e")
    '\\\\x1b[2Jred \\\\u202e'
    """
    if text.isprintable():
        return text
    return "".join(ascii(c)[1:-1] if c not in keep and _is_control(c) else c for c in text)


def masked(text: str) -> str:
    """Return text with the passwords in URLs masked.

    >>> masked("https://me:secret@hub.example.org/api cannot be reached")
    'https://***@hub.example.org/api cannot be reached'
    """
    return USER_OF_URL.sub(r"\1***@", text)


def _is_control(character: str) -> bool:
    return (
        character in TURNING
        or unicodedata.category(character) in CONTROL
        or ord(character) & 0xFFFE == 0xFFFE  # no characters: U+FFFE, U+FFFF and their like in every plane
    )


def first_line(error: BaseException) -> str:
    """Return a library's error message on one line, shortened if it is long."""
    lines = str(error).strip().splitlines()
    return shown(lines[0] if lines else type(error).__name__, 200)
