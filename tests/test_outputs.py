"""What is written takes the place of nothing else, and is as open as the umask says."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from conftest import oodles
from oodles.errors import StoreError
from oodles.outputs import check_target, write_aside
from oodles.stats.analysis import analyse_table, write_results
from test_correlate import simulated


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    simulated(runs=3).to_csv(path, index=False)
    return path


def test_a_report_does_not_replace_the_table(table: Path) -> None:
    before = table.read_bytes()
    done = oodles("report", table, "--out", table)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "table.csv: exists and was not written by oodles" in done.stderr
    assert table.read_bytes() == before


def test_results_do_not_replace_the_table(table: Path) -> None:
    before = table.read_bytes()
    for given in (table, table.parent / "." / "table.csv"):
        done = oodles("analyse", given, "--out", ".", cwd=table.parent)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
        assert "table.csv: is an input of this command, so it cannot be overwritten" in done.stderr
    assert table.read_bytes() == before
    assert [p.name for p in table.parent.iterdir()] == ["table.csv"]
    other = table.with_name("mine.csv")
    shutil.copy(table, other)
    done = oodles("analyse", other, "--out", table.parent)  # not read, but not ours either
    assert done.returncode == 2
    assert "was not written by oodles" in done.stderr
    assert table.read_bytes() == before


def test_results_do_not_replace_the_results_they_are_made_from(table: Path) -> None:
    out = table.parent / "results"
    assert oodles("analyse", table, "--out", out).returncode == 0
    assert oodles("analyse", table, "--out", out).returncode == 0  # ours: replaced
    assert "is an input of this command" in oodles("analyse", out / "table.csv", "--out", out).stderr


def test_results_that_were_cut_short_are_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import oodles.stats.analysis as module

    found = analyse_table(simulated(runs=3))
    calls: list[Path] = []

    def dies(path: Path, write: object) -> Path:
        calls.append(path)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return write_aside(path, write)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(module, "write_aside", dies)
        with pytest.raises(KeyboardInterrupt):
            write_results(found, tmp_path)
    assert (tmp_path / "correlations.csv").is_file()
    assert not (tmp_path / "results.json").exists()
    write_results(found, tmp_path)
    assert not (tmp_path / ".results.part").exists()


def test_what_is_there_must_be_ours(tmp_path: Path, toy_suite: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    with pytest.raises(StoreError, match="was not written by oodles"):
        check_target(mine, lambda _: False)
    with pytest.raises(StoreError, match="exists and is not a regular file"):
        check_target(tmp_path, lambda _: True)
    with pytest.raises(StoreError, match="exists and is not a regular file"):
        check_target(Path(os.devnull), lambda _: True)
    done = oodles("check", "--suite", toy_suite, "--pin", toy_suite)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "was not written by oodles" in done.stderr
    for _ in range(2):
        assert "wrote" in oodles("check", "--suite", toy_suite, "--pin", tmp_path / "toy.rows").stderr


@pytest.mark.parametrize(("umask", "mode"), [(0o027, 0o640), (0o077, 0o600), (0o022, 0o644)])
def test_the_umask_is_kept(table: Path, umask: int, mode: int) -> None:
    was = os.umask(umask)
    try:
        oodles("analyse", table, "--out", table.parent / "results")
        oodles("report", table, "--out", table.parent / "report.html")
    finally:
        os.umask(was)
    written = [*(table.parent / "results").iterdir(), table.parent / "report.html"]
    assert len(written) == 12
    assert {oct(path.stat().st_mode & 0o777) for path in written} == {oct(mode)}


def test_a_refused_score_leaves_nothing(toy_suite: Path, tiny_model: Path) -> None:
    """Weights that cannot be read: the folder is not claimed, and the name of the run is free."""
    folder = toy_suite.parent
    broken = folder / "broken"
    shutil.copytree(tiny_model, broken)
    (broken / "model.safetensors").write_bytes(b"\x10" * 4096)
    given = ("score", "--suite", toy_suite, "--in-domain", "home", "--out", folder / "out", "--run", "one")
    refused = oodles(*given, "--model", broken)
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1), refused.stderr
    assert not (folder / "out").exists()
    done = oodles(*given, "--model", "tiny-llama-untrained")
    assert done.returncode == 0, done.stderr
    (folder / "full").mkdir()
    (folder / "full" / "mine.txt").write_text("")
    given = (*given[:-3], folder / "full", "--run", "one")
    assert "holds files that are not an oodles study" in oodles(*given, "--model", "tiny-llama-untrained").stderr
    assert [p.name for p in (folder / "full").iterdir()] == ["mine.txt"]
