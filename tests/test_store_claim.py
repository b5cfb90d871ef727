"""study.json: a folder belongs to one study, which it remembers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oodles.disk import write_json
from oodles.errors import StoreError
from oodles.store.claim import (
    check_folder,
    claim_folder,
    plan_runs,
    planned_runs,
    slices_of,
    suite_file_of,
    suite_of,
    unclaim_folder,
)
from oodles.store.folder import RunFolder, StudyFolder, run_folders
from test_store import folder_with_scores


def test_a_folder_of_another_study_is_refused(tmp_path: Path) -> None:
    claim_folder(StudyFolder(tmp_path / "a"), "one", "mini")
    claim_folder(StudyFolder(tmp_path / "a"), "one", "mini")
    with pytest.raises(StoreError, match="holds study 'one' on suite 'mini', not 'two' on 'mini'"):
        claim_folder(StudyFolder(tmp_path / "a"), "two", "mini")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.tex").write_text("do not touch")
    with pytest.raises(StoreError, match="holds files that are not an oodles study"):
        claim_folder(StudyFolder(tmp_path / "b"), "one", "mini")
    with pytest.raises(StoreError, match="exists and is not a folder"):
        claim_folder(StudyFolder(tmp_path / "b" / "thesis.tex"), "one", "mini")
    with pytest.raises(StoreError, match=r"no study\.json"):
        run_folders(tmp_path / "b")


def test_files_state_their_schema(tmp_path: Path) -> None:
    claim_folder(StudyFolder(tmp_path), "toy", "toy")
    assert json.loads((tmp_path / "study.json").read_text())["schema"] == 1


def test_a_claimed_folder_remembers_its_suite_and_its_runs(tmp_path: Path) -> None:
    study = StudyFolder(tmp_path / "out")
    (tmp_path / "toy.toml").touch()
    claim_folder(study, "toy", "toy", suite_file=str(tmp_path / "toy.toml"))
    assert (suite_of(study), suite_file_of(study)) == ("toy", "../toy.toml")  # both can be moved together
    plan_runs(study, ["b", "a"])
    plan_runs(study, ["a", "c"])
    assert planned_runs(study) == ["b", "a", "c"]
    assert slices_of(study) == slices_of(StudyFolder(tmp_path / "none")) == ()


def test_checking_a_folder_writes_nothing(tmp_path: Path) -> None:
    study = StudyFolder(tmp_path / "out")
    check_folder(study, "toy", "toy")
    assert not study.path.exists()


def test_a_damaged_study_json_is_rewritten_from_the_runs_of_this_study_only(tmp_path: Path) -> None:
    folder = folder_with_scores(tmp_path)
    study = folder.study
    study.file.write_text("{")
    with pytest.raises(StoreError, match=r"holds a damaged study\.json and no run of this study"):
        claim_folder(study, "toy", "toy", ["1-y"])
    assert study.file.read_text() == "{"
    claim_folder(study, "toy", "toy", ["1-x"])
    assert planned_runs(study) == ["r"]


def test_a_folder_is_given_back_only_if_nobody_began_anything(tmp_path: Path) -> None:
    study = StudyFolder(tmp_path / "out")
    claim_folder(study, "toy", "toy")
    mine = RunFolder(study.runs / "mine")
    write_json(study.lock_of("other"), {})
    unclaim_folder(mine)
    assert study.is_study
    study.lock_of("other").unlink()
    write_json(mine.lock, {})
    unclaim_folder(mine)
    assert not study.is_study
