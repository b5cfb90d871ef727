"""Noise of finite test sets: how much of a residual it is, and the correlation without it.

A score is a mean over examples, so it carries sampling noise. Noise in two OOD sets is independent, hence it adds to
the variances of the residuals but not to their covariance, and shrinks the correlation. With per-example records the
noise is measured: given the models, items are independent draws of vectors over all points within their strata (labels
and slices, whose shares are fixed by design), so the scores' noise has a covariance S that the items show, and adds
tr(M S M') to a residual sum of squares, with M the matrix that makes residuals. Examples that are right or wrong at
every step add nothing, which is why the binomial p(1 - p)/n corrects too much; it and no correction bound the truth
where records are missing. Without strata, a drift of the share of Yes in a set with balanced labels counts as noise,
although it moves both labels by the same amount in every sample.

Try it::

    records = Records.read(frame)          # run, step, test_set, example, correct[, item, stratum]
    corrected = correct(found, records, metric="accuracy", method="gam", level=0.95)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from oodles.stats import resample, residuals
from oodles.stats.blur import blur
from oodles.stats.estimates import Estimate, Refit, as_correlations, inside_unit
from oodles.stats.outcomes import Examples, Outcomes
from oodles.stats.residuals import Ints
from oodles.stats.splines import Array

CEILING = 0.999  # a corrected correlation may exceed 1; beyond this it is held at 1 and said so
FEW_ITEMS = 40  # with fewer independent items and an uncertainty above UNSURE simulation shows the correction to be off
UNSURE = 0.63
FEWEST_ITEMS = 10  # with fewer the noise is not measured at all
IMPOSSIBLE = -1.0  # reliability below which the records cannot be independent draws, however few units there are
MOVED = 0.05  # by which noise that is only bounded may move a correlation that counts as measured
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
class Corrected:
    """Correlations without the noise of finite test sets."""

    r: Array  # sets x sets; nan where only a range is known
    low: Array
    high: Array
    source: tuple[str, ...]  # per set: records, binomial or none
    reliability: Array  # per set: the share of the residual that is not noise
    items: tuple[int, ...]  # per set: independent items behind the measured noise, 0 where there are no records
    uncertainty: Array  # per set: standard error of the residual variance without noise, as a share of it
    violated: tuple[bool, ...]  # per set: noise was measured as larger than the residual, beyond chance
    caveats: tuple[tuple[str, ...], ...]  # per set
    inside: Inside  # what noise of the in-domain set does
    exact: NDArray[np.bool_]  # sets x sets: whether all noises that matter were measured


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Inside:
    """Noise of the in-domain set, and the products of residuals without it."""

    source: str  # records; binomial, which is the most it can be; or none: not known
    variance: float  # of the noise at a point, nan where not known
    full: Array | None = None  # sets x sets; None where nothing can be corrected
    left_out: Array | None = None  # the same without each unit
    hidden: bool = False  # noise may be most of what in-domain scores differ by

    @property
    def r(self) -> Array | None:
        """Correlations without in-domain noise, those of the OOD sets still in them."""
        return None if self.full is None else as_correlations(self.full[None])[0]


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Noise:
    """Noise of one set's scores, as the residuals see it."""

    source: str  # records, binomial or none
    total: float  # in the residual sum of squares
    left_out: Array  # the same without each unit
    spread: Array  # sets x sets: covariance over draws of items of the set's products with all sets
    items: int  # independent items behind it
    caveats: tuple[str, ...] = ()


def correct(found: Estimate, records: Examples | None, *, metric: str, method: str, level: float) -> Corrected:
    """Remove sampling noise from the variances of the residuals.

    Parameters
    ----------
    found : Estimate
        The correlations to correct, with their refits.
    records : Records, optional
        Per-example outcomes; without them the range between no correction and the binomial one is given.
    metric : str
        Only accuracy is a mean of independent outcomes; other metrics are left alone.
    method : str
        For the slope of probit and logit.
    level : float
        Coverage of the interval.
    """
    noises = [_noise_of(found, records, which, metric, method) for which in range(len(found.used.test_sets))]
    inside = _inside(found, records, metric, method)
    ends = [_Products.of(found.fit.residuals.T @ found.fit.residuals, found.left_out, noises)]
    if inside.full is not None and inside.left_out is not None:
        ends.append(_Products.of(inside.full, inside.left_out, noises))
    products = ends[-1] if inside.source == "records" else ends[0]
    squares = products.full.diagonal()
    with np.errstate(divide="ignore", invalid="ignore"):
        reliability = np.asarray(products.variances / np.where(squares > 0, squares, np.nan), dtype=float)
    violated = _violated(products, reliability, noises, level)
    exact = _exact(found, inside, noises)
    r, low, high = _corrected(found, products, ends, noises, exact, level)
    for matrix in (r, low, high):
        matrix[np.array(violated), :] = matrix[:, np.array(violated)] = np.nan
    return Corrected(
        r=r,
        low=low,
        high=high,
        source=tuple(noise.source for noise in noises),
        reliability=reliability,
        items=tuple(noise.items for noise in noises),
        uncertainty=products.uncertainty,
        violated=violated,
        caveats=tuple(noise.caveats for noise in noises),
        inside=inside,
        exact=exact,
    )


