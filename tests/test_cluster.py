"""A study as job arrays: what is asked for, the script, the ledger; and 10,000 runs on a simulated scheduler.

The scheduler here is SIMULATED: a few scripts on PATH that answer as SLURM's commands do and count their calls. What a
real one does is tested in test_slurm.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import missing, oodles
from oodles import scheduler
from oodles.contracts import Slurm, SlurmJob
from oodles.errors import ConfigError
from oodles.scheduler import JobHere, QueuedJob, job_here
from oodles.store.folder import StudyFolder
from oodles.store.ledger import jobs_of, note_array, note_plan, read_ledger
from oodles.store.locks import Holder, read_lock, take
from oodles.store.spec import begin_run
from oodles.study.grid import expand, select
from oodles.study.load import load_slurm, load_study
from oodles.study.resolved import run_text, study_text
from oodles.study.slurm import JobArray, Place, cancel, check_models, plan_arrays, script_of
from test_imports import without_torch

FAKE = '''#!{python}
"""A SIMULATED scheduler: answers as SLURM does, and notes every call."""
import json, pathlib, re, sys
folder = pathlib.Path({folder!r})
state = folder / "arrays.json"
arrays = json.loads(state.read_text()) if state.is_file() else []
name = pathlib.Path(sys.argv[0]).name
with (folder / "calls.log").open("a") as handle:
    handle.write(name + " " + " ".join(sys.argv[1:])[:60] + "\\n")
if name == "sbatch":
    script = sys.stdin.read()
    size = int(re.search(r"--array=0-(\\d+)", script)[1]) + 1
    arrays.append([str(100 + len(arrays)), size, re.search(r"--comment=(\\S+)", script)[1]])
    state.write_text(json.dumps(arrays))
    print(arrays[-1][0])
elif name == "squeue":
    widths = [int(field.split(":")[1]) for field in sys.argv[sys.argv.index("--Format") + 1].split(",")]
    for number, size, comment in arrays:
        for index in range(size):
            runs = index < 64
            row = (f"{{number}}_{{index}}", "RUNNING" if runs else "PENDING", "0", "n1" * runs, "None", comment)
            print("".join(cell.ljust(width) for cell, width in zip(row, widths)))
elif name == "scancel":
    state.write_text(json.dumps([a for a in arrays if a[0] not in sys.argv]))
else:
    print("ClusterName = fake\\nMaxArraySize = 1001")
'''


def need_submitit() -> None:
    try:
        import submitit  # noqa: F401
    except ImportError:
        missing("no submitit: pip install 'oodles[slurm]'")


@pytest.fixture
def fake(tmp_path: Path) -> dict[str, str]:
    """Variables with which the simulated scheduler is found."""
    need_submitit()
    folder = tmp_path / "fake"
    folder.mkdir()
    for name in ("sbatch", "squeue", "scancel", "scontrol"):
        path = folder / name
        path.write_text(FAKE.format(python=sys.executable, folder=str(folder)))
        path.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}


def calls(tmp_path: Path) -> list[str]:
    log = tmp_path / "fake" / "calls.log"
    found = [line.split()[0] for line in log.read_text().splitlines()] if log.is_file() else []
    log.unlink(missing_ok=True)
    return found


# the study file


def test_slurm_of_a_study_and_of_a_file(toy_study: Path) -> None:
    toy_study.write_text(toy_study.read_text() + '[slurm]\npartition = "gpu"\ncpus = 2\n')
    study = load_study(toy_study, ['slurm.time="02:00:00"'])
    assert (study.slurm.partition, study.slurm.cpus, study.slurm.time) == ("gpu", 2, "02:00:00")
    file = toy_study.with_name("cluster.toml")
    file.write_text('cpus = 4\nsetup = ["module load cuda"]\n[models."tiny*"]\ngpus = 1\n')
    found = load_slurm(file, study.slurm)
    assert (found.partition, found.cpus, found.setup) == ("gpu", 4, ("module load cuda",))
    assert found.models["tiny*"] == SlurmJob(gpus=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[slurm]\npartitoin = "gpu"\n', r"study.toml \[slurm\]: unknown key 'partitoin'; did you mean 'partition'\?"),
        ('[slurm]\ntime = "4h"\n', r'\[slurm\]: time is "4h", expected e.g. "04:00:00" or "2-00:00:00"'),
        ('[slurm]\nmemory = "a lot"\n', r'\[slurm\]: memory is "a lot", expected e.g. "64G"'),
        ("[slurm]\nwidth = 0\n", r"\[slurm\]: width is 0, expected at least 1"),
        ("[slurm]\nwarning = 5\n", r"\[slurm\]: warning is 5, expected at least 30 seconds"),
        ("[slurm.models.x]\ngpus = -1\n", r"\[slurm.models.x\]: gpus is -1, expected at least 0"),
        ("[slurm.models.x]\nwidth = 3\n", r"\[slurm.models.x\]: unknown key 'width'"),
    ],
)
def test_bad_slurm_tables(toy_study: Path, text: str, message: str) -> None:
    toy_study.write_text(toy_study.read_text() + text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_study(toy_study)
    assert "\n" not in str(caught.value)


def test_a_table_for_no_model_is_a_slip(toy_study: Path) -> None:
    slurm = Slurm(models={"tiny-lama-untrained": SlurmJob(gpus=2)})
    with pytest.raises(ConfigError, match="matches no model of the study; did you mean 'tiny-llama-untrained'"):
        check_models(expand(load_study(toy_study)), slurm)


# arrays and scripts


def test_runs_that_ask_for_the_same_share_an_array() -> None:
    grid = expand(load_study("paper", ["grid.seeds=[0, 42]"])) if has_data() else None
    if grid is None:
        missing("no real data: set OODLES_DATA")
    assert grid is not None
    slurm = Slurm(
        gpus=1,
        models={"*30": SlurmJob(gpus=4, time="12:00:00"), "olmo32": SlurmJob(gpus=4, time="12:00:00"),
                "smol": SlurmJob(runs_per_job=5)},
    )  # fmt: skip
    arrays = plan_arrays(grid.jobs, slurm)
    asked = [(a.asks.gpus, len(a.shares), a.runs) for a in arrays]
    assert sorted(asked) == [(1, 3, 12), (1, 60, 60), (4, 24, 24)]
    assert {label for a in arrays for share in a.shares for label in {len({n.split("_")[0] for n in share})}} == {1}
    assert [len(a.shares) for a in plan_arrays(grid.jobs, Slurm(), largest=40)] == [40, 40, 16]


def has_data() -> bool:
    folder = os.environ.get("OODLES_DATA", "")
    return bool(folder) and (Path(folder) / "nli").is_dir()


SBATCH = """#!/bin/bash

