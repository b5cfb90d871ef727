"""Who writes a run: no two at once, and a holder that is gone does not block it."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from conftest import missing
from oodles.errors import StoreError
from oodles.store.locks import Holder, held_briefly, holding, is_held, read_lock, release, take

HOLD = """
import sys, time
from pathlib import Path
from oodles.store.locks import take
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
    with pytest.raises(StoreError, match=f"locked by process {process.pid} on .*; wait for it"), holding(path):
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
from oodles.store.locks import held_briefly
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


def test_a_lock_that_names_no_process_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    for process in (0, -1, "1", True, 1 << 40, None):
        path.write_text(json.dumps({**asdict(Holder.me()), "process": process}))
        with pytest.raises(StoreError, match="it names no process"):
            take(path)
    path.write_text(json.dumps({**asdict(Holder.me()), "host": 3}))
    assert not is_held(path)


def test_nothing_is_waited_for_or_followed(tmp_path: Path) -> None:
    """A named pipe blocks whoever opens it, and a symlink leads elsewhere."""
    pipe, link, target = tmp_path / "pipe", tmp_path / "link", tmp_path / "target"
    os.mkfifo(pipe)
    target.write_text(json.dumps(asdict(replace(Holder.me(), start="1"))))  # a dead lock
    link.symlink_to(target)
    for path in (pipe, link, tmp_path):
        with pytest.raises(StoreError, match="remove the file if no process writes here"):
            take(path)
    assert read_lock(target) is not None


def test_nothing_is_written_to_the_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    path = tmp_path / "run.json"
    path.write_text(json.dumps(asdict(dead_holder())))
    assert take(path) is None
    assert not list((tmp_path / "tmp").iterdir())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.json", "tmp"]


def dead_holder() -> Holder:
    """A process that has been."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return replace(Holder.me(), process=process.pid)


def test_a_process_that_ended_and_was_not_noticed_holds_nothing(tmp_path: Path) -> None:
    """Where no init process takes care of orphans, they stay in the process table for ever."""
    path = tmp_path / "run.json"
    process = holder_elsewhere(path)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # ended, but still in the process table
    assert take(path) is None
    process.wait()


JUDGE = """
import sys
from pathlib import Path
from oodles.store.locks import read_lock
print(read_lock(Path(sys.argv[1])).state, flush=True)
"""


def judged(path: Path, *inside: str) -> str:
    """What a process thinks of a lock's holder that sees the machine in another way."""
    done = subprocess.run([*inside, sys.executable, "-c", JUDGE, str(path)], capture_output=True, text=True)
    if done.returncode:
        missing(f"cannot be tried here: {done.stderr.strip()[-200:]}")
    return done.stdout.strip()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can read, too."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
WITH_PROC = ["unshare", "--mount", "sh", "-c", f'mount -t {{}} /proc && exec {" ".join(AS_NOBODY)} "$@"', "sh"]


@pytest.mark.parametrize(
    "inside",
    [
        pytest.param([part.format("proc -o hidepid=2 proc") for part in WITH_PROC], id="hidden"),
        pytest.param(AS_NOBODY, id="another user's"),
        pytest.param(["unshare", "--time", "--boottime", "100000"], id="another time namespace"),
    ],
)
def test_a_living_holder_is_alive_however_little_can_be_seen(open_folder: Path, inside: list[str]) -> None:
    """A process of somebody else may be hidden (hidepid=2), and a time namespace shifts the start of every process."""
    path = open_folder / "run.json"
    process = holder_elsewhere(path)
    assert judged(path, *inside) == "alive"
    process.kill()
    process.wait()
    assert judged(path, *inside) == "gone"


def test_without_proc_nobody_here_is_judged(open_folder: Path) -> None:
    path = open_folder / "run.json"
    process = holder_elsewhere(path)
    assert judged(path, *[part.format("tmpfs none") for part in WITH_PROC]) == "elsewhere"
    process.kill()
    process.wait()


# takers: processes with temporary folders of their own, as the jobs of a cluster have

TAKER = """
import sys, time
from pathlib import Path
from oodles.store.locks import take
for line in sys.stdin:
    path, moment = line.split()
    while time.monotonic() < float(moment):
        pass
    print(take(Path(path)) is None, flush=True)
"""


def takers(count: int, folder: Path) -> list[subprocess.Popen[str]]:
    started = []
    for number in range(count):
        own = folder / f"tmp-{number}"
        own.mkdir(exist_ok=True)
        command = [sys.executable, "-c", TAKER]
        pipe = subprocess.PIPE
        env = {**os.environ, "TMPDIR": str(own)}
        started.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env))
    return started


