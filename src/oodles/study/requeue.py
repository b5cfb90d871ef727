"""A part of a study inside a job of SLURM: told that its time is over, it stops resumably and queues itself again.

SLURM tells a job by a signal before its time limit, and when it is preempted. The run then keeps a checkpoint at its
next safe moment, and the job is put back into the queue; the next attempt resumes, on whatever node. A job that ends by
itself while it is being preempted would count as completed, so it must ask for that. One that is cancelled must not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from oodles import scheduler
from oodles.errors import ConfigError, SchedulerError
from oodles.runs.events import print_lines
from oodles.runs.progress import say
from oodles.runs.stopping import Stop, stop_on_signals
from oodles.scheduler import JobHere
from oodles.store.folder import StudyFolder
from oodles.study.grid import Grid
from oodles.study.worker import Crew, Outcome, Policy, run_missing
from oodles.trouble import staying

LOOK = 0.5  # seconds between two looks at whether the job was told to stop
IN_VAIN = 3  # restarts after which a job that has not come on is not queued again


def run_in_job(
    open_grid: Callable[[], Grid],
    begin: Callable[[Grid], None],
    root: Path,
    how: Policy,
    patience: float,
    gather: Callable[[], AbstractContextManager[Crew | None]] = nullcontext,
) -> Outcome:
    """Make the runs of this job; stopped by SLURM, it is queued again. Signals count from the beginning on."""
    job = scheduler.job_here()
    if job is None:
        raise ConfigError("--requeue: this is no job of SLURM (SLURM_JOB_ID is not set); leave the option out")
    with stop_on_signals() as stop, staying(root) if root.is_dir() else nullcontext():
        say(f"job {job.id}, restart {job.restarts}")
        grid = open_grid()
        before = _progress(grid, root)
        requeue = _Requeue(job, lambda: _progress(grid, root) != before)
        with requeue.at_the_latest(stop, patience):
            begin(grid)
            with gather() as crew:
                outcome = run_missing(grid, root, how, print_lines, stop, crew)
        if outcome.stopped:
            requeue.once()
    return outcome


class _Requeue:
    """Puts this job back into the queue, once: at the next safe moment, or when there is no more time for one."""

    def __init__(self, job: JobHere, came_on: Callable[[], bool]) -> None:
        self._job, self._came_on = job, came_on
        self._asked = threading.Lock()

    def once(self) -> None:
        if not self._asked.acquire(blocking=False):
            return
        try:
            state = scheduler.state_of(self._job.id)
            if state != "RUNNING":  # cancelled, or already taken care of
                say(f"job {self._job.id} is {state or 'not in the queue'}: not queued again")
            elif self._job.restarts >= IN_VAIN and not self._came_on():
                say(
                    f"job {self._job.id} has not come on since its last restart, of {self._job.restarts}: not queued"
                    " again; give it more [slurm] time"
                )
            else:
                say(f"job {self._job.id} is queued again, and resumes")
                scheduler.requeue(self._job.id)
        except SchedulerError as error:
            say(f"job {self._job.id} could not be queued again: {error}")

    @contextmanager
    def at_the_latest(self, stop: Stop, patience: float) -> Iterator[None]:
        """While the work is done, look whether it was told to stop and does not come to a safe moment in time."""
        over = threading.Event()

        def look() -> None:
            told = None
            while not over.wait(LOOK):
                told = told or (time.monotonic() if stop else None)
                if told is not None and time.monotonic() - told > patience:
                    self.once()
                    return

        watch = threading.Thread(target=look, daemon=True)
        watch.start()
        try:
            yield
        finally:
            over.set()
            watch.join()


def _progress(grid: Grid, root: Path) -> list[object]:
    """What changes when a run comes on: its scores and its checkpoints."""
    found: list[object] = []
    for job in grid.jobs:
        folder = StudyFolder(root).run(job.spec.name)
        kept = sorted(path.name for path in folder.checkpoints.glob("*")) if folder.checkpoints.is_dir() else []
        found.append((folder.scores.stat().st_size if folder.scores.is_file() else 0, kept))
    return found
