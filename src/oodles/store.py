"""The folder of a study and of its runs: names, atomic writes, committed lines and their checks.

    <out>/study.json                     which study this folder holds
    <out>/runs/<run>/spec.json ...       see docs/design.md, "Run folder"

Everything is written aside and renamed, or appended as one line, so a kill leaves no half-written result.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from oodles.errors import StoreError, masked
from oodles.metrics import metrics
from oodles.names import is_part
from oodles.records import SHOTS, Draw, Predictions, PromptSet, Role, RunSpec, describe_text
from oodles.shapes import ANY, LARGEST, RUN_JSON, load_json, misfit, parse_json
from oodles.slices import Members, is_slice

STORE_SCHEMA = 1
CRC = b', "crc": '  # stands last in a line
ROLES = get_args(Role)
LINE_KINDS = {"step": int, "n": int, "test_set": str, "prompts": str, "metrics": dict}  # what a line must say
Status = Literal["done", "failed", "started", "missing"]


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Names of everything in a run's folder."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def root(self) -> Path:
        """The study's folder."""
        return self.path.parent.parent

    @property
    def spec(self) -> Path:
        return self.path / "spec.json"

    @property
    def env(self) -> Path:
        return self.path / "env.json"

    @property
    def draw(self) -> Path:
        return self.path / "draw.json"

    @property
    def scores(self) -> Path:
        return self.path / "scores.jsonl"

    @property
    def log(self) -> Path:
        return self.path / "log.txt"

    @property
    def done(self) -> Path:
        return self.path / "done.json"

    @property
    def lock(self) -> Path:
        """Who writes here now; beside the run, so that the run's folder may be removed."""
        return self.root / "locks" / f"{self.name}.json"

    @property
    def failed(self) -> Path:
        return self.path / "failed.json"

    def records(self, step: int, test_set: str) -> Path:
        return self.path / "records" / str(step) / f"{test_set}.parquet"

    @property
    def checkpoints(self) -> Path:
        """The training state while a run is not done."""
        return self.path / "checkpoints"

    def adapter(self, step: int) -> Path:
        return self.path / "adapters" / str(step)

    @property
    def status(self) -> Status:
        if self.done.is_file():
            return "done"
        if self.failed.is_file():
            return "failed"
        return "started" if self.spec.is_file() else "missing"


# writing


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Disk trouble as one line that names the place."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise StoreError(f"{path}: no space left on the disk; free some or choose another --out") from None
        raise StoreError(f"{path}: cannot be written ({error.strerror or error}); check the folder") from None


