"""The paths of a study and of its runs, and what they say of a run."""

from __future__ import annotations

import ast
from pathlib import Path

import oodles
from oodles.disk import write_json
from oodles.store.folder import RunFolder, StudyFolder, log_line
from test_store import folder_with_scores


def test_status(tmp_path: Path) -> None:
    folder = folder_with_scores(tmp_path)
    assert folder.status == "started"
    write_json(folder.failed, {"reason": "x"})
    assert folder.status == "failed"
    write_json(folder.done, {})
    assert folder.status == "done"
    assert RunFolder(tmp_path / "runs" / "none").status == "missing"


def test_only_one_module_knows_the_names_in_a_study() -> None:
    """`StudyFolder` and `RunFolder` own them; `shapes` says what the files hold."""
    own = {"study.json", "audit.json", ".study.lock", "scores.jsonl", "spec.json", "done.json", "failed.json"}
    source = Path(oodles.__file__).parent
    strange = [
        f"{path.relative_to(source)}: {node.value}"
        for path in source.rglob("*.py")
        if path.name not in ("folder.py", "shapes.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in own
    ]
    assert not strange


def test_a_run_knows_its_study_and_its_lock_lies_beside_it(tmp_path: Path) -> None:
    study = StudyFolder(tmp_path)
    run = study.run("r")
    assert run.study == study
    assert run.lock == tmp_path / "locks" / "r.json"
    assert run.records(4, "away") == tmp_path / "runs" / "r" / "records" / "4" / "away.parquet"
    assert study.members("away", "abc") == tmp_path / "sets" / "away-abc.parquet"


def test_only_folders_are_runs_and_only_numbers_are_adapters(tmp_path: Path) -> None:
    study = StudyFolder(tmp_path)
    assert study.run_names == []
    for name in ("b", "a"):
        (study.runs / name).mkdir(parents=True)
    (study.runs / "notes.txt").touch()
    assert study.run_names == ["a", "b"]
    for name in ("4", "0", ".8.part", "8x"):
        (study.run("a").path / "adapters" / name).mkdir(parents=True)
    assert [path.name for path in study.run("a").adapters] == ["0", "4"]


def test_locks_and_unfinished_files_make_a_folder_not_strange(tmp_path: Path) -> None:
    study = StudyFolder(tmp_path)
    (tmp_path / "locks").mkdir()
    (tmp_path / ".study.json.part").touch()
    (tmp_path / ".study.lock").touch()
    assert not study.is_strange
    assert not StudyFolder(tmp_path / "none").is_strange
    (tmp_path / "thesis.tex").touch()
    assert study.is_strange
    assert StudyFolder(tmp_path / "thesis.tex").is_strange


def test_a_log_is_appended_to_without_passwords(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    log_line(folder, "begins")
    log_line(folder, "https://me:secret@example.org is away")
    assert folder.log.read_text() == "begins\nhttps://***@example.org is away\n"
