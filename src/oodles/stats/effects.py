"""Do clusters of independent units have the same mean? Tests and random effects, where units differ in spread.

A cluster is a model, a family, a train set; its units are runs. Each cluster brings a `Sample`: the values of its
units, such as the pseudo-values of a jackknife, summed up. `clusters.py` makes them, `claim.py` tells them.

Try it::

    samples = [Sample.of(np.array(units)) for units in ([0.1, 0.3, 0.2], [0.6, 0.4, 0.5], [0.3, 0.1, 0.2])]
    found = random_effects(samples)
    found.tau, found.prediction
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from oodles.stats.splines import Array

DRAWS = 4000  # of the distribution of mean and spread over clusters


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The mean of a cluster's units and how well it is known."""

    mean: float
    square: float  # squared standard error
    units: int
    effective: float  # number of units that count: fewer where some carry more than others

    @classmethod
    def of(cls, values: Array, shares: Array | None = None) -> Sample:
        """From the values of units; `shares` says how much each unit contributes to what the values are made of.

        With unequal shares a jackknife has fewer units than it leaves out: Kish's number (sum w)^2 / sum w^2. Its
        variance is then too small by the same factor as that of so few units taken without their degree of freedom.

        >>> Sample.of(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0, 1.0])) == Sample.of(np.array([1.0, 2.0, 3.0]))
        True
        >>> round(Sample.of(np.array([1.0, 2.0, 3.0]), np.array([8.0, 1.0, 1.0])).effective, 3)
        1.515
        """
        count = len(values)
        effective = float(count) if shares is None else float(shares.sum() ** 2 / (shares**2).sum())
        if count < 2 or effective <= 1.0:
            return cls(mean=float(values.mean()), square=float("nan"), units=count, effective=effective)
        stretch = effective / (effective - 1) * (count - 1) / count
        square = float(values.var(ddof=1)) / count * stretch
        return cls(mean=float(values.mean()), square=square, units=count, effective=effective)

    def interval(self, level: float) -> tuple[float, float]:
        """Student's t interval of the mean."""
        reach = float(stats.t.ppf(0.5 + level / 2, self.effective - 1) * np.sqrt(self.square))
        return self.mean - reach, self.mean + reach


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A test of equal means."""

    statistic: float
    df: int
    p_val: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What a population of clusters looks like, of which these are a sample."""

    mean: float
    mean_interval: tuple[float, float]
    tau: float  # sd of the true values over clusters
    tau_interval: tuple[float, float]
    prediction: tuple[float, float]  # the true value of a new cluster
    other_sign: float  # share of clusters whose true value has the other sign than the mean
    other_sign_interval: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reversal:
    """Whether some clusters are above 0 and others below."""

    p_val: float
    above: tuple[int, ...]  # clusters that are above 0 beyond doubt
    below: tuple[int, ...]


def equal_means(samples: Sequence[Sample]) -> Comparison:
    """Alexander and Govern's test of equal means of clusters that may differ in spread and in the number of units.

    Parameters
    ----------
    samples : sequence of Sample
        The clusters.

    Notes
    -----
    Each cluster's distance from the weighted mean is a t value with its own degrees of freedom; as normal deviates
    their squares add up to a chi-square with k - 1. Welch's F takes one number of degrees of freedom for all, which is
    right for few clusters: at 5 % it rejects 20 equal clusters of nine normal units in 7 %, and at the .24 % that one
    of 21 pairs must reach in .7 %; this test in 5 and .3 %.

    References
    ----------
    Alexander, R. A. and Govern, D. M. (1994). A new and simpler approximation for ANOVA under variance heterogeneity.
    Journal of Educational Statistics 19.

    Examples
    --------
    >>> units = [1.0, 2, 3, 4], [2.0, 4, 6, 9], [5.0, 6, 7, 9]
    >>> found = equal_means([Sample.of(np.array(one)) for one in units])
    >>> round(found.statistic, 3), round(found.p_val, 4)
    (7.081, 0.029)
    """
    counts, means, squares = _moments(samples)
    if len(counts) < 2 or not (squares > 0).all():
        return Comparison(statistic=float("nan"), df=len(counts) - 1, p_val=float("nan"))
    weights = 1.0 / squares
    distances = np.abs(means - (weights * means).sum() / weights.sum()) / np.sqrt(squares)
    deviates = stats.norm.isf(stats.t.sf(distances, counts - 1))
    statistic, df = float(np.square(deviates).sum()), len(counts) - 1
    return Comparison(statistic=statistic, df=df, p_val=float(stats.chi2.sf(statistic, df)))


