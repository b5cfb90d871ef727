"""Regress the in-domain scores out of every OOD score: designs, fits and what is left over.

A `Design` holds what the scores are regressed on. Everything else follows from three sums per independent unit, its
`Moments`: basis by basis, basis by scores, scores by scores. Leaving a run out, or drawing it twice, is then a
weighted sum of small matrices, so that all test sets and all resamples are refitted in one batch.

Try it::

    design = make_design(in_domain[:, None], runs, method="gam", within="pooled")
    fit = fit_design(design, scores, smoothing=0.6)
    np.corrcoef(fit.residuals.T)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from oodles.stats import splines
from oodles.stats.splines import Array

Ints = NDArray[np.int64]
Smoothing = float | Literal["gcv"]

METHODS = ("gam", "linear", "probit-linear", "logit-linear")
WITHIN = ("pooled", "run", "separate")
SEPARATE_SPLINES = 8  # of a fit to one run alone; half the points where a run has fewer than 16
SLIVER = 1e-10  # share of a total sum of squares below which a residual is rounding error
TINY = 1e-14  # keeps a refit solvable when the left-out run held all the variation of the in-domain score


def partial_correlation(r_xy: float, r_xz: float, r_yz: float) -> float:
    """Correlation of x and y once z is held fixed, in closed form.

    The textbook formula. It equals the correlation of the residuals of two linear regressions on z, and loses digits
    where a correlation with z is close to 1: the analysis itself correlates residuals.

    Parameters
    ----------
    r_xy, r_xz, r_yz : float
        The three correlations, Pearson or Spearman.

    Returns
    -------
    float
        In [-1, 1]; nan where x or y is a linear function of z and nothing is left to correlate.

    Examples
    --------
    Two test sets that correlate at .8 only because both follow the in-domain score:

    >>> round(partial_correlation(0.81, 0.9, 0.9), 12)
    0.0
    >>> round(partial_correlation(0.5, 0.6, 0.7), 4)
    0.14
    """
    left = (1.0 - r_xz) * (1.0 + r_xz) * (1.0 - r_yz) * (1.0 + r_yz)
    if not left > 0:
        return float("nan")
    return float(np.clip((r_xy - r_xz * r_yz) / np.sqrt(left), -1.0, 1.0))


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Design:
    """What the scores of a group are regressed on."""

    basis: Array  # points x columns; centred within runs where every run has its own intercept
    penalty: Array  # is multiplied by the smoothing
    ridge: Array  # makes the solution unique; too small to be seen in a fit
    runs: Ints | None = None  # run of each point where runs have their own intercepts

    @property
    def intercepts(self) -> int:
        """Degrees of freedom spent outside the basis."""
        return 0 if self.runs is None else int(self.runs.max(initial=-1)) + 1


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Moments:
    """Sums per unit; a resample is a weighted sum of them."""

    gram: Array  # units x columns x columns
    cross: Array  # units x columns x test sets
    square: Array  # units x test sets x test sets
    points: Array  # units
    intercepts: Array  # units: run intercepts fitted in each

    def weighted(self, weights: Array) -> Moments:
        """One row of weights per resample."""
        return Moments(
            gram=np.tensordot(weights, self.gram, axes=1),
            cross=np.tensordot(weights, self.cross, axes=1),
            square=np.tensordot(weights, self.square, axes=1),
            points=weights @ self.points,
            intercepts=weights @ self.intercepts,
        )


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Fit:
    """A fitted design."""

    fitted: Array  # points x test sets
    residuals: Array  # points x test sets
    r2: Array  # per test set; of what is left after run intercepts, where there are any
    edf: Array  # effective degrees of freedom, intercepts included
    smoothing: Array  # 0 where nothing is smoothed


def transform(values: Array, method: str) -> Array:
    """Probit or logit of values strictly inside (0, 1); others methods keep the values."""
    if method == "probit-linear":
        return np.asarray(special.ndtri(values), dtype=float)
    if method == "logit-linear":
        return np.asarray(special.logit(values), dtype=float)
    return values


def transform_slope(values: Array, method: str) -> Array:
    """Derivative of `transform`: how sampling noise in the values is stretched."""
    if method == "probit-linear":
        return np.asarray(1.0 / stats.norm.pdf(special.ndtri(values)), dtype=float)
    if method == "logit-linear":
        return np.asarray(1.0 / (values * (1.0 - values)), dtype=float)
    return np.ones_like(values)


def make_design(
    covariates: Array, runs: Ints, *, method: str, within: str, n_splines: int | None = None, edges: Array | None = None
) -> Design:
    """Basis and penalty for one group.

    Parameters
    ----------
    covariates : array of shape (points, in-domain sets)
        In-domain scores.
    runs : array of shape (points,)
        Run of each point, coded 0, 1, ...
    method : str
        `gam` smooths; every other method is linear in the (transformed) in-domain score.
    within : str
        `run` gives every run its own intercept.
    n_splines : int, optional
        Basis functions per in-domain set, 20 where not given.
    edges : array of shape (in-domain sets, 2), optional
        Outermost knots, the range of the scores where not given.
    """
    if method == "gam":
        count = n_splines or splines.SPLINES
        basis, penalty, ridge = _spline_design(covariates, count, edges)
    else:
        basis = _line_basis(covariates)
        penalty = np.zeros((basis.shape[1], basis.shape[1]))
        ridge = TINY * len(basis) * np.eye(basis.shape[1])
    if within != "run":
        return Design(basis=basis, penalty=penalty, ridge=ridge)
    # Run intercepts are not penalised, so removing run means from both sides is the same fit (Frisch and Waugh).
    # It also removes the constant, which the basis spans: pin it down where a ridge of 1e-8 would be too weak.
    pinned = ridge + np.full_like(ridge, 1.0 / len(ridge))
    return Design(basis=centre(basis, runs), penalty=penalty, ridge=pinned, runs=runs)


def _spline_design(covariates: Array, count: int, edges: Array | None) -> tuple[Array, Array, Array]:
    """One block per in-domain set, as pyGAM adds its terms."""
    n_sets = covariates.shape[1]
    if edges is None:
        edges = np.stack([covariates.min(axis=0), covariates.max(axis=0)], axis=1)
    blocks = [splines.bspline_basis(covariates[:, q], (edges[q, 0], edges[q, 1]), count) for q in range(n_sets)]
    penalty = np.asarray(np.kron(np.eye(n_sets), splines.difference_penalty(count)), dtype=float)
    ridge = splines.RIDGE * np.eye(n_sets * count)
    ridge[:count, :count] = splines.ridge(count)
    for q in range(1, n_sets):  # the constant belongs to the first block; in the others it is pinned to 0
        block = slice(q * count, (q + 1) * count)
        ridge[block, block] += 1.0 / count
    return np.concatenate(blocks, axis=1), penalty, ridge


def _line_basis(covariates: Array) -> Array:
    """Orthonormal columns of [1, in-domain scores], without those that add nothing."""
    shift, scale = covariates.mean(axis=0), covariates.std(axis=0)
    moving = scale > 1e-12 * np.maximum(np.abs(shift), 1e-300)
    plain = np.column_stack(
        [np.ones(len(covariates)), ((covariates - shift) / np.where(moving, scale, 1.0))[:, moving]]
    )
    left, size, _ = np.linalg.svd(plain, full_matrices=False)
    kept: Array = left[:, size > 1e-10 * size.max()] * np.sqrt(len(plain))
    return kept


def centre(values: Array, runs: Ints) -> Array:
    """Subtract the mean of the run from every column."""
    counts = np.bincount(runs).astype(float)
    sums = np.zeros((len(counts), values.shape[1]))
    np.add.at(sums, runs, values)
    centred: Array = values - (sums / np.maximum(counts, 1.0)[:, None])[runs]
    return centred


def unit_moments(design: Design, responses: Array, units: Ints) -> Moments:
    """Moments of each unit; a unit holds whole runs."""
    scores = responses if design.runs is None else centre(responses, design.runs)
    n_units = int(units.max()) + 1
    order = np.argsort(units, kind="stable")
    bounds = np.searchsorted(units[order], np.arange(n_units + 1))
    grams, crosses, squares, points, intercepts = [], [], [], [], []
    for unit in range(n_units):
        rows = order[bounds[unit] : bounds[unit + 1]]
        basis, block = design.basis[rows], scores[rows]
        grams.append(basis.T @ basis)
        crosses.append(basis.T @ block)
        squares.append(block.T @ block)
        points.append(float(len(rows)))
        intercepts.append(0.0 if design.runs is None else float(len(np.unique(design.runs[rows]))))
    return Moments(
        gram=np.array(grams),
        cross=np.array(crosses),
        square=np.array(squares),
        points=np.array(points),
        intercepts=np.array(intercepts),
    )


def coefficients(design: Design, moments: Moments, smoothing: Smoothing) -> tuple[Array, Array, Array]:
    """Coefficients, effective degrees of freedom and smoothing for every resample.

    `moments` are those of `Moments.weighted`: one entry per resample.
    """
    if not design.penalty.any():
        smoothing = 0.0
    if smoothing == "gcv":
        return _select(design, moments)
    solved, edf = _solve(design, moments, float(smoothing))
    shape = (len(solved), solved.shape[2])
    return solved, np.repeat(edf[:, None], shape[1], axis=1), np.full(shape, float(smoothing))


def _solve(design: Design, moments: Moments, smoothing: float) -> tuple[Array, Array]:
    system = moments.gram + (smoothing * design.penalty + design.ridge)
    solved = np.linalg.solve(system, np.concatenate([moments.cross, moments.gram], axis=2))
    n_sets = moments.cross.shape[2]
    edf = np.trace(solved[:, :, n_sets:], axis1=1, axis2=2) + moments.intercepts
    return solved[:, :, :n_sets], np.asarray(edf, dtype=float)


def _select(design: Design, moments: Moments) -> tuple[Array, Array, Array]:
    """Generalised cross-validation per test set over pyGAM's grid, each degree of freedom counted 1.4 times."""
    best = np.full((len(moments.gram), moments.cross.shape[2]), np.inf)
    solved = np.zeros_like(moments.cross)
    edf: Array = np.zeros_like(best)
    chosen: Array = np.full_like(best, float(splines.GRID[-1]))
    for smoothing in splines.GRID:
        candidate, freedom = _solve(design, moments, float(smoothing))
        squares = np.diagonal(residual_products(moments, candidate), axis1=1, axis2=2)
        left = moments.points - splines.GAMMA * freedom
        score = (moments.points / np.where(left > 0, left, np.nan) ** 2)[:, None] * squares
        # Where no candidate leaves degrees of freedom, the smoothest is taken: nan never compares as better.
        better = (score < best) | (~np.isfinite(best) & (smoothing == splines.GRID[-1]))
        best = np.where(better, score, best)
        solved = np.where(better[:, None, :], candidate, solved)
        edf = np.asarray(np.where(better, freedom[:, None], edf), dtype=float)
        chosen = np.asarray(np.where(better, smoothing, chosen), dtype=float)
    return solved, edf, chosen


