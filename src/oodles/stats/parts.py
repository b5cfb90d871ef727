"""Does a correlation rest on one part of training? What is left of it without each step, or some steps in a row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from oodles.stats.estimates import Estimate, Estimator, estimate, usable_points
from oodles.stats.residuals import Ints
from oodles.stats.series import Series
from oodles.stats.splines import Array

MOST = 10  # pieces of training
FEWEST_STEPS = 4  # of which one can be left out
LONGEST = 1 / 4  # of training: the largest part that is left out
SHRINKS = 2 / 3  # of a correlation: if less is left without a part, it rests on that part
FEWEST_UNITS = 2  # that must go on without a part


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Parts:
    """Correlations of a group with and without each part of training, over the units that have points without it."""

    names: tuple[str, ...] = ()
    pieces: tuple[int, ...] = ()  # of each part
    whole: Array  # parts x sets x sets: with the part
    r: Array  # without it
    low: Array
    high: Array

    @classmethod
    def none(cls, n_sets: int) -> Parts:
        nothing = np.empty((0, n_sets, n_sets))
        return cls(whole=nothing, r=nothing, low=nothing, high=nothing)

    def carrier(self, i: int, j: int) -> int | None:
        """The part without which the least is left of a pair, if that is too little; the shortest such part.

        Nothing may be left at all: a set that is constant but for a part has no correlation without it.
        """
        whole, pieces = self.whole[:, i, j], np.array(self.pieces, dtype=np.int64)
        left = np.where(np.isnan(self.r[:, i, j]), 0.0, self.r[:, i, j] * np.sign(whole))
        gone = left < SHRINKS * np.abs(whole)
        if not gone.any():
            return None
        return int(np.argmin(np.where(gone & (pieces == pieces[gone].min()), left, np.inf)))


def without_parts(found: Estimate, recipe: Estimator) -> Parts:
    """Estimate again without each step and each few steps in a row, up to a quarter; of many, without tenths of them.

    Parameters
    ----------
    found : Estimate
        With all parts.
    recipe : Estimator
        Method, pooling, interval; a naive interval would not tell.

    Returns
    -------
    Parts
        None where runs have fewer than four different steps. Units that have too few points without a part, because
        their runs ended there, are left out of what that part is compared with; if most are, the part is not asked.
    """
    used, at = found.used, moments(found.used)
    n_units, n_moments = len(used.unit_names), int(at.max(initial=-1)) + 1
    if n_moments < FEWEST_STEPS:
        return Parts.none(len(used.test_sets))
    if recipe.within != "separate":
        recipe = replace(recipe, interval="jackknife")
    rows = []
    for pieces, first, last in _windows(n_moments):
        inside = (first <= at) & (at <= last)
        rest = used.at(~inside)
        rest = rest.at(usable_points(rest, recipe.within))
        if len(rest.unit_names) < max(FEWEST_UNITS, n_units / 2):
            continue
        whole = found.r if len(rest.unit_names) == n_units else _of_units(used, rest, recipe).r
        rows.append((_name(used.steps[inside]), pieces, whole, estimate(rest, recipe)))
    if not rows:
        return Parts.none(len(used.test_sets))
    return Parts(
        names=tuple(name for name, _, _, _ in rows),
        pieces=tuple(pieces for _, pieces, _, _ in rows),
        whole=np.array([whole for _, _, whole, _ in rows]),
        r=np.array([without.r for _, _, _, without in rows]),
        low=np.array([without.interval.low for _, _, _, without in rows]),
        high=np.array([without.interval.high for _, _, _, without in rows]),
    )


def moments(series: Series) -> Ints:
    """Of each point, the moment of training: steps in a row are one moment as long as no run has two of them.

    Runs that are evaluated at the same steps have a moment for each; runs with steps of their own, such as 400 and 404,
    share theirs.
    """
    steps, at = np.unique(series.steps, return_inverse=True)
    order = np.argsort(at, kind="stable")
    found, seen, count = np.zeros(len(steps), dtype=np.int64), set[int](), 0
    bounds = np.searchsorted(at[order], np.arange(len(steps) + 1))
    for step in range(len(steps)):
        runs = set(series.runs[order[bounds[step] : bounds[step + 1]]].tolist())
        if seen & runs:
            count, seen = count + 1, set()
        seen |= runs
        found[step] = count
    return np.asarray(found[at], dtype=np.int64)


def _windows(n_moments: int) -> Iterator[tuple[int, int, int]]:
    """Parts: how many pieces each has, and its first and last moment; the short ones first."""
    ends = np.array([piece[-1] for piece in np.array_split(np.arange(n_moments), min(MOST, n_moments))])
    starts = np.concatenate([[0], ends[:-1] + 1])
    for pieces in range(1, max(1, int(len(ends) * LONGEST)) + 1):
        for first in range(len(ends) - pieces + 1):
            yield pieces, int(starts[first]), int(ends[first + pieces - 1])


def _of_units(used: Series, rest: Series, recipe: Estimator) -> Estimate:
    """The whole of training, of the units that go on without a part."""
    kept = np.isin(np.array(used.unit_names, dtype=object)[used.units], rest.unit_names)
    some = used.at(np.asarray(kept, dtype=bool))
    return estimate(some.at(usable_points(some, recipe.within)), recipe)


def _name(steps: NDArray[np.generic]) -> str:
    first, last = steps.min().item(), steps.max().item()
    return f"step {first:g}" if first == last else f"steps {first:g} to {last:g}"
