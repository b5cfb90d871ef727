"""A synthetic study that is pushed through other tools' writers: a long table, and how it is compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import oodles as oo

SETS = ("snli", "hans", "rte_x", "anli")  # a name with an underscore: metrics are split off after it
STEPS = (2, 4, 6, 8)
RUNS = 6


def study(seed: int = 0, runs: int = RUNS, digits: int = 17) -> pd.DataFrame:
    """Accuracies of runs named like the paper's, with the seed as a column."""
    draw = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for run in range(runs):
        level = draw.normal(0, 0.02)
        for step in STEPS:
            home = 0.5 + 0.04 * step + level + draw.normal(0, 0.01)
            shared = draw.normal(0, 0.03)
            for k, name in enumerate(SETS):
                value = home if not k else home - 0.1 * k + shared * (k < 3) + draw.normal(0, 0.01)
                rows.append(
                    {"run": f"m_snli_{run}_64", "step": step, "test_set": name, "value": float(np.clip(value, 0, 1))}
                )
    return pd.DataFrame(rows).assign(value=lambda t: t["value"].round(digits))


def wide(table: pd.DataFrame) -> pd.DataFrame:
    return table.pivot_table(index=["run", "step"], columns="test_set", values="value").reset_index()[
        ["run", "step", *SETS]
    ]


def same(found: pd.DataFrame, expected: pd.DataFrame, tolerance: float = 0.0) -> None:
    """The same scores under the same names; whatever else the tables hold."""
    if "metric" in found.columns:
        found = found[found["metric"].isna() | found["metric"].eq("accuracy")]
    key = ["run", "step", "test_set"]
    a = found[[*key, "value"]].sort_values(key, ignore_index=True)
    b = expected[[*key, "value"]].sort_values(key, ignore_index=True)
    assert a[key].astype(str).to_numpy().tolist() == b[key].astype(str).to_numpy().tolist()
    assert np.abs(a["value"].to_numpy(float) - b["value"].to_numpy(float)).max() <= tolerance


def same_correlations(path: Path | list[Path], expected: pd.DataFrame, tolerance: float = 0.0, **options: Any) -> None:
    """What `analyse` makes of the files is what it makes of the table."""
    found = oo.analyse(path, in_domain="snli", by="none", **options).result.table
    truth = oo.analyse(expected, in_domain="snli", by="none").result.table
    assert found[["a", "b", "within"]].to_numpy().tolist() == truth[["a", "b", "within"]].to_numpy().tolist()
    assert np.isfinite(truth["r"]).all()
    assert np.abs(found["r"] - truth["r"]).max() <= tolerance
