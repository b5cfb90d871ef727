"""Run a study in children that are killed at random moments, until it is done; the parent loads torch only once.

python tests/kills.py STUDY OUT --kills 20 --seed 0 --signal KILL
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path


def run_in_child(study: object, out: Path) -> int:
    """A child that runs the study; returns its process id."""
    from oodles.study.launch import run

    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        outcome = run(study, out)  # type: ignore[arg-type]
        code = 128 + outcome.stopped if outcome.stopped else 0
    finally:
        os._exit(code)


def ends(child: int, until: Callable[[], bool]) -> int | None:
    """Wait for a moment (None), or for the child's end if that comes first (its status)."""
    while not until():
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.01)
    return None


def has_checkpoint(out: Path) -> bool:
    return any(out.glob("runs/*/checkpoints/[0-9]*"))


def is_past(moment: float) -> bool:
    return time.monotonic() >= moment


def kill(child: int, name: str) -> int:
    """Its status; a child that has ended is not hurt."""
    os.kill(child, getattr(signal, f"SIG{name}"))
    return os.waitpid(child, 0)[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--signal", choices=("KILL", "TERM", "USR2"), default="KILL")
    chosen = parser.parse_args()
    import torch

    import oodles.runs.callback
    import oodles.runs.runner  # noqa: F401
    from oodles.study.load import load_study

    torch.set_num_threads(1)
    study, chance = load_study(chosen.study), random.Random(chosen.seed)
    start = time.monotonic()
    os.waitpid(run_in_child(study, chosen.out / "undisturbed"), 0)
    whole = time.monotonic() - start
    kills, rounds = 0, 0
    while kills < chosen.kills or not rounds:
        out = chosen.out / f"killed-{rounds}"
        while True:
            child, begun = run_in_child(study, out), time.monotonic()
            if kills == 0:  # one kill at least has a checkpoint to resume from, however long the start takes
                status = ends(child, partial(has_checkpoint, out))
            elif kills < chosen.kills:
                moment = begun + chance.uniform(0.1, 1.0) * whole
                status = ends(child, partial(is_past, moment))
            else:
                _, status = os.waitpid(child, 0)
            if status is None:
                status = kill(child, chosen.signal)
            if os.waitstatus_to_exitcode(status) == 0:
                whole = min(whole, time.monotonic() - begun)  # less busy a machine than before
                break
            kills += 1
        rounds += 1
    print(f"{kills} kills over {rounds} runs of the study; undisturbed it takes {whole:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
