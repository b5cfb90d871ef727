"""records/<step>/<test set>.parquet: the model's scores for every example of an evaluation."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from oodles.contracts import Predictions
from oodles.errors import StoreError
from oodles.store.folder import RunFolder
from oodles.store.parquet import write_parquet
from oodles.store.scores import Score

SCORES = ("score:", "choice:", "base:")  # of answers, of positions of choices, and of choices without their context
RIGHT = "correct:"  # whether the best choice is right, by form of the score


def write_records(path: Path, predictions: Predictions) -> int:
    """Write one row per example: id, a score per answer, and whether the best answer is right; return the checksum.

    For prompts with their own choices also which is the best, and whether it is right by every form of the score.
    """
    columns: dict[str, Any] = {"example": list(predictions.ids)}
    columns |= {name: values.astype(np.float32) for name, values in _scores(predictions).items()}
    if predictions.chosen is not None:
        columns["chosen"] = predictions.chosen.astype(np.int16)
    columns["correct"] = predictions.correct
    columns |= {f"{RIGHT}{form}": right for form, right in predictions.right.items()}
    write_parquet(path, columns)
    return zlib.crc32(path.read_bytes())


def _scores(predictions: Predictions) -> dict[str, Any]:
    """The columns of scores by name."""
    places = [str(place + 1) for place in range(predictions.scores.shape[1])]
    names = [f"score:{answer.strip()}" for answer in predictions.answers] or [f"choice:{place}" for place in places]
    columns = dict(zip(names, predictions.scores.T, strict=True))
    if predictions.base is not None:
        columns |= {f"base:{place}": values for place, values in zip(places, predictions.base.T, strict=True)}
    return columns


def score_columns(names: Iterable[str]) -> list[str]:
    """The columns with the scores of answers or choices."""
    return [name for name in names if str(name).startswith(SCORES[:2])]


def records_file(folder: RunFolder, score: Score) -> Path:
    """Return the path of the records of a committed evaluation."""
    plain = folder.records(score.step, score.test_set)
    return plain if score.records is None else plain.with_name(score.records)


def records_are_whole(folder: RunFolder, score: Score, absent: bool = False) -> bool:
    """Whether the records of an evaluation are intact; `absent` is the answer for missing records.

    An unreadable file may be intact, so it raises an error of the disk or of permissions.
    """
    data = records_bytes(records_file(folder, score))
    return absent if data is None else fits(score, data)


def records_bytes(file: Path) -> bytes | None:
    """Read a file of records; None if there is none."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{file}: cannot be read ({error.strerror}); check the file's mode and the disk") from None


def fits(score: Score, data: bytes) -> bool:
    """Whether these bytes are the records of a line; older lines have no checksum of their records."""
    return score.records_crc is None or zlib.crc32(data) == score.records_crc


def same_scores(folder: RunFolder, score: Score, predictions: Predictions) -> bool:
    """Whether the records of an evaluation hold exactly these scores."""
    import pyarrow.parquet as pq

    if not records_are_whole(folder, score):
        return False
    table = pq.read_table(records_file(folder, score))
    own = {name: values.astype(np.float32) for name, values in _scores(predictions).items()}
    if list(own) != [name for name in table.column_names if name.startswith(SCORES)]:
        return False
    return all(np.array_equal(table.column(name).to_numpy(), own[name], equal_nan=True) for name in own)
