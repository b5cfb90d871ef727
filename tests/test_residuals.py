"""Closed form, linear residuals, other implementations and refits say the same."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from oodles.stats import residuals
from oodles.stats.estimates import weighted_ranks
from oodles.stats.residuals import fit_design, make_design, partial_correlation, unit_moments

REFERENCE = Path(__file__).parent / "reference"
sys.path.insert(0, str(REFERENCE))

from cases import linear_case  # noqa: E402

PINGOUIN = json.loads((REFERENCE / "pingouin.json").read_text())


def zeros(count):
    return np.zeros(count, dtype=np.int64)


def linear_residual_correlation(z, y):
    left = fit_design(make_design(z, zeros(len(z)), method="linear", within="pooled"), y).residuals
    return float(np.corrcoef(left.T)[0, 1])


def tolerance(z, y):
    """The closed form cancels where a correlation with z is near 1."""
    largest = max(
        1
        - (fit_design(make_design(z, zeros(len(z)), method="linear", within="pooled"), y).residuals ** 2).sum(0).min()
        / ((y - y.mean(0)) ** 2).sum(0).max(),
        *(np.corrcoef(z[:, q], y[:, k])[0, 1] ** 2 for q in range(z.shape[1]) for k in range(2)),
    )
    return 1e-12 / max(1 - largest, 1e-15)


@pytest.mark.parametrize("number", range(0, 40, 2))
def test_closed_form_equals_linear_residuals(number):
    z, y = linear_case(number)
    r = np.corrcoef(np.column_stack([y, z]).T)
    assert partial_correlation(r[0, 1], r[0, 2], r[1, 2]) == pytest.approx(
        linear_residual_correlation(z, y), abs=tolerance(z, y)
    )


@pytest.mark.parametrize("number", range(40))
def test_linear_equals_pingouin(number):
    z, y = linear_case(number)
    assert linear_residual_correlation(z, y) == pytest.approx(PINGOUIN["pearson"][number], abs=tolerance(z, y))


@pytest.mark.parametrize("number", [n for n in range(40) if n % 5 < 2])
def test_spearman_equals_pingouin(number):
    z, y = linear_case(number)
    ones = np.ones(len(z))
    ranked = weighted_ranks(z, ones), weighted_ranks(y, ones)
    assert linear_residual_correlation(*ranked) == pytest.approx(PINGOUIN["spearman"][number], abs=tolerance(*ranked))


def test_closed_form_has_no_answer_where_nothing_is_left():
    assert np.isnan(partial_correlation(0.5, 1.0, 0.5))
    assert partial_correlation(1.0, 0.2, 0.2) == 1.0


@pytest.mark.parametrize("method", ["gam", "linear"])
@pytest.mark.parametrize("within", ["pooled", "run"])
@pytest.mark.parametrize("smoothing", [0.6, "gcv"])
def test_moments_give_the_refit_without_a_run(method, within, smoothing):
    draw = np.random.default_rng(3)
    runs = np.repeat(np.arange(4), 15)
    z = draw.uniform(0.4, 0.9, 60)[:, None]
    y = np.column_stack([np.sin(5 * z[:, 0]), z[:, 0] ** 2]) + 0.05 * draw.normal(size=(60, 2)) + 0.1 * runs[:, None]
    edges = np.array([[z.min(), z.max()]])
    design = make_design(z, runs, method=method, within=within)
    moments = unit_moments(design, y, runs).weighted(1.0 - np.eye(4))
    solved, edf, _ = residuals.coefficients(design, moments, smoothing)
    products = residuals.residual_products(moments, solved)
    for run in range(4):
        kept = runs != run
        recoded = np.unique(runs[kept], return_inverse=True)[1]
        alone = fit_design(
            make_design(z[kept], recoded, method=method, within=within, edges=edges), y[kept], smoothing=smoothing
        )
        assert products[run] == pytest.approx(alone.residuals.T @ alone.residuals, abs=1e-9)
        assert edf[run] == pytest.approx(alone.edf, abs=1e-6)


def test_run_intercepts_equal_dummy_columns():
    draw = np.random.default_rng(4)
    runs = np.repeat(np.arange(3), 10)
    z = draw.normal(size=(30, 1))
    y = z + runs[:, None] + draw.normal(size=(30, 1))
    columns = np.column_stack([np.eye(3)[runs], z])
    expected = y - columns @ np.linalg.lstsq(columns, y, rcond=None)[0]
    fit = fit_design(make_design(z, runs, method="linear", within="run"), y)
    assert fit.residuals == pytest.approx(expected, abs=1e-10)
    assert fit.edf[0] == pytest.approx(4, abs=1e-6)


def test_collinear_and_constant_covariates_are_dropped():
    draw = np.random.default_rng(5)
    z = draw.normal(size=20)
    y = draw.normal(size=(20, 2))
    plain = linear_residual_correlation(z[:, None], y)
    assert linear_residual_correlation(np.column_stack([z, 2 * z, np.full(20, 0.5)]), y) == pytest.approx(
        plain, abs=1e-9
    )


def test_slopes_are_derivatives_of_the_transforms():
    p = np.array([0.1, 0.5, 0.93])
    for method in residuals.METHODS:
        ahead, behind = residuals.transform(p + 1e-6, method), residuals.transform(p - 1e-6, method)
        assert residuals.transform_slope(p, method) == pytest.approx((ahead - behind) / 2e-6, rel=1e-5)
