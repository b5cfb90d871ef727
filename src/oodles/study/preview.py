"""What `oodles run` would do now, run by run, decided by what decides it there; nothing is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oodles.contracts import PlannedRun
from oodles.errors import DiskError, StoreError
from oodles.runs.runner import start_of
from oodles.runs.schedule import step_count
from oodles.runs.todo import missing_of, same_before_training, training_work, untrained_of
from oodles.store.folder import RunFolder, StudyFolder
from oodles.store.locks import is_held, read_lock
from oodles.store.records import records_are_whole
from oodles.store.scores import Score, read_scores
from oodles.study.grid import Grid
from oodles.study.worker import Policy, decide
from oodles.suite.render import characters

Evaluation = tuple[int, str]  # step and test set


@dataclass(frozen=True, slots=True, kw_only=True)
class Would:
    """What would become of a run."""

    run: str
    action: str  # skip, train, train again, resume, score; leave, refuse: nothing is done, see the reason
    reason: str = ""
    missing: frozenset[Evaluation] = frozenset()  # what would be evaluated, or taken over
    taken: frozenset[str] = frozenset()  # of step 0: test sets whose scores another run has
    untrained: tuple[int, ...] = ()  # steps whose adapter would be made
    steps: int = 0  # of the optimiser

    @property
    def works(self) -> bool:
        return self.action not in ("skip", "leave", "refuse")

    def __str__(self) -> str:
        parts = [f"{self.steps} steps"] * bool(self.steps)
        parts += [f"{len(self.missing) - len(self.taken)} evaluations"] * self.works
        parts += [f"{len(self.taken)} taken over"] * bool(self.taken)
        return ": ".join(filter(None, [self.action, self.reason or ", ".join(parts)]))


def preview(grid: Grid, root: Path, how: Policy) -> tuple[Would, ...]:
    """Every run of a grid, as one process would go through them; a run that would be tried is taken to succeed."""
    folders = [StudyFolder(root).run(job.spec.name) for job in grid.jobs]
    planned: list[Would] = []
    for job, folder in zip(grid.jobs, folders, strict=True):
        try:
            would = _would(job, grid, folder, how, folders, planned)
        except DiskError:
            raise
        except StoreError as error:
            would = Would(run=folder.name, action="refuse", reason=str(error))
        planned.append(would)
    return tuple(planned)


def work_of(grid: Grid, root: Path) -> float:
    """The work of what is missing now, in prompt characters scored, for the time left; 0 if it is unknown.

    Records are not read, so that damage which `--verify` would find is not counted.
    """
    try:
        planned = preview(grid, root, Policy())
    except (StoreError, OSError):  # reported when the work is done
        return 0.0
    work = 0.0
    for job, would in zip(grid.jobs, planned, strict=True):
        if would.works:
            size = {test_set.prompts.name: characters(test_set.prompts) for test_set in grid.rendered(job)}
            scored = sum(size[name] for _, name in would.missing) - sum(size[name] for name in would.taken)
            work += scored + training_work(job, would.steps)
    return work


def _would(
    job: PlannedRun, grid: Grid, folder: RunFolder, how: Policy, folders: Sequence[RunFolder], earlier: Sequence[Would]
) -> Would:
    name = folder.name
    choice, reason = decide(job.spec, grid.rendered(job), folder, how)
    if choice == "skip":
        return Would(run=name, action="skip")
    if choice == "failed before":
        return Would(run=name, action="leave", reason=f"failed before ({reason}); --retry-failed tries it again")
    if is_held(folder.lock):
        return Would(run=name, action="leave", reason=f"locked by {read_lock(folder.lock)}")
    missing = missing_of(job.spec, grid.rendered(job), folder)
    untrained, status = untrained_of(missing, folder), folder.status
    if status == "done" and not untrained:
        return Would(run=name, action="score", missing=frozenset(missing))
    start = start_of(folder, untrained)
    return Would(
        run=name,
        action="train again" if status == "done" else "resume" if start else "train",
        missing=frozenset(missing),
        taken=_taken(job, grid, missing, folders, earlier),
        untrained=tuple(untrained),
        steps=step_count(job.spec.shots, job.spec.recipe) - start,
    )


def _taken(
    job: PlannedRun, grid: Grid, missing: set[Evaluation], folders: Sequence[RunFolder], earlier: Sequence[Would]
) -> frozenset[str]:
    """Test sets whose scores of the untrained model a run would take over: of the first run that has any by then."""
    wanted = _hashes(grid, job)
    for place, (other, folder) in enumerate(zip(grid.jobs, folders, strict=True)):
        if other.spec.model != job.spec.model:
            continue
        made = place < len(earlier) and earlier[place].works
        if not made and same_before_training(job.spec, [folder]) is None:
            continue
        available = {(score.test_set, score.prompts) for score in _at_start(folder)}
        available |= _hashes(grid, other).items() if made else set()
        return frozenset(name for name in wanted if (0, name) in missing and (name, wanted[name]) in available)
    return frozenset()


def _hashes(grid: Grid, job: PlannedRun) -> dict[str, str]:
    return {test_set.prompts.name: test_set.hash for test_set in grid.rendered(job)}


def _at_start(folder: RunFolder) -> list[Score]:
    return [score for score in read_scores(folder) if score.step == 0 and records_are_whole(folder, score)]
