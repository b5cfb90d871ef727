"""Noise of the in-domain set: how large it is, and the products of residuals without it.

`blur.py` carries a known noise through the links; here it is measured from records, or bounded by the number of
examples, and taken from the sums of products, of all units and without each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from shlex import quote

import numpy as np
from numpy.typing import NDArray

from oodles.stats import resample
from oodles.stats.blur import blur
from oodles.stats.copies import apparent_examples, no_shares, resolution
from oodles.stats.estimates import Estimate, Estimator, as_correlations
from oodles.stats.items import binomial_spectrum, measured_spectrum, noise_sums
from oodles.stats.longtable import RIGHT
from oodles.stats.outcomes import MEASURED, Examples
from oodles.stats.series import Series, scale_of
from oodles.stats.splines import Array

CORRECTED = ("gam", "linear")  # methods that this noise can be followed through
NONE = "--exact takes it as none"
NUMBER = "NUMBER"  # of examples, for a user to fill in
BENDS = 0.7  # share of the noise that comes by the bend of a link, from which it is a bent one
STRAIGHT, USUAL = 0.65, 0.5  # share of a residual that may be in-domain noise before that is unsure
MANY = 100  # points from which simulation shows no bias with straight links


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Inside:
    """Noise of the in-domain set, and the products of residuals without it."""

    source: str  # records; binomial, which is the most it can be; or none: not known
    variance: float  # of the noise at a point, nan where not known
    full: Array | None = None  # sets x sets; None where nothing can be corrected
    left_out: Array | None = None  # the same without each unit
    bend: Array | None = None  # per set: the share of this noise that comes by the bend of its link
    hidden: bool = False  # noise may be most of what in-domain scores differ by
    why: str = ""  # it is not known

    def unsure(self, residuals: Array) -> NDArray[np.bool_]:
        """Per set: whether noise makes up so much of its residuals (points x sets) that the correction is unsure.

        By a link that is not bent it may be more, where it was measured and there are many points.
        """
        if self.full is None or self.bend is None:
            return np.zeros(residuals.shape[1], dtype=bool)
        well_known = self.source == "records" and len(residuals) >= MANY
        most = np.where(well_known & (self.bend <= BENDS), STRAIGHT, USUAL)
        return np.asarray(~(self.full.diagonal() > (1 - most) * (residuals**2).sum(axis=0)), dtype=bool)

    @property
    def r(self) -> Array | None:
        """Correlations without in-domain noise, those of the OOD sets still in them."""
        return None if self.full is None else as_correlations(self.full[None])[0]


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class InsideNoise:
    """Variance of the in-domain score's noise at a point: as known, and the most it can be."""

    source: str  # records; binomial; or none: not known
    variance: float = float("nan")
    most: float = float("nan")
    sizes: Array | None = None  # examples behind the score of each point, fewer where rounding adds to its error
    scale: float = 1.0  # the largest score there is
    why: str = ""  # it is not known


def can_be_followed(recipe: Estimator) -> bool:
    """Whether this noise can be followed through the links: scores on their own scale, one fit for all runs."""
    return recipe.method in CORRECTED and recipe.correlation == "pearson" and recipe.within != "separate"


def by_usual_links(recipe: Estimator) -> Estimator:
    """The nearest settings through which noise can be followed."""
    within = "pooled" if recipe.within == "pooled" else "run"
    interval = "t" if recipe.interval == "t" else "jackknife"
    return replace(recipe, method="gam", correlation="pearson", within=within, interval=interval)


def without_inside_noise(found: Estimate, records: Examples | None, metric: str, method: str) -> Inside:
    """Noise of the in-domain score after residualising, and the products without it as far as they can be had."""
    if method not in CORRECTED or len(found.refits) > 1:
        return Inside(source="none", variance=float("nan"))
    noise = inside_noise(found, records, metric)
    start = Inside(source=noise.source, variance=noise.variance, why=noise.why)
    if noise.sizes is None or not noise.most > 0:
        return start
    blurred = blur(found, noise.sizes, noise.scale, noise.variance / noise.most, bent=method == "gam")
    if blurred is None:
        return replace(start, hidden=True)
    n_units = len(found.used.unit_names)
    full = blurred.correct((found.fit.residuals.T @ found.fit.residuals)[None], np.ones((1, n_units)))[0]
    without = found.left_out
    if len(without):
        without = blurred.correct(without, resample.jackknife_weights(n_units))
    return replace(start, full=full, left_out=without, bend=blurred.bend)


