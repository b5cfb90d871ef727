"""A runs folder as one file: scores and records, no weights and no texts of the data. `analyse` and `report` read it.

oodles pack runs/paper            runs/paper.oodles.zip
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from oodles.errors import StoreError
from oodles.outputs import begins_with, check_target
from oodles.store import disk_errors, run_folders, sync

SUFFIX = ".oodles.zip"
OF_A_STUDY = ("study.json", "audit.json", "sets/*.parquet")
OF_A_RUN = ("spec.json", "env.json", "draw.json", "scores.jsonl", "failed.json", "done.json", "records/*/*.parquet")
LONG_AGO = (1980, 1, 1, 0, 0, 0)  # equal results make equal files


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """What was written."""

    path: Path
    runs: int
    files: int
    bytes: int


def pack(root: Path, out: Path | None = None) -> Packed:
    """One file with all results below a study's folder; whole, or not there."""
    runs = run_folders(root)
    out = out or root.with_name(root.resolve().name + SUFFIX)
    files = [path for pattern in OF_A_STUDY for path in root.glob(pattern)]
    files += [path for run in runs for pattern in OF_A_RUN for path in run.path.glob(pattern)]
    files = sorted(path for path in files if not path.name.startswith("."))
    check_target(out, lambda held: begins_with(held, b"PK") and _is_study(held))
    aside = out.with_name(f".{out.name}.{os.getpid()}.part")
    with disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        try:
            with zipfile.ZipFile(aside, "w") as archive:
                for path in files:
                    entry = zipfile.ZipInfo(path.relative_to(root).as_posix(), LONG_AGO)
                    packed_already = path.suffix == ".parquet"
                    entry.compress_type = zipfile.ZIP_STORED if packed_already else zipfile.ZIP_DEFLATED
                    archive.writestr(entry, path.read_bytes())
            sync(aside)
            aside.replace(out)
        finally:
            aside.unlink(missing_ok=True)
    return Packed(path=out, runs=len(runs), files=len(files), bytes=out.stat().st_size)


def _is_study(path: Path) -> bool:
    """Whether a file is a packed study."""
    try:
        with zipfile.ZipFile(path) as archive:
            return "study.json" in archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError):
        return False


def is_packed(path: Path) -> bool:
    return path.is_file() and path.suffix == ".zip"


@contextmanager
def opened(root: str | Path) -> Iterator[Path]:
    """The folder of a study; a packed one is unpacked for as long as it is needed."""
    root = Path(root)
    if not is_packed(root):
        yield root
        return
    with tempfile.TemporaryDirectory(prefix="oodles-") as scratch:
        try:
            with zipfile.ZipFile(root) as archive:
                archive.extractall(scratch)
        except (zipfile.BadZipFile, OSError, EOFError) as error:
            raise StoreError(f"{root}: cannot be read as a packed study ({error}); pack or copy it again") from None
        if not (Path(scratch) / "study.json").is_file():
            raise StoreError(f"{root}: no study.json in it; expected a file that `oodles pack` wrote")
        yield Path(scratch)
