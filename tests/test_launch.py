"""A whole study on a tiny model: run folders, skipping, failing, repeating to the bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from conftest import oodles, write_rows
from oodles.errors import ConfigError, ModelError, StoreError
from oodles.runs.schedule import schedule_of
from oodles.store.folder import RunFolder, run_folders
from oodles.store.scores import read_scores
from oodles.store.sidecars import read_json
from oodles.store.table import read_records, read_runs
from oodles.study.grid import expand
from oodles.study.launch import run
from oodles.study.load import load_study
from oodles.suite import render as suite_render


def test_a_study_gives_complete_run_folders(toy_study: Path, tmp_path: Path) -> None:
    outcome = run(load_study(toy_study), tmp_path / "out")
    assert outcome.done == ("tiny-llama-untrained_home_0_8", "tiny-llama-untrained_home_1_8")
    assert not outcome.failed
    for folder in run_folders(tmp_path / "out"):
        assert folder.status == "done"
        steps = {line.step for line in read_scores(folder)}
        assert steps == {0, 1, 2, 4}
        assert {line.test_set for line in read_scores(folder)} == {"home", "away", "far"}
        assert {p.name for p in (folder.path / "adapters").iterdir()} == {"0", "1", "2", "4"}
        assert (folder.adapter(4) / "adapter_model.safetensors").is_file()
        assert len(read_json(folder.draw)["ids"]) == 8
        assert read_json(folder.env)["packages"]["torch"]
        assert "step 4/4" in folder.log.read_text()
        spec = read_json(folder.spec)
        assert spec["run_id"].startswith("3-")
        assert spec["shots"] == 8
    table = read_runs(tmp_path / "out")
    assert set(table[table.role == "in_domain"].test_set) == {"home"}
    assert set(table.n) == {16, 11, 14}  # the in-domain set is never sampled unless asked for


def test_test_sets_are_rendered_once_for_a_whole_study(
    toy_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, rendered = suite_render.render, []

    def count(pattern: Any, examples: Any, name: str, limit: int | None = None) -> Any:
        rendered.append(name)
        return real(pattern, examples, name, limit)

    monkeypatch.setattr(suite_render, "render", count)
    assert len(run(load_study(toy_study), tmp_path / "out").done) == 2
    assert sorted(rendered) == ["away", "far", "home"]


def test_two_empty_folders_give_the_same_table_and_records(toy_study: Path, tmp_path: Path) -> None:
    study = load_study(toy_study)
    for name in ("a", "b"):
        run(study, tmp_path / name)
    pd.testing.assert_frame_equal(read_runs(tmp_path / "a"), read_runs(tmp_path / "b"), check_exact=True)
    pd.testing.assert_frame_equal(read_records(tmp_path / "a"), read_records(tmp_path / "b"), check_exact=True)


def test_step_0_is_computed_once_and_equals_computing_it_again(toy_study: Path, tmp_path: Path) -> None:
    run(load_study(toy_study), tmp_path / "both")
    run(load_study(toy_study, ["grid.seeds=[1]"]), tmp_path / "one")
    name = "tiny-llama-untrained_home_1_8"
    copied, computed = (RunFolder(tmp_path / root / "runs" / name) for root in ("both", "one"))
    for line in read_scores(computed):
        assert (
            copied.records(line.step, line.test_set).read_bytes()
            == computed.records(line.step, line.test_set).read_bytes()
        )
    assert read_scores(copied) == read_scores(computed)


@pytest.mark.parametrize(
    ("override", "loads"), [("lora.dropout=0.1", 1), ('lora.bias="all"', 2), ("train.gradient_checkpointing=true", 2)]
)
def test_runs_of_a_model_load_its_weights_once_and_are_as_if_each_was_alone(
    toy_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, override: str, loads: int
) -> None:
    """Not where training changes more of the model than its adapter."""
    from oodles.runs import runner

    real, loaded = runner.load_model, []

    def count(*given: Any) -> Any:
        loaded.append(given)
        return real(*given)

    monkeypatch.setattr(runner, "load_model", count)
    assert len(run(load_study(toy_study, [override]), tmp_path / "both").done) == 2
    assert len(loaded) == loads
    run(load_study(toy_study, [override, "grid.seeds=[1]"]), tmp_path / "one")
    name = "tiny-llama-untrained_home_1_8"
    both, one = read_records(tmp_path / "both"), read_records(tmp_path / "one")
    both = both[both["run"] == name].reset_index(drop=True)
    pd.testing.assert_frame_equal(both, one.reset_index(drop=True), check_exact=True)
    for step in (1, 2, 4):
        files = [tmp_path / root / "runs" / name / "adapters" / str(step) for root in ("both", "one")]
        weights = [(file / "adapter_model.safetensors").read_bytes() for file in files]
        assert weights[0] == weights[1]


def test_finished_runs_are_skipped_and_a_study_can_grow(toy_study: Path, tmp_path: Path) -> None:
    run(load_study(toy_study), tmp_path / "out")
    before = {f.name: f.scores.stat().st_mtime_ns for f in run_folders(tmp_path / "out")}
    again = run(load_study(toy_study, ["grid.seeds=[0, 1, 2]"]), tmp_path / "out")
    assert again.done == ("tiny-llama-untrained_home_2_8",)
    assert len(again.skipped) == 2
    after = {f.name: f.scores.stat().st_mtime_ns for f in run_folders(tmp_path / "out")}
    assert before.items() <= after.items()


def test_another_recipe_under_the_same_name_is_refused(toy_study: Path, tmp_path: Path) -> None:
    run(load_study(toy_study, ["grid.seeds=[0]"]), tmp_path / "out")
    with pytest.raises(StoreError, match="but the study's run of this name is"):
        run(load_study(toy_study, ["grid.seeds=[0]", "train.learning_rate=0.5"]), tmp_path / "out")
    with pytest.raises(StoreError, match="holds study 'toy'"):
        run(load_study(toy_study, ["name=other"]), tmp_path / "out")
    with pytest.raises(StoreError, match="holds files that are not an oodles study"):
        run(load_study(toy_study), toy_study.parent)
    assert not (toy_study.parent / ".lock").exists()


def test_one_failed_run_is_recorded_and_the_rest_go_on(
    toy_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from oodles.runs import runner

    real = runner.fine_tune

    def breaks_for_seed_0(model, tokenizer, shots, recipe, seeds, callbacks, **more):  # type: ignore[no-untyped-def]
        if seeds.order == 0:
            raise RuntimeError("out of luck\nsecond line")
        real(model, tokenizer, shots, recipe, seeds, callbacks, **more)

    monkeypatch.setattr(runner, "fine_tune", breaks_for_seed_0)
    outcome = run(load_study(toy_study), tmp_path / "out")
    assert outcome.failed == (("tiny-llama-untrained_home_0_8", "RuntimeError: out of luck"),)
    assert outcome.done == ("tiny-llama-untrained_home_1_8",)
    folder = RunFolder(tmp_path / "out" / "runs" / "tiny-llama-untrained_home_0_8")
    assert folder.status == "failed"
    assert "Traceback" in folder.log.read_text()
    monkeypatch.undo()
    shown = json.loads(oodles("status", tmp_path / "out", "--json").stdout)
    assert [(r["status"], r["reason"]) for r in shown] == [("failed", "RuntimeError: out of luck"), ("done", "")]
    again = run(load_study(toy_study), tmp_path / "out")
    assert again.done == ()
    assert again.failed_before == ((folder.name, "RuntimeError: out of luck"),)  # told, not hidden
    assert run(load_study(toy_study), tmp_path / "out", retry=True).done == (folder.name,)
    assert folder.status == "done"


def test_what_is_not_finished_is_said(toy_study: Path, tmp_path: Path) -> None:
    root = tmp_path / "out"
    run(load_study(toy_study), root)
    folders = run_folders(root)
    folders[0].done.unlink()
    folders[1].path.rename(tmp_path / "elsewhere")
    shown = json.loads(oodles("status", root, "--json").stdout)
    assert [r["status"] for r in shown] == ["started", "missing"]
    done = oodles("report", root)
    assert "is not finished (started)" in done.stderr
    assert "is not finished (started)" in (root / "report.html").read_text()
    gone = f"1 of 2 planned runs has no scores (not made yet, or gone): {folders[1].name}"
    assert done.stderr.count(gone) == 1


def test_a_study_by_name_or_path(toy_study: Path, tmp_path: Path) -> None:
    assert len(run(toy_study, tmp_path / "out").done) == 2


def test_a_killed_study_goes_on_and_gives_the_same_table(toy_study: Path, tmp_path: Path) -> None:
    run(load_study(toy_study), tmp_path / "whole")
    command = [
        sys.executable,
        "-c",
        "from oodles.cli import main; main()",
        "run",
        str(toy_study),
        "--out",
        str(tmp_path / "cut"),
    ]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL)
    second = RunFolder(tmp_path / "cut" / "runs" / "tiny-llama-untrained_home_1_8")
    deadline = time.monotonic() + 120
    while not second.scores.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert second.status == "started"
    assert not second.done.exists()
    resumed = run(load_study(toy_study), tmp_path / "cut")
    assert resumed.skipped == ("tiny-llama-untrained_home_0_8",)
    pd.testing.assert_frame_equal(read_runs(tmp_path / "whole"), read_runs(tmp_path / "cut"), check_exact=True)
    pd.testing.assert_frame_equal(read_records(tmp_path / "whole"), read_records(tmp_path / "cut"), check_exact=True)


def test_expand_settles_every_run_before_training(toy_study: Path) -> None:
    grid = expand(load_study(toy_study, ["grid.shots=[4, 8]", "grid.seeds=[0, 42, 99]"]))
    assert [j.spec.name for j in grid.jobs][:2] == ["tiny-llama-untrained_home_0_4", "tiny-llama-untrained_home_42_4"]
    assert len({j.spec.run_id for j in grid.jobs}) == 6
    assert all(len(j.draw.examples) == j.spec.shots for j in grid.jobs)
    assert schedule_of(grid.jobs[-1].spec) == (0, 1, 2, 4)
    fixed = expand(load_study(toy_study, ["grid.data_seed=7"]))
    assert len({j.spec.draw_hash for j in fixed.jobs}) == 1
    assert len({j.spec.run_id for j in fixed.jobs}) == 2


@pytest.mark.parametrize(
    ("override", "kind", "message"),
    [
        ("grid.shots=[7]", ConfigError, "not divisible by the 2 labels"),
        ("grid.shots=[400]", ConfigError, "has only 13 examples"),
        ('grid.train_sets=["hom"]', ConfigError, "no train set 'hom'; did you mean 'home'"),
        ('grid.patterns=["qestion"]', ConfigError, "did you mean 'question'"),
        ('eval.test_sets=["home", "away", "fra"]', ConfigError, "did you mean 'far'"),
        ('eval.test_sets=["away", "far"]', ConfigError, "lack an in-domain score"),
        ('eval.test_sets=["home", "far"]', ConfigError, "at least two OOD sets"),
        ("eval.steps=[1, 400]", ConfigError, "holds 400, but the run has 4 steps"),
        ('grid.models=["tiny-lama-untrained"]', ModelError, "did you mean 'tiny-llama-untrained'"),
        ('grid.models=["./nowhere"]', ModelError, "no such folder"),
        ("grid.seeds=[1, 1]", ConfigError, "two runs are named"),
        ("suite=mini.tml", ConfigError, "no such file or built-in suite"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_written(
    toy_study: Path, tmp_path: Path, override: str, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        run(load_study(toy_study, [override]), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_full_disk_stops_the_study_with_one_line(toy_study: Path, tmp_path: Path) -> None:
    """A tmpfs in its own mount namespace that fills up during the first run."""
    from conftest import missing

    disk = tmp_path / "disk"
    disk.mkdir()
    command = f"{sys.executable} -c 'from oodles.cli import main; main()' run {toy_study} --out {disk}/out"
    inner = (
        f"mount -t tmpfs -o size=64k none {disk} && {{ {command}; code=$?; find {disk} -name '*.part'; exit $code; }}"
    )
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", inner], capture_output=True, text=True, check=False
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        missing(f"no mount namespace here: {done.stderr.strip()[:100]}")
    assert done.returncode == 2, done.stderr
    assert "DiskError" in done.stderr
    assert "no space left on the disk" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert done.stdout.strip() == ""


def test_the_command_line_reports_the_outcome(toy_study: Path, tmp_path: Path) -> None:
    dry = oodles("run", toy_study, "--out", tmp_path / "out", "--dry-run", "--json")
    assert [r["status"] for r in json.loads(dry.stdout)["runs"]] == ["missing", "missing"]
    done = oodles("run", toy_study, "--out", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["done"]) == 2
    assert "step 4/4" in done.stderr
    assert "left]" in done.stderr  # progress with the time left, on stderr
    shown = oodles("status", tmp_path / "out", "--json")
    assert [(r["status"], r["step"], r["scores"]) for r in json.loads(shown.stdout)] == [("done", 4, 12)] * 2


def test_two_train_sets_in_one_folder_keep_their_own_roles(toy_study: Path, toy_suite: Path, tmp_path: Path) -> None:
    """Step 0 is computed once and taken over; what is in-domain differs from run to run."""
    text = toy_suite.read_text()
    extra = text[text.index("[[train_sets]]") : text.index("[[test_sets]]")].replace('"home"', '"away"')
    toy_suite.write_text(text + extra.replace("home_train.csv", "away_train.csv"))
    write_rows(tmp_path / "away_train.csv", "away_train", 40)
    both = ['grid.train_sets=["home", "away"]', "grid.seeds=[0]"]
    run(load_study(toy_study, both), tmp_path / "out")
    table = read_runs(tmp_path / "out")
    roles = table.drop_duplicates(["train_set", "test_set"]).set_index(["train_set", "test_set"])["role"]
    assert roles["home", "home"] == roles["away", "away"] == "in_domain"
    assert roles["home", "away"] == roles["away", "home"] == "ood"
    assert table.groupby(["run", "test_set"])["role"].nunique().max() == 1


def test_a_launcher_of_several_processes_is_refused(toy_study: Path, tmp_path: Path) -> None:
    done = oodles("run", toy_study, "--out", tmp_path / "out", WORLD_SIZE="4")
    assert done.returncode == 2
    assert done.stderr.startswith("ConfigError: oodles run: WORLD_SIZE is 4: a launcher (torchrun, accelerate launch)")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_launcher_that_is_no_number_is_refused_before_anything_is_written(toy_study: Path, tmp_path: Path) -> None:
    done = oodles("run", toy_study, "--out", tmp_path / "out", WORLD_SIZE="abc")
    assert (done.returncode, done.stderr) == (
        2,
        "ConfigError: oodles run: WORLD_SIZE is 'abc', expected a number; unset it\n",
    )
    assert not (tmp_path / "out").exists()
