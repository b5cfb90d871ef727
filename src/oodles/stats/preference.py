"""What how often an answer is given can explain of a correlation.

Few-shot tuning drifts in how often it gives an answer. That alone moves the accuracy of two sets together or apart. If
nothing but the preferred answer changes, accuracy is a function of the share of an answer, and every answer that
changes moves it by one example at most: its slope is between -1 and 1. If skill changes, some answers change in one
direction and others in the other, so accuracy moves by more than the share does. The part of a residual that a parabola
of the share explains, with a slope of at most 1, is therefore what answers can explain. What is left is correlated
again.

Try it::

    seen = Preference.of(found, shares, recipe, metric="accuracy")    # share of an answer, points x sets
    seen.r[i, j], seen.p_val[i, j]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oodles.stats import resample, residuals
from oodles.stats.estimates import Estimate, Estimator, Refit, as_correlations, interval_of
from oodles.stats.splines import Array

STILL = 1e-9  # range of a share, or share of a sum of squares, that is none
PARABOLA = 2
LINEAR = ("gam", "linear")  # methods that regress accuracy as it is, so that a slope has its meaning


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Preference:
    """How residuals depend on the share of an answer; nan where that is not known."""

    drift: Array  # per set: correlation of its residual with what the in-domain score leaves of the share
    r: Array  # sets x sets: correlation without what the share can explain
    p_val: Array  # of r

    @classmethod
    def of(cls, found: Estimate, shares: Array | None, recipe: Estimator, *, metric: str) -> Preference:
        """From the shares of an answer, points x sets; nan, or None, where they are not known."""
        n_sets = len(found.used.test_sets)
        empty = np.full((n_sets, n_sets), np.nan)
        nothing = cls(drift=np.full(n_sets, np.nan), r=empty, p_val=empty)
        if shares is None or len(found.refits) > 1:
            return nothing
        moving = ~np.isnan(shares).any(axis=0) & (np.ptp(np.nan_to_num(shares), axis=0) > STILL)
        if not moving.any():
            return nothing
        drift = _drift(found, shares, moving)
        usual = metric == "accuracy" and recipe.method in LINEAR and recipe.correlation == "pearson"
        n_units = len(found.used.unit_names)
        if not usual or recipe.interval == "naive" or n_units < 2 or not np.isfinite(found.used.scale):
            return cls(drift=drift, r=empty, p_val=empty)
        weights = np.vstack([np.ones((1, n_units)), resample.jackknife_weights(n_units)])
        left = _without(found, np.where(moving, shares, 0.0), moving, weights)
        r = as_correlations(left[:1])[0]
        p_val = interval_of(found, r, as_correlations(left[1:]), recipe).p_val
        return cls(drift=drift, r=r, p_val=np.asarray(np.where(np.isnan(p_val), 1.0, p_val), dtype=float))


def _drift(found: Estimate, shares: Array, moving: Array) -> Array:
    drift = np.full(len(moving), np.nan)
    left = residuals.fit_design(found.refits[0].design, shares[:, moving]).residuals
    own = found.fit.residuals[:, moving]
    scale = np.sqrt((left**2).sum(axis=0) * (own**2).sum(axis=0))
    drift[moving] = (left * own).sum(axis=0) / np.where(scale > 0, scale, np.nan)
    return drift


def _without(found: Estimate, shares: Array, moving: Array, weights: Array) -> Array:
    """Sums of products of residuals without what the shares can explain, for every row of unit weights."""
    used, refit, n_sets = found.used, found.refits[0], shares.shape[1]
    scores = (found.fit.fitted + found.fit.residuals) / used.scale
    away = shares - shares.mean(axis=0)
    columns = np.column_stack([scores, *(away**power for power in range(1, PARABOLA + 1))])
    moments = residuals.unit_moments(refit.design, columns, used.units)
    products = Refit(design=refit.design, moments=moments, smoothing=refit.smoothing, points=refit.points).products(
        weights
    )
    left = np.broadcast_to(np.eye(n_sets, columns.shape[1]), (len(weights), n_sets, columns.shape[1])).copy()
    for k in map(int, np.flatnonzero(moving)):
        powers = np.arange(1, PARABOLA + 1) * n_sets + k
        left[:, k, powers] = -_links(products, powers, k, away[:, k])
    cleaned = left @ products @ np.swapaxes(left, 1, 2)
    squares, before = np.diagonal(cleaned, axis1=1, axis2=2), np.diagonal(products, axis1=1, axis2=2)[:, :n_sets]
    scale = np.where(squares > STILL * before, 1.0, np.nan)
    return np.asarray(cleaned * scale[:, :, None] * scale[:, None, :], dtype=float)


def _links(products: Array, powers: Array, k: int, away: Array) -> Array:
    """Coefficients of a set's accuracy on its share and the square of it, shrunk to a slope of at most 1."""
    gram = products[:, powers[:, None], powers[None, :]]
    cross = products[:, powers, k]
    links = np.einsum("wpq,wq->wp", np.linalg.pinv(gram, rcond=1e-8, hermitian=True), cross)
    ends = np.array([away.min(), away.max()])
    steepest = np.abs(links[:, :1] + 2 * links[:, 1:] * ends).max(axis=1)
    return np.asarray(links / np.maximum(steepest, 1.0)[:, None], dtype=float)
