"""Killed at any moment and started again, a run ends as if nothing had happened: to the bit."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import STUDY, oodles
from oodles.contracts import Lora, Recipe, Seeds
from oodles.model.load import attach_lora
from oodles.runs import runner
from oodles.runs.train import checkpoints, fine_tune, last_checkpoint
from oodles.store.folder import RunFolder, run_folders
from oodles.store.scores import read_scores
from oodles.store.sidecars import read_json
from oodles.store.table import read_records, read_runs
from oodles.study.launch import run
from oodles.study.load import load_study
from test_scoring import tiny
from test_train import planted

KILLS = Path(__file__).parent / "kills.py"


@pytest.fixture
def long_study(toy_suite: Path, tiny_model: Path) -> Path:
    """Enough steps to be killed in, with dropout, so that every random generator matters."""
    path = toy_suite.parent / "study.toml"
    text = STUDY.replace("epochs = 2", "epochs = 60\naccumulate = 2\nweight_decay = 0.1\nschedule = 'cosine'")
    text = text.replace("seeds = [0, 1]", "seeds = [0]")
    path.write_text(text + "\n[lora]\ndropout = 0.2\n\n[eval]\nsteps = 'linear'\npoints = 8\n")
    return path


def same(a: Path, b: Path, adapters: bool = True) -> None:
    """Two studies' folders hold the same results: table, records, adapters if kept; nothing twice."""
    for read in (read_runs, read_records):
        first, second = read(a), read(b)
        keys = [c for c in ("run", "step", "test_set", "metric", "example") if c in first.columns]
        first, second = (t.sort_values(keys).reset_index(drop=True) for t in (first, second))
        assert not first.duplicated(keys).any()
        assert first.equals(second)
    for one, other in zip(run_folders(a), run_folders(b), strict=True):
        assert one.status == other.status == "done"
        for step in {line.step for line in read_scores(one) if adapters}:
            name = "adapter_model.safetensors"
            assert (one.adapter(step) / name).read_bytes() == (other.adapter(step) / name).read_bytes()
        assert not one.checkpoints.exists()


@pytest.mark.parametrize(("kind", "kills"), [("KILL", 4), ("TERM", 1), ("USR2", 1)])
def test_a_killed_run_ends_as_if_undisturbed(kind: str, kills: int, long_study: Path, tmp_path: Path) -> None:
    campaign(long_study, tmp_path / "out", kind, kills)


@pytest.mark.long
def test_twenty_kills(long_study: Path, tmp_path: Path) -> None:
    campaign(long_study, tmp_path / "out", "KILL", 20)


