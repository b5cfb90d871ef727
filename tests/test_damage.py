"""Files of a run that are damaged, missing or unreadable: noticed, named, and nothing committed is lost by the way."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerCallback

from conftest import missing, oodles
from oodles.contracts import run_id_of
from oodles.disk import damage_of, put, put_folder
from oodles.errors import StoreError
from oodles.runs import runner
from oodles.runs.train import checkpoints, last_checkpoint
from oodles.store.damage import mend_scores
from oodles.store.folder import RunFolder, run_folders
from oodles.store.scores import read_scores, scan_scores
from oodles.store.sidecars import read_json
from oodles.store.spec import read_spec
from oodles.store.table import read_runs
from oodles.study.launch import run
from oodles.study.load import load_study
from test_resume import same
from test_store import folder_with_scores, keep

NAME = "tiny-llama-untrained_home_0_8"
ONE = ["grid.seeds=[0]"]
LONG = [*ONE, "train.epochs=4", "eval.steps=[2, 4]", "lora.dropout=0.1"]  # 8 steps


class Fails(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            raise RuntimeError("on purpose")


def unfinished(study: Path, out: Path, settings: list[str], step: int) -> RunFolder:
    """A run that failed after a step, with its checkpoint."""
    real = runner.fine_tune

    def fails(*arguments: Any, **more: Any) -> None:
        *first, callbacks = arguments
        real(*first, [*callbacks, Fails(step)], **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "fine_tune", fails)
        assert len(run(load_study(study, settings), out).failed) == 1
    return run_folders(out)[0]


def flip(path: Path, place: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if place is None else place] ^= 1
    path.write_bytes(data)


# checkpoints


@pytest.mark.parametrize("file", ["adapter_model.safetensors", "optimizer.pt", "manifest.json"])
@pytest.mark.parametrize("harm", ["flipped", "missing", "truncated"])
def test_a_damaged_checkpoint_is_dropped(file: str, harm: str, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs" / "r")
    names = ("adapter_model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json")
    for step in ("4", "6"):
        with put_folder(folder.checkpoints / step) as aside:
            for name in names:
                (aside / name).write_bytes(name.encode() * 50)
    assert last_checkpoint(folder) == folder.checkpoints / "6"
    path = folder.checkpoints / "6" / file
    if harm == "flipped":
        flip(path)
    elif harm == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-9])
    assert last_checkpoint(folder) == folder.checkpoints / "4"
    assert [p.name for p in checkpoints(folder)] == ["4"]
    assert "dropped damaged checkpoint 6: " in folder.log.read_text()
    assert file in folder.log.read_text() or (file, harm) == ("manifest.json", "flipped")  # it may name another


@pytest.mark.parametrize("file", ["adapter_model.safetensors", "scheduler.pt", "rng_state.pth"])
def test_a_run_with_a_damaged_checkpoint_ends_as_if_undisturbed(file: str, toy_study: Path, tmp_path: Path) -> None:
    """Training begins anew, and repeats what was committed."""
    folder = unfinished(toy_study, tmp_path / "out", LONG, 5)
    (checkpoint,) = checkpoints(folder)
    before = folder.scores.read_text()
    assert damage_of(checkpoint) == ""
    if file == "adapter_model.safetensors":
        flip(checkpoint / file)
    else:
        (checkpoint / file).unlink()  # transformers goes on without it, silently
    run(load_study(toy_study, LONG), tmp_path / "out", retry=True)
    run(load_study(toy_study, LONG), tmp_path / "new")
    same(tmp_path / "out", tmp_path / "new")
    assert folder.scores.read_text().startswith(before)
    assert f"dropped damaged checkpoint 4: {file} " in folder.log.read_text()


# adapters


def test_a_damaged_adapter_is_refused_and_trained_again_when_removed(toy_study: Path, tmp_path: Path) -> None:
    out, suite = tmp_path / "out", toy_study.parent / "toy.toml"
    few = [*ONE, 'eval.test_sets=["home", "away", "far"]', "eval.limit=8"]
    run(load_study(toy_study, few), out)
    adapter = run_folders(out)[0].adapter(2)
    flip(adapter / "adapter_model.safetensors")
    before = {path: path.read_bytes() for path in (out / "runs").rglob("*.parquet")}
    told = (
        f"{adapter}: the adapter is damaged: adapter_model.safetensors has changed since it was written; restore it, or"
    )
    verify = oodles("run", toy_study, "--set", "grid.seeds=[0]", "--set", "eval.limit=8", "--out", out, "--verify")
    grown = oodles("run", toy_study, "--set", "grid.seeds=[0]", "--out", out)  # no limit: all of every set
    added = oodles("score", "--runs", out, "--suite", suite, "--add-test-set", "far", "--limit", "12")
    for refused in (verify, grown, added):
        assert refused.returncode == 2
        assert told in refused.stderr
        assert "Traceback" not in refused.stderr
    assert {path: path.read_bytes() for path in (out / "runs").rglob("*.parquet")} == before
    shutil.rmtree(adapter)
    assert oodles("run", toy_study, "--set", "grid.seeds=[0]", "--out", out).returncode == 0
    run(load_study(toy_study, ONE), tmp_path / "new")
    same(out, tmp_path / "new")


def test_an_adapter_of_ours_is_checked_by_score(toy_study: Path, tmp_path: Path) -> None:
    run(load_study(toy_study, ONE), tmp_path / "out")
    adapter = run_folders(tmp_path / "out")[0].adapter(4)
    command = ["score", "--model", "tiny-llama-untrained", "--adapter", adapter, "--in-domain", "home"]
    command += ["--suite", toy_study.parent / "toy.toml"]
    assert oodles(*command, "--out", tmp_path / "a").returncode == 0
    flip(adapter / "adapter_model.safetensors")
    refused = oodles(*command, "--out", tmp_path / "b")
    assert refused.returncode == 2
    assert f"{adapter}: the adapter is damaged: adapter_model.safetensors has changed" in refused.stderr


# records


@pytest.mark.parametrize("adapters", ["true", "false"])
def test_a_damaged_early_record_of_an_unfinished_run_is_made_anew(
    adapters: str, toy_study: Path, tmp_path: Path
) -> None:
    """Training is past its step: it is scored from the adapter, or trained again."""
    settings = [*LONG, f"eval.keep_adapters={adapters}"]
    folder = unfinished(toy_study, tmp_path / "out", settings, 5)
    flip(folder.records(2, "away"))
    outcome = run(load_study(toy_study, settings), tmp_path / "out", retry=True)
    assert outcome.done == (NAME,)
    assert "step 2, test set 'away' is evaluated again" in folder.log.read_text()
    run(load_study(toy_study, settings), tmp_path / "new")
    same(tmp_path / "out", tmp_path / "new", adapters=adapters == "true")


def test_an_outcome_is_not_done_while_evaluations_are_missing(
    toy_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIMULATED: a training that forgets to evaluate."""
    monkeypatch.setattr(runner, "_train", lambda *_: None)
    monkeypatch.setattr(runner, "_complete", lambda *_: None)
    outcome = run(load_study(toy_study, ONE), tmp_path / "out")
    assert not outcome.done
    assert "still lacks 12 of its evaluations, the first at step 0 on test set 'away'" in outcome.refused[0][1]


