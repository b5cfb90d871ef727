"""records/<step>/<test set>.parquet: the model's scores for every example of an evaluation."""

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
    """Write one row per example: id, a score per answer, and whether the best answer is right; return the checksum."""
    columns: dict[str, Any] = {"example": list(predictions.ids)}
    for index, answer in enumerate(predictions.answers):
        columns[f"score:{answer.strip()}"] = predictions.scores[:, index].astype(np.float32)
    columns["correct"] = predictions.correct
    write_parquet(path, columns)
    return zlib.crc32(path.read_bytes())


def records_file(folder: RunFolder, score: Score) -> Path:
    """Return the path of the records of a committed evaluation."""
    plain = folder.records(score.step, score.test_set)
    return plain if score.records is None else plain.with_name(score.records)


def records_are_whole(folder: RunFolder, score: Score, absent: bool = False) -> bool:
    """Whether the records of an evaluation are intact; `absent` is the answer for missing records.

    An unreadable file may be intact, so it raises an error of the disk or of permissions.
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
    """Whether these bytes are the records of a line; older lines have no checksum of their records."""
    return score.records_crc is None or zlib.crc32(data) == score.records_crc


def same_scores(folder: RunFolder, score: Score, predictions: Predictions) -> bool:
    """Whether the records of an evaluation hold exactly these scores."""
    import pyarrow.parquet as pq

    if not records_are_whole(folder, score):
        return False
    table = pq.read_table(records_file(folder, score))
    columns = [table.column(name).to_numpy() for name in table.column_names if name.startswith("score:")]
    return np.array_equal(np.stack(columns, axis=1), predictions.scores.astype(np.float32))
