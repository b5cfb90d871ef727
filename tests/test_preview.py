"""What `oodles run` would do; `test_budget.py` compares it with what the run does."""

from __future__ import annotations

from pathlib import Path

import pytest

from oodles.disk import write_json
from oodles.store.environment import environment
from oodles.store.folder import StudyFolder
from oodles.store.locks import release, take
from oodles.store.outcome import fail_run
from oodles.store.spec import begin_run
from oodles.study.grid import Grid, expand
from oodles.study.load import load_study
from oodles.study.preview import Would, preview, work_of
from oodles.study.worker import Policy


@pytest.fixture
def grid(toy_study: Path) -> Grid:
    return expand(load_study(toy_study))


def test_an_empty_folder_is_trained_and_the_second_run_takes_step_0_over(grid: Grid, tmp_path: Path) -> None:
    first, second = preview(grid, tmp_path / "out", Policy())
    assert (first.action, first.steps, first.taken) == ("train", 4, frozenset())
    assert (second.action, second.taken) == ("train", {"home", "away", "far"})
    assert first.missing == second.missing
    assert str(first) == f"train: 4 steps, {len(first.missing)} evaluations"
    assert str(second).endswith(f"{len(second.missing) - 3} evaluations, 3 taken over")
    assert not (tmp_path / "out").exists()  # nothing is written


def test_runs_that_are_left_alone_say_why(grid: Grid, tmp_path: Path) -> None:
    study = StudyFolder(tmp_path / "out")
    first, second = (study.run(job.spec.name) for job in grid.jobs)
    begin_run(first, grid.jobs[0].spec, grid.jobs[0].draw, environment())
    fail_run(first, "too hot")
    take(second.lock)
    try:
        failed, locked = preview(grid, study.path, Policy())
    finally:
        release(second.lock)
    assert (failed.action, failed.works) == ("leave", False)
    assert failed.reason == "failed before (too hot); --retry-failed tries it again"
    assert locked.action == "leave"
    assert locked.reason.startswith("locked by ")
    assert [would.action for would in preview(grid, study.path, Policy(retry=True))] == ["train", "train"]


def test_a_run_without_its_spec_is_refused_and_stops_no_other(grid: Grid, tmp_path: Path) -> None:
    study = StudyFolder(tmp_path / "out")
    write_json(study.run(grid.jobs[0].spec.name).done, {})
    refused, other = preview(grid, study.path, Policy())
    assert refused.action == "refuse"
    assert "has scores, but no spec.json" in str(refused)
    assert other.action == "train"


def test_work_is_less_where_less_is_missing(grid: Grid, tmp_path: Path) -> None:
    whole = work_of(grid, tmp_path / "out")
    study = StudyFolder(tmp_path / "out")
    begin_run(study.run(grid.jobs[0].spec.name), grid.jobs[0].spec, grid.jobs[0].draw, environment())
    fail_run(study.run(grid.jobs[0].spec.name), "too hot")
    assert 0 < work_of(grid, tmp_path / "out") < whole


def test_what_is_done_says_nothing_more() -> None:
    assert str(Would(run="r", action="skip")) == "skip"
