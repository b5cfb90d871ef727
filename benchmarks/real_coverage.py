"""Coverage on real runs: how often does the interval from a few of the 100 BERTs cover the value of all 100?

    python -m benchmarks.real_coverage [--draws 1000] [--merge]

The 100 runs are a finite population: a sample of k of them varies about the value of all by sqrt(1 - k/100) less
than a sample of an endless one. Both are shown: the interval as it is given, and with its half widths (on Fisher's
scale) multiplied by that factor, which is what 95 % is promised for.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.statistics import save
from oodles.api.findings import findings
from oodles.stats.correlate import partial_correlations

SIZES = (9, 18, 30)
RESULTS = Path(__file__).parent / "results.json"


def measure(draws: int, seed: int = 0) -> dict[str, Any]:
    """Shares of covered values over all pairs of the six categories, by number of runs."""
    finding = findings()["bert-hans"]
    table = finding.table()
    table = table[table["test_set"].isin([*finding.test_sets, "mnli"])]
    runs = table["run"].unique()
    truth = _pairs(table)["r"].to_numpy()
    draw = np.random.default_rng(seed)
    cells = {}
    for size in SIZES:
        plain, scaled, widths = [], [], []
        for _ in range(draws):
            chosen = draw.choice(runs, size, replace=False)
            found = _pairs(table[table["run"].isin(chosen)])
            r, low, high = (
                np.arctanh(np.clip(found[c].to_numpy(float), -0.999999, 0.999999)) for c in ("r", "low", "high")
            )
            factor = np.sqrt(1 - size / len(runs))
            known, z = np.isfinite(low), np.arctanh(truth)
            plain.append(((low <= z) & (z <= high))[known])
            scaled.append(((r - factor * (r - low) <= z) & (z <= r + factor * (high - r)))[known])
            widths.append((np.tanh(high) - np.tanh(low))[known] / 2)
        per_pair = np.mean([s for s in scaled if len(s) == len(truth)], axis=0)
        cells[str(size)] = {
            "draws": draws,
            "covered": float(np.concatenate(plain).mean()),
            "covered_finite": float(np.concatenate(scaled).mean()),
            "lowest_pair": float(per_pair.min()),
            "highest_pair": float(per_pair.max()),
            "half_width": float(np.median(np.concatenate(widths))),
        }
        print(size, cells[str(size)], flush=True)
    return {"seed": seed, "runs": len(runs), "pairs": len(truth), "cells": cells}


def _pairs(table: Any) -> Any:
    return partial_correlations(table, within=("pooled",)).table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--merge", action="store_true", help="put the figures into benchmarks/results.json")
    chosen = parser.parse_args()
    found = measure(chosen.draws)
    if chosen.merge:
        save(RESULTS, {**json.loads(RESULTS.read_text()), "real_coverage": found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
