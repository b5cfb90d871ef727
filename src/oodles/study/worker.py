"""Execute the missing runs of a study, while other processes may work on the same folder.

Results are looked up again for each run, step and test set. A run is written only by the process that holds its lock.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from oodles.contracts import RunSpec
from oodles.display import Listed
from oodles.errors import ConfigError, DiskError, OodlesError, StoreError
from oodles.model.load import free_memory
from oodles.runs.events import Event, Listener
from oodles.runs.ranks import ALONE, Ranks
from oodles.runs.stopping import Stop, Stopped
from oodles.runs.todo import Base, RunTask, missing_of
from oodles.runs.trackers import trackers_of
from oodles.store.damage import is_damaged, mend_scores
from oodles.store.folder import RunFolder, StudyFolder, log_line
from oodles.store.locks import release, take
from oodles.store.outcome import fail_run
from oodles.store.sidecars import sidecar
from oodles.store.spec import check_spec, keep_draw
from oodles.study.grid import Grid
from oodles.suite.render import Rendered
from oodles.trouble import disk_trouble, staying

Choice = Literal["skip", "failed before", "run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Listed):
    """The outcome of a study's runs."""

    out: Path
    done: tuple[str, ...] = ()  # finished by this call
    skipped: tuple[str, ...] = ()  # finished earlier
    failed: tuple[tuple[str, str], ...] = ()  # name and reason
    failed_before: tuple[tuple[str, str], ...] = ()  # failed earlier, not tried again
    held: tuple[tuple[str, str], ...] = ()  # name and holder of the lock
    refused: tuple[tuple[str, str], ...] = ()  # name, and what must be repaired or removed first
    stopped: int = 0  # the signal that stopped the study, if any

    @property
    def is_whole(self) -> bool:
        """Whether every run is done."""
        return not (self.failed or self.failed_before or self.held or self.refused or self.stopped)

    def told(self) -> tuple[str, Mapping[str, str]]:
        """What `print` and Jupyter show."""
        counts = {"done": len(self.done), "done before": len(self.skipped)}
        listed = {
            "failed": self.failed,
            "failed before": self.failed_before,
            "held": self.held,
            "refused": self.refused,
        }
        return f"runs in {self.out}: {'all done' if self.is_whole else 'not all done'}", {
            **{name: str(number) for name, number in counts.items() if number},
            **{name: "; ".join(f"{run}: {why}" for run, why in pairs) for name, pairs in listed.items()},
            "stopped": f"by signal {self.stopped}" if self.stopped else "",
        }


@dataclass(frozen=True, slots=True)
class Policy:
    """How to treat finished and failed runs."""

    retry: bool = False  # retry failed runs
    verify: bool = False  # read all records and adapters of done runs, and recompute damaged records


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """The processes that make each run together, as the first of them sees the others."""

    ranks: Ranks
    order: Callable[[str], None]  # let them make a run
    settled: Callable[[], None]  # the run has ended
    trouble: Callable[[], str | None]  # what one of them reported before it ended, or that it is gone


@dataclass(slots=True)
class _Tally:
    """An outcome while it is collected."""

    done: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    failed_before: list[tuple[str, str]] = field(default_factory=list)
    held: list[tuple[str, str]] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)

    def outcome(self, out: Path, stopped: int = 0) -> Outcome:
        return Outcome(
            out=out,
            done=tuple(self.done),
            skipped=tuple(self.skipped),
            failed=tuple(self.failed),
            failed_before=tuple(self.failed_before),
            held=tuple(self.held),
            refused=tuple(self.refused),
            stopped=stopped,
        )


def check_alone() -> None:
    """Refuse a launcher that starts several processes: a run is trained by one process."""
    size = os.environ.get("WORLD_SIZE", "").strip()
    if size and not size.isdigit():
        raise ConfigError(f"oodles run: WORLD_SIZE is '{size}', expected a number; unset it")
    if size and int(size) > 1:
        raise ConfigError(
            f"oodles run: WORLD_SIZE is {size}: a launcher (torchrun, accelerate launch) has started it {size} times,"
            " but a run is trained by one process; start it once, without the launcher; --workers N uses N GPUs"
        )


