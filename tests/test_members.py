"""Who belongs to a rendered set: kept once per study, compared with every later run, mended where damaged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from oodles.contracts import SHOTS
from oodles.disk import write_json
from oodles.errors import StoreError
from oodles.store.claim import claim_folder, slices_of
from oodles.store.folder import StudyFolder
from oodles.store.members import (
    _write_members,
    all_members,
    check_members,
    keep_members,
    key_of,
    mend_members,
    read_members,
)
from oodles.store.sidecars import read_json
from oodles.suite.slices import Members

AWAY = Members(
    test_set="away", prompts="abc", key="k", ids=("e0", "e1"), gold=(0, 1), items=(0, 0), columns={"kind": ("x", "y")}
)


@pytest.fixture
def study(tmp_path: Path) -> StudyFolder:
    study = StudyFolder(tmp_path / "out")
    claim_folder(study, "toy", "toy")
    return study


def test_members_are_read_back_and_slices_remembered(study: StudyFolder) -> None:
    keep_members(study, [AWAY, replace(AWAY, test_set=SHOTS)], ["away", "away/x"])
    assert replace(read_members(study, "away", "abc"), key="k") == AWAY
    assert read_json(study.file)["sets"] == {key_of(AWAY): AWAY.identity}  # shots are every run's own
    assert slices_of(study) == ("away/x",)
    assert [members.ids for members in all_members(study)] == [AWAY.ids]


@pytest.mark.parametrize("change", [{"prompts": "abd"}, {"columns": {"kind": ("x", "x")}}])
def test_another_set_under_the_same_name_is_refused(study: StudyFolder, change: dict[str, object]) -> None:
    keep_members(study, [AWAY])
    check_members(study, [AWAY])
    before = study.file.read_bytes()
    with pytest.raises(StoreError, match=rf"test set 'away' differs from earlier runs \({AWAY.identity}, now"):
        keep_members(study, [replace(AWAY, **change)])  # type: ignore[arg-type]
    assert study.file.read_bytes() == before


@pytest.mark.parametrize("harm", [b"", b"PAR1"])
def test_what_is_damaged_is_named_left_out_and_mended(study: StudyFolder, harm: bytes) -> None:
    keep_members(study, [AWAY])
    path = study.members("away", "abc")
    whole = path.read_bytes()
    path.write_bytes(harm)
    assert all_members(study) == []
    with pytest.raises(StoreError, match=r"away-abc\.parquet: cannot be read"):
        read_members(study, "away", "abc")
    mend_members(study, [AWAY])
    assert path.read_bytes() == whole


def test_a_readable_file_of_other_answers_is_mended(study: StudyFolder) -> None:
    keep_members(study, [AWAY])
    path = study.members("away", "abc")
    whole = path.read_bytes()
    path.unlink()
    _write_members(path, replace(AWAY, gold=(1, 1)))
    mend_members(study, [AWAY])
    assert path.read_bytes() == whole


@pytest.mark.parametrize("change", [{"gold": (1, 1)}, {"items": (0, 1)}, {"columns": {"kind": ("x", "x")}}])
def test_a_readable_file_of_something_else_is_refused(study: StudyFolder, change: dict[str, object]) -> None:
    keep_members(study, [AWAY])
    path = study.members("away", "abc")
    path.unlink()
    _write_members(path, replace(AWAY, **change))  # type: ignore[arg-type]
    with pytest.raises(StoreError, match=r"differs from what study\.json records of test set 'away'; run the study"):
        read_members(study, "away", "abc")
    mend_members(study, [AWAY])
    assert read_members(study, "away", "abc") == AWAY


def test_a_study_of_an_older_version_gets_the_hashes_of_its_members(study: StudyFolder) -> None:
    keep_members(study, [AWAY])
    record = read_json(study.file)
    hashes = record.pop("members")
    write_json(study.file, record)
    mend_members(study, [AWAY])
    assert read_json(study.file)["members"] == hashes == {key_of(AWAY): AWAY.content}


def test_a_sound_file_and_a_set_of_no_run_are_not_touched(study: StudyFolder) -> None:
    keep_members(study, [AWAY])
    stamp = study.members("away", "abc").stat().st_mtime_ns
    far = replace(AWAY, test_set="far")
    mend_members(study, [AWAY, far])
    assert study.members("away", "abc").stat().st_mtime_ns == stamp
    assert not study.members("far", "abc").exists()
