"""What the table itself warns of: constant answers, in-domain scores at chance, sets that share examples.

Caveats are data. They travel with the numbers they qualify into every table, figure and report.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from oodles.stats.longtable import GUESSABLE, chance_level
from oodles.stats.residuals import Ints, centre
from oodles.stats.series import Series
from oodles.stats.splines import Array

DRIFTING = 0.5  # correlation of a residual with the share of an answer, in both sets, that is worth saying
ORIGINS = ("family", "architecture", "size", "seed", "data_seed", "draw")  # columns of what runs may share
PLURALS = {"family": "families"}
EQUAL = "all equal"  # of in-domain scores, but for one
HARDLY = "in-domain scores hardly differ"
UNKNOWN_SIZE = 2500.0  # examples of a test set that does not tell
LITTLE = 0.02  # of the OOD sets' spread: an in-domain spread of a metric without bounds that is next to none
ENOUGH = 10  # points of which one may be set aside as an outlier
CONSTANT = 0.95  # share of one answer above which answers are nearly constant
ANSWERED = ("accuracy", "balanced_accuracy")  # metrics of the answers given, which AUC knows nothing of
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

    constant: pd.Series | None  # whether answers are nearly constant, by run, step and test set
    chance: Mapping[str, float]  # by in-domain test set; absent where it is not known
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
            count = int(outside.sum())
            values = f"1 value of {metric} is" if count == 1 else f"{count} values of {metric} are"
            said = (*said, f"{values} outside 0..1: percentages, or another scale?")
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

    def of_covariates(self, series: Series, within: str) -> tuple[str, ...]:
        """Whether the in-domain scores hardly differ, so that there is next to nothing to hold fixed.

        They do not if their standard deviation (within runs, where levels of runs are taken out) is no larger than the
        binomial error of one score, with `UNKNOWN_SIZE` examples where n is not known; if they are all but equal; or,
        where the metric has no bounds and so no such error, if it is at most `LITTLE` of the OOD sets' median one. One
        point of `ENOUGH` or more may be an outlier.
        """
        told = [_flat(series, column, within) for column in range(series.covariates.shape[1])]
        return (f"{HARDLY} ({'; '.join(told)})",) if all(told) else ()

    def of_set(self, series: Series, name: str) -> tuple[str, ...]:
        """Caveats of one test set in one group."""
        said = []
        low, points = self.one_answer(series, name)
        if points and 2 * low >= points:
            said.append(
                f"{name}: answers nearly constant (one answer above {CONSTANT:.0%}) at {low} of {points} points"
            )
        if self.parents.get(name) in series.in_domain:
            said.append(f"{name}: shares examples with the in-domain set {self.parents[name]}")
        return tuple(said)

    def one_answer(self, series: Series, name: str) -> tuple[int, int]:
        """At how many of these points a set gets one answer nearly always, and of how many that is known."""
        if self.constant is None:
            return 0, 0
        told = self.constant.reindex(_places(series, (name,))).dropna()
        return int(told.sum()), len(told)

    def mostly_one_answer(self, series: Series, name: str) -> bool:
        """Whether that is so at half of the points or more: accuracy is then that of the answer, whatever the skill."""
        low, points = self.one_answer(series, name)
        return bool(self.metric in ANSWERED and points and 2 * low >= points)

    def shares_of(self, series: Series) -> Array | None:
        """Share of the first answer, points x sets; nan where it is not known."""
        if self.shares is None:
            return None
        told = self.shares.reindex(_places(series, series.test_sets)).to_numpy(float)
        return np.asarray(told.reshape(len(series.runs), -1), dtype=float)

    def of_group(self, series: Series) -> tuple[str, ...]:
        """Caveats of a whole group."""
        said = [text for name in series.in_domain for text in self.of_set(series, name)]
        if self.guessable:
            said += _never_rose(series, self.chance)
        return tuple(said)


def _places(series: Series, names: Sequence[str]) -> pd.MultiIndex:
    """Run, step and test set of every point, for each of these sets."""
    run = np.repeat(np.asarray(series.run_names, dtype=object)[series.runs], len(names))
    step = np.repeat(series.steps.astype(float), len(names))
    return pd.MultiIndex.from_arrays([run, step, np.tile(np.asarray(names, dtype=object), len(series.runs))])


def _constant_points(table: pd.DataFrame) -> pd.Series | None:
    """Whether one answer is given nearly always; 1 or 0."""
    shares = table[table["metric"].astype(str).str.startswith("share:")]
    if shares.empty:
        return None
    keys = [shares["run"], shares["step"].astype(float), shares["test_set"]]
    return (shares.groupby(keys, sort=False)["value"].max() > CONSTANT).astype(float)


def _first_shares(table: pd.DataFrame) -> pd.Series | None:
    """Share of the alphabetically first answer."""
    metrics = table["metric"].astype(str)
    answers = sorted(m for m in metrics.unique() if m.startswith("share:"))
    if not answers:
        return None
    rows = table[metrics == answers[0]]
    keys = pd.MultiIndex.from_arrays([rows["run"], rows["step"].astype(float), rows["test_set"]])
    return pd.Series(rows["value"].to_numpy(float), index=keys)


def shared_origins(series: Series, table: pd.DataFrame, unit: str | None) -> tuple[str, ...]:
    """A word where runs that count as independent have an origin in common, such as a seed or a family."""
    if unit not in (None, "run") or len(series.run_names) < 2 or series.unit_names != series.run_names:
        return ()
    said = []
    single = len(series.scores) == len(series.run_names)
    what = "models" if single else "runs"
    where = ", ".join(series.group.values()) or "the table"
    own = table.loc[table["run"].isin(series.run_names)].drop_duplicates("run")
    seen: set[tuple[int, ...]] = set()
    for column in (name for name in ORIGINS if name in own.columns):
        values = own[column].dropna()
        parts = tuple(pd.factorize(values)[0].tolist())
        if parts in seen:  # a data_seed that is the seed says nothing new
            continue
        seen.add(parts)
        if len(values) == len(series.run_names) and 1 < values.nunique() < len(values):
            several = f"{values.nunique()} {PLURALS.get(column, column + 's')}"
            why = "if a seed decides their data" if column == "seed" else f"if those of one {column} are alike"
            said.append(f"{where}: {len(values)} {what} have {several}; {why}, it is the unit (--unit {column})")
    return tuple(said)


def hardly_differ(caveats: Iterable[str]) -> bool:
    """Whether one of them says that the in-domain scores hardly differ."""
    return any(said.startswith(HARDLY) for said in caveats)


def raw_matters(pairs: pd.DataFrame) -> bool:
    """Whether raw correlations belong beside partial ones: little was regressed out, or every model is one point."""
    single = "n_steps" in pairs and bool((pairs["n_steps"] == pairs["n_runs"]).all()) and len(pairs) > 0
    return single or any(hardly_differ(said) for said in pairs["caveats"])


def _flat(series: Series, column: int, within: str) -> str:
    """How little one in-domain set's scores differ; empty if they differ by more than their sampling error."""
    whole = np.ones(len(series.runs), dtype=bool)
    if len(whole) < 2:
        return ""
    told = _flat_at(series, column, within, whole)
    if told == EQUAL or len(whole) < ENOUGH:
        return told
    rest = whole.copy()
    rest[np.argmax(np.abs(_apart(series.covariates[:, column], series.runs, within)))] = False
    without = _flat_at(series, column, within, rest)
    if told and without != EQUAL:
        return told
    return f"{without}, but for 1 of {len(whole)} points" if without else ""


