"""The files below a folder: listed once, hidden ones and links out of it left out."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from oodles.errors import DataError

MOST = 1_000_000  # files; a home folder given by mistake should not take forever


def files_below(folder: Path) -> tuple[Path, ...]:
    """Every plain file, in order; links to folders are not followed."""
    return _listed(str(folder.absolute()), folder)


@lru_cache(maxsize=256)
def _listed(_: str, folder: Path) -> tuple[Path, ...]:
    found: list[Path] = []
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(root) / name for name in sorted(names) if not name.startswith(".")]
        if len(found) > MOST:
            raise DataError(f"{folder}: more than {MOST:,} files; name the folder of the runs")
    return tuple(file for file in found if file.is_file())


def look_again() -> None:
    """Forget what was listed: files may have changed since."""
    _listed.cache_clear()


def run_names(folders: Iterable[Path], roots: Iterable[Path]) -> dict[Path, str]:
    """A short name for every folder that holds a run: its path below what was given, else its own name.

    >>> run_names([Path("out/a/seed0"), Path("out/a/seed1")], [Path("out")])
    {PosixPath('out/a/seed0'): 'a/seed0', PosixPath('out/a/seed1'): 'a/seed1'}
    """
    folders, roots = list(dict.fromkeys(folders)), [root.absolute() for root in roots]
    names: dict[Path, str] = {}
    for folder in folders:
        above = [root for root in roots if folder.absolute().is_relative_to(root)]
        below = folder.absolute().relative_to(above[0]).as_posix() if above else "."
        names[folder] = below if below != "." else folder.absolute().name
    if len(set(names.values())) == len(names):
        return names
    common = Path(os.path.commonpath([folder.absolute() for folder in folders]))
    return {folder: folder.absolute().relative_to(common).as_posix() for folder in folders}