def tell(taker: subprocess.Popen[str], path: Path, moment: float) -> None:
    assert taker.stdin is not None
    taker.stdin.write(f"{path} {moment}\n")
    taker.stdin.flush()


def answer(taker: subprocess.Popen[str]) -> str:
    assert taker.stdout is not None
    return taker.stdout.readline().strip()


def test_of_four_takers_with_their_own_temporary_folders_one_wins(tmp_path: Path) -> None:
    gone, pool = json.dumps(asdict(dead_holder())), takers(4, tmp_path)
    (tmp_path / "locks").mkdir()
    winners = []
    for number in range(1000):
        path = tmp_path / "locks" / f"run-{number}.json"
        path.write_text(gone)
        moment = time.monotonic() + 0.001
        for taker in pool:
            tell(taker, path, moment)
        winners.append([answer(taker) for taker in pool].count("True"))
        held = read_lock(path)
        assert held is not None
        assert held.process in [taker.pid for taker in pool]
    for taker in pool:
        taker.kill()
        taker.wait()
    assert winners == [1] * 1000
    assert len(list((tmp_path / "locks").iterdir())) == 1000  # nothing else is left behind


def test_a_taker_that_dies_in_its_takeover_is_succeeded(tmp_path: Path) -> None:
    """Of three takers one is killed at a random moment: never two that live win, and the lock can be taken after."""
    chance, gone = random.Random(0), json.dumps(asdict(dead_holder()))
    longest, cut_short = 0.004, 0  # until when a taker is killed: halved and doubled until some are killed in between
    for number in range(200):
        path = tmp_path / f"locks-{number}" / "run.json"
        path.parent.mkdir()
        path.write_text(gone)
        start, go = os.pipe()
        pool = [forked_taker(path, start) for _ in range(3)]
        os.write(go, b"123")  # all at once
        time.sleep(chance.uniform(0, longest))
        os.kill(pool[0][0], signal.SIGKILL)
        os.waitpid(pool[0][0], 0)
        in_between = os.read(pool[0][1], 1) == b""
        cut_short += in_between
        longest = min(longest * 1.5, 0.1) if in_between else max(longest / 1.5, 1e-5)
        answers = [os.read(told, 1) for _, told in pool[1:]]
        assert sorted(answers) in ([b"n", b"y"], [b"n", b"n"])
        for process, told in pool:
            os.close(told)
            if process != pool[0][0]:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
        os.close(start)
        os.close(go)
        assert take(path) is None
    assert cut_short > 10


def forked_taker(path: Path, start: int) -> tuple[int, int]:
    """A process that waits for a byte, tells through a pipe whether it got the lock, and lives until it is killed."""
    told, write = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            os.read(start, 1)
            os.write(write, b"y" if take(path) is None else b"n")
            time.sleep(600)
        finally:
            os._exit(1)
    os.close(write)
    return process, told


@pytest.mark.parametrize("depth", [1, 3])
def test_a_dead_succession_is_succeeded(tmp_path: Path, depth: int) -> None:
    """What takers leave behind that die one after the other, each in the takeover of the one before."""
    from oodles.store import locks

    path = dead = tmp_path / "run.json"
    for _ in range(depth):
        held = dead_holder()
        dead.write_text(json.dumps(held.told))
        dead = dead.with_name(f".{locks._short(dead.name, json.dumps(held.told))}.lock")
    dead.write_text(json.dumps(asdict(dead_holder())))
    assert take(path) is None
    assert read_lock(path) == Holder.me()
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


@pytest.fixture
def no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated: a file system without hard links, such as exFAT."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)


@pytest.mark.usefixtures("no_links")
def test_locks_work_without_hard_links(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    assert take(path) is None
    assert read_lock(path) == Holder.me()
    assert take(path) == Holder.me()
    release(path)
    assert not path.exists()
    elsewhere = holder_elsewhere(path)
    assert take(path) is not None
    elsewhere.kill()
    elsewhere.wait()
    assert take(path) is None  # succeeded
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


def test_a_lock_that_is_being_written_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    take(path)
    text = path.read_bytes()
    path.write_bytes(b"")
    writer = threading.Timer(0.2, path.write_bytes, [text])
    writer.start()
    assert read_lock(path) == Holder.me()
    writer.join()
