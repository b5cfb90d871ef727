"""An estimate of one group: the jackknife is what it says, and ranks are ranked anew."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from oodles.stats import resample
from oodles.stats.copies import resolution
from oodles.stats.estimates import (
    Estimator,
    as_correlations,
    estimate,
    near_zero,
    usable_points,
    weighted_ranks,
)
from oodles.stats.series import Series


def make(runs=5, steps=12, seed=0, sets=3):
    draw = np.random.default_rng(seed)
    coded = np.repeat(np.arange(runs), steps)
    z = draw.uniform(0.4, 0.9, size=(len(coded), 1))
    scores = (
        0.5
        + np.sin(4 * z) / 6
        + 0.03 * draw.normal(size=(len(coded), sets))
        + 0.04 * draw.normal(size=(runs, sets))[coded]
    )
    return Series(
        group={},
        test_sets=tuple("abcdef"[:sets]),
        in_domain=("z",),
        run_names=tuple(f"r{i}" for i in range(runs)),
        unit_names=tuple(f"r{i}" for i in range(runs)),
        runs=coded,
        units=coded,
        steps=np.tile(np.arange(steps), runs),
        covariates=z,
        scores=scores,
        covariate_sizes=np.full_like(z, 1000.0),
        sizes=np.full_like(scores, 1000.0),
    )


@pytest.mark.parametrize("correlation", ["pearson", "spearman"])
@pytest.mark.parametrize("within", ["pooled", "run"])
def test_left_out_is_the_estimate_of_the_other_runs(within, correlation):
    series = make()
    # Both ends of the in-domain range occur in every run, so that leaving one out does not move the knots.
    z = series.covariates.copy()
    z[series.steps == 0], z[series.steps == 1] = z.min(), z.max()
    series = replace(series, covariates=z)
    recipe = Estimator(within=within, correlation=correlation)
    found = estimate(series, recipe)
    without = as_correlations(found.left_out)
    for run in range(5):
        alone = estimate(series.at(series.runs != run), recipe)
        assert without[run] == pytest.approx(alone.r, abs=1e-9)
    expected = resample.jackknife_interval(found.r, without, level=0.95, units=found.effective)
    assert found.interval.low[0, 1] == expected.low[0, 1]


def test_units_are_left_out_whole():
    series = make(runs=6)
    paired = replace(series, units=series.runs // 2, unit_names=("u0", "u1", "u2"))
    found = estimate(paired, Estimator(within="run"))
    assert found.left_out.shape[0] == 3
    assert found.r == pytest.approx(estimate(series, Estimator(within="run")).r)


def test_separate_is_the_mean_of_fisher_z_over_runs():
    series = make()
    found = estimate(series, Estimator(within="separate", interval="run-mean", method="linear"))
    z = []
    for run in range(5):
        one = series.at(series.runs == run)
        columns = np.column_stack([np.ones(12), one.covariates])
        left = one.scores - columns @ np.linalg.lstsq(columns, one.scores, rcond=None)[0]
        z.append(np.arctanh(np.corrcoef(left.T)[0, 1]))
    assert np.arctanh(found.r[0, 1]) == pytest.approx(np.mean(z))
    assert found.interval.p_val[0, 1] == pytest.approx(stats.ttest_1samp(z, 0).pvalue)


def test_pooled_and_run_see_different_things():
    """Runs whose levels move apart while their steps move together."""
    series = make(runs=8, sets=2)
    draw = np.random.default_rng(1)
    level, move = draw.normal(size=8)[series.runs], draw.normal(size=len(series.runs))
    scores = np.column_stack([0.1 * level + 0.02 * move, -0.1 * level + 0.02 * move]) + 0.6
    series = replace(series, scores=scores)
    assert estimate(series, Estimator()).r[0, 1] < -0.5
    assert estimate(series, Estimator(within="run")).r[0, 1] > 0.9


def test_weighted_ranks_are_ranks_of_the_expanded_sample():
    values = np.array([[0.3], [0.1], [0.3], [0.7]])
    weights = np.array([2.0, 1.0, 1.0, 3.0])
    expanded = stats.rankdata(np.repeat(values[:, 0], weights.astype(int)))
    assert weighted_ranks(values, weights)[:, 0].tolist() == [expanded[0], expanded[2], expanded[0], expanded[-1]]


def test_short_runs_do_not_take_part_where_they_say_nothing():
    series = make(runs=3, steps=6)
    cut = series.at((series.runs > 0) | (series.steps == 0))
    assert usable_points(cut, "pooled").all()
    assert usable_points(cut, "run").sum() == 12
    assert usable_points(cut, "separate").sum() == 12


def test_far_away_scores_give_the_same_correlation():
    series = make()
    there = replace(series, scores=series.scores + 1e6)
    assert np.abs(near_zero(there.scores)).max() < 1
    assert estimate(there, Estimator()).r[0, 1] == pytest.approx(estimate(series, Estimator()).r[0, 1], abs=1e-6)


def test_one_run_has_an_estimate_and_no_interval():
    found = estimate(make(runs=1), Estimator())
    assert np.isfinite(found.r).all()
    assert np.isnan(found.interval.low).all()


@pytest.mark.parametrize("interval", ["jackknife", "bootstrap", "bootstrap-percentile"])
@pytest.mark.parametrize("within", ["pooled", "run"])
def test_a_set_that_moves_in_one_run_only_has_no_interval(within, interval):
    """Without that run rounding error is left of it, 1e-14, and correlations of rounding errors are no replicates."""
    for seed in range(20):
        series, draw = make(runs=6, seed=seed), np.random.default_rng(seed)
        level = (0.5, 0.7, 0.31)[seed % 3]
        scores = series.scores.copy()
        scores[:, 0] = np.where(series.runs == 0, level + 0.05 * draw.normal(size=len(scores)), level)
        found = estimate(replace(series, scores=scores), Estimator(within=within, interval=interval, n_resamples=200))
        assert np.isfinite(found.r[0, 1])
        assert np.isnan([found.interval.low[0, 1], found.interval.high[0, 1], found.interval.p_val[0, 1]]).all()
        assert np.isnan(found.left_out[0, 0, 0])
        assert np.isfinite(found.left_out[1:]).all()
        assert np.isfinite(found.interval.p_val[1, 2])  # of the others nothing is lost


def test_the_smallest_difference_that_scores_can_show():
    values, unknown = np.array([0.25, 0.5, 0.75]), np.full(3, np.nan)
    assert resolution(values, np.full(3, 400.0)) == 1 / 400
    assert resolution(values, unknown) == 0.01
    assert resolution(np.array([0.1, 1 / np.e, 0.5]), unknown) == 0
    assert resolution(np.array([0.1, 1 / 3, 0.5]), unknown) == 0  # of how many examples these are shares is not told


@pytest.mark.parametrize("n", [16, 96, 100, 128, 277, 400, 2048, 6605])
def test_scores_without_n_that_are_shares_of_examples_differ_by_one_example(n):
    draw, unknown = np.random.default_rng(0), np.full(80, np.nan)
    shares = draw.permutation(np.arange(80) % n) / n
    assert resolution(shares, unknown) == pytest.approx(1 / n)
    assert resolution(shares.round(9), unknown) == pytest.approx(1 / n)
    if n < 3000:
        assert resolution(shares.astype(np.float32).astype(float), unknown) == pytest.approx(1 / n)
    assert resolution(draw.random(80), unknown) == 0
    assert resolution(draw.random(80).astype(np.float32).astype(float), unknown) == 0


def test_percentages_show_a_whole_example():
    values = np.array([0.25, 0.5, 0.75])
    assert resolution(100 * values, np.full(3, 400.0)) == 1  # percentages


@pytest.mark.parametrize("slope", [0.3, 0.8, 1.5])
@pytest.mark.parametrize("method", ["linear", "gam"])
def test_residuals_that_are_the_rounding_of_the_scores_are_none(method, slope):
    """Exact functions of the in-domain score, published with four decimals: what is left of them is their rounding."""
    series = make(sets=2)
    z = series.covariates
    scores = np.column_stack([0.2 + slope * z[:, 0], 0.1 + 0.7 * slope * z[:, 0]])
    unknown = np.full_like(scores, np.nan)
    rounded = replace(
        series, covariates=z.round(4), scores=scores.round(4), sizes=unknown, covariate_sizes=unknown[:, :1]
    )
    assert np.isnan(estimate(rounded, Estimator(method=method)).r).all()
    wide = replace(rounded, scores=(scores + 0.02 * series.scores).round(4))
    assert np.isfinite(estimate(wide, Estimator(method=method)).r).all()


def test_what_a_curve_misses_of_an_exact_relation_is_no_residual():
    """Squares of the in-domain score: the spline misses 1e-4 of both in the same places, which correlates."""
    series = make(sets=2)
    z = series.covariates[:, 0]
    scores, unknown = np.column_stack([z**2, z**2 + 1e-6 * series.scores[:, 1]]), np.full((len(z), 2), np.nan)
    assert np.isnan(estimate(replace(series, scores=scores, sizes=unknown), Estimator()).r).all()
    noisy = replace(series, scores=scores + 0.05 * series.scores, sizes=unknown)
    assert np.isfinite(estimate(noisy, Estimator()).r).all()


def test_scores_of_few_different_values_are_not_rounding():
    series = make(sets=2)
    scores = (series.scores > np.quantile(series.scores, 0.15, axis=0)).astype(float)
    assert np.isfinite(
        estimate(replace(series, scores=scores, sizes=np.full_like(scores, np.nan)), Estimator()).r
    ).all()


def test_raw_correlations_have_nothing_regressed_out_but_the_levels_of_runs():
    series = make()
    assert estimate(series, Estimator()).raw == pytest.approx(np.corrcoef(series.scores.T))
    centred = (
        series.scores - np.array([series.scores[series.runs == run].mean(axis=0) for run in range(5)])[series.runs]
    )
    assert estimate(series, Estimator(within="run")).raw == pytest.approx(np.corrcoef(centred.T))
    runs = np.array([np.corrcoef(series.scores[series.runs == run].T)[0, 1] for run in range(5)])
    separate = estimate(series, Estimator(within="separate", interval="run-mean"))
    assert separate.raw[0, 1] == pytest.approx(np.tanh(np.arctanh(runs).mean()))