def write_json(path: Path, value: Any) -> None:
    """Write aside, sync, rename."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write aside, sync, rename: the file is there whole or not at all."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with aside.open("w", encoding="utf-8") as handle:
                handle.write(text)
                handle.flush()
                os.fsync(handle.fileno())
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)


def claim_folder(root: Path, name: str, suite: str) -> None:
    """Make `root` the folder of this study, or refuse if it holds something else."""
    check_folder(root, name, suite)
    if not (root / "study.json").is_file():
        write_json(root / "study.json", {"schema": STORE_SCHEMA, "study": name, "suite": suite})


def check_folder(root: Path, name: str, suite: str) -> None:
    """Refuse a folder that holds another study or anything else, without touching it."""
    file = root / "study.json"
    ours = (".lock", ".part", "locks")
    strange = root.exists() and (not root.is_dir() or any(not p.name.endswith(ours) for p in root.iterdir()))
    if not file.is_file():  # looked for last: another run may begin in the same moment
        if strange:
            raise StoreError(f"{root}: not empty and no oodles study; choose another --out")
        return
    held = read_json(file)
    if (held.get("study"), held.get("suite")) != (name, suite):
        found = f"study '{held.get('study')}' on suite '{held.get('suite')}'"
        raise StoreError(f"{root}: holds {found}, not '{name}' on '{suite}'; choose another --out")


def begin_run(folder: RunFolder, spec: RunSpec, draw: Draw, env: Mapping[str, Any], **more: Any) -> None:
    """A run folder with its spec, draw and environment.

    What an unfinished attempt at the same run has committed stays, and so does its checkpoint; remains of another run
    of this name are removed (`check_same_run` has seen that it has no scores).
    """
    same = folder.spec.is_file() and read_json(folder.spec).get("run_id") == spec.run_id
    with disk_errors(folder.path):
        if not same:
            shutil.rmtree(folder.path, ignore_errors=True)
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.failed.unlink(missing_ok=True)
    if not same:
        write_json(folder.env, dict(env))
    elif folder.env.is_file() and read_json(folder.env) != dict(env):
        log_line(folder, f"goes on in another environment: {json.dumps(dict(env), sort_keys=True)}")
    ids = [e.id for e in draw.examples]
    header = {"schema": STORE_SCHEMA, "train_set": draw.train_set, "shots": draw.shots, "data_seed": draw.data_seed}
    write_json(folder.draw, {**header, "hash": draw.hash, "ids": ids})
    told = asdict(spec)
    told["pattern"]["text"] = describe_text(spec.pattern.text)
    write_json(
        folder.spec, {"schema": STORE_SCHEMA, "run_id": spec.run_id, **told, "seeds": asdict(spec.seeds), **more}
    )


def plan_runs(root: Path, names: Sequence[str]) -> None:
    """Remember which runs the study asks for, so that `status` can name those that are missing."""
    held = read_json(root / "study.json")
    known = list(dict.fromkeys([*held.get("runs", []), *names]))
    if known != held.get("runs"):
        write_json(root / "study.json", {**held, "runs": known})


def check_same_run(folder: RunFolder, spec: RunSpec) -> None:
    """A run of this name that has scores must be this very run."""
    held = read_json(folder.spec).get("run_id") if folder.spec.is_file() else spec.run_id
    if held != spec.run_id and read_scores(folder):
        raise StoreError(
            f"{folder.path}: holds run {held}, the study asks for {spec.run_id} under the same name (model, data or"
            " recipe changed); choose another --out or remove that run"
        )


def commit(
    folder: RunFolder,
    step: int,
    prompts: PromptSet,
    predictions: Predictions,
    role: Role,
    *,
    shortened: int = 0,
) -> dict[str, Any]:
    """Keep one step x test set: records first, then the one line that makes it count."""
    columns: dict[str, Any] = {"example": list(predictions.ids)}
    for index, answer in enumerate(predictions.answers):
        columns[f"score:{answer.strip()}"] = predictions.scores[:, index].astype(np.float32)
    columns["correct"] = predictions.correct
    file = folder.records(step, prompts.name)
    if any(line["step"] == step and line["test_set"] == prompts.name for line in read_scores(folder)):
        file = file.with_name(f"{prompts.name}-{prompts.hash}.parquet")  # the older records stay until this counts
    _write_parquet(file, columns)
    line = {
        "step": step,
        "test_set": prompts.name,
        "role": role,
        "n": len(prompts),
        "limit": prompts.limit,
        "prompts": prompts.hash,
        "shortened": shortened,
        "ties": predictions.ties,
        "metrics": {k: None if np.isnan(v) else v for k, v in metrics(predictions).items()},
        "records": file.name,
        "records_crc": zlib.crc32(file.read_bytes()),
    }
    _append(folder.scores, line)
    return line


def drop_scores(folder: RunFolder, after: int) -> None:
    """Forget what was committed after a step, where training goes on from there and may differ."""
    lines = read_scores(folder)
    kept = [line for line in lines if line["step"] <= after]
    if len(kept) < len(lines):
        write_text(folder.scores, "".join(written(line) for line in kept))


def copy_score(donor: RunFolder, folder: RunFolder, line: Mapping[str, Any], role: Role) -> None:
    """Take over an evaluation that is known to be the same, e.g. the untrained model's at step 0.

    The role is the new run's own: what is in-domain for one run is OOD for another.
    """
    source, target = records_file(donor, line), records_file(folder, line)
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_name(f".{target.name}.part")
        shutil.copyfile(source, aside)
        sync(aside)
        aside.replace(target)
    _append(folder.scores, {**line, "role": role})


def keep_members(folder: RunFolder, members: Sequence[Members], asked: Sequence[str] = ()) -> None:
    """Keep who belongs to each rendered set, once per study, and which sets the study evaluates.

    Scores of different data or prompts must not meet under one name: a set that is rendered otherwise than before, at
    the same limit, is refused. Slices are read from what is kept here.
    """
    check_members(folder.root, members)
    held = read_json(folder.root / "study.json")
    known = dict(held.get("sets", {}))
    for one in members:
        if one.test_set == SHOTS:
            continue
        known[f"{one.test_set} {one.key}"] = one.identity
        _write_members(members_file(folder.root, one.test_set, one.prompts), one)
    slices = list(dict.fromkeys([*held.get("slices", []), *filter(is_slice, asked)]))
    if known != held.get("sets", {}) or slices != held.get("slices", []):
        write_json(folder.root / "study.json", {**held, "sets": known, "slices": slices})


def check_members(root: Path, members: Sequence[Members]) -> None:
    """Refuse sets that are not those of the folder's earlier runs, without touching anything."""
    if not (root / "study.json").is_file():
        return
    known = read_json(root / "study.json").get("sets", {})
    for one in members:
        was = known.get(f"{one.test_set} {one.key}", one.identity)
        if was != one.identity and one.test_set != SHOTS:
            raise StoreError(
                f"{root}: test set '{one.test_set}' was {was} in earlier runs and is {one.identity} now:"
                " its data, labels or slices differ; choose another --out, or restore the data it was run with"
            )


