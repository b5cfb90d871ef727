"""A Parquet, CSV, TSV or JSON-lines file, or a zip of one -> columns of cells, exactly as the file has them.

An unreadable file raises one line that names the file and the row. Rows are counted from 1, without the header.
"""

from __future__ import annotations

import csv
import io
import json
import sys
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oodles.errors import DataError, first_line

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".parquet", ".csv", ".tsv", ".jsonl")
TABS = (".tsv", ".txt")
LARGEST = 1 << 31  # bytes of a zipped file
ABSENT = object()  # a cell that its row does not have: JSON lines may differ in their keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The cells of a file by column, and their origin."""

    origin: str  # name of the file in messages
    size: int
    columns: Mapping[str, Sequence[Any]]
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # label names stored in the file itself
    unread: tuple[str, ...] = ()  # columns that were not requested


def read_file(path: Path, where: str, wanted: Sequence[str] | None = None, kind: str | None = None) -> Rows:
    """Read a file by its suffix, or as the `kind` that is named; of Parquet only the `wanted` columns, if any are."""
    try:
        inside, data = (path.name, None) if path.suffix != ".zip" else _unzipped(path, where)
        suffix = f".{kind}" if kind else Path(inside).suffix
        if suffix not in (*SUFFIXES, *TABS):
            raise DataError(
                f"{where}: {path.name} is not a .parquet, .csv, .tsv or .jsonl file; rename it, or say what it is with"
                ' format = "tsv"'
            )
        if suffix == ".parquet":
            return _read_parquet(path if data is None else io.BytesIO(data), path, where, wanted)
        text = path.read_bytes() if data is None else data
    except FileNotFoundError:
        raise DataError(f"{where}: {path}: no such file; files are looked up beside the suite's TOML") from None
    except OSError as error:
        raise DataError(f"{where}: {path} cannot be read ({error.strerror}); check the file") from None
    decoded = _decode(text, path, where)
    if suffix == ".jsonl":
        return as_rows(_json_lines(decoded, path, where), str(path))
    return _read_separated(decoded, path, where, tabs=suffix in TABS)


def join_rows(parts: Sequence[Rows], origin: str) -> Rows:
    """The rows of several files under each other; a column that a file lacks is a gap there."""
    names = dict.fromkeys(name for part in parts for name in part.columns)
    columns = {
        name: [cell for part in parts for cell in part.columns.get(name, [ABSENT] * part.size)] for name in names
    }
    unread = tuple(dict.fromkeys(name for part in parts for name in part.unread))
    size = sum(part.size for part in parts)
    return Rows(origin=origin, size=size, columns=columns, class_names=parts[0].class_names, unread=unread)


