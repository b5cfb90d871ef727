"""A study on a cluster: its missing runs as job arrays of SLURM, through submitit. Needs no torch.

    oodles run paper --where slurm --dry-run          the scripts, and what would be submitted
    oodles run paper --where slurm                    submits what is missing and not queued
    oodles status runs/paper                          queued, running, requeued, failed
    oodles cancel runs/paper

Each job is the command `oodles run STUDY --only RUN`, which finds its work as any other process does. Runs whose jobs
ask for the same share an array; the runs of a model may share a job.
"""

from __future__ import annotations

import functools
import shlex
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from oodles import scheduler
from oodles.contracts import PlannedRun, Slurm, SlurmJob, Study, content_hash
from oodles.disk import write_text
from oodles.errors import ConfigError, DiskError, MissingExtraError, SchedulerError, StoreError, nearest
from oodles.store.folder import StudyFolder
from oodles.store.ledger import JobOfRun, all_jobs, jobs_of, note_array, note_plan, read_ledger
from oodles.store.locks import holding, is_held, read_lock
from oodles.study.grid import Grid
from oodles.study.resolved import study_text
from oodles.study.worker import Policy, decide

MARGIN = 30  # seconds that requeueing is given before a job's end
LARGEST_ARRAY = 1000  # where the cluster does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class JobArray:
    """Jobs that ask for the same; each makes its share of the runs, one after the other."""

    asks: SlurmJob
    shares: tuple[tuple[str, ...], ...]

    @property
    def runs(self) -> int:
        return sum(map(len, self.shares))


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What becomes of the runs of a study."""

    submit: tuple[PlannedRun, ...] = ()
    done: tuple[str, ...] = ()
    queued: tuple[tuple[str, str], ...] = ()  # name and job
    held: tuple[tuple[str, str], ...] = ()  # name, and who holds its lock
    failed_before: tuple[tuple[str, str], ...] = ()  # name and reason; not tried again
    refused: tuple[tuple[str, str], ...] = ()  # name, and what must be mended first


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What was submitted."""

    out: Path
    arrays: tuple[tuple[str, JobArray], ...]  # with their ids
    choice: Choice


# what is to be submitted


def choose(grid: Grid, root: Path, how: Policy) -> Choice:
    """Which runs are missing and not queued; asks SLURM once, and only if something was submitted before."""
    study = StudyFolder(root)
    arrays = read_ledger(study)
    jobs = jobs_of(arrays, scheduler.queue() if arrays else {})
    at_work = {path.stem: str(read_lock(path)) for path in study.run_locks if is_held(path)}
    found: dict[str, list[Any]] = {field.name: [] for field in fields(Choice)}
    for job in grid.jobs:
        name = job.spec.name
        has = jobs.get(name)
        if has is not None and has.queued is not None and not study.run(name).done.is_file():
            other = other_recipe(has, job.spec.run_id, name, root)
            found["refused" if other else "queued"].append((name, other or has.id))
        elif name in at_work:
            found["held"].append((name, at_work[name]))
        else:
            _sort(job, grid, study, how, found)
    return Choice(**{name: tuple(values) for name, values in found.items()})


def other_recipe(has: JobOfRun, run_id: str, name: str, root: Path) -> str:
    """Say that the job of a run was submitted with another recipe than the study has now; empty if it was not."""
    if has.run_id in ("", run_id):
        return ""
    return (
        f"job {has.id} was submitted with another model, data or recipe (run {has.run_id}; now it is {run_id}). Cancel"
        f" it by `oodles cancel {root} --only {name}` and submit again, or restore the study"
    )


def check_queued(grid: Grid, root: Path) -> None:
    """Refuse to make runs here whose jobs wait with another recipe; where SLURM says nothing, nothing is known."""
    arrays = read_ledger(StudyFolder(root))
    try:
        jobs = jobs_of(arrays, scheduler.queue()) if arrays else {}
    except SchedulerError:
        return
    for job in grid.jobs:
        has = jobs.get(job.spec.name)
        if has is not None and has.queued is not None:
            other = other_recipe(has, job.spec.run_id, job.spec.name, root)
            if other:
                raise StoreError(f"run {job.spec.name}: {other}")