def campaign(study: Path, out: Path, kind: str, kills: int) -> None:
    command = [sys.executable, str(KILLS), str(study), str(out), "--kills", str(kills), "--signal", kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    killed = sorted(out.glob("killed-*"))
    assert killed
    assert "resumes from step" in "".join(f.log.read_text() for root in killed for f in run_folders(root))
    for root in killed:
        same(out / "undisturbed", root)


def test_a_polite_signal_is_told_and_the_same_command_goes_on(long_study: Path, tmp_path: Path) -> None:
    command = ["run", str(long_study), "--out", str(tmp_path / "out")]
    process = subprocess.Popen(
        [sys.executable, "-c", "from oodles.cli import main; main()", *command],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    log = tmp_path / "out" / "runs" / "tiny-llama-untrained_home_0_8" / "log.txt"
    deadline = time.monotonic() + 120
    while not log.is_file() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM, told
    assert f"stopped by SIGTERM; the same command resumes in {tmp_path / 'out'}" in told
    assert "stopped by SIGTERM" in log.read_text()
    assert oodles(*command).returncode == 0
    run(load_study(long_study), tmp_path / "again")
    same(tmp_path / "out", tmp_path / "again")


def test_checkpoints_are_small_whole_and_removed(tmp_path: Path) -> None:
    """Adapter-sized: no weights of the model, no tokenizer; the newest only."""
    from oodles.model.embedded import tiny_tokenizer

    folder = RunFolder(tmp_path / "runs" / "one")
    model = attach_lora(tiny("llama"), Lora(), seed=0)
    recipe = Recipe(epochs=3, batch_size=8)
    fine_tune(model, tiny_tokenizer(), planted(16), recipe, Seeds.all(0), [], folder=folder, keep_at=lambda _: True)
    assert [p.name for p in checkpoints(folder)] == ["6"]
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad) * 4
    size = sum(p.stat().st_size for p in Path(str(last_checkpoint(folder))).iterdir())
    assert size < 3 * trained + 60_000  # the adapter, its two moments, and the state of the generators
    assert not any(p.name.startswith(("tokenizer", "model.")) for p in Path(str(last_checkpoint(folder))).iterdir())


def test_a_half_written_checkpoint_is_not_used(long_study: Path, tmp_path: Path) -> None:
    study = load_study(long_study, ["eval.keep_checkpoints=true"])
    run(study, tmp_path / "a")
    folder = run_folders(tmp_path / "a")[0]
    assert [p.name for p in checkpoints(folder)] == ["60"]  # kept on request
    (folder.checkpoints / ".part" / "checkpoint-61").mkdir(parents=True)
    assert Path(str(last_checkpoint(folder))).name == "60"


def test_named_seeds_change_one_thing_each(long_study: Path, tmp_path: Path) -> None:
    """The draw, the adapter, the order and the dropout: each has a seed, recorded, and only that one matters."""
    start, ends = {}, {}
    for name in ("none", "adapter_seed", "order_seed", "dropout_seed"):
        extra = [] if name == "none" else [f"train.{name}=7"]
        run(load_study(long_study, ["eval.steps=[1]", *extra]), tmp_path / name)
        folder = run_folders(tmp_path / name)[0]
        start[name] = (folder.adapter(0) / "adapter_model.safetensors").read_bytes()
        ends[name] = (folder.adapter(60) / "adapter_model.safetensors").read_bytes()
        seeds = read_json(folder.spec)["seeds"]
        assert {k for k, v in seeds.items() if v == 7} == {name.removesuffix("_seed")} - {"none"}
    assert start["adapter_seed"] != start["none"] == start["order_seed"] == start["dropout_seed"]
    assert len(set(ends.values())) == 4


def test_what_a_run_tells(long_study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(load_study(long_study), tmp_path / "out")
    lines = run_folders(tmp_path / "out")[0].log.read_text().splitlines()
    sets = "".join(rf"{name} \d\.\d\d  " for name in ("home", "away", "far", "Yes"))
    pattern = rf"step 8/60  loss \d\.\d+  {sets}[\d.]+ s  [\d.]+ GB  \d+s left"
    assert any(re.fullmatch(pattern, line) for line in lines), lines
    assert "step 8/60" in capsys.readouterr().err


def test_failures_say_why_and_the_others_go_on(toy_study: Path, tmp_path: Path) -> None:
    text = toy_study.read_text().replace(
        'models = ["tiny-llama-untrained"]', 'models = ["tiny-llama-untrained", "bad"]'
    )
    folder = nan_model(tmp_path / "nan-model")
    toy_study.write_text(text + f'\n[models.bad]\nsource = "{folder}"\n')
    done = oodles("run", toy_study, "--out", tmp_path / "out")
    assert done.returncode == 1
    assert "bad_home_0_8" in done.stderr
    assert "scores must be finite" in done.stderr
    reason = json.loads((tmp_path / "out/runs/bad_home_0_8/failed.json").read_text())
    assert reason["log"] == "log.txt"
    assert RunFolder(tmp_path / "out/runs/tiny-llama-untrained_home_1_8").status == "done"


def test_a_model_is_gone_before_the_next_is_loaded(
    toy_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a run that failed, and after one that is done."""
    text = toy_study.read_text().replace('models = ["tiny-', 'models = ["bad", "tiny-')
    toy_study.write_text(text + f'\n[models.bad]\nsource = "{nan_model(tmp_path / "nan-model")}"\n')
    loaded: list[Any] = []
    alive: list[int] = []
    real = runner.load_model

    def watched(*arguments: Any) -> Any:
        alive.append(sum(model() is not None for model in loaded))
        model = real(*arguments)
        loaded.append(weakref.ref(model))
        return model

    monkeypatch.setattr(runner, "load_model", watched)
    outcome = run(load_study(toy_study), tmp_path / "out")
    assert len(outcome.failed) == len(outcome.done) == 2
    assert alive == [0, 0, 0]  # the second of the good runs takes over what the first had loaded


def nan_model(path: Path) -> Path:
    from oodles.model.embedded import tiny_tokenizer

    model = tiny("llama")
    model.model.norm.weight.data.fill_(float("nan"))
    model.save_pretrained(path)
    tiny_tokenizer().save_pretrained(path)
    return path


class Short(torch.nn.Module):
    """A layer that has no memory left: SIMULATES what a GPU says."""

    def forward(self, *_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")


def test_out_of_memory_says_what_to_lower() -> None:
    from oodles.errors import ModelError
    from oodles.model.embedded import tiny_tokenizer
    from oodles.model.forward import causal_lm

    model = attach_lora(tiny("llama"), Lora(), seed=0)
    causal_lm(model).model.layers[1] = Short()
    with pytest.raises(ModelError, match=r"at step 1 with \[train\] batch_size 4; halve it and double accumulate"):
        fine_tune(model, tiny_tokenizer(), planted(8), Recipe(batch_size=4), Seeds.all(0), [])