def _unzipped(path: Path, where: str) -> tuple[str, bytes]:
    """The name and the bytes of the only file in an archive; it is read in memory, whatever its name says."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [m for m in archive.infolist() if not m.is_dir() and not m.filename.startswith("__MACOSX")]
            if len(members) != 1:
                raise DataError(f"{where}: {path} holds {len(members)} files, expected one; unpack it")
            if members[0].file_size > LARGEST:
                raise DataError(f"{where}: {path} would take {members[0].file_size / 1e9:.1f} GB; unpack it")
            return members[0].filename, archive.read(members[0])
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, zlib.error) as error:
        raise DataError(f"{where}: {path} cannot be unpacked: {first_line(error)}") from None


def as_rows(rows: Sequence[Mapping[str, Any]], origin: str) -> Rows:
    """Convert rows (mappings) to columns; a missing key leaves a gap."""
    names = dict.fromkeys(name for row in rows for name in row)
    return Rows(
        origin=origin, size=len(rows), columns={name: [row.get(name, ABSENT) for row in rows] for name in names}
    )


def _decode(data: bytes, path: Path, where: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{where}: {path} line {line}: byte {data[error.start]:#04x} is not UTF-8 text; save the file as UTF-8"
        ) from None


def _read_parquet(data: Any, path: Path, where: str, wanted: Sequence[str] | None) -> Rows:
    import pyarrow.parquet as pq  # slow to load, and generators need none of it

    try:
        schema = pq.read_schema(data)
        names = [n for n in dict.fromkeys(wanted) if n in schema.names] if wanted is not None else None
        table = pq.read_table(data, columns=names)
        columns = {name: table.column(name).to_pylist() for name in table.column_names}
    except OSError:
        raise
    except Exception as error:  # Arrow raises many kinds of errors for a damaged file
        raise DataError(f"{where}: {path} cannot be read: {first_line(error)}; expected a Parquet file") from None
    unread = tuple(name for name in schema.names if name not in columns)
    return Rows(origin=str(path), size=table.num_rows, columns=columns, class_names=_class_names(schema), unread=unread)


def _class_names(schema: Any) -> dict[str, tuple[str, ...]]:
    """Return the label names that the datasets library wrote into the file."""
    try:
        features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
        return {k: tuple(f["names"]) for k, f in features.items() if f.get("_type") == "ClassLabel"}
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def _read_separated(text: str, path: Path, where: str, *, tabs: bool) -> Rows:
    """Comma- or tab-separated text with a header. A tab-separated file knows no quotation marks: they are text."""
    csv.field_size_limit(sys.maxsize)
    cells: Iterable[list[str]]
    if tabs:
        cells = (line.removesuffix("\r").split("\t") for line in text.split("\n") if line.strip("\r"))
    else:
        cells = csv.reader(_physical_lines(text), strict=True)
    rows: list[list[str]] = []
    try:
        rows.extend(row for row in cells if row)
    except csv.Error as error:
        raise DataError(f"{where}: {path} row {max(len(rows), 1)}: {error}; check its quotation marks") from None
    if not rows:
        raise DataError(f"{where}: {path} is empty; expected a header and at least one row")
    header, body = rows[0], rows[1:]
    repeated = [name for name in header if header.count(name) > 1]
    if repeated:
        raise DataError(f"{where}: {path}: two columns are named '{repeated[0]}'; expected distinct names")
    for number, row in enumerate(body, start=1):
        if len(row) != len(header):
            raise DataError(f"{where}: {path} row {number}: {len(row)} cells, the header has {len(header)}")
    cells_by_column = zip(*body, strict=True) if body else ([] for _ in header)
    columns = {name: list(column) for name, column in zip(header, cells_by_column, strict=True)}
    return Rows(origin=str(path), size=len(body), columns=columns)


def _physical_lines(text: str) -> Iterable[str]:
    """Split into lines at line breaks only; str.splitlines would also split at characters such as U+2028."""
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end + 1
        yield text[start:end]
        start = end


def read_json_lines(path: Path, where: str) -> list[dict[str, Any]]:
    """The objects of a JSON-lines file; OSError, or one line that names what is none."""
    return _json_lines(_decode(path.read_bytes(), path, where), path, where)


def _json_lines(text: str, path: Path, where: str) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if "\\ud" in line or "\\uD" in line:
                json.dumps(row, ensure_ascii=False).encode()  # half a surrogate pair is not valid text
        except UnicodeEncodeError:
            raise DataError(
                f"{where}: {path} line {number}: half a surrogate pair (\\ud8..); it is not text: remove it"
            ) from None
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: {path} line {number}: not JSON ({first_line(error)})") from None
        if not isinstance(row, dict):
            raise DataError(f"{where}: {path} line {number}: expected a JSON object")
        rows.append(row)
    return rows


def frame_of(data: bytes, columns: list[str] | None = None) -> pd.DataFrame:
    """Read the bytes of a small Parquet file, or some of its columns, as a table; ValueError has a one-line reason."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)  # a third of read_table's time
        frame: pd.DataFrame = file.read(columns, use_threads=False).to_pandas()
    except Exception as error:  # Arrow and pandas raise many kinds of errors for a damaged file
        raise ValueError(first_line(error)) from None
    return frame


def read_frame(path: Path, **options: Any) -> pd.DataFrame:
    """Read a Parquet file as a table; raises OSError, or ValueError with a one-line reason."""
    import pyarrow.parquet as pq

    try:
        frame: pd.DataFrame = pq.read_table(path, **options).to_pandas()
    except OSError:
        raise
    except Exception as error:  # Arrow and pandas raise many kinds of errors for a damaged file
        raise ValueError(first_line(error)) from None
    return frame