def _sort(job: PlannedRun, grid: Grid, study: StudyFolder, how: Policy, found: Mapping[str, list[Any]]) -> None:
    """A run that no job has, by what its folder says."""
    folder = study.run(job.spec.name)
    try:
        if folder.status == "missing":  # the test sets need not be rendered
            choice, reason = "run", ""
        else:
            choice, reason = decide(job.spec, grid.rendered(job), folder, how)
    except DiskError:
        raise
    except StoreError as error:
        found["refused"].append((folder.name, str(error)))
        return
    if choice == "run":
        found["submit"].append(job)
    elif choice == "skip":
        found["done"].append(folder.name)
    else:
        found["failed_before"].append((folder.name, reason))


def plan_arrays(jobs: Iterable[PlannedRun], slurm: Slurm, largest: int = LARGEST_ARRAY) -> tuple[JobArray, ...]:
    """The runs as arrays of jobs: those that ask for the same together, the runs of a model in shares."""
    asked: dict[str, SlurmJob] = {}
    by_model: dict[str, list[str]] = {}
    for job in jobs:
        label = job.spec.model.label
        if label not in asked:
            asked[label] = _asks(slurm, label)
        by_model.setdefault(label, []).append(job.spec.name)
    shares: dict[str, list[tuple[str, ...]]] = {}
    kinds: dict[str, SlurmJob] = {}
    for label, names in by_model.items():
        kind = repr(asked[label])
        kinds[kind] = asked[label]
        size = asked[label].runs_per_job or 1
        shares.setdefault(kind, []).extend(tuple(names[i : i + size]) for i in range(0, len(names), size))
    return tuple(
        JobArray(asks=kinds[kind], shares=tuple(found[first : first + largest]))
        for kind, found in shares.items()
        for first in range(0, len(found), largest)
    )


def _asks(slurm: Slurm, label: str) -> SlurmJob:
    """What the jobs of a model ask for: [slurm], then every [slurm.models.X] that matches, in the file's order."""
    given: dict[str, Any] = {}
    for table in (slurm, *(job for pattern, job in slurm.models.items() if fnmatch(label, pattern))):
        given |= {f.name: getattr(table, f.name) for f in fields(SlurmJob) if getattr(table, f.name) is not None}
    return SlurmJob(**given)


def check_models(grid: Grid, slurm: Slurm) -> None:
    """A table of [slurm.models] that no model of the study has is a slip."""
    labels = sorted({job.spec.model.label for job in grid.jobs})
    for pattern in slurm.models:
        if not any(fnmatch(label, pattern) for label in labels):
            raise ConfigError(f"[slurm.models]: '{pattern}' matches no model of the study; {nearest(pattern, labels)}")


# the script


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a study is run from, and how it is called there."""

    study: str  # its TOML
    root: Path
    name: str
    options: tuple[str, ...] = ()  # of `oodles run`, beside these


def tasks_of(study: Study, asks: SlurmJob) -> int:
    """How many tasks a job has: one per process of the study's engine, which has a GPU each."""
    if study.engine == "single":
        return 1
    processes = study.processes or asks.gpus or 0
    if processes < 2:
        raise ConfigError(
            f'study {study.name}: engine "{study.engine}" needs two processes or more; say [slurm] gpus = 2, or'
            " processes = 2 where there are none"
        )
    if asks.gpus and asks.gpus != processes:
        raise ConfigError(
            f"study {study.name}: processes is {processes}, but [slurm] gpus is {asks.gpus}; each process has one GPU"
        )
    if asks.cpus is not None and asks.cpus < processes:
        raise ConfigError(f"[slurm]: cpus is {asks.cpus}, expected at least one for each of {processes} processes")
    return processes


