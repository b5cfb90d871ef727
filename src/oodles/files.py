"""Read a Parquet, CSV, TSV or JSON-lines file into columns of cells, exactly as stored.

An unreadable file raises one line that names the file and the row. Rows are counted from 1, without the header.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oodles.errors import DataError, first_line

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".parquet", ".csv", ".tsv", ".jsonl")
ABSENT = object()  # a cell that is missing in its row: JSON lines may have different keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The cells of a file by column, and their origin."""

    origin: str  # name of the file in messages
    size: int
    columns: Mapping[str, Sequence[Any]]
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # label names stored in the file itself
    unread: tuple[str, ...] = ()  # columns that were not requested


def read_file(path: Path, where: str, wanted: Sequence[str] | None = None) -> Rows:
    """Read a file according to its suffix; from a Parquet file, only the `wanted` columns if given."""
    if path.suffix not in SUFFIXES:
        raise DataError(f"{where}: {path.name} is not a .parquet, .csv, .tsv or .jsonl file")
    try:
        if path.suffix == ".parquet":
            return _read_parquet(path, where, wanted)
        text = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{where}: {path}: no such file; files are looked up beside the suite's TOML") from None
    except OSError as error:
        raise DataError(f"{where}: {path} cannot be read ({error.strerror}); check the file") from None
    decoded = _decode(text, path, where)
    if path.suffix == ".jsonl":
        return as_rows(_json_lines(decoded, path, where), str(path))
    return _read_separated(decoded, path, where)


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


def _read_parquet(path: Path, where: str, wanted: Sequence[str] | None) -> Rows:
    import pyarrow.parquet as pq  # slow to load, and generators do not need it

    try:
        schema = pq.read_schema(path)
        names = [n for n in dict.fromkeys(wanted) if n in schema.names] if wanted is not None else None
        table = pq.read_table(path, columns=names)
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


def _read_separated(text: str, path: Path, where: str) -> Rows:
    """Read comma- or tab-separated text with a header. In a tab-separated file, quotation marks are plain text."""
    csv.field_size_limit(sys.maxsize)
    tabs = path.suffix == ".tsv"
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
