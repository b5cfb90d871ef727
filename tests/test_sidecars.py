"""The files beside the scores: what is damaged is rewritten from the study, or stops one run and names itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from conftest import STUDY, oodles
from oodles.disk import write_json
from oodles.errors import StoreError
from oodles.store.folder import RunFolder
from oodles.store.locks import read_lock
from oodles.store.sidecars import read_json, sidecar
from oodles.study.launch import run
from oodles.study.load import load_study

NAMES = ("tiny-llama-untrained_home_0_8", "tiny-llama-untrained_home_1_8")
DAMAGE = {
    "removed": None,
    "emptied": b"",
    "garbled": b"\x00\xff{",
    "of another kind": b"[1, 2]",
    "deep": b"[" * 100_000,
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """A folder with a study's TOML and, in `out`, its two runs."""
    from conftest import TINY_SUITE, write_rows

    folder = tmp_path_factory.mktemp("finished")
    text = TINY_SUITE
    for name in ("home", "away", "far"):
        text += f'\n[[test_sets]]\nname = "{name}"\nsource = {{ file = "{name}.csv" }}\n'
        text += 'labels = { e = 0, c = 1 }\ndrop = ["n"]\n'
    for name, rows in (("home_train", 40), ("home", 24), ("away", 16), ("far", 20)):
        write_rows(folder / f"{name}.csv", name, rows)
    (folder / "toy.toml").write_text(text)
    (folder / "study.toml").write_text(STUDY)
    run(folder / "study.toml", folder / "out")
    return folder


@pytest.fixture
def study(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "study")
    return tmp_path / "study"


def damage(path: Path, content: bytes | None) -> None:
    path.unlink()
    if content is not None:
        path.write_bytes(content)


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("name", ["study.json", "audit.json", f"runs/{NAMES[0]}/draw.json"])
def test_what_the_study_says_is_written_anew(name: str, how: str, study: Path) -> None:
    path = study / "out" / name
    before = read_json(path)
    damage(path, DAMAGE[how])
    outcome = run(study / "study.toml", study / "out")
    assert outcome.skipped == NAMES
    after = read_json(path)
    ours = [
        k for k, v in before.items() if v and (k != "sets" or name != "audit.json")
    ]  # an audit names the data's files
    assert {k: after[k] for k in ours} == {k: before[k] for k in ours}
    assert oodles("report", study / "out").returncode == 0


def test_every_flipped_bit_of_a_json_file_is_noticed_or_means_nothing(study: Path) -> None:
    path = study / "out" / "study.json"
    whole, intact = path.read_bytes(), read_json(path)
    word = range(whole.index(b'"checksum'), whole.index(b'"checksum') + 10)
    for place in range(len(whole)):
        data = bytearray(whole)
        data[place] ^= 1 << place % 8
        path.write_bytes(data)
        held = sidecar(path)
        assert held in (None, intact) or place in word  # another word for it: a key that nobody reads


def test_a_damaged_set_is_written_anew(study: Path) -> None:
    for path in (study / "out" / "sets").iterdir():
        whole = path.read_bytes()
        data = bytearray(whole)
        data[60] ^= 4  # among the ids
        path.write_bytes(data)
        assert run(study / "study.toml", study / "out").skipped == NAMES
        assert path.read_bytes() == whole
        path.unlink()
        assert run(study / "study.toml", study / "out").skipped == NAMES
        assert path.read_bytes() == whole


def test_a_folder_without_study_json_is_known_by_its_runs(study: Path, tmp_path: Path) -> None:
    """Another study does not get it, nor does a folder of anything else become one."""
    (study / "out" / "study.json").write_text("{")
    with pytest.raises(StoreError, match=r"holds a damaged study\.json and no run of this study"):
        run(load_study(study / "study.toml", ["train.learning_rate=0.5"]), study / "out")
    (study / "out" / "study.json").unlink()
    with pytest.raises(StoreError, match="holds files that are not an oodles study"):
        run(load_study(study / "study.toml", ["train.learning_rate=0.5"]), study / "out")
    assert not (study / "out" / "study.json").exists()
    text = (study / "far.csv").read_text()
    (study / "far.csv").write_text(text.replace("sits", "stands"))  # what it knew of the sets is known again
    with pytest.raises(StoreError, match=r"test set 'far' differs from earlier runs \(.*, now "):
        run(study / "study.toml", study / "out")
    (study / "far.csv").write_text(text)
    assert run(study / "study.toml", study / "out").skipped == NAMES


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_environment_is_a_caveat(how: str, study: Path) -> None:
    damage(study / "out" / "runs" / NAMES[0] / "env.json", DAMAGE[how])
    assert run(study / "study.toml", study / "out").skipped == NAMES
    done = oodles("report", study / "out")
    assert done.returncode == 0, done.stderr
    told = f"run {NAMES[0]}: env.json is missing or damaged, so its versions are not known"
    assert told in (study / "out" / "report.html").read_text()


def test_a_failure_that_cannot_be_read_is_tried_again(study: Path) -> None:
    folder = RunFolder(study / "out" / "runs" / NAMES[1])
    folder.done.unlink()
    write_json(folder.failed, {"reason": "RuntimeError: no luck", "log": "log.txt"})
    assert run(study / "study.toml", study / "out").failed_before == ((NAMES[1], "RuntimeError: no luck"),)
    folder.failed.write_text(folder.failed.read_text().replace("luck", "lucK"))
    shown = json.loads(oodles("status", study / "out", "--json").stdout)
    assert "failed.json is damaged" in shown[1]["reason"]
    assert run(study / "study.toml", study / "out").done == (NAMES[1],)
    assert not folder.failed.exists()


def test_a_damaged_lock_of_the_study_names_itself(study: Path) -> None:
    lock = study / "out" / ".study.lock"
    lock.write_text("{")
    done = oodles("run", study / "study.toml", "--out", study / "out")
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if not line.startswith("study ")] == done.stderr.splitlines()[-1:]
    assert f"{lock}: cannot be read as a lock" in done.stderr
    assert "remove the file" in done.stderr
    lock.unlink()
    assert oodles("run", study / "study.toml", "--out", study / "out").returncode == 0
    assert read_lock(lock) is None