def _flat_at(series: Series, column: int, within: str, points: NDArray[np.bool_]) -> str:
    z, sizes, runs = series.covariates[points, column], series.covariate_sizes[points, column], series.runs[points]
    spread = _spread(z, runs, within)
    if spread <= 1e-9 * max(1.0, float(np.abs(z).max())):
        return EQUAL
    if not np.isfinite(series.scale):
        others = np.nanmedian([_spread(y[~np.isnan(y)], runs[~np.isnan(y)], within) for y in series.scores[points].T])
        return f"sd {spread:.2g}, OOD sets {others:.2g}" if spread <= LITTLE * others else ""
    n, share = np.where(np.isfinite(sizes), sizes, UNKNOWN_SIZE), z / series.scale
    error = series.scale * float(np.sqrt(np.mean(share * (1 - share) / n)))
    size = f"{n.min():.0f} examples" if np.isfinite(sizes).all() else f"{UNKNOWN_SIZE:.0f} examples, n not being known"
    return f"sd {spread:.2g}, sampling error {error:.2g} of {size}" if spread <= error else ""


def _apart(values: Array, runs: Ints, within: str) -> Array:
    """How far each score is from the mean, or from that of its run."""
    if within == "pooled":
        return np.asarray(values - values.mean(), dtype=float)
    codes = np.unique(runs, return_inverse=True)[1].astype(np.int64)
    return centre(values[:, None], codes)[:, 0]


