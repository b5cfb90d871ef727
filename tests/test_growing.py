"""A grid: filters, growing, sharing the work, packing, and the study's own 144 runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from benchmarks.grid import write_runs
from transformers import TrainerCallback

from conftest import oodles, write_rows
from oodles.disk import write_json
from oodles.errors import ConfigError, StoreError
from oodles.runs import runner
from oodles.store.archive import pack
from oodles.store.folder import RunFolder, run_folders
from oodles.store.scores import read_scores
from oodles.store.sidecars import read_json
from oodles.store.table import read_records, read_runs
from oodles.study.grid import expand, select
from oodles.study.launch import begin, run
from oodles.study.load import load_study
from test_locks import HOLD
from test_resume import same

NAMES = ["tiny-llama-untrained_home_0_8", "tiny-llama-untrained_home_1_8"]


def test_the_study_has_its_144_runs(real_data: Path) -> None:
    """Named as its 144 configuration files are, with the models of its README."""
    grid = expand(load_study("paper", [f'data="{real_data}"']))
    names = [job.spec.name for job in grid.jobs]
    assert len(names) == len(set(names)) == 144
    models = ("olmo", "olmo13", "olmo32", "opt", "opt6,7", "opt13", "opt30", "smol")
    wanted = {f"{m}_{t}_{s}_{k}" for m in models for t in ("snli", "mnli") for s in (0, 42, 99) for k in (32, 64, 128)}
    assert set(names) == wanted
    sources = {job.spec.model.label: job.spec.model.source for job in grid.jobs}
    assert sources["opt6,7"] == "facebook/opt-6.7b"
    assert {job.spec.recipe.precision for job in grid.jobs} == {"fp16", "bf16"}
    assert len({job.spec.run_id for job in grid.jobs}) == 144


def test_filters(toy_study: Path, tmp_path: Path) -> None:
    grid = expand(load_study(toy_study, ["grid.shots=[4, 8]"]))
    assert {j.spec.seed for j in select(grid, ["*_home_1_*"]).jobs} == {1}
    assert {j.spec.shots for j in select(grid, (), [4]).jobs} == {4}
    assert len(select(grid, ["tiny-*"]).jobs) == 4  # a model's name
    with pytest.raises(ConfigError, match=r"--only 'opt\*' matches none of the 4 runs"):
        select(grid, ["opt*"])
    with pytest.raises(ConfigError, match="--shots 16: the study has 4, 8"):
        select(grid, (), [16])
    done = oodles("run", toy_study, "--only", "*_1_8", "--out", tmp_path / "out", "--json")
    assert json.loads(done.stdout)["done"] == [NAMES[1]]
    assert json.loads(oodles("run", toy_study, "--out", tmp_path / "out", "--json").stdout)["done"] == [NAMES[0]]


def test_more_test_sets_are_scored_from_the_adapters(toy_study: Path, tmp_path: Path) -> None:
    """Without training again, and to the bit what a study with all sets from the start has."""
    text = toy_study.read_text()
    run(load_study(toy_study), tmp_path / "whole")
    toy = toy_study.parent / "toy.toml"
    full = toy.read_text()
    toy_study.write_text(text + '\n[eval]\ntest_sets = ["home", "away", "far"]\nlimit = 8\n')
    run(load_study(toy_study), tmp_path / "out")
    toy_study.write_text(text)
    assert toy.read_text() == full
    begun = [f.log.read_text().count("begins") for f in run_folders(tmp_path / "out")]
    outcome = run(load_study(toy_study), tmp_path / "out")  # a larger limit: all of every set
    assert outcome.done == tuple(NAMES)
    assert [f.log.read_text().count("begins") for f in run_folders(tmp_path / "out")] == begun
    same(tmp_path / "out", tmp_path / "whole")
    assert run(load_study(toy_study), tmp_path / "out").skipped == tuple(NAMES)


def test_the_audit_of_a_study_that_grows_keeps_what_was_said_of_earlier_train_sets(toy_study: Path) -> None:
    """Above all that a train set holds test examples, which is said of two sets at once."""
    toy, root = toy_study.parent / "toy.toml", toy_study.parent / "out"
    home = (toy.parent / "home_train.csv").read_text().splitlines()
    far = (toy.parent / "far.csv").read_text().splitlines()
    (toy.parent / "home_train.csv").write_text("\n".join([*home, far[1].replace("0,", "90,", 1)]) + "\n")
    write_rows(toy.parent / "away_train.csv", "away train", 40)
    away = 'name = "away"\nsource = { file = "away_train.csv" }\nlabels = { e = 0, c = 1 }\ndrop = ["n"]\n'
    toy.write_text(toy.read_text() + f"\n[[train_sets]]\n{away}")
    alone, grown = (expand(load_study(toy_study, [f'grid.train_sets=["{name}"]'])) for name in ("home", "away"))
    begin(alone, root, ["shots-in-test"])
    begin(grown, root)
    record = read_json(root / "audit.json")
    assert [row["set"] for row in record["sets"] if row["kind"] == "train"] == ["home", "away"]
    said = [(finding["where"], finding["code"]) for finding in record["findings"]]
    assert {("home (train), far", "train-in-test"), ("home (train), far", "shots-in-test")} <= set(said)
    assert record["allowed"] == ["shots-in-test"]
    assert {("home (train)", "balance"), ("away (train)", "balance")} <= set(said)
    assert len(said) == len(set(said)) == sum(record["counts"].values())
    begin(grown, root)
    assert read_json(root / "audit.json") == record


def test_a_folder_of_an_older_version_is_read_but_not_grown(toy_study: Path, tmp_path: Path) -> None:
    """A run id of version 2 means a training whose first warm-up step moved nothing."""
    out = tmp_path / "out"
    run(load_study(toy_study, ["grid.seeds=[0]"]), out)
    folder = run_folders(out)[0]
    told = read_json(folder.spec)
    write_json(folder.spec, {**told, "run_id": told["run_id"].replace("3-", "2-", 1)})  # which had no hash of it all
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for command in (["run", toy_study], ["run", toy_study, "--dry-run"], ["run", toy_study, "--only", "*_1_8"]):
        refused = oodles(*command, "--out", out)
        assert refused.returncode == 2
        assert f"{out}: run {NAMES[0]} was trained by another version of oodles (run id of version 2" in refused.stderr
        assert "choose another --out" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
    adding = oodles("score", "--runs", out, "--suite", toy_study.parent / "toy.toml", "--add-test-set", "far")
    assert adding.returncode == 2
    assert "but not add to it" in adding.stderr
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert oodles("analyse", out).returncode == 0
    assert oodles("report", out, "--out", tmp_path / "report.html").returncode == 0


def test_more_steps_are_trained_again_and_only_they_are_evaluated(toy_study: Path, tmp_path: Path) -> None:
    run(load_study(toy_study), tmp_path / "out")
    before = {f.name: f.scores.read_text() for f in run_folders(tmp_path / "out")}
    outcome = run(load_study(toy_study, ["eval.steps=[1, 2, 3]"]), tmp_path / "out")
    assert outcome.done == tuple(NAMES)
    for folder in run_folders(tmp_path / "out"):
        assert folder.scores.read_text().startswith(before[folder.name])  # nothing that was committed is touched
        assert {line.step for line in read_scores(folder)} == {0, 1, 2, 3, 4}
        assert "training again: step " in folder.log.read_text()
    run(load_study(toy_study, ["eval.steps=[1, 2, 3]"]), tmp_path / "new")
    same(tmp_path / "out", tmp_path / "new")


class Nudge(TrainerCallback):
    """Training that is not repeatable, as on a GPU: from a step on the weights are a little different."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        if state.global_step + 1 == self.step:
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.data.add_(1e-3)