def inside_noise(found: Estimate, records: Examples | None, metric: str) -> InsideNoise:
    """Noise of the in-domain score after residualising.

    Noise that all points share moves the in-domain axis and nothing else, so it is measured after the regression. From
    n alone only a bound is known: the binomial error, which is too much where models are scored on the same examples.
    """
    series, left = found.used, float(np.mean(found.left))
    if metric not in (*RIGHT, *MEASURED) or series.covariates.shape[1] != 1 or not left > 0:
        return _unknown(_untold(series, metric))
    own = scale_of(series.covariates[:, 0], metric)
    scale = own if np.isfinite(own) else series.scale
    values, outcomes = series.covariates[:, 0] / scale, None
    if records is not None and metric in MEASURED:
        outcomes, _ = records.outcomes(series, series.in_domain[0], series.covariates[:, 0], metric)
    sizes = series.covariate_sizes[:, 0]
    if outcomes is not None and not (sizes > 0).all():
        sizes = outcomes.seen
    if metric not in RIGHT and outcomes is None:
        return _unknown(f"{metric} needs per-example records, or {NONE}")
    if not ((values >= 0) & (values <= 1)).all():
        return _unknown(f"scores of {series.in_domain[0]} are not in 0..1; {NONE}")
    if not (sizes > 0).all():
        return _unknown(_without_n(series, values))
    if outcomes is None and (fewer := apparent_examples(values, sizes)):
        told = f"{series.in_domain[0]} is said to have {sizes.max():.0f} examples"
        return _unknown(
            f"{told}, but its scores are plainly shares of {fewer}: correct n; of averages of rounded scores {NONE}"
        )
    odd = outcomes is None and no_shares(values, sizes)
    if outcomes is None:
        sizes = _rounded(values, sizes)
    variance = values * (1 - values) / sizes
    if odd and variance.mean() > values.var():
        return _unknown(
            f"scores of {series.in_domain[0]} are no multiples of 1/n, and n would allow no more than noise"
        )
    binomial = [binomial_spectrum(refit, variance, found) for refit in found.refits]
    most = measured = noise_sums(found, binomial, 0)[0] / left
    source = "binomial"
    if outcomes is not None:
        spectra = [measured_spectrum(refit, outcomes, np.ones_like(values), found) for refit in found.refits]
        measured, source = max(noise_sums(found, spectra, 0)[0] / left, 0.0), "records"
    square = scale**2
    return InsideNoise(source=source, variance=measured * square, most=most * square, sizes=sizes, scale=scale)


def _rounded(values: Array, sizes: Array) -> Array:
    """Sizes that have the noise of rounding, too: scores of 10,000 examples with two decimals know no more than 0.01.

    >>> values = np.array([0.71, 0.75, 0.62])
    >>> _rounded(values, np.full(3, 100.0)).tolist(), _rounded(values, np.full(3, 1e4)).round(-2).tolist()
    ([100.0, 100.0, 100.0], [7100.0, 6900.0, 7400.0])
    """
    step = resolution(values, np.full(len(values), np.nan))
    rounding = np.maximum(step**2 - 1 / sizes**2, 0.0) / 12
    return np.asarray(sizes / (1 + sizes * rounding / np.maximum(values * (1 - values), 1e-3)), dtype=float)


def _unknown(why: str) -> InsideNoise:
    return InsideNoise(source="none", why=why)


def _untold(series: Series, metric: str) -> str:
    """Why nothing tells this noise, whatever n is, and what to do."""
    if series.covariates.shape[1] != 1:
        return f"it is told of one in-domain set only; choose one, or {NONE}"
    return f"nothing tells it of {metric}; analyse accuracy, or {NONE}"


def _without_n(series: Series, values: Array) -> str:
    """What is missing where nobody says how many examples are behind the in-domain scores, and how to say it."""
    name, known = series.in_domain[0], series.covariate_sizes[:, 0] > 0
    if known.any():
        return f"its number of examples is missing at {(~known).sum()} of {len(known)} points (column n)"
    examples = apparent_examples(values)
    if "/" in name:  # a set's own name, or several of runs that differ in their in-domain set
        return f"its number of examples is missing (--n for {name})"
    say = f"--n {quote(f'{name}={examples or NUMBER}')}"
    return f"its number of examples is missing ({say}{' if that is it, as its scores suggest' if examples else ''})"


def covariate_bias(found: Estimate, inside: Inside) -> Array:
    """What in-domain noise adds to each correlation: measured or, from n alone, at most; nan where not known."""
    if inside.r is None:
        return np.full(found.r.shape, np.nan)
    return np.asarray(found.r - inside.r, dtype=float)
