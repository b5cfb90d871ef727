"""Trackers, read back by their own libraries: every evaluation once, after a kill and a resume too."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from conftest import missing, oodles
from oodles.errors import ConfigError
from oodles.runs import trackers
from oodles.runs.trackers import About, RunTrackers, trackers_of
from oodles.store.folder import RunFolder
from oodles.store.sidecars import read_json
from oodles.store.table import read_records, read_runs
from oodles.study.grid import expand
from oodles.study.launch import run
from oodles.study.load import load_study

RUN = "tiny-llama-untrained_home_0_8"
LONGER = ("--set", "grid.seeds=[0]", "--set", "train.epochs=60")
NO_WANDB = {"WANDB_PROJECT": "", "WANDB_MODE": "", "WANDB_API_KEY": "", "NETRC": "/nowhere", "HOME": "/nowhere"}


def need(*names: str) -> None:
    for name in names:
        try:
            __import__(name)
        except ImportError:
            missing(f"no {name}: pip install 'oodles[trackers]'")


Points = dict[str, list[tuple[int, float]]]  # name -> steps and values


def in_tensorboard(root: Path) -> Points:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(root / "tensorboard" / RUN), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def records_of(data: bytes) -> Iterator[bytes]:
    """The records of a .wandb file: a log as LevelDB writes it, in blocks of 32 kB; wandb has no reader in Python."""
    assert data[:4] == b":W&B"
    place, whole = 7, b""
    while place + 7 <= len(data):
        if 32768 - place % 32768 < 7:  # no room for another header in this block
            place += 32768 - place % 32768
            continue
        size, kind = struct.unpack("<HB", data[place + 4 : place + 7])
        whole += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or its last part
            yield whole
            whole = b""


def in_wandb(root: Path) -> tuple[Points, dict[str, Any], Any]:
    """History, config and run of the only offline run there."""
    from wandb.proto.wandb_internal_pb2 import Record

    (folder,) = (root / "wandb").glob("offline-run-*")
    (file,) = folder.glob("*.wandb")
    points: Points = {}
    config: dict[str, Any] = {}
    about = None
    for data in records_of(file.read_bytes()):
        record = Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "run":
            about = record.run
            config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
        if record.WhichOneof("record_type") == "history":
            row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            for key, value in row.items():
                points.setdefault(key, []).append((int(row["_step"]), value))
    return points, config, about


def committed(root: Path) -> Points:
    """The accuracies that count."""
    table = read_runs(root)
    table = table[table.metric == "accuracy"].sort_values("step")
    return {
        f"eval/{name}_accuracy": list(zip(rows.step, rows.value, strict=True))
        for name, rows in table.groupby("test_set")
    }


def check_points(found: Points, root: Path) -> None:
    """Every evaluation once, with its value, and nothing else."""
    for name, points in committed(root).items():
        assert found[name] == [(step, pytest.approx(value)) for step, value in points], name
    accuracies = {name for name in found if name.startswith("eval/") and name.endswith("_accuracy")}
    assert {name for name in accuracies if "balanced" not in name} == set(committed(root))
    for name, points in found.items():
        assert max(Counter(step for step, _ in points).values()) == 1, name


def interrupted(study: Path, root: Path, *options: str, **env: str) -> int:
    """Run a study, kill it at work, and run it again; the step at which it resumed."""
    command = ["run", str(study), "--out", str(root), *LONGER, *options]
    process = subprocess.Popen(
        [sys.executable, "-c", "from oodles.cli import main; main()", *command],
        env={**os.environ, "OMP_NUM_THREADS": "1", **env},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    folder, end = RunFolder(root / "runs" / RUN), time.monotonic() + 300
    while not (folder.checkpoints / "16").is_dir() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert folder.status == "started"
    done = oodles(*command, **env)
    assert done.returncode == 0, done.stderr
    log = folder.log.read_text()
    assert "tracker" not in log
    return int(log.rpartition("resumes from step ")[2].split()[0])


@pytest.mark.timeout(1200)
def test_every_evaluation_once_after_a_kill_and_a_resume(toy_study: Path, tmp_path: Path) -> None:
    need("wandb", "tensorboard")
    root, here = tmp_path / "out", tmp_path / "here"
    told = {"WANDB_MODE": "offline", "WANDB_PROJECT": "mine", "WANDB_ENTITY": "us"}
    resumed = interrupted(toy_study, root, "--set", 'report_to=["wandb", "tensorboard"]', **told)
    assert resumed >= 8
    points, config, about = in_wandb(root)
    check_points(points, root)
    check_points(in_tensorboard(root), root)
    spec = read_json(RunFolder(root / "runs" / RUN).spec)
    assert (config["run_id"], config["recipe"], config["lora"]) == (spec["run_id"], spec["recipe"], spec["lora"])
    assert (about.display_name, about.run_group, about.project, about.entity) == (RUN, "toy", "mine", "us")
    for found in (points, in_tensorboard(root)):
        losses = [step for step, _ in found["train/loss"]]
        assert losses == [step for step in range(1, 121) if step != resumed]  # which nobody kept
        assert all(step == value for step, value in found["train/global_step"])
    assert oodles("run", toy_study, "--out", here, *LONGER, "--set", "report_to=none").returncode == 0
    pd.testing.assert_frame_equal(read_runs(root), read_runs(here), check_exact=True)
    pd.testing.assert_frame_equal(read_records(root), read_records(here), check_exact=True)


@pytest.mark.timeout(1200)
def test_mlflow_holds_every_evaluation_once(toy_study: Path, tmp_path: Path) -> None:
    need("mlflow", "sqlalchemy", "alembic", "cryptography")
    root = tmp_path / "out"
    interrupted(toy_study, root, "--set", "report_to=mlflow", MLFLOW_TRACKING_URI="")
    check_points(in_mlflow(root), root)


@pytest.mark.timeout(1200)
def test_trackio_holds_every_evaluation_once(toy_study: Path, tmp_path: Path) -> None:
    try:
        import trackio  # noqa: F401
    except ImportError:
        missing("no trackio, which wants an older pillow: `make test-all` installs it into build/oracles")
    root, told = tmp_path / "out", {"TRACKIO_DIR": str(tmp_path / "trackio")}
    interrupted(toy_study, root, "--set", "report_to=trackio", **told)
    check_points(in_trackio(told), root)


def in_mlflow(root: Path) -> Points:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{root.absolute()}/mlflow.db")
    (found,) = client.search_runs([client.get_experiment_by_name("oodles").experiment_id])
    assert (found.info.run_name, found.data.tags["group"], found.info.status) == (RUN, "toy", "FINISHED")
    history = {name: client.get_metric_history(found.info.run_id, name) for name in found.data.metrics}
    return {name: sorted((m.step, m.value) for m in points) for name, points in history.items()}


def in_trackio(told: dict[str, str]) -> Points:
    """In a process of its own, which knows the folder from the beginning."""
    read = (
        "import json\nfrom trackio.sqlite_storage import SQLiteStorage as s\n"
        "print(json.dumps([s.get_runs('oodles'), s.get_logs('oodles', s.get_runs('oodles')[0])]))"
    )
    command = [sys.executable, "-c", read]
    done = subprocess.run(command, env={**os.environ, **told}, capture_output=True, text=True, check=True)
    runs, rows = json.loads(done.stdout.splitlines()[-1])
    assert len(runs) == 1
    points: Points = {}
    for row in rows:
        for key in (key for key in row if "/" in key):
            points.setdefault(key, []).append((row["step"], row[key]))
    return {name: sorted(found) for name, found in points.items()}


class Broken:
    """A tracker that fails after its first step."""

    def __init__(self, about: About) -> None:
        self.told = 0

    def held(self) -> dict[tuple[int, str], float]:
        return {}

    def log(self, step: int, row: dict[str, float]) -> None:
        self.told += 1
        if self.told > 1:
            raise ConnectionError("no route to host\nand more")

    def close(self, failed: bool) -> None:
        raise AssertionError("it was left out before")


def test_a_tracker_that_fails_stops_no_run(toy_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers, "OPENERS", {"wandb": Broken})
    monkeypatch.setattr(trackers, "_is_installed", lambda _: True)
    outcome = run(load_study(toy_study, ["grid.seeds=[0]", "report_to=wandb"]), tmp_path / "out")
    assert outcome.done == (RUN,)
    log = RunFolder(tmp_path / "out" / "runs" / RUN).log.read_text()
    assert log.count("tracker wandb failed, and is left out from here on: ConnectionError: no route to host\n") == 1


def test_a_tracker_that_does_not_open_stops_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: About) -> Any:
        raise RuntimeError("no account")

    monkeypatch.setattr(trackers, "OPENERS", {"wandb": refuse})
    folder = RunFolder(tmp_path / "runs" / "a")
    folder.path.mkdir(parents=True)
    opened = RunTrackers(["wandb"], About(folder=folder, study="s", config={}))
    opened.log(1, {"train/loss": 1.0})
    opened.close()
    assert "RuntimeError: no account" in folder.log.read_text()


# which


def test_which_trackers_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """wandb by itself only where it is installed and set up; everything else only if it is named."""
    for name, value in NO_WANDB.items():
        monkeypatch.setenv(name, value)
    for installed in (False, True):
        monkeypatch.setattr(trackers, "_is_installed", lambda _, there=installed: there)
        assert trackers_of(None) == ()
        monkeypatch.setenv("WANDB_PROJECT", "mine")
        assert trackers_of(None) == (("wandb",) if installed else ())
        monkeypatch.setenv("WANDB_MODE", "disabled")
        assert trackers_of(None) == trackers_of(("wandb",)) == ()
        assert trackers_of(("wandb", "tensorboard")) == ("tensorboard",)
        monkeypatch.setenv("WANDB_MODE", "")
        monkeypatch.setenv("WANDB_PROJECT", "")
    assert trackers_of(("tensorboard", "wandb")) == ("wandb", "tensorboard")
    assert trackers_of(()) == ()


def test_an_account_in_netrc_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in NO_WANDB.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(trackers, "_is_installed", lambda _: True)
    file = tmp_path / "netrc"
    file.write_text("machine api.wandb.ai login user password key\n")
    file.chmod(0o600)
    monkeypatch.setenv("NETRC", str(file))
    assert trackers_of(None) == ("wandb",)


def test_trackers_do_not_decide_a_run(toy_study: Path) -> None:
    plain = expand(load_study(toy_study)).jobs
    for told in ("none", "tensorboard", '["wandb", "mlflow"]'):
        study = load_study(toy_study, [f"report_to={told}"])
        assert [j.spec for j in expand(study).jobs] == [j.spec for j in plain]
    assert load_study(toy_study).report_to is None
    assert load_study(toy_study, ["report_to=none"]).report_to == ()
    with pytest.raises(ConfigError, match="report_to is 'wandbb'"):
        load_study(toy_study, ["report_to=wandbb"])


def test_a_tracker_that_is_named_and_missing_is_an_error_now(toy_study: Path, tmp_path: Path) -> None:
    block = (
        "import sys\nclass Block:\n    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'trackio':\n            raise ModuleNotFoundError(name)\n"
        "import importlib.util as u\nreal = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'trackio' else real(name, *a)\n"
        "from oodles.cli import main; main()"
    )
    command = ["run", str(toy_study), "--out", str(tmp_path / "out"), "--set", "report_to=trackio"]
    done = subprocess.run([sys.executable, "-c", block, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "report_to = \"trackio\" needs packages that are not installed; run: pip install 'oodles[trackers]'" in (
        done.stderr
    )
    assert not (tmp_path / "out").exists()