def _spread(values: Array, runs: Ints, within: str) -> float:
    """Standard deviation, within runs where their levels are taken out; nan of no scores."""
    if not len(values):
        return float("nan")
    levels = 1 if within == "pooled" else len(np.unique(runs))
    return float(np.sqrt((_apart(values, runs, within) ** 2).sum() / max(len(values) - levels, 1)))


def _chance_levels(
    table: pd.DataFrame, rows: pd.DataFrame, chance: float | None
) -> tuple[dict[str, float], tuple[str, ...]]:
    """Score of guessing for every in-domain set: as given, from the column, or from the answers of that set."""
    names = [str(n) for n in rows.loc[rows["role"] == "in_domain", "test_set"].unique()]
    if chance is not None:
        return dict.fromkeys(names, float(chance)), ()
    told = {name: chance_level(table, name, str(rows["metric"].iloc[0])) for name in names}
    levels = {name: level for name, level in told.items() if np.isfinite(level)}
    unknown = sorted(set(names) - set(levels))
    if not unknown:
        return levels, ()
    return levels, (
        f"chance is not known for {', '.join(unknown)} (column chance, or --chance): whether a run rose above it was "
        "not checked",
    )


def _chance_of(name: str, chance: Mapping[str, float]) -> float:
    """Of an in-domain set, or of the several that runs which differ in theirs put into one column."""
    if name in chance:
        return chance[name]
    levels = {chance.get(part) for part in name.split("/")}
    only = levels.pop() if len(levels) == 1 else None
    return float("nan") if only is None else only


def _never_rose(series: Series, chance: Mapping[str, float]) -> list[str]:
    """In-domain scores that stay within two standard errors of guessing at every step."""
    level = np.array([[_chance_of(name, chance) for name in series.in_domain]])
    if np.isnan(level).any():
        return []
    low = 0
    for run in range(len(series.run_names)):
        points = series.runs == run
        sizes = series.covariate_sizes[points]
        error = np.sqrt(level * (1 - level) / np.where(np.isfinite(sizes) & (sizes > 0), sizes, UNKNOWN_SIZE))
        low += bool((series.covariates[points] <= level + 2 * error).all())
    if not low:
        return []
    return [f"in-domain never rose above chance in {low} of {len(series.run_names)} runs"]


def sharing(names: Sequence[str], parents: Mapping[str, str], described: Mapping[str, str]) -> dict[str, set[str]]:
    """Which sets share examples: a set with its slices, and slices of one set that are not known to be disjoint.

    Parameters
    ----------
    parents : slice -> its set.
    described : slice -> what it is, as `str(Slice)` says; slices without that are taken as disjoint.

    Examples
    --------
    >>> told = {"h/lex": '{"kind": "lex"}', "h/con": '{"kind": "con"}', "h/yes": '{"label": "yes"}'}
    >>> shared = sharing(["h", *told], dict.fromkeys(told, "h"), told)
    >>> sorted(shared["h/lex"])
    ['h', 'h/yes']
    """
    shared: dict[str, set[str]] = {name: set() for name in names}
    for child, parent in parents.items():
        if child in shared and parent in shared:
            shared[child].add(parent)
            shared[parent].add(child)
    values = {name: _values(told) for name, told in described.items()}
    for a, b in ((a, b) for a in values for b in values if a < b):
        disjoint = any(values[b].get(column, value) != value for column, value in values[a].items())
        if parents.get(a) == parents.get(b) and not disjoint:
            shared[a].add(b)
            shared[b].add(a)
    return shared


def _values(told: str) -> dict[str, str]:
    """What `str(Slice)` said; of anything else nothing is known, so that it may share examples with every slice."""
    try:
        values = json.loads(told)
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}
