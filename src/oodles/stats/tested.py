"""One group, estimated, corrected for noise and tested beyond it; what its pairs say is in pairs and doubts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from oodles.stats import cautions, noise, resample
from oodles.stats.estimates import (
    Estimate,
    Estimator,
    as_correlations,
    bent_further,
    estimate,
    interval_of,
    raw_left_out,
    something_left,
)
from oodles.stats.inside import (
    Inside,
    by_usual_links,
    can_be_followed,
    covariate_bias,
    without_inside_noise,
)
from oodles.stats.outcomes import Examples
from oodles.stats.parts import Parts, without_parts
from oodles.stats.preference import Preference
from oodles.stats.resample import SIGNIFICANT
from oodles.stats.residuals import SLIVER
from oodles.stats.series import Series
from oodles.stats.splines import Array

UNCERTAIN = 0.02  # correction of r for in-domain noise beyond which its own error counts
BIASED = 0.05  # bias through a noisy in-domain score that is worth saying


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Found:
    """An estimate with its correction for noise."""

    estimate: Estimate
    corrected: noise.Corrected
    checked: noise.Corrected  # the same with intervals at the level of tests, whatever level is shown
    inside: Inside  # noise of the in-domain set, followed through links that it can be followed through
    bias: Array  # that it adds to r there
    blurred: NDArray[np.bool_]  # per set: it makes up so much of a residual that taking it out is unsure
    p_corrected: Array  # sets x sets: of no correlation beyond what noise of the in-domain set makes
    answers: Preference  # how residuals depend on the share of an answer
    constant: tuple[bool, ...]  # per set: one answer nearly always, at most points
    outlier: Array  # sets x sets: the unit that stands out, or -1
    parts: Parts  # what is left without each part of training; none where nothing is significant
    bent: Estimate | None  # with a curve that may bend more, of models with one checkpoint each


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class GroupTask:
    """What is the same for all estimates of a group and way of pooling."""

    recipe: Estimator
    items: Examples | None
    beware: cautions.Cautions
    said: tuple[str, ...]
    exact: bool = False  # in-domain scores are taken as free of noise where it is not known

    def run(self, used: Series) -> Found:
        """Estimate, correct for noise, look for what to beware of."""
        found = estimate(used, self.recipe)
        recipe, metric = self.recipe, self.beware.metric
        scale = "ranks" if recipe.correlation == "spearman" else metric
        corrected = noise.correct(found, self.items, metric=scale, method=recipe.method, level=recipe.level)
        checked, level = corrected, 1 - SIGNIFICANT
        if self.items is not None and not np.isclose(recipe.level, level):
            checked = noise.correct(found, self.items, metric=scale, method=recipe.method, level=level)
        followed, inside = found, corrected.inside
        flat = bool(self.beware.of_covariates(used, self.recipe.within))
        p_corrected = _beyond_noise(found, corrected.inside, self.recipe, flat)
        if not can_be_followed(recipe):
            usual = by_usual_links(recipe)
            followed = estimate(used, usual)
            inside = without_inside_noise(followed, self.items, metric, "gam")
            beyond = _beyond_noise(followed, inside, usual, flat)
            p_corrected = _without_bias(found, followed, inside, recipe, p_corrected, beyond)
        tested = any((values < SIGNIFICANT).any() for values in (found.interval.p_val, p_corrected))
        return Found(
            estimate=found,
            corrected=corrected,
            checked=checked,
            inside=inside,
            bias=covariate_bias(followed, inside),
            blurred=inside.unsure(followed.fit.residuals),
            p_corrected=p_corrected,
            answers=Preference.of(found, self.beware.shares_of(used), self.recipe, metric=self.beware.metric),
            constant=tuple(self.beware.mostly_one_answer(used, name) for name in used.test_sets),
            outlier=_outliers(found, self.recipe.within),
            parts=without_parts(found, self.recipe) if tested else Parts.none(len(used.test_sets)),
            bent=bent_further(found, self.recipe),
        )


def _beyond_noise(found: Estimate, inside: Inside, recipe: Estimator, flat: bool) -> Array:
    """p of no correlation, whatever part of it noise of the in-domain set may make.

    With records its noise is known, and the corrected correlation is tested. From n alone it lies between none and the
    binomial error: both ends are tested, and the larger p holds. Where in-domain scores differ by little more than
    noise, or by less, partial and raw correlations are the two ends.
    """
    p_val = found.interval.p_val
    if recipe.interval == "naive" or len(found.refits) > 1 or not len(found.left_out):
        return p_val
    if inside.r is not None and inside.left_out is not None:
        r, left_out = inside.r, inside.left_out
    elif flat or inside.hidden:
        r, left_out = found.raw, raw_left_out(found, recipe)
    else:
        return p_val
    other = _tested_anew(found, r, as_correlations(left_out), recipe)
    other = np.where(np.isnan(r) & np.isfinite(found.r), 1.0, other)
    at_the_limit = np.isnan(other) & (np.abs(r) > 1 - 1e-9) & (r * found.r > 0)  # more correlated without noise
    other = np.where(at_the_limit, p_val, other)
    if inside.source == "records" and inside.r is not None:
        return np.asarray(np.where(np.isnan(p_val), np.nan, other), dtype=float)
    return np.asarray(np.where(r * found.r < 0, 1.0, np.maximum(p_val, other)), dtype=float)


def _without_bias(
    found: Estimate, followed: Estimate, inside: Inside, recipe: Estimator, p_values: Array, beyond: Array
) -> Array:
    """p of no correlation beyond the bias that noise has in the usual links, where it cannot be followed in one's own.

    Without and with each unit that bias is taken off the correlation. Where every run has a fit of its own, `beyond`,
    the p of the usual links, takes the place of a p whose correlation is biased away from 0.
    """
    alone = len(followed.used.unit_names) < 2
    if inside.r is None or inside.left_out is None or alone or recipe.interval == "naive":
        return p_values
    bias = followed.r - inside.r
    if recipe.within == "separate":
        larger = ~(np.sign(found.r) * bias <= BIASED)
        other = np.where(larger, np.where(np.isnan(beyond), 1.0, beyond), p_values)
    else:
        shift = as_correlations(followed.left_out) - as_correlations(inside.left_out)
        r = np.clip(found.r - bias, -resample.PERFECT, resample.PERFECT)
        left_out = np.clip(as_correlations(found.left_out) - shift, -resample.PERFECT, resample.PERFECT)
        other = _tested_anew(found, r, left_out, recipe)
        other = np.where(np.isnan(other) | (r * found.r < 0), 1.0, other)
    return np.asarray(np.where(np.isnan(p_values), np.nan, np.fmax(p_values, other)), dtype=float)


def _tested_anew(found: Estimate, r: Array, left_out: Array, recipe: Estimator) -> Array:
    """p of correlations that were corrected, from one without each unit; t takes a correction as certain."""
    p_values = interval_of(found, r, left_out, recipe).p_val
    if recipe.interval == "t":
        anew = interval_of(found, r, left_out, replace(recipe, interval="jackknife")).p_val
        p_values = np.where(np.abs(found.r - r) > UNCERTAIN, anew, p_values)
    return np.asarray(p_values, dtype=float)


def _outliers(found: Estimate, within: str) -> Array:
    """The unit whose own correlation stands out, by pair; pooled residuals have no correlation of one run alone."""
    n_sets = len(found.used.test_sets)
    if within == "pooled":
        return np.full((n_sets, n_sets), -1.0)
    blocks = [found.fit.residuals[found.used.units == unit] for unit in range(len(found.used.unit_names))]
    totals = (found.fit.residuals**2).sum(axis=0)
    products = something_left(np.array([b.T @ b for b in blocks]), SLIVER * totals)
    return resample.standing_out(resample.to_z(as_correlations(products)))
