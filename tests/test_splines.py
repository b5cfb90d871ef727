"""The spline against pyGAM's stored answers, and against dense least squares where pyGAM is wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.interpolate import BSpline

from oodles.stats import splines
from oodles.stats.residuals import fit_design, make_design

REFERENCE = Path(__file__).parent / "reference"
sys.path.insert(0, str(REFERENCE))

from cases import gcv_case, spline_case  # noqa: E402

PYGAM = json.loads((REFERENCE / "pygam.json").read_text())


def one_run(x):
    return np.zeros(len(x), dtype=np.int64)


def spline_fit(x, y, smoothing):
    return fit_design(make_design(x[:, None], one_run(x), method="gam", within="pooled"), y, smoothing=smoothing)


def test_basis_is_the_textbook_basis():
    x = np.linspace(0.2, 0.7, 101)
    step = 0.5 / 17
    knots = 0.2 + step * np.arange(-3, 21)
    expected = BSpline.design_matrix(np.clip(x, 0.2, 0.7 - 1e-12), knots, 3).toarray()
    assert np.abs(splines.bspline_basis(x, (0.2, 0.7)) - expected).max() < 1e-9


def test_basis_rows_sum_to_one_also_outside_the_edges():
    basis = splines.bspline_basis(np.array([-3.0, 0.1, 0.4, 9.0]), (0.0, 1.0), 8)
    assert basis.sum(axis=1) == pytest.approx(np.ones(4), abs=1e-14)


def test_one_distinct_score_is_an_intercept():
    basis = splines.bspline_basis(np.full(5, 0.3), (0.3, 0.3))
    assert np.ptp(basis, axis=0).max() == 0
    fit = spline_fit(np.full(5, 0.3), np.arange(5.0)[:, None], 0.6)
    assert fit.residuals[:, 0] == pytest.approx(np.arange(5.0) - 2, abs=1e-6)


@pytest.mark.parametrize("case", PYGAM["default"], ids=lambda c: f"n{c['size']}-{c['smoothing']:g}")
def test_fits_equal_pygam(case):
    x, y = spline_case(0, case["size"])
    fit = spline_fit(x, y, case["smoothing"])
    assert np.abs(fit.residuals[:, 0] - case["residuals"]).max() < 1e-9
    found = np.corrcoef(fit.residuals.T)[np.triu_indices(3, 1)]
    assert np.abs(found - case["correlations"]).max() < 1e-9
    assert fit.edf[0] == pytest.approx(case["edf"], abs=1e-8)


def test_selected_smoothing_equals_pygam_in_100_of_100_cases():
    same, worst = 0, 0.0
    for number, case in enumerate(PYGAM["selected"]):
        x, y = gcv_case(number)
        fit = spline_fit(x, y, "gcv")
        same += bool(np.allclose(fit.smoothing, case["smoothing"], rtol=1e-12))
        worst = max(worst, abs(np.corrcoef(fit.residuals.T)[0, 1] - case["r"]))
    assert same == 100
    assert worst < 1e-9


def dense_fit(x, y, smoothing):
    """pyGAM's model with its intercept column, as one augmented least squares problem."""
    basis = np.column_stack([splines.bspline_basis(x, (x.min(), x.max())), np.ones(len(x))])
    bends = np.zeros((18, 21))
    bends[:, :20] = np.sqrt(smoothing) * np.diff(np.eye(20), n=2, axis=0)
    ridge = np.sqrt(splines.RIDGE) * np.eye(21)
    left = np.vstack([basis, bends, ridge])
    right = np.vstack([y, np.zeros((18 + 21, y.shape[1]))])
    return y - basis @ np.linalg.lstsq(left, right, rcond=None)[0]


@pytest.mark.parametrize("size", range(8, 20))
@pytest.mark.parametrize("smoothing", [0.001, 0.6, 1000.0])
def test_few_points_equal_dense_least_squares(size, smoothing):
    x, y = spline_case(1, size)
    fit = spline_fit(x, y, smoothing)
    assert np.abs(fit.residuals - dense_fit(x, y, smoothing)).max() < 1e-9


def test_two_in_domain_sets_add_up():
    draw = np.random.default_rng(0)
    z = draw.uniform(0.4, 0.9, size=(200, 2))
    y = (np.sin(5 * z[:, 0]) + z[:, 1] ** 2)[:, None]
    fit = fit_design(make_design(z, one_run(z), method="gam", within="pooled"), y)
    assert fit.r2[0] > 0.999
    assert 4 < fit.edf[0] < 39
