"""Noise of the in-domain set: what it puts into every residual, and the sums of products without it.

The in-domain score that is regressed out is a mean over examples. Given the observed score, the true one still varies,
and every OOD set that depends on it varies along: two residuals then share `cov(g_i(z*), g_j(z*) | z)`, with `g` the
links to the true score `z*`. A link whose slope is 0 on average, such as a U, shares it all the same, so slopes are
taken where the points are. Three steps:

1. The distribution of the true scores, by maximum likelihood from the observed scores and their noise, on a grid. Its
   logarithm is a polynomial, which cannot follow single points as a free distribution would: the posterior means of
   that one are too far apart, and too little noise is taken away.
2. The links, as cubic polynomials of the true score: each OOD score regressed on the posterior mean of the polynomials.
3. The posterior covariance of the polynomials, carried through the links, is taken from the sums of products: at every
   point the part that the regression leaves in the residuals, since a curve takes some of the noise along.

Try it::

    blurred = blur(found, sizes, scale, ratio, bent=True)    # ratio of the noise to the binomial one
    blurred.correct(products, weights)                       # sums of products, for every row of unit weights
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oodles.stats import residuals
from oodles.stats.estimates import Estimate
from oodles.stats.residuals import Ints
from oodles.stats.splines import Array

GRID = 100  # values of the true score
DEGREE = 3  # of the links
FEW = 12  # distinct in-domain scores below which links are lines
SHAPE = 6  # degree of the logarithm of the distribution of true scores
GAIN = 1e-3  # of the log-likelihood, below which its search ends
STEPS = 40  # of that search
HIDDEN = 0.5  # share of the variance of in-domain scores that may be noise: with more there is nothing left to regress
LEAST = 0.05  # share of a residual sum of squares that must be left


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Blur:
    """Sums over units of which the share of in-domain noise in all residual products is made."""

    gram: Array  # units x columns x columns, of posterior means of the polynomials
    cross: Array  # units x columns x sets
    hidden: Array  # units x columns x columns: posterior covariances, as far as residuals keep them
    points: Array  # units
    intercepts: Array  # units
    line: int  # column of the straight part of the links

    def _links(self, weights: Array) -> tuple[Array, Array, Array]:
        """Gram matrix, posterior covariance and links, per row of weights."""
        gram = np.tensordot(weights, self.gram, axes=1)
        hidden = np.tensordot(weights, self.hidden, axes=1)
        scale = np.trace(gram, axis1=1, axis2=2)[:, None, None] / gram.shape[1]
        gram = gram + np.maximum(1e-9 * scale, 1e-12) * np.eye(gram.shape[1])
        return gram, hidden, np.linalg.solve(gram, np.tensordot(weights, self.cross, axes=1))

    @property
    def bend(self) -> Array:
        """Per set: the share of the noise that reaches its residual by the bend of its link, 0 of a line."""
        _, hidden, links = (part[0] for part in self._links(np.ones((1, len(self.points)))))
        every = np.einsum("pk,pq,qk->k", links, hidden, links)
        straight = links[self.line] ** 2 * hidden[self.line, self.line]
        return np.asarray(1 - straight / np.where(every > 0, every, np.inf), dtype=float)

    def correct(self, products: Array, weights: Array) -> Array:
        """Sums of products of residuals (one matrix per row of weights) without in-domain noise."""
        gram, hidden, links = self._links(weights)
        shared = np.swapaxes(links, 1, 2) @ hidden @ links
        # The links are estimated, and their errors would count as slopes.
        extra = np.trace(np.linalg.solve(gram, hidden), axis1=1, axis2=2)
        left = weights @ (self.points - self.intercepts) - gram.shape[1]
        back = 1 + extra / np.maximum(left, 1.0)
        found = products * back[:, None, None] - shared
        squares, before = (np.diagonal(m, axis1=1, axis2=2) for m in (found, products))
        scale = np.where(squares > LEAST * before, 1.0, np.nan)
        return np.asarray(found * scale[:, :, None] * scale[:, None, :], dtype=float)


def blur(found: Estimate, sizes: Array, scale: float, ratio: float, *, bent: bool) -> Blur | None:
    """How in-domain noise enters the residuals of an estimate; None where it is nearly all there is.

    Parameters
    ----------
    found : Estimate
        One fit over all runs (`pooled` or `run`) with one in-domain set.
    sizes : array
        Examples behind the in-domain score of every point.
    scale : float
        The largest score there is.
    ratio : float
        Variance of the noise as a share of the binomial one.
    bent : bool
        Whether links may bend; otherwise they are lines.
    """
    used = found.used
    z = used.covariates[:, 0] / scale
    runs = used.runs if found.refits[0].design.runs is not None else None
    spread = _spread(z, runs)
    noise = float(np.mean(ratio * z * (1 - z) / sizes))
    if not spread > 0 or noise > HIDDEN * spread:
        return None
    if noise <= 0:
        ratio = 0.0
    if not bent or len(np.unique(z)) < FEW:
        return _lines(found, z, ratio * z * (1 - z) / sizes, 1 - noise / spread, runs)
    grid, posterior = _posterior(z, ratio / sizes)
    values = np.polynomial.legendre.legvander((2 * grid - grid[0] - grid[-1]) / (grid[-1] - grid[0]), DEGREE)
    means = posterior @ values
    hidden = np.einsum("tg,gp,gq->tpq", posterior, values, values, optimize=True)
    return _sums(found, means, hidden - means[:, :, None] * means[:, None, :], runs)


def _spread(z: Array, runs: Ints | None) -> float:
    """Variance of in-domain scores, within runs where their levels are taken out."""
    if runs is None:
        return float(z.var(ddof=1)) if len(z) > 1 else 0.0
    left = len(z) - len(np.unique(runs))
    return float((residuals.centre(z[:, None], runs) ** 2).sum() / left) if left > 0 else 0.0


def _posterior(z: Array, per_example: Array) -> tuple[Array, Array]:
    """A grid of true scores, and for each point the chances of each."""
    low, high = float(z.min()), float(z.max())
    grid = np.linspace(low, high, GRID)
    inside = np.clip(grid, 0.5 / 1000, 1 - 0.5 / 1000)
    variance = np.maximum(per_example[:, None] * inside * (1 - inside), ((high - low) / GRID) ** 2 / 12)
    likely = np.exp(-0.5 * (z[:, None] - grid) ** 2 / variance) / np.sqrt(variance) + 1e-300
    weighted = likely * smooth_prior(likely)
    return grid, np.asarray(weighted / weighted.sum(axis=1, keepdims=True), dtype=float)


def smooth_prior(likely: Array) -> Array:
    """The most likely distribution on a grid among those whose logarithm is a polynomial.

    Parameters
    ----------
    likely : array of shape (points, grid)
        Likelihood of each observed score given each true one.

    References
    ----------
    Efron, B. (2016). Empirical Bayes deconvolution estimates. Biometrika 103.
    """
    n_points, n_values = likely.shape
    basis = np.polynomial.legendre.legvander(np.linspace(-1.0, 1.0, n_values), SHAPE)[:, 1:]
    penalty = 0.01 * np.arange(1.0, SHAPE + 1) ** 2  # enough to keep a distribution that is one peak finite

    def of(power: Array) -> tuple[float, Array, Array]:
        prior = np.exp(basis @ power - (basis @ power).max())
        prior /= prior.sum()
        chance = likely @ prior
        return float(np.log(chance).sum() - 0.5 * penalty @ power**2), prior, chance

    power = np.zeros(SHAPE)
    value, prior, chance = of(power)
    for _ in range(STEPS):
        weighted = likely * prior / chance[:, None]
        slopes = weighted @ basis - prior @ basis  # of the log-likelihood of each point
        system = slopes.T @ slopes + np.diag(penalty) + 1e-6 * n_points * np.eye(SHAPE)
        step = np.linalg.solve(system, slopes.sum(axis=0) - penalty * power)
        share = next((share for share in 0.5 ** np.arange(10) if of(power + share * step)[0] >= value), 0.0)
        if not share:
            break
        power = power + share * step
        before, (value, prior, chance) = value, of(power)
        if value - before < GAIN:
            break
    return np.asarray(prior, dtype=float)


def kept(found: Estimate) -> Array:
    """Per point, the share of independent noise that stays in the residuals: the diagonal of M'M, if M makes them."""
    refit = found.refits[0]
    design, units = refit.design, np.ones((1, len(refit.moments.points)))
    summed = refit.moments.weighted(units)
    smoothing = residuals.coefficients(design, summed, refit.smoothing)[2][0]
    start = np.ones(len(design.basis))
    if design.runs is not None:
        start -= 1 / np.bincount(design.runs)[design.runs]
    gram = summed.gram[0]
    inverse = np.linalg.inv(gram + smoothing[:, None, None] * design.penalty + design.ridge)
    both = (2 * inverse - inverse @ gram @ inverse).mean(axis=0)  # over sets, whose smoothing may differ
    return np.asarray(start - ((design.basis @ both) * design.basis).sum(axis=1), dtype=float)