def _moments(samples: Sequence[Sample]) -> tuple[Array, Array, Array]:
    """Number of units, mean and squared standard error of each cluster."""
    counts, means, squares = (np.array([getattr(s, name) for s in samples]) for name in ("effective", "mean", "square"))
    return counts, means, squares


def paule_mandel(means: Array, squares: Array) -> float:
    """Variance over clusters at which the weighted spread of the estimates equals its expectation.

    References
    ----------
    Paule, R. C. and Mandel, J. (1982). Consensus values and weighting factors. Journal of Research of the NBS 87.

    Examples
    --------
    >>> round(paule_mandel(np.array([0.1, 0.5, 0.9, 0.3]), np.array([0.01, 0.02, 0.01, 0.03])), 4)
    0.1055
    """
    return float(_solve_spread(means[None], squares[None], np.array([len(means) - 1.0]))[0])


def _solve_spread(means: Array, squares: Array, wanted: Array) -> Array:
    """For each row the variance t with `sum (y - mean)^2 / (s^2 + t) = wanted`, 0 where the sum is smaller already."""
    found = np.zeros(len(wanted))
    for _ in range(40):  # Newton from the left: the sum is convex and falls, so no step goes beyond the solution
        weights = 1.0 / (squares + found[:, None])
        middle = (weights * means).sum(axis=1) / weights.sum(axis=1)
        apart = weights * (means - middle[:, None]) ** 2
        step = np.maximum(apart.sum(axis=1) - wanted, 0.0) / np.maximum((weights * apart).sum(axis=1), 1e-300)
        found = found + step
        if (step <= 1e-10 * found).all():
            break
    return np.asarray(found, dtype=float)


def _unusual(means: Array, squares: Array) -> float:
    """How much smaller Cochran's Q is than its median under equal means; 1 where it is larger."""
    weights = 1.0 / squares
    middle = (weights * means).sum() / weights.sum()
    return float(min(1.0, (weights * (means - middle) ** 2).sum() / stats.chi2.median(len(means) - 1)))


def _drawn(means: Array, squares: Array, spreads: Array, draw: np.random.Generator) -> tuple[Array, Array]:
    """Mean and variance over clusters, given draws of the clusters' squared errors and of Cochran's Q."""
    variance = _solve_spread(np.broadcast_to(means, squares.shape), squares, spreads)
    weights = 1.0 / (squares + variance[:, None])
    total = weights.sum(axis=1)
    return (weights * means).sum(axis=1) / total + draw.normal(size=len(total)) / np.sqrt(total), variance


