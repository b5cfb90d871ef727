"""Intervals from units, and adjustments for many pairs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from oodles.stats import resample


def test_jackknife_of_a_mean_is_the_t_interval():
    """For a mean the jackknife is exact, which pins down its formula."""
    values = np.random.default_rng(0).normal(0.3, 0.2, size=7)
    left_out = np.array([np.delete(values, i).mean() for i in range(7)])
    assert resample.jackknife_se(left_out) == pytest.approx(stats.sem(values))
    found = resample.jackknife_interval(np.tanh(values.mean()), np.tanh(left_out), level=0.9)
    low, high = stats.t.interval(0.9, 6, values.mean(), stats.sem(values))
    assert (found.low, found.high) == pytest.approx((np.tanh(low), np.tanh(high)))
    assert found.p_val == pytest.approx(stats.ttest_1samp(values, 0).pvalue)


def test_run_mean_is_the_one_sample_t_test():
    z = np.random.default_rng(1).normal(0.2, 0.3, size=(9, 2, 2))
    found = resample.run_mean_interval(z, level=0.95)
    assert found.p_val == pytest.approx(stats.ttest_1samp(z, 0, axis=0).pvalue)


def test_run_mean_leaves_units_without_a_correlation_out():
    z = np.random.default_rng(2).normal(size=9)
    with_gap = np.append(z, np.nan)
    assert resample.run_mean_interval(with_gap, level=0.95).low == resample.run_mean_interval(z, level=0.95).low


def test_one_unit_and_equal_units_have_no_interval():
    assert np.isnan(resample.run_mean_interval(np.array([0.3]), level=0.95).low)
    assert np.isnan(resample.jackknife_interval(np.array(0.5), np.full(4, 0.5), level=0.95).high)


def test_perfect_correlations_have_no_interval():
    found = resample.jackknife_interval(np.array(1.0), np.full(4, 1.0), level=0.95)
    assert np.isnan([found.low, found.high, found.p_val]).all()


def test_bootstrap_draws_every_unit_count_and_is_seeded():
    weights = resample.bootstrap_weights(5, 300, seed=1)
    assert (weights.sum(axis=1) == 5).all()
    assert (weights == resample.bootstrap_weights(5, 300, seed=1)).all()
    assert (weights != resample.bootstrap_weights(5, 300, seed=2)).any()


def test_bootstrap_intervals_contain_the_estimate():
    drawn = np.tanh(np.random.default_rng(3).normal(0.5, 0.1, size=(500, 1)))
    found = resample.bootstrap_interval(np.tanh(np.array([0.5])), drawn, 9, level=0.95)
    ends = resample.percentile_interval(drawn, level=0.95)
    assert found.low[0] < ends.low[0] < np.tanh(0.5) < ends.high[0] < found.high[0]
    assert 0 < ends.p_val[0] < 0.01


def test_naive_is_fisher_z():
    found = resample.naive_interval(np.array(0.5), 60, 1, level=0.95)
    half = stats.norm.ppf(0.975) / np.sqrt(56)
    assert found.low == pytest.approx(np.tanh(np.arctanh(0.5) - half))
    assert np.isnan(resample.naive_interval(np.array(0.5), 4, 1, level=0.95).low)


def test_adjustments_equal_scipy_and_the_definition():
    p = np.random.default_rng(4).uniform(size=21) ** 3
    assert resample.benjamini_hochberg(p) == pytest.approx(stats.false_discovery_control(p))
    order = np.argsort(p)
    expected = np.maximum.accumulate(p[order] * np.arange(21, 0, -1)).clip(max=1)
    assert resample.holm(p)[order] == pytest.approx(expected)
    assert np.isnan(resample.holm(np.array([np.nan, np.nan]))).all()


def test_a_draw_without_a_correlation_leaves_no_interval():
    drawn = np.tanh(np.random.default_rng(3).normal(0.5, 0.1, size=(500, 2)))
    drawn[7, 0] = np.nan
    plain = resample.bootstrap_interval(np.full(2, 0.5), drawn, 9, level=0.95)
    ends = resample.percentile_interval(drawn, level=0.95)
    for found in (plain, ends):
        assert np.isnan([found.low[0], found.high[0], found.p_val[0]]).all()
        assert np.isfinite([found.low[1], found.high[1], found.p_val[1]]).all()
