"""What training changed, with the run as the unit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from oodles.changes import changes
from oodles.errors import ConfigError


def table_of(gains, steps=(0, 5, 10)):
    rows = [
        (f"r{r}", step, name, 0.5 + gain * step / 10, "in_domain" if name == "mnli" else "ood", 100)
        for r, gain in enumerate(gains)
        for step in steps
        for name in ("mnli", "hans")
    ]
    return pd.DataFrame(rows, columns=["run", "step", "test_set", "value", "role", "n"])


def test_mean_and_t_interval_over_runs():
    gains = [0.1, 0.2, 0.15, 0.3, 0.05]
    found = changes(table_of(gains))
    assert found["test_set"].tolist() == ["mnli", "hans"]
    row = found.iloc[0]
    low, high = stats.t.interval(0.95, 4, np.mean(gains), stats.sem(gains))
    assert (row["change"], row["low"], row["high"]) == pytest.approx((np.mean(gains), low, high))
    assert (row["first_step"], row["last_step"], row["n_runs"], row["n"]) == (0, 10, 5, 100)
    assert row["caveats"] == []


def test_few_and_equal_runs_say_so():
    assert changes(table_of([0.1])).iloc[0]["caveats"] == ["one run: no interval"]
    assert np.isnan(changes(table_of([0.1])).iloc[0]["low"])
    assert changes(table_of([0.1, 0.2])).iloc[0]["caveats"] == ["2 runs: the interval is approximate"]
    assert "the runs are equal: no interval" in changes(table_of([0.1, 0.1])).iloc[0]["caveats"]


def test_one_step_has_no_change():
    found = changes(table_of([0.1, 0.2], steps=(0,)))
    assert found["change"].isna().all()
    assert found["caveats"].iloc[0] == ["2 of 2 runs have one step: left out"]


def test_groups_and_metrics():
    table = table_of([0.1, 0.2]).assign(model=lambda t: t["run"], train_set="mnli")
    assert len(changes(table)) == 4
    assert len(changes(table, by=("train_set",))) == 2
    with pytest.raises(ConfigError, match="metric 'f1' is not in the table"):
        changes(table, metric="f1")
