"""The long table and the records of a study's folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from oodles.errors import StoreError
from oodles.store.claim import claim_folder
from oodles.store.folder import StudyFolder
from oodles.store.table import DamageWarning, read_records, read_runs
from test_store import folder_with_scores


def test_the_long_table_has_the_contract_columns(tmp_path: Path) -> None:
    folder_with_scores(tmp_path)
    table = read_runs(tmp_path)
    columns = ["run", "model", "train_set", "shots", "seed", "step", "test_set", "role", "metric", "value", "n"]
    assert list(table.columns[:11]) == columns
    assert not table.duplicated(["run", "step", "test_set", "metric"]).any()
    accuracy = table[(table.metric == "accuracy") & (table.step == 4) & (table.test_set == "away")].iloc[0]
    assert accuracy.value == 2 / 3
    assert (accuracy.n, accuracy.role, accuracy.model, accuracy.seed) == (3, "ood", "m", 3)
    shares = table[(table.metric == "share:Yes") & (table.test_set == "home")]
    assert shares.value.tolist() == [1 / 3, 1 / 3]
    assert table[table.metric == "auc"].value.isna().all()  # one gold answer only: unknown is nan


def test_records_hold_every_score(tmp_path: Path) -> None:
    folder_with_scores(tmp_path)
    records = read_records(tmp_path)
    assert len(records) == 2 * 2 * 3
    one = records[(records.step == 0) & (records.test_set == "home")]
    assert one["score:Yes"].tolist() == [0.5, 2.0, 0.0]
    assert one["correct"].tolist() == [True, False, True]
    assert one["example"].tolist() == ["e0", "e1", "e2"]


def test_a_damaged_record_names_itself(tmp_path: Path) -> None:
    folder = folder_with_scores(tmp_path)
    folder.records(4, "away").write_bytes(b"PAR1")
    with pytest.warns(DamageWarning, match=r"4/away\.parquet: damaged or missing.*lost: the records of step 4"):
        records = read_records(tmp_path)
    assert set(zip(records.step, records.test_set, strict=True)) == {(0, "home"), (0, "away"), (4, "home")}


def test_no_scores_yet_says_so(tmp_path: Path) -> None:
    claim_folder(StudyFolder(tmp_path), "toy", "toy")
    with pytest.raises(StoreError, match="no scores yet"):
        read_runs(tmp_path)


def test_runs_are_told_apart(tmp_path: Path) -> None:
    folder_with_scores(tmp_path, "a")
    folder_with_scores(tmp_path, "b")
    assert read_runs(tmp_path).groupby("run").size().tolist() == [24, 24]


def test_chosen_sets_come_with_the_in_domain_one_and_an_unknown_name_is_refused(tmp_path: Path) -> None:
    folder_with_scores(tmp_path)
    assert set(read_runs(tmp_path, ["away"]).test_set) == {"home", "away"}  # the others are compared with it
    assert set(read_runs(tmp_path, ["home"]).test_set) == {"home"}
    with pytest.raises(StoreError, match=r"no scores of test set 'awaz'; .* \(did you mean 'away'"):
        read_runs(tmp_path, ["awaz"])