def script_of(array: JobArray, place: Place, slurm: Slurm, key: str = "", tasks: int = 1) -> str:
    """The script of an array, as sbatch takes it; anybody may submit it by hand."""
    make = _submitit()
    cpus = array.asks.cpus // tasks if array.asks.cpus else None
    asks, folder = array.asks, StudyFolder(place.root.absolute()).slurm
    shares = [f"  {shlex.quote(' '.join(f'--only {name}' for name in share))}" for share in array.shares]
    threads = [f"export OMP_NUM_THREADS={cpus}"] if cpus else []
    given = {
        "job_name": f"oodles-{place.name}",
        "partition": asks.partition,
        "account": asks.account,
        "qos": asks.qos,
        "time": asks.time,
        "gpus_per_node": asks.gpus or None,
        "cpus_per_task": cpus,
        "mem": asks.memory,
        "constraint": asks.constraint,
        "ntasks_per_node": tasks,
        "comment": key or None,
        "wckey": None,
        "setup": [*(asks.setup or ()), *threads, "runs=(", *shares, ")"],
        "signal_delay_s": slurm.warning,
        "array_parallelism": slurm.width,
        "stderr_to_stdout": True,
        "map_count": len(array.shares),
        "srun_args": ["--kill-on-bad-exit=1"] if tasks > 1 else None,
        "additional_parameters": {"requeue": True, **(asks.options or {})},
    }
    return str(make(command=_command(array.asks, place, slurm), folder=folder, **given))


def options_of(how: Policy) -> tuple[str, ...]:
    """A policy as it is said on the command line."""
    return ("--retry-failed",) * how.retry + ("--verify",) * how.verify


def _command(asks: SlurmJob, place: Place, slurm: Slurm) -> str:
    """What a job runs: the command that a user types, for the runs of its share."""
    python = asks.python or shlex.quote(sys.executable)
    words = [place.study, "--out", str(place.root.absolute()), "--requeue", str(slurm.warning - MARGIN)]
    return f"{python} -m oodles run {shlex.join([*words, *place.options])} ${{runs[$SLURM_ARRAY_TASK_ID]}}"


@functools.cache
def _submitit() -> Any:
    """What writes the script of an array: the part of submitit that knows sbatch."""
    try:
        from submitit.slurm.slurm import _make_sbatch_string
    except ImportError:
        raise MissingExtraError("oodles run --where slurm", "slurm") from None
    return _make_sbatch_string


# submitting


def submit(grid: Grid, root: Path, how: Policy) -> Submission:
    """Submit what is missing and not queued, one array after the other; the ledger says what was submitted."""
    slurm, study = grid.study.slurm, StudyFolder(root)
    check_models(grid, slurm)
    _submitit()
    study.slurm.mkdir(parents=True, exist_ok=True)
    with holding(study.slurm / "submitting.lock"):
        choice = choose(grid, root, how)
        if not choice.submit:
            return Submission(out=root, arrays=(), choice=choice)
        text = study_text(grid)
        copy = study.slurm / f"study-{content_hash(text)}.toml"
        write_text(copy, text)
        place = Place(study=str(copy.absolute()), root=root, name=grid.study.name, options=options_of(how))
        arrays = plan_arrays(choice.submit, slurm, _largest_array())
        tasks = [tasks_of(grid.study, array.asks) for array in arrays]  # all are checked before any is submitted
        known = {job.spec.name: job.spec.run_id for job in choice.submit}
        ids = [_submit_one(array, place, slurm, known, n) for array, n in zip(arrays, tasks, strict=True)]
    return Submission(out=root, arrays=tuple(zip(ids, arrays, strict=True)), choice=choice)


def _submit_one(array: JobArray, place: Place, slurm: Slurm, known: Mapping[str, str], tasks: int) -> str:
    key, study = f"oodles-{uuid.uuid4().hex}", StudyFolder(place.root)
    script = script_of(array, place, slurm, key, tasks)
    note_plan(study, key, array.shares, {run: known[run] for share in array.shares for run in share})
    number = scheduler.submit(script)
    note_array(study, key, number)
    write_text(study.slurm / f"{number}_submission.sh", script)
    return number


def _largest_array() -> int:
    told = scheduler.settings().get("MaxArraySize", "")
    return max(1, int(told) - 1) if told.isdigit() else LARGEST_ARRAY


def cancel(root: Path, only: Sequence[str] = ()) -> dict[str, list[str]]:
    """Cancel the jobs of a study that wait or run; the cancelled jobs, with the runs of each."""
    arrays = read_ledger(StudyFolder(root))
    found: dict[str, list[str]] = {}
    for run, job in all_jobs(arrays, scheduler.queue()) if arrays else ():
        if job.queued is not None:
            found.setdefault(job.id, []).append(run)
    if only:
        found = {job: runs for job, runs in found.items() if any(fnmatch(run, p) for run in runs for p in only)}
    scheduler.cancel(found if only else {job.partition("_")[0]: None for job in found})
    return found
