"""An analysis takes one thread, and leaves the threads of its user as they were."""

from __future__ import annotations

import subprocess
import sys

from oodles.stats.analysis import analyse_table
from oodles.stats.correlate import partial_correlations

PROGRAM = """
import numpy as np
from threadpoolctl import threadpool_info
from oodles.stats.threads import one_thread

def threads():
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}

np.ones((2, 2)) @ np.ones((2, 2))
before = threads()
print(before, one_thread(threads)(), threads() == before)
try:
    one_thread(lambda: 1 / 0)()
except ZeroDivisionError:
    print(threads() == before)
"""


def test_one_thread_inside_and_as_before_after_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        env={"OPENBLAS_NUM_THREADS": "2", "PATH": ""},
    )
    assert done.stdout.split("\n") == ["{2} {1} True", "True", ""]


def test_what_users_call_is_limited() -> None:
    for call in (analyse_table, partial_correlations):
        assert call.__wrapped__.__name__ == call.__name__  # type: ignore[attr-defined]
