"""scores.jsonl: one line per committed evaluation. Lines are appended, read, and rewritten when some are dropped.

Every line ends with its own checksum, which reveals a flipped bit, and is synced before it counts.
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

CRC = b', "crc": '  # the last key of a line
ROLES = get_args(Role)
KINDS = {"step": int, "n": int, "test_set": str, "prompts": str, "metrics": dict}  # required keys of a line


@dataclass(frozen=True, slots=True)
class Score:
    """A committed evaluation of a run's model at a step, on a test set. Fields have the order of the line."""

    step: int
    test_set: str
    role: Role
    n: int  # prompts
    limit: int | None  # the requested sample size, if any
    prompts: str  # hash of the prompts
    shortened: int | None  # prompts that were shortened to fit; here and below, None: not recorded by an older version
    ties: int | None  # decisions that depend only on the order of the answers
    metrics: Mapping[str, float | None]
    records: str | None = None  # file name of the records, in the folder of the step
    records_crc: int | None = None
    more: tuple[tuple[str, Any], ...] = ()  # keys of a later version, preserved unchanged

    @property
    def key(self) -> tuple[int, str, str]:
        """Key of an evaluation that need not be repeated: step, test set and the hash of its prompts."""
        return self.step, self.test_set, self.prompts

    @property
    def line(self) -> str:
        """Return the line as written, with its checksum."""
        fields = {name: getattr(self, name) for name in FIELDS}
        fields = {name: value for name, value in fields.items() if value is not None or name not in OPTIONAL}
        body = json.dumps({**fields, **dict(self.more)}, ensure_ascii=False).removesuffix("}")
        return f"{body}{CRC.decode()}{zlib.crc32(body.encode())}}}\n"


OPTIONAL = ("shortened", "ties", "records", "records_crc")
FIELDS = ("step", "test_set", "role", "n", "limit", "prompts", "shortened", "ties", "metrics", "records", "records_crc")
KNOWN = frozenset((*FIELDS, "crc"))


@dataclass(frozen=True, slots=True)
class Scores:
    """The committed evaluations of a run, the newest per step x test set, and the unreadable lines."""

    scores: list[Score]
    lost: list[str]


# reading


def read_scores(folder: RunFolder) -> list[Score]:
    """Return the readable committed evaluations of a run."""
    return scan_scores(folder).scores


def scan_scores(folder: RunFolder) -> Scores:
    """Read a run's lines; a torn last line never counted, a damaged line is reported, the others are read."""
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
    """Parse the bytes of a scores file."""
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
    """Parse a line; None if any bit of it has changed."""
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
    """Whether a line has the required keys and names no file outside its run. Hand-written for speed."""
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
    """Append one line with one synced write; a torn write is undone, including one left by a kill."""
    with disk_errors(path), path.open("ab", buffering=0) as handle:  # a buffer would be written again on close
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
    """Remove an incomplete last line; return the size of the file."""
    data = path.read_bytes()
    start = data.rfind(b"\n") + 1
    if start == len(data):
        return start
    if parse_line(data[start:]) is None:
        os.truncate(path, start)
        return start
    with path.open("ab") as handle:  # complete except for its newline
        return handle.write(b"\n") + len(data)


def write_scores(folder: RunFolder, scores: Iterable[Score]) -> None:
    """Replace the lines of a run."""
    write_text(folder.scores, "".join(score.line for score in scores))


def drop_scores(folder: RunFolder, after: int) -> None:
    """Drop the lines after a step from which training resumes, because it may differ."""
    scores = read_scores(folder)
    remaining = [score for score in scores if score.step <= after]
    if len(remaining) < len(scores):
        write_scores(folder, remaining)
