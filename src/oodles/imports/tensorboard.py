"""Event files of TensorBoard: every scalar of every run, no sampling; read without the library.

A folder with event files is a run. Files of one folder, and folders in which a transformers Trainer resumed, are one
run; where both have a point, the later one counts. Checksums are checked: what is damaged is named and left out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from oodles.errors import DataError, first_line
from oodles.imports.contract import Imported, Options
from oodles.imports.found import files_below, run_names
from oodles.imports.logs import LARGEST as LARGEST_STEP
from oodles.imports.logs import Log, from_logs
from oodles.imports.wire import as_float, crc32c, fields, signed
from oodles.shapes import parse_json

NAME = "tensorboard"
MARK = "tfevents"
HEAD = struct.Struct("<QI")  # length of a record, and its checksum
FLOATS = {1: 4, 2: 8}  # kinds of tensors: float, double
BATCH = 50_000  # records whose checksums are computed at once
CONFIGS = ("args/text_summary", "model_config/text_summary")  # what the Trainer's callback writes, as JSON
HF_FOLDER = "runs"  # <output_dir>/runs/<date>_<host>
LARGE = 1 << 26  # bytes; scalars are small, and a larger record is skipped unread


@dataclass(slots=True)
class _Events:
    """The scalars of one file, in its order."""

    steps: list[int] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    began: float = 0.0  # wall time of the first event


def recognise(path: Path) -> bool:
    """A file with the name of an event file, or a folder with one."""
    if path.is_dir():
        return any(MARK in file.name for file in files_below(path))
    return MARK in path.name


def read(paths: Sequence[Path], options: Options) -> Imported:
    """Every run in these files and folders."""
    files = [f for p in paths for f in ((f for f in files_below(p) if MARK in f.name) if p.is_dir() else [p])]
    where = str(paths[0]) if len(paths) == 1 else f"{len(paths)} paths"
    if not files:
        raise DataError(f"{where}: no event file (*{MARK}*) in it")
    notes: list[str] = []
    folders: dict[Path, list[_Events]] = {}
    for file in files:
        folders.setdefault(file.parent, []).append(_read_events(file, notes))
    runs = _resumed(folders, notes)
    names = run_names(runs, [path for path in paths if path.is_dir()])
    return from_logs(NAME, [_log(names[home], own) for home, own in runs.items()], options, where, notes)


def _resumed(folders: dict[Path, list[_Events]], notes: list[str]) -> dict[Path, list[_Events]]:
    """Folders in which one Trainer wrote, before and after it was resumed, are one run: that of the output folder."""
    runs: dict[Path, list[_Events]] = {}
    for folder, events in folders.items():
        output = next((e.config["output_dir"] for e in events if isinstance(e.config.get("output_dir"), str)), None)
        hosted = folder.parent.name == HF_FOLDER and output is not None
        home = folder.parent.parent if hosted and Path(str(output)).name == folder.parent.parent.name else folder
        if home in runs:
            notes.append(f"{home}: several folders in {HF_FOLDER} are one run that was resumed")
        runs.setdefault(home, []).extend(events)
    return runs


def _log(name: str, events: Sequence[_Events]) -> Log:
    ordered = sorted(events, key=lambda one: one.began)
    return Log(
        run=name,
        config={key: value for one in ordered for key, value in one.config.items()},
        steps=[step for one in ordered for step in one.steps],
        keys=[tag for one in ordered for tag in one.tags],
        values=[value for one in ordered for value in one.values],
    )


def _read_events(file: Path, notes: list[str]) -> _Events:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror})") from None
    found, known = _Events(), dict[bytes, str]()
    for number, record in enumerate(_records(data, file, notes), start=1):
        try:
            _add(record, found, known)
        except (ValueError, struct.error, TypeError, AttributeError) as error:  # a field of another kind
            raise DataError(f"{file} event {number}: {first_line(error)}; expected an event of TensorBoard") from None
    return found


def _records(data: bytes, file: Path, notes: list[str]) -> Iterator[bytes]:
    """The records of a file until its end, or until it is damaged, which is told."""
    place, bodies, sums = 0, list[bytes](), list[int]()
    if len(data) < HEAD.size:
        raise DataError(f"{file}: {len(data)} bytes; expected an event file of TensorBoard")
    count = 0
    while place < len(data):
        whole = place + HEAD.size <= len(data)
        length, head_sum = HEAD.unpack_from(data, place) if whole else (0, 0)
        end = place + HEAD.size + length + 4
        whole = whole and _crc_of_length(data[place : place + 8]) == head_sum
        if not whole and place == 0:
            raise DataError(f"{file}: its first checksum is wrong; expected an event file of TensorBoard")
        if not whole or end > len(data):
            yield from _checked(bodies, sums, file, count)
            notes.append(f"{file}: cut off or damaged after {count + len(bodies)} events; what comes before it is read")
            return
        if length <= LARGE:
            bodies.append(data[place + HEAD.size : end - 4])
            sums.append(struct.unpack_from("<I", data, end - 4)[0])
        place = end
        if len(bodies) >= BATCH:
            yield from _checked(bodies, sums, file, count)
            count += len(bodies)
            bodies, sums = [], []
    yield from _checked(bodies, sums, file, count)


_LENGTHS: dict[bytes, int] = {}


def _crc_of_length(head: bytes) -> int:
    """The checksum of a record's length; few lengths recur."""
    if head not in _LENGTHS:
        if len(_LENGTHS) > 100_000:
            _LENGTHS.clear()
        _LENGTHS[head] = int(crc32c([head])[0])
    return _LENGTHS[head]


