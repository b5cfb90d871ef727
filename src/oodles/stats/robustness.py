"""Effective robustness: how far a test set's score is from what the in-domain score predicts, point by point.

The residual of the regression is a result of its own (Taori et al., 2020): above zero, a run does better on the set
than runs with its in-domain score usually do. Its interval covers two sources: the fit, from refits without each unit,
and the finite test set.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import special, stats

from oodles.stats import resample, residuals
from oodles.stats.estimates import Estimator, inside_unit
from oodles.stats.residuals import Fit
from oodles.stats.series import Series
from oodles.stats.splines import Array


def robustness(series: Series, recipe: Estimator) -> pd.DataFrame:
    """Residuals of every run, step and test set, in the units of the metric.

    Parameters
    ----------
    series : Series
        The scores of a group; gaps are allowed.
    recipe : Estimator
        Method and pooling; the residual is of the scores themselves also where correlations are of ranks.

    Returns
    -------
    pandas.DataFrame
        The group's columns, then `run, step, test_set, within, value, fitted, residual, low, high, caveats`.

    References
    ----------
    Taori, R. et al. (2020). Measuring robustness to natural distribution shifts in image classification. NeurIPS.
    Miller, J. et al. (2021). Accuracy on the line. ICML.
    """
    frames = []
    for columns, known in _patterns(series):
        frames.append(_frame(series.at(known, columns), recipe))
    table = pd.concat(frames, ignore_index=True)
    return table.sort_values(["run", "test_set", "step"], kind="stable").reset_index(drop=True)


def _patterns(series: Series) -> list[tuple[list[int], np.ndarray[tuple[int], np.dtype[np.bool_]]]]:
    """Sets that were scored at the same points are fitted together."""
    known = ~np.isnan(series.scores)
    together: dict[bytes, list[int]] = {}
    for column in range(known.shape[1]):
        together.setdefault(known[:, column].tobytes(), []).append(column)
    return [(columns, known[:, columns[0]]) for columns in together.values() if known[:, columns[0]].any()]


def _frame(series: Series, recipe: Estimator) -> pd.DataFrame:
    scores = residuals.transform(inside_unit(series.scores, series.sizes, recipe.method), recipe.method)
    covariates = residuals.transform(
        inside_unit(series.covariates, series.covariate_sizes, recipe.method), recipe.method
    )
    fit, spread = _separate(series, recipe, scores, covariates) or _together(series, recipe, scores, covariates)
    fitted = back(fit.fitted, recipe.method)
    left = series.scores - fitted
    reach, said = _reach(series, recipe, spread / residuals.transform_slope(fitted, recipe.method))
    n_points, n_sets = left.shape
    columns = {name: [value] * left.size for name, value in series.group.items()}
    return pd.DataFrame(
        {
            **columns,
            "run": np.repeat(np.asarray(series.run_names, dtype=object)[series.runs], n_sets),
            "step": np.repeat(series.steps, n_sets),
            "test_set": np.tile(np.asarray(series.test_sets, dtype=object), n_points),
            "within": recipe.within,
            "value": series.scores.ravel(),
            "fitted": fitted.ravel(),
            "residual": left.ravel(),
            "low": (left - reach).ravel(),
            "high": (left + reach).ravel(),
            "caveats": [list(said)] * left.size,
        }
    )


def back(values: Array, method: str) -> Array:
    """From the probit or logit scale to the scores' own."""
    if method == "probit-linear":
        return np.asarray(special.ndtr(values), dtype=float)
    if method == "logit-linear":
        return np.asarray(special.expit(values), dtype=float)
    return values


def _together(series: Series, recipe: Estimator, scores: Array, covariates: Array) -> tuple[Fit, Array]:
    """One fit over all runs, and the jackknife standard error of its curve at every point."""
    design = residuals.make_design(
        covariates, series.runs, method=recipe.method, within=recipe.within, n_splines=recipe.n_splines
    )
    fit = residuals.fit_design(design, scores, smoothing=recipe.smoothing)
    n_units = len(series.unit_names)
    if n_units < 2:
        return fit, np.full_like(scores, np.nan)
    moments = residuals.unit_moments(design, scores, series.units).weighted(resample.jackknife_weights(n_units))
    solved, _, _ = residuals.coefficients(design, moments, recipe.smoothing)
    centre = solved.mean(axis=0)
    # Units are summed one at a time: all curves at once would be units x points x sets.
    squares = np.zeros_like(scores)
    for one in solved:
        squares += (design.basis @ (one - centre)) ** 2
    return fit, np.asarray(np.sqrt(squares * (n_units - 1) / n_units), dtype=float)


def _separate(series: Series, recipe: Estimator, scores: Array, covariates: Array) -> tuple[Fit, Array] | None:
    """One fit per run; its error cannot be learnt from the other runs."""
    if recipe.within != "separate":
        return None
    fitted, edf = np.empty_like(scores), np.zeros(scores.shape[1])
    for run in range(len(series.run_names)):
        rows = np.flatnonzero(series.runs == run)
        count = recipe.n_splines or residuals.separate_splines(len(rows))
        alone = np.zeros(len(rows), dtype=np.int64)
        design = residuals.make_design(covariates[rows], alone, method=recipe.method, within="pooled", n_splines=count)
        fit = residuals.fit_design(design, scores[rows], smoothing=recipe.smoothing)
        fitted[rows], edf = fit.fitted, edf + fit.edf
    nothing = np.full(scores.shape[1], np.nan)
    whole = Fit(fitted=fitted, residuals=scores - fitted, r2=nothing, edf=edf, smoothing=nothing)
    return whole, np.full_like(scores, np.nan)


def _reach(series: Series, recipe: Estimator, spread: Array) -> tuple[Array, tuple[str, ...]]:
    """Half width of the interval: error of the curve and of the score, added as squares."""
    n_units = len(series.unit_names)
    if recipe.within == "separate":
        return np.full_like(spread, np.nan), ("one fit per run: no interval for a residual",)
    if n_units < 2:
        return np.full_like(spread, np.nan), ("one run: no interval for a residual",)
    curve = float(stats.t.ppf(0.5 + recipe.level / 2, n_units - 1)) * spread
    inside = (series.scores >= 0) & (series.scores <= 1)
    measured = inside & np.isfinite(series.sizes) & (series.sizes > 0)
    variance = np.where(measured, series.scores * (1 - series.scores) / np.where(measured, series.sizes, 1.0), 0.0)
    noise = float(stats.norm.ppf(0.5 + recipe.level / 2)) * np.sqrt(np.maximum(variance, 0.0))
    said = () if measured.all() else ("n is not known everywhere: the interval leaves out test-set noise",)
    return np.asarray(np.hypot(curve, noise), dtype=float), said
