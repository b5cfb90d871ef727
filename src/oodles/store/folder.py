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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from oodles.contracts import (
    IDENTITY_VERSION,
    SHOTS,
    Draw,
    Predictions,
    PromptSet,
    Role,
    RunSpec,
    describe_text,
    run_id_of,
)
from oodles.disk import (
    UNLIKE,
    damage_of,
    make_folder,
    put,
    read_sealed,
    sync,
    unsealed,
    write_json,
    write_text,
)
from oodles.errors import StoreError, first_line, masked
from oodles.names import is_part
from oodles.shapes import ANY, LARGEST, RUN_JSON, load_json, misfit, parse_json
from oodles.store.metrics import metrics
from oodles.suite.slices import Members, is_slice
from oodles.trouble import disk_errors

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

    @property
    def has_results(self) -> bool:
        """Whether anything was evaluated or finished here."""
        return self.done.is_file() or self.scores.is_file()

    def records(self, step: int, test_set: str) -> Path:
        return self.path / "records" / str(step) / f"{test_set}.parquet"

    @property
    def checkpoints(self) -> Path:
        """The training state while a run is not done."""
        return self.path / "checkpoints"

    def adapter(self, step: int) -> Path:
        return self.path / "adapters" / str(step)

    @property
    def superseded(self) -> Path:
        """Lines that counted until a repeated training took another course."""
        return self.path / "superseded.jsonl"

    @property
    def status(self) -> Status:
        if self.done.is_file():
            return "done"
        if self.failed.is_file():
            return "failed"
        return "started" if self.spec.is_file() else "missing"


# writing


def check_adapter(folder: Path) -> None:
    """Refuse a kept adapter that is not as it was written."""
    problem = damage_of(folder)
    if problem:
        raise StoreError(
            f"{folder}: the adapter is damaged: {problem}; restore it, or remove this folder: the run is trained again"
            " when the step is needed"
        )


def claim_folder(root: Path, name: str, suite: str, ids: Sequence[str] = (), *, suite_file: str = "") -> None:
    """Make `root` the folder of this study, or refuse it if it holds another; a damaged study.json is written anew.

    The file of a suite of one's own is kept as it is found from the folder, so that both can be moved together.
    """
    check_folder(root, name, suite, ids)
    if sidecar(root / "study.json") is None:
        known = _remembered(root)
        if suite_file:
            known["suite_file"] = os.path.relpath(Path(suite_file).resolve(), root.resolve())
        write_json(root / "study.json", {"schema": STORE_SCHEMA, "study": name, "suite": suite, **known})


def check_folder(root: Path, name: str, suite: str, ids: Sequence[str] = ()) -> None:
    """Refuse a folder that holds another study or anything else, without touching it.

    Where `study.json` is lost or damaged, the runs say whose folder it is: those of the study have one of its `ids`.
    """
    file = root / "study.json"
    ours = (".lock", ".part", "locks")
    strange = root.exists() and (not root.is_dir() or any(not p.name.endswith(ours) for p in root.iterdir()))
    held = sidecar(file) if root.is_dir() else None  # looked for last: another run may begin in the same moment
    if held is None:
        if strange and not _known_by_runs(root, suite, ids):
            damaged = "study.json is damaged, and no run there is of this study"
            what = damaged if file.is_file() else "not empty and no oodles study"
            raise StoreError(f"{root}: {what}; choose another --out")
        return
    if (held.get("study"), held.get("suite")) != (name, suite):
        found = f"study '{held.get('study')}' on suite '{held.get('suite')}'"
        raise StoreError(f"{root}: holds {found}, not '{name}' on '{suite}'; choose another --out")


def _known_by_runs(root: Path, suite: str, ids: Sequence[str]) -> bool:
    """Whether a folder without a readable `study.json` holds this study: by its runs, or because it holds none yet."""
    specs = [spec for folder in _folders(root) if (spec := sidecar(folder.spec)) is not None]
    if not specs:
        return (root / "study.json").is_file() and not any(read_scores(folder) for folder in _folders(root))
    if ids:
        return any(spec.get("run_id") in ids for spec in specs)
    return all(spec.get("run_id", "") is None and spec.get("suite") == suite for spec in specs)


def _remembered(root: Path) -> dict[str, Any]:
    """What `study.json` says of a study, as far as its runs and sets say it too."""
    specs = {f.name: spec for f in _folders(root) if (spec := sidecar(f.spec)) is not None}
    asked = [name for spec in specs.values() for name in (spec.get("evaluation") or {}).get("test_sets", ())]
    sets = [one for path in sorted((root / "sets").glob("*.parquet")) if (one := _read_members(path)) is not None]
    told = {
        "runs": list(specs),
        "sets": {f"{one.test_set} {one.key}": one.identity for one in sets if one.key},
        "slices": list(dict.fromkeys(filter(is_slice, asked))),
    }
    return {key: value for key, value in told.items() if value}


