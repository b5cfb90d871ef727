"""Atomic writes: a file or folder is written aside, synced and renamed. JSON files carry their own checksum."""

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

CHECKSUM = "checksum"  # key of a JSON file's checksum
UNLIKE = "changed since it was written"
MANIFEST = "manifest.json"  # file in a folder: the hash of every other file in it
MANIFEST_SCHEMA = 1
CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)  # errors of file systems that cannot sync folders


# a single file or folder


@contextmanager
def put(path: Path, elsewhere: str = ELSEWHERE, *, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary name beside `path`; on success the file is renamed, so it is complete or absent.

    Parameters
    ----------
    path : the file; its folder is created if it is missing.
    elsewhere : tells the user how to choose another place.
    durable : wait until the file is on the disk. Not needed for a file that is cheap to recompute.
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
            with suppress(OSError):  # the folder may no longer be writable; that error is already reported
                aside.unlink(missing_ok=True)


@contextmanager
def put_folder(path: Path) -> Iterator[Path]:
    """Like `put`, for a folder of files with a manifest of their hashes. It replaces an existing folder."""
    aside = path.with_name(f".{path.name}.part")  # a fixed name is safe: the writer holds the run's lock
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
    """Describe how the files of a folder differ from its manifest; empty if they do not."""
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
    return f"{changed[0]} has {UNLIKE}" if changed else ""


# text and JSON


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically: write aside, sync, rename."""
    with put(path) as aside:
        aside.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file atomically, with a checksum that reveals a flipped bit."""
    write_text(path, json.dumps(sealed(value), indent=2, ensure_ascii=False, sort_keys=True) + "\n")


def sealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object with its own checksum."""
    plain = json.loads(json.dumps(dict(value)))
    return {**plain, CHECKSUM: content_hash(plain)}


def unsealed(value: Any, *, strictly: bool = False) -> dict[str, Any]:
    """Return the object without its checksum; ValueError if it does not match. Files of older versions have none."""
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    checksum = value.pop(CHECKSUM, None)
    if checksum != content_hash(value) and (strictly or checksum is not None):
        raise ValueError(UNLIKE)
    return value


def read_sealed(path: Path, *, strictly: bool = False, advice: str) -> dict[str, Any]:
    """Read an object from a JSON file and verify its checksum; `advice` tells the user what to do if it fails."""
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
    """Create a folder that survives a power failure; never the study's own folder while its runs are written."""
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
    """Return the folder in which models, data sets and tokens are cached."""
    if root := os.environ.get("OODLES_CACHE"):
        return Path(root)
    if parent := os.environ.get("XDG_CACHE_HOME"):
        return Path(parent) / "oodles"
    try:
        return Path.home() / ".cache" / "oodles"
    except RuntimeError:  # a user without a name, as in a container that is started with a user number
        raise StoreError("no home folder; set HOME, or set OODLES_CACHE to a folder for models") from None