def members_file(root: Path, test_set: str, prompts: str) -> Path:
    return root / "sets" / f"{test_set}-{prompts}.parquet"


def _write_members(path: Path, members: Members) -> None:
    if path.is_file():
        return
    import pyarrow as pa

    columns: dict[str, Any] = {"example": list(members.ids), "gold": np.array(members.gold, dtype=np.int16)}
    columns |= {f"slice:{name}": pa.array(cells).dictionary_encode() for name, cells in members.columns.items()}
    _write_parquet(path, columns)


def _write_parquet(path: Path, columns: Mapping[str, Any]) -> None:
    """Write aside, sync, rename."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            table = pa.table(dict(columns))
            pq.write_table(
                table,
                aside,
                compression="zstd",
                use_dictionary=_repeating(table),
                column_encoding=_encodings(table),
                write_page_checksum=True,
            )
            sync(aside)
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)


def _repeating(table: Any) -> list[str]:
    """Columns whose values recur; ids do not, and scores are numbers."""
    return [name for name in table.column_names if name.startswith("slice:")]


def _encodings(table: Any) -> dict[str, Any]:
    """Ids by what they share with the one before, scores byte by byte: both then compress well."""
    known = {"example": "DELTA_BYTE_ARRAY"}
    known |= {name: "BYTE_STREAM_SPLIT" for name in table.column_names if name.startswith("score:")}
    return {name: code for name, code in known.items() if name in table.column_names}


def _append(path: Path, line: Mapping[str, Any]) -> None:
    """One line at once, synced; a torn write is taken back."""
    with disk_errors(path), path.open("ab") as handle:
        size = handle.tell()
        try:
            handle.write(written(line).encode())
            handle.flush()
            os.fsync(handle.fileno())
        except OSError:
            os.truncate(path, size)
            raise


def written(line: Mapping[str, Any]) -> str:
    """A line with its own checksum: a flipped bit is seen."""
    body = json.dumps(line, ensure_ascii=False).removesuffix("}")
    return f"{body}{CRC.decode()}{zlib.crc32(body.encode())}}}\n"


def sync(path: Path) -> None:
    """Wait until a file is on the disk."""
    with path.open("rb") as handle:
        os.fsync(handle.fileno())


def log_line(folder: RunFolder, text: str) -> None:
    with disk_errors(folder.log), folder.log.open("a", encoding="utf-8") as handle:
        handle.write(masked(text) + "\n")


# reading


def read_json(path: Path) -> dict[str, Any]:
    """An object from a JSON file; of the files of a study and its runs also what each of its parts must be."""
    try:
        value: dict[str, Any] = load_json(path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror or error}); is it missing?") from None
    except ValueError as error:
        raise StoreError(f"{path}: cannot be read ({error}); the file is damaged") from None
    if found := misfit(value, RUN_JSON.get(path.name, ANY)):
        raise StoreError(f"{path}: {found}; the file is damaged")
    return value


def run_folders(root: str | Path) -> list[RunFolder]:
    """The run folders below a study's folder, by name."""
    folders = [RunFolder(Path(root) / "runs" / name) for name in run_names(Path(root))]
    return [f for f in folders if f.spec.is_file()]


