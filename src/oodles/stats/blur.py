"""Noise of the in-domain set: what it puts into every residual, and the sums of products without it.

The in-domain score that is regressed out is a mean over examples. Given the observed score, the true one still varies,
and every OOD set that depends on it varies along: two residuals then share `cov(g_i(z*), g_j(z*) | z)`, with `g` the
links to the true score `z*`. A link whose slope is 0 on average, such as a U, shares it all the same, so slopes are
taken where the points are. Three steps:

1. The distribution of the true scores, by expectation and maximisation on a grid, from the observed scores and their
   noise. A run does not see its own points: its posterior comes from the other runs.
2. The links, as cubic polynomials of the true score: each OOD score regressed on the posterior mean of the polynomials.
3. The posterior covariance of the polynomials, carried through the links, is taken from the sums of products.

Try it::

    blurred = blur(found, variance)           # variance of the noise, as a function of the true score
    blurred.products(weights)                 # what to take away, for every row of unit weights
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
ROUNDS = (500.0, 10, 150)  # per ratio of noise to spread; fewest; most: little noise needs little resolution
HIDDEN = 0.5  # share of the variance of in-domain scores that may be noise: with more there is nothing left to regress
LEAST = 0.05  # share of a residual sum of squares that must be left


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Blur:
    """Sums over units of which the share of in-domain noise in all residual products is made."""

    gram: Array  # units x columns x columns, of posterior means of the polynomials
    cross: Array  # units x columns x sets
    hidden: Array  # units x columns x columns: posterior covariances
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
    grid, posterior = _posterior(z, used.units, ratio / sizes, noise / float(z.var()))
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


def _posterior(z: Array, units: Ints, per_example: Array, share: float) -> tuple[Array, Array]:
    """A grid of true scores, and for each point the chances of each, by the other units' distribution."""
    low, high = float(z.min()), float(z.max())
    grid = np.linspace(low, high, GRID)
    inside = np.clip(grid, 0.5 / 1000, 1 - 0.5 / 1000)
    variance = np.maximum(per_example[:, None] * inside * (1 - inside), ((high - low) / GRID) ** 2 / 12)
    likely = np.exp(-0.5 * (z[:, None] - grid) ** 2 / variance) / np.sqrt(variance) + 1e-300
    prior = np.full(GRID, 1.0 / GRID)
    rounds = int(np.clip(ROUNDS[0] * share, *ROUNDS[1:]))
    for _ in range(rounds):
        weighted = likely * prior
        weighted /= weighted.sum(axis=1, keepdims=True)
        prior = weighted.mean(axis=0)
    of_unit = np.zeros((int(units.max()) + 1, GRID))
    np.add.at(of_unit, units, weighted)
    others = of_unit.sum(axis=0) - of_unit if len(of_unit) > 1 else of_unit
    weighted = likely * (others[units] + 1e-9)
    return grid, np.asarray(weighted / weighted.sum(axis=1, keepdims=True), dtype=float)


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
    if runs is not None:
        counts = np.bincount(runs)
        hidden = (hidden * (1 - 1 / counts)[runs, None, None])[
            :, 1:, 1:
        ]  # the run's mean takes some of the noise along
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
