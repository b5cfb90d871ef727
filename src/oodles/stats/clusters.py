"""Correlations of one cluster, unit by unit, without the noise that makes clusters look different.

The seam between the estimator and whatever is asked beyond correlations. `Scores` gives the aligned scores of groups;
`cluster_values` takes those of a cluster (a model, a family) and gives the jackknife's pseudo-values of Fisher's z for
every pair of test sets, as observed and without noise. Noise of the OOD sets shrinks correlations and noise of the
in-domain set inflates them; where clusters differ in the size of their residuals or of their test sets both differ, and
so would the correlations although the truth is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from oodles.stats import resample
from oodles.stats.cautions import Cautions
from oodles.stats.effects import Sample
from oodles.stats.estimates import Estimate, Estimator, estimate, usable_points
from oodles.stats.inside import inside_noise, without_inside_noise
from oodles.stats.items import noises_of
from oodles.stats.outcomes import Examples
from oodles.stats.series import Series, group_series, grouped, shared_points
from oodles.stats.splines import Array

BEYOND = 0.99  # a correlation beyond this, in the whole or without a unit, has no Fisher z that can be compared
LEAST = 0.1  # reliability of a residual below which nothing is said of it without noise

Pair = tuple[str, str]


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Scores:
    """A checked long table with the choices of an analysis: what further questions are asked of."""

    table: pd.DataFrame
    by: tuple[str, ...]
    unit: str | None = "run"  # None: the run, or the model where a group holds several
    metric: str = "accuracy"
    recipe: Estimator = field(default_factory=Estimator)
    ways: tuple[str, ...] = ("pooled", "run")
    items: Examples | None = None
    drop: bool = True  # points that runs share
    exact: bool = False  # in-domain scores are taken as free of noise where it is not known
    overlapping: Mapping[str, set[str]] = field(default_factory=dict)  # sets that share examples: a set and its slices

    @classmethod
    def of(cls, table: pd.DataFrame, settings: Mapping[str, Any], items: Examples | None = None) -> Scores:
        """A checked table with the settings of `partial_correlations`."""
        metric = str(settings["metric"])
        return cls(
            table=table,
            by=tuple(settings["by"]),
            unit=None if settings["unit"] is None else str(settings["unit"]),
            metric=metric,
            recipe=Estimator(
                method=str(settings["method"]), level=float(settings["level"]), smoothing=settings["smoothing"]
            ),
            ways=tuple(way for way in settings["within"] if way != "separate") or ("pooled", "run"),
            items=items,
            drop=settings["shared_start"] == "drop",
            exact=bool(settings.get("exact")),
            overlapping=Cautions.read(table, metric=metric, chance=None).shared,
        )

    def has(self, metric: str) -> bool:
        """Whether every group with this metric has it in-domain and on OOD sets; sets may differ in their metrics."""
        rows = self.table[(self.table["metric"] == metric) & (self.table["role"] != "other")]
        roles = [set(own["role"]) for _, own in grouped(rows, self.by)] if len(rows) else []
        return bool(roles) and all("in_domain" in own and len(own) > 1 for own in roles)

    def groups(self, by: Sequence[str] | None = None, unit: str | None = None) -> Iterator[Series]:
        """The scores of every group, without the points that its runs share."""
        named = {"by": self.by if by is None else tuple(by), "unit": unit or self.unit}
        for series in group_series(self.table, metric=self.metric, **named):  # type: ignore[arg-type]
            shared = shared_points(series)
            yield series.at(~shared) if self.drop and shared.any() and not shared.all() else series


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class ClusterValues:
    """Fisher's z of a cluster for every pair of test sets, from the pseudo-values of its units."""

    name: str
    observed: Mapping[Pair, Sample]  # a pair without a correlation is not there
    corrected: Mapping[Pair, Sample]  # the same without noise
    measured: bool  # all noise was measured from records, not taken from the number of examples
    known: bool  # something is known of the noise: a pair that is not in `corrected` has too little else


