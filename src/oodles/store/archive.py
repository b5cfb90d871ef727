"""Pack a study folder into one file: scores and records, no weights and no texts. `analyse` and `report` read it.

oodles pack runs/paper            runs/paper.oodles.zip

A packed file is untrusted: only files of a study are unpacked, under their own names, and no more than
`OODLES_UNPACK_GB` gigabytes (default 16) or a hundred times the size of the file.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from oodles.disk import put, sealed
from oodles.errors import ConfigError, OodlesError, StoreError, first_line
from oodles.names import is_part
from oodles.outputs import begins_with, check_target
from oodles.store.folder import (
    AUDIT_FILE,
    DONE_FILE,
    DRAW_FILE,
    ENV_FILE,
    FAILED_FILE,
    RECORDS,
    RUNS,
    SCORES_FILE,
    SETS,
    SPEC_FILE,
    STUDY_FILE,
    RunFolder,
    StudyFolder,
    run_folders,
)
from oodles.store.records import fits, records_file
from oodles.store.scores import parse_scores
from oodles.store.sidecars import sidecar

TABLES = (".csv", ".json", ".jsonl", ".parquet", ".tsv")
SUFFIX = ".oodles.zip"
OF_A_STUDY = (STUDY_FILE, AUDIT_FILE)
OF_A_RUN = (SPEC_FILE, ENV_FILE, DRAW_FILE, FAILED_FILE, DONE_FILE)
LONG_AGO = (1980, 1, 1, 0, 0, 0)  # a fixed date, so that equal results give equal files
LOOKS = 5  # attempts to read a run that changes while it is read
MOST_GIGABYTES = 16.0
MOST_TIMES = 100  # times the size of the file itself; scores shrink to a tenth, records hardly at all
SMALL = 50_000_000  # bytes that are always unpacked


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """The result of packing."""

    path: Path
    runs: int
    files: int
    bytes: int


def pack(root: Path, out: Path | None = None) -> Packed:
    """Pack all results in a study's folder into one file, atomically.

    The study may be running: for each run, the scores committed at that moment are packed, with their records.
    """
    runs = run_folders(root)
    out = out or root.with_name(root.resolve().name + SUFFIX)
    check_target(out, _is_study)
    count = 0
    with put(out) as aside, zipfile.ZipFile(aside, "w") as archive:
        for run in runs:
            count += _add(archive, f"{RUNS}/{run.name}/", _read_run(run))
        count += _add(archive, "", _read_study(StudyFolder(root)))  # last, when the sets of every line exist
    return Packed(path=out, runs=len(runs), files=count, bytes=out.stat().st_size)


def _add(archive: zipfile.ZipFile, folder: str, files: dict[str, bytes]) -> int:
    for name in sorted(files):
        entry = zipfile.ZipInfo(folder + name, LONG_AGO)
        entry.compress_type = zipfile.ZIP_STORED if name.endswith(".parquet") else zipfile.ZIP_DEFLATED
        archive.writestr(entry, files[name])
    return len(files)


def _read_study(study: StudyFolder) -> dict[str, bytes]:
    sets = (f"{SETS}/{path.name}" for path in study.sets.glob("*.parquet") if is_part(path.name))
    files = dict(_read(study.path, name) for name in (STUDY_FILE, *sets) if (study.path / name).is_file())
    record = sidecar(study.audit)
    return files if record is None else files | {AUDIT_FILE: _without_texts(record)}


def _without_texts(record: dict[str, Any]) -> bytes:
    """The audit without the prompts and examples it shows and without folders of this machine."""
    for finding in record.get("findings", []):
        finding.pop("items", None)  # examples, by id or with their texts
    for row in record.get("sets", []):
        origin = str(row.get("origin", ""))
        local = Path(origin).is_absolute() or ("://" not in origin and Path(origin).suffix in TABLES)
        row["origin"] = Path(origin).name if local else origin
        for facts in (one for by_model in row.get("rendered", {}).values() for one in by_model.values()):
            facts.pop("shown", None)
    return json.dumps(sealed(record), indent=2, sort_keys=True).encode()


def _read_run(run: RunFolder) -> dict[str, bytes]:
    """Read the files of a run as of one moment, even while it is being written."""
    for _ in range(LOOKS):
        files = _glance(run)
        if files is not None:
            return files
    return _glance(run, whole=False) or {}  # damaged: packed unchanged; the damage is reported when the file is read


def _glance(run: RunFolder, whole: bool = True) -> dict[str, bytes] | None:
    """Read the files of a run once; None if a record does not match its line, e.g. because it was rewritten.

    The order matters: a run is marked done after its last line, and a line is written after its records.
    """
    files: dict[str, bytes] = {}
    for name in (*reversed(OF_A_RUN), SCORES_FILE):
        with suppress(FileNotFoundError):
            files |= [_read(run.path, name)]
    for score in parse_scores(run.scores, files.get(SCORES_FILE, b"")).scores:
        path = records_file(run, score)
        try:
            name, data = _read(run.path, path.relative_to(run.path).as_posix())
        except FileNotFoundError:
            if whole:
                return None
            continue
        if whole and not fits(score, data):
            return None
        files[name] = data
    return files


def _read(folder: Path, name: str) -> tuple[str, bytes]:
    return name, (folder / name).read_bytes()


def _is_study(path: Path) -> bool:
    """Whether a file is a packed study."""
    try:
        with zipfile.ZipFile(path) as archive:
            return begins_with(path, b"PK") and STUDY_FILE in archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return False


def is_packed(path: Path) -> bool:
    return path.suffix == ".zip" and path.is_file()


@contextmanager
def opened(root: str | Path, called: str = "") -> Iterator[Path]:
    """Yield the folder of a study; a packed study is unpacked temporarily, and errors call it as the user does."""
    root = Path(root)
    if not is_packed(root):
        yield root
        return
    with _scratch() as scratch:
        _unpack(root, scratch)
        if not StudyFolder(scratch).is_study:
            raise StoreError(f"{root}: no {STUDY_FILE} in it; expected a file that `oodles pack` wrote")
        try:
            yield scratch
        except OodlesError as error:
            error.args = (str(error).replace(str(scratch), called or str(root)),)
            raise


@contextmanager
def _scratch() -> Iterator[Path]:
    try:
        folder = tempfile.TemporaryDirectory(prefix="oodles-")
    except OSError as error:
        raise StoreError(f"no folder to unpack to ({error.strerror or error}); set TMPDIR to one with room") from None
    with folder as path:
        yield Path(path)


def _unpack(file: Path, folder: Path) -> None:
    """Unpack the files of a study, and nothing else."""
    try:
        with zipfile.ZipFile(file) as archive:
            entries = [entry for entry in archive.infolist() if _is_known(entry.filename)]
            _check_sizes(file, entries)
            targets = [folder / entry.filename for entry in entries]
            for parent in sorted({target.parent for target in targets}):
                _make(parent)
            for entry, target in zip(entries, targets, strict=True):
                with archive.open(entry) as packed:
                    _write(target, packed)
    except (StoreError, ConfigError):
        raise
    except Exception as error:  # damaged, encrypted or in another format: zipfile and zlib raise many errors
        raise StoreError(
            f"{file}: cannot be read as a packed study ({first_line(error)}); pack or copy it again"
        ) from None


def _is_known(name: str) -> bool:
    """Whether an entry is a file of a study, which also means that its name is a safe path."""
    match PurePosixPath(name).parts:
        case (file,):
            known = file in OF_A_STUDY
        case (folder, file) if folder == SETS:
            known = is_part(file) and file.endswith(".parquet")
        case (folder, run, file) if folder == RUNS:
            known = is_part(run) and file in (*OF_A_RUN, SCORES_FILE)
        case (folder, run, inside, step, file) if (folder, inside) == (RUNS, RECORDS):
            known = (
                is_part(run) and bool(re.fullmatch(r"\d{1,16}", step)) and is_part(file) and file.endswith(".parquet")
            )
        case _:
            known = False
    return known and PurePosixPath(name).as_posix() == name


def _check_sizes(file: Path, entries: list[zipfile.ZipInfo]) -> None:
    """Refuse an archive that is not a study's before unpacking it; zipfile reads no more than an entry declares."""
    names = [entry.filename for entry in entries]
    if len(set(names)) < len(names):
        raise StoreError(f"{file}: holds two files of one name; expected a file that `oodles pack` wrote")
    most = min(_most_bytes(), max(SMALL, MOST_TIMES * file.stat().st_size))
    size = sum(entry.file_size for entry in entries)
    if size > most:
        raise StoreError(
            f"{file}: would unpack to {size / 1e6:,.0f} MB, more than {most / 1e6:,.0f} MB"
            f" ({MOST_TIMES} times its size, or OODLES_UNPACK_GB); unpack it yourself if you trust it"
        )


def _most_bytes() -> float:
    setting = os.environ.get("OODLES_UNPACK_GB", "")
    try:
        return float(setting or MOST_GIGABYTES) * 1e9
    except ValueError:
        raise ConfigError(f"OODLES_UNPACK_GB is '{setting}', expected a number of gigabytes") from None


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{folder}: {error.strerror}; set TMPDIR to a folder with room") from None


def _write(target: Path, packed: IO[bytes]) -> None:
    try:
        with target.open("xb") as handle:
            shutil.copyfileobj(packed, handle, 1 << 20)
    except OSError as error:
        if error.errno is None:
            raise  # zipfile's own error
        raise StoreError(f"{target.parent}: {error.strerror}; set TMPDIR to a folder with room") from None
