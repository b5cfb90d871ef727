"""The disk under a study: what is wrong with it, as one line, and whether the study's folder still is where it was.

A full, read-only or failing disk is no run's fault: it stops the study with a `DiskError`, and the same command resumes
when the disk is mended.
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
TROUBLE = (*FULL, *GONE, errno.EMFILE, errno.ENFILE)  # the disk's, or the machine's: not a run's
FORBIDDEN = (errno.EROFS, errno.EACCES, errno.EPERM)
ELSEWHERE = "choose another --out"
ASIDE = re.compile(r"\..*\.(part|lock)")  # names that a user has never seen
CODED = re.compile(r"\b(?:os error|errno) (\d+)", flags=re.IGNORECASE)  # as Rust and Arrow tell an error's number
TORN = ("PytorchStreamWriter", "unexpected pos", "basic_ios", "iostream")  # as torch tells that it could not write
PROBE = 1 << 16  # bytes: a disk without them is full


@contextmanager
def disk_errors(path: Path, elsewhere: str = ELSEWHERE) -> Iterator[None]:
    """Disk trouble as one line that names the place; every write goes through here.

    `elsewhere` is how a user chooses another place.
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
    """A path up to what only oodles knows: files that are written aside, and locks.

    >>> _known_to_users(Path("runs/a/locks/.2f30.lock"))
    PosixPath('runs/a')
    """
    shown = next((p.parent for p in (*reversed(path.parents), path) if ASIDE.fullmatch(p.name)), path)
    shown = shown.parent if shown.parent.name == "locks" and shown.suffix == ".json" else shown  # a lock itself
    return shown.parent if shown.name == "locks" else shown


def disk_trouble(error: BaseException, path: Path, elsewhere: str = ELSEWHERE) -> DiskError | None:
    """What is wrong with the disk, if that is what an error comes from, however it was wrapped; None if it is not.

    Libraries hide the number of the error, and torch says nothing of it at all: then the disk itself is asked.
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
        return _disk_error(path, None, "not whole; often no space is left", elsewhere)
    return None


def _number_in(text: str) -> int | None:
    """The number of a disk's error that a library has put into words."""
    match = CODED.search(text)
    if match:
        return int(match[1])
    return next((number for number in TROUBLE if os.strerror(number) in text), None)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and those it was raised from or during."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        cause = todo.pop(0)
        if cause is not None and id(cause) not in seen:
            seen.add(id(cause))
            yield cause
            todo += [cause.__cause__, cause.__context__]


def _ask_disk(path: Path) -> int | None:
    """Why nothing can be written beside a path now, as an error number."""
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

_PLACES: dict[Path, int] = {}  # a handle on each, so that its inode is given to no other


@contextmanager
def staying(root: Path) -> Iterator[None]:
    """Notice if a study's folder is moved away or replaced; a folder of that name is not made again meanwhile."""
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
            f"{place}: was moved, replaced or removed while runs were written to it; nothing was written to what is"
            " there now: put the folder back, or give its new place as --out, and run the same command again"
        )


def is_watched(path: Path) -> bool:
    """Whether a path is the folder of a study whose runs are being written."""
    return Path(os.path.abspath(path)) in _PLACES  # noqa: PTH100
