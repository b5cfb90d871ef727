"""Files and folders that are there whole or not at all: written aside, synced, renamed; JSON with its own checksum."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from oodles.contracts import content_hash
from oodles.errors import StoreError, first_line
from oodles.shapes import load_json
from oodles.trouble import ELSEWHERE, check_place, disk_errors, is_watched

CHECKSUM = "checksum"  # of a JSON file
UNLIKE = "not as it was written"
MANIFEST = "manifest.json"  # of a folder: the hash of every other file in it
MANIFEST_SCHEMA = 1
CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)  # what some disks say of folders


# one file, one folder


@contextmanager
def put(path: Path, elsewhere: str = ELSEWHERE, *, durable: bool = True) -> Iterator[Path]:
    """A name beside `path` for a new file; renamed at the end: there whole, and to stay, or not at all.

    Parameters
    ----------
    path : the file; its folder is made if need be.
    elsewhere : how a user chooses another place.
    durable : wait until it is on the disk. What can be made again at once need not.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    with disk_errors(path, elsewhere):
        make_folder(path.parent)
        try:
            yield aside
            if durable:
                sync(aside)
            aside.replace(path)
            if durable:
                sync(path.parent)
        finally:
            with suppress(OSError):  # the folder may not be writable any more: already reported
                aside.unlink(missing_ok=True)


@contextmanager
def put_folder(path: Path) -> Iterator[Path]:
    """The same for a folder of files, with a manifest of their hashes; it replaces an older folder."""
    aside = path.with_name(f".{path.name}.part")  # of one name: who writes here holds the run's lock
    with disk_errors(path):
        make_folder(path.parent)
        try:
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
            yield aside
            _write_manifest(aside)
            for entry in (*aside.rglob("*"), aside):
                sync(entry)
            if path.is_dir():
                shutil.rmtree(path)
            aside.rename(path)
            sync(path.parent)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def _write_manifest(folder: Path) -> None:
    files = {name: _hash_file(folder / name) for name in sorted(_files_in(folder))}
    (folder / MANIFEST).write_text(json.dumps({"schema": MANIFEST_SCHEMA, "sha256": files}, indent=2) + "\n")


def _files_in(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()} - {MANIFEST}


def _hash_file(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def damage_of(folder: Path) -> str:
    """How the files of a folder differ from its manifest; nothing if they do not."""
    try:
        hashes = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["sha256"]
        names = _files_in(folder)
        missing = sorted(hashes.keys() - names)
        changed = [name for name in sorted(names & hashes.keys()) if _hash_file(folder / name) != hashes[name]]
    except FileNotFoundError:
        return f"{MANIFEST} is missing"
    except (ValueError, TypeError, KeyError, AttributeError):
        return f"{MANIFEST} is damaged"
    except OSError as error:
        raise StoreError(f"{folder}: cannot be read ({error.strerror or error}); check the folder") from None
    if missing:
        return f"{missing[0]} is missing"
    return f"{changed[0]} is not as it was written" if changed else ""


# text and JSON


def write_text(path: Path, text: str) -> None:
    """Write aside, sync, rename: the file is there whole or not at all."""
    with put(path) as aside:
        aside.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write aside, sync, rename; with a checksum, so that a flipped bit is seen."""
    write_text(path, json.dumps(sealed(value), indent=2, ensure_ascii=False, sort_keys=True) + "\n")


def sealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object with its own checksum."""
    plain = json.loads(json.dumps(dict(value)))
    return {**plain, CHECKSUM: content_hash(plain)}


def unsealed(value: Any, *, strictly: bool = False) -> dict[str, Any]:
    """The object without its checksum, if that fits it; a ValueError if not. Files of older versions have none."""
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    checksum = value.pop(CHECKSUM, None)
    if checksum != content_hash(value) and (strictly or checksum is not None):
        raise ValueError(UNLIKE)
    return value


def read_sealed(path: Path, *, strictly: bool = False, advice: str) -> dict[str, Any]:
    """An object from a JSON file, if its checksum fits; `advice` is what to do if not."""
    try:
        value = load_json(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else first_line(error)
        raise StoreError(f"{path}: cannot be read ({reason}); {advice}") from None
    try:
        return unsealed(value, strictly=strictly)
    except ValueError as error:
        raise StoreError(f"{path}: {first_line(error)}; {advice}") from None


# folders


def make_folder(path: Path) -> None:
    """A folder that is still there after a power failure; never the study's own while its runs are written."""
    if not path.is_dir():
        if is_watched(path):
            check_place(path)
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in CANNOT_SYNC or not path.is_dir():
            raise
    finally:
        os.close(handle)


def cache_dir() -> Path:
    """Where models, data sets and tokens are kept."""
    if root := os.environ.get("OODLES_CACHE"):
        return Path(root)
    if parent := os.environ.get("XDG_CACHE_HOME"):
        return Path(parent) / "oodles"
    try:
        return Path.home() / ".cache" / "oodles"
    except RuntimeError:  # a user without a name, as in a container that was given a number only
        raise StoreError("no home folder is known here; set HOME, or OODLES_CACHE to a folder for models") from None
