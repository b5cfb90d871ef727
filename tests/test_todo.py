"""What of a run is still to be done."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oodles.contracts import Predictions
from oodles.disk import write_json
from oodles.runs.schedule import passes, schedule_of
from oodles.runs.todo import missing_of, same_before_training, untrained_of
from oodles.store.commit import commit
from oodles.store.environment import environment
from oodles.store.folder import StudyFolder
from oodles.store.outcome import finish_run
from oodles.store.spec import begin_run
from oodles.study.grid import expand
from oodles.study.load import load_study


def test_training_work_is_counted_by_steps(toy_study: Path) -> None:
    """A run of train.steps costs what a run of as many epochs costs, here and in the dry run."""
    from oodles.runs.runner import training_work

    by_epochs = expand(load_study(toy_study, ["train.epochs=3"])).jobs[0]
    by_steps = expand(load_study(toy_study, ["train.epochs=99", "train.steps=6"])).jobs[0]
    assert training_work(by_steps, 6) == training_work(by_epochs, 6) == pytest.approx(6 * training_work(by_steps, 1))
    assert passes(8, by_steps.spec.recipe, 6) == 3


def test_what_is_committed_is_not_missing_and_other_prompts_are(toy_study: Path, tmp_path: Path) -> None:
    grid = expand(load_study(toy_study))
    job = grid.jobs[0]
    rendered = grid.rendered(job)
    folder = StudyFolder(tmp_path / "out").run(job.spec.name)
    steps = schedule_of(job.spec)
    everything = {(step, test_set.prompts.name) for step in steps for test_set in rendered}
    assert missing_of(job.spec, rendered, folder) == everything
    begin_run(folder, job.spec, job.draw, environment())
    prompts = rendered[0].prompts
    answers = Predictions(
        test_set=prompts.name,
        answers=prompts.answers,
        ids=tuple(prompt.id for prompt in prompts.prompts),
        scores=np.zeros((len(prompts), 2)),
        gold=np.array([prompt.gold for prompt in prompts.prompts]),
    )
    commit(folder, 0, prompts, answers, "in_domain")
    assert missing_of(job.spec, rendered, folder) == everything - {(0, prompts.name)}
    other = replace(rendered[0], members=replace(rendered[0].members, prompts="another"))
    assert (0, prompts.name) in missing_of(job.spec, [other], folder)


def test_steps_without_an_adapter_must_be_trained(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path).run("r")
    folder.adapter(4).mkdir(parents=True)
    assert untrained_of({(8, "a"), (0, "a"), (0, "b"), (4, "a")}, folder) == [0, 8]
    assert untrained_of({(4, "a")}, folder) == []


@pytest.mark.parametrize(
    ("change", "shared"),
    [({}, True), ({"seed": 7}, True), ({"evaluation.batch_tokens": 9}, False), ({"recipe.precision": "bf16"}, False)],
)
def test_step_0_is_shared_by_runs_that_start_alike(
    change: dict[str, Any], shared: bool, toy_study: Path, tmp_path: Path
) -> None:
    job = expand(load_study(toy_study)).jobs[0]
    folder = StudyFolder(tmp_path / "out").run(job.spec.name)
    begin_run(folder, job.spec, job.draw, environment())
    assert same_before_training(job.spec, [folder]) is None  # not done yet
    finish_run(folder, 4)
    spec = job.spec
    for key, value in change.items():
        part, _, name = key.rpartition(".")
        spec = replace(spec, **({part: replace(getattr(spec, part), **{name: value})} if part else {name: value}))
    assert (same_before_training(spec, [folder]) == folder) is shared
    write_json(folder.env, {**environment(), "python": "2"})
    assert same_before_training(spec, [folder]) is None
    folder.spec.write_text("{")
    assert same_before_training(spec, [folder]) is None