def residual_products(moments: Moments, solved: Array) -> Array:
    """Sums of products of residuals, test set by test set, for every resample."""
    mixed = np.swapaxes(moments.cross, 1, 2) @ solved
    products: Array = moments.square - mixed - np.swapaxes(mixed, 1, 2)
    products += np.swapaxes(solved, 1, 2) @ moments.gram @ solved
    return products


def fit_design(design: Design, responses: Array, *, smoothing: Smoothing = splines.SMOOTHING) -> Fit:
    """Fit every column of `responses` and keep the residuals.

    Examples
    --------
    >>> x = np.linspace(0.4, 0.9, 30)
    >>> design = make_design(x[:, None], np.zeros(30, dtype=int), method="linear", within="pooled")
    >>> fit = fit_design(design, np.column_stack([2 * x, x**2]))
    >>> bool(np.abs(fit.residuals[:, 0]).max() < 1e-12), float(fit.edf[0].round(6))
    (True, 2.0)
    """
    everything = np.zeros(len(responses), dtype=np.int64)
    moments = unit_moments(design, responses, everything).weighted(np.ones((1, 1)))
    solved, edf, chosen = coefficients(design, moments, smoothing)
    scores = responses if design.runs is None else centre(responses, design.runs)
    residuals = scores - design.basis @ solved[0]
    total = (scores - scores.mean(axis=0)) ** 2
    r2 = 1.0 - (residuals**2).sum(axis=0) / np.where(total.sum(axis=0) > 0, total.sum(axis=0), np.nan)
    return Fit(fitted=responses - residuals, residuals=residuals, r2=r2, edf=edf[0], smoothing=chosen[0])