def test_missing_records_are_counted_at_a_shared_step_0_too(toy_study: Path, tmp_path: Path) -> None:
    """Step 0 is the same in both runs and is not analysed; its records are gone all the same."""
    out = tmp_path / "out"
    run(load_study(toy_study), out)
    for folder in run_folders(out):
        shutil.rmtree(folder.path / "records")
    told = oodles("report", out, "--out", tmp_path / "report.html").stderr
    for folder in run_folders(out):
        n = len(read_scores(folder))
        assert f"run {folder.name}: {n} of {n} evaluations have no records;" in told


def test_what_may_be_deleted_stops_nothing(toy_study: Path, tmp_path: Path) -> None:
    """records/ and env.json: the study is analysed, reported and grown, by sets, by steps and by runs."""
    out = tmp_path / "out"
    few = ["eval.test_sets=['home', 'away', 'far']", "eval.limit=8"]
    run(load_study(toy_study, [*ONE, *few]), out)
    folder = run_folders(out)[0]
    shutil.rmtree(folder.path / "records")
    lines = folder.scores.read_text()
    analysed = oodles("analyse", out)
    assert analysed.returncode == 0, analysed.stderr
    assert (
        f"note: run {NAME}: 12 of 12 evaluations have no records; `oodles run --verify` recomputes them"
        in analysed.stderr
    )
    outcome = run(load_study(toy_study), out)  # all of every set, and another run, which could take over a step 0
    assert len(outcome.done) == 2
    assert folder.scores.read_text().startswith(lines)
    shutil.rmtree(folder.path / "records")
    folder.env.unlink()
    assert oodles("report", out, "--out", tmp_path / "report.html").returncode == 0
    assert len(run(load_study(toy_study, ["eval.steps=[1, 2, 3]"]), out).done) == 2
    assert {line.step for line in read_scores(folder)} == {0, 1, 2, 3, 4}
    assert oodles("run", toy_study, "--out", out, "--set", "eval.steps=[1, 2, 3]", "--verify").returncode == 0
    run(load_study(toy_study, ["eval.steps=[1, 2, 3]"]), tmp_path / "new")
    same(out, tmp_path / "new")