def random_effects(samples: Sequence[Sample], *, level: float = 0.95, seed: int = 0, draws: int = DRAWS) -> Effects:
    """Mean and spread of the true values over clusters, and where a new cluster would be.

    Notes
    -----
    The estimates are Paule and Mandel's. Intervals come from draws of what is not known: the variance of each cluster's
    mean, `s^2 (n - 1) / chi^2`; given those, the variance over clusters at which Cochran's Q equals a draw of its
    distribution (Viechtbauer's Q profile, as a confidence distribution), 0 where there is none; given that, the mean.
    Means that happen to lie closer than equal ones mostly do (Q below its median) would bound the spread more tightly
    than the clusters can tell, down to 0 of three: the limits are then those at the median (a power-constrained limit,
    Cowan et al., 2011). The lower limit is 0 unless the test of equal means rejects at its level: with 20 clusters of
    nine units the draws alone put it above 0 in 10 % of those without any spread.

    Those variances are (n - 1) / (n - 3) times `s^2` on average, a third more with nine units, and what they take is
    missing in the spread: right for its lower limit, too narrow for a new cluster (92 to 93 % where the spread is about
    that of the units' means). A new cluster is therefore drawn with variances about `s^2`, `s^2 chi^2 / (n - 1)`. The
    plain interval, mean -+ t sqrt(tau^2 + se^2) with k - 2 degrees of freedom, takes tau as known and covers 90 to 93 %
    where tau is small; where it is the wider one (large tau, few clusters) it is the prediction. Fewer than three
    clusters show no spread: nan.

    References
    ----------
    Cowan, G., Cranmer, K., Gross, E. and Vitells, O. (2011). Power-constrained limits. arXiv:1105.3166.
    Higgins, J. P. T., Thompson, S. G. and Spiegelhalter, D. J. (2009). A re-evaluation of random-effects meta-analysis.
    Journal of the Royal Statistical Society A 172.
    Viechtbauer, W. (2007). Confidence intervals for the amount of heterogeneity in meta-analysis. Statistics in
    Medicine 26.
    Nagashima, K., Noma, H. and Furukawa, T. A. (2019). Prediction intervals for random-effects meta-analysis: a
    confidence distribution approach. Statistical Methods in Medical Research 28.
    """
    counts, means, squares = _moments(samples)
    nothing = (float("nan"), float("nan"))
    if len(counts) < 3 or not (squares > 0).all():
        return Effects(
            mean=float(means.mean()) if len(means) else float("nan"),
            mean_interval=nothing,
            tau=float("nan"),
            tau_interval=nothing,
            prediction=nothing,
            other_sign=float("nan"),
            other_sign_interval=nothing,
        )
    variance = paule_mandel(means, squares)
    weights = 1.0 / (squares + variance)
    mean = float((weights * means).sum() / weights.sum())
    draw = np.random.default_rng(seed)
    shape = (draws, len(counts))
    ratios = np.maximum(draw.chisquare(counts - 1, shape) / (counts - 1), 1e-9)
    spreads = draw.chisquare(len(counts) - 1, draws)
    drawn_mean, drawn_variance = _drawn(means, squares / ratios, spreads * _unusual(means, squares), draw)
    new_mean, new_variance = _drawn(means, squares * ratios, spreads, draw)
    new = new_mean + np.sqrt(new_variance) * draw.normal(size=draws)
    side = 1.0 if mean >= 0 else -1.0
    with np.errstate(divide="ignore"):
        other = stats.norm.cdf(-side * drawn_mean / np.sqrt(drawn_variance))
    tails = [(1 - level) / 2, (1 + level) / 2]
    root = np.sqrt(variance)
    low, high = _pair(np.quantile(new, tails))
    least, most = _pair(np.sqrt(np.quantile(drawn_variance, tails)))
    plain = np.sqrt(variance + 1.0 / (1.0 / (squares + variance)).sum())
    reach = float(stats.t.ppf(tails[1], len(counts) - 2) * plain)
    return Effects(
        mean=mean,
        mean_interval=_pair(np.quantile(drawn_mean, tails)),
        tau=float(root),
        tau_interval=(least if equal_means(samples).p_val < tails[0] else 0.0, most),
        prediction=(min(low, mean - reach), max(high, mean + reach)),
        other_sign=float(stats.norm.cdf(-abs(mean) / root)) if root > 0 else 0.0,
        other_sign_interval=_pair(np.quantile(other, tails)),
    )


def _pair(limits: Array) -> tuple[float, float]:
    return float(limits[0]), float(limits[1])


def sign_reversal(samples: Sequence[Sample], *, level: float = 0.95) -> Reversal:
    """Is some cluster above 0 and another below? Both must be shown, each over all clusters.

    Notes
    -----
    One-sided t tests of every cluster, times the number of clusters (Bonferroni); the p-value is the larger of the
    smallest on either side (intersection-union). Unlike Gail and Simon's test it names the clusters.

    References
    ----------
    Berger, R. L. (1982). Multiparameter hypothesis testing and acceptance sampling. Technometrics 24.
    """
    counts, means, squares = _moments(samples)
    with np.errstate(invalid="ignore", divide="ignore"):
        above = stats.t.sf(means / np.sqrt(squares), counts - 1) * len(counts)
        below = stats.t.cdf(means / np.sqrt(squares), counts - 1) * len(counts)
    above, below = np.asarray(above, dtype=float), np.asarray(below, dtype=float)
    known = np.isfinite(above) & np.isfinite(below)
    if known.sum() < 2:
        return Reversal(p_val=float("nan"), above=(), below=())
    limit = 1 - level
    return Reversal(
        p_val=float(min(1.0, max(above[known].min(), below[known].min()))),
        above=tuple(int(i) for i in np.flatnonzero(known & (above < limit))),
        below=tuple(int(i) for i in np.flatnonzero(known & (below < limit))),
    )


def units_needed(ratio: float, clusters: int, *, power: float = 0.8, most: int = 1000) -> int | None:
    """Units per cluster with which an F test finds a spread over clusters of `ratio` times that over units.

    Under random effects the F statistic is its null distribution times `1 + n ratio^2`. None: not with `most`.

    >>> units_needed(0.3, 8), units_needed(0.6, 8)
    (31, 9)
    """

    def found(n: int) -> float:
        df = (clusters - 1, clusters * (n - 1))
        return float(stats.f.sf(stats.f.ppf(0.95, *df) / (1 + n * ratio**2), *df))

    if clusters < 2 or not ratio > 0 or found(most) < power:
        return None
    return next(n for n in range(2, most + 1) if found(n) >= power)
