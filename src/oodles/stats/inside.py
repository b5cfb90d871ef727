"""Noise of the in-domain set: how large it is, and the products of residuals without it.

`blur.py` carries a known noise through the links; here it is measured from records, or bounded by the number of
examples, and taken from the sums of products, of all units and without each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from oodles.stats import resample, residuals
from oodles.stats.blur import blur
from oodles.stats.estimates import Estimate, as_correlations
from oodles.stats.items import binomial_spectrum, measured_spectrum, noise_sums
from oodles.stats.outcomes import MEASURED, Examples
from oodles.stats.splines import Array

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
    variance: float
    most: float


def without_inside_noise(found: Estimate, records: Examples | None, metric: str, method: str) -> Inside:
    """Noise of the in-domain score after residualising, and the products without it as far as they can be had."""
    noise = inside_noise(found, records, metric, method)
    start = Inside(source=noise.source, variance=noise.variance)
    if noise.source == "none" or len(found.refits) > 1 or not noise.most > 0:
        return start
    sizes, scale = found.used.covariate_sizes[:, 0], found.used.scale
    blurred = blur(found, sizes, scale, noise.variance / noise.most, bent=method == "gam")
    if blurred is None:
        return replace(start, hidden=True)
    n_units = len(found.used.unit_names)
    full = blurred.correct((found.fit.residuals.T @ found.fit.residuals)[None], np.ones((1, n_units)))[0]
    without = found.left_out
    if len(without):
        without = blurred.correct(without, resample.jackknife_weights(n_units))
    return replace(start, full=full, left_out=without, bend=blurred.bend)


def inside_noise(found: Estimate, records: Examples | None, metric: str, method: str) -> InsideNoise:
    """Noise of the in-domain score after residualising.

    Noise that all points share moves the in-domain axis and nothing else, so it is measured after the regression. From
    n alone only a bound is known: the binomial error, which is too much where models are scored on the same examples.
    """
    series = found.used
    unknown = InsideNoise(source="none", variance=float("nan"), most=float("nan"))
    if metric not in MEASURED or series.covariates.shape[1] != 1 or method not in ("gam", "linear"):
        return unknown
    values, sizes = series.covariates[:, 0] / series.scale, series.covariate_sizes[:, 0]
    if np.isnan(sizes).any() or not (sizes > 0).all() or not ((values >= 0) & (values <= 1)).all():
        return unknown
    left = float(np.mean(found.left))
    if not left > 0:
        return unknown
    binomial = [binomial_spectrum(refit, values * (1 - values) / sizes, found) for refit in found.refits]
    most = measured = noise_sums(found, binomial, 0)[0] / left
    source = "binomial"
    if records is not None:
        outcomes, _ = records.outcomes(series, series.in_domain[0], series.covariates[:, 0], metric)
        if outcomes is not None:
            spectra = [measured_spectrum(refit, outcomes, np.ones_like(values), found) for refit in found.refits]
            measured, source = max(noise_sums(found, spectra, 0)[0] / left, 0.0), "records"
    if metric != "accuracy" and source != "records":
        return unknown
    return InsideNoise(source=source, variance=measured * series.scale**2, most=most * series.scale**2)


def covariate_bias(found: Estimate, inside: Inside) -> Array:
    """What in-domain noise adds to each correlation: measured or, from n alone, at most; nan where not known.

    With one fit per run it is the first-order bias, were the true correlation zero. With slopes g of two sets on the
    observed in-domain score, of which a share a is signal, noise variance v in it and residual variances s, both
    residuals contain the same g_i g_j v / a: the noise that was subtracted, and the signal that a slope flattened by
    noise left behind.
    """
    if inside.r is not None:
        return np.asarray(found.r - inside.r, dtype=float)
    series = found.used
    n_sets = len(series.test_sets)
    if not np.isfinite(inside.variance):
        return np.full((n_sets, n_sets), np.nan)
    x = series.covariates - series.covariates.mean(axis=0)
    if found.refits[0].design.runs is not None or len(found.refits) > 1:
        x = residuals.centre(x, series.runs)
    slope = x[:, 0] @ found.fit.fitted / max(float((x**2).sum()), 1e-300)
    variance = (found.fit.residuals**2).sum(axis=0) / np.maximum(found.left, 1e-300)
    signal = max(1.0 - inside.variance / max(float((x**2).mean()), 1e-300), 0.05)
    noise = max(inside.variance, 0.0) / signal
    share = slope * np.sqrt(noise / np.where(variance > 0, variance, np.nan))
    return np.asarray(np.clip(np.outer(share, share), -1.0, 1.0), dtype=float)
