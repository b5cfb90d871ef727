"""Parquet files of a study: read back as they were written, small, and damage is seen."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from oodles.store.parquet import ABOUT, write_parquet


def written(path: Path) -> Path:
    ids = [f"example-{i:05d}" for i in range(2000)]
    scores = np.linspace(-3, -2, 2000, dtype=np.float32)
    columns = {"example": ids, "score:Yes": scores, "slice:kind": ["a", "b"] * 1000}
    write_parquet(path, columns, {"test_set": "away"})
    return path


def test_columns_and_what_the_file_says_of_itself_are_read_back(tmp_path: Path) -> None:
    table = pq.read_table(written(tmp_path / "a" / "x.parquet"))
    assert table.column_names == ["example", "score:Yes", "slice:kind"]
    assert table.column("score:Yes").to_numpy().tolist() == np.linspace(-3, -2, 2000, dtype=np.float32).tolist()
    assert json.loads(table.schema.metadata[ABOUT]) == {"test_set": "away"}
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["x.parquet"]


def test_ids_and_scores_have_the_encodings_that_shrink_them(tmp_path: Path) -> None:
    group = pq.ParquetFile(written(tmp_path / "x.parquet")).metadata.row_group(0)
    encodings = {group.column(i).path_in_schema: group.column(i).encodings for i in range(3)}
    assert "DELTA_BYTE_ARRAY" in encodings["example"]
    assert "BYTE_STREAM_SPLIT" in encodings["score:Yes"]
    assert any("DICTIONARY" in encoding for encoding in encodings["slice:kind"])
    assert {group.column(i).compression for i in range(3)} == {"ZSTD"}


def test_a_flipped_bit_in_a_page_is_seen(tmp_path: Path) -> None:
    path = written(tmp_path / "x.parquet")
    column = pq.ParquetFile(path).metadata.row_group(0).column(1)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + column.total_compressed_size // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises((OSError, pa.ArrowException)):
        pq.read_table(path, page_checksum_verification=True)
