"""What is independent, and the intervals and tests that follow from it: the one place that says so.

Steps of a run are strongly correlated, so they are not the sample; runs are, or whatever `unit` names (runs that share
a seed's data are one unit). Every interval here is made from one number per unit left out, drawn or averaged.

Try it::

    left_out = ...                                 # correlation without unit 1, without unit 2, ...
    jackknife_interval(r, left_out, level=0.95)    # low, high, p
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats

from oodles.stats.splines import Array

INTERVALS = ("jackknife", "t", "run-mean", "bootstrap", "bootstrap-percentile", "naive")
DESCRIPTIVE = 5  # fewer independent units than this: estimates and intervals are shown, nothing is tested
SIGNIFICANT = 0.05  # p-value after adjustment for all that is tested together
PERFECT = 1 - 1e-9  # a correlation beyond this has no Fisher z that means anything


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Interval:
    """Limits and two-sided p-value, elementwise; nan where they cannot be had."""

    low: Array
    high: Array
    p_val: Array


def nothing(r: Array) -> Interval:
    """No interval."""
    unknown = np.full_like(r, np.nan)
    return Interval(low=unknown, high=unknown, p_val=unknown)


def to_z(r: Array) -> Array:
    """Fisher's z; nan beyond +-1 minus a hair, where z grows without bound."""
    return np.asarray(np.arctanh(np.where(np.abs(r) <= PERFECT, r, np.nan)), dtype=float)


def jackknife_weights(n_units: int) -> Array:
    """One row per unit, which is left out.

    >>> jackknife_weights(3).tolist()
    [[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
    """
    weights: Array = 1.0 - np.eye(n_units)
    return weights


def bootstrap_weights(n_units: int, n_resamples: int, seed: int) -> Array:
    """How often each unit is drawn, one row per resample."""
    draw = np.random.default_rng(seed)
    return draw.multinomial(n_units, np.full(n_units, 1.0 / n_units), size=n_resamples).astype(float)


def jackknife_se(left_out: Array) -> Array:
    """Standard error from the estimates without each unit (first axis)."""
    n_units = len(left_out)
    spread = ((left_out - left_out.mean(axis=0)) ** 2).sum(axis=0)
    return np.asarray(np.sqrt(spread * (n_units - 1) / n_units), dtype=float)


def effective_units(shares: Array) -> Array:
    """Kish's number of units: what unequal shares (first axis units, sum 1) are worth in equal ones.

    >>> effective_units(np.array([0.25, 0.25, 0.25, 0.25])).item(), effective_units(np.array([1.0, 0.0])).item()
    (4.0, 1.0)

    References
    ----------
    Kish, L. (1965). Survey Sampling. Wiley, section 11.7.
    """
    total = shares.sum(axis=0)
    return np.asarray(total**2 / np.maximum((shares**2).sum(axis=0), 1e-300), dtype=float)


def jackknife_interval(r: Array, left_out: Array, *, level: float, units: Array | None = None) -> Interval:
    """Delete one unit, refit, Fisher z, t with units - 1 degrees of freedom.

    Parameters
    ----------
    r : array
        The estimates.
    left_out : array, first axis units
        The estimates without each unit, the regression refitted.
    level : float
        Coverage of the interval.
    units : array, optional
        How many units the shares of each pair are worth (`effective_units`), where they differ; at least 2 are counted.

    Notes
    -----
    With `z = atanh(r)`, `se^2 = (R - 1)/R sum (z_(-i) - mean)^2` and `z / se` is referred to t with R - 1 degrees of
    freedom. The refit matters: with the residuals of the full fit the test rejects 6 to 11 % instead of 5 %.

    References
    ----------
    Tukey, J. W. (1958). Bias and confidence in not quite large samples. Annals of Mathematical Statistics 29.
    Efron, B. and Tibshirani, R. (1993). An Introduction to the Bootstrap, chapter 11.

    Examples
    --------
    >>> found = jackknife_interval(np.array(0.5), np.array([0.42, 0.48, 0.55, 0.5, 0.53]), level=0.95)
    >>> float(found.low.round(3)), float(found.high.round(3))
    (0.218, 0.705)
    """
    counted = len(left_out) if units is None else np.maximum(np.asarray(units, dtype=float), 2.0)
    return _t_interval(to_z(r), jackknife_se(to_z(left_out)), counted, level)


