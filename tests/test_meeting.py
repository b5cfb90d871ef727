"""Processes find each other, get their orders, and notice that one is gone; each in a process of its own."""

from __future__ import annotations

import json
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from oodles.errors import ConfigError
from oodles.study import meeting
from oodles.study.meeting import GONE, Leader, Member, Seat

MEMBER = """
import sys, time
from pathlib import Path
from oodles.study.meeting import Member, Seat

member = Member(Seat(rank=1, size=2, local=1, meeting=Path(sys.argv[1])))
assert member.store_port == 1234
while (run := member.order()) is not None:
    print(run, flush=True)
    if run == "fail":
        member.report("out of memory")
        sys.exit(1)
    if run == "hang":
        time.sleep(60)
"""

LEADER = """
import sys, time
from pathlib import Path
from oodles.study import meeting

meeting.GRACE = float(sys.argv[2])
leader = meeting.Leader(meeting.Seat(rank=0, size=2, local=0, meeting=Path(sys.argv[1])), 1234)
leader.order("hang", lambda reason: print(f"gave up: {reason}", flush=True))
time.sleep(60)  # in a common operation that never ends
"""


def member(place: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", MEMBER, str(place)], text=True, stdout=subprocess.PIPE)


def first(place: Path) -> Seat:
    return Seat(rank=0, size=2, local=0, meeting=place)


def test_orders_come_in_turn_and_the_address_is_private(tmp_path: Path) -> None:
    place, seen = tmp_path / "slurm" / "meeting.json", []

    def look() -> None:
        while not place.exists():
            time.sleep(0.01)
        seen.append(stat.S_IMODE(place.stat().st_mode))

    watch = threading.Thread(target=look)
    watch.start()
    other = member(place)
    leader = Leader(first(place), 1234)
    watch.join()
    assert seen == [0o600]
    assert not place.exists()
    for run in ("a", "b"):
        leader.order(run, lambda _: None)
    leader.end()
    said, _ = other.communicate(timeout=30)
    assert (other.returncode, said.split()) == (0, ["a", "b"])
    assert leader.trouble(0.0) is None


def test_a_stranger_is_not_admitted(tmp_path: Path) -> None:
    place = tmp_path / "meeting.json"

    def intrude() -> None:
        while not place.exists():
            time.sleep(0.01)
        told = json.loads(place.read_text())
        with socket.create_connection(("127.0.0.1", told["port"])) as stranger:
            stranger.sendall(b'{"key": "guess", "rank": 1}\n')
            assert stranger.recv(10) == b""  # turned away
        strangers.append(member(place))

    strangers: list[subprocess.Popen[str]] = []
    door = threading.Thread(target=intrude)
    door.start()
    leader = Leader(first(place), 1234)
    door.join()
    leader.end()
    assert strangers[0].wait(timeout=30) == 0


@pytest.mark.parametrize(("run", "trouble"), [("fail", "2 of 2: out of memory"), ("hang", "ended unexpectedly")])
def test_the_first_learns_why_another_is_gone(run: str, trouble: str, tmp_path: Path) -> None:
    place = tmp_path / "meeting.json"
    other = member(place)
    leader = Leader(first(place), 1234)
    leader.order(run, lambda _: None)
    leader.settled()  # this process must not be ended
    assert other.stdout is not None
    assert other.stdout.readline().strip() == run
    if run == "hang":
        other.kill()
    assert trouble in str(leader.trouble(20.0))
    other.communicate(timeout=30)


def test_nobody_waits_for_a_process_that_is_gone(tmp_path: Path) -> None:
    """The first gives up within its grace, even in the middle of an operation; without the first, the others end."""
    place = tmp_path / "meeting.json"
    leader = subprocess.Popen([sys.executable, "-c", LEADER, str(place), "1.5"], text=True, stdout=subprocess.PIPE)
    other = member(place)
    assert other.stdout is not None
    assert other.stdout.readline().strip() == "hang"
    started = time.monotonic()
    other.kill()
    said, _ = leader.communicate(timeout=30)
    assert (leader.returncode, said) == (GONE, "gave up: process 2 of 2 ended unexpectedly\n")
    assert 1.0 < time.monotonic() - started < 15
    leader = subprocess.Popen([sys.executable, "-c", LEADER, str(place), "9"], text=True, stdout=subprocess.PIPE)
    other = member(place)
    assert other.stdout is not None
    assert other.stdout.readline().strip() == "hang"
    started = time.monotonic()
    leader.kill()
    assert other.wait(timeout=30) == GONE
    assert time.monotonic() - started < 5


def test_a_process_that_never_comes_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "TOGETHER", 0.3)
    with pytest.raises(ConfigError, match=r"process 2 of 2 has not come within 0 s; start as many"):
        Leader(first(tmp_path / "meeting.json"), 1234)
    with pytest.raises(ConfigError, match=r"process 2 of 2 has waited 0 s for the first one"):
        Member(Seat(rank=1, size=2, local=1, meeting=tmp_path / "nobody.json"))
