"""Names that become paths: of runs, models, suites, sets, patterns and records. Every entry point uses these checks.

A name consists of letters, digits, `-`, `_`, `.` and `,`. It does not begin with a dot, and it is short enough for any
file system.
"""

from __future__ import annotations

import re

from oodles.errors import ConfigError, shown

LONGEST = 150  # bytes; a file name may have 255, and oodles adds its own suffixes and a host name
PART = re.compile("[^/\\\\\x00\ud800-\udfff]+")
RULE = "letters, digits, - _ . and , only"


def is_name(name: object) -> bool:
    """Whether a value is a valid name for a file or folder of oodles.

    >>> [is_name(n) for n in ("pythia-1.4b", "../up", "a/b", ".hidden", "", "\\x1b[31m", 3)]
    [True, False, False, False, False, False, False]
    """
    if not isinstance(name, str) or not name or name.startswith("."):
        return False
    return all(c.isalnum() or c in "-_.," for c in name) and len(name.encode()) <= LONGEST


def is_part(name: object) -> bool:
    """Whether a name, e.g. from an untrusted file, stays inside its folder when used as a path."""
    return isinstance(name, str) and name not in (".", "..") and PART.fullmatch(name) is not None


def check_name(name: str, what: str) -> str:
    """Return the name if it can become a path; `what` describes the name in the error message."""
    if is_name(name):
        return name
    size = len(name.encode(errors="replace"))
    if size > LONGEST:
        raise ConfigError(f"{what} is '{shown(name)}', {size} bytes; expected at most {LONGEST} bytes")
    if name.startswith("."):
        raise ConfigError(f"{what} is '{shown(name)}', which begins with a dot; expected {RULE}, no dot first")
    raise ConfigError(f"{what} is '{shown(name)}'; expected {RULE}")


def check_split(split: str, what: str) -> str:
    """Check a split, which is also a file name: a name, or parts such as `train[:10%]+test`."""
    check_name("".join(c for c in split if c not in "[]:%+() ") or split, what)
    return split


def as_name(text: str) -> str:
    """Derive a name from any text, e.g. a folder's name: characters that are not allowed become a dash."""
    plain = "".join(c if c.isalnum() or c in "-_.," else "-" for c in text).lstrip(".")
    return plain.encode()[:LONGEST].decode(errors="ignore") or "unnamed"