# Parameters
#SBATCH --account=me
#SBATCH --array=0-1%1
#SBATCH --comment=oodles-1
#SBATCH --constraint=a100
#SBATCH --cpus-per-task=8
#SBATCH --exclusive
#SBATCH --gpus-per-node=1
#SBATCH --job-name=oodles-toy
#SBATCH --mem=64G
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output='/big disk/out/slurm/%A_%a_0_log.out'
#SBATCH --partition=gpu
#SBATCH --qos=long
#SBATCH --requeue
#SBATCH --signal=USR2@120
#SBATCH --time=04:00:00

# setup
module load cuda
export OMP_NUM_THREADS=8
runs=(
  '--only a_home_0_8 --only a_home_1_8'
  '--only b_home_0_8'
)

# command
export SUBMITIT_EXECUTOR=slurm
srun --unbuffered --output '/big disk/out/slurm/%A_%a_%t_log.out' apptainer exec x.sif python -m oodles run \
/toy.toml --out '/big disk/out' --requeue 90 --retry-failed ${runs[$SLURM_ARRAY_TASK_ID]}
"""


def test_the_script_of_an_array() -> None:
    need_submitit()
    asks = SlurmJob(
        partition="gpu", account="me", qos="long", time="04:00:00", gpus=1, cpus=8, memory="64G", constraint="a100",
        setup=("module load cuda",), python="apptainer exec x.sif python", options={"exclusive": True},
    )  # fmt: skip
    array = JobArray(asks=asks, shares=(("a_home_0_8", "a_home_1_8"), ("b_home_0_8",)))
    place = Place(study="/toy.toml", root=Path("/big disk/out"), name="toy", options=("--retry-failed",))
    assert script_of(array, place, Slurm(width=1), "oodles-1") == SBATCH


def test_a_dry_run_prints_scripts_without_torch_and_writes_nothing(toy_study: Path, tmp_path: Path) -> None:
    need_submitit()
    command = ("run", toy_study, "--out", tmp_path / "out", "--where", "slurm", "--set", "train.epochs=3", "--dry-run")
    done = without_torch(*command)
    assert done.returncode == 0, done.stderr
    assert "#SBATCH --array=0-1%2" in done.stdout
    assert "  '--only tiny-llama-untrained_home_1_8'" in done.stdout
    assert f"run {toy_study} --out {tmp_path}/out --requeue 90 --set train.epochs=3" in done.stdout
    assert "2 runs would be submitted, 0 finished before, 0 queued; nothing was submitted" in done.stderr
    assert not (tmp_path / "out").exists()
    assert subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=False).returncode == 0


def test_what_does_not_go_together(toy_study: Path, tmp_path: Path) -> None:
    for options, message in (
        (("--slurm", "x.toml"), "--slurm: it says how jobs are submitted; add --where slurm"),
        (("--where", "slurm", "--workers", "2"), "--workers and --requeue are for runs made here"),
        (("--requeue", "60"), "--requeue: this is no job of SLURM"),
    ):
        done = oodles("run", toy_study, "--out", tmp_path / "out", *options)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert message in done.stderr
    assert not (tmp_path / "out").exists()


def test_without_a_scheduler_one_line_says_so(toy_study: Path, tmp_path: Path) -> None:
    need_submitit()
    empty = tmp_path / "nothing"
    empty.mkdir()
    done = oodles("run", toy_study, "--out", tmp_path / "out", "--where", "slurm", PATH=str(empty))
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("SchedulerError: scontrol: no such command; run this where SLURM is")
    assert not read_ledger(StudyFolder(tmp_path / "out"))


# submitting, on a SIMULATED scheduler


def test_the_same_command_submits_only_what_is_missing_and_not_queued(
    toy_study: Path, tmp_path: Path, fake: dict[str, str]
) -> None:
    """The login node has no torch."""
    root = tmp_path / "out"
    command = ("run", toy_study, "--out", root, "--where", "slurm", "--json")
    first = without_torch(*command, env=fake)
    assert first.returncode == 0, first.stderr
    assert [(a["array"], a["runs"]) for a in json.loads(first.stdout)["arrays"]] == [("100", 2)]
    assert calls(tmp_path) == ["scontrol", "sbatch"]
    again = without_torch(*command, env=fake)
    told = json.loads(again.stdout)
    assert (told["arrays"], len(told["queued"])) == ([], 2)
    assert calls(tmp_path) == ["squeue"]
    grown = without_torch(*command, "--set", "grid.seeds=[0, 1, 2]", env=fake)
    assert json.loads(grown.stdout)["submitted"] == ["tiny-llama-untrained_home_2_8"]
    shown = {row["run"]: row for row in json.loads(without_torch("status", root, "--json", env=fake).stdout)}
    assert [(row["status"], row["job"], row["node"]) for row in shown.values()] == [
        ("running", "100_0", "n1"),
        ("running", "100_1", "n1"),
        ("running", "101_0", "n1"),
    ]
    calls(tmp_path)
    done = without_torch("cancel", root, "--json", env=fake)
    assert [row["job"] for row in json.loads(done.stdout)] == ["100_0", "100_1", "101_0"]
    assert calls(tmp_path) == ["squeue", "scancel"]
    after = {row["run"]: row for row in json.loads(without_torch("status", root, "--json", env=fake).stdout)}
    assert {row["reason"] for row in after.values()} == {
        f"job {job} has ended; its last line: it left no log" for job in ("100_0", "100_1", "101_0")
    }
    assert len(json.loads(without_torch(*command, env=fake).stdout)["submitted"]) == 2


SEVERAL = """
import json, resource, sys, time
sys.argv[0] = "oodles"
from oodles.cli import main
try:
    main()
