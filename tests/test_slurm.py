"""A study on a real SLURM of two virtual nodes: faults, requeues, the same table as here. See mini_slurm.sh."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from conftest import missing, oodles
from oodles import scheduler
from oodles.contracts import ZERO
from oodles.store.folder import RunFolder, StudyFolder
from oodles.store.ledger import read_ledger
from oodles.store.locks import read_lock
from oodles.store.table import read_records, read_runs
from test_engines import WHAT, find_deepspeed

SCRIPT = Path(__file__).with_name("mini_slurm.sh")
NODE = """#!/bin/sh
# as on a cluster, every node has its own name
exec unshare --uts sh -c 'hostname "$SLURMD_NODENAME" && exec "$0" "$@"' {python} "$@"
"""
STUDY = """
schema = 1
name = "toy"
suite = "toy.toml"

[grid]
models = ["tiny-llama-untrained", "broken"]
train_sets = ["home"]
shots = [4, 8]
seeds = [0, 1, 2, 3, 4, 5]

[models.broken]
source = "broken"

[train]
epochs = 8
batch_size = 2
learning_rate = 1e-2

[slurm]
cpus = 1
time = "00:10:00"
warning = 60
"""
CHOSEN = ("--only", "tiny*", "--only", "broken_home_0_4")


def run_script(command: str, folder: Path, **settings: object) -> subprocess.CompletedProcess[str]:
    told = {"MINI_SLURM_DIR": str(folder), **{f"MINI_SLURM_{k.upper()}": str(v) for k, v in settings.items()}}
    return subprocess.run(["bash", str(SCRIPT), command], env={**os.environ, **told}, capture_output=True, text=True)


@pytest.fixture(scope="module", params=[{"nodes": 2, "cpus": 1}], ids=[""])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A SLURM of two nodes with one core each, unless a test asks for others; its folder."""
    for name in ("sbatch", "slurmctld", "slurmd", "munged"):
        if shutil.which(name) is None:
            missing(f"no {name}: apt-get install --no-install-recommends slurm-wlm munge")
    try:
        import submitit  # noqa: F401
    except ImportError:
        missing("no submitit: pip install 'oodles[slurm]'")
    folder = tmp_path_factory.mktemp("slurm")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    up = run_script("up", folder, **request.param, gpus=0, port=port)
    if up.returncode:
        run_script("down", folder)
        missing(f"SLURM does not start here: {up.stderr[-200:]}")
    yield folder
    run_script("down", folder)


