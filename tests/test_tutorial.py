"""docs/your-own-trainer.md does what it says: its scripts and commands are run, on the tiny model and small samples."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from transformers import Trainer

from conftest import oodles
from oodles.store.folder import run_folders
from oodles.store.table import read_runs
from test_own_loop import evaluator as own_evaluator
from test_own_loop import fit

PAGE = (Path(__file__).parent.parent / "docs" / "your-own-trainer.md").read_text()
SMALLER_TRAINING = {
    '"smollm2-135m-q4"': '"tiny-llama-untrained"',
    "learning_rate=": "use_cpu=True, disable_tqdm=True, learning_rate=",
}
SMALLER = {**SMALLER_TRAINING, "limit=200": "limit=12, limit_in_domain=40"}
LOG_STEPS = [0, 1, 2, 4, 8, 16, 32]


class Block(NamedTuple):
    file: str  # the file that the page names before it
    language: str
    text: str


def blocks(section: str) -> list[Block]:
    """The blocks of a section, in order."""
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"(?:^`([\w.]+)`:\n\n)?^```(\w+)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    return [Block(*block) for block in found]


def with_added_lines(script: str, diff: str) -> str:
    """The script with the lines that the page adds, each beside the lines it stands beside there."""
    lines, at = script.splitlines(), 0
    for part in diff.split("@@\n"):
        marked = part.splitlines()
        at = lines.index(next(line[1:] for line in marked if line.startswith(" ")), at)
        for line in marked:
            if line.startswith("+"):
                lines.insert(at, line[1:])
            assert lines[at] == line[1:]
            at += 1
    return "\n".join(lines) + "\n"


def write_script(folder: Path, name: str, text: str, smaller: Mapping[str, str]) -> None:
    for old, new in smaller.items():
        assert old in text, f"{name}: the page does not say {old}"
        text = text.replace(old, new)
    (folder / name).write_text(text)


def run_commands(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The commands of a block, in this process: loading torch for each would take longer than all of them."""
    printed = ""
    monkeypatch.chdir(folder)
    for line in text.splitlines():
        program, *words = shlex.split(line, comments=True)
        if program == "python":
            monkeypatch.setattr(sys, "argv", words)
            runpy.run_path(words[0], run_name="__main__")
        else:
            assert program == "oodles"
            done = oodles(*words)
            assert done.returncode == 0, done.stderr
            printed += done.stdout
    return printed


def test_the_scripts_and_commands_lead_to_a_report(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (script,), (diff,) = blocks("A script"), blocks("Five lines")
    write_script(tmp_path, script.file, script.text, SMALLER_TRAINING)
    run_commands("python train.py 0", tmp_path, monkeypatch)  # before a line is added
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoints", "train.py"]

    assert sum(line.startswith("+") for line in diff.text.splitlines()) == 5
    write_script(tmp_path, script.file, with_added_lines(script.text, diff.text), SMALLER)
    train, look, analyse = blocks("Several runs")
    run_commands(train.text, tmp_path, monkeypatch)
    printed = run_commands(look.text, tmp_path, monkeypatch)
    assert len(re.findall(r"mine_\d +done +32 +56", printed)) == 5
    assert (tmp_path / "results" / "results.json").is_file()
    assert (tmp_path / "runs" / "mine" / "report.html").stat().st_size > 10_000
    (tmp_path / "analyse.py").write_text(analyse.text)
    run_commands("python analyse.py", tmp_path, monkeypatch)
    check_written(tmp_path / "runs" / "mine")

    (killed,) = blocks("Resume your training")
    first, second = killed.text.splitlines()
    (logged,) = blocks("Scores in your trackers")
    whole = with_added_lines(script.text, diff.text).replace("trainer.train(", f"{logged.text}trainer.train(")
    write_script(tmp_path, script.file, whole, SMALLER)
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_maybe_log_save_evaluate", interrupted(Trainer._maybe_log_save_evaluate, at=17))
        with pytest.raises(KeyboardInterrupt):
            run_commands(first, tmp_path, monkeypatch)
    assert "mine_5" not in finished(tmp_path)
    run_commands(second, tmp_path, monkeypatch)
    assert "mine_5" in finished(tmp_path)

    sft, command = blocks("SFTTrainer")
    write_script(tmp_path, sft.file, sft.text, SMALLER)
    run_commands(command.text, tmp_path, monkeypatch)
    assert sorted(int(p.name) for p in tmp_path.glob("runs/mine/runs/lora_0/adapters/*")) == LOG_STEPS
    steps = read_runs(tmp_path / "runs" / "mine").groupby(["model", "run"]).step.unique()
    assert {tuple(sorted(found)) for found in steps} == {tuple(LOG_STEPS)}
    assert set(steps.index.get_level_values("model")) == {"mine", "lora"}


def test_a_loop_that_is_no_trainer(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, command, _ = blocks("Loops that are not a Trainer")
    smaller = {name: new for name, new in SMALLER.items() if name != "learning_rate="}
    write_script(tmp_path, loop.file, loop.text, smaller)
    run_commands(command.text, tmp_path, monkeypatch)
    assert sorted(read_runs(tmp_path / "runs" / "loop").step.unique()) == [0, 2, 4, 8]
    assert [f.status for f in run_folders(tmp_path / "runs" / "loop")] == ["done"]


def test_the_callback_for_lightning(tmp_path: Path, toy_suite: Path) -> None:
    *_, callback = blocks("Loops that are not a Trainer")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs
        lightning = pytest.importorskip("pytorch_lightning")
        ours = own_evaluator(toy_suite, tmp_path / "s")
        names: dict[str, Any] = {"lightning": lightning, "evaluator": ours, "STEPS": (2, 4)}
        exec(callback.text, names)
        fit(lightning, [names["Evaluates"]()], tmp_path)
    assert sorted(read_runs(tmp_path / "s").step.unique()) == [0, 2, 4]


def finished(folder: Path) -> list[str]:
    return [f.name for f in run_folders(folder / "runs" / "mine") if f.status == "done"]


def interrupted(save: Any, at: int) -> Any:
    """As transformers does it, with Ctrl-C after a step."""

    def method(self: Trainer, *arguments: Any, **more: Any) -> None:
        save(self, *arguments, **more)
        if self.state.global_step == at:
            raise KeyboardInterrupt

    return method


def check_written(out: Path) -> None:
    """The files that the page lists are those that are there."""
    (listed,) = re.findall(r"^## What is written\n(.*?)(?=^## )", PAGE, flags=re.MULTILINE | re.DOTALL)
    names = {name.rpartition("<run>/")[2].rstrip("/") for name in re.findall(r"`([\w./<>]+)`", listed)}
    there = {p.name for p in (out / "runs" / "mine_0").iterdir()} | {"study.json", "sets"}
    assert names - {"out", "adapters"} == there  # the model of this script is no PEFT model
    spec = json.loads((out / "runs" / "mine_0" / "spec.json").read_text())
    assert (spec["model"]["label"], spec["seed"], spec["train_set"]) == ("mine", 0, "daily")
