"""What is done about each run of a study."""

from __future__ import annotations

from pathlib import Path

import pytest

from oodles.errors import ConfigError, StoreError
from oodles.runs.events import ignore
from oodles.runs.stopping import Stop
from oodles.store.environment import environment
from oodles.store.folder import RunFolder, StudyFolder
from oodles.store.locks import release, take
from oodles.store.outcome import fail_run, finish_run
from oodles.store.spec import begin_run
from oodles.study.grid import Grid, expand
from oodles.study.load import load_study
from oodles.study.worker import Outcome, Policy, check_alone, decide, run_missing


@pytest.fixture
def grid(toy_study: Path) -> Grid:
    return expand(load_study(toy_study))


def begun(grid: Grid, root: Path) -> RunFolder:
    job = grid.jobs[0]
    folder = StudyFolder(root).run(job.spec.name)
    begin_run(folder, job.spec, job.draw, environment())
    return folder


def test_a_failed_run_is_tried_again_only_if_asked_for(grid: Grid, tmp_path: Path) -> None:
    folder, spec = begun(grid, tmp_path), grid.jobs[0].spec
    assert decide(spec, (), folder, Policy()) == ("run", "")
    fail_run(folder, "too hot")
    assert decide(spec, (), folder, Policy()) == ("failed before", "too hot")
    assert decide(spec, (), folder, Policy(retry=True)) == ("run", "")
    folder.failed.write_text("{")  # damaged: it says nothing
    assert decide(spec, (), folder, Policy()) == ("run", "")


def test_a_done_run_is_skipped_unless_something_is_missing(grid: Grid, tmp_path: Path) -> None:
    folder, job = begun(grid, tmp_path), grid.jobs[0]
    finish_run(folder, 4)
    assert decide(job.spec, (), folder, Policy()) == ("skip", "")
    assert decide(job.spec, grid.rendered(job), folder, Policy()) == ("run", "")


def test_a_run_without_its_spec_must_be_mended_first(grid: Grid, tmp_path: Path) -> None:
    folder = begun(grid, tmp_path)
    finish_run(folder, 4)
    folder.spec.unlink()
    with pytest.raises(StoreError, match=r"no spec\.json"):
        decide(grid.jobs[0].spec, (), folder, Policy())


def test_held_failed_and_refused_runs_are_told_and_nothing_is_trained(grid: Grid, tmp_path: Path) -> None:
    first, second = (StudyFolder(tmp_path).run(job.spec.name) for job in grid.jobs)
    begun(grid, tmp_path)
    fail_run(first, "too hot")
    take(second.lock)
    try:
        outcome = run_missing(grid, tmp_path, Policy(), ignore, Stop())
    finally:
        release(second.lock)
    assert outcome.failed_before == ((first.name, "too hot"),)
    assert [name for name, _ in outcome.held] == [second.name]
    assert not outcome.is_whole


def test_a_stop_comes_before_the_next_run(grid: Grid, tmp_path: Path) -> None:
    outcome = run_missing(grid, tmp_path, Policy(), ignore, Stop(15))
    assert outcome == Outcome(out=tmp_path, stopped=15)


@pytest.mark.parametrize(("size", "message"), [("2", "WORLD_SIZE is 2"), ("two", "expected a number")])
def test_a_launcher_of_several_processes_is_refused(size: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for alone in ("", "1"):
        monkeypatch.setenv("WORLD_SIZE", alone)
        check_alone()
    monkeypatch.setenv("WORLD_SIZE", size)
    with pytest.raises(ConfigError, match=message):
        check_alone()
