"""What training changed, with the run as the unit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from oodles.errors import ConfigError
from oodles.stats.changes import changes


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
    equal = table_of([0.1, 0.1])
    equal["value"] += np.where((equal["run"] == "r1") & (equal["step"] == 5), 0.01, 0.0)  # or r1 is a copy
    assert "the runs are equal: no interval" in changes(equal).iloc[0]["caveats"]


def test_one_step_has_no_change():
    found = changes(table_of([0.1, 0.2], steps=(0,)))
    assert found["change"].isna().all()
    assert found["caveats"].iloc[0] == ["every run has one step: no change over training"]


def test_groups_and_metrics():
    table = table_of([0.1, 0.2]).assign(model=lambda t: t["run"], train_set="mnli")
    assert len(changes(table)) == 4
    assert len(changes(table, by=("train_set",))) == 2
    with pytest.raises(ConfigError, match="metric 'f1' is not in the table"):
        changes(table, metric="f1")


def test_the_unit_is_what_is_independent():
    """Three runs of each of four seeds: the interval is Student's over seeds."""
    draw = np.random.default_rng(0)
    of_seed = draw.normal(0.2, 0.05, size=4)
    gains = (of_seed[:, None] + 0.001 * draw.normal(size=(4, 3))).ravel()
    table = table_of(gains).assign(seed=lambda t: t["run"].str[1:].astype(int) // 3)
    row = changes(table, unit="seed").iloc[0]
    low, high = stats.t.interval(0.95, 3, np.mean(gains), stats.sem(gains.reshape(4, 3).mean(axis=1)))
    assert (row["change"], row["low"], row["high"]) == pytest.approx((np.mean(gains), low, high))
    assert (row["n_runs"], row["n_units"]) == (12, 4)
    assert row["caveats"] == ["4 independent units: the interval is approximate"]
    runs = changes(table).iloc[0]
    assert runs["high"] - runs["low"] < 0.6 * (row["high"] - row["low"])
    with pytest.raises(ConfigError, match="--unit sed: no such column"):
        changes(table, unit="sed")


def test_no_change_of_a_share_is_beyond_one():
    row = changes(table_of([0.4, -0.45])).iloc[0]
    assert (row["low"], row["high"]) == (-1, 1)
    assert row["caveats"][-1] == "the runs differ so much that the interval is cut at the largest change possible"
    percent = table_of([0.4, -0.45]).assign(value=lambda t: 100 * t["value"])
    assert changes(percent).iloc[0]["high"] > 100