def _checked(bodies: list[bytes], sums: list[int], file: Path, before: int) -> Iterator[bytes]:
    """Records whose checksums agree; a value that was changed on the disk would be a wrong score."""
    if not bodies:
        return
    wrong = np.flatnonzero(crc32c(bodies) != np.array(sums, dtype=np.uint32))
    if len(wrong):
        raise DataError(
            f"{file} event {before + wrong[0] + 1}: its checksum is wrong; the file is damaged, copy it again"
        )
    yield from bodies


def _add(record: bytes, found: _Events, known: dict[bytes, str]) -> None:
    """The scalars of an event: Event {1: wall time, 2: step, 5: Summary {1: Value}}."""
    step, summary = 0, None
    for number, value in fields(record):
        if number == 1 and not found.began:
            found.began = as_float(value)
        elif number == 2:
            step = signed(value)
            if not 0 <= step < LARGEST_STEP:
                raise ValueError(f"step is {step}")
        elif number == 5:
            summary = value
    if summary is None:
        return
    for number, value in fields(summary):
        if number == 1:
            _add_value(value, step, found, known)


def _add_value(data: bytes, step: int, found: _Events, known: dict[bytes, str]) -> None:
    """Value {1: tag, 2: simple value, 8: tensor}."""
    tag, value = b"", cast("float | bytes | None", None)
    for number, content in fields(data):
        if number == 1:
            tag = content
        elif number == 2:
            value = as_float(content)
        elif number == 8:
            value = _tensor(content)
    name = known.get(tag) or known.setdefault(tag, tag.decode())
    if isinstance(value, float):
        found.steps.append(step)
        found.tags.append(name)
        found.values.append(value)
    elif isinstance(value, bytes) and name in CONFIGS:
        found.config |= _config(value, name)


def _tensor(data: bytes) -> float | bytes | None:
    """TensorProto {1: kind, 4: content, 5: floats, 6: doubles, 8: strings}: a scalar or a text, else None."""
    parts: dict[int, list[Any]] = {}
    for number, value in fields(data):
        parts.setdefault(number, []).append(value)
    kind = parts.get(1, [0])[0]
    if kind in FLOATS:
        numbers = [n for k in (4, 5, 6) for n in parts.get(k, []) if isinstance(n, bytes) and len(n) == FLOATS[kind]]
        return as_float(numbers[0]) if len(numbers) == 1 else None
    texts = parts.get(8, [])
    return bytes(texts[0]) if len(texts) == 1 and isinstance(texts[0], bytes) else None


def _config(text: bytes, name: str) -> dict[str, Any]:
    try:
        value = parse_json(text)
    except (ValueError, RecursionError):
        return {}
    flat = {k: v for k, v in value.items() if isinstance(v, (str, int, float))} if isinstance(value, dict) else {}
    return {k: v for k, v in flat.items() if name == CONFIGS[0] or k == "_name_or_path"}