def run_missing(grid: Grid, root: Path, how: Policy, listen: Listener, stop: Stop, crew: Crew | None = None) -> Outcome:
    """Execute the runs whose lock this process can take.

    A run that fails, or whose folder is damaged beyond repair by the study, does not stop the others. A disk that
    cannot be written to does. A crew makes no further run after one that failed.
    """
    tally = _Tally()
    folders = [StudyFolder(root).run(job.spec.name) for job in grid.jobs]
    trackers, base = trackers_of(grid.study.report_to), Base()
    try:
        with staying(root):
            for job, folder in zip(grid.jobs, folders, strict=True):
                stop.obey()
                rendered = grid.rendered(job)
                task = RunTask(
                    job=job,
                    rendered=rendered,
                    folder=folder,
                    earlier=folders,
                    listener=listen,
                    stop=stop,
                    study=grid.study.name,
                    trackers=trackers,
                    base=base,
                    ranks=ALONE if crew is None else crew.ranks,
                    spread=grid.study.device_map is not None,
                )
                try:
                    _make(task, how, tally, crew)
                except DiskError:
                    raise
                except StoreError as error:
                    tally.refused.append((folder.name, str(error)))
                if crew is not None and (tally.failed or tally.refused):
                    break
    except Stopped as stopped:
        return tally.outcome(root, stopped.number)
    return tally.outcome(root)


def _make(task: RunTask, how: Policy, tally: _Tally, crew: Crew | None = None) -> None:
    """Execute one run unless it is settled or another process holds its lock."""
    folder = task.folder
    if _settled(task, how, tally):
        return
    holder = take(folder.lock)
    if holder is not None:
        tally.held.append((folder.name, str(holder)))
        return
    try:
        if _settled(task, how, tally):  # another process finished it in the meantime
            return
        reason = _try(task, how.verify, crew)
    finally:
        release(folder.lock)
    free_memory()  # before the next model is loaded; here, no traceback references this one
    if reason is None:
        tally.done.append(folder.name)
    else:
        tally.failed.append((folder.name, reason))
        task.listener(Event(text=f"{folder.name} failed: {reason}; see {folder.log}"))


def _settled(task: RunTask, how: Policy, tally: _Tally) -> bool:
    """Whether a run needs no action; if so, count it."""
    folder = task.folder
    choice, reason = decide(task.spec, task.rendered, folder, how)
    if choice == "skip":
        keep_draw(folder, task.job.draw)
        tally.skipped.append(folder.name)
    elif choice == "failed before":
        tally.failed_before.append((folder.name, reason))
    return choice != "run"


def decide(spec: RunSpec, rendered: Sequence[Rendered], folder: RunFolder, how: Policy) -> tuple[Choice, str]:
    """Return the action for a run, and why it failed before; a folder that must be repaired raises StoreError."""
    status = folder.status
    check_spec(folder)
    if status == "done" and not missing_of(spec, rendered, folder) and not (how.verify and is_damaged(folder)):
        return "skip", ""
    failure = sidecar(folder.failed) if status == "failed" and not how.retry else None
    if failure:  # a damaged file has no reason: the run is tried again
        return "failed before", str(failure.get("reason"))
    return "run", ""


def agreeing(task: RunTask) -> Listener:
    """Return a listener that stops the run if that was requested: of all its processes at the same event.

    Only the first process has events with a text.
    """

    def heard(what: Event) -> None:
        task.listener(what)
        if not task.ranks.alone:
            if what.text:
                return
            agreed = task.ranks.largest(task.stop.number)
            if not agreed:
                return  # a signal that came while the processes agreed is for the next event: it must not be lost
            task.stop.number = agreed
        task.stop.obey()

    return heard


def _try(task: RunTask, verify: bool, crew: Crew | None = None) -> str | None:
    """Execute one run; return the reason if it failed."""
    from oodles.runs.runner import run_one

    folder = task.folder
    try:
        for lost in mend_scores(folder, missing=verify):
            log_line(folder, lost)
        if crew is not None:
            crew.order(folder.name)
        run_one(replace(task, listener=agreeing(task)))
    except Stopped as stopped:
        log_line(folder, str(stopped))
        raise
    except StoreError:
        raise  # an error of the disk or the folder, not of the run
    except Exception as error:
        trouble = disk_trouble(error, folder.path)
        if trouble is not None:
            raise trouble from None
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        if not isinstance(error, OodlesError):
            reason = f"{type(error).__name__}: {reason}"
            reason = (crew.trouble() if crew is not None else None) or reason  # why the others have left
        reason = fail_run(folder, reason)
        log_line(folder, traceback.format_exc())
        return reason
    finally:
        if crew is not None:
            crew.settled()
    return None
