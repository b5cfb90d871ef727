"""records/<step>/<test set>.parquet: what the model said of every example of an evaluation."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np

from oodles.contracts import Predictions
from oodles.errors import StoreError
from oodles.store.folder import RunFolder
from oodles.store.parquet import write_parquet
from oodles.store.scores import Score


def write_records(path: Path, predictions: Predictions) -> int:
    """One row per example: its id, a score per answer, and whether the best answer is right; the file's checksum."""
    columns: dict[str, Any] = {"example": list(predictions.ids)}
    for index, answer in enumerate(predictions.answers):
        columns[f"score:{answer.strip()}"] = predictions.scores[:, index].astype(np.float32)
    columns["correct"] = predictions.correct
    write_parquet(path, columns)
    return zlib.crc32(path.read_bytes())


def records_file(folder: RunFolder, score: Score) -> Path:
    """Where the records of a committed evaluation are."""
    plain = folder.records(score.step, score.test_set)
    return plain if score.records is None else plain.with_name(score.records)


def records_are_whole(folder: RunFolder, score: Score, absent: bool = False) -> bool:
    """Whether the records of an evaluation are there as they were written; `absent` is what to say of none.

    What cannot be read may be whole: that is an error of the disk, or of who may read it.
    """
    file = records_file(folder, score)
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return absent
    except OSError as error:
        raise StoreError(f"{file}: cannot be read ({error.strerror}); check the file's mode and the disk") from None
    return fits(score, data)


def fits(score: Score, data: bytes) -> bool:
    """Whether these are the records that a line speaks of; an older line has no checksum of them."""
    return score.records_crc is None or zlib.crc32(data) == score.records_crc


def same_scores(folder: RunFolder, score: Score, predictions: Predictions) -> bool:
    """Whether the records of an evaluation hold just these scores."""
    import pyarrow.parquet as pq

    if not records_are_whole(folder, score):
        return False
    table = pq.read_table(records_file(folder, score))
    columns = [table.column(name).to_numpy() for name in table.column_names if name.startswith("score:")]
    return np.array_equal(np.stack(columns, axis=1), predictions.scores.astype(np.float32))
