"""Noise of one set's scores: measured from its items, or bounded by its number of examples.

A score is a mean over examples, so it carries sampling noise. With per-example records it is measured: given the
models, items are independent draws of vectors over all points within their strata (labels and slices, whose shares
are fixed by design), so the scores' noise has a covariance S that the items show, and adds tr(M S M') to a residual
sum of squares, with M the matrix that makes residuals. Examples that are right or wrong at every step add nothing,
which is why the binomial p(1 - p)/n is too much; it and no noise bound the truth where records are missing. Without
strata, a drift of the share of Yes in a set with balanced labels counts as noise, although it moves both labels by
the same amount in every sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from oodles.errors import listed
from oodles.stats import resample, residuals
from oodles.stats.estimates import Estimate, Refit, inside_unit
from oodles.stats.longtable import RIGHT
from oodles.stats.outcomes import MEASURED, Examples, Outcomes
from oodles.stats.residuals import Ints
from oodles.stats.splines import Array

FEWEST_ITEMS = 10  # with fewer the noise is not measured at all
CHUNK = 4096  # examples handled at once, so that memory does not grow with the test set


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Spectrum:
    """Covariance of one set's noise as the moments see it."""

    inner: Array  # units x units x columns x columns, or units x columns x columns where units are independent
    square: Array  # units

    def sums(self, refit: Refit, weights: Array, which: int) -> Array:
        """Expected residual sum of squares that is noise, for every row of weights."""
        summed = refit.moments.weighted(weights)
        _, _, chosen = residuals.coefficients(refit.design, summed, refit.smoothing)
        penalty = chosen[:, which, None, None] * refit.design.penalty + refit.design.ridge
        if self.inner.ndim == 4:
            spread = np.einsum("ru,rv,uvpq->rpq", weights, weights, self.inner, optimize=True)
        else:
            spread = np.tensordot(weights**2, self.inner, axes=1)
        once = np.linalg.solve(summed.gram + penalty, spread)
        twice = np.linalg.solve(summed.gram + penalty, summed.gram @ once)
        left = weights @ self.square - 2 * np.trace(once, axis1=1, axis2=2) + np.trace(twice, axis1=1, axis2=2)
        return np.asarray(left, dtype=float)


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Noise:
    """Noise of one set's scores, as the residuals see it."""

    source: str  # records, binomial or none
    total: float  # in the residual sum of squares
    left_out: Array  # the same without each unit
    spread: Array  # sets x sets: covariance over draws of items of the set's products with all sets
    items: int  # independent items behind it
    caveats: tuple[str, ...] = ()


def noises_of(found: Estimate, records: Examples | None, metric: str, method: str) -> list[Noise]:
    """Noise of every OOD set."""
    return [_noise_of(found, records, which, metric, method) for which in range(len(found.used.test_sets))]


