"""One group, one way of pooling: correlations of residuals with their interval.

`estimate` takes the aligned scores of a group and a `Estimator` and refits everything without each unit, or for each
draw of units. It knows nothing of tables, names or caveats; `correlate.py` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from oodles.stats import resample, residuals
from oodles.stats.copies import resolution
from oodles.stats.resample import Interval
from oodles.stats.residuals import Design, Fit, Ints, Moments, Smoothing
from oodles.stats.series import Series
from oodles.stats.splines import SMOOTHING, Array

FEWEST = {"pooled": 1, "run": 2, "separate": 5}  # points a run needs to take part
LEAST_LEFT = 2.0  # residual degrees of freedom below which a correlation is +-1 by construction
ROUNDED = 0.98  # R2 above which rounding may be all that is left
MISSED = 1e-6  # share of the variance that a curve misses of an exact relation
RESTS = 0.05  # share of a set's residual sum of squares without which a correlation rests on the units left out
UNLIKE, ALIKE = 0.6, 0.8  # share of all units that unequal ones are worth: below it counts, above it is chance
SINGLE = 4.0  # points per unit below which the shares of units in a pair differ by chance alone
PER_FREEDOM = 20.0  # models with one checkpoint each that a further degree of freedom of the curve takes
PER_FREEDOM_BENT = 3.0  # the same of the curve that a clear correlation must not depend on
MOST_BENT = 0.5  # degrees of freedom that it uses at most, as a share of the models, if a line does not use more
CLIP = 1e-3  # distance from 0 and 1 for probit and logit where the number of examples is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimator:
    """How to estimate: the settings of one estimate."""

    method: str = "gam"
    within: str = "pooled"
    interval: str = "jackknife"
    correlation: str = "pearson"
    level: float = 0.95
    smoothing: Smoothing = SMOOTHING
    n_splines: int | None = None
    n_resamples: int = 2000
    seed: int = 0


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Estimate:
    """Correlations of the residuals of all test sets of a group."""

    r: Array  # sets x sets
    interval: Interval
    fit: Fit
    used: Series  # the points that took part
    left: Array  # residual degrees of freedom per set
    refits: tuple[Refit, ...]  # for what else must be refitted with a unit left out
    left_out: Array  # units x sets x sets: sums of products of residuals without each unit, nan where nothing is left
    raw: Array  # sets x sets: the same correlations with nothing regressed out but what `within` takes out
    counted: Ints  # sets x sets: units behind each correlation
    shares: Array  # units x sets x sets: how much of each pair a unit carries

    @property
    def effective(self) -> Array:
        """Sets x sets: the equal units that the shares are worth.

        All of them where a unit has few points, or where they are worth `ALIKE` of all or more: units of one size
        differ that much by chance. Below `UNLIKE` it is Kish's number, and in between it goes from one to the other.
        """
        n_units = len(self.used.unit_names)
        if len(self.used.scores) < SINGLE * n_units:
            return self.counted.astype(float)
        worth = resample.effective_units(self.shares)
        ease = np.clip((worth / n_units - UNLIKE) / (ALIKE - UNLIKE), 0.0, 1.0)
        return np.asarray(worth + ease * (n_units - worth), dtype=float)


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Refit:
    """A design with its moments, ready to be summed again with other weights."""

    design: Design
    moments: Moments
    smoothing: Smoothing
    points: Ints  # which points of the series

    def products(self, weights: Array) -> Array:
        """Sums of products of residuals for every row of weights."""
        summed = self.moments.weighted(weights)
        solved, _, _ = residuals.coefficients(self.design, summed, self.smoothing)
        return residuals.residual_products(summed, solved)


def usable_points(series: Series, within: str) -> NDArray[np.bool_]:
    """Points of runs that are long enough for this way of pooling."""
    counts = np.bincount(series.runs, minlength=len(series.run_names))
    return np.asarray((counts >= FEWEST[within])[series.runs], dtype=bool)


def estimate(series: Series, recipe: Estimator) -> Estimate:
    """Correlations between all test sets of a group without gaps.

    Parameters
    ----------
    series : Series
        Every set scored at every point; runs too short for `recipe.within` already left out.
    recipe : Estimator
        Method, pooling, interval.
    """
    if recipe.within == "separate":
        return _estimate_separately(series, recipe)
    scores, covariates = _prepared(series, recipe)
    refit, fit = _fit(covariates, scores, series, recipe)
    left = len(scores) - fit.edf
    totals, products = _totals(scores), fit.residuals.T @ fit.residuals
    r = _correlations(products, totals, left, _beyond_rounding(series, recipe, fit))
    n_units = len(series.unit_names)
    least = np.maximum(residuals.SLIVER * totals, RESTS * products.diagonal())

    def redo(weights: Array) -> Array:
        if recipe.correlation == "spearman":
            return something_left(_ranked_products(series, recipe, weights), least)
        return something_left(refit.products(weights), least)

    left_out = redo(resample.jackknife_weights(n_units)) if n_units > 1 else np.empty((0, *r.shape))
    level_out = residuals.centre(scores, series.runs) if recipe.within == "run" else scores
    found = Estimate(
        r=r,
        interval=resample.nothing(r),
        fit=fit,
        used=series,
        left=left,
        refits=(refit,),
        left_out=left_out,
        raw=_raw(level_out),
        counted=np.full(r.shape, n_units),
        shares=_shares(fit.residuals, series),
    )
    return replace(found, interval=_interval(found, redo, recipe))


def interval_of(found: Estimate, r: Array, left_out: Array, recipe: Estimator) -> Interval:
    """The interval of other correlations of the same residuals, from one value without each unit."""
    if recipe.interval == "t":
        left = np.minimum(found.left[:, None], found.left[None, :])
        excess = resample.excess_variance(found.fit.residuals)
        return resample.t_interval(r, np.broadcast_to(left, r.shape), level=recipe.level, excess=excess)
    return resample.jackknife_interval(r, left_out, level=recipe.level, units=found.effective)


def one_checkpoint(series: Series) -> bool:
    """Whether every run is a model with one checkpoint, and a unit of its own."""
    return len(series.scores) == len(series.run_names) == len(series.unit_names) > 1


def light_curve(recipe: Estimator, series: Series, per_freedom: float = PER_FREEDOM, most: float = np.inf) -> Estimator:
    """The settings with a curve that models with one checkpoint each can afford.

    It may use two degrees of freedom and one more for every twenty models, up to what the usual smoothing uses.
    """
    if recipe.method != "gam" or recipe.smoothing == "gcv":
        return recipe
    _, covariates = _prepared(series, recipe)
    design = residuals.make_design(
        covariates, series.runs, method="gam", within=recipe.within, n_splines=recipe.n_splines
    )
    allowed = min(1 + covariates.shape[1] * (1 + len(series.scores) / per_freedom), most)
    return replace(recipe, smoothing=residuals.smoothing_for(design, allowed, float(recipe.smoothing)))


def bent_further(found: Estimate, recipe: Estimator) -> Estimate | None:
    """Models with one checkpoint each with a curve that may bend more; None elsewhere.

    The light curve misses a link that rises steeply in one place, and what it misses is the same in all sets.
    """
    if recipe.method != "gam" or recipe.smoothing == "gcv" or not one_checkpoint(found.used):
        return None
    usual, most = replace(recipe, smoothing=SMOOTHING), MOST_BENT * len(found.used.scores)
    return estimate(found.used, light_curve(usual, found.used, PER_FREEDOM_BENT, most))


def raw_left_out(found: Estimate, recipe: Estimator) -> Array:
    """Products of scores without each unit, with nothing regressed out but what `within` takes out."""
    series, scores = found.used, found.fit.fitted + found.fit.residuals
    constant = np.zeros((len(scores), 1))
    design = residuals.make_design(constant, series.runs, method="linear", within=recipe.within)
    moments = residuals.unit_moments(design, scores, series.units)
    refit = Refit(design=design, moments=moments, smoothing=recipe.smoothing, points=np.arange(len(scores)))
    return refit.products(resample.jackknife_weights(len(series.unit_names)))


def _shares(left: Array, series: Series) -> Array:
    """What each unit carries of a pair: the root of the product of its shares of both sums of squares."""
    squares = np.zeros((len(series.unit_names), left.shape[1]))
    np.add.at(squares, series.units, left**2)
    roots = np.sqrt(squares)
    parts = roots[:, :, None] * roots[:, None, :]
    return np.asarray(parts / np.maximum(parts.sum(axis=0), 1e-300), dtype=float)


def _interval(found: Estimate, redo: Callable[[Array], Array], recipe: Estimator) -> Interval:
    r, series, level = found.r, found.used, recipe.level
    n_units = len(series.unit_names)
    if recipe.interval == "naive":
        return resample.naive_interval(r, len(series.scores), series.covariates.shape[1], level=level)
    if n_units < 2:
        return resample.nothing(r)
    if recipe.interval in ("jackknife", "t"):
        return interval_of(found, r, as_correlations(found.left_out), recipe)
    drawn = as_correlations(redo(resample.bootstrap_weights(n_units, recipe.n_resamples, recipe.seed)))
    if recipe.interval == "bootstrap":
        return resample.bootstrap_interval(r, drawn, n_units, level=level)
    return resample.percentile_interval(drawn, level=level)


def _prepared(series: Series, recipe: Estimator) -> tuple[Array, Array]:
    """Scores and covariates on the scale that is regressed."""
    scores = residuals.transform(inside_unit(series.scores, series.sizes, recipe.method), recipe.method)
    covariates = residuals.transform(
        inside_unit(series.covariates, series.covariate_sizes, recipe.method), recipe.method
    )
    if recipe.correlation == "spearman":
        ones = np.ones(len(scores))
        return weighted_ranks(scores, ones), weighted_ranks(covariates, ones)
    return near_zero(scores), covariates


def near_zero(scores: Array) -> Array:
    """Move sets whose scores are far from zero for their spread: sums of squares would drown the residuals."""
    middle = scores.mean(axis=0)
    far = np.abs(middle) > 100 * np.ptp(scores, axis=0)
    return np.asarray(scores - np.where(far, middle, 0.0), dtype=float)


def inside_unit(values: Array, sizes: Array, method: str) -> Array:
    """Move 0 and 1 inside by half an example, for the methods that need it."""
    if method not in ("probit-linear", "logit-linear"):
        return values
    margin = np.where(np.isfinite(sizes) & (sizes > 0), 0.5 / np.where(sizes > 0, sizes, 1.0), CLIP)
    return np.asarray(np.clip(values, margin, 1.0 - margin), dtype=float)


def weighted_ranks(values: Array, weights: Array) -> Array:
    """Mid-ranks of each column when every row counts `weights` times."""
    ranks = np.empty_like(values)
    for column in range(values.shape[1]):
        _, place = np.unique(values[:, column], return_inverse=True)
        mass = np.bincount(place, weights=weights)
        ranks[:, column] = (np.cumsum(mass) - mass + (mass + 1) / 2)[place]
    return ranks


def _fit(covariates: Array, scores: Array, series: Series, recipe: Estimator) -> tuple[Refit, Fit]:
    design = residuals.make_design(
        covariates, series.runs, method=recipe.method, within=recipe.within, n_splines=recipe.n_splines
    )
    moments = residuals.unit_moments(design, scores, series.units)
    refit = Refit(design=design, moments=moments, smoothing=recipe.smoothing, points=np.arange(len(scores)))
    return refit, residuals.fit_design(design, scores, smoothing=recipe.smoothing)


def _ranked_products(series: Series, recipe: Estimator, weights: Array) -> Array:
    """Ranks depend on who is in the sample, so each resample is ranked and refitted."""
    found = []
    for row in weights:
        chosen = row[series.units] > 0
        counts = row[series.units][chosen]
        runs = np.unique(series.runs[chosen], return_inverse=True)[1].astype(np.int64)
        scores = weighted_ranks(series.scores[chosen], counts)
        covariates = weighted_ranks(series.covariates[chosen], counts)
        design = residuals.make_design(
            covariates, runs, method=recipe.method, within=recipe.within, n_splines=recipe.n_splines
        )
        units = np.unique(series.units[chosen], return_inverse=True)[1].astype(np.int64)
        moments = residuals.unit_moments(design, scores, units).weighted(row[row > 0][None])
        solved, _, _ = residuals.coefficients(design, moments, recipe.smoothing)
        found.append(residuals.residual_products(moments, solved)[0])
    return np.array(found)


def _totals(scores: Array) -> Array:
    """What a residual sum of squares must be larger than a sliver of: the scores' own, and their rounding error."""
    spread = ((scores - scores.mean(axis=0)) ** 2).sum(axis=0)
    return np.asarray(np.maximum(spread, 1e-4 * (scores**2).sum(axis=0)), dtype=float)


