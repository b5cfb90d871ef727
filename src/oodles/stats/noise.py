"""Noise of finite test sets: how much of a residual it is, and the correlation without it.

A score is a mean over examples, so it carries sampling noise. Noise in two OOD sets is independent, hence it adds to
the variances of the residuals but not to their covariance, and shrinks the correlation. Noise of the in-domain set is
in both residuals, and mostly inflates it. `items.py` measures the first, `inside.py` the second; here the correlation
and its interval are formed without either. Where noise is only bounded by the number of examples, so is the
correlation.

Try it::

    records = Records.read(frame)          # run, step, test_set, example, correct[, item, stratum]
    corrected = correct(found, records, metric="accuracy", method="gam", level=0.95)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from oodles.stats.estimates import Estimate, as_correlations
from oodles.stats.inside import Inside, without_inside_noise
from oodles.stats.items import Noise, noises_of
from oodles.stats.outcomes import Examples
from oodles.stats.splines import Array

CEILING = 0.999  # a corrected correlation may exceed 1; beyond this it is held at 1 and said so
FEW_ITEMS = 40  # with fewer independent items and an uncertainty above UNSURE simulation shows the correction to be off
UNSURE = 0.63
IMPOSSIBLE = -1.0  # reliability below which the records cannot be independent draws, however few units there are
MOVED = 0.05  # by which noise that is only bounded may move a correlation that counts as measured


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
    noises = noises_of(found, records, metric, method)
    inside = without_inside_noise(found, records, metric, method)
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
