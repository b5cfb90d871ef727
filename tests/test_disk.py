"""The disk in trouble, seen by whole commands: one line, and nothing half-written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from conftest import missing, oodles
from oodles.store.folder import RunFolder
from test_correlate import simulated


def save_torch(path: Path) -> None:
    torch.save({"weights": torch.zeros(10_000)}, path)


def save_safetensors(path: Path) -> None:
    save_file({"weights": torch.zeros(10_000)}, path)


def save_parquet(path: Path) -> None:
    pq.write_table(pa.table({"score": torch.rand(10_000).numpy()}), path)


@pytest.mark.parametrize("save", [save_torch, save_safetensors, save_parquet])
def test_what_the_libraries_make_of_a_full_disk(save: object, tmp_path: Path) -> None:
    """For real: a tmpfs of eight pages. What was half written is removed before anybody asks why it failed."""
    code = f"""
import sys; sys.path[:0] = {sys.path!r}
from pathlib import Path
from test_disk import {save.__name__}
from oodles.trouble import disk_errors
path = Path({str(tmp_path / "disk" / "file")!r})
with disk_errors(path):
    try:
        {save.__name__}(path)
    finally:
        path.unlink(missing_ok=True)
"""
    (tmp_path / "disk").mkdir()
    inner = f'mount -t tmpfs -o size=32k none "{tmp_path / "disk"}" && exec "$@"'
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c", inner, "sh", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        missing(f"no mount namespace here: {done.stderr.strip()[:100]}")
    assert done.stderr.splitlines()[-1].startswith("oodles.errors.DiskError"), done.stderr


READ_ONLY = """
mount -t tmpfs none "$1" && mkdir "$1/held" && mount -o remount,ro "$1" || exit 9
shift
exec "$@"
"""


def test_a_read_only_disk_is_told_in_one_wording(toy_study: Path, tmp_path: Path) -> None:
    """For real: a tmpfs that is mounted again read-only. No message names a file that only oodles knows."""
    disk_at, table = tmp_path / "disk", tmp_path / "table.csv"
    disk_at.mkdir()
    simulated(runs=3).to_csv(table, index=False)
    scored = ["score", "--model", "tiny-llama-untrained", "--suite", str(toy_study.parent / "toy.toml")]
    commands = {
        f"{disk_at}/new": (["run", str(toy_study), "--out", f"{disk_at}/new"], "choose another --out"),
        f"{disk_at}/held": (["run", str(toy_study), "--out", f"{disk_at}/held"], "choose another --out"),
        f"{disk_at}/sc": ([*scored, "--out", f"{disk_at}/sc"], "choose another --out"),
        f"{disk_at}/a/r.html": (["report", str(table), "--out", f"{disk_at}/a/r.html"], "choose another --out"),
        f"{disk_at}/results": (["analyse", str(table), "--out", f"{disk_at}/results"], "choose another --out"),
        f"{disk_at}/pins": (
            ["check", "--suite", str(toy_study.parent / "toy.toml"), "--pin", f"{disk_at}/pins"],
            "choose another --pin",
        ),
    }
    # one process for all of them: loading torch takes longer than what is told
    code = f"""
import sys; sys.path[:0] = {sys.path!r}
from conftest import oodles
for command in {[command for command, _ in commands.values()]!r}:
    done = oodles(*command)
    assert done.returncode == 2, done
    print(done.stderr.strip().splitlines()[-1])
"""
    inner = ["sh", "-c", READ_ONLY, "sh", str(disk_at), sys.executable, "-c", code]
    command = ["unshare", "--mount", "--map-root-user", *inner]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 9 or "unshare:" in done.stderr:
        missing(f"no mount namespace here: {done.stderr.strip()[:100]}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"DiskError: {place}: cannot be written (Read-only file system); make the folder writable, or {elsewhere}"
        for place, (_, elsewhere) in commands.items()
    ]


LOGS = {
    "on a full disk": "2> /dev/full",
    "whose reader has gone": "2>&1 | head -1 > /dev/null; exit ${PIPESTATUS[0]}",
    "that is closed": "1>&- 2>&-",
    "on a full disk, all of it": "> /dev/full 2>&1",
}


@pytest.mark.parametrize("log", LOGS)
def test_a_log_fails_no_run(log: str, toy_study: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = f"{sys.executable} -c 'from oodles.cli import main; main()' run {toy_study} --out {out} {LOGS[log]}"
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    for folder in map(RunFolder, (out / "runs").iterdir()):
        assert folder.status == "done"
        assert folder.scores.read_bytes().count(b"\n") == 12


def test_results_that_cannot_be_written_are_an_error(toy_study: Path) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-c", "from oodles.cli import main; main()", "suites", "--json"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "StoreError: the output could not be written (No space left on device)\n"


def test_a_damaged_lock_stops_one_run_only(toy_study: Path, tmp_path: Path) -> None:
    lock = RunFolder(tmp_path / "out" / "runs" / "tiny-llama-untrained_home_0_8").lock
    lock.parent.mkdir(parents=True)
    lock.write_text("{")
    done = oodles("run", toy_study, "--out", tmp_path / "out")
    assert done.returncode == 2
    assert f"{lock}: cannot be read as a lock" in done.stderr
    assert "remove the file" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.startswith("1 run, 0 finished before, 0 failed")
