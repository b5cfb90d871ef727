"""Noise of finite test sets: how much of a residual it is, and the correlation without it.

A score is a mean over examples, so it carries sampling noise. Noise in two OOD sets is independent, hence it adds to
the variances of the residuals but not to their covariance, and shrinks the correlation. With per-example records the
noise is measured: given the models, examples are independent draws of vectors over all points, so the noise of the
scores has covariance S/n with S the covariance over examples, and adds tr(M S M')/n to a residual sum of squares, with
M the matrix that makes residuals. Examples that are right or wrong at every step add nothing, which is why the
binomial p(1 - p)/n corrects too much; it and no correction bound the truth where records are missing.

Try it::

    records = Records.read(frame)          # run, step, test_set, example, correct[, template]
    corrected = correct(found, records, metric="accuracy", method="gam", level=0.95)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from oodles import resample, residuals
from oodles.estimates import Estimate, Refit, inside_unit
from oodles.outcomes import Examples, Outcomes
from oodles.residuals import Ints
from oodles.splines import Array

CEILING = 0.999  # a corrected correlation may exceed 1; beyond this it is held there and said so
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
    caveats: tuple[tuple[str, ...], ...]  # per set
    covariate_noise: float  # noise variance of the in-domain score, nan where not known


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
    n_sets = len(found.used.test_sets)
    sources, noises, left_out, said = [], [], [], []
    for which in range(n_sets):
        source, spectra, why = _spectra(found, records, which, metric, method)
        full, without = _noise_sums(found, spectra, which)
        sources.append(source)
        noises.append(full)
        left_out.append(without)
        said.append(why)
    products = found.fit.residuals.T @ found.fit.residuals
    noise = np.array(noises)
    squares = np.diagonal(products)
    with np.errstate(divide="ignore", invalid="ignore"):
        reliability = np.asarray(1.0 - noise / np.where(squares > 0, squares, np.nan), dtype=float)
    r, low, high = _corrected(found, products, noise, np.array(left_out), sources, level)
    return Corrected(
        r=r,
        low=low,
        high=high,
        source=tuple(sources),
        reliability=reliability,
        caveats=tuple(said),
        covariate_noise=_covariate_noise(found, records, metric, method),
    )


def _corrected(
    found: Estimate, products: Array, noise: Array, left_out: Array, sources: Sequence[str], level: float
) -> tuple[Array, Array, Array]:
    """Estimate and jackknife interval where both sets have records; otherwise the range."""
    plain = _without_noise(products[None], noise[None])[0]
    r, low, high = (np.full_like(plain, np.nan) for _ in range(3))
    measured = np.array([s == "records" for s in sources])
    both = measured[:, None] & measured[None, :]
    ranged = ~both & np.array([s != "none" for s in sources])[:, None] & np.array([s != "none" for s in sources])
    r[both] = np.clip(plain, -1.0, 1.0)[both]
    end = _held(plain, found.r)
    low[ranged], high[ranged] = np.fmin(found.r, end)[ranged], np.fmax(found.r, end)[ranged]
    if len(found.left_out) > 1:
        replicates = _without_noise(found.left_out, left_out.T)
        z = np.arctanh(np.clip(plain, -CEILING, CEILING))
        se = resample.jackknife_se(np.arctanh(np.clip(replicates, -CEILING, CEILING)))
        reach = float(stats.t.ppf(0.5 + level / 2, len(found.left_out) - 1)) * np.where(se > 1e-12, se, np.nan)
        low[both], high[both] = np.tanh(z - reach)[both], np.tanh(z + reach)[both]
        high[both & (plain >= CEILING)], low[both & (plain <= -CEILING)] = 1.0, -1.0
    return r, low, high


def _held(corrected: Array, r: Array) -> Array:
    """Between -1 and 1; where noise would explain more than all variance, the end on the side of the estimate."""
    return np.asarray(np.where(np.isnan(corrected), np.sign(r), np.clip(corrected, -1.0, 1.0)), dtype=float)


def _without_noise(products: Array, noise: Array) -> Array:
    """Ratio of summed products with noise taken from the variances; nan where nothing is left."""
    squares = np.diagonal(products, axis1=1, axis2=2) - noise
    scale = np.sqrt(np.where(squares > 0, squares, np.nan))
    return np.asarray(products / (scale[:, :, None] * scale[:, None, :]), dtype=float)


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


def _spectra(
    found: Estimate, records: Examples | None, which: int, metric: str, method: str
) -> tuple[str, list[Spectrum], tuple[str, ...]]:
    """Noise of one set: measured where its records allow, else binomial, else unknown."""
    series, name = found.used, found.used.test_sets[which]
    if metric != "accuracy":
        return "none", [], (f"noise of finite test sets is not corrected for {metric}",)
    values, sizes = series.scores[:, which], series.sizes[:, which]
    slope = residuals.transform_slope(inside_unit(values, sizes, method), method)
    why: tuple[str, ...] = ()
    if records is not None:
        outcomes, problem = records.outcomes(series, name, values)
        if outcomes is not None:
            return "records", [_measured(refit, outcomes, slope, found) for refit in found.refits], ()
        why = (problem,)
    if np.isnan(sizes).any() or (sizes <= 0).any() or (values < 0).any() or (values > 1).any():
        return "none", [], (*why, f"{name}: noise is not known (needs n, and values in 0..1)")
    variance = slope**2 * values * (1 - values) / sizes
    return "binomial", [_binomial(refit, variance, found) for refit in found.refits], why


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


def _measured(refit: Refit, outcomes: Outcomes, slope: Array, found: Estimate) -> Spectrum:
    """Noise as the examples show it, in chunks of whole clusters."""
    units = _units(refit, found)
    correct = outcomes.correct[refit.points]
    if outcomes.shared or len(found.refits) > 1:
        return _spectrum(refit, correct, outcomes.clusters, slope[refit.points], units)
    # Runs that saw different examples have independent noise: each alone, then summed within units.
    n_units, columns = int(units.max()) + 1, refit.design.basis.shape[1]
    inner, square = np.zeros((n_units, columns, columns)), np.zeros(n_units)
    for run in range(len(found.used.run_names)):
        rows = np.flatnonzero(found.used.runs == run)
        part = _run_spectrum(refit, correct, outcomes.clusters, slope, rows)
        inner[units[rows[0]]] += part.inner[0, 0]
        square[units[rows[0]]] += part.square[0]
    return Spectrum(inner=inner, square=square)


def _run_spectrum(refit: Refit, correct: NDArray[np.int8], clusters: Ints, slope: Array, rows: Ints) -> Spectrum:
    seen = correct[rows[0]] >= 0
    runs = None if refit.design.runs is None else np.zeros(len(rows), dtype=np.int64)
    design = residuals.Design(
        basis=refit.design.basis[rows], penalty=refit.design.penalty, ridge=refit.design.ridge, runs=runs
    )
    part = Refit(design=design, moments=refit.moments, smoothing=refit.smoothing, points=rows)
    alone = np.zeros(len(rows), dtype=np.int64)
    return _spectrum(part, correct[rows][:, seen], clusters[seen], slope[rows], alone)


def _spectrum(refit: Refit, correct: NDArray[np.int8], clusters: Ints, slope: Array, units: Ints) -> Spectrum:
    basis, runs = refit.design.basis, refit.design.runs
    n_units, n_items = int(units.max()) + 1, correct.shape[1]
    codes = np.unique(clusters, return_inverse=True)[1]
    n_clusters = int(codes.max()) + 1
    order = np.argsort(codes, kind="stable")
    mean = correct.mean(axis=1, dtype=float)
    inner = np.zeros((n_units * basis.shape[1],) * 2)
    square = np.zeros(n_units)
    blocks = [np.flatnonzero(units == u) for u in range(n_units)]
    for columns in _chunks(codes[order]):
        errors = (correct[:, order[columns]] - mean[:, None]) * slope[:, None]
        if n_clusters < n_items:
            starts = np.flatnonzero(np.diff(codes[order[columns]], prepend=-1))
            errors = np.add.reduceat(errors, starts, axis=1)
        if runs is not None:
            errors = residuals.centre(errors, runs)
        seen = np.concatenate([basis[rows].T @ errors[rows] for rows in blocks])
        inner += seen @ seen.T
        square += [float((errors[rows] ** 2).sum()) for rows in blocks]
    scale = n_clusters / max(n_clusters - 1, 1) / n_items**2
    width = basis.shape[1]
    shaped = inner.reshape(n_units, width, n_units, width).transpose(0, 2, 1, 3)
    return Spectrum(inner=shaped * scale, square=square * scale)


def _chunks(codes: Ints) -> list[slice]:
    """Cuts that never split a cluster."""
    cuts, start = [], 0
    while start < len(codes):
        stop = min(start + CHUNK, len(codes))
        if stop < len(codes):
            stop = int(np.searchsorted(codes, codes[stop - 1], side="right"))
        cuts.append(slice(start, stop))
        start = stop
    return cuts


def _covariate_noise(found: Estimate, records: Examples | None, metric: str, method: str) -> float:
    """Noise variance per point of the in-domain score, after residualising; nan where it cannot be known."""
    series = found.used
    if metric != "accuracy" or series.covariates.shape[1] != 1 or method not in ("gam", "linear"):
        return float("nan")
    values, sizes = series.covariates[:, 0], series.covariate_sizes[:, 0]
    spectra: list[Spectrum] | None = None
    if records is not None:
        outcomes, _ = records.outcomes(series, series.in_domain[0], values)
        if outcomes is not None:
            spectra = [_measured(refit, outcomes, np.ones_like(values), found) for refit in found.refits]
    if spectra is None:
        if np.isnan(sizes).any() or (sizes <= 0).any() or (values < 0).any() or (values > 1).any():
            return float("nan")
        variance = values * (1 - values) / sizes
        spectra = [_binomial(refit, variance, found) for refit in found.refits]
    left = float(np.mean(found.left))
    return _noise_sums(found, spectra, 0)[0] / left if left > 0 else float("nan")


def covariate_bias(found: Estimate, corrected: Corrected) -> Array:
    """First-order bias of each correlation from noise in the in-domain score, were the true one zero.

    With slopes g of two sets on the observed in-domain score, of which a share a is signal, noise variance v in it
    and residual variances s, both residuals contain the same g_i g_j v / a: the noise that was subtracted, and the
    signal that a slope flattened by noise left behind.
    """
    series = found.used
    n_sets = len(series.test_sets)
    if not np.isfinite(corrected.covariate_noise):
        return np.full((n_sets, n_sets), np.nan)
    x = series.covariates - series.covariates.mean(axis=0)
    if found.refits[0].design.runs is not None or len(found.refits) > 1:
        x = residuals.centre(x, series.runs)
    slope = x[:, 0] @ found.fit.fitted / max(float((x**2).sum()), 1e-300)
    variance = (found.fit.residuals**2).sum(axis=0) / np.maximum(found.left, 1e-300)
    signal = max(1.0 - corrected.covariate_noise / max(float((x**2).mean()), 1e-300), 0.05)
    noise = max(corrected.covariate_noise, 0.0) / signal
    share = slope * np.sqrt(noise / np.where(variance > 0, variance, np.nan))
    return np.asarray(np.clip(np.outer(share, share), -1.0, 1.0), dtype=float)
