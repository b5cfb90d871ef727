"""The folder of a study and of its runs: names, atomic writes, and reading it all back as one long table.

    <out>/study.json                     which study this folder holds
    <out>/runs/<run>/spec.json ...       see docs/design.md, "Run folder"

Everything is written aside and renamed, or appended as one line, so a kill leaves no half-written result.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from oodles.errors import StoreError, nearest
from oodles.metrics import metrics
from oodles.records import SHOTS, Draw, Predictions, PromptSet, Role, RunSpec, describe_text, role_of
from oodles.slices import Members, Slice, is_slice, resolve_slice

if TYPE_CHECKING:  # pandas and pyarrow are slow to load, and most commands only look at the folder
    import pandas as pd

STORE_SCHEMA = 1
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
    ours = (".lock", ".part")
    strange = root.exists() and (not root.is_dir() or any(not p.name.endswith(ours) for p in root.iterdir()))
    if not file.is_file():  # looked for last: another run may begin in the same moment
        if strange:
            raise StoreError(f"{root}: not empty and no oodles study; choose another --out")
        return
    held = read_json(file)
    if (held.get("study"), held.get("suite")) != (name, suite):
        found = f"study '{held.get('study')}' on suite '{held.get('suite')}'"
        raise StoreError(f"{root}: holds {found}, not '{name}' on '{suite}'; choose another --out")


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """One writer per folder; the lock ends with its process, whatever ends that."""
    with disk_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        handle = (root / ".lock").open("a")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        handle.close()
        raise StoreError(f"{root}: another oodles is writing here; wait for it or choose another --out") from None
    try:
        yield
    finally:
        handle.close()


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
    _write_parquet(folder.records(step, prompts.name), columns)
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
    }
    _append(folder.scores, line)
    return line


def drop_scores(folder: RunFolder, after: int) -> None:
    """Forget what was committed after a step, where training goes on from there and may differ."""
    lines = read_scores(folder)
    kept = [line for line in lines if line["step"] <= after]
    if len(kept) < len(lines):
        write_text(folder.scores, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in kept))


def copy_score(donor: RunFolder, folder: RunFolder, line: Mapping[str, Any], role: Role) -> None:
    """Take over an evaluation that is known to be the same, e.g. the untrained model's at step 0.

    The role is the new run's own: what is in-domain for one run is OOD for another.
    """
    source, target = donor.records(line["step"], line["test_set"]), folder.records(line["step"], line["test_set"])
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
                table, aside, compression="zstd", use_dictionary=_repeating(table), column_encoding=_encodings(table)
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
            handle.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            handle.flush()
            os.fsync(handle.fileno())
        except OSError:
            os.truncate(path, size)
            raise


def sync(path: Path) -> None:
    """Wait until a file is on the disk."""
    with path.open("rb") as handle:
        os.fsync(handle.fileno())


def log_line(folder: RunFolder, text: str) -> None:
    with disk_errors(folder.log), folder.log.open("a", encoding="utf-8") as handle:
        handle.write(text + "\n")


# reading


def read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: cannot be read ({error}); the file is damaged or missing") from None
    if not isinstance(value, dict):
        raise StoreError(f"{path}: not a JSON object; the file is damaged")
    return value


def run_folders(root: str | Path) -> list[RunFolder]:
    """The run folders below a study's folder, by name."""
    root = Path(root)
    if not (root / "study.json").is_file():
        raise StoreError(f"{root}: no study.json; expected a folder that `oodles run` wrote")
    folders = (RunFolder(p) for p in sorted((root / "runs").glob("*")))
    return [f for f in folders if f.spec.is_file()]


def read_scores(folder: RunFolder) -> list[dict[str, Any]]:
    """The committed lines of a run; a torn last line is left out, as it never counted."""
    if not folder.scores.is_file():
        return []
    lines = folder.scores.read_text(encoding="utf-8").split("\n")
    scores = []
    for number, text in enumerate(lines, start=1):
        try:
            if text:
                scores.append(json.loads(text))
        except ValueError:
            if number < len(lines):
                raise StoreError(
                    f"{folder.scores}: line {number} is damaged; remove the run and run it again"
                ) from None
    return scores