@pytest.fixture
def on_cluster(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What is called here speaks to the cluster; nothing is left in its queue."""
    monkeypatch.setenv("SLURM_CONF", str(cluster / "slurm.conf"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    scheduler.settings.cache_clear()
    yield cluster
    told("scancel", "--user", str(os.getuid()))
    wait_for(lambda: not scheduler.queue(), 60, "an empty queue")
    scheduler.settings.cache_clear()


def told(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def wait_for(happens: Callable[[], Any], seconds: float, what: str) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = happens()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited {seconds:.0f} s for {what}")


def status(root: Path) -> dict[str, dict[str, Any]]:
    done = oodles("status", root, "--json")
    assert done.returncode == 0, done.stderr
    return {row["run"]: row for row in json.loads(done.stdout)}


@pytest.fixture
def study(toy_suite: Path, tiny_model: Path) -> Path:
    """A study whose second model cannot be trained: all its weights are NaN."""
    import torch
    from safetensors.torch import load_file, save_file

    broken = toy_suite.parent / "broken"
    shutil.copytree(tiny_model, broken)
    for file in broken.glob("*.safetensors"):
        weights = {name: torch.full_like(value, float("nan")) for name, value in load_file(file).items()}
        save_file(weights, file, metadata={"format": "pt"})
    path = toy_suite.parent / "study.toml"
    path.write_text(STUDY + f'python = "{python_of_a_node(toy_suite.parent)}"\n')
    return path


def python_of_a_node(folder: Path) -> Path:
    node = folder / "node.sh"
    node.write_text(NODE.format(python=sys.executable))
    node.chmod(0o755)
    return node


def freeze(root: Path, *runs: str) -> list[int]:
    """Hold the processes of runs as soon as each is at work and has a checkpoint; their numbers."""
    found: dict[str, int] = {}

    def all_held() -> bool:
        for run in runs:
            folder = RunFolder(root / "runs" / run)
            holder = read_lock(folder.lock)
            if run not in found and holder is not None and any(folder.checkpoints.glob("[0-9]*")):
                os.kill(holder.process, signal.SIGSTOP)
                found[run] = holder.process
                assert holder.host in ("n1", "n2")
                assert folder.status == "started"
        return len(found) == len(runs)

    wait_for(all_held, 300, f"{', '.join(runs)} to begin")
    return [found[run] for run in runs]


def let_it_stop(process: int, seconds: float) -> None:
    """Once SLURM has told a process that is held to stop, let it; until it has ended."""

    def has_ended() -> bool:
        try:
            text = Path(f"/proc/{process}/status").read_text()
            if any(int(mask, 16) >> (signal.SIGUSR2 - 1) & 1 for mask in re.findall(r"(?:Sig|Shd)Pnd:\s*(\w+)", text)):
                os.kill(process, signal.SIGCONT)
        except (FileNotFoundError, ProcessLookupError):
            return True
        return "State:\tZ" in text

    wait_for(has_ended, seconds, "a job that was told to stop")


@pytest.mark.long  # alone: .ci/run and make test-long run it while nothing else does
@pytest.mark.timeout(3600)
def test_a_study_survives_what_happens_on_a_cluster(on_cluster: Path, study: Path, tmp_path: Path) -> None:
    """13 runs: one preempted, one at its time limit, one killed, one that fails, the controller restarted."""
    root, here = tmp_path / "out", tmp_path / "here"
    command = ("run", study, "--out", root, "--where", "slurm", *CHOSEN)
    done = oodles(*command, "--json")
    assert done.returncode == 0, done.stderr
    (array,) = json.loads(done.stdout)["arrays"]
    assert (array["jobs"], array["runs"]) == (13, 13)
    jobs = {share[0]: f"{array['array']}_{i}" for i, share in enumerate(read_ledger(StudyFolder(root))[0].shares)}
    killed, limited, preempted, *_ = list(jobs)

    at_work, waiting = freeze(root, killed, limited)  # on the two nodes
    os.kill(at_work, signal.SIGKILL)
    (at_work,) = freeze(root, preempted)
    wait_for(lambda: jobs[killed] not in scheduler.queue(), 300, "the end of the killed job")
    again = json.loads(oodles(*command, "--dry-run", "--json").stdout)
    assert again["submitted"] == [killed]  # only what has ended
    node = scheduler.queue()[jobs[preempted]].node
    told("sbatch", "--partition=high", f"--nodelist={node}", "--output=/dev/null", "--wrap=sleep 2")
    let_it_stop(at_work, 600)
    assert status(root)[preempted]["status"] in ("requeued", "running", "queued")

    shown = status(root)[limited]
    assert (shown["status"], shown["job"]) == ("running", jobs[limited])
    assert shown["node"] in ("n1", "n2")
    minutes = int(told("squeue", "-h", "-j", jobs[limited], "-O", "TimeUsed:20").strip().split(":")[0]) + 2
    told("scontrol", "update", f"JobId={jobs[limited]}", f"TimeLimit={minutes}")
    assert run_script("restart", on_cluster).returncode == 0
    let_it_stop(waiting, 600)
    told("scontrol", "update", f"JobId={jobs[limited]}", "TimeLimit=10")

    wait_for(lambda: not scheduler.queue(), 1800, "the end of all jobs")
    shown = status(root)
    assert {name: row["status"] for name, row in shown.items() if row["status"] != "done"} == {
        killed: "failed",
        "broken_home_0_4": "failed",
    }
    assert f"job {jobs[killed]} has ended; its last line: " in shown[killed]["reason"]
    assert "nan" in shown["broken_home_0_4"]["reason"]
    held = read_lock(RunFolder(root / "runs" / killed).lock)
    assert held is not None  # what was killed on a node that is not this machine
    assert held.state == "gone"
    other = "n2" if held.host == "n1" else "n1"
    resumed = oodles(*command, "--set", f'slurm.options.nodelist="{other}"', "--json")
    assert resumed.returncode == 1  # one failed before
    assert json.loads(resumed.stdout)["submitted"] == [killed]
    wait_for(lambda: not scheduler.queue(), 900, "the end of the last job")
    assert status(root)[killed]["status"] == "done"

    assert oodles("run", study, "--out", here, *CHOSEN).returncode == 1
    assert RunFolder(here / "runs" / "broken_home_0_4").status == "failed"
    pd.testing.assert_frame_equal(read_runs(root), read_runs(here), check_exact=True)
    pd.testing.assert_frame_equal(read_records(root), read_records(here), check_exact=True)
    logs = {name: RunFolder(root / "runs" / name).log.read_text() for name in (preempted, limited, killed)}
    assert all("resumes from step" in text for text in logs.values())
    check_what_slurm_says(on_cluster, jobs, preempted, limited, killed)


def check_what_slurm_says(cluster: Path, jobs: dict[str, str], preempted: str, limited: str, killed: str) -> None:
    """That the faults happened is in SLURM's own logs."""
    controller = (cluster / "log" / "slurmctld.log").read_text()
    ended = (cluster / "log" / "jobcomp.txt").read_text()
    assert f"preemption grace time for JobId={jobs[preempted]}(" in controller
    assert f"setting time_limit to 10 for JobId={jobs[limited]}" in controller
    for name in (preempted, limited):
        assert f"warning signal 12 to JobId={jobs[name]}(" in controller
        assert f"_job_requeue_op: JobId={jobs[name]}(" in controller
    assert len(re.findall("slurmctld version .* started", controller)) == 2
    assert "137:0" in exit_codes(ended, jobs[killed])  # 128 + SIGKILL
    assert exit_codes(ended, jobs["broken_home_0_4"]) == ["1:0"]


def exit_codes(ended: str, job: str) -> list[str]:
    """How a job of an array ended, each time it did. Not DerivedExitCode: on a busy machine a job may end before SLURM
    hears how its step did, and that is 0:0 then."""
    number, index = job.split("_")
    return re.findall(rf" ArrayJobId={number} ArrayTaskId={index} .*\bExitCode=(\S+)", ended)


@pytest.mark.timeout(1800)
def test_a_cancelled_job_stays_cancelled_and_a_script_by_hand_resumes(
    on_cluster: Path, study: Path, tmp_path: Path
) -> None:
    """Three runs in one job: cancelled at the first, then submitted by hand as --dry-run prints it."""
    root = tmp_path / "out"
    chosen = [word for seed in range(3) for word in ("--only", f"tiny-llama-untrained_home_{seed}_4")]
    command = ("run", study, "--out", root, "--where", "slurm", "--set", "slurm.runs_per_job=3", *chosen)
    done = oodles(*command, "--json")
    assert [(a["jobs"], a["runs"]) for a in json.loads(done.stdout)["arrays"]] == [(1, 3)]
    first, *others = json.loads(done.stdout)["submitted"]
    (process,) = freeze(root, first)
    shown = status(root)
    assert [shown[name]["status"] for name in (first, *others)] == ["running", "queued", "queued"]
    (cancelled,) = json.loads(oodles("cancel", root, "--json").stdout)
    assert cancelled["runs"] == [first, *others]
    let_it_stop(process, 120)
    wait_for(lambda: not scheduler.queue(), 120, "an empty queue")
    log = root / "slurm" / f"{cancelled['job']}_0_log.out"
    assert "queued again, and resumes" not in log.read_text()
    assert status(root)[first]["status"] == "failed"

    script = tmp_path / "by-hand.sh"
    script.write_text(oodles(*command, "--dry-run").stdout)
    number = told("sbatch", "--parsable", str(script)).strip()
    wait_for(lambda: not scheduler.queue(), 600, "the end of the job")
    assert {row["status"] for row in status(root).values()} == {"done"}
    text = (root / "slurm" / f"{number}_0_0_log.out").read_text()
    assert text.count("loading tiny-llama-untrained") == 1  # the weights, once
    assert "resumes from step" in RunFolder(root / "runs" / first).log.read_text()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("cluster", [{"nodes": 1, "cpus": 2}], indirect=True, ids=["one node"])
@pytest.mark.parametrize(
    "engine",
    [
        pytest.param("ddp", marks=pytest.mark.slow),
        pytest.param("fsdp2", marks=pytest.mark.long),
        pytest.param("zero2", marks=pytest.mark.long),
        pytest.param("zero3", marks=pytest.mark.long),
    ],
)
def test_one_task_per_process_makes_a_run_together(
    engine: str, on_cluster: Path, toy_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tasks of a job, without a launcher; a signal of the scheduler stops both, and the job resumes by itself."""
    if engine in ZERO:
        find_deepspeed(monkeypatch)
    text = toy_study.read_text().replace("seeds = [0, 1]", "seeds = [0]")
    toy_study.write_text(text.replace("schema = 1", 'schema = 1\nreport_to = "none"'))
    root, alone = tmp_path / "together", tmp_path / "alone"
    python = python_of_a_node(tmp_path)
    options = ["--set", f"engine={engine}", "--set", "processes=2", "--set", f"slurm.python='{python}'"]
    submitted = oodles("run", toy_study, "--out", root, "--where", "slurm", "--json", *options)
    assert submitted.returncode == 0, submitted.stderr
    (run,) = json.loads(submitted.stdout)["submitted"]
    (process,) = freeze(root, run)
    job = status(root)[run]["job"]
    told("scancel", "--signal=USR2", job)  # as SLURM does before a time limit
    let_it_stop(process, 120)
    wait_for(lambda: not scheduler.queue(), 600, "the job's end")
    logs = "\n".join(path.read_text() for path in (root / "slurm").glob("*.out"))
    assert status(root)[run]["status"] == "done", logs
    assert f"job {job} is queued again, and resumes" in logs
    log = RunFolder(root / "runs" / run).log.read_text()
    assert len(re.findall(WHAT[engine], log)) == 2  # before and after
    assert "resumes from step" in log
    assert not list((root / "slurm").glob("meeting-*"))
    assert oodles("run", toy_study, "--out", alone).returncode == 0
    keys = ["run", "step", "test_set", "metric"]
    both = read_runs(root).merge(read_runs(alone), on=keys, suffixes=("", "_alone"))
    assert len(both) == len(read_runs(root)) == len(read_runs(alone)) > 0
    assert float((both["value"] - both["value_alone"]).abs().max()) < 1e-4
