"""A packed study from anybody: only its own files are unpacked, no more than a study has, and damage is one line."""

from __future__ import annotations

import json
import re
import threading
import time
import zipfile
from pathlib import Path

import pytest

import oodles as oo
from conftest import oodles
from oodles.disk import sealed
from oodles.errors import ConfigError, StoreError
from oodles.store.archive import opened, pack
from oodles.store.sidecars import sidecar
from oodles.store.table import DamageWarning, read_records, read_runs
from test_store import folder_with_scores, keep


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder_with_scores(tmp_path / "study")
    return pack(tmp_path / "study").path


def add(file: Path, name: str, data: bytes, how: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(name, data, how)
    return file


def test_only_files_of_a_study_are_unpacked(file: Path, tmp_path: Path) -> None:
    names = ["../outside.json", "/tmp/x.json", "runs/../../up/spec.json", "runs/a/b/spec.json", "notes.txt"]
    names += ["runs/r/records/../../x.parquet", "sets/../study2.json", "sets/x.npz", "runs/r/adapters/0/weights.bin"]
    names += ["runs\\r\\spec.json", "__MACOSX/study.json", "runs/r/./env.json"]
    for name in names:
        add(file, name, b"{}")
    with opened(file) as folder:
        found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert found == {
        "study.json",
        "runs/r/spec.json",
        "runs/r/scores.jsonl",
        *(f"runs/r/records/{step}/{name}.parquet" for step in (0, 4) for name in ("home", "away")),
    }
    assert sorted(p.name for p in tmp_path.iterdir()) == ["study", "study.oodles.zip"]


def test_a_bomb_is_refused_before_it_is_unpacked(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(file, "audit.json", b" " * 200_000_000)
    assert file.stat().st_size < 400_000
    began = time.process_time()
    with pytest.raises(StoreError, match=r"would unpack to 200 MB, more than 50 MB \(100 times its size"):
        read_runs(file)
    assert time.process_time() - began < 2
    monkeypatch.setenv("OODLES_UNPACK_GB", "1e-6")
    with pytest.raises(StoreError, match="more than 0 MB"):
        read_runs(file)
    monkeypatch.setenv("OODLES_UNPACK_GB", "much")
    with pytest.raises(ConfigError, match="OODLES_UNPACK_GB is 'much', expected a number"):
        read_runs(file)


@pytest.mark.parametrize("damage", ["deflate", "encrypted", "method", "cut", "no zip", "twice", "no study"])
def test_damage_is_one_line(file: Path, damage: str, tmp_path: Path) -> None:
    data = bytearray(file.read_bytes())
    first = data.index(b"PK\x01\x02")  # the directory's first entry
    if damage == "deflate":
        with zipfile.ZipFile(file) as archive:
            at = archive.getinfo("runs/r/scores.jsonl").header_offset + 30 + len("runs/r/scores.jsonl")
        data[at : at + 40] = b"\xff" * 40
    elif damage == "encrypted":
        for at in (i for i in range(len(data)) if data[i : i + 4] in (b"PK\x01\x02", b"PK\x03\x04")):
            data[at + (8 if data[at + 2] == 1 else 6)] |= 1
    elif damage == "method":
        data[first + 10] = 97
    elif damage == "cut":
        del data[len(data) // 2 :]
    elif damage == "no zip":
        data[:] = b"hello"
    file.write_bytes(data)
    if damage == "twice":
        with pytest.warns(UserWarning, match="Duplicate name"):
            add(file, "runs/r/scores.jsonl", b"")
    elif damage == "no study":
        file.unlink()
        add(file, "notes.txt", b"")
    done = oodles("analyse", file)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert "StoreError" in done.stderr
    assert str(file) in done.stderr


@pytest.mark.parametrize("command", ["pack", "status"])
def test_what_needs_a_folder_says_what_a_packed_file_is(command: str, file: Path) -> None:
    done = oodles(command, file)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert f"{file}: a file, perhaps a packed study; expected the folder of a study: `unzip {file} -d" in done.stderr
    assert sorted(path.name for path in file.parent.iterdir()) == ["study", "study.oodles.zip"]


def test_messages_name_the_packed_file_not_where_it_was_unpacked(file: Path) -> None:
    told = re.escape(f"{file}: no scores of test set 'awaz'; choose another --test-set (did you mean 'away'?)")
    for read in (read_runs, lambda path, sets: oo.analyse(path, test_sets=sets)):
        with pytest.raises(StoreError, match=f"^{told}$"):
            read(file, ["awaz"])


def test_notes_on_damage_name_the_packed_file(tmp_path: Path) -> None:
    folder_with_scores(tmp_path / "study", "a")
    folder_with_scores(tmp_path / "study", "b")
    (tmp_path / "study/runs/b/spec.json").write_text("{")
    packed = pack(tmp_path / "study").path
    with pytest.warns(DamageWarning, match=f"^{re.escape(str(packed))}/runs/b: skipped"):
        (note,) = read_runs(packed).attrs["notes"]
    assert "oodles-" not in note  # the temporary folder


def test_packing_beside_a_running_study_tells_no_damage(tmp_path: Path) -> None:
    """Lines and records are committed all the time; what is packed is what was there at one moment."""
    root = tmp_path / "study"
    folder = folder_with_scores(root)
    stop = threading.Event()

    def work() -> None:
        for step in range(5, 100):
            keep(folder, step, "home")
            keep(folder, step, "away")
            if stop.wait(0.001):
                return

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for number in range(8):
            file = pack(root, tmp_path / f"{number}.zip").path
            table, records = read_runs(file), read_records(file)
            assert table.attrs["notes"] == records.attrs["notes"] == []
            assert set(zip(table.step, table.test_set, strict=True)) == set(
                zip(records.step, records.test_set, strict=True)
            )
    finally:
        stop.set()
        worker.join()


def test_pack_replaces_a_packed_study_only(tmp_path: Path) -> None:
    folder_with_scores(tmp_path / "study")
    mine = tmp_path / "mine.zip"
    add(mine, "mine.txt", b"mine")
    with pytest.raises(StoreError, match="was not written by oodles"):
        pack(tmp_path / "study", mine)
    with pytest.raises(StoreError, match="was not written by oodles"):
        pack(tmp_path / "study", tmp_path / "study" / "study.json")
    assert pack(tmp_path / "study").path == pack(tmp_path / "study").path


def test_a_run_of_an_older_name_is_packed_too(tmp_path: Path) -> None:
    folder = folder_with_scores(tmp_path / "study")
    folder.path.rename(folder.path.with_name("my model (1)_home"))
    assert set(read_runs(pack(tmp_path / "study").path).run) == {"my model (1)_home"}


def test_a_crafted_line_reads_nothing_outside_its_run(tmp_path: Path) -> None:
    folder = folder_with_scores(tmp_path / "study")
    other = folder_with_scores(tmp_path / "other")
    secret = other.records(0, "home")
    held = [json.loads(line) for line in folder.scores.read_text().splitlines()]
    for key, value in (("records", f"../../../../../other/runs/r/records/0/{secret.name}"), ("records", str(secret))):
        lines = [{k: v for k, v in line.items() if k not in ("crc", "records_crc")} for line in held]
        lines[0][key] = value
        folder.scores.write_text("".join(json.dumps(line) + "\n" for line in lines))
        with pytest.warns(UserWarning, match="line 1 is damaged"):
            table = read_runs(tmp_path / "study")
        assert len(table.groupby(["step", "test_set"])) == 3


def test_a_packed_audit_shows_no_text_and_no_folder(tmp_path: Path) -> None:
    folder_with_scores(tmp_path / "study")
    facts = {"n": 2, "hash": "h", "shown": [{"text": "A secret premise?", "answer": " Yes"}]}
    rows = [
        {"set": "a", "kind": "test", "origin": "/home/me/a.parquet", "rendered": {"question": {"m": facts}}},
        {"set": "b", "kind": "test", "origin": "hub org/name", "rendered": {}},
        {"set": "c", "kind": "test", "origin": "../of me/c.csv", "rendered": {}},
    ]
    said = {"severity": "warning", "code": "duplicate-conflict", "where": "a", "text": "1 example occurs with both"}
    findings = [{**said, "items": ["ids 1, 2: A secret premise | A secret hypothesis"]}]
    record = {"allowed": [], "counts": {}, "findings": findings, "sets": rows, "suite": "nli"}
    (tmp_path / "study" / "audit.json").write_text(json.dumps(sealed(record)))
    with opened(pack(tmp_path / "study").path) as study:
        text = (study / "audit.json").read_text()
        kept = sidecar(study / "audit.json")
    assert "secret" not in text
    assert "/home/me" not in text
    assert kept is not None
    assert kept["findings"] == [said]
    assert [row["origin"] for row in kept["sets"]] == ["a.parquet", "hub org/name", "c.csv"]
    assert kept["sets"][0]["rendered"]["question"]["m"] == {"n": 2, "hash": "h"}
