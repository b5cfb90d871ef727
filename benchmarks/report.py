"""The report of the study's grid: how long it takes to write, how large it is.

python -m benchmarks --only report
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from oodles.show.report import write_report
from oodles.stats.analysis import analyse_table

MODELS, TRAIN_SETS, SHOTS, SEEDS, STEPS = 8, ("mnli", "snli"), (16, 64, 256), (0, 1, 2), 40
OOD = ("anli", "hans", "paws", "rte", "scitail", "sick", "wnli")


def paper_table(models: int = MODELS, steps: int = STEPS) -> pd.DataFrame:
    """Made-up scores of the study's shape: 8 models x 2 train sets x 3 shots x 3 seeds, 40 steps, 8 sets."""
    draw = np.random.default_rng(0)
    frames = []
    for model in range(models):
        for train_set in TRAIN_SETS:
            loads = draw.normal(0, 0.03, (2, len(OOD)))
            for shots in SHOTS:
                for seed in SEEDS:
                    frames += _run(f"model-{125 * 2**model}m", train_set, shots, seed, steps, loads, draw)
    return pd.concat(frames, ignore_index=True)


def _run(
    model: str, train_set: str, shots: int, seed: int, steps: int, loads: Any, draw: np.random.Generator
) -> list[pd.DataFrame]:
    at = np.arange(steps)
    inside = 0.5 + 0.35 * (1 - np.exp(-at / 12)) + 0.01 * draw.normal(size=steps)
    common = draw.normal(size=(steps, 2))
    about = {"run": f"{model}_{train_set}_{seed}_{shots}", "model": model, "train_set": train_set}
    about |= {"shots": shots, "seed": seed, "data_seed": seed, "n": 1000}
    frames = []
    for k, name in enumerate((train_set, *OOD)):
        own = inside if k == 0 else 0.4 + 0.4 * inside + common @ loads[:, k - 1] + 0.01 * draw.normal(size=steps)
        share = 0.5 + 0.1 * draw.normal(size=steps)
        role = "ood" if k else "in_domain"
        for metric, values in (("accuracy", own), ("share:Yes", share), ("share:No", 1 - share)):
            made = {"step": at, "test_set": name, "role": role, "metric": metric, "value": np.clip(values, 0, 1)}
            frames.append(pd.DataFrame({**about, **made}))
    return frames


def measure(say: Callable[[str], None] = print) -> dict[str, Any]:
    """Seconds of CPU and bytes."""
    start = time.process_time()
    analysis = analyse_table(paper_table(), across=("model",))
    analysed = time.process_time()
    with tempfile.TemporaryDirectory() as scratch:
        size = write_report(analysis, Path(scratch) / "report.html").stat().st_size
    found = {"analysis": round(analysed - start, 1), "report": round(time.process_time() - analysed, 1), "bytes": size}
    say(f"report: {found}")
    return found


def markdown(found: dict[str, Any]) -> str:
    return (
        f"The report of the study's grid (144 runs x {STEPS} steps x 8 test sets, 16 groups, made-up scores) is written"
        f" in {found['report']} s of one core, after {found['analysis']} s for the analysis and the claim across"
        f" models; the file has {found['bytes'] / 1e6:.1f} MB.\n"
    )