def _noise_of(found: Estimate, records: Examples | None, which: int, metric: str, method: str) -> Noise:
    """Noise of one set: measured where its records allow, else binomial, else unknown."""
    series, name = found.used, found.used.test_sets[which]
    n_sets, n_units = len(series.test_sets), len(found.left_out)
    nothing = Noise(
        source="none",
        total=float("nan"),
        left_out=np.full(n_units, np.nan),
        spread=np.zeros((n_sets, n_sets)),
        items=0,
    )
    if metric not in (*RIGHT, *MEASURED):
        return replace(nothing, caveats=(f"noise of finite test sets is not corrected for {metric}",))
    values, sizes = series.scores[:, which], series.sizes[:, which]
    slope = residuals.transform_slope(inside_unit(values, sizes, method), method)
    why: tuple[str, ...] = ()
    if records is not None and metric in MEASURED:
        outcomes, problem = records.outcomes(series, name, values, metric)
        if outcomes is not None and len(np.unique(outcomes.items)) < FEWEST_ITEMS:
            few = f"{name}: {len(np.unique(outcomes.items))} independent items are too few to measure its noise"
            return replace(nothing, caveats=(few,))
        if outcomes is not None:
            spectra = [measured_spectrum(refit, outcomes, slope, found) for refit in found.refits]
            total, left_out = noise_sums(found, spectra, which)
            unknown = f"{name}: records without labels: a drift of the answers may count as noise"
            return Noise(
                source="records",
                total=total,
                left_out=left_out,
                spread=_item_spread(found, outcomes, slope, which),
                items=len(np.unique(outcomes.items)),
                caveats=(unknown,) if outcomes.strata is None else (),
            )
        why = (problem,)
    if metric not in RIGHT:
        return replace(nothing, caveats=(*why, f"{name}: noise of {metric} is not known without records"))
    given = {"n (--n)": (sizes > 0).all(), "values in 0..1": not ((values < 0) | (values > 1)).any()}
    if not all(given.values()):
        needs = listed(what for what, there in given.items() if not there)
        return replace(nothing, caveats=(*why, f"{name}: noise is not known without {needs}"))
    variance = slope**2 * values * (1 - values) / sizes
    total, left_out = noise_sums(found, [binomial_spectrum(refit, variance, found) for refit in found.refits], which)
    return replace(nothing, source="binomial", total=total, left_out=left_out, caveats=why)


def noise_sums(found: Estimate, spectra: list[Spectrum], which: int) -> tuple[float, Array]:
    """Noise in the residual sum of squares: of all units, and without each unit."""
    n_units = len(found.used.unit_names)
    if not spectra:
        return float("nan"), np.full(len(found.left_out), np.nan)
    if len(found.refits) == 1:
        weights = np.concatenate([np.ones((1, n_units)), resample.jackknife_weights(n_units)])
        sums = spectra[0].sums(found.refits[0], weights, which)
        return float(sums[0]), sums[1:] if len(found.left_out) else np.empty(0)
    of_run = [s.sums(refit, np.ones((1, 1)), which)[0] for s, refit in zip(spectra, found.refits, strict=True)]
    of_unit = np.bincount([found.used.units[r.points[0]] for r in found.refits], weights=of_run, minlength=n_units)
    return float(of_unit.sum()), (of_unit.sum() - of_unit if len(found.left_out) else np.empty(0))


def binomial_spectrum(refit: Refit, variance: Array, found: Estimate) -> Spectrum:
    """Noise that is independent at every point."""
    own = variance[refit.points]
    units = _units(refit, found)
    basis = refit.design.basis
    n_units = int(units.max()) + 1
    inner = np.array([(basis[units == u].T * own[units == u]) @ basis[units == u] for u in range(n_units)])
    if refit.design.runs is not None:
        counts = np.bincount(refit.design.runs)
        own = own * (1 - 1 / counts[refit.design.runs])
    square = np.asarray(np.bincount(units, weights=own, minlength=n_units), dtype=float)
    return Spectrum(inner=inner, square=square)


def _units(refit: Refit, found: Estimate) -> Ints:
    """Units as the refit counts them: a fit to one run has one."""
    if len(found.refits) > 1:
        return np.zeros(len(refit.points), dtype=np.int64)
    return found.used.units


def measured_spectrum(refit: Refit, outcomes: Outcomes, slope: Array, estimate: Estimate) -> Spectrum:
    """Noise as the items show it."""
    units = _units(refit, estimate)
    own = replace(outcomes, correct=outcomes.correct[refit.points])
    if outcomes.shared or len(estimate.refits) > 1:
        return _spectrum(refit, _seen(own, 0), slope[refit.points], units)
    # Runs that saw different examples have independent noise: each alone, then summed within units.
    n_units, columns = int(units.max()) + 1, refit.design.basis.shape[1]
    inner, square = np.zeros((n_units, columns, columns)), np.zeros(n_units)
    for run in range(len(estimate.used.run_names)):
        rows = np.flatnonzero(estimate.used.runs == run)
        part = _run_spectrum(refit, replace(own, correct=own.correct[rows]), slope[rows], rows)
        inner[units[rows[0]]] += part.inner[0, 0]
        square[units[rows[0]]] += part.square[0]
    return Spectrum(inner=inner, square=square)