def something_left(products: Array, least: Array) -> Array:
    """Resamples in which next to nothing is left of a set have no products of it: nan, not a number.

    A set that moves in one run only has a sum of squares of rounding error, or of a blip, without it: correlations of
    such sums are noise.
    """
    squares = np.diagonal(products, axis1=1, axis2=2)
    scale = np.where(squares > least, 1.0, np.nan)
    return np.asarray(products * scale[:, :, None] * scale[:, None, :], dtype=float)


def _beyond_rounding(series: Series, recipe: Estimator, fit: Fit) -> NDArray[np.bool_]:
    """Sets whose residuals are more than the rounding of the scores, and than what a curve misses of an exact relation.

    Where the in-domain score explains nearly everything, the rest may be no more than its rounding and that of the
    score: a twelfth of the smallest difference squared, in variance. Twice that is not told from it.
    """
    if recipe.correlation == "spearman":
        return np.ones(series.scores.shape[1], dtype=bool)
    inside = _rounding_error(series.covariates, series.covariate_sizes, recipe.method)
    ratio = series.scores.var(axis=0)[:, None] / np.maximum(series.covariates.var(axis=0), 1e-300)
    error = _rounding_error(series.scores, series.sizes, recipe.method) + (ratio * inside).max(axis=1)
    rounded = (fit.r2 > ROUNDED) & ((fit.residuals**2).mean(axis=0) <= 2 * error)
    return np.asarray(~rounded & ~(fit.r2 > 1 - MISSED), dtype=bool)


