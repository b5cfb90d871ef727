"""What a model said of every example, as it is kept."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from oodles.contracts import Predictions
from oodles.errors import StoreError
from oodles.store.records import fits, records_are_whole, records_file, same_scores, write_records
from oodles.store.scores import read_scores
from test_store import folder_with_scores

SCORES = np.array([[0.5, 1.5], [2.0, 1.0], [0.0, 0.25]])  # as folder_with_scores keeps them
PREDICTIONS = Predictions(
    test_set="home", answers=(" Yes", " No"), ids=("e0", "e1", "e2"), scores=SCORES, gold=np.full(3, 1)
)


def test_a_row_per_example_and_the_file_s_checksum(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    assert write_records(path, PREDICTIONS) == zlib.crc32(path.read_bytes())
    assert str(pq.read_table(path).schema.field("score:Yes").type) == "float"  # single precision
    assert pq.read_table(path).to_pydict() == {
        "example": ["e0", "e1", "e2"],
        "score:Yes": [0.5, 2.0, 0.0],
        "score:No": [1.5, 1.0, 0.25],
        "correct": [True, False, True],
    }


def test_whole_missing_damaged_and_unreadable_records(tmp_path: Path) -> None:
    folder = folder_with_scores(tmp_path)
    score = read_scores(folder)[0]
    path = records_file(folder, score)
    assert path == folder.records(0, "home")
    assert records_are_whole(folder, score)
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    assert not records_are_whole(folder, score)
    assert fits(replace(score, records_crc=None), b"anything")  # an older line has no checksum
    path.unlink()
    assert (records_are_whole(folder, score), records_are_whole(folder, score, absent=True)) == (False, True)
    path.mkdir()
    with pytest.raises(StoreError, match="cannot be read"):
        records_are_whole(folder, score)


def test_the_same_scores_in_single_precision(tmp_path: Path) -> None:
    folder = folder_with_scores(tmp_path)
    score = read_scores(folder)[0]
    assert same_scores(folder, score, PREDICTIONS)
    assert same_scores(folder, score, replace(PREDICTIONS, scores=SCORES * (1 + 1e-9)))
    assert not same_scores(folder, score, replace(PREDICTIONS, scores=SCORES * (1 + 1e-6)))
    records_file(folder, score).unlink()
    assert not same_scores(folder, score, PREDICTIONS)