def _run_spectrum(refit: Refit, outcomes: Outcomes, slope: Array, rows: Ints) -> Spectrum:
    runs = None if refit.design.runs is None else np.zeros(len(rows), dtype=np.int64)
    design = residuals.Design(
        basis=refit.design.basis[rows], penalty=refit.design.penalty, ridge=refit.design.ridge, runs=runs
    )
    part = Refit(design=design, moments=refit.moments, smoothing=refit.smoothing, points=rows)
    return _spectrum(part, _seen(outcomes, 0), slope, np.zeros(len(rows), dtype=np.int64))


def _seen(outcomes: Outcomes, point: int) -> Outcomes:
    """Only the examples that were seen at a point, and so at all points of its run."""
    seen = outcomes.correct[point] >= 0
    if seen.all():
        return outcomes
    strata = None if outcomes.strata is None else outcomes.strata[seen]
    return replace(outcomes, correct=outcomes.correct[:, seen], items=outcomes.items[seen], strata=strata)


def _spectrum(refit: Refit, outcomes: Outcomes, slope: Array, units: Ints) -> Spectrum:
    """Covariance of the noise, as the moments of a refit see it."""
    basis, runs = refit.design.basis, refit.design.runs
    n_units, width = int(units.max()) + 1, basis.shape[1]
    inner, square = np.zeros((n_units * width,) * 2), np.zeros(n_units)
    blocks = [np.flatnonzero(units == u) for u in range(n_units)]
    for errors in _item_errors(outcomes, slope):
        centred = errors if runs is None else residuals.centre(errors, runs)
        seen = np.concatenate([basis[rows].T @ centred[rows] for rows in blocks])
        inner += seen @ seen.T
        square += [float((centred[rows] ** 2).sum()) for rows in blocks]
    return Spectrum(inner=inner.reshape(n_units, width, n_units, width).transpose(0, 2, 1, 3), square=square)


def _item_spread(found: Estimate, outcomes: Outcomes, slope: Array, which: int) -> Array:
    """Covariance over draws of items of a set's products with the residuals of all sets, its own without noise.

    An item with residual error e moves the product with another set's residual y by <e, y>, and the set's own sum of
    squares less noise by 2 (<e, y> - <e, e>). What differs between units is taken out: leaving out units shows it.
    """
    n_units, n_sets = len(found.used.unit_names), len(found.used.test_sets)
    if not outcomes.shared or n_units < 2:
        return np.zeros((n_sets, n_sets))
    makers = [_maker(refit, which) for refit in found.refits]
    squares, sums, n_items = np.zeros((2, n_sets, n_sets)), np.zeros((n_units, n_sets)), 0
    for errors in _item_errors(outcomes, slope):
        moved = np.zeros((n_units, errors.shape[1], n_sets))
        for refit, make in zip(found.refits, makers, strict=True):
            left = make(errors[refit.points])
            for unit in np.unique(found.used.units[refit.points]):
                rows = found.used.units[refit.points] == unit
                own = left[rows].T @ found.fit.residuals[refit.points][rows]
                own[:, which] = 2 * (own[:, which] - (left[rows] ** 2).sum(axis=0))
                moved[unit] += own
        squares += _squares(moved)
        sums += moved.sum(axis=1)
        n_items += errors.shape[1]
    total, inside = squares - _squares(sums[:, None]) / n_items  # about the mean over items
    return np.asarray(total - inside, dtype=float)


def _squares(moved: Array) -> Array:
    """Sums of products over items: of what all units add up to, and of how units differ from that."""
    n_units, together = len(moved), moved.sum(axis=0)
    apart = moved - together / n_units
    inside = np.einsum("uis,uit->st", apart, apart) * n_units / max(n_units - 1, 1)
    return np.stack([together.T @ together, inside])


