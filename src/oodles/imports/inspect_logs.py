"""Logs of Inspect: `.eval` (a zip of JSON, compressed with zstd) or `.json`; its samples as records. No library needed.

A log is one evaluation of one model on one task. The run and the step are what `metadata` says (`run`, `step`), else
the model's name.
"""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from oodles.errors import DataError, first_line, shown
from oodles.imports.contract import Imported, Options
from oodles.imports.found import files_below
from oodles.imports.identity import place_of
from oodles.imports.logs import Score, as_number, as_step, from_scores, tell_unread
from oodles.shapes import ANY, load_json, misfit, parse_json

NAME = "inspect"
ZSTD = 93
LARGEST = 1 << 28  # bytes of one member of a log
RIGHT: Mapping[str | float, int] = {"C": 1, "I": 0, 1: 1, 0: 0}
SHAPE: Mapping[str, Any] = {
    "status": str,
    "eval": {"task": str, "model": str, "metadata?": (ANY, None)},
    "results?": ({"completed_samples?": int, "scores": [{"name": str, "metrics": {...: ANY}}]}, None),
}


def recognise(path: Path) -> bool:
    """A log, or a folder with one."""
    if path.is_dir():
        return any(file.suffix == ".eval" or _is_json_log(file) for file in files_below(path))
    return path.suffix == ".eval" or _is_json_log(path)


def _is_json_log(file: Path) -> bool:
    try:
        with file.open("rb") as handle:
            head = handle.read(4096) if file.suffix == ".json" else b""
    except OSError:
        return False
    return b'"status"' in head and b'"eval"' in head and b'"task_id"' in head


def read(paths: Sequence[Path], options: Options) -> Imported:
    """Every successful evaluation in these files and folders."""
    where = str(paths[0]) if len(paths) == 1 else f"{len(paths)} paths"
    scores, notes, records = list[Score](), list[str](), list[pd.DataFrame]()
    configs: dict[str, dict[str, Any]] = {}
    for file in [f for p in paths for f in (files_below(p) if p.is_dir() else [p])]:
        if file.suffix != ".eval" and not _is_json_log(file) and file not in paths:
            notes += [f"{file.name}: left out, it does not begin as a log of Inspect"] if file.suffix == ".json" else []
            continue
        log, samples = _read_log(file)
        if log["status"] != "success" or not log.get("results"):
            notes.append(f"{file.name}: left out, its status is {shown(log['status'])}")
            continue
        run, step, test_set = _place(log["eval"], file, notes)
        configs[run] = {"model": log["eval"]["model"], **(log["eval"].get("metadata") or {})}
        scores += _scores(log["results"], run, step, test_set, file, notes)
        if found := _records(samples):
            frame = pd.DataFrame(found, columns=["example", "correct"])
            records.append(frame.assign(run=run, step=step, test_set=test_set))
    imported = from_scores(NAME, scores, configs, options, where, tuple(dict.fromkeys(notes)))
    joined = pd.concat(records, ignore_index=True) if records else None
    return Imported(format=NAME, table=imported.table, records=joined, notes=imported.notes)


def _place(about: Mapping[str, Any], file: Path, notes: list[str]) -> tuple[str, int, str]:
    metadata = about.get("metadata") or {}
    test_set = about["task"].rpartition("/")[2]
    run, step = metadata.get("run"), metadata.get("step")
    if step is not None:
        return str(run or about["model"]), as_step(step, str(file)), test_set
    named, found = place_of(about["model"], None, notes)
    return str(run or named), found, test_set


def _scores(
    results: Mapping[str, Any], run: str, step: int, test_set: str, file: Path, notes: list[str]
) -> Iterator[Score]:
    """The first scorer's metrics under their own names, further ones' with the scorer's."""
    n = as_number(results.get("completed_samples"))
    for place, score in enumerate(results["scores"]):
        values = {name: as_number(metric.get("value")) for name, metric in score["metrics"].items()}
        for name, metric in score["metrics"].items():
            if values[name] is None:
                tell_unread(notes, file, f"{test_set} {name}", metric.get("value"))
        error = values.pop("stderr", None)
        for name, value in values.items():
            if value is not None:
                yield Score(
                    run=run,
                    step=step,
                    test_set=test_set,
                    metric=name if place == 0 else f"{name},{score['name']}",
                    value=value,
                    n=n if n else math.nan,
                    stderr=error if error is not None and name in ("accuracy", "mean") else math.nan,
                    origin=str(file),
                )


def _records(samples: Any) -> list[tuple[str, int]]:
    """Who was right, sample by sample; nothing where scores are not right or wrong, or samples are repeated."""
    found: dict[str, int] = {}
    for sample in samples if isinstance(samples, list) else []:
        scores = sample.get("scores") if isinstance(sample, dict) else None
        first = next(iter(scores.values()), None) if isinstance(scores, dict) else None
        value = first.get("value") if isinstance(first, dict) else None
        example = str(sample.get("id")) if isinstance(sample, dict) else ""
        if not isinstance(value, (str, int, float)) or value not in RIGHT or example in found:
            return []
        found[example] = RIGHT[value]
    return list(found.items())


def _read_log(file: Path) -> tuple[dict[str, Any], Any]:
    try:
        if file.suffix == ".eval":
            log, samples = _read_archive(file)
        else:
            log = load_json(file)
            samples = log.get("samples") if isinstance(log, dict) else None
        found = misfit(log, SHAPE)
    except (
        OSError,
        ValueError,
        zipfile.BadZipFile,
        zlib.error,
        struct.error,
        RecursionError,
        NotImplementedError,
    ) as error:
        found = first_line(error)
    if found:
        raise DataError(f"{file}: {found}; expected a finished log of Inspect")
    return dict(log), samples


def _read_archive(file: Path) -> tuple[Any, Any]:
    """`header.json` and `summaries.json`, read in memory; no member is ever written to the disk."""
    with zipfile.ZipFile(file) as archive, file.open("rb") as raw:
        names = set(archive.namelist())
        if "header.json" not in names:
            raise ValueError("no header.json in it: the evaluation did not finish")
        header = parse_json(_member(archive, raw, "header.json"))
        samples = parse_json(_member(archive, raw, "summaries.json")) if "summaries.json" in names else None
    return header, samples


def _member(archive: zipfile.ZipFile, raw: Any, name: str) -> bytes:
    info = archive.getinfo(name)
    if info.file_size > LARGEST:
        raise ValueError(f"{name} would take {info.file_size / 1e6:,.0f} MB")
    if info.compress_type != ZSTD:
        try:
            return archive.read(info)
        except (NotImplementedError, RuntimeError) as error:  # another method; a password
            raise ValueError(first_line(error)) from None
    import pyarrow as pa  # the zip module of this Python knows no zstd

    raw.seek(info.header_offset)
    *_, name_size, extra_size = struct.unpack("<4s5H3I2H", raw.read(30))
    raw.seek(name_size + extra_size, 1)
    try:
        data = bytes(pa.Codec("zstd").decompress(raw.read(info.compress_size), decompressed_size=info.file_size))
    except (pa.ArrowException, OSError) as error:
        raise ValueError(first_line(error)) from None
    if zlib.crc32(data) != info.CRC:
        raise ValueError(f"the checksum of {name} is wrong")
    return data
