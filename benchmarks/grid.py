"""How a grid grows: expanding and hashing specs, reading run folders, showing their status, from 100 to 10,000 runs.

    python -m benchmarks --only grid        some minutes; results.json and the docs

The run folders are written with made-up scores by the code that writes real ones; nothing is trained.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

METRICS = {"accuracy": 0.5, "balanced_accuracy": 0.5, "f1": 0.4, "auc": 0.6, "share:Yes": 0.3, "share:No": 0.7}
ABOUT = {"model": {"label": "m"}, "train_set": "s0", "shots": 8, "pattern": {"name": "q"}, "suite": "toy"}
SIZES = (100, 1000, 10_000)  # runs, of 5 steps x 8 sets
STUDY = """
schema = 1
name = "many"
suite = "mini"
[grid]
models = ["tiny-llama-untrained"]
train_sets = ["daily"]
shots = [8, 16, 32, 64]
seeds = {seeds}
"""


def write_runs(root: Path, runs: int, steps: int, sets: int) -> None:
    """Run folders as a study leaves them."""
    from oodles.contracts import Role
    from oodles.store.claim import claim_folder
    from oodles.store.folder import StudyFolder
    from oodles.store.scores import Score

    study = StudyFolder(root)
    claim_folder(study, "toy", "toy")
    for number in range(runs):
        folder = study.run(f"m_s0_{number}_8")
        folder.path.mkdir(parents=True)
        folder.spec.write_text(json.dumps({**ABOUT, "seed": number, "data_seed": number, "run_id": None}))
        lines = []
        for step in range(steps):
            for one in range(sets):
                role: Role = "ood" if one else "in_domain"
                values = {**METRICS, "accuracy": (number + step + one) % 100 / 100}
                lines.append(Score(step, f"s{one}", role, 100, None, "x", 0, None, values).line)
        folder.scores.write_text("".join(lines))
        folder.done.write_text('{"seconds": 10}')


def measure(say: Callable[[str], None] = print) -> dict[str, Any]:
    """Seconds and peak memory, each in a process of its own."""
    found: dict[str, Any] = {"runs": {}}
    with tempfile.TemporaryDirectory() as scratch:
        write_runs(Path(scratch) / "study", 144, 40, 8)
        found["read_144_runs"] = _alone("read", Path(scratch) / "study")
        say(f"grid: 144 runs x 40 steps x 8 sets read in {found['read_144_runs']['seconds']} s")
        for runs in SIZES:
            root = Path(scratch) / str(runs)
            write_runs(root, runs, 5, 8)
            found["runs"][str(runs)] = {what: _alone(what, root) for what in ("read", "status")}
            found["runs"][str(runs)]["expand"] = _alone("expand", runs)
            say(f"grid: {runs} runs: {found['runs'][str(runs)]}")
    return found


def _alone(what: str, given: object) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.grid", what, str(given)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"benchmark {what} failed: {done.stderr[-2000:]}")
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def markdown(found: dict[str, Any]) -> str:
    whole = found["read_144_runs"]
    lines = [
        f"The long table of the study's 144 runs (40 steps x 8 sets, {144 * 40 * 8 * 6:,} rows) is read in"
        f" {whole['seconds']} s, at {whole['gigabytes']} GB.",
        "",
        "| runs (5 steps x 8 sets) | long table, s | GB | status, s | expand and hash, s |",
        "|---|---|---|---|---|",
    ]
    for runs, one in found["runs"].items():
        read, status, grid = one["read"], one["status"], one["expand"]
        lines.append(
            f"| {int(runs):,} | {read['seconds']} | {read['gigabytes']} | {status['seconds']} | {grid['seconds']} |"
        )
    return "\n".join(lines) + "\n"


def _timed(what: str, given: str) -> dict[str, float]:
    from oodles.store.facts import describe_status, pace_of
    from oodles.store.table import read_runs
    from oodles.study.grid import expand
    from oodles.study.load import load_study

    if what == "expand":
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "study.toml"
            path.write_text(STUDY.format(seeds=list(range(int(given) // 4))))
            study = load_study(path)
            start = time.perf_counter()
            assert len({job.spec.run_id for job in expand(study).jobs}) == int(given)
    else:
        import pandas  # noqa: F401

        start = time.perf_counter()
        if what == "read":
            read_runs(given)
        else:
            pace_of(Path(given), describe_status(Path(given)))
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {"seconds": round(seconds, 2), "gigabytes": round(peak, 2)}


if __name__ == "__main__":
    print(json.dumps(_timed(*sys.argv[1:])))