def _folders(root: Path) -> list[RunFolder]:
    if not (root / "runs").is_dir():
        return []
    return [RunFolder(path) for path in sorted((root / "runs").iterdir()) if path.is_dir()]


def begin_run(folder: RunFolder, spec: RunSpec, draw: Draw, env: Mapping[str, Any], **more: Any) -> None:
    """A run folder with its spec, draw and environment.

    What an unfinished attempt at the same run has committed stays, and so does its checkpoint; remains of another run
    of this name are removed (`check_same_run` has seen that it has no scores).
    """
    same = _known_id(folder) == spec.run_id
    if not same:
        check_spec(folder)
        check_same_run(folder, spec)
    with disk_errors(folder.path):
        if not same:
            shutil.rmtree(folder.path, ignore_errors=True)
        make_folder(folder.path)
        folder.failed.unlink(missing_ok=True)
    held = sidecar(folder.env)
    if held is None:
        write_json(folder.env, dict(env))
    elif held != dict(env):
        log_line(folder, f"goes on in another environment: {json.dumps(dict(env), sort_keys=True)}")
    keep_draw(folder, draw)
    told = asdict(spec)
    told["pattern"]["text"] = describe_text(spec.pattern.text)
    write_spec(folder, {"schema": STORE_SCHEMA, "run_id": spec.run_id, **told, "seeds": asdict(spec.seeds), **more})


def write_spec(folder: RunFolder, told: Mapping[str, Any]) -> None:
    """What decided a run."""
    write_json(folder.spec, told)


def read_spec(folder: RunFolder) -> dict[str, Any]:
    """What decided a run, if it is as it was written and its id is the one that follows from it."""
    told = read_json(folder.spec)
    version = str(told.get("run_id") or "").partition("-")[0]
    if version not in ("", "1", "2"):
        told = read_json(folder.spec, strictly=True)
    try:
        sound = version in ("", "1") or run_id_of(told) == told["run_id"]
    except (KeyError, TypeError, AttributeError, ValueError):
        sound = False
    if not sound:
        raise StoreError(f"{folder.spec}: {UNLIKE}; {_restore(folder)}")
    return told


def check_spec(folder: RunFolder) -> None:
    """Refuse a run that has scores, but no sound spec: what was trained there is not known."""
    if folder.spec.is_file():
        if read_scores(folder):
            read_spec(folder)
    elif folder.has_results:
        raise StoreError(f"{folder.path}: has scores, but no spec.json; {_restore(folder)}")


def _restore(folder: RunFolder) -> str:
    return f"restore the file, or remove {folder.path}: the run is then made again"


def _known_id(folder: RunFolder) -> str | None:
    """The id that a run's spec states; None if there is none that can be read."""
    try:
        return read_json(folder.spec).get("run_id")
    except StoreError:
        return None


def keep_draw(folder: RunFolder, draw: Draw) -> None:
    """The ids of a run's shots; written anew if they are missing or damaged."""
    header = {"schema": STORE_SCHEMA, "train_set": draw.train_set, "shots": draw.shots, "data_seed": draw.data_seed}
    told = {**header, "hash": draw.hash, "ids": [e.id for e in draw.examples]}
    if sidecar(folder.draw) != told:
        write_json(folder.draw, told)


def plan_runs(root: Path, names: Sequence[str]) -> None:
    """Remember which runs the study asks for, so that `status` can name those that are missing."""
    held = read_json(root / "study.json")
    known = list(dict.fromkeys([*held.get("runs", []), *names]))
    if known != held.get("runs"):
        write_json(root / "study.json", {**held, "runs": known})


def check_identity(root: Path) -> None:
    """Refuse to add to runs that an older version trained: under the same recipe it trained something else."""
    if not (root / "study.json").is_file():
        return
    for folder in run_folders(root):
        version = str(_known_id(folder) or IDENTITY_VERSION).partition("-")[0]
        if version != str(IDENTITY_VERSION) and read_scores(folder):
            raise StoreError(
                f"{root}: run {folder.name} was trained by another version of oodles (run id of version {version}, here"
                f" {IDENTITY_VERSION}), in which the same recipe means another training; it can be analysed and"
                " reported, but not grown: choose another --out"
            )


