"""The standard output holds results and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import missing, oodles
from test_trackers import RUN

LIBRARY = """
import os, subprocess, sys
from oodles.cli.results import answering, results_only
kept = sys.stdout
with results_only():
    print("said")
    print("kept", file=kept)
    os.write(1, b"low\\n")
    subprocess.run(["echo", "other"], check=True)
    with answering():
        print("result")
    print("later")
print("after")
"""
IMPORTED = "[INFO] Running in WANDB offline mode"  # which transformers prints as it is imported


def test_what_libraries_print_goes_to_stderr() -> None:
    done = subprocess.run([sys.executable, "-c", LIBRARY], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["result", "after"]
    assert sorted(done.stderr.splitlines()) == ["kept", "later", "low", "other", "said"]


def test_results_that_cannot_be_written_do_not_go_elsewhere() -> None:
    code = LIBRARY.replace('print("result")', 'print("result" * 10_000)')
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode
    assert "No space left on device" in done.stderr
    assert "result" not in done.stderr.replace('print("result', "")


@pytest.mark.parametrize("command", ["run", "workers", "dry-run", "score", "demo"])
def test_json_is_all_that_is_printed(command: str, toy_study: Path, tmp_path: Path) -> None:
    """With wandb offline, which transformers announces on the standard output."""
    try:
        import wandb  # noqa: F401
    except ImportError:
        missing("no wandb: pip install 'oodles[trackers]'")
    out = tmp_path / "out"
    words: dict[str, list[object]] = {
        "run": ["run", toy_study, "--set", "grid.seeds=[0]"],
        "workers": ["run", toy_study, "--workers", "2"],
        "dry-run": ["run", toy_study, "--dry-run"],
        "score": ["score", "--model", "tiny-llama-untrained", "--suite", toy_study.with_name("toy.toml")],
        "demo": ["demo", "--quick", "--set", "grid.seeds=[0]", "--set", "train.steps=1"],
    }
    done = oodles(*words[command], "--out", out, "--json", cwd=tmp_path, WANDB_MODE="offline")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
    assert IMPORTED in done.stderr or command == "score"  # which needs no Trainer
    if command == "run":
        assert json.loads(done.stdout)["done"] == [RUN]
        assert list((out / "wandb").glob("offline-run-*"))
