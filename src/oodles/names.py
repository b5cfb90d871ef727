"""Names that become paths: of runs, models, suites, sets, patterns and records. One rule, kept at every door.

A name is letters, digits, `-`, `_`, `.` and `,`; it does not begin with a dot, and is short enough for any disk.
"""

from __future__ import annotations

import re

from oodles.errors import ConfigError, shown

LONGEST = 150  # bytes; a file name holds 255, and our own endings and a host's name come on top
PART = re.compile("[^/\\\\\x00\ud800-\udfff]+")
RULE = "letters, digits, - _ . and , only"


def is_name(name: object) -> bool:
    """Whether a name can be that of a file or folder of ours.

    >>> [is_name(n) for n in ("pythia-1.4b", "../up", "a/b", ".hidden", "", "\\x1b[31m", 3)]
    [True, False, False, False, False, False, False]
    """
    if not isinstance(name, str) or not name or name.startswith("."):
        return False
    return all(c.isalnum() or c in "-_.," for c in name) and len(name.encode()) <= LONGEST


def is_part(name: object) -> bool:
    """Whether a name from elsewhere, e.g. from a file, stays in its folder when it becomes a path."""
    return isinstance(name, str) and name not in (".", "..") and PART.fullmatch(name) is not None


def check_name(name: str, what: str) -> str:
    """The name, if it can become a path; `what` says where it stands and what it names."""
    if is_name(name):
        return name
    size = len(name.encode(errors="replace"))
    if size > LONGEST:
        raise ConfigError(f"{what} is '{shown(name)}', {size} bytes; expected at most {LONGEST} bytes")
    if name.startswith("."):
        raise ConfigError(f"{what} is '{shown(name)}', which begins with a dot; expected {RULE}, no dot first")
    raise ConfigError(f"{what} is '{shown(name)}'; expected {RULE}")


def check_split(split: str, what: str) -> str:
    """A split, which is also the name of the file with its rows: a name, or parts such as `train[:10%]+test`."""
    check_name("".join(c for c in split if c not in "[]:%+() ") or split, what)
    return split


def as_name(text: str) -> str:
    """A name made of any text, e.g. of a folder's own: what a name cannot hold becomes a dash."""
    plain = "".join(c if c.isalnum() or c in "-_.," else "-" for c in text).lstrip(".")
    return plain.encode()[:LONGEST].decode(errors="ignore") or "unnamed"