def run_names(root: Path) -> list[str]:
    """What lies below a study's folder; sorted as text, for there may be thousands."""
    if not (root / "study.json").is_file():
        raise StoreError(f"{root}: no study.json; expected a folder that `oodles run` wrote")
    if not (root / "runs").is_dir():
        return []
    with os.scandir(root / "runs") as entries:
        return sorted(entry.name for entry in entries if entry.is_dir())


@dataclass(frozen=True, slots=True)
class Scores:
    """The committed lines of a run, the newest of each step x test set, and what could not be read."""

    lines: list[dict[str, Any]]
    lost: list[str]


def scan_scores(folder: RunFolder) -> Scores:
    """Read a run's lines; a torn last line never counted, a damaged one is named, the rest is read."""
    try:
        data = folder.scores.read_bytes()
    except FileNotFoundError:
        return Scores([], [])
    except OSError as error:
        return Scores([], [f"{folder.scores}: cannot be read ({error.strerror}); lost: all scores of the run"])
    return parse_scores(folder.scores, data)


def parse_scores(path: Path, data: bytes) -> Scores:
    """The lines in the bytes of a scores file."""
    newest: dict[tuple[int, str], dict[str, Any]] = {}
    lost = []
    texts = data.split(b"\n")
    for number, text in enumerate(texts, start=1):
        line = _checked(text) if text else None
        if line is not None:
            newest[line["step"], line["test_set"]] = line
        elif text and number == len(texts):
            lost.append(f"{path}: the last line is torn; it was never committed, and is left out")
        elif text:
            lost.append(f"{path}: line {number} is damaged; lost: one evaluation, run the study again")
    return Scores(list(newest.values()), lost)


def read_scores(folder: RunFolder) -> list[dict[str, Any]]:
    """The committed lines of a run that can be read."""
    return scan_scores(folder).lines


def _checked(text: bytes) -> dict[str, Any] | None:
    """A line as it was written; None if a bit of it is not."""
    body, mark, told = text.rpartition(CRC)
    if mark and told != b"%d}" % zlib.crc32(body):
        return None
    try:
        line: dict[str, Any] = parse_json(text)
    except (ValueError, RecursionError):
        return None
    if not _is_line(line):
        return None
    line.pop("crc", None)
    return line


def _is_line(line: Any) -> bool:
    """Whether a line says what it must, and reads no file outside its run. By hand: there are hundreds of thousands."""
    if type(line) is not dict or any(type(line.get(key)) is not kind for key, kind in LINE_KINDS.items()):
        return False
    further = (line.get("records_crc", 0), line.get("shortened", 0))
    return (
        0 <= line["step"] <= LARGEST
        and 0 <= line["n"] <= LARGEST
        and line.get("role") in ROLES
        and all(
            v is None or type(v) is float or (type(v) is int and abs(v) <= LARGEST) for v in line["metrics"].values()
        )
        and all(type(number) is int for number in further)
        and is_part(line["test_set"])
        and is_part(line["prompts"])
        and is_part(line.get("records", "as-ever"))
    )


def is_damaged(folder: RunFolder) -> bool:
    """Whether a line or a record of a run is not as it was written; reads them all."""
    found = scan_scores(folder)
    return bool(found.lost) or not all(records_are_whole(folder, line) for line in found.lines)


def mend_scores(folder: RunFolder) -> list[str]:
    """Before a run goes on: drop lines that are torn or damaged, or whose records are; say which.

    What is dropped is evaluated again, so nothing wrong stays and nothing is counted twice.
    """
    found = scan_scores(folder)
    kept = [line for line in found.lines if records_are_whole(folder, line)]
    gone = [line for line in found.lines if line not in kept]
    lost = found.lost + [
        f"{records_file(folder, line)}: damaged; step {line['step']}, test set '{line['test_set']}' is evaluated again"
        for line in gone
    ]
    if lost:
        write_text(folder.scores, "".join(written(line) for line in kept))
    return lost


def records_are_whole(folder: RunFolder, line: Mapping[str, Any]) -> bool:
    """Whether the records of a line are there as they were written."""
    try:
        data = records_file(folder, line).read_bytes()
    except OSError:
        return False
    return "records_crc" not in line or zlib.crc32(data) == line["records_crc"]


def records_file(folder: RunFolder, line: Mapping[str, Any]) -> Path:
    """Where the records of a committed line are."""
    plain = folder.records(line["step"], line["test_set"])
    return plain.with_name(line["records"]) if "records" in line else plain