def smoothing_for(design: Design, allowed: float, least: float) -> float:
    """The smallest smoothing, and no less than `least`, at which a fit uses no more than `allowed` degrees of freedom.

    >>> x = np.linspace(0.4, 0.9, 19)
    >>> design = make_design(x[:, None], np.zeros(19, dtype=int), method="gam", within="pooled")
    >>> smoothing = smoothing_for(design, 3.0, 0.6)
    >>> float(fit_design(design, (x**2)[:, None], smoothing=smoothing).edf[0].round(2))
    3.0
    """
    gram = design.basis.T @ design.basis

    def used(power: float) -> float:
        system = gram + 10.0**power * design.penalty + design.ridge
        return float(np.trace(np.linalg.solve(system, gram))) + design.intercepts

    low, high = float(np.log10(least)), 9.0
    if used(low) <= allowed or used(high) > allowed:
        return least if used(low) <= allowed else float(10.0**high)
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if used(middle) > allowed else (low, middle)
    return float(10.0**high)


def separate_splines(points: int) -> int:
    """Basis functions for a fit to one run: 8, or half the points, and never fewer than 4.

    >>> [separate_splines(points) for points in (60, 20, 12, 6)]
    [8, 8, 6, 4]
    """
    return max(splines.ORDER + 1, min(SEPARATE_SPLINES, points // 2))


def enough_residual(products: Array, totals: Array) -> NDArray[np.bool_]:
    """Whether a residual sum of squares is more than rounding error of its total."""
    return np.asarray(products > SLIVER * totals, dtype=bool)
