"""Run files of wandb (`run-*.wandb`), online or offline: the whole history and config; read without the library.

The file is a log of LevelDB's kind, with a protocol buffer per record. Its own step counts calls of `log`; the step of
the training is `train/global_step` where it is logged.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from oodles.errors import DataError, first_line
from oodles.imports.contract import Imported, Options
from oodles.imports.found import files_below
from oodles.imports.identity import told_apart
from oodles.imports.keys import flat
from oodles.imports.logs import Log, Points, as_step, from_logs
from oodles.imports.wire import as_float, fields, signed
from oodles.shapes import parse_json

NAME = "wandb"
MARK = b":W&B"
HEADER, BLOCK, HEAD = 7, 32768, struct.Struct("<IHB")  # of the file, of a block, of a piece: checksum, length, kind
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
HISTORY, CONFIG, RUN = 2, 5, 17  # fields of a record
STEPS = ("train/global_step", "trainer/global_step", "global_step")
OWN = "wandb's own counter is the step: no train/global_step is logged; if steps differ, see --map"


@dataclass(slots=True)
class History:
    """A run of wandb: what it was, and its rows."""

    id: str = ""
    name: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)


def recognise(path: Path) -> bool:
    """A run file, or a folder with one."""
    if path.is_dir():
        return any(file.suffix == ".wandb" for file in files_below(path))
    return path.suffix == ".wandb"


def read(paths: Sequence[Path], options: Options) -> Imported:
    """Every run in these files and folders."""
    files = [f for p in paths for f in ((f for f in files_below(p) if f.suffix == ".wandb") if p.is_dir() else [p])]
    where = str(paths[0]) if len(paths) == 1 else f"{len(paths)} paths"
    if not files:
        raise DataError(f"{where}: no run-*.wandb in it")
    notes: list[str] = []
    return from_histories(NAME, [_read_run(file, notes) for file in files], options, where, notes)


def from_histories(
    name: str, runs: Sequence[History], options: Options, where: str, notes: Sequence[str] = ()
) -> Imported:
    """Histories as a long table; runs of one name are told apart by their ids."""
    told = list(notes)
    logs = [log_of(run, where, told) for run in runs]
    names = told_apart([(run.name, run.id) for run in runs], told)
    renamed = [replace(log, run=called) for log, called in zip(logs, names, strict=True)]
    return from_logs(name, renamed, options, where, tuple(dict.fromkeys(told)))


def log_of(run: History, where: str, notes: list[str]) -> Log:
    """The rows of a run as points; the row's own step is used where the training's is not logged at all."""
    key = next((name for name in STEPS if any(name in row for row in run.rows)), "_step")
    if key == "_step" and run.rows:
        notes.append(OWN)
    points, lost = Points(), 0
    for row in run.rows:
        if row.get(key) is None:
            lost += any(name.startswith(("eval", "test")) for name in row)
            continue
        step = as_step(row[key], f"{where}: run '{run.name}'")
        for name, value in flat(row, "."):  # as wandb itself joins them
            if name != key and not name.startswith("_"):
                points.add(step, name, value)
    if lost:
        notes.append(f"run {run.name}: {lost} rows with scores have no {key}: left out")
    return points.log(run.name, run.config)


# the file


def _read_run(file: Path, notes: list[str]) -> History:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror})") from None
    if not data.startswith(MARK):
        raise DataError(f"{file}: does not begin as a run file of wandb does; expected a run-*.wandb")
    run = History(id=file.stem.removeprefix("run-"))
    try:
        for record in _records(data, file, notes):
            _add(record, run)
    except (ValueError, RecursionError, TypeError, AttributeError) as error:  # a field of another kind
        raise DataError(f"{file}: {first_line(error)}; expected what wandb writes") from None
    run.name = run.name or run.id
    return run


def _records(data: bytes, file: Path, notes: list[str]) -> Iterator[bytes]:
    """Whole records, until the end of the file or until it is damaged, which is told."""
    place, parts, count = HEADER, list[bytes](), 0
    while place < len(data):
        left = BLOCK - place % BLOCK
        if left < HEAD.size:  # filled up
            place += left
            continue
        if place + HEAD.size > len(data):
            notes.append(_cut(file, count))
            return
        crc, length, kind = HEAD.unpack_from(data, place)
        if (crc, length, kind) == (0, 0, 0):  # room that was never written
            place += left
            continue
        piece = data[place + HEAD.size : place + HEAD.size + length]
        place += HEAD.size + length
        if len(piece) < length:
            notes.append(_cut(file, count))
            return
        if zlib.crc32(piece, zlib.crc32(bytes([kind]))) != crc or kind not in (FULL, FIRST, MIDDLE, LAST):
            raise DataError(f"{file} record {count + 1}: its checksum is wrong; the file is damaged, copy it again")
        parts = [*parts, piece] if kind in (MIDDLE, LAST) else [piece]
        if kind in (FULL, LAST):
            count += 1
            yield b"".join(parts)
    if parts and kind in (FIRST, MIDDLE):
        notes.append(_cut(file, count))


def _cut(file: Path, count: int) -> str:
    return f"{file}: cut off after {count} records; what comes before it is read"


def _add(record: bytes, run: History) -> None:
    for number, content in fields(record):
        if number == HISTORY:
            run.rows.append(_row(content))
        elif number == CONFIG:
            run.config |= _config(content)
        elif number == RUN:
            for part, value in fields(content):
                if part == 4:
                    run.config |= _config(value)
                elif part in (1, 8) and isinstance(value, bytes):
                    setattr(run, "id" if part == 1 else "name", value.decode())


def _row(data: bytes) -> dict[str, Any]:
    """History {1: item, 2: step {1: number}}."""
    row: dict[str, Any] = {}
    for number, content in fields(data):
        if number == 1:
            name, value = _item(content)
            row[name] = value
        elif number == 2:
            row.setdefault("_step", next((signed(value) for part, value in fields(content) if part == 1), 0))
    return row


def _item(data: bytes) -> tuple[str, Any]:
    """Item {1: key, 2: nested keys, 3 to 8: a value of a kind, 16: a value as JSON}."""
    names: list[str] = []
    value: Any = None
    for number, content in fields(data):
        if number in (1, 2):
            names.append(content.decode())
        elif number == 4:
            value = bool(content)
        elif number == 5:
            value = signed(content)
        elif number == 6:
            value = as_float(content)
        elif number == 7:
            value = content.decode()
        elif number in (8, 16):
            value = parse_json(content)
    return ".".join(names), value


def _config(data: bytes) -> dict[str, Any]:
    """Config {1: item}; values may be wrapped as {"value": ...}."""
    found = dict(_item(content) for number, content in fields(data) if number == 1)
    return {name: plain(value) for name, value in found.items() if not name.startswith("_")}


def plain(value: Any) -> Any:
    """A config's value without its wrapping."""
    return value["value"] if isinstance(value, Mapping) and "value" in value else value
