"""Go through the runs of a study and make what is missing; others may work on the same folder.

What is there is found anew for each run, step and test set; a run is written by whoever holds its lock.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from oodles.errors import OodlesError, StoreError, masked
from oodles.grid import Grid, Job, schedule_of
from oodles.locks import release, take
from oodles.stopping import Stop, Stopped
from oodles.store import RunFolder, is_damaged, log_line, mend_scores, read_json, read_scores, write_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a study's runs."""

    out: Path
    done: tuple[str, ...] = ()  # finished now
    skipped: tuple[str, ...] = ()  # finished before
    failed: tuple[tuple[str, str], ...] = ()  # name and reason
    failed_before: tuple[tuple[str, str], ...] = ()  # not tried again
    held: tuple[tuple[str, str], ...] = ()  # name, and who is at it
    stopped: int = 0  # the signal that ended it before its time


@dataclass(frozen=True, slots=True)
class How:
    """What is done about runs that are settled."""

    retry: bool = False  # try failed ones again
    verify: bool = False  # read all records of done ones, and make damaged ones anew


@dataclass(slots=True)
class _Tally:
    """An outcome in the making."""

    done: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    failed_before: list[tuple[str, str]] = field(default_factory=list)
    held: list[tuple[str, str]] = field(default_factory=list)

    def outcome(self, out: Path, stopped: int = 0) -> Outcome:
        return Outcome(
            out=out,
            done=tuple(self.done),
            skipped=tuple(self.skipped),
            failed=tuple(self.failed),
            failed_before=tuple(self.failed_before),
            held=tuple(self.held),
            stopped=stopped,
        )


def run_missing(grid: Grid, root: Path, how: How, listen: Callable[..., None], stop: Stop) -> Outcome:
    """Go through the runs; each is made by whoever holds its lock."""
    from oodles.callback import Heard

    tally = _Tally()
    folders = [RunFolder(root / "runs" / job.spec.name) for job in grid.jobs]
    try:
        for job, folder in zip(grid.jobs, folders, strict=True):
            stop.obey()
            if _settled(job, grid, folder, how, tally):
                continue
            holder = take(folder.lock)
            if holder is not None:
                tally.held.append((folder.name, str(holder)))
                continue
            try:
                if _settled(job, grid, folder, how, tally):  # somebody finished it in the meantime
                    continue
                reason = _try(job, grid, folder, listen, folders, stop)
            finally:
                release(folder.lock)
            if reason is None:
                tally.done.append(folder.name)
            else:
                tally.failed.append((folder.name, reason))
                listen(Heard(text=f"{folder.name} failed: {reason}; see {folder.log}"))
    except Stopped as told:
        return tally.outcome(root, told.number)
    return tally.outcome(root)


def _settled(job: Job, grid: Grid, folder: RunFolder, how: How, tally: _Tally) -> bool:
    """Whether there is nothing to do for a run; if so, it is counted."""
    status = folder.status
    if status == "done" and not lacking(job, grid, folder) and not (how.verify and is_damaged(folder)):
        tally.skipped.append(folder.name)
        return True
    if status == "failed" and not how.retry:
        tally.failed_before.append((folder.name, str(read_json(folder.failed).get("reason"))))
        return True
    return False


def lacking(job: Job, grid: Grid, folder: RunFolder) -> set[tuple[int, str]]:
    """What of a run's evaluations is not committed: step and test set."""
    from oodles.callback import rendered_hashes

    wanted = rendered_hashes(grid.suite, job.spec, job.draw.examples)
    held = {(line["step"], line["test_set"], line["prompts"]) for line in read_scores(folder)}
    return {
        (step, name)
        for step in schedule_of(job.spec)
        for name, prompts in wanted.items()
        if (step, name, prompts) not in held
    }


def _try(
    job: Job, grid: Grid, folder: RunFolder, listen: Callable[..., None], folders: list[RunFolder], stop: Stop
) -> str | None:
    """Run one job; the reason if it failed."""
    from oodles.callback import Heard
    from oodles.runner import run_one

    def heard(what: Heard) -> None:
        listen(what)
        stop.obey()

    try:
        for lost in mend_scores(folder):
            log_line(folder, lost)
        run_one(job, grid.suite, folder, heard, folders, stop)
    except Stopped as told:
        log_line(folder, str(told))
        raise
    except StoreError:
        raise  # no other run could be kept either
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        if not isinstance(error, OodlesError):
            reason = f"{type(error).__name__}: {reason}"
        reason = masked(reason)
        write_json(folder.failed, {"reason": reason, "log": folder.log.name})
        log_line(folder, traceback.format_exc())
        return reason
    return None


def work_of(grid: Grid, root: Path) -> float:
    """Work of the runs that are not done, for the time left. Step 0 counts once per model: later runs take it over."""
    from oodles.callback import characters, render_sets
    from oodles.runner import training_work

    work, seen = 0.0, set()
    sizes: dict[tuple[str, str], float] = {}
    for job in grid.jobs:
        spec = job.spec
        if RunFolder(root / "runs" / spec.name).status == "done":
            continue
        key = (spec.pattern.name, spec.train_set)
        if key not in sizes:
            sets = render_sets(grid.suite, spec.pattern, spec.train_set, spec.evaluation)
            sizes[key] = sum(characters(r.prompts) for r in sets)
        points = len(schedule_of(spec)) - (spec.model in seen)
        work += points * sizes[key] + training_work(job)
        seen.add(spec.model)
    return work