def _rounding_error(values: Array, sizes: Array, method: str) -> Array:
    """Variance of rounding, per column, on the scale that is regressed."""
    stretch = residuals.transform_slope(inside_unit(values, sizes, method), method).min(axis=0)
    steps = np.array([resolution(values[:, k], sizes[:, k]) for k in range(values.shape[1])])
    return np.asarray((stretch * steps) ** 2 / 12, dtype=float)


def _correlations(products: Array, totals: Array, left: Array, beyond: NDArray[np.bool_] | bool = True) -> Array:
    """From sums of products to correlations; nan where nothing is left of a set."""
    squares = np.diagonal(products)
    fine = residuals.enough_residual(squares, totals) & (left >= LEAST_LEFT) & beyond
    scale = np.sqrt(np.where(fine, squares, np.nan))
    return np.asarray(np.clip(products / np.outer(scale, scale), -1.0, 1.0), dtype=float)


def as_correlations(products: Array) -> Array:
    """The same for many resamples at once."""
    squares = np.diagonal(products, axis1=1, axis2=2)
    scale = np.sqrt(np.where(squares > 0, squares, np.nan))
    return np.asarray(np.clip(products / (scale[:, :, None] * scale[:, None, :]), -1.0, 1.0), dtype=float)


def _estimate_separately(series: Series, recipe: Estimator) -> Estimate:
    """One fit per run, one Fisher z per run, their mean per unit and over units."""
    scores, covariates = _prepared(series, recipe)
    n_runs, n_sets = len(series.run_names), scores.shape[1]
    parts = [_fit_run(series, recipe, scores, covariates, run) for run in range(n_runs)]
    products = np.array([p.residuals.T @ p.residuals for _, p in parts])
    of_run = np.array(
        [
            _correlations(
                products[run],
                _totals(scores[refit.points]),
                len(refit.points) - fit.edf,
                _beyond_rounding(series.at(series.runs == run), recipe, fit),
            )
            for run, (refit, fit) in enumerate(parts)
        ]
    )
    z = _unit_means(resample.to_z(of_run), series)
    raw = np.array([_raw(scores[refit.points]) for refit, _ in parts])
    together = _joined(series, parts, scores)
    r = np.asarray(np.tanh(resample.mean_over_known(z)), dtype=float)
    # A set with itself has no Fisher z; its place says whether any run left a residual of it.
    np.fill_diagonal(r, resample.mean_over_known(np.diagonal(of_run, axis1=1, axis2=2)))
    if recipe.interval == "naive":
        found = resample.naive_interval(r, len(scores), series.covariates.shape[1], level=recipe.level)
    else:
        found = resample.run_mean_interval(z, level=recipe.level)
    units = _unit_sums(products, series)
    left_out = units.sum(axis=0) - units if len(units) > 1 else np.empty((0, n_sets, n_sets))
    left = np.full(n_sets, len(scores) - together.edf)
    return Estimate(
        r=r,
        interval=found,
        fit=together,
        used=series,
        left=left,
        refits=tuple(p for p, _ in parts),
        left_out=left_out,
        raw=np.asarray(np.tanh(resample.mean_over_known(_unit_means(resample.to_z(raw), series))), dtype=float),
        counted=(~np.isnan(z)).sum(axis=0),
        shares=_shares(together.residuals, series),
    )