def _exact(found: Estimate, inside: Inside, noises: Sequence[Noise]) -> NDArray[np.bool_]:
    """Pairs whose two sets have records, and the in-domain set as well unless its noise moves them too little."""
    measured = np.array([noise.source == "records" for noise in noises])
    both = np.outer(measured, measured)
    if inside.source != "binomial":
        return both
    if inside.r is None:
        return both & (not inside.hidden)
    return np.asarray(both & (np.abs(found.r - inside.r) <= MOVED), dtype=bool)


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class _Products:
    """Products of residuals of all pairs of sets, without noise, and how uncertain they are.

    `C` is the sum of products of two residuals, `V` a residual sum of squares less its noise. Both vary over draws of
    units (jackknife) and over draws of items (the influence of each item; what differs from unit to unit is left to the
    jackknife, which has it already).
    """

    full: Array  # sets x sets: sums of products
    variances: Array  # V of each set
    n_units: int
    by_unit: tuple[Array, Array, Array]  # var C_ij, cov(C_ij, V_i), cov(V_i, V_j) over units
    by_item: Array  # sets x sets x sets: for the items of a set, covariance of (C with each other set, own V)

    @classmethod
    def of(cls, full: Array, left_out: Array, noises: Sequence[Noise]) -> _Products:
        n_units = len(left_out)
        nothing = np.full_like(full, np.nan)
        by_unit = (nothing, nothing, nothing)
        if n_units > 1:
            # A sum without a unit is smaller by that unit's part: brought back to the size of the full sum.
            scale = n_units / (n_units - 1)
            left = np.array([noise.left_out for noise in noises]).T
            V = scale * (np.diagonal(left_out, axis1=1, axis2=2) - left)
            C = scale * left_out
            V, C = V - V.mean(axis=0), C - C.mean(axis=0)
            by_unit = (
                (C**2).sum(axis=0) / scale,
                np.einsum("uij,ui->ij", C, V) / scale,
                V.T @ V / scale,
            )
        return cls(
            full=full,
            variances=full.diagonal() - np.array([noise.total for noise in noises]),
            n_units=n_units,
            by_unit=by_unit,
            by_item=np.array([noise.spread for noise in noises]),
        )

    @property
    def uncertainty(self) -> Array:
        """Standard error of V as a share of it; nan where nothing is left."""
        return np.asarray(self.error / np.where(self.variances > 0, self.variances, np.nan), dtype=float)

    @property
    def error(self) -> Array:
        """Standard error of V over units and items."""
        of_items = np.maximum(np.einsum("iii->i", self.by_item), 0.0)
        return np.asarray(np.sqrt(self.by_unit[2].diagonal() + of_items), dtype=float)


def _corrected(
    found: Estimate,
    products: _Products,
    ends: Sequence[_Products],
    noises: Sequence[Noise],
    exact: NDArray[np.bool_],
    level: float,
) -> tuple[Array, Array, Array]:
    """Estimate and interval where all noise was measured; otherwise the range from none of it to all it may be."""
    known = np.array([noise.source != "none" for noise in noises])
    ranged = np.outer(known, known) & ~exact
    r, low, high = _ratio(products, np.array([noise.items for noise in noises], dtype=float), level)
    start = as_correlations(products.full[None])[0]
    limits = [start if products is ends[-1] and len(ends) > 1 else found.r]
    for one in ends if products is ends[0] else [products]:
        limits.append(_held(_plain_ratio(one), as_correlations(one.full[None])[0]))
    least, most = np.fmin.reduce(limits), np.fmax.reduce(limits)
    low = np.where(exact, low, np.where(ranged, least, np.nan))
    high = np.where(exact, high, np.where(ranged, most, np.nan))
    shown = np.where(np.isfinite(found.r), 1.0, np.nan)
    return np.where(exact, r, np.nan) * shown, low * shown, high * shown