def test_a_record_that_cannot_be_read_erases_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIMULATED, because root may read everything: the disk says EACCES."""
    folder = folder_with_scores(tmp_path)
    before, record = folder.scores.read_bytes(), folder.records(4, "away")
    real = Path.read_bytes

    def denied(path: Path) -> bytes:
        if path in (record, closed):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    closed: Path | None = None
    monkeypatch.setattr(Path, "read_bytes", denied)
    with pytest.raises(StoreError, match=r"away\.parquet: cannot be read \(Permission denied\); check the file's mode"):
        mend_scores(folder, missing=True)
    record, closed = folder.path, folder.scores
    with pytest.raises(StoreError, match=r"scores\.jsonl: cannot be read \(Permission denied\)"):
        mend_scores(folder)
    monkeypatch.undo()
    assert folder.scores.read_bytes() == before


def test_a_record_that_a_user_may_not_read_erases_nothing() -> None:
    """The real thing: a process without root's powers."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = folder_with_scores(Path(scratch))
        record, before = folder.records(4, "away"), folder.scores.read_bytes()
        record.chmod(0)
        told = _as_nobody(Path(scratch), lambda: mend_scores(folder, missing=True))
        assert told.startswith(f"StoreError {record}: cannot be read (Permission denied)")
        assert folder.scores.read_bytes() == before


