"""run(): execute the missing runs of a study, in this process or in a pool of workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from oodles.audit.audit import stop_on_errors
from oodles.contracts import PlannedRun, Study
from oodles.disk import write_json
from oodles.errors import ConfigError, DiskError, StoreError
from oodles.model.load import model_path, require_training
from oodles.runs.events import show_on
from oodles.runs.progress import Progress, say
from oodles.runs.stopping import stop_on_signals
from oodles.runs.todo import missing_of, untrained_of
from oodles.runs.trackers import require_trackers, trackers_of
from oodles.store.claim import check_folder, claim_folder, plan_runs
from oodles.store.facts import joined_audit
from oodles.store.folder import StudyFolder
from oodles.store.members import check_members, mend_members
from oodles.store.sidecars import sidecar
from oodles.store.spec import check_identity, check_same_run
from oodles.study.check import audit_grid
from oodles.study.grid import Grid, expand, select
from oodles.study.load import load_study
from oodles.study.slurm import check_queued
from oodles.study.worker import Crew, Outcome, Policy, check_alone, decide, run_missing
from oodles.suite.slices import Members
from oodles.trouble import staying


def run(
    study: Study | str | Path,
    out: str | Path | None = None,
    *,
    only: Sequence[str] = (),
    shots: Sequence[int] = (),
    workers: int = 1,
    retry: bool = False,
    verify: bool = False,
    allow: Sequence[str] = (),
    requeue: float | None = None,
) -> Outcome:
    """Run the missing parts of a study; finished runs are skipped, and a failed run does not stop the others.

    Parameters
    ----------
    study
        A `Study` from `load_study`, a TOML file, or the name of a shipped study.
    out
        Folder of the study; the study's own `out` if not given.
    only
        Only runs or models of these names, with ``*`` and ``?``.
    shots
        Only runs of these sizes.
    workers
        Number of processes that share the runs. Each gets a share of the cores and, if there are GPUs, a GPU.
    retry
        Try failed runs again.
    verify
        Read all records and adapters of done runs; recompute damaged records, refuse damaged adapters.
    allow
        Codes of audit errors that do not stop the study, beside those the study itself allows.
    requeue
        In a job of SLURM: when it is told that it ends, put it back into the queue, after so many seconds at most.
    """
    study = study if isinstance(study, Study) else load_study(study)
    root = Path(out if out is not None else study.out)
    how = Policy(retry, verify)
    gather: Callable[[], AbstractContextManager[Crew | None]] = nullcontext
    in_tasks = False
    if study.engine != "single":
        from oodles.study import crew

        crew.check_engine(study, workers)
        seat = crew.seat_in_job(study, root)
        if seat is not None:
            in_tasks = True
            if seat.rank > 0:
                crew.follow_and_exit(select(expand(study), only, shots), root, seat)
            gather = partial(crew.leading, study, seat, root)
    if requeue is not None:
        from oodles.study.requeue import run_in_job

        def begin_job(grid: Grid) -> None:
            check_device_map(grid, root, how)
            begin(grid, root, allow, audited=StudyFolder(root).audit.is_file())

        return run_in_job(lambda: select(expand(study), only, shots), begin_job, root, how, requeue, gather)
    grid = select(expand(study), only, shots)
    check_device_map(grid, root, how, workers)
    check_queued(grid, root)
    with staying(root) if root.is_dir() else nullcontext():
        begin(grid, root, allow)
        if workers > 1:
            from oodles.study.pool import run_in_workers

            say(f"study {study.name}: starting {workers} workers")
            return run_in_workers(grid, root, workers, how)
        if study.engine != "single" and not in_tasks:
            say(f"study {study.name}: engine {study.engine}, {crew.processes_here(study)} processes for each run")
            return crew.run_together(grid, root, how)
        from oodles.study.preview import work_of

        with Progress(work_of(grid, root), study.name) as progress, stop_on_signals() as stop, gather() as hands:
            outcome = run_missing(grid, root, how, show_on(progress), stop, hands)
            if outcome.is_whole:
                progress.finish(f"study {study.name}: all runs are done")
            return outcome


def check_device_map(grid: Grid, root: Path, how: Policy, workers: int = 1) -> None:
    """Refuse to train a model that is spread over several devices, and workers that have one device each."""
    study = grid.study
    if study.device_map is None:
        return
    name = f'study {study.name}: device_map = "{study.device_map}"'
    if workers > 1:
        raise ConfigError(f"{name} gives one process all GPUs, but --workers {workers} shares them out; leave one out")
    for job in grid.jobs:
        if _trains(job, grid, root, how):
            raise ConfigError(
                f"{name} is for scoring, but run {job.spec.name} has steps to train; leave it out, and if the model"
                ' does not fit one GPU, choose engine = "fsdp2". Finished runs are scored on further test sets with it'
            )


def _trains(job: PlannedRun, grid: Grid, root: Path, how: Policy) -> bool:
    folder = StudyFolder(root).run(job.spec.name)
    if folder.status == "missing":
        return True
    try:
        if decide(job.spec, grid.rendered(job), folder, how)[0] != "run":
            return False
    except DiskError:
        raise
    except StoreError:
        return False  # the run is refused later
    return folder.status != "done" or bool(untrained_of(missing_of(job.spec, grid.rendered(job), folder), folder))


def begin(grid: Grid, root: Path, allow: Sequence[str] = (), *, here: bool = True, audited: bool = False) -> None:
    """Everything that can be wrong is found before anything is written; then the folder is this study's.

    The slow phases are announced, so that a log does not look hung. Where the runs are made elsewhere, neither torch
    nor the models are needed `here`; a job does not repeat the audit that was made when it was submitted.
    """
    check_alone()
    study = grid.study
    ids = check_place(grid, root)
    folder = StudyFolder(root)
    to_do = sum(folder.run(job.spec.name).status != "done" for job in grid.jobs)
    done = len(grid.jobs) - to_do
    runs = "1 run" if len(grid.jobs) == 1 else f"{len(grid.jobs)} runs"
    loading = "; loading torch" if here else ""
    say(f"study {study.name}: {runs}, {done} of them finished before, in {root}{loading}")
    if here:
        require_training("oodles run")
        require_trackers(trackers_of(study.report_to))
        for spec in {job.spec.model: job.spec for job in grid.jobs}.values():
            model_path(spec.model)  # a model that is not there is an error now, not after the first run
    findings: dict[str, Any] | None = None
    if not audited:
        say(f"study {study.name}: auditing the data")
        audit = audit_grid(grid, notes=False)
        allowed = (*study.allow, *allow)
        stop_on_errors(audit, allowed)
        findings = {**audit.as_dict(), "allowed": list(allowed)}
    members = members_of(grid)
    check_members(folder, members)
    with folder.locked():
        claim_folder(folder, study.name, grid.suite.name, ids, suite_file=grid.suite.file)
        check_members(folder, members)  # again, because study.json may have been rewritten
        plan_runs(folder, [job.spec.name for job in grid.jobs])
        mend_members(folder, members)
        if findings is not None:
            write_json(folder.audit, joined_audit(sidecar(folder.audit), findings))


def check_place(grid: Grid, root: Path) -> list[str]:
    """Refuse a folder of another study, or one with other runs under the same names; return the runs' ids."""
    ids = [job.spec.run_id for job in grid.jobs]
    folder = StudyFolder(root)
    check_folder(folder, grid.study.name, grid.suite.name, ids)
    check_identity(folder)
    for job in grid.jobs:
        check_same_run(folder.run(job.spec.name), job.spec)
    return ids


def members_of(grid: Grid) -> list[Members]:
    """Return the members of each test set that a study evaluates."""
    specs = {(job.spec.pattern.name, job.spec.train_set): job.spec for job in grid.jobs}.values()
    return [test_set.members for spec in specs for test_set in grid.test_sets(spec)]