def run_mean_interval(z: Array, *, level: float) -> Interval:
    """Mean over units of Fisher z, t with units - 1 degrees of freedom (Hartung-Knapp with equal weights).

    Parameters
    ----------
    z : array, first axis units
        Fisher z of each unit; nan where a unit has none, which is then not counted.
    level : float
        Coverage of the interval.

    References
    ----------
    Hartung, J. and Knapp, G. (2001). On tests of the overall treatment effect in meta-analysis with normally
    distributed responses. Statistics in Medicine 20.
    """
    count = (~np.isnan(z)).sum(axis=0).astype(float)
    middle = mean_over_known(z)
    spread = np.nansum((z - middle) ** 2, axis=0)
    se = np.sqrt(spread / np.where(count > 1, count * (count - 1), np.nan))
    return _t_interval(middle, np.asarray(se, dtype=float), count, level)


def mean_over_known(z: Array) -> Array:
    """Mean over the first axis of what is not nan; nan where nothing is left."""
    count = (~np.isnan(z)).sum(axis=0)
    return np.asarray(np.nansum(z, axis=0) / np.where(count > 0, count, np.nan), dtype=float)


def bootstrap_interval(r: Array, drawn: Array, n_units: int, *, level: float) -> Interval:
    """Standard error over resamples of units, on Fisher's z scale, t with units - 1 degrees of freedom.

    One draw without a correlation, and there is no interval: which draws have none is no chance matter.
    """
    return _t_interval(to_z(r), to_z(drawn).std(axis=0, ddof=1), n_units, level)


def percentile_interval(drawn: Array, *, level: float) -> Interval:
    """Quantiles over resamples of units. Too narrow with few runs: kept for comparison, by its name."""
    tail = (1.0 - level) / 2
    low, high = np.quantile(drawn, [tail, 1.0 - tail], axis=0)
    below = np.where(np.isnan(low), np.nan, (drawn <= 0).mean(axis=0))
    p_val = np.minimum(1.0, 2 * np.maximum(np.minimum(below, 1 - below), 1 / (len(drawn) + 1)))
    return Interval(low=low, high=high, p_val=p_val)


def excess_variance(left: Array) -> Array:
    """Sets x sets: how many times the variance of a correlation is that of points of one size, at least 1.

    The t test of a correlation takes residuals (points x sets) as alike in size. Where some points are more erratic on
    several sets at once, their products vary more than r tells, and the test rejects a true null far too often. This is
    the variance that the residuals themselves show, HC3, over the usual one: the mean of both directions of a pair.

    References
    ----------
    MacKinnon, J. G. and White, H. (1985). Some heteroskedasticity-consistent covariance matrix estimators with improved
    finite sample properties. Journal of Econometrics 29.

    Examples
    --------
    >>> draw = np.random.default_rng(0)
    >>> alike = draw.normal(size=(400, 2))
    >>> excess_variance(alike).round(1)[0, 1].item()
    1.0
    >>> excess_variance(alike * np.where(np.arange(400) % 10, 1, 5)[:, None]).round(1)[0, 1].item() > 4
    True
    """
    squares = (left**2).sum(axis=0)
    scaled = left / np.sqrt(np.where(squares > 0, squares, np.nan))
    r = scaled.T @ scaled
    weights = (scaled / np.maximum(1 - scaled**2, 1e-3)) ** 2
    rest = (scaled[:, None, :] - r[None] * scaled[:, :, None]) ** 2  # points x sets x sets: what a leaves of b
    whole = rest.sum(axis=0)
    ratio = len(left) * (weights[:, :, None] * rest).sum(axis=0) / np.where(whole > 1e-12, whole, np.nan)
    both = (ratio + ratio.T) / 2
    return np.asarray(np.where(both > 1, both, 1.0), dtype=float)


def t_interval(r: Array, left: Array, *, level: float, excess: Array | float = 1.0) -> Interval:
    """The t test of a partial correlation, for points that are independent: models with one checkpoint each.

    Parameters
    ----------
    r : array
        The estimates.
    left : array
        Points less effective degrees of freedom of the fit, of each pair. One more goes to the correlation.
    level : float
        Coverage of the interval, which is Fisher's.
    excess : array, optional
        How much more the correlations vary than those of points of one size (`excess_variance`).

    Examples
    --------
    19 models, a line: 19 - 2 - 1 degrees of freedom.

    >>> found = t_interval(np.array(0.6), np.array(17.0), level=0.95)
    >>> float(found.p_val.round(4)), float(found.low.round(2)), float(found.high.round(2))
    (0.0085, 0.18, 0.83)

    References
    ----------
    Fisher, R. A. (1924). The distribution of the partial correlation coefficient. Metron 3.
    """
    freedom = np.where(left > 2.5, left - 1.0, np.nan)
    inside = np.where(np.abs(r) <= PERFECT, r, np.nan)
    p_val = 2 * stats.t.sf(np.abs(inside) * np.sqrt(freedom / excess / (1 - inside**2)), freedom)
    se = np.sqrt(excess / (freedom - 1))
    p_val = np.where(np.asarray(excess) > 1, np.fmax(p_val, 2 * stats.norm.sf(np.abs(to_z(r)) / se)), p_val)
    reach = float(stats.norm.ppf(0.5 + level / 2))
    return _limits(to_z(r), np.asarray(se, dtype=float), reach, np.asarray(p_val, dtype=float))


