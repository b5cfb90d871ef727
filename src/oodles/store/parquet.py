"""Parquet files of a study: written atomically, compact, with page checksums."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oodles.disk import put

ABOUT = b"oodles"  # metadata key for oodles' own data in a Parquet file


def write_parquet(path: Path, columns: Mapping[str, Any], about: Mapping[str, str] | None = None) -> None:
    """Write a table atomically: write aside, sync, rename."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(dict(columns))
    if about:
        table = table.replace_schema_metadata({ABOUT: json.dumps(dict(about))})
    with put(path) as aside:
        pq.write_table(
            table,
            aside,
            compression="zstd",
            use_dictionary=_repeating(table),
            column_encoding=_encodings(table),
            write_page_checksum=True,
        )


def _repeating(table: Any) -> list[str]:
    """Return the columns with recurring values; ids do not recur, and scores are numbers."""
    return [name for name in table.column_names if name.startswith("slice:")]


def _encodings(table: Any) -> dict[str, Any]:
    """Choose encodings that compress well: ids as differences from the previous id, scores byte by byte."""
    encodings = {"example": "DELTA_BYTE_ARRAY"}
    encodings |= {
        name: "BYTE_STREAM_SPLIT" for name in table.column_names if name.startswith(("score:", "choice:", "base:"))
    }
    return {name: code for name, code in encodings.items() if name in table.column_names}