finally:
    told = {"seconds": time.process_time(), "kilobytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}
    print("MEASURED " + json.dumps(told), file=sys.stderr)
"""


def measured(*command: object, env: dict[str, str]) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", SEVERAL, *map(str, command)], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(json.loads(done.stderr.splitlines()[-1].removeprefix("MEASURED ")))


@pytest.mark.timeout(900)
def test_ten_thousand_runs_on_a_simulated_scheduler(toy_study: Path, tmp_path: Path, fake: dict[str, str]) -> None:
    """Submitted, watched and summarised in under 60 s of one core, a few calls each, memory linear in the runs."""
    memory = {}
    for runs in (2_500, 5_000, 10_000):
        root = tmp_path / f"out{runs}"
        command = ("run", toy_study, "--out", root, "--where", "slurm", "--set")
        submitted = measured(*command, f"grid.seeds={list(range(runs))}", env=fake)
        asked = calls(tmp_path)
        assert (asked.count("sbatch"), len(asked)) == (-(-runs // 1000), -(-runs // 1000) + 1)
        again = measured(*command, f"grid.seeds={list(range(runs))}", env=fake)
        assert calls(tmp_path) == ["squeue"]
        shown = measured("status", root, "--all", "--json", env=fake)
        assert calls(tmp_path) == ["squeue"]
        took = sum(step["seconds"] for step in (submitted, again, shown))
        memory[runs] = max(step["kilobytes"] for step in (submitted, again, shown))
        print(f"{runs} runs: {took:.1f} s, {submitted} {again} {shown}")
        measured("cancel", root, env=fake)
        assert calls(tmp_path) == ["squeue", "scancel"]
    assert took < 60
    assert memory[10_000] - memory[5_000] < 2.5 * (memory[5_000] - memory[2_500]) + 20_000


# the ledger


def queued(number: str, key: str) -> dict[str, QueuedJob]:
    return {number: QueuedJob(id=number, state="PENDING", restarts=0, node="", reason="Priority", comment=key)}


def test_an_array_whose_number_was_not_noted_is_found_by_its_key(tmp_path: Path) -> None:
    """The command was killed after sbatch, before it could write the number down."""
    study = StudyFolder(tmp_path)
    note_plan(study, "k1", [("a", "b"), ("c",)])
    with study.ledger.open("a") as handle:
        handle.write('{"key": "k1", "arr')  # torn
    assert not jobs_of(read_ledger(study), {})
    found = jobs_of(read_ledger(study), queued("7_1", "k1"))
    assert (found["c"].id, found["c"].alone, found["a"].queued) == ("7_1", True, None)
    note_array(study, "k1", "7")
    assert [one.array for one in read_ledger(study)] == ["7"]
    assert jobs_of(read_ledger(study), queued("7_1", "another study's"))["c"].queued is None


def test_all_jobs_of_a_run_are_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that were submitted twice: by hand, say, or from a copy of the folder."""
    study = StudyFolder(tmp_path)
    for number, key in (("7", "k1"), ("8", "k2")):
        note_plan(study, key, [("a",), ("b",)])
        note_array(study, key, number)
    waiting = {**queued("7_0", "k1"), **queued("8_0", "k2"), **queued("8_1", "k2"), **queued("9_0", "another's")}
    cancelled: list[str] = []
    monkeypatch.setattr(scheduler, "queue", lambda: waiting)
    monkeypatch.setattr(scheduler, "cancel", cancelled.extend)
    assert cancel(tmp_path, ["a"]) == {"7_0": ["a"], "8_0": ["a"]}
    assert cancelled == ["7_0", "8_0"]
    cancelled.clear()
    assert cancel(tmp_path) == {"7_0": ["a"], "8_0": ["a"], "8_1": ["b"]}
    assert cancelled == ["7", "8"]


def test_jobs_that_wait_with_another_recipe_are_named_at_once(
    toy_study: Path, tmp_path: Path, fake: dict[str, str]
) -> None:
    root, changed = tmp_path / "out", ("--set", "train.epochs=3")
    command = ("run", toy_study, "--out", root, "--only", "*_0_8", "--where", "slurm")
    assert without_torch(*command, env=fake).returncode == 0
    again = without_torch(*command, *changed, "--json", env=fake)
    assert again.returncode == 2
    (refused,) = json.loads(again.stdout)["refused"]
    name = "tiny-llama-untrained_home_0_8"
    planned = [select(expand(load_study(toy_study, more)), [name]).jobs[0] for more in ((), changed[1:])]
    ids = [job.spec.run_id for job in planned]
    assert refused == {
        "run": name,
        "reason": f"job 100_0 was submitted with another model, data or recipe (run {ids[0]}; now it is {ids[1]})."
        f" Cancel it by `oodles cancel {root} --only {name}` and submit again, or restore the study",
    }
    assert without_torch(*command, "--json", env=fake).returncode == 0  # the study as it was submitted
    here = oodles("run", toy_study, "--out", root, "--only", "*_0_8", *changed, PATH=fake["PATH"])
    assert here.returncode == 2
    assert here.stderr.strip().splitlines()[-1] == f"StoreError: run {name}: {refused['reason']}"
    begin_run(StudyFolder(root).run(name), planned[1].spec, planned[1].draw, {}, ())  # as if it had been run elsewhere
    (row,) = json.loads(without_torch("status", root, "--json", env=fake).stdout)
    assert row["reason"].startswith(f"job 100_0 was submitted with another model, data or recipe (run {ids[0]}) than")


# locks of jobs


def in_job(monkeypatch: pytest.MonkeyPatch, number: str, restarts: int, host: str) -> None:
    for name, value in {
        "SLURM_JOB_ID": number, "SLURMD_NODENAME": host, "SLURM_CLUSTER_NAME": "mini",
        "SLURM_RESTART_COUNT": str(restarts),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("platform.node", lambda: host)


def test_a_restarted_job_takes_its_own_lock_over_on_another_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "run.json"
    in_job(monkeypatch, "5", 0, "n1")
    assert job_here() == JobHere(cluster="mini", id="5", restarts=0)
    assert take(lock) is None
    held = read_lock(lock)
    assert held is not None
    assert (held.job, str(held)) == ("mini/5/0", f"process {os.getpid()} on n1, job mini/5/0")
    monkeypatch.setattr("platform.node", lambda: "n2")
    assert held.state == "elsewhere"  # the same attempt, on another of its nodes
    assert take(lock) == held
    in_job(monkeypatch, "5", 1, "n2")
    assert held.state == "gone"
    assert take(lock) is None
    assert replace(held, job="other/5/0").state == "elsewhere"


def test_outside_a_job_a_lock_is_written_as_before() -> None:
    assert "job" not in Holder.me().told


# one run as a file


def test_one_run_as_a_file_of_its_own(toy_study: Path, tmp_path: Path) -> None:
    """Same name, same id, same study; it runs from anywhere."""
    toy_study.write_text(toy_study.read_text() + "[slurm]\ngpus = 1\n[slurm.options]\nexclusive = true\n")
    file = tmp_path / "elsewhere" / "one.toml"
    file.parent.mkdir()
    name = "tiny-llama-untrained_home_1_8"
    done = oodles("run", toy_study, "--only", name, "--write-config", file)
    assert done.returncode == 0, done.stderr
    (job,) = expand(load_study(file)).jobs
    (known,) = select(expand(load_study(toy_study)), [name]).jobs
    assert (job.spec.name, job.spec.run_id) == (known.spec.name, known.spec.run_id)
    assert job.spec == known.spec
    assert load_study(file).slurm == load_study(toy_study).slurm
    assert oodles("run", file, "--out", tmp_path / "out").returncode == 0
    whole = oodles("run", toy_study, "--out", tmp_path / "out", "--json")
    assert json.loads(whole.stdout)["skipped"] == [name]
    again = oodles("run", toy_study, "--only", name, "--write-config", file, "--json")
    assert json.loads(again.stdout) == {"file": str(file), "run": name, "run_id": known.spec.run_id}
    refused = oodles("run", toy_study, "--only", name, "--write-config", toy_study)
    assert refused.returncode == 2
    assert "was not written by oodles" in refused.stderr
    moved = oodles("run", toy_study, "--only", name, "--out", tmp_path / "moved", "--write-config", file)
    assert (moved.returncode, load_study(file).out) == (0, str(tmp_path / "moved"))
    many = oodles("run", toy_study, "--write-config", file)
    assert many.returncode == 2
    assert "2 runs are chosen" in many.stderr


def test_names_that_the_grid_makes_longer_are_kept(toy_study: Path, tiny_model: Path, tmp_path: Path) -> None:
    overrides = ["grid.data_seed=[3, 4]", "grid.seeds=[0]", f'grid.models=["{tiny_model}"]', "train.order_seed=5"]
    for job in expand(load_study(toy_study, overrides)).jobs:
        one = select(expand(load_study(toy_study, overrides)), [job.spec.name])
        file = tmp_path / "one.toml"
        file.write_text(run_text(one))
        assert [j.spec for j in expand(load_study(file)).jobs] == [job.spec]
    with pytest.raises(ConfigError, match="run names one run, but the grid has 2"):
        expand(load_study(file, ["grid.seeds=[0, 1]"]))


def test_a_whole_study_as_a_file(toy_study: Path, tmp_path: Path) -> None:
    for source, overrides in (("demo", ()), (toy_study, ("grid.data_seed=7", 'grid.patterns=["question"]'))):
        grid = expand(load_study(source, overrides))
        file = tmp_path / "whole.toml"
        file.write_text(study_text(grid))
        tomllib.loads(file.read_text())
        assert [j.spec for j in expand(load_study(file)).jobs] == [j.spec for j in grid.jobs]


def test_a_users_own_defaults_for_squeue_hide_no_job(
    toy_study: Path, tmp_path: Path, fake: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIMULATED: this squeue prints nothing where SQUEUE_STATES is set, as SLURM's own does for other states."""
    squeue = tmp_path / "fake" / "squeue"
    squeue.write_text(
        squeue.read_text().replace(
            "import json", "import os; os.environ.get('SQUEUE_STATES') and exit(0)\nimport json", 1
        )
    )
    command = ("run", toy_study, "--out", tmp_path / "out", "--where", "slurm", "--json")
    own = {**fake, "SQUEUE_STATES": "R"}
    assert without_torch(*command, env=own).returncode == 0
    again = json.loads(without_torch(*command, env=own).stdout)
    assert (again["arrays"], len(again["queued"])) == ([], 2)


def test_a_squeue_that_prints_something_else_submits_nothing(
    toy_study: Path, tmp_path: Path, fake: dict[str, str]
) -> None:
    command = ("run", toy_study, "--out", tmp_path / "out", "--where", "slurm")
    assert without_torch(*command, env=fake).returncode == 0
    (tmp_path / "fake" / "squeue").write_text("#!/bin/sh\necho '<html>502 Bad Gateway</html>'\n")
    calls(tmp_path)
    again = without_torch(*command, env=fake)
    assert again.returncode == 2
    assert "squeue printed <html>502 Bad Gateway</html>" in again.stderr
    assert "sbatch" not in calls(tmp_path)


def test_options_that_oodles_sets_itself_are_refused(tmp_path: Path) -> None:
    from oodles.study.load import load_slurm

    (tmp_path / "cluster.toml").write_text('options = { comment = "mine", exclusive = true }\n')
    with pytest.raises(ConfigError, match="options has comment, which oodles sets itself"):
        load_slurm(tmp_path / "cluster.toml", Slurm())
