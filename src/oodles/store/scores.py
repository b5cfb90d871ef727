"""scores.jsonl: one line per evaluation that counts; appended, read, and rewritten when something is dropped.

Every line ends with its own checksum, so that a flipped bit is seen, and is synced before it counts.
"""

from __future__ import annotations

import errno
import json
import os
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from oodles.contracts import Role
from oodles.disk import sync, write_text
from oodles.errors import StoreError
from oodles.names import is_part
from oodles.shapes import LARGEST, parse_json
from oodles.store.folder import RunFolder
from oodles.trouble import disk_errors

CRC = b', "crc": '  # stands last in a line
ROLES = get_args(Role)
KINDS = {"step": int, "n": int, "test_set": str, "prompts": str, "metrics": dict}  # what a line must say


@dataclass(frozen=True, slots=True)
class Score:
    """A committed evaluation: a run's model at a step, on a test set. The fields stand in the order of the line."""

    step: int
    test_set: str
    role: Role
    n: int  # prompts
    limit: int | None  # the sample size asked for, if any
    prompts: str  # their hash
    shortened: int | None  # prompts that were shortened to fit; from here on None: an older version did not say
    ties: int | None  # decisions that only the order of the answers made
    metrics: Mapping[str, float | None]
    records: str | None = None  # file of the records, in the folder of the step
    records_crc: int | None = None
    more: tuple[tuple[str, Any], ...] = ()  # what a later version may say, kept as it is

    @property
    def key(self) -> tuple[int, str, str]:
        """What is not scored again: step, test set and the hash of its prompts."""
        return self.step, self.test_set, self.prompts

    @property
    def line(self) -> str:
        """As it is written, with its checksum."""
        fields = {name: getattr(self, name) for name in FIELDS}
        fields = {name: value for name, value in fields.items() if value is not None or name not in OPTIONAL}
        body = json.dumps({**fields, **dict(self.more)}, ensure_ascii=False).removesuffix("}")
        return f"{body}{CRC.decode()}{zlib.crc32(body.encode())}}}\n"


OPTIONAL = ("shortened", "ties", "records", "records_crc")
FIELDS = ("step", "test_set", "role", "n", "limit", "prompts", "shortened", "ties", "metrics", "records", "records_crc")
KNOWN = frozenset((*FIELDS, "crc"))


@dataclass(frozen=True, slots=True)
class Scores:
    """The committed evaluations of a run, the newest of each step x test set, and what could not be read."""

    scores: list[Score]
    lost: list[str]


# reading


def read_scores(folder: RunFolder) -> list[Score]:
    """The committed evaluations of a run that can be read."""
    return scan_scores(folder).scores


def scan_scores(folder: RunFolder) -> Scores:
    """Read a run's lines; a torn last line never counted, a damaged line is reported, the rest is read."""
    try:
        data = folder.scores.read_bytes()
    except FileNotFoundError:
        return Scores([], [])
    except OSError as error:
        raise StoreError(
            f"{folder.scores}: cannot be read ({error.strerror}); check the file's mode and the disk"
        ) from None
    return parse_scores(folder.scores, data)


def parse_scores(path: Path, data: bytes) -> Scores:
    """The lines in the bytes of a scores file."""
    newest: dict[tuple[int, str], Score] = {}
    lost = []
    texts, sealed = data.split(b"\n"), CRC in data  # files of the first versions have no checksums
    for number, text in enumerate(texts, start=1):
        score = parse_line(text) if text and (CRC in text or not sealed) else None
        if score is not None:
            newest[score.step, score.test_set] = score
        elif text and number == len(texts):
            lost.append(f"{path}: the last line is torn; it was never committed, and is left out")
        elif text:
            lost.append(f"{path}: line {number} is damaged; lost: one evaluation, run the study again")
    return Scores(list(newest.values()), lost)


def parse_line(text: bytes) -> Score | None:
    """A line as it was written; None if a bit of it is not."""
    body, mark, checksum = text.rpartition(CRC)
    if mark and checksum != b"%d}" % zlib.crc32(body):
        return None
    try:
        line: dict[str, Any] = parse_json(text)
    except (ValueError, RecursionError):
        return None
    if not _is_line(line) or (not mark and "crc" in line):
        return None
    get = line.get
    return Score(
        line["step"],
        line["test_set"],
        line["role"],
        line["n"],
        get("limit"),
        line["prompts"],
        get("shortened"),
        get("ties"),
        line["metrics"],
        get("records"),
        get("records_crc"),
        () if line.keys() <= KNOWN else tuple((key, line[key]) for key in line if key not in KNOWN),
    )


def _is_line(line: Any) -> bool:
    """Whether a line says what it must, and reads no file outside its run. By hand: there are hundreds of thousands."""
    if type(line) is not dict or any(type(line.get(key)) is not kind for key, kind in KINDS.items()):
        return False
    further = (line.get("records_crc", 0), line.get("shortened", 0), line.get("ties", 0))
    return (
        0 <= line["step"] <= LARGEST
        and 0 <= line["n"] <= LARGEST
        and line.get("role") in ROLES
        and all(v is None or (type(v) in (float, int) and -LARGEST <= v <= LARGEST) for v in line["metrics"].values())
        and all(type(number) is int for number in further)
        and (line.get("limit") is None or type(line["limit"]) is int)
        and is_part(line["test_set"])
        and is_part(line["prompts"])
        and is_part(line.get("records", "as-ever"))
    )


# writing


def append_score(path: Path, score: Score) -> None:
    """One line at once, synced; a torn write is taken back, and so is one that a kill has left."""
    with disk_errors(path), path.open("ab", buffering=0) as handle:  # a buffer would be written again when it is closed
        size = _end_line(path)
        data = score.line.encode()
        try:
            if handle.write(data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(handle.fileno())
        except OSError:
            os.truncate(path, size)
            raise
        if not size:
            sync(path.parent)


def _end_line(path: Path) -> int:
    """The size of a file of lines, once what follows its last whole line is gone."""
    data = path.read_bytes()
    start = data.rfind(b"\n") + 1
    if start == len(data):
        return start
    if parse_line(data[start:]) is None:
        os.truncate(path, start)
        return start
    with path.open("ab") as handle:  # whole but for its end
        return handle.write(b"\n") + len(data)


def write_scores(folder: RunFolder, scores: Iterable[Score]) -> None:
    """The lines of a run, in place of those that are there."""
    write_text(folder.scores, "".join(score.line for score in scores))


def drop_scores(folder: RunFolder, after: int) -> None:
    """Forget what was committed after a step, where training resumes from there and may differ."""
    scores = read_scores(folder)
    remaining = [score for score in scores if score.step <= after]
    if len(remaining) < len(scores):
        write_scores(folder, remaining)
