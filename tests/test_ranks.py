"""The processes of a run agree; one that does not come is not waited for for ever."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from oodles.runs.events import Event
from oodles.runs.ranks import ALONE
from oodles.runs.stopping import Stop, Stopped
from oodles.study.worker import agreeing

TWO = """
import datetime, sys, time
from pathlib import Path
import torch
from torch.distributed import TCPStore
from oodles.runs import ranks as module
from oodles.runs.ranks import Ranks, join, part

rank, task, scratch = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
module.PATIENCE = datetime.timedelta(seconds=5)
if rank == 0:
    store = TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
    (scratch / "part").write_text(str(store.port))
    (scratch / "part").rename(scratch / "port")
else:
    while not (scratch / "port").exists():
        time.sleep(0.05)
    store = TCPStore("127.0.0.1", int((scratch / "port").read_text()), 2, is_master=False)
me = Ranks(engine="ddp", rank=rank, size=2)
join(me, store)
if task == "agree":
    assert me.from_first(lambda: {"rank": rank}) == {"rank": 0}
    assert me.largest(7 if rank else 3) == 7
    assert me.mean(torch.tensor([1.0, 2.0 * rank])).tolist() == [1.0, 1.0]
    assert me.gathered(f"rank {rank}") == ["rank 0", "rank 1"]
    part()
elif rank == 1:
    time.sleep(60)  # alive, but it does not come
else:
    started = time.monotonic()
    try:
        me.largest(1)
    except RuntimeError:
        print(f"waited {time.monotonic() - started:.0f} s")
"""


def start(task: str, scratch: Path) -> list[subprocess.Popen[str]]:
    return [
        subprocess.Popen(
            [sys.executable, "-c", TWO, str(rank), task, str(scratch)],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]


def test_alone_everything_is_its_own() -> None:
    assert ALONE.alone
    assert ALONE.is_first
    assert ALONE.from_first(lambda: 3) == ALONE.largest(3) == 3
    assert ALONE.gathered(3) == [3]


@pytest.mark.slow
def test_two_processes_agree(tmp_path: Path) -> None:
    for rank in start("agree", tmp_path):
        _, errors = rank.communicate(timeout=120)
        assert rank.returncode == 0, errors[-2000:]


@pytest.mark.slow
def test_a_process_that_hangs_is_waited_for_a_bounded_time(tmp_path: Path) -> None:
    """The bound is half an hour, here five seconds."""
    first, second = start("hang", tmp_path)
    said, errors = first.communicate(timeout=120)
    second.kill()
    second.communicate()
    assert said.startswith("waited"), errors[-2000:]
    assert 4 <= int(said.split()[1]) <= 30, time.monotonic()


def test_a_signal_that_comes_while_processes_agree_is_not_lost() -> None:
    """The handler runs when the exchange returns: what was agreed before must not take its place."""
    stop = Stop()

    class Agreeing:
        alone = False

        def largest(self, number: int) -> int:
            stop.number = signal.SIGTERM
            return number

    task = SimpleNamespace(stop=stop, ranks=Agreeing(), listener=lambda _: None)
    heard = agreeing(task)  # type: ignore[arg-type]
    heard(Event(work=1.0))
    assert stop.number == signal.SIGTERM
    with pytest.raises(Stopped):
        heard(Event(work=1.0))
