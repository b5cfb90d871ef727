"""The steps of run_one that can be taken alone; whole runs are in `test_launch.py` and `test_resume.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from oodles.disk import put_folder
from oodles.runs.events import ignore
from oodles.runs.runner import _rewind, start_of
from oodles.runs.stopping import Stop
from oodles.runs.todo import RunTask
from oodles.store.environment import environment
from oodles.store.folder import RunFolder, StudyFolder
from oodles.store.outcome import finish_run
from oodles.store.spec import begin_run
from oodles.study.grid import expand
from oodles.study.load import load_study


@pytest.fixture
def task(toy_study: Path, tmp_path: Path) -> RunTask:
    grid = expand(load_study(toy_study))
    job = grid.jobs[0]
    folder = StudyFolder(tmp_path / "out").run(job.spec.name)
    begin_run(folder, job.spec, job.draw, environment())
    return RunTask(job=job, rendered=grid.rendered(job), folder=folder, earlier=(), listener=ignore, stop=Stop())


def checkpoint(folder: RunFolder, step: int) -> Path:
    path = folder.checkpoints / str(step)
    with put_folder(path) as aside:
        (aside / "state").write_text("state")
    return path


def test_training_resumes_from_the_last_whole_checkpoint_that_passes_nothing_by(task: RunTask) -> None:
    assert start_of(task.folder, [0]) == 0
    for step in (1, 2, 3):
        checkpoint(task.folder, step)
    assert start_of(task.folder, [3, 4]) == 3
    assert start_of(task.folder, [2, 4]) == 2
    assert start_of(task.folder, [0]) == 0
    (task.folder.checkpoints / "3" / "state").write_text("other")
    assert start_of(task.folder, [4]) == 2


def test_checkpoints_after_a_step_that_must_be_trained_are_dropped(task: RunTask) -> None:
    late = checkpoint(task.folder, 2)
    assert _rewind(task)  # step 0 is missing
    assert not late.exists()
    assert "checkpoint 2 is dropped: step 0 comes before it" in task.folder.log.read_text()


def test_a_done_run_is_trained_again_only_for_a_step_without_an_adapter(task: RunTask) -> None:
    finish_run(task.folder, 4)
    assert _rewind(task)
    assert "training again: step 0 is needed" in task.folder.log.read_text()
    for step, _ in task.missing():
        task.folder.adapter(step).mkdir(parents=True, exist_ok=True)
    assert not _rewind(task)
