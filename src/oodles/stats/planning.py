"""How many runs, steps and examples for a wanted precision? From a pilot, or from stated assumptions.

Try it::

    assumed_runs(Assumed(rho=0.3), half_width=0.2)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy import special, stats

from oodles.errors import DataError
from oodles.stats import resample
from oodles.stats.answers import Answer, counted
from oodles.stats.clusters import Scores, without_gaps
from oodles.stats.estimates import Estimate, as_correlations, estimate, light_curve, one_checkpoint
from oodles.stats.items import noises_of
from oodles.stats.pairs import shares_examples
from oodles.stats.resample import DESCRIPTIVE
from oodles.stats.splines import Array

MOST = 2000  # runs beyond which no number is given
RANGE = 0.8  # coverage of the range of runs, for a pilot of few runs
MIDDLING = 0.7  # accuracy at which assumed noise is computed
COLUMNS = ("a", "b", "within", "r", "units", "half_width", "runs", "runs_low", "runs_high", "steps", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """What decides how well the correlation of one pair is known."""

    r: float  # as observed
    variance: float  # of Fisher's z of one independent unit
    units: int  # of the pilot
    steps: float = 1.0  # of a unit
    memory: float = 0.0  # correlation length of a residual, as a share of a run
    reliability: tuple[float, float] = (1.0, 1.0)  # of the two residuals

    def half_width(self, units: int, level: float = 0.95) -> float:
        """Expected half width of the interval from so many units.

        >>> round(Precision(r=0.3, variance=0.2, units=9).half_width(9), 2)
        0.3
        """
        shrink = np.sqrt(2 / (units - 1)) * np.exp(special.gammaln(units / 2) - special.gammaln((units - 1) / 2))
        reach = float(stats.t.ppf(0.5 + level / 2, units - 1)) * float(shrink) * np.sqrt(self.variance / units)
        z = np.arctanh(self.r)
        return float(np.tanh(z + reach) - np.tanh(z - reach)) / 2

    def runs(self, half_width: float, level: float = 0.95) -> float:
        """Units with which the half width is at most this; inf where `MOST` do not do."""
        low, high = DESCRIPTIVE, MOST
        if self.half_width(high, level) > half_width:
            return float("inf")
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.half_width(middle, level) <= half_width else (middle + 1, high)
        return float(low)

    def runs_range(self, half_width: float, level: float = 0.95) -> tuple[float, float]:
        """The same at the ends of what the pilot says of the variance."""
        tails = [(1 + RANGE) / 2, (1 - RANGE) / 2]
        factors = [(self.units - 1) / stats.chi2.ppf(tail, self.units - 1) for tail in tails]
        low, high = (replace(self, variance=self.variance * float(f)).runs(half_width, level) for f in factors)
        return low, high

    def without_noise(self, half_width: float) -> float:
        """The half width as observed at which the correlation without noise is known to `half_width`."""
        return half_width * float(np.sqrt(np.prod(self.reliability)))

    def changed(self, *, steps: float = 1.0, examples: float = 1.0) -> Precision:
        """With so many times the steps, and the examples of both test sets."""
        reliability = tuple(rel / (rel + (1 - rel) / examples) for rel in self.reliability)
        root = float(np.sqrt(np.prod(reliability) / np.prod(self.reliability)))
        before = _variance(self.steps, self.memory, self.reliability)
        after = _variance(self.steps * steps, self.memory, (reliability[0], reliability[1]))
        rest = max(self.variance - before, 0.0)  # how runs differ beyond chance, which shrinks with reliability
        ratio = (after + rest * root**2) / (before + rest)
        return replace(
            self,
            r=float(np.clip(self.r * root, -0.99, 0.99)),
            variance=self.variance * ratio,
            steps=self.steps * steps,
            reliability=(reliability[0], reliability[1]),
        )


def _variance(steps: float, memory: float, reliability: tuple[float, float]) -> float:
    """Of Fisher's z of one run: one over its effective number of steps, less one."""
    if steps < 4 or memory <= 0:
        return 1.0 / max(steps - 3.0, 1.0)
    lags = np.arange(1, int(steps))
    keep = np.exp(-2 * lags / (steps * memory))
    effective = steps / (1 + 2 * np.prod(reliability) * float(((1 - lags / steps) * keep).sum()))
    return 1.0 / max(float(effective) - 1.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """What is assumed where there is no pilot; the defaults are those of the simulations."""

    rho: float = 0.0
    residual_sd: float = 0.025
    memory: float = 0.1
    spread: float = 0.3  # sd of Fisher's z over runs
    steps: int = 20
    examples: int = 2000

    def precision(self) -> Precision:
        """Of a pair of sets of this kind."""
        rel = self.residual_sd**2 / (self.residual_sd**2 + MIDDLING * (1 - MIDDLING) / self.examples)
        variance = _variance(self.steps, self.memory, (rel, rel)) + (self.spread * rel) ** 2
        return Precision(
            r=self.rho * rel,
            variance=variance,
            units=MOST,
            steps=float(self.steps),
            memory=self.memory,
            reliability=(rel, rel),
        )


def assumed_runs(assumed: Assumed, half_width: float) -> float:
    """Runs for a wanted half width of the correlation without noise, from assumptions alone.

    >>> assumed_runs(Assumed(steps=60, spread=0.0), 0.2), assumed_runs(Assumed(steps=60), 0.2)
    (13.0, 21.0)
    """
    precision = assumed.precision()
    return precision.runs(precision.without_noise(half_width))


def pilot_precisions(scores: Scores) -> Iterator[tuple[dict[str, str], str, tuple[str, str], Precision]]:
    """Of every group, way of pooling and pair of a pilot."""
    for series in scores.groups():
        for within in scores.ways:
            recipe = replace(scores.recipe, within=within, interval="jackknife")
            recipe = light_curve(recipe, series) if one_checkpoint(series) else recipe
            for part in without_gaps(series, within):
                found = estimate(part, recipe)
                for pair, precision in _of_estimate(found, scores):
                    yield dict(series.group), within, pair, precision


def _of_estimate(found: Estimate, scores: Scores) -> Iterator[tuple[tuple[str, str], Precision]]:
    used = found.used
    n_units = len(used.unit_names)
    if n_units < 2:
        return
    error = resample.jackknife_se(resample.to_z(as_correlations(found.left_out)))
    parts = noises_of(found, scores.items, scores.metric, scores.recipe.method)
    squares = (found.fit.residuals**2).sum(axis=0)
    share = np.array([part.total for part in parts]) / np.maximum(squares, 1e-300)
    reliability = np.clip(1 - np.where(np.isfinite(share), share, 0.0), 0.05, 1.0)
    memory = _memories(found, reliability)
    for i, j in combinations(range(len(used.test_sets)), 2):
        names = (used.test_sets[i], used.test_sets[j])
        known = np.isfinite(error[i, j]) and np.isfinite(found.r[i, j]) and abs(found.r[i, j]) < 0.999
        if known and error[i, j] > 0 and not shares_examples(*names, scores.overlapping):
            yield (
                names,
                Precision(
                    r=float(found.r[i, j]),
                    variance=float(error[i, j] ** 2) * n_units,
                    units=n_units,
                    steps=len(used.scores) / n_units,
                    memory=float(np.sqrt(memory[i] * memory[j])),
                    reliability=(float(reliability[i]), float(reliability[j])),
                ),
            )


def _memories(found: Estimate, reliability: Array) -> Array:
    """Correlation length of each set's residual without noise, as a share of a run, from neighbouring steps."""
    residuals, runs = found.fit.residuals, found.used.runs
    order = np.lexsort((found.used.steps.astype(float), runs))
    own, same = residuals[order], np.diff(runs[order]) == 0
    if same.sum() < 3:
        return np.zeros(residuals.shape[1])
    first, second = own[:-1][same], own[1:][same]
    keep = (first * second).sum(axis=0) / np.sqrt((first**2).sum(axis=0) * (second**2).sum(axis=0) + 1e-300)
    keep = np.clip(keep / reliability, 0.01, 0.98)
    steps = len(runs) / len(found.used.run_names)
    return np.asarray(-1.0 / (np.log(keep) * max(steps - 1, 1)), dtype=float)


def plan_from(scores: Scores, half_width: float) -> Answer:
    """Runs for a wanted half width of every pair, from a pilot.

    Returns
    -------
    Answer
        Table `plan`, a row per group, way of pooling and pair; a sentence per group and way of pooling.
    """
    rows: list[dict[str, Any]] = []
    kept: dict[tuple[tuple[str, ...], str], list[Precision]] = {}
    level = scores.recipe.level
    for group, within, pair, precision in pilot_precisions(scores):
        low, high = precision.runs_range(half_width, level)
        rows.append(
            {
                **group,
                "a": pair[0],
                "b": pair[1],
                "within": within,
                "r": precision.r,
                "units": precision.units,
                "half_width": precision.half_width(precision.units, level),
                "runs": precision.runs(half_width, level),
                "runs_low": low,
                "runs_high": high,
                "steps": precision.steps,
                "memory": precision.memory,
            }
        )
        kept.setdefault((tuple(group.values()), within), []).append(precision)
    if not rows:
        raise DataError(
            "the pilot has no pair with an interval (two or more independent runs per group are the least): "
            "oodles analyse says why"
        )
    sentences = [
        _sentence(precisions, ", ".join([*names, within]), half_width, level, scores.unit or "run")
        for (names, within), precisions in kept.items()
    ]
    return Answer(
        name="plan",
        sentences=tuple(sentences),
        tables={"plan": pd.DataFrame(rows, columns=[*scores.by, *COLUMNS])},
        settings={"half_width": half_width, "unit": scores.unit or "run"},
    )


def _sentence(precisions: Sequence[Precision], where: str, half_width: float, level: float, unit: str) -> str:
    def needed(noise: bool = True, **changes: float) -> float:
        after = [one.changed(**changes) for one in precisions]
        return float(
            np.median([one.runs(half_width if noise else one.without_noise(half_width), level) for one in after])
        )

    now = np.array([one.runs(half_width, level) for one in precisions])
    low, high = np.median([one.runs_range(half_width, level) for one in precisions], axis=0)
    units = precisions[0].units
    noun = "run" if unit == "run" else "unit"
    text = (
        f"{where}: a half width of {half_width:g} takes {_count(float(np.median(now)), noun)} in the median pair"
        f" ({RANGE:.0%} range {_plain(low)} to {_plain(high)}, the pilot having {counted(units, noun)}),"
        f" {_plain(float(now.max()))} in all {counted(len(precisions), 'pair')}."
    )
    if precisions[0].steps > 1:
        text += f" Median pair with twice the steps: {_plain(needed(steps=2.0))}."
    if min(one.reliability[0] for one in precisions) < 1:
        text += (
            f" For the correlation without the noise of the test sets: {_plain(needed(noise=False))}; with twice the"
            f" examples: {_plain(needed(noise=False, examples=2.0))}."
        )
    return text


def _plain(number: float) -> str:
    return f"{number:.0f}" if np.isfinite(number) else f"more than {MOST}"


def _count(number: float, noun: str) -> str:
    return f"{_plain(number)} {noun}s"
