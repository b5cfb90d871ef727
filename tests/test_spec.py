"""spec.json: what decided a run is read back as it was written, or refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oodles.contracts import Draw, Evaluation, Example, Lora, ModelSpec, Pattern, Recipe, RunSpec
from oodles.disk import write_json
from oodles.errors import StoreError
from oodles.store.folder import RunFolder
from oodles.store.scores import read_scores
from oodles.store.sidecars import read_json
from oodles.store.spec import StoredSpec, begin_run, check_same_run, check_spec, glance_at_spec, read_spec, write_spec
from test_store import folder_with_scores, keep


def test_specs_of_other_trainings_say_what_is_known(tmp_path: Path) -> None:
    """A run of one's own loop, and scored checkpoints; what they do not know is left out."""
    pattern = Pattern(name="q", text="{a}", answers=(" Yes", " No"), truncate="a")
    known: dict[str, Any] = {"name": "r", "suite": "toy", "train_set": "home", "pattern": pattern}
    common = {
        "schema": 1,
        "run_id": None,
        "name": "r",
        "suite": "toy",
        "train_set": "home",
        "pattern": {"name": "q", "text": "{a}", "answers": [" Yes", " No"]},
        "shots": None,
        "seed": None,
        "data_seed": None,
    }
    folder = RunFolder(tmp_path / "runs" / "r")
    loop = StoredSpec(**known, model=ModelSpec(label="m", source=""), seed=3)
    write_spec(folder, loop)
    assert read_json(folder.spec) == {**common, "model": {"label": "m"}, "seed": 3}
    scored = StoredSpec(
        **known,
        model=ModelSpec(label="m", source="org/m"),
        precision="fp32",
        checkpoints={"0": None},
        evaluation={"limit": 4},
    )
    write_spec(folder, scored)
    assert read_json(folder.spec) == {
        **common,
        "model": {"label": "m", "source": "org/m", "revision": None},
        "precision": "fp32",
        "checkpoints": {"0": None},
        "evaluation": {"limit": 4},
    }
    assert read_spec(folder).checkpoints == {"0": None}
    assert read_spec(folder).as_json() == scored.as_json()


RUN = RunSpec(
    name="r",
    model=ModelSpec(label="m", source="org/m", revision="abc"),
    suite="toy",
    train_set="home",
    train_hash="t",
    draw_hash="d",
    pattern=Pattern(name="q", text="{premise}?", answers=(" Yes", " No")),
    shots=2,
    seed=0,
    data_seed=0,
    lora=Lora(),
    recipe=Recipe(precision="fp32"),
    evaluation=Evaluation(test_sets=("home", "away/x")),
)
ROWS = tuple(Example(id=f"e{i}", fields={"premise": "p"}, label="e", answer=0) for i in range(2))
DRAW = Draw(train_set="home", shots=2, data_seed=0, examples=ROWS)
ENV = {"oodles": "0", "python": "3"}


def test_a_run_is_read_back_as_it_was_begun(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs" / "r")
    begin_run(folder, RUN, DRAW, ENV, ["q_proj"])
    spec = read_spec(folder)
    assert (spec.run_id, spec.model, spec.pattern) == (RUN.run_id, RUN.model, RUN.pattern)
    assert (spec.adapted, spec.test_sets) == (["q_proj"], ("home", "away/x"))
    assert spec.before_training == (RUN.model, "fp32", None)
    assert read_json(folder.draw)["ids"] == ["e0", "e1"]
    assert glance_at_spec(folder) == spec


def test_an_edited_spec_is_refused(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs" / "r")
    begin_run(folder, RUN, DRAW, ENV)
    text, stored = folder.spec.read_text(), read_json(folder.spec)
    folder.spec.write_text(text.replace('"seed": 0', '"seed": 1'))
    with pytest.raises(StoreError, match=r"spec\.json"):
        read_spec(folder)
    write_json(folder.spec, {**stored, "seed": 1})  # with a checksum of its own: the id tells
    with pytest.raises(StoreError, match=r"spec\.json"):
        read_spec(folder)


def test_an_attempt_at_the_same_run_resumes_and_logs_another_environment(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs" / "r")
    begin_run(folder, RUN, DRAW, ENV)
    keep(folder, 0, "home")
    folder.failed.write_text("{}")
    folder.draw.unlink()
    begin_run(folder, RUN, DRAW, {**ENV, "python": "4"})
    assert len(read_scores(folder)) == 1
    assert not folder.failed.exists()
    assert folder.draw.is_file()
    assert read_json(folder.env) == ENV
    assert 'resumes in another environment: {"oodles": "0", "python": "4"}' in folder.log.read_text()


def test_another_run_of_the_same_name_replaces_remains_and_never_scores(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs" / "r")
    begin_run(folder, RUN, DRAW, ENV)
    (folder.path / "checkpoints").mkdir()
    other = replace(RUN, seed=1)
    begin_run(folder, other, DRAW, ENV)
    assert not (folder.path / "checkpoints").exists()
    keep(folder, 0, "home")
    check_same_run(folder, other)
    with pytest.raises(StoreError, match=f"holds run {other.run_id}, but the study's run of this name is {RUN.run_id}"):
        begin_run(folder, RUN, DRAW, ENV)
    assert read_spec(folder).seed == 1
    assert len(read_scores(folder)) == 1


def test_scores_without_a_spec_are_refused(tmp_path: Path) -> None:
    folder = folder_with_scores(tmp_path)
    check_spec(folder)
    folder.spec.unlink()
    with pytest.raises(StoreError, match=r"has scores, but no spec\.json"):
        check_spec(folder)
    assert glance_at_spec(folder) is None
    folder.scores.unlink()
    check_spec(folder)
