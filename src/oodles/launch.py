"""Run all that is missing of a study, here."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oodles.audit import audit_grid, stop_on_errors
from oodles.config import load_study
from oodles.errors import ConfigError, OodlesError, StoreError
from oodles.grid import Grid, Job, expand, schedule_of
from oodles.models import model_path, require_training
from oodles.progress import Progress
from oodles.records import Study
from oodles.stopping import Stop, Stopped, stop_on_signals
from oodles.store import (
    RunFolder,
    check_folder,
    check_members,
    check_same_run,
    claim_folder,
    locked,
    log_line,
    plan_runs,
    read_scores,
    write_json,
)
from oodles.suite import select_test_sets


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a study's runs."""

    out: Path
    done: tuple[str, ...]  # finished now
    skipped: tuple[str, ...]  # finished before
    failed: tuple[tuple[str, str], ...]  # name and reason
    stopped: int = 0  # the signal that ended it before its time


def run(
    study: Study | str | Path,
    out: str | Path | None = None,
    *,
    where: str = "here",
    allow: Sequence[str] = (),
) -> Outcome:
    """Run what is missing of a study; finished runs are skipped, one failure does not stop the rest.

    Parameters
    ----------
    study : from `load_study`, or what it takes: a TOML file or the name of a shipped study.
    out : folder of the study; the study's own `out` if not given.
    where : "here".
    allow : codes of audit errors that shall not stop the study, beside those the study itself allows.
    """
    if where != "here":
        raise ConfigError(f"where is '{where}', expected 'here'")
    study = study if isinstance(study, Study) else load_study(study)
    grid = expand(study)
    root = Path(out if out is not None else study.out)
    require_training("oodles run")
    from oodles.callback import render_sets

    for job in grid.jobs:
        model_path(job.spec.model)  # a model that is not there is an error now, not after the first run
    check_folder(root, study.name, grid.suite.name)
    for job in grid.jobs:
        check_same_run(RunFolder(root / "runs" / job.spec.name), job.spec)
    audit = audit_grid(grid, notes=False)
    allowed = (*study.allow, *allow)
    stop_on_errors(audit, allowed)
    for spec in {(job.spec.pattern.name, job.spec.train_set): job.spec for job in grid.jobs}.values():
        sets = render_sets(grid.suite, spec.pattern, spec.train_set, spec.evaluation)
        check_members(root, [one.members for one in sets])
    with locked(root):
        claim_folder(root, study.name, grid.suite.name)
        write_json(root / "audit.json", {**audit.as_dict(), "allowed": list(allowed)})
        return _run_missing(grid, root)


def _run_missing(grid: Grid, root: Path) -> Outcome:
    folders = [RunFolder(root / "runs" / job.spec.name) for job in grid.jobs]
    for job, folder in zip(grid.jobs, folders, strict=True):
        check_same_run(folder, job.spec)
    plan_runs(root, [folder.name for folder in folders])
    todo = [(job, folder) for job, folder in zip(grid.jobs, folders, strict=True) if folder.status != "done"]
    lacking = _lacking(grid, [folder for folder in folders if folder.status == "done"])
    done: list[str] = []
    failed: list[tuple[str, str]] = []
    with Progress(work_of(grid, [job for job, _ in todo]), grid.study.name) as progress:
        for name, count in lacking.items():
            progress.say(
                f"{count} finished runs lack test set '{name}'; to add it: oodles score --runs {root}"
                f" --add-test-set {name}"
            )
        with stop_on_signals() as stop:
            for job, folder in todo:
                try:
                    reason = _try(job, grid, folder, progress, folders, stop)
                except Stopped as told:
                    log_line(folder, str(told))
                    break
                if reason is None:
                    done.append(folder.name)
                else:
                    failed.append((folder.name, reason))
                    progress.say(f"{folder.name} failed: {reason}; see {folder.log}")
    skipped = tuple(f.name for f in folders if f.status == "done" and f.name not in done)
    return Outcome(out=root, done=tuple(done), skipped=skipped, failed=tuple(failed), stopped=stop.number)


def _lacking(grid: Grid, finished: Sequence[RunFolder]) -> dict[str, int]:
    """Test sets that the study asks for and finished runs have not seen, with the number of such runs."""
    wanted = [data.name for data in select_test_sets(grid.suite, grid.study.evaluation.test_sets)]
    seen = [{line["test_set"] for line in read_scores(folder)} for folder in finished]
    counts = {name: sum(name not in held for held in seen) for name in wanted}
    return {name: count for name, count in counts.items() if count}


def _try(
    job: Job, grid: Grid, folder: RunFolder, progress: Progress, folders: list[RunFolder], stop: Stop
) -> str | None:
    """Run one job; the reason if it failed."""
    from oodles.callback import Heard
    from oodles.runner import run_one

    def listen(heard: Heard) -> None:
        progress.advance(heard.work)
        if heard.doing:
            progress.label(heard.doing)
        if heard.text:
            progress.say(heard.text)
        stop.obey()

    try:
        run_one(job, grid.suite, folder, listen, folders, stop)
    except StoreError:
        raise  # no other run could be kept either
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        if not isinstance(error, OodlesError):
            reason = f"{type(error).__name__}: {reason}"
        write_json(folder.failed, {"reason": reason, "log": folder.log.name})
        log_line(folder, traceback.format_exc())
        return reason
    return None


def work_of(grid: Grid, jobs: Sequence[Job]) -> float:
    """Work of some runs, for the time left. Step 0 counts once per model: later runs take it over."""
    from oodles.callback import characters, render_sets
    from oodles.runner import training_work

    work, seen = 0.0, set()
    sizes: dict[tuple[str, str], float] = {}
    for job in jobs:
        spec = job.spec
        key = (spec.pattern.name, spec.train_set)
        if key not in sizes:
            sets = render_sets(grid.suite, spec.pattern, spec.train_set, spec.evaluation)
            sizes[key] = sum(characters(r.prompts) for r in sets)
        points = len(schedule_of(spec)) - (spec.model in seen)
        work += points * sizes[key] + training_work(job)
        seen.add(spec.model)
    return work