def cluster_values(
    series: Series,
    recipe: Estimator,
    items: Examples | None = None,
    *,
    name: str = "",
    metric: str = "accuracy",
    exact: bool = False,
) -> ClusterValues:
    """Fisher's z of a cluster, with and without noise.

    Parameters
    ----------
    series : Series
        The scores of the cluster; gaps are allowed.
    recipe : Estimator
        Method and pooling, `pooled` or `run`.
    items : Examples, optional
        Per-example records, for measured noise.
    name : str
        Of the cluster.
    metric : str
        Only noise of accuracy is known.
    exact : bool
        Take in-domain scores as free of noise where it is not known.
    """
    observed: dict[Pair, Sample] = {}
    corrected: dict[Pair, Sample] = {}
    measured, known = [], []
    for part in without_gaps(series, recipe.within):
        found = estimate(part, recipe)
        whole = found.fit.residuals.T @ found.fit.residuals
        products = np.concatenate([whole[None], found.left_out])
        noises = noises_of(found, items, metric, recipe.method)
        own = np.array([[noise.total, *noise.left_out] for noise in noises]).T
        clean = _without_covariate_noise(found, items, metric, recipe.method, exact=exact)
        shares = _shares(found)
        measured += [noise.source == "records" for noise in noises]
        known.append(clean is not None and bool(np.isfinite(own).all()))
        both = [(_pseudo_values(products, np.zeros_like(own)), observed)]
        if clean is not None:
            both.append((_pseudo_values(clean, own), corrected))
        for values, into in both:
            for i, j in combinations(range(len(part.test_sets)), 2):
                if np.isfinite(values[:, i, j]).all():
                    weights = np.sqrt(shares[:, i] * shares[:, j])
                    into[part.test_sets[i], part.test_sets[j]] = Sample.of(values[:, i, j], weights)
    return ClusterValues(
        name=name,
        observed=observed,
        corrected=corrected,
        measured=bool(measured) and all(measured) and all(known),
        known=all(known),
    )


def without_gaps(series: Series, within: str) -> Iterator[Series]:
    """The scores without gaps: all sets together, or pair by pair."""
    usable = usable_points(series, within)
    if not usable.any():
        return
    used = series.at(usable)
    if used.complete:
        yield from [used] if len(used.unit_names) > 1 else []
        return
    known = ~np.isnan(used.scores)
    for pair in combinations(range(len(used.test_sets)), 2):
        both = known[:, pair[0]] & known[:, pair[1]]
        if both.any():
            part = used.at(both, pair)
            usable = usable_points(part, within)
            part = part.at(usable) if usable.any() else part
            yield from [part] if usable.any() and len(part.unit_names) > 1 else []


def _shares(found: Estimate) -> Array:
    """Each unit's share of the residual sum of squares of each set; of single points the share says nothing."""
    if len(found.used.scores) == len(found.used.unit_names):
        return np.ones_like(found.used.scores)
    squares = np.zeros((len(found.used.unit_names), len(found.used.test_sets)))
    np.add.at(squares, found.used.units, found.fit.residuals**2)
    return np.asarray(squares / np.maximum(squares.sum(axis=0), 1e-300), dtype=float)


def _without_covariate_noise(
    found: Estimate, items: Examples | None, metric: str, method: str, *, exact: bool
) -> Array | None:
    """Products of residuals without in-domain noise, of all units and without each; None where it is not known."""
    inside = without_inside_noise(found, items, metric, method)
    if exact and inside_noise(found, items, metric).source == "none":
        return np.concatenate([(found.fit.residuals.T @ found.fit.residuals)[None], found.left_out])
    if inside.full is None or inside.left_out is None:
        return None
    return np.concatenate([inside.full[None], inside.left_out])


def _pseudo_values(products: Array, own: Array) -> Array:
    """From products of residuals, of all units and without each, to pseudo-values of Fisher's z."""
    squares = np.diagonal(products, axis1=1, axis2=2)
    left = squares - own
    left = np.where(left > LEAST * squares, left, np.nan)
    root = np.sqrt(left)
    with np.errstate(invalid="ignore"):
        r = products / (root[:, :, None] * root[:, None, :])
    z = resample.to_z(np.where(np.abs(r) < BEYOND, r, np.nan))
    n_units = len(z) - 1
    values = n_units * z[0] - (n_units - 1) * z[1:]
    known = np.isfinite(values).all(axis=0)
    return np.asarray(np.where(known, values, np.nan), dtype=float)