def _maker(refit: Refit, which: int) -> Callable[[Array], Array]:
    """The function that makes residuals of any columns, as those of a set are made."""
    units = np.ones((1, len(refit.moments.points)))
    summed = refit.moments.weighted(units)
    smoothing = residuals.coefficients(refit.design, summed, refit.smoothing)[2][0, which]
    system = summed.gram[0] + smoothing * refit.design.penalty + refit.design.ridge
    basis, runs = refit.design.basis, refit.design.runs

    def make(columns: Array) -> Array:
        start = columns if runs is None else residuals.centre(columns, runs)
        return np.asarray(start - basis @ np.linalg.solve(system, basis.T @ start), dtype=float)

    return make


def _item_errors(outcomes: Outcomes, slope: Array) -> Iterator[Array]:
    """Deviations from the means of the strata, summed by item and divided by n: points x items, in chunks.

    With `G` items in a stratum its deviations are stretched by sqrt(G/(G - 1)), which makes their covariance unbiased
    where items lie within a stratum (templates) and where each item has a part in every stratum (paired hypotheses).
    """
    items = np.unique(outcomes.items, return_inverse=True)[1]
    strata = merged_strata(outcomes.strata, items)
    means, stretch = _stratum_means(outcomes.correct, strata), _stretch(strata, items)
    order = np.argsort(items, kind="stable")
    for columns in _chunks(items[order]):
        chosen = order[columns]
        errors = (outcomes.correct[:, chosen] - means[:, strata[chosen]]) * (slope[:, None] * stretch[strata[chosen]])
        starts = np.flatnonzero(np.diff(items[chosen], prepend=-1))
        if len(starts) < len(chosen):
            errors = np.add.reduceat(errors, starts, axis=1)
        yield errors / len(items)


def merged_strata(strata: Ints | None, items: Ints) -> Ints:
    """Strata coded 0, 1, ...; those with a single item are merged, since one item shows no spread.

    >>> merged_strata(np.array([0, 0, 7, 8, 9]), np.array([0, 1, 2, 3, 4])).tolist()
    [0, 0, 1, 1, 1]
    """
    if strata is None:
        return np.zeros(len(items), dtype=np.int64)
    codes = np.unique(strata, return_inverse=True)[1].astype(np.int64)
    single = _items_per_stratum(codes, items) < 2
    if single.any() and not single.all() and single.sum() == 1:  # nothing to merge with but the largest other
        codes[codes == np.flatnonzero(single)[0]] = np.argmax(np.where(single, 0, np.bincount(codes)))
    else:
        codes[single[codes]] = len(single)
    return np.unique(codes, return_inverse=True)[1].astype(np.int64)


def _items_per_stratum(strata: Ints, items: Ints) -> Ints:
    pairs = np.unique(np.column_stack([strata, items]), axis=0)
    return np.bincount(pairs[:, 0]).astype(np.int64)


def _stratum_means(correct: NDArray[np.int8] | NDArray[np.float32], strata: Ints) -> Array:
    """Share of correct answers, points x strata; of placements their mean."""
    order = np.argsort(strata, kind="stable")
    starts = np.flatnonzero(np.diff(strata[order], prepend=-1))
    sums = np.add.reduceat(correct[:, order], starts, axis=1, dtype=float)
    return np.asarray(sums / np.bincount(strata), dtype=float)


def _stretch(strata: Ints, items: Ints) -> Array:
    count = _items_per_stratum(strata, items).astype(float)
    return np.asarray(np.sqrt(count / np.maximum(count - 1, 1)), dtype=float)


def _chunks(codes: Ints) -> list[slice]:
    """Cuts that never split an item."""
    cuts, start = [], 0
    while start < len(codes):
        stop = min(start + CHUNK, len(codes))
        if stop < len(codes):
            stop = int(np.searchsorted(codes, codes[stop - 1], side="right"))
        cuts.append(slice(start, stop))
        start = stop
    return cuts
