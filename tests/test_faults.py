"""The campaign of faults: one of each kind every day, the long one in `make test-long`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import STUDY, missing

CAMPAIGN = Path(__file__).parent / "faults.py"
CHEAP = 17  # kinds that load nothing anew
WORKERS = ("crashed_worker", "orphaned_workers")


@pytest.fixture
def study(toy_suite: Path, tiny_model: Path) -> Path:
    path = toy_suite.parent / "study.toml"
    path.write_text(STUDY + "\n[lora]\ndropout = 0.1\n")
    return path


def campaign(study: Path, out: Path, faults: int, *more: str) -> dict[str, object]:
    if shutil.which("cc") is None:
        missing("no C compiler for faults.c")
    command = [sys.executable, str(CAMPAIGN), str(study), str(out), "--faults", str(faults), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unshare: " in done.stderr or "mount: " in done.stderr:
        missing(f"no mount namespace here: {done.stderr.strip()[:100]}")
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, object] = json.loads(done.stdout)
    assert found["faults"] == faults
    assert found["violations"] == []
    return found


def test_one_fault_of_each_kind(study: Path, tmp_path: Path) -> None:
    found = campaign(study, tmp_path / "out", 19, "--without", *WORKERS)
    assert len(found["kinds"]) == CHEAP  # type: ignore[arg-type]


def test_workers_crash_and_lose_whoever_started_them(study: Path, tmp_path: Path) -> None:
    found = campaign(study, tmp_path / "out", 2, "--only", *WORKERS)
    assert sorted(found["kinds"]) == sorted(WORKERS)  # type: ignore[call-overload]


@pytest.mark.long
def test_a_thousand_faults(study: Path, tmp_path: Path) -> None:
    found = campaign(study, tmp_path / "out", 1000)
    Path("build").mkdir(exist_ok=True)
    Path("build/faults.json").write_text(json.dumps(found, indent=2))