def check_same_run(folder: RunFolder, spec: RunSpec) -> None:
    """A run of this name that has scores must be this very run."""
    held = _known_id(folder) or spec.run_id  # see check_spec
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


def supersede(folder: RunFolder, step: int) -> None:
    """A repeated training took another course: what the earlier one left from a step on no longer counts.

    Its lines are kept aside. A kill in between leaves lines without an adapter, which are compared and dropped anew.
    """
    lines = [line for line in read_scores(folder) if line["step"] >= step]
    with disk_errors(folder.path):
        folder.done.unlink(missing_ok=True)
        for path in (folder.path / "adapters").glob("*"):
            if path.name.isdigit() and int(path.name) >= step:
                shutil.rmtree(path)
    for line in lines:
        _append(folder.superseded, line)
    drop_scores(folder, step - 1)


def copy_score(donor: RunFolder, folder: RunFolder, line: Mapping[str, Any], role: Role) -> None:
    """Take over an evaluation that is known to be the same, e.g. the untrained model's at step 0.

    The role is the new run's own: what is in-domain for one run is OOD for another.
    """
    source, target = records_file(donor, line), records_file(folder, line)
    with put(target) as aside:
        shutil.copyfile(source, aside)
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
    known = (sidecar(root / "study.json") or {}).get("sets", {})
    for one in members:
        was = known.get(f"{one.test_set} {one.key}", one.identity)
        if was != one.identity and one.test_set != SHOTS:
            raise StoreError(
                f"{root}: test set '{one.test_set}' was {was} in earlier runs and is {one.identity} now:"
                " its data, labels or slices differ; choose another --out, or restore the data it was run with"
            )


def members_file(root: Path, test_set: str, prompts: str) -> Path:
    return root / "sets" / f"{test_set}-{prompts}.parquet"


def mend_members(root: Path, members: Sequence[Members]) -> None:
    """Write anew what is damaged or missing of the sets that the folder's runs were evaluated on."""
    known = read_json(root / "study.json").get("sets", {})
    for one in members:
        path = members_file(root, one.test_set, one.prompts)
        if known.get(f"{one.test_set} {one.key}") != one.identity:
            continue
        held = _read_members(path)
        if held is None or (held.ids, held.gold, held.identity) != (one.ids, one.gold, one.identity):
            with disk_errors(path):
                path.unlink(missing_ok=True)
            _write_members(path, one)


def _write_members(path: Path, members: Members) -> None:
    if path.is_file():
        return
    import pyarrow as pa

    columns: dict[str, Any] = {"example": list(members.ids), "gold": np.array(members.gold, dtype=np.int16)}
    if members.items:
        columns["item"] = np.array(members.items, dtype=np.int32)
    columns |= {f"slice:{name}": pa.array(cells).dictionary_encode() for name, cells in members.columns.items()}
    _write_parquet(path, columns, {"test_set": members.test_set, "prompts": members.prompts, "key": members.key})


def _read_members(path: Path) -> Members | None:
    """Who belongs to a rendered set, as it was kept; None if that is missing or damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, page_checksum_verification=True)
        told = json.loads((table.schema.metadata or {}).get(ABOUT, b"{}"))
        cells = {name: tuple(table.column(name).to_pylist()) for name in table.column_names}
        return Members(
            test_set=told.get("test_set", ""),
            prompts=told.get("prompts", ""),
            key=told.get("key", ""),
            ids=cells["example"],
            gold=cells["gold"],
            columns={n.removeprefix("slice:"): c for n, c in cells.items() if n.startswith("slice:")},
        )
    except (OSError, ValueError, KeyError, AttributeError, pa.ArrowException):
        return None


ABOUT = b"oodles"  # key of what a Parquet file says of itself


def _write_parquet(path: Path, columns: Mapping[str, Any], about: Mapping[str, str] | None = None) -> None:
    """Write aside, sync, rename."""
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
    """Columns whose values recur; ids do not, and scores are numbers."""
    return [name for name in table.column_names if name.startswith("slice:")]


def _encodings(table: Any) -> dict[str, Any]:
    """Ids by what they share with the one before, scores byte by byte: both then compress well."""
    known = {"example": "DELTA_BYTE_ARRAY"}
    known |= {name: "BYTE_STREAM_SPLIT" for name in table.column_names if name.startswith("score:")}
    return {name: code for name, code in known.items() if name in table.column_names}


def _append(path: Path, line: Mapping[str, Any]) -> None:
    """One line at once, synced; a torn write is taken back, and so is one that a kill has left."""
    with disk_errors(path), path.open("ab", buffering=0) as handle:  # a buffer would be written again when it is closed
        size = _end_line(path)
        data = written(line).encode()
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
    if _checked(data[start:]) is None:
        os.truncate(path, start)
        return start
    with path.open("ab") as handle:  # whole but for its end
        return handle.write(b"\n") + len(data)


def written(line: Mapping[str, Any]) -> str:
    """A line with its own checksum: a flipped bit is seen."""
    body = json.dumps(line, ensure_ascii=False).removesuffix("}")
    return f"{body}{CRC.decode()}{zlib.crc32(body.encode())}}}\n"


def log_line(folder: RunFolder, text: str) -> None:
    with disk_errors(folder.log), folder.log.open("a", encoding="utf-8") as handle:
        handle.write(masked(text) + "\n")


# reading


def read_json(path: Path, *, strictly: bool = False) -> dict[str, Any]:
    """An object from a JSON file of a study or a run, with what each of its parts must be."""
    advice = _advice(path)
    value = read_sealed(path, strictly=strictly, advice=advice)
    try:
        return _shaped(path, value)
    except ValueError as error:
        raise StoreError(f"{path}: {first_line(error)}; {advice}") from None


def _shaped(path: Path, value: dict[str, Any]) -> dict[str, Any]:
    """The value, if its parts are what the file's name promises; a ValueError if not."""
    if problem := misfit(value, RUN_JSON.get(path.name, ANY)):
        raise ValueError(problem)
    return value


