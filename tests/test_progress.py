"""What a long job tells on stderr: its phases at once, its share of the work, 100 % at the end."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import oodles
from oodles.store.folder import RunFolder


def percents(stderr: str) -> list[int]:
    return [int(share) for share in re.findall(r"^\[ *(\d+)%", stderr, flags=re.MULTILINE)]


@pytest.mark.parametrize("steps", [[], ["--set", "train.steps=3"]])
def test_progress_ends_at_100_percent(toy_study: Path, tmp_path: Path, steps: list[str]) -> None:
    """Also of a study that grows or resumes: what is there already is no work."""
    out = tmp_path / "out"
    first = oodles("run", toy_study, "--out", out, *steps, "--set", "grid.seeds=[0]")
    assert percents(first.stderr)[-1] == 100, first.stderr
    grown = oodles("run", toy_study, "--out", out, *steps)
    assert percents(grown.stderr)[-1] == 100, grown.stderr
    assert "100%" not in "".join(grown.stderr.splitlines(keepends=True)[:-1])
    last = RunFolder(out / "runs" / "tiny-llama-untrained_home_1_8")
    lines = last.scores.read_text().splitlines(keepends=True)
    last.scores.write_text("".join(lines[:-2]))
    resumed = oodles("run", toy_study, "--out", out, *steps)
    assert percents(resumed.stderr)[-1] == 100, resumed.stderr
    again = oodles("run", toy_study, "--out", out, *steps)
    assert percents(again.stderr) == []


def test_a_study_with_a_failed_run_does_not_end_at_100_percent(
    toy_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from oodles.runs import runner

    train = runner.fine_tune

    def unlucky(*arguments: Any, **options: Any) -> None:
        if "_1_8" in str(options["folder"].path):
            raise RuntimeError("out of luck")
        train(*arguments, **options)

    monkeypatch.setattr(runner, "fine_tune", unlucky)
    done = oodles("run", toy_study, "--out", tmp_path / "out")
    assert done.returncode == 1
    assert 40 < percents(done.stderr)[-1] < 100, done.stderr


def test_a_redirected_run_says_at_once_what_it_does(toy_study: Path, tmp_path: Path) -> None:
    """The first line comes before torch is loaded, one per phase after it."""
    out = tmp_path / "out"
    code = (
        "import sys, oodles.model.load as load\nfrom oodles.cli import main\nrequire = load.require_training\n"
        "def told(what):\n    sys.stderr.write(f'torch is loaded: {\"torch\" in sys.modules}\\n')\n    require(what)\n"
        "load.require_training = told\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "run", str(toy_study), "--out", str(out), "--set", "grid.seeds=[0]"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.splitlines()[:4] == [
        f"study toy: 1 run, 0 of them finished before, in {out}; loading torch",
        "torch is loaded: False",
        "study toy: auditing the data",
        "[  0%] tiny-llama-untrained_home_0_8  loading tiny-llama-untrained",
    ]
