"""Who writes a run: no two at once, and a holder that is gone does not block it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from oodles.errors import StoreError
from oodles.locks import Holder, held_briefly, holding, is_held, read_lock, release, take

HOLD = """
import sys, time
from pathlib import Path
from oodles.locks import take
print(take(Path(sys.argv[1])), flush=True)
time.sleep(60)
"""


def holder_elsewhere(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "None"
    return process


def test_a_living_holder_is_respected_and_a_killed_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    process = holder_elsewhere(path)
    held = take(path)
    assert held is not None
    assert held.process == process.pid
    assert held.state == "alive"
    assert is_held(path)
    with pytest.raises(StoreError, match=f"process {process.pid} on .* is writing there"), holding(path):
        pass
    process.kill()
    process.wait()
    assert not is_held(path)
    assert take(path) is None
    assert read_lock(path) == Holder.me()
    release(path)
    assert not path.exists()


def test_a_process_number_that_is_given_again_is_not_the_holder(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(asdict(replace(Holder.me(), start="1"))))
    assert take(path) is None


def test_a_machine_that_was_started_again_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(asdict(replace(Holder.me(), boot="before"))))
    assert take(path) is None


def test_another_machine_cannot_be_judged_from_here(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    there = replace(Holder.me(), host="elsewhere", boot="other")
    path.write_text(json.dumps(asdict(there)))
    assert take(path) == there
    assert there.state == "elsewhere"
    release(path)
    assert path.exists()  # not ours to give back
    assert replace(Holder.me(), space="pid:[1]").state == "elsewhere"  # a container has its own process numbers


def test_a_stopped_holder_still_holds(tmp_path: Path) -> None:
    """No clock is trusted: a process that stands still for long is not gone."""
    path = tmp_path / "run.json"
    process = holder_elsewhere(path)
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.2)
    assert take(path) is not None
    process.kill()
    process.wait()


COUNT = """
import sys, time
from pathlib import Path
from oodles.locks import held_briefly
path = Path(sys.argv[1])
for _ in range(40):
    with held_briefly(path / "lock"):
        number = int((path / "number").read_text())
        time.sleep(0.001)
        (path / "number").write_text(str(number + 1))
"""


def test_brief_locks_lose_no_change(tmp_path: Path) -> None:
    (tmp_path / "number").write_text("0")
    workers = [subprocess.Popen([sys.executable, "-c", COUNT, str(tmp_path)]) for _ in range(4)]
    assert [w.wait() for w in workers] == [0] * 4
    assert (tmp_path / "number").read_text() == "160"
    assert [p.name for p in tmp_path.iterdir()] == ["number"]


def test_a_damaged_lock_names_itself(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(StoreError, match="cannot be read as a lock"):
        take(tmp_path / "run.json")
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]
    with held_briefly(tmp_path / "new" / "lock"):
        assert (tmp_path / "new" / "lock").exists()