def naive_interval(r: Array, n_points: int, n_covariates: int, *, level: float) -> Interval:
    """Fisher z as if every step were independent. It rejects a true null in 13 to 77 % of cases: never a default."""
    left = n_points - 3 - n_covariates
    if left <= 0:
        return nothing(r)
    se = np.full_like(r, 1 / np.sqrt(left))
    return _limits(to_z(r), se, float(stats.norm.ppf(0.5 + level / 2)), 2 * stats.norm.sf(np.abs(to_z(r)) / se))


def _t_interval(z: Array, se: Array, n_units: int | Array, level: float) -> Interval:
    # Units that are copies of each other have no spread; that says nothing about the next run.
    se = np.where(se > 1e-12, se, np.nan)
    freedom = np.where(np.asarray(n_units) > 1, np.asarray(n_units) - 1.0, np.nan)
    quantile = np.asarray(stats.t.ppf(0.5 + level / 2, freedom), dtype=float)
    p_val = np.asarray(2 * stats.t.sf(np.abs(z) / se, freedom), dtype=float)
    return _limits(z, se, quantile, p_val)


def _limits(z: Array, se: Array, quantile: Array | float, p_val: Array) -> Interval:
    return Interval(
        low=np.asarray(np.tanh(z - quantile * se), dtype=float),
        high=np.asarray(np.tanh(z + quantile * se), dtype=float),
        p_val=np.asarray(p_val, dtype=float),
    )


def standing_out(values: Array) -> Array:
    """Which unit, if any, is an outlier among the units (first axis): Grubbs' test at 1 %, -1 where none is.

    The t interval takes run effects as near normal; one run far from the others is a sign that they are not.

    >>> standing_out(np.array([0.1, 0.2, 0.15, 0.12, 0.18, 3.0])).item()
    5.0

    References
    ----------
    Grubbs, F. E. (1969). Procedures for detecting outlying observations in samples. Technometrics 11.
    """
    n_units = len(values)
    if n_units < DESCRIPTIVE:
        return np.full(values.shape[1:], -1.0)
    far = np.abs(values - values.mean(axis=0))
    spread = values.std(axis=0, ddof=1)
    reach = float(stats.t.ppf(1 - 0.01 / (2 * n_units), n_units - 2))
    limit = (n_units - 1) / np.sqrt(n_units) * np.sqrt(reach**2 / (n_units - 2 + reach**2))
    return np.asarray(np.where(far.max(axis=0) > limit * spread, far.argmax(axis=0), -1), dtype=float)


def holm(p_values: Array) -> Array:
    """Holm's adjustment over the pairs of a group; nan stays nan and is not counted.

    >>> holm(np.array([0.01, 0.04, 0.03, np.nan])).round(6).tolist()
    [0.03, 0.06, 0.06, nan]

    References
    ----------
    Holm, S. (1979). A simple sequentially rejective multiple test procedure. Scandinavian Journal of Statistics 6.
    """
    return _adjust(p_values, lambda p: np.maximum.accumulate(p * np.arange(len(p), 0, -1)))


def benjamini_hochberg(p_values: Array) -> Array:
    """Benjamini and Hochberg's adjustment over the pairs of a group; nan stays nan and is not counted.

    >>> benjamini_hochberg(np.array([0.01, 0.04, 0.03, np.nan])).round(6).tolist()
    [0.03, 0.04, 0.04, nan]

    References
    ----------
    Benjamini, Y. and Hochberg, Y. (1995). Controlling the false discovery rate. JRSS B 57.
    """
    return _adjust(p_values, lambda p: np.minimum.accumulate((p * len(p) / np.arange(1, len(p) + 1))[::-1])[::-1])


def _adjust(p_values: Array, step: Callable[[Array], Array]) -> Array:
    adjusted = np.full(len(p_values), np.nan)
    known = np.flatnonzero(~np.isnan(p_values))
    order = known[np.argsort(p_values[known], kind="stable")]
    if len(order):
        adjusted[order] = np.minimum(step(p_values[order]), 1.0)
    return adjusted
