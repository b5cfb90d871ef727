"""Write files to places that the user names: never over an input, never over a file that oodles did not write.

Every file is written aside and renamed, so it is complete or absent. Its mode follows the umask.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from oodles.disk import put
from oodles.errors import StoreError
from oodles.trouble import disk_errors


def write_aside(path: Path, write: Callable[[Path], object]) -> Path:
    """Let `write` fill a temporary file, then rename it to `path`. A full disk leaves the old file unchanged."""
    with put(path, durable=False) as aside:
        write(aside)
    return path


def check_target(path: Path, is_ours: Callable[[Path], bool], inputs: Iterable[Path] = ()) -> None:
    """Refuse to overwrite an input, or a file that oodles did not write.

    Parameters
    ----------
    is_ours : says whether oodles wrote an existing file.
    inputs : the files that the command reads.
    """
    with disk_errors(path):
        if not os.path.lexists(path):
            return
        if not path.is_file():
            raise StoreError(f"{path}: exists and is not a regular file; choose another name")
        if any(source.exists() and path.samefile(source) for source in inputs):
            raise StoreError(f"{path}: is an input of this command, so it cannot be overwritten; choose another name")
        ours = not path.stat().st_size or is_ours(path)
    if not ours:
        raise StoreError(f"{path}: exists and was not written by oodles; choose another name, or remove it")


def begins_with(path: Path, mark: bytes, within: int = 4096) -> bool:
    """Whether a marker appears near the beginning of a file."""
    with path.open("rb") as handle:
        return mark in handle.read(within)
