"""Other tools' files at the size of a sweep: time and memory of `oodles import`.

    python -m benchmarks --only imports        some minutes; results.json and the docs

1,000 runs x 100 steps x 10 test sets, as trainer_state.json, TensorBoard event files and one CSV; 2,000 result files of
lm-evaluation-harness with 10 tasks each. The scores are made up, and each command runs in a process of its own.
"""

from __future__ import annotations

import json
import resource
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from oodles.imports.wire import crc32c

RUNS, STEPS, SETS, RESULTS = 1000, 100, 10, 2000


def write_trainer(folder: Path, runs: int, steps: int, sets: int) -> None:
    """As the Trainer logs: a row per set, with its times."""
    draw = np.random.default_rng(0)
    for run in range(runs):
        rows: list[dict[str, Any]] = []
        for step in range(steps):
            rows.append({"epoch": 1.0, "grad_norm": 1.5, "learning_rate": 1e-4, "loss": 0.5, "step": step})
            for number, value in enumerate(draw.random(sets)):
                name = f"eval_set{number}"
                row = {f"{name}_accuracy": value, f"{name}_loss": 0.7, f"{name}_runtime": 1.2, "epoch": 1.0}
                row |= {f"{name}_samples_per_second": 80.0, f"{name}_steps_per_second": 9.0, "step": step}
                rows.append(row)
        path = folder / f"run{run}" / "trainer_state.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"global_step": steps, "log_history": rows}, indent=2))


def write_events(folder: Path, runs: int, steps: int, sets: int) -> None:
    """Scalars framed as TensorBoard frames them (a test compares our reader with its own)."""
    draw = np.random.default_rng(0)
    tags = [f"eval/set{number}_accuracy".encode() for number in range(sets)]
    for run in range(runs):
        bodies = []
        for step in range(steps):
            for tag, value in zip(tags, draw.random(sets), strict=True):
                inner = b"\x0a" + bytes([len(tag)]) + tag + b"\x15" + struct.pack("<f", value)
                summary = b"\x0a" + bytes([len(inner)]) + inner
                head = b"\x09" + struct.pack("<d", 1.7e9) + b"\x10" + bytes([step])
                bodies.append(head + b"\x2a" + bytes([len(summary)]) + summary)
        heads = [struct.pack("<Q", len(body)) for body in bodies]
        sums = zip(heads, crc32c(heads), bodies, crc32c(bodies), strict=True)
        path = folder / f"run{run}" / "events.out.tfevents.1.host"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"".join(h + struct.pack("<I", a) + b + struct.pack("<I", c) for h, a, b, c in sums))


def write_csv(folder: Path, runs: int, steps: int, sets: int) -> None:
    """One wide table."""
    draw = np.random.default_rng(0)
    lines = [",".join(["run", "step", *(f"set{number}" for number in range(sets))])]
    for run in range(runs):
        for step in range(steps):
            lines.append(",".join([f"run{run}", str(step), *map(repr, map(float, draw.random(sets)))]))
    folder.mkdir(parents=True)
    (folder / "table.csv").write_text("\n".join(lines) + "\n")


def write_results(folder: Path, files: int, sets: int) -> None:
    """Result files of the harness, as large as real ones: most of one is the tasks' configs."""
    draw = np.random.default_rng(0)
    config = {"task": "x", "dataset_path": "y", "description": "z" * 600, "metric_list": [{"metric": "acc"}] * 3}
    for number in range(files):
        values = draw.random(sets)
        scores = {f"set{k}": {"alias": "x", "acc,none": v, "acc_stderr,none": 0.01} for k, v in enumerate(values)}
        made = {
            "results": scores,
            "configs": dict.fromkeys(scores, config),
            "versions": dict.fromkeys(scores, 1.0),
            "n-samples": {name: {"original": 500, "effective": 500} for name in scores},
            "config": {"model": "hf", "model_args": f"pretrained=out/run{number // 20}/checkpoint-{number % 20}"},
        }
        path = folder / f"model{number}" / "results_2026-01-01T00-00-00.000000.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(made, indent=2))


def measure(say: Callable[[str], None] = print, scale: float = 1.0) -> dict[str, Any]:
    """Seconds and peak memory of `oodles import` for each format."""
    runs, files = max(2, int(RUNS * scale)), max(2, int(RESULTS * scale))
    makers: dict[str, Callable[[Path], None]] = {
        "trainer_state.json": lambda folder: write_trainer(folder, runs, STEPS, SETS),
        "TensorBoard": lambda folder: write_events(folder, runs, STEPS, SETS),
        "CSV": lambda folder: write_csv(folder, runs, STEPS, SETS),
        "lm-evaluation-harness": lambda folder: write_results(folder, files, SETS),
    }
    found: dict[str, Any] = {"runs": runs, "files": files}
    for name, make in makers.items():
        with tempfile.TemporaryDirectory() as scratch:
            make(Path(scratch) / "logs")
            found[name] = _alone(["import", str(Path(scratch) / "logs"), "--out", str(Path(scratch) / "t.parquet")])
            found[name]["megabytes"] = round(sum(p.stat().st_size for p in Path(scratch).rglob("*.*")) / 1e6)
            say(f"imports: {name}: {found[name]}")
    return found


def _alone(arguments: list[str]) -> dict[str, float]:
    start, before = time.perf_counter(), _processor_seconds()
    command = [sys.executable, "-m", "benchmarks.stored", *arguments]  # which tells its peak memory
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"benchmark {arguments[0]} failed: {done.stderr[-2000:]}")
    seconds = time.perf_counter() - start
    used, told = _processor_seconds() - before, json.loads(done.stderr.splitlines()[-1])
    return {"seconds": round(seconds, 1), "processor_seconds": round(used, 1), "gigabytes": told["gigabytes"]}


def _processor_seconds() -> float:
    """Of all processes that were waited for: a busy machine lengthens the other clock only."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def markdown(found: dict[str, Any]) -> str:
    names = [name for name in found if isinstance(found[name], dict)]
    keys = ("megabytes", "seconds", "processor_seconds", "gigabytes")
    rows = [f"| {name} | {' | '.join(str(found[name][key]) for key in keys)} |" for name in names]
    return "\n".join(
        [
            f"`oodles import` of {found['runs']:,} runs x {STEPS} steps x {SETS} test sets, and of {found['files']:,}"
            " result files of the harness (made-up scores), from start to the written table.",
            "",
            "| format | MB | seconds | processor seconds | peak memory, GB |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )
