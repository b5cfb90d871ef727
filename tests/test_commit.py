"""An evaluation counts once its line is written, and no longer once it is superseded."""

from __future__ import annotations

from pathlib import Path

from oodles.disk import write_json
from oodles.store.commit import copy_score, supersede
from oodles.store.folder import RunFolder
from oodles.store.scores import read_scores
from test_store import SPEC, folder_with_scores, keep


def test_records_come_before_their_line(tmp_path: Path) -> None:
    folder = folder_with_scores(tmp_path)
    for line in read_scores(folder):
        assert folder.records(line.step, line.test_set).is_file()
    assert not list(folder.path.rglob("*.part"))


def test_a_copied_score_is_the_same(tmp_path: Path) -> None:
    donor = folder_with_scores(tmp_path)
    heir = RunFolder(tmp_path / "runs" / "s")
    write_json(heir.spec, SPEC)
    for line in read_scores(donor):
        copy_score(donor, heir, line, line.role)
    assert heir.scores.read_bytes() == donor.scores.read_bytes()
    assert heir.records(0, "home").read_bytes() == donor.records(0, "home").read_bytes()


def test_other_prompts_under_the_same_name_leave_the_older_records_until_they_count(tmp_path: Path) -> None:
    folder = folder_with_scores(tmp_path)
    older = folder.records(4, "away").read_bytes()
    keep(folder, 4, "away", gold=0)
    newest = next(score for score in read_scores(folder) if (score.step, score.test_set) == (4, "away"))
    assert newest.records == f"away-{newest.prompts}.parquet"
    assert folder.records(4, "away").read_bytes() == older
    assert len(read_scores(folder)) == 4  # the newest of each step and test set


def test_a_copied_score_has_the_role_it_has_in_its_new_run(tmp_path: Path) -> None:
    donor = folder_with_scores(tmp_path)
    heir = RunFolder(tmp_path / "runs" / "s")
    write_json(heir.spec, SPEC)
    home = next(score for score in read_scores(donor) if score.test_set == "home")
    assert copy_score(donor, heir, home, "ood").role == "ood"
    assert [score.role for score in read_scores(heir)] == ["ood"]


def test_what_is_superseded_no_longer_counts_and_is_kept_aside(tmp_path: Path) -> None:
    folder = folder_with_scores(tmp_path)
    lines = folder.scores.read_bytes().splitlines(keepends=True)
    for step in (0, 4, 10):
        folder.adapter(step).mkdir(parents=True)
    write_json(folder.done, {})
    supersede(folder, 4)
    assert folder.scores.read_bytes() == b"".join(lines[:2])
    assert folder.superseded.read_bytes() == b"".join(lines[2:])
    assert [path.name for path in folder.adapters] == ["0"]
    assert folder.status == "started"
