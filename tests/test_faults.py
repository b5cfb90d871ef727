"""The campaign of faults: a short form every day, the long one in `make test-long`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import STUDY, missing

CAMPAIGN = Path(__file__).parent / "faults.py"


@pytest.fixture
def study(toy_suite: Path, tiny_model: Path) -> Path:
    path = toy_suite.parent / "study.toml"
    path.write_text(STUDY.replace("epochs = 2", "epochs = 8") + "\n[lora]\ndropout = 0.1\n")
    return path


def campaign(study: Path, out: Path, faults: int) -> dict[str, object]:
    if shutil.which("cc") is None:
        missing("no C compiler for faults.c")
    command = [sys.executable, str(CAMPAIGN), str(study), str(out), "--faults", str(faults)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        missing(f"no mount namespace here: {done.stderr.strip()[:100]}")
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_a_short_campaign(study: Path, tmp_path: Path) -> None:
    found = campaign(study, tmp_path / "out", 12)
    assert found["faults"] == 12


@pytest.mark.long
def test_two_hundred_faults(study: Path, tmp_path: Path) -> None:
    found = campaign(study, tmp_path / "out", 200)
    assert found["faults"] == 200
    Path("build").mkdir(exist_ok=True)
    Path("build/faults.json").write_text(json.dumps(found, indent=2))