def _as_nobody(root: Path, call: Callable[[], object]) -> str:
    """What a call says in a child that may read its own files only; they are given to it."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                for path in (root, *root.rglob("*")):
                    os.chown(path, 65534, 65534)
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            os.write(writes, str(call()).encode())
        except Exception as error:
            os.write(writes, f"{type(error).__name__} {error}".encode())
        finally:
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads, encoding="utf-8") as said:
        told = said.read()
    os.waitpid(child, 0)
    return told


# specs


def test_the_id_follows_from_the_fields(toy_study: Path, tmp_path: Path) -> None:
    run(load_study(toy_study, ONE), tmp_path / "out")
    told = read_json(run_folders(tmp_path / "out")[0].spec)
    assert run_id_of(told) == told["run_id"]
    for key, value in (("seed", 1), ("shots", 16), ("train_hash", "x"), ("data_seed", 9)):
        assert run_id_of({**told, key: value}) != told["run_id"]
    assert run_id_of({**told, "recipe": {**told["recipe"], "epochs": 3}}) != told["run_id"]
    assert run_id_of({**told, "pattern": {**told["pattern"], "truncate": None}}) != told["run_id"]


def test_every_flipped_bit_of_a_spec_is_noticed(toy_study: Path, tmp_path: Path) -> None:
    run(load_study(toy_study, ONE), tmp_path / "out")
    folder = run_folders(tmp_path / "out")[0]
    whole, intact = folder.spec.read_bytes(), read_spec(folder)
    unnoticed = []
    for place in range(len(whole)):
        data = bytearray(whole)
        data[place] ^= 1 << place % 8
        folder.spec.write_bytes(data)
        try:
            told = read_spec(folder)
        except StoreError:
            continue
        if told != intact:
            unnoticed.append(place)
    changed = [place for place in unnoticed if whole[place : place + 1].strip()]
    assert not changed
    folder.spec.write_bytes(whole.replace(b'"limit": null', b'"limit": 1234'))  # no part of the id
    with pytest.raises(
        StoreError, match=r"no scores that can be read; .*skipped: .*spec\.json: changed since it was written"
    ):
        read_runs(tmp_path / "out")
    before = folder.scores.read_bytes()
    refused = oodles("run", toy_study, "--set", "grid.seeds=[0]", "--out", tmp_path / "out")
    assert refused.returncode == 2
    assert f"{folder.spec}: changed since it was written; restore the file, or remove {folder.path}" in refused.stderr
    assert folder.scores.read_bytes() == before


@pytest.mark.parametrize("finished", [True, False])
def test_a_run_without_its_spec_is_named_and_kept(finished: bool, toy_study: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(load_study(toy_study), out)
    folder = RunFolder(out / "runs" / NAME)
    folder.spec.unlink()
    if not finished:
        folder.done.unlink()
    before = folder.scores.read_bytes()
    rows = json.loads(oodles("status", out, "--json").stdout)
    assert {row["run"]: row["status"] for row in rows}[NAME] == "damaged"
    assert "no spec.json" in oodles("status", out).stdout
    for command in (["run", toy_study], ["run", toy_study, "--verify"]):
        refused = oodles(*command, "--out", out)
        assert refused.returncode == 2
        assert f"{folder.path}: has scores, but no spec.json; restore the file, or remove" in refused.stderr
    assert (
        f"note: {folder.path}: skipped: it has scores but no spec.json; restore the file"
        in oodles("analyse", out).stderr
    )
    reported = oodles("report", out, "--out", tmp_path / "report.html")
    assert f"note: {folder.path}: skipped: " in reported.stderr
    assert folder.scores.read_bytes() == before


# writing


def test_a_line_after_a_torn_one_stands_alone(tmp_path: Path) -> None:
    """Whoever goes on there, e.g. OODCallback in somebody's resumed training."""
    folder = folder_with_scores(tmp_path)
    whole = folder.scores.read_bytes()
    folder.scores.write_bytes(whole[:-20])
    keep(folder, 8, "home")
    assert [(line.step, line.test_set) for line in read_scores(folder)][-1] == (8, "home")
    assert len(scan_scores(folder).scores) == 4
    assert scan_scores(folder).lost == []
    folder.scores.write_bytes(whole[:-1])  # only its end is missing: it counted, and counts
    keep(folder, 8, "home")
    assert len(scan_scores(folder).scores) == 5
    assert scan_scores(folder).lost == []


def test_a_name_is_on_the_disk_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every file and folder: contents, then the rename, then the folder it is in."""
    done: list[tuple[str, str]] = []
    real_sync, real_rename, real_replace = os.fsync, Path.rename, Path.replace

    def fsync(handle: int) -> None:
        done.append(("sync", str(Path(f"/proc/self/fd/{handle}").readlink())))
        real_sync(handle)

    def rename(path: Path, target: Path) -> Path:
        done.append(("rename", str(target)))
        return real_rename(path, target)

    def replace(path: Path, target: Path) -> Path:
        done.append(("rename", str(target)))
        return real_replace(path, target)

    if not Path("/proc/self/fd").is_dir():
        missing("this system does not name open files")
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", rename)
    monkeypatch.setattr(Path, "replace", replace)
    with put(tmp_path / "new" / "file.json") as aside:
        aside.write_text("x")
    file, folder = f"{tmp_path}/new/.file.json.{os.getpid()}.part", f"{tmp_path}/new"
    wanted = [("sync", str(tmp_path)), ("sync", file), ("rename", f"{folder}/file.json"), ("sync", folder)]
    assert done == wanted
    done.clear()
    with put_folder(tmp_path / "adapters" / "4") as aside:
        (aside / "a").write_text("x")
    part = f"{tmp_path}/adapters/.4.part"
    assert done[0] == ("sync", str(tmp_path))
    assert {path for what, path in done[1:4] if what == "sync"} == {f"{part}/a", f"{part}/manifest.json", part}
    assert done[4:] == [("rename", f"{tmp_path}/adapters/4"), ("sync", f"{tmp_path}/adapters")]


def test_damaged_records_are_evaluated_again(tmp_path: Path) -> None:
    folder = folder_with_scores(tmp_path)
    path = folder.records(4, "away")
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 4
    path.write_bytes(data)
    assert "away.parquet: damaged; step 4, test set 'away' is evaluated again" in mend_scores(folder)[0]
    assert (4, "away") not in {(line.step, line.test_set) for line in read_scores(folder)}
    assert len(read_scores(folder)) == 3
