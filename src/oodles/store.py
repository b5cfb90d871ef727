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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from oodles.errors import StoreError
from oodles.metrics import metrics
from oodles.records import Draw, Predictions, PromptSet, Role, RunSpec

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
    if not file.is_file():
        if root.exists() and (not root.is_dir() or any(p.name != ".lock" for p in root.iterdir())):
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


def begin_run(folder: RunFolder, spec: RunSpec, draw: Draw, env: Mapping[str, Any]) -> None:
    """An empty run folder with its spec, draw and environment; remains of an unfinished attempt are removed."""
    with disk_errors(folder.path):
        shutil.rmtree(folder.path, ignore_errors=True)
        folder.path.mkdir(parents=True)
    write_json(folder.env, dict(env))
    ids = [e.id for e in draw.examples]
    header = {"schema": STORE_SCHEMA, "train_set": draw.train_set, "shots": draw.shots, "data_seed": draw.data_seed}
    write_json(folder.draw, {**header, "hash": draw.hash, "ids": ids})
    write_json(folder.spec, {"schema": STORE_SCHEMA, "run_id": spec.run_id, **asdict(spec)})


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


def commit(folder: RunFolder, step: int, prompts: PromptSet, predictions: Predictions, role: Role) -> dict[str, Any]:
    """Keep one step x test set: records first, then the one line that makes it count."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, Any] = {"example": list(predictions.ids)}
    for index, answer in enumerate(predictions.answers):
        columns[f"score:{answer.strip()}"] = predictions.scores[:, index].astype(np.float32)
    columns["correct"] = predictions.correct
    target = folder.records(step, prompts.name)
    aside = target.with_name(f".{target.name}.{os.getpid()}.part")
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            pq.write_table(pa.table(columns), aside)
            _sync(aside)
            aside.replace(target)
        finally:
            aside.unlink(missing_ok=True)
    line = {
        "step": step,
        "test_set": prompts.name,
        "role": role,
        "n": len(prompts),
        "limit": prompts.limit,
        "prompts": prompts.hash,
        "ties": predictions.ties,
        "metrics": {k: None if np.isnan(v) else v for k, v in metrics(predictions).items()},
    }
    _append(folder.scores, line)
    return line


def copy_score(donor: RunFolder, folder: RunFolder, line: Mapping[str, Any]) -> None:
    """Take over an evaluation that is known to be the same, e.g. the untrained model's at step 0."""
    source, target = donor.records(line["step"], line["test_set"]), folder.records(line["step"], line["test_set"])
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_name(f".{target.name}.part")
        shutil.copyfile(source, aside)
        _sync(aside)
        aside.replace(target)
    _append(folder.scores, dict(line))


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


def _sync(path: Path) -> None:
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


def read_runs(root: str | Path) -> pd.DataFrame:
    """All committed scores below a study's folder as one long table.

    Returns
    -------
    One row per run x step x test set x metric, with the columns of docs/design.md.
    """
    import pandas as pd

    rows = []
    for folder in run_folders(root):
        about = run_columns(folder)
        for line in read_scores(folder):
            where = {"step": line["step"], "test_set": line["test_set"], "role": line["role"]}
            for metric, value in line["metrics"].items():
                number = np.nan if value is None else float(value)
                rows.append({**about, **where, "metric": metric, "value": number, "n": line["n"]})
    if not rows:
        raise StoreError(f"{root}: no scores yet; run `oodles status {root}` to see what is there")
    columns = ["run", "model", "train_set", "shots", "seed", "step", "test_set", "role", "metric", "value", "n"]
    table = pd.DataFrame(rows)
    return table[[*columns, *(c for c in table.columns if c not in columns)]]


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


def read_records(root: str | Path) -> pd.DataFrame:
    """Per-example records of all committed evaluations: run, step, test_set, example, one score per answer, correct."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    frames = []
    for folder in run_folders(root):
        for line in read_scores(folder):
            path = folder.records(line["step"], line["test_set"])
            try:
                frame = pq.read_table(path).to_pandas()
            except (OSError, pa.ArrowInvalid) as error:
                raise StoreError(
                    f"{path}: cannot be read ({str(error).splitlines()[0]}); remove the run and run it again"
                ) from None
            frames.append(frame.assign(run=folder.name, step=line["step"], test_set=line["test_set"]))
    if not frames:
        raise StoreError(f"{root}: no records yet; run `oodles status {root}` to see what is there")
    table: pd.DataFrame = pd.concat(frames, ignore_index=True)
    first = ["run", "step", "test_set", "example"]
    return table.loc[:, [*first, *(c for c in table.columns if c not in first)]]
