"""The folders of a study and of its runs: all paths and locks.

    <out>/study.json                     the study that this folder holds: `StudyFolder`
    <out>/runs/<run>/spec.json ...       see docs/design.md, "Run folder": `RunFolder`

Other modules of this package write and read the files: `claim` (study.json), `spec`, `scores`, `records`, `members`.
Every file is written aside and renamed, or appended to by one line, so a kill leaves no half-written result.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from oodles.errors import StoreError, masked
from oodles.store.locks import held_briefly
from oodles.trouble import disk_errors

STORE_SCHEMA = 1
STUDY_FILE, AUDIT_FILE = "study.json", "audit.json"
SETS, RUNS, LOCKS, SLURM = "sets", "runs", "locks", "slurm"  # folders of a study
SPEC_FILE, ENV_FILE, DRAW_FILE, DONE_FILE, FAILED_FILE = (
    "spec.json",
    "env.json",
    "draw.json",
    "done.json",
    "failed.json",
)
SCORES_FILE = "scores.jsonl"
RECORDS = "records"  # subfolder of a run
Status = Literal["done", "failed", "started", "missing"]


@dataclass(frozen=True, slots=True)
class StudyFolder:
    """The paths in a study's folder, and the lock of its shared files."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def file(self) -> Path:
        """The file that names the study and the data its runs share."""
        return self.path / STUDY_FILE

    @property
    def is_study(self) -> bool:
        return self.file.is_file()

    @property
    def audit(self) -> Path:
        return self.path / AUDIT_FILE

    @property
    def sets(self) -> Path:
        return self.path / SETS

    def members(self, test_set: str, prompts: str) -> Path:
        """Return the path of a rendered set's members; `prompts` is the hash of its prompts."""
        return self.sets / f"{test_set}-{prompts}.parquet"

    @property
    def runs(self) -> Path:
        return self.path / RUNS

    def run(self, name: str) -> RunFolder:
        return RunFolder(self.runs / name)

    @property
    def run_names(self) -> list[str]:
        """Return the names in `runs`, sorted as text because there may be thousands."""
        if not self.runs.is_dir():
            return []
        with os.scandir(self.runs) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())

    @property
    def locks(self) -> Path:
        return self.path / LOCKS

    def lock_of(self, run: str) -> Path:
        """Return the path of a run's lock; it is outside the run's folder, so that the folder can be removed."""
        return self.locks / f"{run}.json"

    @property
    def run_locks(self) -> list[Path]:
        return list(self.locks.glob("*.json"))

    @property
    def slurm(self) -> Path:
        """What was submitted to SLURM: scripts, studies as they were, logs, and who has which run."""
        return self.path / SLURM

    @property
    def ledger(self) -> Path:
        return self.slurm / "jobs.jsonl"

    def locked(self) -> AbstractContextManager[None]:
        """Hold the lock of study.json and the sets, which every process holds only briefly."""
        return held_briefly(self.path / ".study.lock")

    @property
    def is_strange(self) -> bool:
        """Whether there is anything but locks, logs of SLURM and unfinished files."""
        ours = (".lock", ".part", LOCKS, SLURM)  # a script that is submitted by hand needs a place for its log
        there = self.path.exists()
        return there and (not self.path.is_dir() or any(not p.name.endswith(ours) for p in self.path.iterdir()))


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The paths in a run's folder."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def study(self) -> StudyFolder:
        return StudyFolder(self.path.parent.parent)

    @property
    def lock(self) -> Path:
        return self.study.lock_of(self.name)

    @property
    def spec(self) -> Path:
        return self.path / SPEC_FILE

    @property
    def env(self) -> Path:
        return self.path / ENV_FILE

    @property
    def draw(self) -> Path:
        return self.path / DRAW_FILE

    @property
    def scores(self) -> Path:
        return self.path / SCORES_FILE

    @property
    def superseded(self) -> Path:
        """Lines that counted until a repeated training differed."""
        return self.path / "superseded.jsonl"

    def records(self, step: int, test_set: str) -> Path:
        return self.path / RECORDS / str(step) / f"{test_set}.parquet"

    def adapter(self, step: int) -> Path:
        return self.path / "adapters" / str(step)

    @property
    def adapters(self) -> list[Path]:
        """The kept adapters."""
        return [path for path in sorted((self.path / "adapters").glob("[0-9]*")) if path.name.isdigit()]

    @property
    def checkpoints(self) -> Path:
        """The training states of an unfinished run."""
        return self.path / "checkpoints"

    @property
    def log(self) -> Path:
        return self.path / "log.txt"

    @property
    def done(self) -> Path:
        return self.path / DONE_FILE

    @property
    def failed(self) -> Path:
        return self.path / FAILED_FILE

    @property
    def has_results(self) -> bool:
        """Whether the run has scores or is finished."""
        return self.done.is_file() or self.scores.is_file()

    @property
    def status(self) -> Status:
        if self.done.is_file():
            return "done"
        if self.failed.is_file():
            return "failed"
        return "started" if self.spec.is_file() else "missing"


def study_folder(root: str | Path) -> StudyFolder:
    """Return an existing study folder."""
    study = StudyFolder(Path(root))
    if study.path.suffix == ".zip" and study.path.is_file():
        raise StoreError(
            f"{root}: a file, perhaps a packed study; expected the folder of a study: `unzip {root} -d FOLDER` makes"
            " one, and `oodles analyse` and `oodles report` read the file itself"
        )
    if not study.is_study:
        raise StoreError(f"{root}: no {STUDY_FILE}; expected a folder that `oodles run` wrote")
    return study


def run_folders(root: str | Path) -> list[RunFolder]:
    """Return the run folders of a study, sorted by name."""
    study = study_folder(root)
    return [folder for folder in map(study.run, study.run_names) if folder.spec.is_file()]


def log_line(folder: RunFolder, text: str) -> None:
    with disk_errors(folder.log), folder.log.open("a", encoding="utf-8") as handle:
        handle.write(masked(text) + "\n")