def _ratio(products: _Products, items: Array, level: float) -> tuple[Array, Array, Array]:
    """C / sqrt(V_i V_j) with its interval by Fieller's method.

    Notes
    -----
    `T(rho) = C - rho S`, with `S` the root of the two variances, has mean 0 at the true correlation. All rho at which
    T is within t standard errors of 0 make the interval: the solutions of a quadratic inequality, or all of [-1, 1]
    where S cannot be told from 0. S is freed of its bias to second order, without which the ratio is too large where
    the variances are uncertain. Student's t has one degree of freedom less than there are units, or items if fewer.
    """
    V = np.where(products.variances > 0, products.variances, np.nan)
    C, root = products.full, np.outer(np.sqrt(V), np.sqrt(V))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        own = (products.error / V) ** 2
        bias = (own[:, None] + own[None, :]) / 8 - products.by_unit[2] / np.outer(V, V) / 4
        S = root * (1 + np.where(np.isfinite(bias), bias, 0.0))
        r = np.asarray(C / S, dtype=float)
        CC, CS, SS = _spread_of_t(products, V, np.clip(r, -1.0, 1.0))
        fewest = np.minimum(np.minimum(items[:, None], items[None, :]), products.n_units)
        reach = stats.t.ppf(0.5 + level / 2, np.maximum(fewest - 1, 1)) ** 2
        low, high = _fieller(S**2 - reach * SS, C * S - reach * CS, C**2 - reach * CC)
        impossible = (low > 1) | (high < -1) | ~(CC > 1e-24 * C**2)  # beyond any correlation, or no spread
    low, high = (np.where(impossible, np.nan, np.clip(limit, -1.0, 1.0)) for limit in (low, high))
    return np.clip(r, -1.0, 1.0), np.asarray(low), np.asarray(high)