def _advice(path: Path) -> str:
    """What to do about a damaged file."""
    if path.name in ("study.json", "audit.json"):
        return "run the study again (oodles run), which writes it anew"
    if path.name == "spec.json":
        return _restore(RunFolder(path.parent))
    return "the file is damaged or missing: restore it, or remove it and run the study again"


def sidecar(path: Path) -> dict[str, Any] | None:
    """A file that can be written anew or done without; None if it is missing or damaged."""
    try:
        return _shaped(path, unsealed(load_json(path)))
    except (FileNotFoundError, ValueError):
        return None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror}); check the file") from None


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
        raise StoreError(
            f"{folder.scores}: cannot be read ({error.strerror}); check the file's mode and the disk"
        ) from None
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


def same_scores(folder: RunFolder, line: Mapping[str, Any], predictions: Predictions) -> bool:
    """Whether the records of a line hold just these scores."""
    import pyarrow.parquet as pq

    if not records_are_whole(folder, line):
        return False
    table = pq.read_table(records_file(folder, line))
    held = [table.column(name).to_numpy() for name in table.column_names if name.startswith("score:")]
    return np.array_equal(np.stack(held, axis=1), predictions.scores.astype(np.float32))


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
    """Whether a line or a record of a run is missing, or not as it was written; reads them all.

    A damaged adapter cannot be made anew from here, and is refused.
    """
    for path in sorted((folder.path / "adapters").glob("[0-9]*")):
        check_adapter(path)
    found = scan_scores(folder)
    return bool(found.lost) or not all(records_are_whole(folder, line) for line in found.lines)


def mend_scores(folder: RunFolder, missing: bool = False) -> list[str]:
    """Before a run goes on: drop lines that are torn or damaged, or whose records are; say which.

    What is dropped is evaluated again, so nothing wrong stays and nothing is counted twice. Records may be removed by
    who does not need them: that they are missing is damage only if asked for.
    """
    found = scan_scores(folder)
    gone = [line for line in found.lines if not records_are_whole(folder, line, absent=not missing)]
    kept = [line for line in found.lines if line not in gone]
    lost = found.lost + [
        f"{records_file(folder, line)}: damaged; step {line['step']}, test set '{line['test_set']}' is evaluated again"
        for line in gone
    ]
    if lost:
        write_text(folder.scores, "".join(written(line) for line in kept))
    return lost


def records_are_whole(folder: RunFolder, line: Mapping[str, Any], absent: bool = False) -> bool:
    """Whether the records of a line are there as they were written; `absent` is what to say of none.

    What cannot be read may be whole: that is an error of the disk, or of who may read it.
    """
    file = records_file(folder, line)
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return absent
    except OSError as error:
        raise StoreError(f"{file}: cannot be read ({error.strerror}); check the file's mode and the disk") from None
    return "records_crc" not in line or zlib.crc32(data) == line["records_crc"]


def records_file(folder: RunFolder, line: Mapping[str, Any]) -> Path:
    """Where the records of a committed line are."""
    plain = folder.records(line["step"], line["test_set"])
    return plain.with_name(line["records"]) if "records" in line else plain