def _lines(found: Estimate, z: Array, variance: Array, signal: float, runs: Ints | None) -> Blur:
    """The same for straight lines, with the best linear prediction of the true score in place of a posterior."""
    means = np.column_stack([np.ones(len(z)), signal * (z - z.mean())])
    hidden = np.zeros((len(z), 2, 2))
    hidden[:, 1, 1] = signal * variance
    return _sums(found, means, hidden, runs)


def _sums(found: Estimate, means: Array, hidden: Array, runs: Ints | None) -> Blur:
    """Sums per unit of what is known of the true score's polynomials at every point, and of what is not."""
    used = found.used
    scores = found.fit.fitted + found.fit.residuals
    n_units = len(used.unit_names)
    own = np.zeros(n_units)
    hidden = hidden * kept(found)[:, None, None]
    if runs is not None:
        hidden = hidden[:, 1:, 1:]
        scores, means = residuals.centre(scores, runs), residuals.centre(means, runs)[:, 1:]
        own = np.array([len(np.unique(runs[used.units == unit])) for unit in range(n_units)], dtype=float)
    summed = np.zeros((n_units, *hidden.shape[1:]))
    np.add.at(summed, used.units, hidden)
    rows = [np.flatnonzero(used.units == unit) for unit in range(n_units)]
    return Blur(
        gram=np.array([means[r].T @ means[r] for r in rows]),
        cross=np.array([means[r].T @ scores[r] for r in rows]),
        hidden=summed,
        points=np.bincount(used.units, minlength=n_units).astype(float),
        intercepts=own,
        line=0 if runs is not None else 1,
    )
