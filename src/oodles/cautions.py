"""What the table itself warns of: constant answers, in-domain scores at chance, sets that share examples.

Caveats are data. They travel with the numbers they qualify into every table, figure and report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from oodles.estimates import Estimate
from oodles.residuals import fit_design
from oodles.series import Series
from oodles.slices import sharing
from oodles.splines import Array

DRIFTING = 0.5  # correlation of a residual with the share of an answer, in both sets, that is worth saying
CONSTANT = 0.95  # share of one answer above which answers are nearly constant
GUESSABLE = ("accuracy", "balanced_accuracy", "auc")  # metrics for which guessing has a known score
SEPARATORS = ("/", ":", "[")


def slice_parents(table: pd.DataFrame) -> dict[str, str]:
    """Slices in the table whose whole set is in the table too.

    A slice says so in a column `slice_of`, or by a name such as `hans/lexical_overlap` beside `hans`.

    >>> table = pd.DataFrame({"test_set": ["hans", "hans/lexical_overlap", "paws"]})
    >>> slice_parents(table)
    {'hans/lexical_overlap': 'hans'}
    """
    names = set(map(str, table["test_set"].unique()))
    found = {n: p for n in names for p in names if n != p and any(n.startswith(p + mark) for mark in SEPARATORS)}
    if "slice_of" in table.columns:
        told = table[["test_set", "slice_of"]].dropna().drop_duplicates()
        found |= {str(child): str(p) for child, p in told.itertuples(index=False) if str(p) in names and child != p}
    return dict(sorted(found.items()))


def sets_that_share(table: pd.DataFrame) -> dict[str, set[str]]:
    """Which test sets share examples: a set with its slices, and slices of one set that overlap.

    Columns `slice_of` and `slice`, which our own tables have, say what a slice holds.
    """
    parents, described = slice_parents(table), {}
    if "slice" in table.columns and "slice_of" in table.columns:
        told = table[["test_set", "slice_of", "slice"]].dropna().drop_duplicates()
        for name, parent, values in told.itertuples(index=False):
            parents[str(name)], described[str(name)] = str(parent), str(values)
    return sharing([str(n) for n in table["test_set"].unique()], parents, described)


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Cautions:
    """What was read from the table, to be asked group by group."""

    constant: Mapping[tuple[str, str], tuple[int, int]]  # (run, test set): points nearly constant, points
    chance: Mapping[str, float]  # by in-domain test set
    metric: str
    guessable: bool
    parents: Mapping[str, str]
    shared: Mapping[str, set[str]]  # test set -> those it shares examples with
    shares: pd.Series | None  # share of the first answer by run, step and test set
    caveats: tuple[str, ...]  # about the whole table

    @classmethod
    def read(cls, table: pd.DataFrame, *, metric: str, chance: float | None) -> Cautions:
        """Look at the answer shares, the chance level and the range of the values."""
        rows = table[table["metric"] == metric]
        levels, said = _chance_levels(table, rows, chance)
        outside = (rows["value"] < 0) | (rows["value"] > 1)
        if metric in GUESSABLE and outside.any():
            said = (*said, f"{int(outside.sum())} values of {metric} are outside 0..1: percentages, or another scale?")
        return cls(
            constant=_constant_points(table),
            chance=levels,
            metric=metric,
            guessable=metric in GUESSABLE and not outside.any(),
            parents=slice_parents(table),
            shared=sets_that_share(table),
            shares=_first_shares(table),
            caveats=said if metric in GUESSABLE else (),
        )

    def of_set(self, series: Series, name: str) -> tuple[str, ...]:
        """Caveats of one test set in one group."""
        said = []
        hits = [self.constant[run, name] for run in series.run_names if (run, name) in self.constant]
        low, points = sum(h[0] for h in hits), sum(h[1] for h in hits)
        if points and 2 * low >= points:
            said.append(
                f"{name}: answers nearly constant (one answer above {CONSTANT:.0%}) at {low} of {points} points"
            )
        if self.parents.get(name) in series.in_domain:
            said.append(f"{name}: shares examples with the in-domain set {self.parents[name]}")
        return tuple(said)

    def drift(self, found: Estimate) -> Array:
        """Correlation of each set's residual with what the in-domain score leaves of its share of an answer.

        Few-shot tuning drifts in how often it gives an answer. That alone moves sets with different label shares
        together or apart; where it moves two residuals, their correlation may be about answers and not about skill.
        """
        series = found.used
        nothing = np.full(len(series.test_sets), np.nan)
        if self.shares is None or len(found.refits) > 1:
            return nothing
        run = np.repeat(np.asarray(series.run_names, dtype=object)[series.runs], len(series.test_sets))
        step = np.repeat(series.steps.astype(float), len(series.test_sets))
        name = np.tile(np.asarray(series.test_sets, dtype=object), len(series.runs))
        told = self.shares.reindex(pd.MultiIndex.from_arrays([run, step, name])).to_numpy(float)
        values = told.reshape(len(series.runs), -1)
        moving = ~np.isnan(values).any(axis=0) & (np.ptp(values, axis=0) > 1e-9)
        if not moving.any():
            return nothing
        left = fit_design(found.refits[0].design, values[:, moving]).residuals
        own = found.fit.residuals[:, moving]
        scale = np.sqrt((left**2).sum(axis=0) * (own**2).sum(axis=0))
        nothing[moving] = (left * own).sum(axis=0) / np.where(scale > 0, scale, np.nan)
        return nothing

    def of_group(self, series: Series) -> tuple[str, ...]:
        """Caveats of a whole group."""
        said = [text for name in series.in_domain for text in self.of_set(series, name)]
        if self.guessable:
            said += _never_rose(series, self.chance)
        return tuple(said)


def _constant_points(table: pd.DataFrame) -> dict[tuple[str, str], tuple[int, int]]:
    shares = table[table["metric"].astype(str).str.startswith("share:")]
    if shares.empty:
        return {}
    largest = shares.groupby(["run", "test_set", "step"], sort=False)["value"].max()
    both = (largest > CONSTANT).groupby(level=["run", "test_set"], sort=False).agg(["sum", "size"])
    return {(str(run), str(name)): (int(low), int(n)) for (run, name), low, n in both.itertuples()}


def _first_shares(table: pd.DataFrame) -> pd.Series | None:
    """Share of the alphabetically first answer."""
    metrics = table["metric"].astype(str)
    answers = sorted(m for m in metrics.unique() if m.startswith("share:"))
    if not answers:
        return None
    rows = table[metrics == answers[0]]
    keys = pd.MultiIndex.from_arrays([rows["run"], rows["step"].astype(float), rows["test_set"]])
    return pd.Series(rows["value"].to_numpy(float), index=keys)


def shared_seeds(series: Series, table: pd.DataFrame, unit: str) -> str | None:
    """A word where runs that count as independent have a seed in common."""
    if unit != "run" or "seed" not in table.columns or len(series.run_names) < 2:
        return None
    runs = table.loc[table["run"].isin(series.run_names), ["run", "seed"]].dropna().drop_duplicates("run")
    seeds = runs["seed"].nunique()
    if len(runs) < len(series.run_names) or seeds == len(runs):
        return None
    where = ", ".join(series.group.values()) or "the table"
    return f"{where}: {len(runs)} runs have {seeds} seeds; if a seed decides their data, it is the unit (--unit seed)"


def _chance_levels(
    table: pd.DataFrame, rows: pd.DataFrame, chance: float | None
) -> tuple[dict[str, float], tuple[str, ...]]:
    """Score of guessing for every in-domain set: as given, from the column, or from the number of answers."""
    names = [str(n) for n in rows.loc[rows["role"] == "in_domain", "test_set"].unique()]
    if chance is not None:
        return dict.fromkeys(names, float(chance)), ()
    answers = table.loc[table["metric"].astype(str).str.startswith("share:"), "metric"].nunique()
    assumed = 1 / answers if answers >= 2 else 0.5
    levels = dict.fromkeys(names, assumed)
    told: dict[str, float] = {}
    if "chance" in rows.columns:
        first = rows.dropna(subset=["chance"]).drop_duplicates("test_set")
        told = {str(n): float(v) for n, v in zip(first["test_set"], first["chance"], strict=True) if n in levels}
    levels |= told
    if answers >= 2 or set(told) >= set(names):
        return levels, ()
    return levels, ("number of answers is not known: chance taken as 0.5",)


def _never_rose(series: Series, chance: Mapping[str, float]) -> list[str]:
    """In-domain scores that stay within two standard errors of guessing at every step."""
    low = 0
    for run in range(len(series.run_names)):
        points = series.runs == run
        level = np.array([[chance.get(name, 0.5) for name in series.in_domain]])
        sizes = series.covariate_sizes[points]
        error = np.sqrt(level * (1 - level) / np.where(np.isfinite(sizes) & (sizes > 0), sizes, 2500.0))
        low += bool((series.covariates[points] <= level + 2 * error).all())
    if not low:
        return []
    return [f"in-domain never rose above chance in {low} of {len(series.run_names)} runs"]