def nudged(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    real = runner.fine_tune

    def other(model: Any, tokenizer: Any, shots: Any, recipe: Any, seeds: Any, callbacks: Any, **more: Any) -> None:
        real(model, tokenizer, shots, recipe, seeds, [Nudge(step), *callbacks], **more)

    monkeypatch.setattr(runner, "fine_tune", other)


@pytest.mark.parametrize("keep", ["true", "false"])
@pytest.mark.parametrize(("at", "first"), [(1, 1), (3, 4)])
def test_two_trainings_never_meet_in_one_run(
    keep: str, at: int, first: int, toy_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trained again for step 3, a run that does not repeat itself is evaluated anew from where it differs."""
    one = ["grid.seeds=[0]", f"eval.keep_adapters={keep}"]
    run(load_study(toy_study, one), tmp_path / "out")
    folder = run_folders(tmp_path / "out")[0]
    before = folder.scores.read_text().splitlines()
    nudged(monkeypatch, at)
    more = [*one, "eval.steps=[1, 2, 3]"]
    assert run(load_study(toy_study, more), tmp_path / "out").done == (NAMES[0],)
    run(load_study(toy_study, more), tmp_path / "new")
    same(tmp_path / "out", tmp_path / "new", adapters=keep == "true")
    assert f"step {first} differs from the earlier training" in folder.log.read_text()
    kept = [line for line in before if json.loads(line)["step"] < first]
    after = folder.scores.read_text().splitlines()
    assert after[: len(kept)] == kept  # what both trainings share stays byte for byte
    gone = folder.superseded.read_text().splitlines()
    assert gone == before[len(kept) :]
    assert not set(gone) & set(after)


def test_a_step_that_is_no_longer_asked_for_is_compared_too(
    toy_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(load_study(toy_study, ["grid.seeds=[0]"]), tmp_path / "out")  # steps 0, 1, 2, 4
    nudged(monkeypatch, 1)
    more = load_study(toy_study, ["grid.seeds=[0]", "eval.steps=[3]"])
    run(more, tmp_path / "out")
    run(more, tmp_path / "new")
    same(tmp_path / "out", tmp_path / "new")  # nothing of the first training is left


def test_a_kept_checkpoint_does_not_hide_new_steps(toy_study: Path, tmp_path: Path) -> None:
    """With keep_checkpoints training seemed to be at its end already."""
    keep = ["grid.seeds=[0]", "eval.keep_checkpoints=true"]
    run(load_study(toy_study, keep), tmp_path / "out")
    assert run(load_study(toy_study, [*keep, "eval.steps=[1, 2, 3]"]), tmp_path / "out").done == (NAMES[0],)
    folder = run_folders(tmp_path / "out")[0]
    assert {line.step for line in read_scores(folder)} == {0, 1, 2, 3, 4}
    assert not folder.superseded.exists()
    run(load_study(toy_study, [*keep, "eval.steps=[1, 2, 3]"]), tmp_path / "new")
    shutil.rmtree(folder.checkpoints)
    shutil.rmtree(run_folders(tmp_path / "new")[0].checkpoints)
    same(tmp_path / "out", tmp_path / "new")


def test_damaged_records_of_done_runs_are_made_anew(toy_study: Path, tmp_path: Path) -> None:
    run(load_study(toy_study), tmp_path / "out")
    run(load_study(toy_study), tmp_path / "again")
    path = run_folders(tmp_path / "out")[0].records(2, "away")
    path.write_bytes(b"\0" + path.read_bytes()[1:])
    told = oodles("analyse", tmp_path / "out")
    assert f"note: {path}: damaged or missing" in told.stderr
    assert "lost: the records of step 2, test set 'away'" in told.stderr
    assert oodles("run", toy_study, "--out", tmp_path / "out", "--verify").returncode == 0
    same(tmp_path / "out", tmp_path / "again")


def test_workers_share_the_runs(toy_study: Path, tmp_path: Path) -> None:
    done = oodles("run", toy_study, "--out", tmp_path / "out", "--workers", "2", "--json", OODLES_TEST="1")
    assert done.returncode == 0, done.stderr
    assert sorted(json.loads(done.stdout)["done"]) == NAMES
    run(load_study(toy_study), tmp_path / "one")
    same(tmp_path / "out", tmp_path / "one")
    assert not list((tmp_path / "out" / "locks").iterdir())


def test_two_commands_on_one_folder_share_the_work(toy_study: Path, tmp_path: Path) -> None:
    code = "from oodles.cli import main; main()"
    command = [sys.executable, "-c", code, "run", str(toy_study), "--out", str(tmp_path / "out"), "--json"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) for _ in "ab"]
    found = [json.loads(process.communicate()[0]) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted(name for f in found for name in f["done"]) == NAMES  # each by one of them
    assert not any(f["failed"] for f in found)


def test_status_shows_the_grid(toy_study: Path, tmp_path: Path) -> None:
    run(load_study(toy_study), tmp_path / "out", only=["*_0_8"])
    plain = oodles("status", tmp_path / "out")
    assert re.search(r"(?m)^1 run: 1 done; \d+s a run", plain.stdout)
    folder = RunFolder(tmp_path / "out" / "runs" / NAMES[1])
    held = subprocess.Popen([sys.executable, "-c", HOLD, str(folder.lock)], stdout=subprocess.PIPE)
    assert held.stdout is not None
    held.stdout.readline()
    write_json(tmp_path / "out" / "study.json", {**read_json(tmp_path / "out" / "study.json"), "runs": NAMES})
    rows = json.loads(oodles("status", tmp_path / "out", "--json").stdout)
    assert [r["status"] for r in rows] == ["done", "running"]
    assert f"process {held.pid}" in rows[1]["reason"]
    outcome = run(load_study(toy_study), tmp_path / "out")
    assert [name for name, _ in outcome.held] == [NAMES[1]]  # left to whoever is at it
    held.kill()
    held.wait()
    assert run(load_study(toy_study), tmp_path / "out").done == (NAMES[1],)  # a killed holder blocks nobody


def test_a_packed_study_is_read_like_the_folder(toy_study: Path, tmp_path: Path) -> None:
    run(load_study(toy_study), tmp_path / "out")
    done = oodles("pack", tmp_path / "out", "--json")
    file = Path(json.loads(done.stdout)["file"])
    assert file == tmp_path / "out.oodles.zip"
    pd.testing.assert_frame_equal(read_runs(file), read_runs(tmp_path / "out"))
    pd.testing.assert_frame_equal(read_records(file), read_records(tmp_path / "out"))
    assert oodles("analyse", file, "--json").stdout == oodles("analyse", tmp_path / "out", "--json").stdout
    assert oodles("report", file, "--out", tmp_path / "report.html").returncode == 0
    first = file.read_bytes()
    assert pack(tmp_path / "out").path.read_bytes() == first  # equal results make equal files
    assert b"adapter_model" not in first
    assert b"sits down today" not in first  # no text of the data
    file.write_bytes(first[: len(first) // 2])
    with pytest.raises(StoreError, match="cannot be read as a packed study"):
        read_runs(file)


def test_output_dir_is_the_default_root(toy_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path / "big-disk"))
    assert load_study(toy_study).out == str(tmp_path / "big-disk" / "runs" / "toy")
    monkeypatch.delenv("OUTPUT_DIR")
    assert load_study(toy_study).out == "runs/toy"


def test_a_whole_study_is_read_quickly(tmp_path: Path) -> None:
    """144 runs x 40 steps x 8 sets; the bound is generous, the benchmark has the figure."""
    write_runs(tmp_path, 144, 40, 8)
    start = time.process_time()
    table = read_runs(tmp_path)
    seconds = time.process_time() - start
    assert len(table) == 144 * 40 * 8 * 6
    assert table.value[table.metric == "accuracy"].iloc[9] == 0.02  # run 0, step 1, set 1
    assert seconds < 8  # of a core that others share; about one where nothing else runs


def heed_ctrl_c() -> None:
    """Where the tests run in a script's background, SIGINT is ignored, and so it would be in what they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_stops_all_workers_and_leaves_no_lock(toy_study: Path, tmp_path: Path) -> None:
    toy_study.write_text(toy_study.read_text().replace("epochs = 2", "epochs = 300"))
    command = ["run", str(toy_study), "--out", str(tmp_path / "out"), "--workers", "2"]
    process = subprocess.Popen(
        [sys.executable, "-c", "from oodles.cli import main; main()", *command],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=heed_ctrl_c,
    )  # fmt: skip
    deadline = time.monotonic() + 200
    while len(list((tmp_path / "out" / "runs").glob("*/scores.jsonl"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, told = process.communicate(timeout=120)
    assert process.returncode == 130, told
    assert told.splitlines()[-1] == f"stopped; the same command resumes in {tmp_path / 'out'}"
    assert "Traceback" not in told
    assert not list((tmp_path / "out" / "locks").iterdir())
    assert {f.status for f in run_folders(tmp_path / "out")} == {"started"}