def read_runs(root: str | Path, test_sets: Sequence[str] | None = None) -> pd.DataFrame:
    """All committed scores below a study's folder as one long table.

    Parameters
    ----------
    test_sets : only these, beside the in-domain ones; a slice such as ``hans/lexical_overlap`` is one, too. Default:
        all that the study evaluates.

    Returns
    -------
    One row per run x step x test set x metric, with the columns of docs/design.md.
    """
    import pandas as pd

    rows = []
    wanted = _Wanted.read(Path(root), test_sets)
    for folder in run_folders(root):
        about = run_columns(folder)
        for line in read_scores(folder):
            for part in wanted.parts(folder, line):
                where = {"step": line["step"], "test_set": part.name, "role": part.role}
                for metric, value in part.metrics.items():
                    number = np.nan if value is None else float(value)
                    told = {"metric": metric, "value": number, "n": part.n}
                    rows.append({**about, **where, **told, **part.about})
    wanted.complain()
    if not rows:
        raise StoreError(f"{root}: no scores yet; run `oodles status {root}` to see what is there")
    columns = ["run", "model", "train_set", "shots", "seed", "step", "test_set", "role", "metric", "value", "n"]
    table = pd.DataFrame(rows)
    return table[[*columns, *(c for c in table.columns if c not in columns)]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One evaluation, or a slice of one."""

    name: str
    role: Role
    n: int
    metrics: Mapping[str, float | None]
    about: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which test sets and slices are read, and the members they are read with."""

    root: Path
    names: tuple[str, ...] | None  # None: every set
    slices: tuple[str, ...]
    members: dict[str, Members] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, root: Path, names: Sequence[str] | None) -> _Wanted:
        if names is not None:
            return cls(root, tuple(n for n in names if not is_slice(n)), tuple(filter(is_slice, names)))
        held = read_json(root / "study.json") if (root / "study.json").is_file() else {}
        return cls(root, None, tuple(held.get("slices", ())))

    def parts(self, folder: RunFolder, line: Mapping[str, Any]) -> Iterator[_Part]:
        """The set itself if it is wanted, and every wanted slice of it."""
        self.seen.add(line["test_set"])
        if self.whole(line):
            yield _Part(name=line["test_set"], role=line["role"], n=line["n"], metrics=line["metrics"])
        for one, inside, members in self.slices_of(line):
            frame = _read_record(folder, line)
            scores = [c for c in frame.columns if c.startswith("score:")]
            found = Predictions(
                test_set=one.name,
                answers=tuple(c.removeprefix("score:") for c in scores),
                ids=tuple(frame["example"][inside]),
                scores=frame.loc[inside, scores].to_numpy(np.float64),
                gold=np.array(members.gold, dtype=np.int64)[inside],
            )
            train_set = line["test_set"] if line["role"] == "in_domain" else ""
            yield _Part(
                name=one.name,
                role=role_of(one.name, train_set),
                n=int(inside.sum()),
                metrics={
                    k: v for k, v in metrics(found).items() if not np.isnan(v)
                },  # of one label, some are undefined
                about={"slice_of": one.parent, "slice": str(one)},
            )

    def whole(self, line: Mapping[str, Any]) -> bool:
        """Whether the whole set is wanted; the in-domain one always is, because the others are compared with it."""
        return self.names is None or line["test_set"] in self.names or line["role"] == "in_domain"

    def slices_of(self, line: Mapping[str, Any]) -> Iterator[tuple[Slice, Any, Members]]:
        """The wanted slices of an evaluation, each with the examples that belong to it."""
        for name in self.slices:
            if name.partition("/")[0] != line["test_set"]:
                continue
            members = self._members(line["test_set"], line["prompts"])
            one = resolve_slice(name, members.columns)
            inside = one.mask(members)
            if inside.any():
                yield one, inside, members

    def _members(self, test_set: str, prompts: str) -> Members:
        if prompts not in self.members:
            self.members[prompts] = read_members(members_file(self.root, test_set, prompts), test_set, prompts)
        return self.members[prompts]

    def complain(self) -> None:
        """A name that no run has evaluated is an error, not an empty answer."""
        for name in (*(self.names or ()), *self.slices):
            if name.partition("/")[0] not in self.seen and self.seen:
                raise StoreError(f"{self.root}: no scores of test set '{name}'; {nearest(name, self.seen)}")


def read_members(path: Path, test_set: str, prompts: str) -> Members:
    """Who belongs to a rendered set."""
    frame = _read_frame(path, "its slices cannot be read")
    columns = [c for c in frame.columns if c.startswith("slice:")]
    return Members(
        test_set=test_set,
        prompts=prompts,
        ids=tuple(frame["example"]),
        gold=tuple(map(int, frame["gold"])),
        columns={c.removeprefix("slice:"): tuple(map(str, frame[c])) for c in columns},
    )


def _read_record(folder: RunFolder, line: Mapping[str, Any]) -> pd.DataFrame:
    return _read_frame(folder.records(line["step"], line["test_set"]), "remove the run and run it again")


def _read_frame(path: Path, advice: str) -> pd.DataFrame:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        frame: pd.DataFrame = pq.read_table(path).to_pandas()
    except (OSError, pa.ArrowInvalid) as error:
        raise StoreError(f"{path}: cannot be read ({str(error).splitlines()[0]}); {advice}") from None
    return frame


def run_columns(folder: RunFolder) -> dict[str, Any]:
    """What the long table says of a run."""
    spec = read_json(folder.spec)
    return {
        "run": folder.name,
        "model": spec["model"]["label"],
        "train_set": spec["train_set"],
        "shots": spec["shots"],
        "seed": spec["seed"],
        "pattern": spec["pattern"]["name"],
        "data_seed": spec["data_seed"],
        "suite": spec["suite"],
    }


def read_records(root: str | Path, test_sets: Sequence[str] | None = None) -> pd.DataFrame:
    """Per-example records of all committed evaluations: run, step, test_set, example, one score per answer, correct.

    `test_sets` as in `read_runs`; the records of a slice are those of its set, under the slice's name.
    """
    import pandas as pd

    frames = []
    wanted = _Wanted.read(Path(root), test_sets)
    for folder in run_folders(root):
        for line in read_scores(folder):
            whole = wanted.whole(line)
            parts = [(one.name, inside) for one, inside, _ in wanted.slices_of(line)]
            if not whole and not parts:
                continue
            frame = _read_record(folder, line)
            for name, inside in [(line["test_set"], slice(None))] * whole + parts:
                frames.append(frame[inside].assign(run=folder.name, step=line["step"], test_set=name))
    if not frames:
        raise StoreError(f"{root}: no records yet; run `oodles status {root}` to see what is there")
    table: pd.DataFrame = pd.concat(frames, ignore_index=True)
    first = ["run", "step", "test_set", "example"]
    return table.loc[:, [*first, *(c for c in table.columns if c not in first)]]