def _fieller(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    """All x with a x^2 - 2 b x + c <= 0, and everything where a is not above 0."""
    inside = np.sqrt(np.maximum(b * b - a * c, 0.0))
    whole = a <= 0
    return np.where(whole, -1.0, (b - inside) / a), np.where(whole, 1.0, (b + inside) / a)


def _spread_of_t(products: _Products, V: Array, r: Array) -> tuple[Array, Array, Array]:
    """Var C, cov(C, S) and var S, of which the variance of C - rho S is made."""
    root = np.outer(np.sqrt(V), np.sqrt(V))
    CC, CV, VV = products.by_unit
    relative = VV / np.outer(V, V)
    own = relative.diagonal()
    CS = root / 2 * (CV / V[:, None] + CV.T / V[None, :])
    SS = root**2 / 4 * (own[:, None] + own[None, :] + 2 * relative)
    # The items of the first set of a pair move C and that set's V. Their share is a difference of two estimates: where
    # it comes out below 0 there is nothing to add.
    item_CC = np.einsum("ijj->ij", products.by_item)
    item_CS = root / 2 * np.einsum("iji->ij", products.by_item) / V[:, None]
    item_SS = root**2 / 4 * (np.einsum("iii->i", products.by_item) / V**2)[:, None]
    some = item_CC - 2 * r * item_CS + r**2 * item_SS > 0
    item_CC, item_CS, item_SS = (np.where(some, part, 0.0) for part in (item_CC, item_CS, item_SS))
    return CC + item_CC + item_CC.T, CS + item_CS + item_CS.T, SS + item_SS + item_SS.T


def is_unsure(items: int, uncertainty: float) -> bool:
    """Whether a set's residual without noise is too poorly known for a corrected correlation to be trusted.

    >>> is_unsure(25, 0.4), is_unsure(25, 0.8), is_unsure(500, 0.8), is_unsure(500, 1.2)
    (False, True, False, True)
    """
    return bool(uncertainty > 1 or (items < FEW_ITEMS and uncertainty > UNSURE))


def _plain_ratio(products: _Products) -> Array:
    """The correlation with noise taken from the variances; nan where nothing is left."""
    root = np.sqrt(np.where(products.variances > 0, products.variances, np.nan))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        return np.asarray(products.full / root[:, None] / root[None, :], dtype=float)


def _held(corrected: Array, r: Array) -> Array:
    """Between -1 and 1; where noise would explain more than all variance, the end on the side of the estimate."""
    return np.asarray(np.where(np.isnan(corrected), np.sign(r), np.clip(corrected, -1.0, 1.0)), dtype=float)


def _violated(products: _Products, reliability: Array, noises: Sequence[Noise], level: float) -> tuple[bool, ...]:
    """Sets whose measured noise exceeds their residual by more than chance: their items are not independent draws."""
    reach = float(stats.t.ppf(0.5 + level / 2, max(products.n_units - 1, 1))) * products.error
    beyond = (products.variances + np.where(np.isfinite(reach), reach, np.inf) < 0) | (reliability < IMPOSSIBLE)
    return tuple(bool(beyond[k]) and noise.source == "records" for k, noise in enumerate(noises))


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
    if metric != "accuracy":
        return replace(nothing, caveats=(f"noise of finite test sets is not corrected for {metric}",))
    values, sizes = series.scores[:, which], series.sizes[:, which]
    slope = residuals.transform_slope(inside_unit(values, sizes, method), method)
    why: tuple[str, ...] = ()
    if records is not None:
        outcomes, problem = records.outcomes(series, name, values)
        if outcomes is not None and len(np.unique(outcomes.items)) < FEWEST_ITEMS:
            few = f"{name}: {len(np.unique(outcomes.items))} independent items are too few to measure its noise"
            return replace(nothing, caveats=(few,))
        if outcomes is not None:
            spectra = [_measured(refit, outcomes, slope, found) for refit in found.refits]
            total, left_out = _noise_sums(found, spectra, which)
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
    if np.isnan(sizes).any() or (sizes <= 0).any() or (values < 0).any() or (values > 1).any():
        return replace(nothing, caveats=(*why, f"{name}: noise is not known (needs n, and values in 0..1)"))
    variance = slope**2 * values * (1 - values) / sizes
    total, left_out = _noise_sums(found, [_binomial(refit, variance, found) for refit in found.refits], which)
    return replace(nothing, source="binomial", total=total, left_out=left_out, caveats=why)


def _noise_sums(found: Estimate, spectra: list[Spectrum], which: int) -> tuple[float, Array]:
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


def _binomial(refit: Refit, variance: Array, found: Estimate) -> Spectrum:
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


def _measured(refit: Refit, outcomes: Outcomes, slope: Array, estimate: Estimate) -> Spectrum:
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


def _stratum_means(correct: NDArray[np.int8], strata: Ints) -> Array:
    """Share of correct answers, points x strata."""
    order = np.argsort(strata, kind="stable")
    starts = np.flatnonzero(np.diff(strata[order], prepend=-1))
    sums = np.add.reduceat(correct[:, order], starts, axis=1, dtype=np.int64)
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


def _inside(found: Estimate, records: Examples | None, metric: str, method: str) -> Inside:
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
    return replace(start, full=full, left_out=without)


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class InsideNoise:
    """Variance of the in-domain score's noise at a point: as known, and the most it can be."""

    source: str  # records; binomial; or none: not known
    variance: float
    most: float


def inside_noise(found: Estimate, records: Examples | None, metric: str, method: str) -> InsideNoise:
    """Noise of the in-domain score after residualising.

    Noise that all points share moves the in-domain axis and nothing else, so it is measured after the regression. From
    n alone only a bound is known: the binomial error, which is too much where models are scored on the same examples.
    """
    series = found.used
    unknown = InsideNoise(source="none", variance=float("nan"), most=float("nan"))
    if metric != "accuracy" or series.covariates.shape[1] != 1 or method not in ("gam", "linear"):
        return unknown
    values, sizes = series.covariates[:, 0] / series.scale, series.covariate_sizes[:, 0]
    if np.isnan(sizes).any() or not (sizes > 0).all() or not ((values >= 0) & (values <= 1)).all():
        return unknown
    left = float(np.mean(found.left))
    if not left > 0:
        return unknown
    binomial = [_binomial(refit, values * (1 - values) / sizes, found) for refit in found.refits]
    most = measured = _noise_sums(found, binomial, 0)[0] / left
    source = "binomial"
    if records is not None:
        outcomes, _ = records.outcomes(series, series.in_domain[0], series.covariates[:, 0])
        if outcomes is not None:
            spectra = [_measured(refit, outcomes, np.ones_like(values), found) for refit in found.refits]
            measured, source = max(_noise_sums(found, spectra, 0)[0] / left, 0.0), "records"
    return InsideNoise(source=source, variance=measured * series.scale**2, most=most * series.scale**2)


def covariate_bias(found: Estimate, corrected: Corrected) -> Array:
    """What in-domain noise adds to each correlation: measured or, from n alone, at most; nan where not known.

    With one fit per run it is the first-order bias, were the true correlation zero. With slopes g of two sets on the
    observed in-domain score, of which a share a is signal, noise variance v in it and residual variances s, both
    residuals contain the same g_i g_j v / a: the noise that was subtracted, and the signal that a slope flattened by
    noise left behind.
    """
    inside = corrected.inside
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
