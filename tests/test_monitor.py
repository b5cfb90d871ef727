"""What is reported of a run while it is made."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from oodles.runs.monitor import Clock, evaluation_line, memory_gigabytes

VALUES = {
    "away": {"accuracy": 0.5, "share:Yes": 0.2, "share:No": 0.8},
    "home": {"accuracy": 0.755, "share:Yes": 0.4, "share:No": 0.6},
}


def test_the_line_of_an_evaluation() -> None:
    line = evaluation_line(4, 16, 0.6931, VALUES, "home")
    assert line == "step 4/16  loss 0.693  home 0.76  away 0.50  Yes 0.30"  # in-domain first
    assert evaluation_line(0, None, math.nan, VALUES, "home").startswith("step 0  loss -  home")


def test_the_first_answers_of_two_patterns_are_both_named() -> None:
    values = {**VALUES, "far": {"accuracy": 1.0, "share:true": 0.9}}
    assert evaluation_line(0, None, 1.0, values, "home").endswith(
        "Yes 0.30  true 0.90"
    )  # of other answers: not their mean


def test_the_time_left_is_that_of_the_steps_and_evaluations_to_come() -> None:
    clock = Clock(step=10, begun=time.monotonic() - 60)
    assert clock.left(10, [10, 20, 30]) == 0.0  # of the first evaluation nothing can be said
    clock.evaluated(20.0)
    clock.evaluated(20.0)
    # 20 s of training for 10 steps; 10 steps and one evaluation are left
    assert clock.left(20, [10, 20, 30]) == pytest.approx(20 + 20, abs=1)
    assert clock.left(30, [10, 20, 30]) == 0.0


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="no /proc here")
def test_memory_is_the_peak_of_this_process_in_gigabytes() -> None:
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM"))
    assert memory_gigabytes() == pytest.approx(int(line.split()[1]) / 1e6, rel=0.05)
