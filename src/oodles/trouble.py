"""Disk errors under a study: report them in one line, and detect that the study's folder was moved or replaced.

A full, read-only or failing disk does not fail a run. It stops the study with a `DiskError`, and the same command
resumes when the disk is repaired.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oodles.errors import DiskError, OodlesError, first_line

FULL = (errno.ENOSPC, errno.EDQUOT)
GONE = (errno.EROFS, errno.EIO, errno.ENXIO, errno.ENODEV, errno.ESTALE, errno.ENOTCONN)
TROUBLE = (*FULL, *GONE, errno.EMFILE, errno.ENFILE)  # errors of the disk or the machine, not of a run
FORBIDDEN = (errno.EROFS, errno.EACCES, errno.EPERM)
ELSEWHERE = "choose another --out"
ASIDE = re.compile(r"\..*\.(part|lock)")  # temporary names that users never see
CODED = re.compile(r"\b(?:os error|errno) (\d+)", flags=re.IGNORECASE)  # error numbers as Rust and Arrow print them
TORN = ("PytorchStreamWriter", "unexpected pos", "basic_ios", "iostream")  # torch's messages about failed writes
PROBE = 1 << 16  # bytes; a disk without this much space is full


@contextmanager
def disk_errors(path: Path, elsewhere: str = ELSEWHERE) -> Iterator[None]:
    """Turn disk errors into one line that names the place. Every write runs inside this context.

    `elsewhere` tells the user how to choose another place.
    """
    check_place(path)
    try:
        yield
    except OSError as error:
        check_place(path)
        raise _disk_error(path, error.errno, error.strerror or first_line(error), elsewhere) from None
    except OodlesError:
        raise
    except Exception as error:
        trouble = disk_trouble(error, path, elsewhere)
        if trouble is None:
            raise
        raise trouble from None


def _disk_error(path: Path, number: int | None, reason: str, elsewhere: str) -> DiskError:
    advice = f"check the folder and its disk, then run the same command again, or {elsewhere}"
    if number in FULL:
        reason = "no space left on the disk, or no inodes"
        advice = f"free some, then run the same command again, or {elsewhere}"
    elif number in FORBIDDEN:
        advice = f"make the folder writable, or {elsewhere}"
    return DiskError(f"{_known_to_users(path)}: cannot be written ({reason}); {advice}")


def _known_to_users(path: Path) -> Path:
    """Return the part of a path that users know, without temporary files and locks.

    >>> _known_to_users(Path("runs/a/locks/.2f30.lock"))
    PosixPath('runs/a')
    """
    shown = next((p.parent for p in (*reversed(path.parents), path) if ASIDE.fullmatch(p.name)), path)
    shown = shown.parent if shown.parent.name == "locks" and shown.suffix == ".json" else shown  # the lock file itself
    return shown.parent if shown.name == "locks" else shown


def disk_trouble(error: BaseException, path: Path, elsewhere: str = ELSEWHERE) -> DiskError | None:
    """Return the disk error behind an exception, even if libraries have wrapped it; None if there is none.

    Libraries hide the error number, and torch gives none at all. In that case, probe the disk.
    """
    for cause in _causes(error):
        number = cause.errno if isinstance(cause, OSError) else _number_in(str(cause))
        if number in TROUBLE:
            place = getattr(cause, "filename", None)
            place = Path(os.fsdecode(place)) if isinstance(place, (str, bytes)) else path
            return _disk_error(place, number, os.strerror(number), elsewhere)
    number = _ask_disk(path)
    if number is not None:
        return _disk_error(path, number, os.strerror(number), elsewhere)
    if any(word in str(cause) for cause in _causes(error) for word in TORN):
        return _disk_error(path, None, "incomplete write; the disk may be full", elsewhere)
    return None


def _number_in(text: str) -> int | None:
    """Return the number of a disk error that a library mentions in its message."""
    match = CODED.search(text)
    if match:
        return int(match[1])
    return next((number for number in TROUBLE if os.strerror(number) in text), None)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those it was raised from or during."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        cause = todo.pop(0)
        if cause is not None and id(cause) not in seen:
            seen.add(id(cause))
            yield cause
            todo += [cause.__cause__, cause.__context__]


def _ask_disk(path: Path) -> int | None:
    """Return the error number that prevents writing beside a path, if any."""
    place = next((p for p in (path, *path.parents) if p.is_dir()), path.parent)
    try:
        with tempfile.TemporaryFile(dir=place) as probe:
            probe.write(bytes(PROBE))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        return error.errno if error.errno in TROUBLE else None
    return None


# the folder of a study while its runs are written

_PLACES: dict[Path, int] = {}  # an open handle on each folder, so that its inode is not reused


@contextmanager
def staying(root: Path) -> Iterator[None]:
    """Detect that a study's folder is moved or replaced; meanwhile, no folder of that name is created again."""
    place = Path(os.path.abspath(root))  # noqa: PTH100
    if place in _PLACES:
        yield
        return
    with disk_errors(root):
        _PLACES[place] = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield
        check_place(root)
    finally:
        os.close(_PLACES.pop(place))


def _place_of(path: Path) -> Path | None:
    absolute = Path(os.path.abspath(path))  # noqa: PTH100
    return next((place for place in _PLACES if absolute.is_relative_to(place)), None)


def check_place(path: Path) -> None:
    place = _place_of(path)
    if place is None:
        return
    try:
        same = os.path.samestat(place.stat(), os.fstat(_PLACES[place]))
    except OSError:
        same = False
    if not same:
        raise DiskError(
            f"{place}: was moved, replaced or removed during the run; nothing was written to its replacement. Restore"
            " the folder, or pass its new path as --out, and run the same command again"
        )


def is_watched(path: Path) -> bool:
    """Whether a path is the folder of a study whose runs are being written."""
    return Path(os.path.abspath(path)) in _PLACES  # noqa: PTH100
