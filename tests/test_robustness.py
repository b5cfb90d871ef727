"""Effective robustness: residuals in the metric's units, with intervals that know about runs and test sets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oodles.stats.estimates import Estimator
from oodles.stats.robustness import robustness
from test_estimates import make


@pytest.mark.parametrize("method", ["gam", "linear", "probit-linear", "logit-linear"])
@pytest.mark.parametrize("within", ["pooled", "run", "separate"])
def test_residual_is_value_minus_fitted(method, within):
    series = make()
    found = robustness(series, Estimator(method=method, within=within))
    assert len(found) == 5 * 12 * 3
    assert (found["value"] - found["fitted"]).to_numpy() == pytest.approx(found["residual"].to_numpy())
    assert found["fitted"].between(-0.2, 1.2).all()
    if within == "separate":
        assert found["low"].isna().all()
        assert found["caveats"].iloc[0] == ["one fit per run: no interval for a residual"]
    else:
        assert ((found["low"] < found["residual"]) & (found["residual"] < found["high"])).all()
        assert found["caveats"].map(len).eq(0).all()


def test_interval_grows_where_the_test_set_is_small():
    series = make()
    small = replace(series, sizes=np.full_like(series.sizes, 50.0))
    wide, narrow = (robustness(s, Estimator()) for s in (small, series))
    assert ((wide["high"] - wide["low"]) > (narrow["high"] - narrow["low"])).all()
    unknown = robustness(replace(series, sizes=np.full_like(series.sizes, np.nan)), Estimator())
    assert "leaves out test-set noise" in unknown["caveats"].iloc[0][0]


def test_interval_covers_the_true_distance():
    """A run that is truly above the others' line by 0.05: how often the interval contains that."""
    hits = []
    for seed in range(60):
        draw = np.random.default_rng(seed)
        series = make(runs=10, steps=6, seed=seed, sets=1)
        truth = 0.5 + 0.3 * (series.covariates - 0.4) + np.where(series.runs == 0, 0.05, 0.0)[:, None]
        truth = truth + 0.01 * draw.normal(size=10)[series.runs][:, None] * (series.runs > 0)[:, None]
        scores = draw.binomial(1000, truth) / 1000
        found = robustness(replace(series, scores=scores), Estimator(method="linear"))
        mine = found[(found["run"] == "r0") & (found["step"] == 3)].iloc[0]
        hits.append(mine["low"] <= 0.045 <= mine["high"])  # one run in ten pulls the line by a tenth
    assert np.mean(hits) > 0.88


def test_gaps_are_left_out_and_ranks_do_not_matter():
    series = make()
    scores = series.scores.copy()
    scores[:7, 1] = np.nan
    found = robustness(replace(series, scores=scores), Estimator(correlation="spearman"))
    assert len(found) == 5 * 12 * 3 - 7
    assert found["residual"].notna().all()


def test_one_run_says_why_it_has_no_interval():
    found = robustness(make(runs=1), Estimator())
    assert found["low"].isna().all()
    assert found["caveats"].iloc[0] == ["one run: no interval for a residual"]