def _raw(scores: Array) -> Array:
    centred = scores - scores.mean(axis=0)
    return _correlations(centred.T @ centred, _totals(scores), np.full(scores.shape[1], np.inf))


def _fit_run(series: Series, recipe: Estimator, scores: Array, covariates: Array, run: int) -> tuple[Refit, Fit]:
    points = np.flatnonzero(series.runs == run)
    part_scores, part_covariates = scores[points], covariates[points]
    if recipe.correlation == "spearman":
        ones = np.ones(len(points))
        part_scores, part_covariates = weighted_ranks(part_scores, ones), weighted_ranks(part_covariates, ones)
    alone = np.zeros(len(points), dtype=np.int64)
    design = residuals.make_design(
        part_covariates,
        alone,
        method=recipe.method,
        within="pooled",
        n_splines=recipe.n_splines or residuals.separate_splines(len(points)),
    )
    moments = residuals.unit_moments(design, part_scores, alone)
    refit = Refit(design=design, moments=moments, smoothing=recipe.smoothing, points=points)
    return refit, residuals.fit_design(design, part_scores, smoothing=recipe.smoothing)


def _joined(series: Series, parts: list[tuple[Refit, Fit]], scores: Array) -> Fit:
    """The fits of all runs as one: residuals in their places, degrees of freedom summed."""
    fitted, left = np.empty_like(scores), np.empty_like(scores)
    for refit, fit in parts:
        fitted[refit.points], left[refit.points] = fit.fitted, fit.residuals
    within = residuals.centre(fitted + left, series.runs)
    total = (within**2).sum(axis=0)
    r2 = 1.0 - (left**2).sum(axis=0) / np.where(total > 0, total, np.nan)
    return Fit(
        fitted=fitted,
        residuals=left,
        r2=np.asarray(r2, dtype=float),
        edf=np.sum([fit.edf for _, fit in parts], axis=0),
        smoothing=np.mean([fit.smoothing for _, fit in parts], axis=0),
    )


def _unit_of_run(series: Series) -> Ints:
    unit = np.zeros(len(series.run_names), dtype=np.int64)
    unit[series.runs] = series.units
    return unit


def _unit_means(values: Array, series: Series) -> Array:
    unit = _unit_of_run(series)
    return np.array([resample.mean_over_known(values[unit == u]) for u in range(len(series.unit_names))])


def _unit_sums(values: Array, series: Series) -> Array:
    unit = _unit_of_run(series)
    return np.array([values[unit == u].sum(axis=0) for u in range(len(series.unit_names))])
