"""The processes that make the runs of a study together: started here, one per GPU, or by SLURM, one task per process.

The first process works as any other: it looks for missing runs, takes their locks and writes their folders. The others
follow its orders and write nothing. A run that fails, on whichever process, ends them all, because the others may be
in the middle of a common operation; here, the remaining runs then get new processes.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NoReturn

from oodles import scheduler
from oodles.contracts import ZERO, Study
from oodles.errors import ConfigError, MissingExtraError, OodlesError, StoreError, first_line
from oodles.runs.events import ignore
from oodles.runs.progress import Progress, settle_streams
from oodles.runs.ranks import Ranks, join, part
from oodles.runs.stopping import Stop, Stopped, stop_on_signals
from oodles.runs.todo import RunTask
from oodles.store.folder import StudyFolder
from oodles.store.outcome import fail_run
from oodles.store.sidecars import sidecar
from oodles.study.grid import Grid, expand, select
from oodles.study.meeting import Leader, Member, Seat
from oodles.study.pool import Worker, cores_here, listen, sent, setting, shares, together, visible_devices
from oodles.study.worker import Crew, Outcome, Policy, agreeing, run_missing
from oodles.terminal import keep_results_apart

ENDING = 10.0  # seconds in which the others end after the first
LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")


# how many there are


def check_engine(study: Study, workers: int = 1) -> None:
    """Refuse options that contradict the engine, and an engine that is not installed."""
    if study.engine in ZERO and find_spec("deepspeed") is None:
        raise MissingExtraError(f'engine "{study.engine}"', "deepspeed")
    if study.engine != "single" and workers > 1:
        raise ConfigError(
            f'--workers {workers}: with engine "{study.engine}" all processes make one run together; leave it out'
        )


def processes_here(study: Study) -> int:
    """Return how many processes make a run on this machine: as many as the study says, or one per GPU."""
    gpus = len(visible_devices())
    there, what = (gpus, "GPUs") if gpus else (cores_here(), "cores")
    wanted = study.processes
    if wanted is None and gpus < 2:
        raise ConfigError(
            f'study {study.name}: engine "{study.engine}" needs two processes or more, but {gpus} GPUs are visible; say'
            ' how many processes share the cores (processes = 2), or set engine = "single"'
        )
    if wanted is not None and wanted > there:
        raise ConfigError(f"study {study.name}: processes is {wanted}, but this machine has {there} {what}; lower it")
    return check_share(study, wanted or gpus)


def check_share(study: Study, processes: int) -> int:
    """Refuse more processes than a batch has prompts."""
    if study.recipe.batch_size < processes:
        raise ConfigError(
            f"study {study.name}: [train] batch_size is {study.recipe.batch_size}, which {processes} processes cannot"
            " share; raise it, and lower accumulate"
        )
    return processes


def seat_in_job(study: Study, root: Path) -> Seat | None:
    """Return the place of this process if SLURM has started one task per process; None if it was started alone."""
    job, told = scheduler.job_here(), os.environ
    tasks = told.get("SLURM_STEP_NUM_TASKS", "")
    if job is None or study.engine == "single" or not tasks.isdigit() or int(tasks) < 2:
        return None
    if study.processes is not None and study.processes != int(tasks):
        raise ConfigError(
            f"study {study.name}: processes is {study.processes}, but the job has {tasks} tasks; make them equal"
        )
    name = f"meeting-{job.id}-{told.get('SLURM_STEP_ID', '0')}-{job.restarts}.json"
    seat = Seat(
        rank=int(told["SLURM_PROCID"]),
        size=check_share(study, int(tasks)),
        local=int(told.get("SLURM_LOCALID", "0")),
        meeting=StudyFolder(root.absolute()).slurm / name,
        host="127.0.0.1" if told.get("SLURM_STEP_NUM_NODES", "1") == "1" else "",
    )
    _settle(seat)
    return seat


# one of them


def _ranks(study: Study, seat: Seat) -> Ranks:
    return Ranks(engine=study.engine, rank=seat.rank, size=seat.size, settings=study.engine_config)


@contextmanager
def leading(study: Study, seat: Seat, root: Path) -> Iterator[Crew]:
    """Be the first process: gather the others, and send them home at the end."""
    from torch.distributed import TCPStore

    store = TCPStore(seat.host or "localhost", 0, seat.size, is_master=True, wait_for_workers=False)
    leader = Leader(seat, store.port)
    ranks = _ranks(study, seat)
    join(ranks, store)

    def give_up(run: str) -> Any:
        return lambda reason: fail_run(StudyFolder(root).run(run), reason)

    try:
        yield Crew(
            ranks=ranks,
            order=lambda run: leader.order(run, give_up(run)),
            settled=leader.settled,
            trouble=leader.trouble,
        )
    finally:
        leader.end()
        part()


def follow(grid: Grid, root: Path, seat: Seat, stop: Stop) -> int:
    """Be one of the others: make the runs that the first process says; return an exit code."""
    from torch.distributed import TCPStore

    from oodles.runs.runner import run_one

    member = Member(seat)
    ranks = _ranks(grid.study, seat)
    join(ranks, TCPStore(member.host, member.store_port, seat.size, is_master=False))
    jobs = {job.spec.name: job for job in grid.jobs}
    while (name := member.order()) is not None:
        task = RunTask(
            job=jobs[name],
            rendered=grid.rendered(jobs[name]),
            folder=StudyFolder(root).run(name),
            earlier=(),
            listener=ignore,
            stop=stop,
            ranks=ranks,
        )
        try:
            run_one(replace(task, listener=agreeing(task)))
        except Stopped:
            break
        except Exception as error:
            kind = "" if isinstance(error, OodlesError) else f"{type(error).__name__}: "
            member.report(f"{kind}{first_line(error)}")
            return 1
    part()
    return 0


def follow_and_exit(grid: Grid, root: Path, seat: Seat) -> NoReturn:
    """Be one of the others, as a task of SLURM; the first task tells the outcome."""
    with stop_on_signals() as stop:
        code = follow(grid, root, seat, stop)
    settle_streams()
    os._exit(code)  # threads of a broken process group would keep the process


def _settle(seat: Seat) -> None:
    """Let a task have its GPU to itself, and no library look for other processes on its own."""
    devices = visible_devices()
    if len(devices) > 1:
        os.environ["CUDA_VISIBLE_DEVICES"] = devices[seat.local % len(devices)]
    for name in LAUNCHED:
        os.environ.pop(name, None)


# here


def run_together(grid: Grid, root: Path, how: Policy) -> Outcome:
    """Execute the missing runs with several processes for each."""
    from oodles.study.preview import work_of

    size = processes_here(grid.study)
    outcomes: list[Outcome] = []
    left = [job.spec.name for job in grid.jobs]
    with Progress(work_of(grid, root), grid.study.name) as progress, stop_on_signals() as stop:
        while left and not stop:
            outcomes.append(_one_crew(grid.study, left, root, how, size, progress, stop))
            seen = _names(outcomes[-1])
            left = [name for name in left if name not in seen]
            if outcomes[-1].stopped or not seen:
                break
        outcome = together(outcomes, root, stop.number or max((o.stopped for o in outcomes), default=0))
        if outcome.is_whole and not left:
            progress.finish(f"study {grid.study.name}: all runs are done")
    return outcome


def _names(outcome: Outcome) -> set[str]:
    """Return the runs of which something became."""
    pairs = (*outcome.failed, *outcome.failed_before, *outcome.held, *outcome.refused)
    return {*outcome.done, *outcome.skipped, *(name for name, _ in pairs)}


def _one_crew(
    study: Study, names: Sequence[str], root: Path, how: Policy, size: int, progress: Progress, stop: Stop
) -> Outcome:
    """Start the processes, and listen to the first one until it ends; then the others must end, too."""
    context = multiprocessing.get_context("spawn")
    before = {name: StudyFolder(root).run(name).status for name in names}
    receiver, sender = context.Pipe(duplex=False)
    crew: list[BaseProcess] = []
    with tempfile.TemporaryDirectory() as scratch:
        meeting = Path(scratch) / f"{secrets.token_hex(4)}.json"
        for rank, share in enumerate(shares(size, cores_here(), visible_devices())):
            seat = Seat(rank=rank, size=size, local=rank, meeting=meeting)
            with setting(share.environment):
                process = context.Process(target=_work, args=(study, names, root, how, seat, None if rank else sender))
                process.start()
            crew.append(process)
        sender.close()
        first = Worker(crew[0], receiver)
        try:
            listen([first], progress, stop)
        finally:
            receiver.close()
            _end(crew)
    if first.outcome is not None:
        return first.outcome
    return _what_is_there(root, names, before, crew)


def _end(crew: Sequence[BaseProcess]) -> None:
    """Wait for the processes; those that outlive the first are ended."""
    if crew[0].is_alive():
        crew[0].join(ENDING)
    for process in crew:
        process.join(ENDING)
        if process.is_alive():
            process.kill()
            process.join()


def _what_is_there(root: Path, names: Sequence[str], before: Mapping[str, str], crew: Sequence[BaseProcess]) -> Outcome:
    """Tell from the folders what became of the runs when the first process ended without a word."""
    folders = [StudyFolder(root).run(name) for name in names]
    changed = [folder for folder in folders if folder.status != before[folder.name]]
    failed = [(f.name, str((sidecar(f.failed) or {}).get("reason"))) for f in changed if f.status == "failed"]
    if failed:
        return Outcome(out=root, done=tuple(f.name for f in changed if f.status == "done"), failed=tuple(failed))
    code = crew[0].exitcode or 0
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    raise StoreError(f"{root}: process 1 of {len(crew)} {how}; committed scores are safe. Run the same command again")


def _work(study: Study, names: Sequence[str], root: Path, how: Policy, seat: Seat, pipe: Connection | None) -> None:
    """Be one of the processes that are started here."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one handles it
    keep_results_apart()
    code = 0
    try:
        with stop_on_signals() as stop:
            grid = select(expand(study), names)
            if pipe is None:
                code = follow(grid, root, seat, stop)
            else:
                _lead(grid, root, how, seat, stop, pipe)
    except OodlesError as error:
        code = 2
        if pipe is not None:
            sent(pipe, error)
    finally:
        if pipe is not None:
            pipe.close()
        settle_streams()
    os._exit(code)  # threads of a broken process group would keep the process


def _lead(grid: Grid, root: Path, how: Policy, seat: Seat, stop: Stop, pipe: Connection) -> None:
    def tell(heard: Any) -> None:
        if not sent(pipe, heard):
            stop.number = stop.number or signal.SIGHUP  # the process that started this one is gone

    with leading(grid.study, seat, root) as crew:
        outcome = run_missing(grid, root, how, tell, stop, crew)
    sent(pipe, outcome)
