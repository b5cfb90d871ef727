"""How many runs, steps and examples for a wanted precision? From a pilot, or from stated assumptions.

What a pilot says of a pair without noise, or with more examples, is its r divided by the reliability of the residuals.
Where they may be mostly noise there is nothing to divide: that the pilot cannot tell is said, and no number given.

Try it::

    assumed_runs(Assumed(rho=0.3), half_width=0.2)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy import special, stats

from oodles.errors import DataError
from oodles.stats import resample
from oodles.stats.answers import Answer, counted
from oodles.stats.clusters import Scores, without_gaps
from oodles.stats.estimates import Estimate, as_correlations, estimate, light_curve, one_checkpoint
from oodles.stats.pairs import NOISY, shares_examples
from oodles.stats.resample import DESCRIPTIVE
from oodles.stats.splines import Array
from oodles.stats.verdict import WAYS

MOST = 2000  # runs beyond which no number is given
RANGE = 0.8  # coverage of the range of runs, for a pilot of few runs
MIDDLING = 0.7  # accuracy at which assumed noise is computed
CLOSE = 0.99  # the largest correlation without noise that is planned for
COLUMNS = ("a", "b", "within", "r", "units", "half_width", "runs", "runs_low", "runs_high", "steps", "memory", "caveat")
LARGER = "larger test sets in the pilot would tell"
WITH_N = "per-example records, or n of accuracies, would tell: see --n"

# of a pair, beside noise: enough; by n alone maybe none; its noise is not known; measured as none
Signal = Literal["known", "unsure", "unknown", "none"]
Reliabilities = Mapping[tuple[str, ...], tuple[float, str]]  # and their source, by group, way of pooling and test set


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """What decides how well the correlation of one pair is known."""

    r: float  # as observed
    variance: float  # of Fisher's z of one independent unit
    units: int  # of the pilot
    steps: float = 1.0  # of a unit
    memory: float = 0.0  # correlation length of a residual, as a share of a run
    reliability: tuple[float, float] = (1.0, 1.0)  # of the two residuals
    signal: Signal = "known"
    caveat: str = ""  # why it is not known
    of_runs: bool = True  # a unit is one run

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
        return half_width * float(np.sqrt(np.prod(self.allowed)))

    @property
    def allowed(self) -> tuple[float, float]:
        """The reliabilities, raised where so much noise would not allow r.

        Divided by the root of their product, r is the correlation without noise. Beyond 1, twice the examples would
        seem to bring r to 1, which takes next to no runs.

        >>> [round(one, 2) for one in Precision(r=0.6, variance=0.2, units=9, reliability=(0.3, 0.4)).allowed]
        [0.57, 0.65]
        """
        product, least = float(np.prod(self.reliability)), min((self.r / CLOSE) ** 2, 1.0)
        power = np.log(least) / np.log(product) if product < least else 1.0
        first, second = self.reliability
        return float(first**power), float(second**power)

    def changed(self, *, steps: float = 1.0, examples: float = 1.0) -> Precision:
        """With so many times the steps, and the examples of both test sets."""
        reliability = tuple(rel / (rel + (1 - rel) / examples) for rel in self.allowed)
        root = float(np.sqrt(np.prod(reliability) / np.prod(self.allowed)))
        before = _variance(self.steps, self.memory, self.allowed)
        after = _variance(self.steps * steps, self.memory, (reliability[0], reliability[1]))
        rest = max(self.variance - before, 0.0)  # how runs differ beyond chance, which shrinks with reliability
        ratio = (after + rest * root**2) / (before + rest)
        return replace(
            self,
            r=float(np.clip(self.r * root, -CLOSE, CLOSE)),
            variance=self.variance * ratio,
            steps=self.steps * steps,
            reliability=(reliability[0], reliability[1]),
        )


def _variance(steps: float, memory: float, reliability: tuple[float, float]) -> float:
    """Of Fisher's z of one run: one over its effective number of steps, less one.

    >>> [round(_variance(steps, memory=0.0, reliability=(1.0, 1.0)), 2) for steps in (1, 2, 3, 4, 5)]
    [1.0, 1.0, 0.5, 0.33, 0.25]
    """
    lags = np.arange(1, int(steps))
    keep = np.exp(-2 * lags / (steps * memory)) if memory > 0 else np.zeros(len(lags))
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


def pilot_precisions(
    scores: Scores, fits: pd.DataFrame | None = None
) -> Iterator[tuple[dict[str, str], str, tuple[str, str], Precision]]:
    """Of every group, way of pooling and pair of a pilot; `fits` of its analysis say how much of residuals is noise."""
    known = {} if fits is None else _reliabilities(fits, scores.by)
    for series in scores.groups():
        for within in scores.ways:
            recipe = replace(scores.recipe, within=within, interval="jackknife")
            recipe = light_curve(recipe, series) if one_checkpoint(series) else recipe
            for part in without_gaps(series, within):
                found = estimate(part, recipe)
                where = (*map(str, series.group.values()), within)
                own = [known.get((*where, name), (float("nan"), "none")) for name in part.test_sets]
                for pair, precision in _of_estimate(found, scores, own):
                    yield dict(series.group), within, pair, precision


def _reliabilities(fits: pd.DataFrame, by: Sequence[str]) -> Reliabilities:
    keys = fits[[*by, "within", "test_set"]].astype(str).itertuples(index=False, name=None)
    return dict(zip(keys, zip(fits["reliability"], fits["reliability_from"], strict=True), strict=True))


def _of_estimate(
    found: Estimate, scores: Scores, known: Sequence[tuple[float, str]]
) -> Iterator[tuple[tuple[str, str], Precision]]:
    used = found.used
    n_units = len(used.unit_names)
    if n_units < 2:
        return
    error = resample.jackknife_se(resample.to_z(as_correlations(found.left_out)))
    reliability = np.clip([value if np.isfinite(value) else 1.0 for value, _ in known], NOISY, 1.0)
    memory = _memories(found, reliability)
    for i, j in combinations(range(len(used.test_sets)), 2):
        names = (used.test_sets[i], used.test_sets[j])
        usable = np.isfinite(error[i, j]) and np.isfinite(found.r[i, j]) and abs(found.r[i, j]) < 0.999
        if usable and error[i, j] > 0 and not shares_examples(*names, scores.overlapping):
            signal, caveat = _signal(names, (known[i], known[j]))
            yield (
                names,
                Precision(
                    r=float(found.r[i, j]),
                    variance=float(error[i, j] ** 2) * n_units,
                    units=n_units,
                    steps=1.0 if len(used.scores) == len(used.run_names) else len(used.scores) / n_units,
                    memory=float(np.sqrt(memory[i] * memory[j])),
                    reliability=(float(reliability[i]), float(reliability[j])),
                    signal=signal,
                    caveat=caveat,
                    of_runs=n_units == len(used.run_names),
                ),
            )


def _signal(names: Sequence[str], known: Sequence[tuple[float, str]]) -> tuple[Signal, str]:
    """How much of the residuals of two sets is more than noise, and what cannot be told for that reason.

    >>> _signal(["hans", "paws"], [(0.8, "records"), (-0.2, "records")])[1]
    'cannot be told: too little residual left of paws (reliability 0.00); larger test sets in the pilot would tell'
    >>> _signal(["hans", "paws"], [(0.8, "binomial"), (-0.2, "binomial")])[0]  # models err alike: less noise than that
    'unsure'
    """
    both = list(zip(names, known, strict=True))
    for name, (value, source) in both:
        if source == "records" and value < NOISY:
            return "none", (
                f"cannot be told: too little residual left of {name} (reliability {max(value, 0.0):.2f}); {LARGER}"
            )
    for name, (value, source) in both:
        if source == "binomial" and value < NOISY:
            why = f"by n alone it may be noise, reliability as low as {max(value, 0.0):.2f}"
            return "unsure", f"without noise it cannot be told of {name} ({why}): per-example records or {LARGER}"
    for name, (value, _) in both:
        if np.isnan(value):
            return "unknown", f"without noise it cannot be told: noise of {name} is not known; {WITH_N}"
    return "known", ""


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


def plan_from(scores: Scores, half_width: float, fits: pd.DataFrame | None = None) -> Answer:
    """Runs for a wanted half width of every pair, from a pilot.

    Parameters
    ----------
    scores : Scores
        Of the pilot.
    half_width : float
        Of the interval of a correlation.
    fits : pandas.DataFrame, optional
        Of the pilot's analysis: how much of a residual is noise.

    Returns
    -------
    Answer
        Table `plan`, a row per group, way of pooling and pair; a sentence per group and way of pooling. Where `caveat`
        says that runs cannot be told they are nan.
    """
    rows: list[dict[str, Any]] = []
    kept: dict[tuple[tuple[str, ...], str], list[Precision]] = {}
    level = scores.recipe.level
    for group, within, pair, precision in pilot_precisions(scores, fits):
        runs, low, high = (float("nan"),) * 3
        if precision.signal != "none":
            runs, (low, high) = precision.runs(half_width, level), precision.runs_range(half_width, level)
        rows.append(
            {
                **group,
                "a": pair[0],
                "b": pair[1],
                "within": within,
                "r": precision.r,
                "units": precision.units,
                "half_width": precision.half_width(precision.units, level),
                "runs": runs,
                "runs_low": low,
                "runs_high": high,
                "steps": precision.steps,
                "memory": precision.memory,
                "caveat": precision.caveat,
            }
        )
        kept.setdefault((tuple(group.values()), within), []).append(precision)
    if not rows:
        raise DataError(
            "the pilot has no pair with an interval (two or more independent runs per group are the least): "
            "oodles analyse says why"
        )
    of_runs = all(one.of_runs for own in kept.values() for one in own)
    noun = "run" if of_runs and scores.unit in (None, "run") else "unit"
    sentences = [
        _sentence(precisions, ", ".join([*names, WAYS[within]]), half_width, level, noun)
        for (names, within), precisions in kept.items()
    ]
    return Answer(
        name="plan",
        sentences=tuple(sentences),
        tables={"plan": pd.DataFrame(rows, columns=[*scores.by, *COLUMNS])},
        settings={"half_width": half_width, "unit": scores.unit or ("run" if of_runs else "model")},
    )


def _sentence(precisions: Sequence[Precision], where: str, half_width: float, level: float, noun: str) -> str:
    """The median pair, of those of which the pilot can tell; and how many it cannot tell."""
    told = [one for one in precisions if one.signal != "none"]
    left_out = f"too little residual is left beside noise (reliability below {NOISY:g}); {LARGER}."
    if not told:
        pairs = f"all {len(precisions)} pairs" if len(precisions) > 1 else "the only pair"
        return f"{where}: the pilot cannot tell how many {noun}s it takes: in {pairs} {left_out}"
    now = np.array([one.runs(half_width, level) for one in told])
    low, high = np.median([one.runs_range(half_width, level) for one in told], axis=0)
    text = (
        f"{where}: a half width of {half_width:g} takes {_count(float(np.median(now)), noun)} in the median pair"
        f" ({RANGE:.0%} range {plain_number(low)} to {plain_number(high)}, the pilot having {_having(told, noun)}),"
        f" {plain_number(float(now.max()))} in all {counted(len(told), 'pair')}."
    )
    if len(told) < len(precisions):
        text += f" Left out: {len(precisions) - len(told)} of {counted(len(precisions), 'pair')}, in which {left_out}"
    if told[0].steps > 1:
        twice = np.median([one.changed(steps=2.0).runs(half_width, level) for one in told])
        text += f" Median pair with twice the steps: {plain_number(float(twice))}."
    return text + _without_noise(told, half_width, level)


def _without_noise(told: Sequence[Precision], half_width: float, level: float) -> str:
    """What the correlation without noise takes, in the pairs of which the pilot can tell it."""
    known = [one for one in told if one.signal == "known"]
    unsure, unknown = (sum(one.signal == signal for one in told) for signal in ("unsure", "unknown"))
    text = ""
    if known:
        which = f" ({len(known)} of {len(told)} pairs)" if len(known) < len(told) else ""
        now, twice = (_clean_runs(known, more, half_width, level) for more in (1.0, 2.0))
        text = (
            f" For the correlation without the noise of the test sets{which}: {now}; with twice the examples: {twice}."
        )
    if unsure:
        text += (
            f" Without the noise of the test sets the pilot cannot tell in {unsure} of {counted(len(told), 'pair')}:"
            f" it may be most of a residual; per-example records or {LARGER}."
        )
    if unknown:
        text += f" Noise of the test sets is not known in {unknown} of {counted(len(told), 'pair')}; {WITH_N}."
    return text


def _clean_runs(precisions: Sequence[Precision], examples: float, half_width: float, level: float) -> str:
    """Of the median pair, for the correlation without noise, with so many times the examples."""
    after = [one.changed(examples=examples) for one in precisions]
    return plain_number(float(np.median([one.runs(one.without_noise(half_width), level) for one in after])))


def _having(told: Sequence[Precision], noun: str) -> str:
    """How many units the pairs of the pilot have."""
    least, most = (limit(one.units for one in told) for limit in (min, max))
    return counted(least, noun) if least == most else f"{least} to {counted(most, noun)}"


def plain_number(number: float) -> str:
    """A number of runs; the median of an even number of pairs may be half a run, which is made whole."""
    return f"{np.ceil(number):.0f}" if np.isfinite(number) else f"more than {MOST}"


def _count(number: float, noun: str) -> str:
    return f"{plain_number(number)} {noun}s"
